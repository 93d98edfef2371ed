"""Matrix products."""

from __future__ import annotations

from functools import partial
from typing import Any, overload

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import common_device, device_of, namespace
from ...core.dtypes import Array
from ...core.hints import Bools, Bytes, Floats, OutType, QuantizeX, Values
from . import calls, float_rows, matrix_plan
from .hadamard import Hadamard
from .operand import bias_values, bits, from_dense, is_dense, operand
from .rms_norm import RMSNorm


@overload
def linear(
    x: QuantArray | Bytes | Floats,
    w: QuantArray | Bools,
    *,
    bias: Values | None = None,
    requantize: None = None,
    out_dtype: OutType = None,
    out: Array | None = None,
    quantize_x: QuantizeX = None,
    rotate: Hadamard | None = None,
    normalize: RMSNorm | None = None,
) -> Array: ...
@overload
def linear(
    x: QuantArray | Bytes | Floats,
    w: QuantArray | Bools,
    *,
    bias: Values | None = None,
    requantize: Thresholds,
    out_dtype: OutType = None,
    out: Array | None = None,
    quantize_x: QuantizeX = None,
    rotate: Hadamard | None = None,
    normalize: RMSNorm | None = None,
) -> QuantArray: ...
@overload
def linear(
    x: QuantArray | Bytes | Floats,
    w: QuantArray | Bools,
    *,
    bias: Values | None = None,
    requantize: Thresholds | None,
    out_dtype: OutType = None,
    out: Array | None = None,
    quantize_x: QuantizeX = None,
    rotate: Hadamard | None = None,
    normalize: RMSNorm | None = None,
) -> Array | QuantArray: ...
def linear(
    x: Any,
    w: QuantArray | Bools,
    *,
    bias: Values | None = None,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    out: Array | None = None,
    quantize_x: QuantizeX = None,
    rotate: Hadamard | None = None,
    normalize: RMSNorm | None = None,
) -> Any:
    """out[.., o] = sum_k x[.., k] * w[o, k] + bias[o].

    x: QuantArray [.. k] packed on k, or an int8, uint8 or bool array; w: QuantArray [o k] packed on k, or bools, which
    are packed for the call. Constants may vary along x's rows and w's outputs, and along k in groups of a multiple of
    64. Result types, `requantize`, `out_dtype` and `out` as in `conv2d`.

    x may also be an array of float32, float16 or bfloat16. Its product with the values of w is float32 (float16 by
    `out_dtype`), in 16 sums, of every 16th product each, which are added by halves: the same by any number of threads,
    on GPUs and on all CPUs with fused multiply-add; the bias is added last. w may have groups of any length.

    With quantize_x="row" each row of such an x becomes int8 first, rint(x * s), s = 127 / max(abs(x)) up to 127 / 1e-5,
    as BitNet b1.58 has it (Ma et al., 2024, arXiv:2402.17764), so that rows far below 1e-5 become 0; the exact product
    of integers is divided by s. With 16, 32 or a multiple of 64, each run of so many elements becomes int8; exact sums
    of 32 products, or 16, are multiplied by the scales of x and w, and added in float32. w may then have groups of 16
    or 32, too, if its levels are evenly spaced. Raises ValueError for a NaN or an infinity in x then. `normalize`, and
    `rotate` after it, change rows of floats before they become int8.

    >>> import numpy as np, quantarray as qa
    >>> x = qa.encode([[1, -1, 1]], values=(-1, 1))
    >>> qa.linear(x, qa.encode([[1, 1, 1], [1, -1, 1]], values=(-1, 1)))
    array([[1, 3]], dtype=int32)
    >>> x, w = np.float32([[0.5, 0.25, -1.0]]), qa.encode([[1, 0, -1]], values=(-1, 0, 1))
    >>> qa.linear(x, w), qa.linear(x, w, quantize_x="row")
    (array([[1.5]], dtype=float32), array([[1.503937]], dtype=float32))
    """
    op = "linear"
    floats = float_rows.is_floats(x)
    packed = not floats and isinstance(x, QuantArray)
    if not (floats or packed) and getattr(x, "dtype", None) == np.float64:
        raise TypeError(
            f"{op}: x must be a QuantArray, or an array of int8, uint8, float32, float16 or bfloat16, got "
            f"{checks.kind(x)}; pass x.astype(np.float32)"
        )
    for name, step, kind in (("rotate", rotate, Hadamard), ("normalize", normalize, RMSNorm)):
        if step is not None and not isinstance(step, kind):
            raise TypeError(f"{op}: {name} must be a {kind.__name__} or None, got {checks.kind(step)}")
    for name, value in (("quantize_x", quantize_x), ("rotate", rotate), ("normalize", normalize)):
        if value is not None and not floats:
            got = f"got {checks.kind(x)}; leave {name} out"
            raise TypeError(f"{op}: {name} is for x of float32, float16 or bfloat16, {got}")
    if not (floats or packed):
        x = operand(op, "x", x, "; floats may be float32, float16 or bfloat16")
    if not isinstance(w, QuantArray):
        w = bits(op, "w", w, likely_fix.swapped(op, x, w))
    if w.ndim != 2 or w.axis != 1:
        got = f"{w.shape} packed on axis {w.axis}{likely_fix.weights(x, w)}"
        raise ValueError(f"{op}: w must be [outputs, k] packed on k (axis 1), got {got}")
    if floats:
        return float_rows.product(op, x, w, bias, requantize, out_dtype, out, quantize_x, (normalize, rotate), linear)
    if packed and x.axis != x.ndim - 1:
        raise ValueError(f"{op}: x must be packed on its last axis, got {x.shape} packed on axis {x.axis}")
    if not x.ndim or x.shape[-1] != w.shape[1]:
        hint = likely_fix.weights(x, w) if x.ndim and x.shape[-1] == w.shape[0] else ""
        raise ValueError(f"{op}: x {x.shape} and w {w.shape} must have the same last length{hint}")
    return _product(op, x, w, bias, requantize, out_dtype, out)


@overload
def matmul(
    a: QuantArray | Bytes, b: QuantArray | Bytes, *, requantize: None = None, out_dtype: OutType = None
) -> Array: ...
@overload
def matmul(
    a: QuantArray | Bytes, b: QuantArray | Bytes, *, requantize: Thresholds, out_dtype: OutType = None
) -> QuantArray: ...
@overload
def matmul(
    a: QuantArray | Bytes, b: QuantArray | Bytes, *, requantize: Thresholds | None, out_dtype: OutType = None
) -> Array | QuantArray: ...
def matmul(a: Any, b: Any, *, requantize: Thresholds | None = None, out_dtype: OutType = None) -> Any:
    """a @ b with NumPy's shapes: out[.., i, j] = sum_k a[.., i, k] * b[.., k, j].

    `a` packed on its last axis, `b` on its last but one (or its only one); one of them may be an int8, uint8 or bool
    array. Leading axes broadcast. Result types, `requantize` and `out_dtype` as in `conv2d`.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1], [1, 1]], values=(-1, 1))
    >>> b = qa.encode([[1, 0], [2, 3]], values=range(4), axis=0)
    >>> a @ b
    array([[-1, -3],
           [ 3,  3]], dtype=int32)
    """
    op = "matmul"
    hint = "; rows of floats and w [outputs, k] are for linear(x, w)"
    a, b = (operand(op, name, x, hint if float_rows.is_floats(x) else "") for name, x in (("a", a), ("b", b)))
    if not isinstance(a, QuantArray) and not isinstance(b, QuantArray):
        raise TypeError(f"{op}: at least one operand must be a QuantArray; two dense arrays are NumPy's own")
    common_device(op, a=a, b=b)
    _check_matrices(op, a, b)
    if requantize is not None and b.ndim != 2:
        raise TypeError(f"{op}: requantize needs a right operand with two axes, got {b.shape}")
    if a.ndim == 1:
        return _first(matmul(a[None], b, requantize=requantize, out_dtype=out_dtype), b.ndim)
    if b.ndim == 1:
        out = matmul(a, _column(b), requantize=requantize, out_dtype=out_dtype)
        return out if isinstance(out, QuantArray) else out.reshape(out.shape[:-1])
    if b.ndim == 2:
        return _product(op, a, _transposed(b), None, requantize, out_dtype)
    return _batched(op, a, b, requantize, out_dtype)


def _check_matrices(op: str, a: Any, b: Any) -> None:
    if not a.ndim or not b.ndim:
        raise ValueError(f"{op}: operands must have at least one axis, got {a.shape} and {b.shape}")
    row = b.ndim - 2 if b.ndim > 1 else 0
    if a.shape[-1] != b.shape[row]:
        hint = "; b as [outputs, k] is b.T, or goes to linear" if a.shape[-1] == b.shape[-1] else ""
        raise ValueError(f"{op}: a {a.shape} and b {b.shape} must agree in a's last and b's last but one length{hint}")
    for name, q, at in (("a", a, a.ndim - 1), ("b", b, row)):
        if isinstance(q, QuantArray) and q.axis != at:
            raise ValueError(
                f"{op}: {name} {q.shape} must be packed on axis {at}, over which the product sums, but is packed on "
                f"axis {q.axis}; pass axis={at - q.ndim} to quantize or encode"
            )


def _column(b: Any) -> Any:
    return b[:, None]


def _first(out: Any, ndim: int) -> Any:
    """Drop the row axis that a vector on the left was given."""
    at = out.ndim - (2 if ndim > 1 else 1)
    return out[(slice(None),) * at + (0,)] if out.ndim > 1 or isinstance(out, QuantArray) else out[0]


def _transposed(b: Any) -> QuantArray:
    """Transpose a matrix [k, n] to weights [n, k] packed on k, cached on the array so that kernel layouts are made
    once."""
    if not isinstance(b, QuantArray):
        return from_dense(b.T, 1)
    weights: QuantArray = b._cached("transposed", lambda: b.transpose())
    return weights


def _batched(op: str, a: Any, b: Any, requantize: Thresholds | None, out_dtype: Any) -> Any:
    """Compute one product for each index of the broadcast leading axes."""
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"{op}: leading axes of {a.shape} and {b.shape} do not broadcast") from None

    def matrix(q: Any, at: tuple[int, ...]) -> Any:
        index = at[len(lead) - (q.ndim - 2) :]
        return q[tuple(0 if n == 1 else i for i, n in zip(index, q.shape, strict=False))]

    shape = (*lead, a.shape[-2], b.shape[-1])
    parts = [matmul(matrix(a, at), matrix(b, at), out_dtype=out_dtype) for at in np.ndindex(*lead)]
    if not parts:
        p, q = (from_dense(x, x.ndim - back) if is_dense(x) else x for x, back in ((a, 1), (b, 2)))
        return np.empty(shape, matrix_plan.operands(op, p, q, a.shape[-1], None, out_dtype)[2])
    return namespace(device_of(parts[0])).stack(parts).reshape(shape)


def _product(
    op: str,
    x: Any,
    w: QuantArray,
    bias: Any,
    requantize: Thresholds | None,
    out_dtype: Any,
    out: Array | None = None,
) -> Any:
    """x [.., k] times w [o, k], both packed on k."""
    shift = bias_values(op, bias, w.shape[0])
    run = calls.prepared(op, x, w, (requantize, out_dtype), shift, partial(matrix_plan.prepare, op))
    if out is None:
        return run(x)
    dtype, shape = run.call.dtype, run.call.shape
    return calls.write_to(op, w.device, out, requantize, dtype, shape, len(shape) - 1, lambda rows: run(x, out=rows))
