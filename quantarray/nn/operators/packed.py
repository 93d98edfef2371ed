"""Operations on packed arrays, and between packed and dense ones. Products take `levels` if those of x are uneven."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import to_host
from ...core.dtypes import Array, DType, integers
from ...ops.creation.creation import from_codes
from ...ops.manipulation.joining import concat
from ...ops.manipulation.padding import pad
from ...ops.manipulation.rearranging import split
from ...ops.manipulation.repacking import repack
from ...ops.manipulation.shuffling import channel_shuffle
from ...ops.products import geometry
from ...ops.products.chain import apply_chain, chain_of, takes
from ...ops.products.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ...ops.products.convolution import conv2d
from ...ops.products.convolution_1d_3d import conv1d, conv3d
from ...ops.products.matrix_product import linear
from ...ops.products.pooling import max_pool1d, max_pool2d, max_pool3d
from ...ops.products.residual import add_residual
from ...ops.words.code_tables import NO_FACTORS, look_up
from ...ops.words.conversion import codes, dequantize
from ..levels import of_levels
from . import movement
from .movement import reshaped
from .record import Attributes, Operator, of_first

Operation = Callable[..., Any]


def _linear(
    a: Attributes, x: Any, w: QuantArray, requantize: Thresholds | None = None, levels: Array | None = None
) -> Any:
    if levels is not None:
        x = of_levels(x, levels)
    if isinstance(x, QuantArray) and x.axis != x.ndim - 1:
        x = repack(x, -1)
    return linear(x, w, requantize=requantize)


def _dequantized_linear(a: Attributes, x: Any, w: QuantArray) -> Array:
    """x @ values of w, transposed, in float32."""
    return linear(x, w)


def _convolution(convolve: Operation, axes: int) -> Operation:
    """Return an operation that convolves images of so many axes, plain or transposed."""

    def run(
        a: Attributes, x: Any, w: QuantArray, requantize: Thresholds | None = None, levels: Array | None = None
    ) -> Any:
        if levels is not None:
            x = of_levels(x, levels)
        options = _without_zero(a, w) if "zero" in a else a
        return convolve(_by_channels(x), w, requantize=requantize, data_format=geometry.LAYOUTS[axes].first, **options)

    return run


def _without_zero(a: Attributes, w: QuantArray) -> Attributes:
    """Return options by which x convolves as x - `zero`, whose padding is zeros."""
    zero = a["zero"]

    def build() -> Any:
        return -zero * to_host(dequantize(w)).astype(np.int64).reshape(len(w), -1).sum(axis=1)

    options = {name: value for name, value in a.items() if name != "zero"}
    return {**options, "pad_value": zero, "bias": w._cached(("bias of a zero point", zero), build)}


def _by_channels(x: Any) -> Any:
    return repack(x, 1) if isinstance(x, QuantArray) and x.axis != 1 else x


def _max_pool(pool: Operation, axes: int) -> Operation:
    """Return an operation that takes the largest value of each window of images of so many axes."""

    def run(a: Attributes, x: Any, falling: Any = False) -> Any:
        options = {name: value for name, value in a.items() if name != "size"}
        return pool(_by_channels(x), a["size"], falling=falling, data_format=geometry.LAYOUTS[axes].first, **options)

    return run


def _add_residual(a: Attributes, x: Any, residual: Any, requantize: Thresholds | None = None) -> Any:
    axis = a["axis"]
    x, residual = (repack(q, axis) if isinstance(q, QuantArray) and q.axis != axis else q for q in (x, residual))
    add: Operation = add_residual
    return add(x, residual, axis=axis, requantize=requantize, return_sum=a.get("return_sum", False))


def _split(a: Attributes, q: QuantArray) -> Any:
    """Cut codes along an axis into parts of the lengths `split`."""
    return tuple(split(q, list(accumulate(a["split"][:-1])), axis=a["axis"]))


def _pad(a: Attributes, q: QuantArray) -> QuantArray:
    """Extend images by pixels of one level; `pads` are those at the top, left, bottom and right."""
    top, left, bottom, right = a["pads"]
    return pad(q, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=a["value"])


def _threshold(a: Attributes, x: Any, thresholds: Thresholds) -> QuantArray:
    """Convert values to codes by thresholds, packed on the channels.

    A single float threshold for all channels is compared by NumPy: packing the results takes a third of the time of
    packing by a threshold for each channel.
    """
    if isinstance(x, QuantArray):
        x = dequantize(x)
    if not isinstance(x, np.ndarray) and x.dtype == np.float32 and a["axis"] == 1 and takes(thresholds):
        chain = chain_of((), np.empty((0, x.shape[1]), np.float32), None, None, x.shape)
        encoded = apply_chain(x, None, chain, thresholds, False)[1]  # which waits for no NaN
        assert encoded is not None
        return encoded
    values = thresholds.values
    if (
        isinstance(x, np.ndarray)
        and x.dtype == np.float32
        and values.shape == (1,)
        and thresholds.greater
        and thresholds.into.ascending
    ):
        checks.no_nan("Thresholds", "values", x)
        over = x > values[0] if thresholds.strict else x >= values[0]
        return from_codes(over.view(np.uint8), thresholds.into, a["axis"])
    return thresholds(x, a["axis"])


def _pack(a: Attributes, x: Array) -> QuantArray:
    """Pack integers plus `shift` as codes of `levels`, whose steps are 1."""
    dtype = _dtype(a["levels"])
    checks.no_nan("pack", "x", x)
    if x.dtype == np.uint8 and a["shift"] == a["levels"][0]:
        return from_codes(x, dtype, a["axis"])  # without a copy
    return from_codes((x.astype(np.int64) + (a["shift"] - a["levels"][0])).astype(np.uint8), dtype, a["axis"])


def _relabel(a: Attributes, q: QuantArray) -> QuantArray:
    """Return the same codes with other levels."""
    return QuantArray(q.words, _dtype(a["levels"]), q.shape, q.axis)


def _look_up(
    a: Attributes, q: QuantArray, table: Array, other: QuantArray | None = None, factors: Array | None = None
) -> Any:
    """Return table[code], or table[code + 2**bits * code of the other], as codes of levels low to high."""
    if other is not None and other.axis != q.axis:
        other = repack(other, q.axis)
    bits = q.bits + (0 if other is None else other.bits)
    if table.shape != (2**bits,) or table.dtype != np.uint8 or (other is not None and other.shape != q.shape):
        raise ValueError(f"its table must be uint8 ({2**bits},), got {table.dtype} {table.shape}")
    factors = NO_FACTORS if factors is None else factors
    return look_up(q, other, table, factors, _dtype(tuple(range(a["low"], a["high"] + 1))))


@lru_cache(maxsize=256)
def _dtype(levels: tuple[int, ...]) -> DType:
    return integers(levels)


def _integers(a: Attributes, q: QuantArray) -> Array:
    """Return the levels of packed codes as a dense array, int32."""
    return dequantize(q)


def _reshape(a: Attributes, q: QuantArray) -> QuantArray:
    """Reshape codes; pack them on the last axis first if axes after the packed one merge with it."""
    new = reshaped(q.shape, a["shape"], 1)
    if q.axis != q.ndim - 1 and merged(q, new):
        q = repack(q, -1)
    return q.reshape(*new)


def merged(q: Any, new: tuple[int, ...]) -> bool:
    """Tell by the shape and axis of q whether axes after the packed one merge with it in a new shape."""
    return math.prod(q.shape[: q.axis + 1]) not in accumulate(new, operator.mul)


def _concat(a: Attributes, *x: Any) -> Any:
    if all(isinstance(q, QuantArray) for q in x):
        return concat([repack(q, x[0].axis) if q.axis != x[0].axis else q for q in x], axis=a["axis"])
    return movement.OPERATORS["Concat"].run(a, *x)


def _chain(
    a: Attributes, x: Array, other: Array | None = None, constants: Array | None = None, scale: Array | None = None,
    other_scale: Array | None = None, thresholds: Thresholds | None = None,
) -> Any:  # fmt: skip
    """Apply `steps`, with `constants` [steps channels], to x times `scale`; return values, codes, or both."""
    prepared = a.get("prepared")
    if prepared is None:
        steps, gives = tuple(a["steps"]), tuple(a["gives"])
        if gives not in (("values",), ("codes",), ("values", "codes")) or ("codes" in gives) != (
            thresholds is not None
        ):
            raise ValueError(f"it gives {gives!r:.80}, and has {'no ' * (thresholds is None)}thresholds")
        chain = chain_of(tuple(STEPS.index(step) for step in steps), constants, scale, other_scale, x.shape)
        prepared = a["prepared"] = chain, "values" in gives
    chain, dense_too = prepared
    values, codes = apply_chain(x, other, chain, thresholds, dense_too)
    results = tuple(r for r in (values, codes) if r is not None)
    return results if len(results) > 1 else results[0]


STEPS = ("add", "subtract", "subtract from", "multiply", "divide", "max", "min", "slope", "add other",
         "affine", "offset")  # fmt: skip

_CONVOLUTIONS: tuple[Operation, ...] = conv1d, conv2d, conv3d
_TRANSPOSED: tuple[Operation, ...] = conv_transpose1d, conv_transpose2d, conv_transpose3d
_POOLS: tuple[Operation, ...] = max_pool1d, max_pool2d, max_pool3d
_PRODUCT: dict[str, Any] = {"requantizes": True, "order": "any", "launches": True, "rows": of_first}


def _by_axis(a: Attributes, shapes: Any) -> tuple[int, ...]:
    """Return the first operand, whose rows are apart if thresholds, or packed words, are of another axis."""
    return (0,) if a["axis"] != 0 else ()


def _packed(run: Operation, **known: Any) -> Operator:
    return Operator(run=run, packed=True, **known)


OPERATORS = {
    "chain": _packed(_chain, order="any", launches=True, images=2, rows=lambda a, s: (0, 1)),
    "linear": _packed(_linear, **_PRODUCT),
    "dequantized_linear": _packed(_dequantized_linear, order="rows"),
    **{f"conv{n}d": _packed(_convolution(run, n), images=1, **_PRODUCT) for n, run in enumerate(_CONVOLUTIONS, 1)},
    **{f"conv_transpose{n}d": _packed(_convolution(run, n), **_PRODUCT) for n, run in enumerate(_TRANSPOSED, 1)},
    "add_residual": _packed(_add_residual, **_PRODUCT),
    **{
        f"max_pool{n}d": _packed(_max_pool(run, n), order="any", launches=True, images=1, rows=of_first)
        for n, run in enumerate(_POOLS, 1)
    },
    "pad": _packed(_pad),
    "threshold": _packed(_threshold, order="any", launches=True, images=1, rows=_by_axis),
    "pack": _packed(_pack, launches=True, rows=_by_axis),
    "look_up": _packed(_look_up, order="any", launches=True, rows=lambda a, s: (0, 2)),
    "relabel": _packed(_relabel, launches=True, rows=of_first),
    "unpack": _packed(_integers, launches=True, rows=of_first),
    "codes": _packed(lambda a, q: codes(q)),
    "reshape": _packed(_reshape, launches=True, rows=of_first),
    **{
        packed: _packed(run, launches=True, rows=movement.OPERATORS[name].rows)
        for packed, name, run in (
            ("transpose", "Transpose", movement.OPERATORS["Transpose"].run),
            ("concat", "Concat", _concat),
        )
    },
    "split": _packed(_split),
    "channel_shuffle": _packed(lambda a, q: channel_shuffle(q, a["groups"], 1)),
}
