"""Matrix products."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.layouts import room
from ...arrays.thresholds import Thresholds
from ...backends.registry import common_device, contiguous, device_of, namespace
from ...core.dtypes import Array
from ...core.format import WORD, WORD_BITS, word_count
from ...core.hints import Bytes, OutType, Values
from ...kernels.contract import Fixed, Forms, Right
from ...kernels.windows import row_plan
from . import calls, epilogue, folded_thresholds, parts, prepared_calls, scaled_sums, select
from .few_outputs import FewOutputs
from .lanes import TILE, GroupLanes
from .operand import Operand, bias_values, from_dense, is_dense, lower, operand, plain_terms, result_type, summed


@overload
def linear(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    bias: Values | None = None,
    requantize: None = None,
    out_dtype: OutType = None,
    out: Array | None = None,
) -> Array: ...
@overload
def linear(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    bias: Values | None = None,
    requantize: Thresholds,
    out_dtype: OutType = None,
    out: Array | None = None,
) -> QuantArray: ...
@overload
def linear(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    bias: Values | None = None,
    requantize: Thresholds | None,
    out_dtype: OutType = None,
    out: Array | None = None,
) -> Array | QuantArray: ...
def linear(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    out: Array | None = None,
) -> Any:
    """out[.., o] = sum_k x[.., k] * w[o, k] + bias[o].

    x: QuantArray [.. k] packed on k, or an int8/uint8 array; w: QuantArray [o k] packed on k. Constants may vary along
    x's rows and w's outputs, and along k in groups of a multiple of 64. Result types, `requantize`, `out_dtype` and
    `out` as in `conv2d`.

    >>> import quantarray as qa
    >>> x = qa.encode([[1, -1, 1]], values=(-1, 1))
    >>> qa.linear(x, qa.encode([[1, 1, 1], [1, -1, 1]], values=(-1, 1)))
    array([[1, 3]], dtype=int32)
    """
    op = "linear"
    x = operand(op, "x", x)
    if not isinstance(w, QuantArray):
        checks.packed(op, "w", w, likely_fix.swapped(op, x, w))
    if w.ndim != 2 or w.axis != 1:
        got = f"{w.shape} packed on axis {w.axis}{likely_fix.weights(x, w)}"
        raise ValueError(f"{op}: w must be [outputs, k] packed on k (axis 1), got {got}")
    if isinstance(x, QuantArray) and x.axis != x.ndim - 1:
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

    `a` packed on its last axis, `b` on its last but one (or its only one); one of them may be an int8/uint8 array.
    Leading axes broadcast. Result types, `requantize` and `out_dtype` as in `conv2d`.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1], [1, 1]], values=(-1, 1))
    >>> b = qa.encode([[1, 0], [2, 3]], values=range(4), axis=0)
    >>> a @ b
    array([[-1, -3],
           [ 3,  3]], dtype=int32)
    """
    op = "matmul"
    a, b = operand(op, "a", a), operand(op, "b", b)
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
    """A matrix [k, n] as weights [n, k] packed on k, kept on the array so that kernel layouts are made once."""
    if not isinstance(b, QuantArray):
        return from_dense(b.T, 1)
    found: QuantArray = b._cached("transposed", lambda: b.transpose())
    return found


def _batched(op: str, a: Any, b: Any, requantize: Thresholds | None, out_dtype: Any) -> Any:
    """One product for each index of the broadcast leading axes."""
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"{op}: leading axes of {a.shape} and {b.shape} do not broadcast") from None

    def matrix(q: Any, at: tuple[int, ...]) -> Any:
        own = at[len(lead) - (q.ndim - 2) :]
        return q[tuple(0 if n == 1 else i for i, n in zip(own, q.shape, strict=False))]

    shape = (*lead, a.shape[-2], b.shape[-1])
    parts = [matmul(matrix(a, at), matrix(b, at), out_dtype=out_dtype) for at in np.ndindex(*lead)]
    if not parts:
        p, q = (from_dense(x, x.ndim - back) if is_dense(x) else x for x, back in ((a, 1), (b, 2)))
        return np.empty(shape, _result(op, p, q, a.shape[-1], None, out_dtype)[2])
    return namespace(device_of(parts[0])).stack(parts).reshape(shape)


def _result(
    op: str, x: QuantArray, w: QuantArray, k: int, shift: Array | None, out_dtype: Any
) -> tuple[Operand, Operand, np.dtype[Any]]:
    """The operands in their form for products of k elements, and the type of the result."""
    a, b = lower(op, "x", x), lower(op, "w", w)
    exact = a.exact and b.exact and (shift is None or shift.dtype == np.int64)
    return a, b, result_type(op, exact, k * summed(x, a) * summed(w, b), shift, out_dtype)


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
    run = prepared_calls.kept(op, x, w, (requantize, out_dtype), shift, partial(_prepare, op))
    if out is None:
        return run(x)
    dtype, shape = run.call.dtype, run.call.shape
    return calls.write_to(op, w.device, out, requantize, dtype, shape, len(shape) - 1, lambda rows: run(x, out=rows))


class _Product(NamedTuple):
    """A checked product for any x of one form: what a call has left to do."""

    op: str
    part: int
    terms: Array | None  # of x, if its words are taken as they are
    call: calls.Call | scaled_sums.Scaled | folded_thresholds.Folded | FewOutputs

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        q = x if isinstance(x, QuantArray) else from_dense(x, x.ndim - 1)
        if isinstance(self.call, FewOutputs):
            return self.call(q, out)
        if self.terms is not None:
            return self.call(calls.left(q.words, self.terms, 1, True), out)
        a = lower(self.op, "x", q)
        if self.call.dtype != np.float32:
            return self.call(calls.left(a.words, a.terms, 1, True), out)
        scale, offset = a.constants(q.ndim)
        scale = np.moveaxis(_rows(scale, 1, q.shape, q.group, self.part), -1, 0)[..., None]
        offset = np.moveaxis(_rows(offset[None], 1, q.shape, q.group, self.part)[0], -1, 0)[..., None]
        return self.call(calls.left(a.words, a.terms, 1, True, contiguous(scale), contiguous(offset)), out)


def _prepare(
    op: str, device: str, x: Any, w: QuantArray, shift: Array | None, requantize: Thresholds | None, out_dtype: Any
) -> _Product | calls.OfNothing | parts.ByOutputs | parts.ByRows:
    outputs, k = w.shape
    shape = (*x.shape[:-1], outputs)
    into = epilogue.check(op, requantize, outputs)
    checks.room(op, f"a result of shape {shape}", epilogue.nbytes(into, shape))
    q = _sample(x)
    a, b, dtype = _result(op, q, w, k, shift, out_dtype)
    if not outputs or not k:
        return calls.OfNothing(device, shift, requantize, dtype, shape)
    part = _part_length(op, q, w, k)
    if select.pick(select.LAYOUT, (x, w, b, part)) == select.WHERE_THEY_LIE:
        terms = plain_terms(q) if dtype != np.float32 else None
        return _Product(op, part, terms, FewOutputs(device, w._view(), shift, requantize, dtype, shape))
    step = parts.row_step(x, a, math.prod(shape[:-1])) if len(shape) > 1 else 1
    rows = shape[0] if len(shape) > 1 else 1
    if select.pick(select.ROWS, (step, rows)) == select.IN_TURN:
        prepare = partial(_by_outputs, op, device, part, dtype)
        return parts.ByRows.of(parts.Result(device, requantize, dtype, shape), prepare, x, w, shift, step)
    return _by_outputs(op, device, part, dtype, x, w, shift, requantize)


def _sample(x: Any) -> QuantArray:
    """x, or a row of bytes as it would be packed: what says all but the words."""
    return from_dense(x[(slice(0, 1),) * (x.ndim - 1)], x.ndim - 1) if is_dense(x) else x


def _by_outputs(
    op: str, device: str, part: int, dtype: np.dtype[Any], x: Any, w: QuantArray, shift: Array | None,
    requantize: Thresholds | None,
) -> _Product | parts.ByOutputs:  # fmt: skip
    """The product of weights whose layout may be kept, or else by parts."""
    b, (outputs, k) = lower(op, "w", w), w.shape
    each = 24  # bytes of an output's sums and constants
    if dtype == np.float32:
        each = 40 if requantize is None else 80
        if part < k or len(b.terms) > 1:
            each = 16 + 40 * len(b.terms) * -(-k // part)
    words = word_count(k)
    layout = parts.layout_bytes(b.planes, outputs, words) + each * outputs
    if select.pick(select.OUTPUTS, (layout, w.nbytes + room(w.nbytes))) == select.AT_ONCE:
        return _whole(op, device, part, dtype, x, w, shift, requantize)
    result = parts.Result(device, requantize, dtype, (*x.shape[:-1], outputs))
    output = b.planes * words * WORD.itemsize
    return parts.by_outputs(result, partial(_whole, op, device, part, dtype), x, w, shift, output, output + each)


def _whole(
    op: str, device: str, part: int, dtype: np.dtype[Any], x: Any, w: QuantArray, shift: Array | None,
    requantize: Thresholds | None,
) -> _Product:  # fmt: skip
    q, k, shape = _sample(x), w.shape[1], (*x.shape[:-1], w.shape[0])
    a, b = lower(op, "x", q), lower(op, "w", w)
    terms, real = plain_terms(q) if dtype != np.float32 else None, dtype == np.float32
    constants = select.pick(select.CONSTANTS, select.MatrixJob(device, real, requantize, a.terms, b, k, part))
    if constants == select.RESCALED:
        return _Product(op, part, terms, _scaled(device, w, a, b, part, shift, shape))
    ready = partial(_call, device, part=part, shift=shift, requantize=requantize, dtype=dtype, shape=shape)
    if constants != select.FOLDED:
        return _Product(op, part, terms, ready(w, a, b))
    exact = _call(device, w, a, b, part, None, None, np.dtype(np.int32), shape)
    if calls.layout_of(exact.name) == calls.layout_of("conv_real"):
        return _Product(op, part, terms, folded_thresholds.fold(ready(w, a, b), exact, 1))
    if not folded_thresholds.folds(a, b):
        return _Product(op, part, terms, ready(w, a, b))
    view = w._view()

    def again() -> calls.Call:  # whose layout is not kept besides that of the exact sums
        fresh = view._view()
        return ready(fresh, a._replace(source=fresh), lower(op, "w", fresh))

    return _Product(op, part, terms, folded_thresholds.fold(again(), exact, 1, again=again))


def _call(
    device: str, w: QuantArray, a: Operand, b: Operand, part: int, shift: Array | None, requantize: Thresholds | None,
    dtype: np.dtype[Any], shape: tuple[int, ...],
) -> calls.Call:  # fmt: skip
    (outputs, k), rows = w.shape, math.prod(shape[:-1])
    job = select.ProductJob(device, dtype, 1, a.terms, b.terms, rows, outputs, word_count(k), Forms())
    name = select.kernel(job)
    right, sums = _right(device, name, w, b, part)
    lanes = GroupLanes(outputs)
    extra = pad = real_shift = None
    if dtype == np.float32:
        pad = np.zeros((1, outputs))
        real_shift = pad[0] if shift is None else shift.astype(np.float64)
    else:
        extra = calls.integer_extra(a.terms, sums, 0, shift, np.zeros_like(sums), dtype)
    finish = epilogue.finish(requantize, outputs, dtype == np.float32, extra, pad, real_shift, lanes=lanes)
    where = row_plan(rows, word_count(k), max(1, part // WORD_BITS), TILE)
    packed = epilogue.packed(device, requantize, shape)
    return calls.Call(device, name, Fixed(right, where, finish, {}, {}), packed, dtype, shape)


def _scaled(
    device: str, w: QuantArray, a: Operand, b: Operand, part: int, shift: Array | None, shape: tuple[int, ...]
) -> scaled_sums.Scaled:
    """The product of integers, and what makes real results of it."""
    outputs = w.shape[0]
    sums = _call(device, w, a, b, part, None, None, np.dtype(np.int32), shape)
    _, ones = _right(device, sums.name, w, b, part)
    scale = w._cached("scale", lambda: np.array(calls.full_lane(b.constants(2)[0][0, :, 0], outputs)))
    zeros = np.zeros((1, outputs))
    bias = zeros[0] if shift is None else shift.astype(np.float64)
    return scaled_sums.Scaled.of(sums, 1, np.zeros(1, np.int64), scale, ones[:, 0], zeros, bias)


def _part_length(op: str, x: QuantArray, w: QuantArray, k: int) -> int:
    """Elements of k over which no constant changes: a multiple of 64, or all words of k."""
    groups = [q.group for q in (x, w) if q.group is not None and q.group < k]
    for name, q in (("x", x), ("w", w)):
        if q.group is not None and q.group % WORD_BITS and q.group < k:
            raise ValueError(
                f"{op}: the constants of {name} vary along the contraction in groups of {q.group}; products need "
                f"groups of a multiple of {WORD_BITS}"
            )
    return math.gcd(*groups) if groups else word_count(k) * WORD_BITS


def _rows(constant: Array, lead: int, shape: tuple[int, ...], group: int | None, part: int) -> Array:
    """[lead.., rows or 1, parts] of a constant [lead.., *shape's axes]."""
    outer = constant.shape[lead:-1]
    if math.prod(outer) > 1:
        constant = np.broadcast_to(constant, (*constant.shape[:lead], *shape[:-1], constant.shape[-1]))
    flat = constant.reshape(*constant.shape[:lead], -1, constant.shape[-1])
    starts = np.arange(0, max(shape[-1], 1), part)
    index = starts // group if group is not None and flat.shape[-1] > 1 else np.zeros_like(starts)
    return np.asarray(flat[..., index])


def _right(device: str, name: str, w: QuantArray, b: Operand, part: int) -> tuple[Right, Array]:
    """The weights as the kernel takes them and their terms' sums [parts terms outputs], kept on the array."""

    outputs, k = w.shape
    starts = range(0, max(k, 1), part)

    def build() -> tuple[Array, Array]:
        words, step = b.words.reshape(b.planes, outputs, 1, -1), max(1, part // WORD_BITS)
        sums = [
            calls.term_sums(b.terms, min(part, k - at), words[..., i * step : (i + 1) * step])[..., 0]
            for i, at in enumerate(starts)
        ]
        return calls.weight_words(device, name, words, 1), np.array(sums)

    layout = calls.layout_of(name)
    words, sums = w._cached(("linear", layout, part), build)
    if b.recoded is None:
        w._laid_out(calls.words_of(layout), words, 1)
    lanes = GroupLanes(outputs)
    scale, offset = calls.UNREAD
    if name == "conv_real":
        scale, offset = b.constants(2)
        scale = np.moveaxis(_rows(scale, 1, w.shape, w.group, part), -1, 0)
        offset = np.moveaxis(_rows(offset[None], 1, w.shape, w.group, part)[0], -1, 0)
        scale, offset = (lanes(calls.full_lane(constant, outputs)) for constant in (scale, offset))
    right = Right(
        words=words,
        terms=b.terms,
        scale=scale,
        offset=offset,
        sums=lanes(sums),
        inside=np.array([min(part, k - at) for at in starts], np.int64),
        groups=1,
        group_words=word_count(k),
        group_lanes=outputs,
    )
    return right, sums
