"""Convolution of images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Unpack, overload

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import common_device, device_of
from ...core.dtypes import Array
from ...core.hints import Bytes, DataFormat, OutType, Padding, Pair, Values
from . import calls, geometry
from . import residual as shortcuts
from .conv_job import Options, Shortcut
from .conv_plan import Contraction, Prepared
from .conv_prepare import PREPARE
from .lanes import LANES
from .operand import bias_values, operand
from .options import ConvOptions


@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: None = None,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Pair, Padding, DataFormat]],
) -> Array: ...
@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Pair, Padding, DataFormat]],
) -> QuantArray: ...
@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    residual: QuantArray | Array,
    return_sum: Literal[True],
    **options: Unpack[ConvOptions[Pair, Padding, DataFormat]],
) -> tuple[Array, QuantArray]: ...
@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds | None,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Pair, Padding, DataFormat]],
) -> Array | QuantArray: ...
def conv2d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
    residual: QuantArray | Array | None = None,
    return_sum: bool = False,
    out: Array | None = None,
) -> Any:
    """2-D convolution of packed arrays (cross-correlation, as every framework has it).

        out[n, i, j, o] = sum_{a, b, c} x[n, i*sh + a*dh - top, j*sw + b*dw - left, c] * w[o, a, b, c] + bias[o]

    x: QuantArray [n h w c] packed on c, or an int8, uint8 or bool array (first layers). w: QuantArray [o kh kw
    c/groups] packed on its last axis; with groups = c (depthwise) packed on o. `data_format="NCHW"` has x [n c h w] and
    w [o c/groups kh kw], packed on the same axes. stride, dilation: an integer or (height, width). padding: an integer,
    (height, width), ((top, bottom), (left, right)), "same" or "valid". A padded tap has the value `pad_value`, 0 by
    default, whatever x's levels are. `flip_kernel=True` is the textbook convolution.

    Returns int32, exact, where both operands have integer levels without a scale and the bias is integer (int64
    where the sum could pass 2**31); otherwise float32, summed in float64 from exact counts in the order of
    docs/kernels/conv_real.md and rounded once. With `requantize`, a `Thresholds`, the packed codes of exactly that
    result.
    residual: a shortcut of the result's shape, packed on its channels, int8, uint8, int16, int32 or float32, which is
    added before the thresholds as `add_residual` does; `return_sum=True` returns the sum and its codes.
    `out`: an array or tensor of the result's dtype and shape to write to, which is returned; for float32 results on the
    CPU also one of float16 or bfloat16.

    Raises TypeError, ValueError, OverflowError or DeviceError with what was needed, what came, and the fix.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1))
    >>> w = qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1))
    >>> qa.conv2d(x, w, padding=1)[0, :, :, 0]
    array([[256, 384, 256],
           [384, 576, 384],
           [256, 384, 256]], dtype=int32)
    """
    options = Options(stride, padding, dilation, groups, pad_value, requantize, out_dtype, data_format, flip_kernel)
    return convolve(2, x, w, bias, options, out, Shortcut(residual, return_sum))


def convolve(axes: int, x: Any, w: Any, bias: Any, options: Options, out: Any, shortcut: Shortcut | None = None) -> Any:
    """Convolve x by w over so many axes of an image, as `conv1d`, `conv2d` and `conv3d` do."""
    op = f"conv{axes}d"
    if not isinstance(x, QuantArray):
        x = operand(op, "x", x)
    if not isinstance(w, QuantArray):
        checks.packed(op, "w", w, likely_fix.swapped(op, x, w))
    if bias is not None:
        bias = bias_values(op, bias, w.shape[0])
    if shortcut is not None and (shortcut.residual is not None or shortcut.return_sum is not False):
        return _with_shortcut(op, x, w, bias, options, out, shortcut)
    prepared: Prepared = calls.prepared(op, x, w, options, bias, PREPARE[axes])
    if out is None:
        return prepared(x)
    dtype, shape, last = prepared.run.call.dtype, prepared.shape, axes + 1
    if prepared.channels_first:
        shape, last = (shape[0], shape[-1], *shape[1:-1]), 1
    return calls.write_to(
        op, w.device, out, options.requantize, dtype, shape, last, lambda rows: prepared(x, out=prepared.rows(rows))
    )


def _with_shortcut(op: str, x: Any, w: QuantArray, bias: Any, options: Options, out: Any, shortcut: Shortcut) -> Any:
    """Convolve, then add the shortcut and take thresholds in one pass over the sums."""
    law, (residual, return_sum) = options.requantize, shortcut
    if residual is None:
        raise TypeError(f"{op}: return_sum=True needs residual=, a shortcut that is added before the thresholds")
    q = residual if isinstance(residual, QuantArray) else checks.anywhere(op, "residual", residual)

    def build(*_: Any) -> Callable[..., Any]:
        """Return what does not hold w, in whose cache it is."""
        prepared: Prepared = calls.prepared(op, x, w, options._replace(requantize=None), bias, PREPARE[w.ndim - 2])
        common_device(op, x=x, w=w, residual=q)
        return partial(_summed, op, prepared, law, return_sum)

    if out is not None or w.device == "cpu":
        return build()(x, q, out)
    return calls.prepared(f"{op} and a shortcut", x, w, (*options, return_sum), bias, build, q)(x, q)


def _summed(
    op: str, prepared: Prepared, law: Thresholds | None, return_sum: bool, x: Any, q: Any, out: Any = None
) -> Any:
    channels_first, outer, at = prepared.channels_first, prepared.shape, len(prepared.shape) - 1
    if channels_first:
        at, outer = 1, (outer[0], outer[-1], *outer[1:-1])
    shortcuts.check(op, q, outer, at, law, return_sum)
    reach = prepared.reach
    values: Any = _product(prepared, x)
    if values is None or not shortcuts.of_32_bits(q):
        dense = prepared(x)
        values = dense.transpose(*geometry.to_last(len(outer) - 2)) if channels_first else dense
    dtype = shortcuts.sum_dtype(values.dtype, q)
    if out is None:
        memory = None
        if not isinstance(values, calls.Product) and dtype.itemsize == values.dtype.itemsize:
            memory = values.view(dtype) if values.flags.c_contiguous else None  # of the result that sums are of
        return shortcuts.added(op, values, q, at, law, return_sum, memory, reach)

    def to(rows: Array | None) -> Any:
        return shortcuts.added(op, values, q, at, None, False, rows, reach)

    return calls.write_to(op, device_of(x), out, law, dtype, outer, at, to)


def _product(prepared: Prepared, x: Any) -> calls.Product | None:
    """Return the product before it is computed, where a kernel of int32 sums adds shortcuts to it."""
    run = prepared.run
    if not isinstance(run, Contraction) or not isinstance(run.call, calls.Call):
        return None
    name, w, dtype = run.call.name, run.call.fixed.w, run.call.dtype
    in_order = w.groups == 1 or w.group_lanes % LANES == 0  # lanes are the channels
    if name != "conv" or dtype != np.int32 or not in_order:
        return None
    return calls.Product(run.call, run.left(prepared.images(x)), prepared.shape)
