"""Matrix products, made ready: all that does not depend on the words of the left operand."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.layouts import room
from ...arrays.thresholds import Thresholds
from ...backends.registry import contiguous
from ...core.dtypes import Array
from ...core.format import WORD, WORD_BITS, word_count
from ...kernels.operands import Fixed, Forms, Right
from ...kernels.windows import row_plan
from . import calls, conv_plan, epilogue, folded_thresholds, geometry, parts, plane_sums, scaled_sums, select
from .conv_job import Job
from .few_outputs import FewOutputs
from .lanes import TILE, GroupLanes, full_lane, layout_bytes, layout_of, weight_words, words_of
from .operand import Operand, from_dense, is_dense, lower, plain_terms, result_type, row_step, shared, summed


def operands(
    op: str, x: QuantArray, w: QuantArray, k: int, shift: Array | None, out_dtype: Any
) -> tuple[Operand, Operand, np.dtype[Any]]:
    """Lower both operands for products of k elements, and choose the type of the result."""
    a, b = lower(op, "x", x), lower(op, "w", w)
    exact = a.exact and b.exact and (shift is None or shift.dtype == np.int64)
    return a, b, result_type(op, exact, k * summed(x, a) * summed(w, b), shift, out_dtype)


class Product(NamedTuple):
    """A checked matrix product, ready to run for any x of one form."""

    op: str
    part: int
    terms: Array | None  # of x, if its words are taken as they are
    call: calls.Call | scaled_sums.Scaled | folded_thresholds.Folded | FewOutputs | Planes

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        q = x if isinstance(x, QuantArray) else from_dense(x, x.ndim - 1)
        if isinstance(self.call, (FewOutputs, Planes)):
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


class Planes(NamedTuple):
    """A product by sums of planes: rows are images of one pixel."""

    sums: plane_sums.PlaneSums
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.sums.call.dtype

    def __call__(self, x: QuantArray, out: Array | None = None) -> Any:
        """Multiply x [.. k]."""
        rows = x.reshape(math.prod(x.shape[:-1]), 1, 1, x.shape[-1])
        to = None if out is None else out.reshape(self.sums.call.shape)
        return self.sums(rows, to).reshape(*self.shape)


class Kind(NamedTuple):
    """A kind of product: the function, the device, and over how many elements constants stay the same."""

    op: str
    device: str
    part: int
    dtype: np.dtype[Any]

    @property
    def real(self) -> bool:
        """True where results are float32."""
        return self.dtype == np.float32

    @property
    def of_integers(self) -> Kind:
        """Return the exact sums of a real result."""
        return self._replace(dtype=np.dtype(np.int32))


def prepare(
    op: str, device: str, x: Any, w: QuantArray, shift: Array | None, requantize: Thresholds | None, out_dtype: Any
) -> Product | calls.OfNothing | parts.ByOutputs | parts.ByRows:
    """Check the arguments of x [.., k] times w [o, k], and make ready all that does not depend on the words of x."""
    outputs, k = w.shape
    shape = (*x.shape[:-1], outputs)
    into = epilogue.check(op, requantize, outputs)
    checks.room(op, f"a result of shape {shape}", epilogue.nbytes(into, shape))
    q = _sample(x)
    a, b, dtype = operands(op, q, w, k, shift, out_dtype)
    if not outputs or not k:
        return calls.OfNothing(device, shift, requantize, dtype, shape)
    part = _part_length(op, q, w, k)
    if select.pick(select.LAYOUT, (x, w, b, part)) == select.IN_PLACE:
        terms = plain_terms(q) if dtype != np.float32 else None
        return Product(op, part, terms, FewOutputs(device, w._view(), shift, requantize, dtype, shape))
    kind = Kind(op, device, part, dtype)
    step = row_step(x, a, math.prod(shape[:-1])) if len(shape) > 1 else 1
    rows = shape[0] if len(shape) > 1 else 1
    problem = select.MatrixJob(device, kind.real, requantize, a.terms, b, k, part, shared=shared(a, q.ndim))
    if rows > 1 and select.pick(select.CONSTANTS, problem) == select.PLANES:
        step = min(step, plane_sums.images_at_once(a.terms, b, rows, math.prod(shape[1:])))
    if select.pick(select.ROWS, (step, rows)) == select.IN_TURN:
        result = parts.Result(device, requantize, dtype, shape)
        return parts.ByRows.of(result, partial(_by_outputs, kind), x, w, shift, step)
    return _by_outputs(kind, x, w, shift, requantize)


def _sample(x: Any) -> QuantArray:
    """Return x, or a row of its bytes, packed: its form without all its words."""
    return from_dense(x[(slice(0, 1),) * (x.ndim - 1)], x.ndim - 1) if is_dense(x) else x


def _by_outputs(
    kind: Kind, x: Any, w: QuantArray, shift: Array | None, requantize: Thresholds | None
) -> Product | parts.ByOutputs:
    """Multiply by all weights at once if their layout may be cached, else by some outputs after the other."""
    b, (outputs, k) = lower(kind.op, "w", w), w.shape
    each = 24  # bytes of an output's sums and constants
    if kind.real:
        each = 40 if requantize is None else 80
        if kind.part < k or len(b.terms) > 1:
            each = 16 + 40 * len(b.terms) * -(-k // kind.part)
    words = word_count(k)
    layout = layout_bytes(b.planes, outputs, words) + each * outputs
    if select.pick(select.OUTPUTS, (layout, w.nbytes + room(w.nbytes))) == select.AT_ONCE:
        return _whole(kind, x, w, shift, requantize)
    result = parts.Result(kind.device, requantize, kind.dtype, (*x.shape[:-1], outputs))
    output = b.planes * words * WORD.itemsize
    return parts.by_outputs(result, partial(_whole, kind), x, w, shift, output, output + each)


def _whole(kind: Kind, x: Any, w: QuantArray, shift: Array | None, requantize: Thresholds | None) -> Product:
    """Prepare the product by all outputs of w."""
    q, k, shape = _sample(x), w.shape[1], (*x.shape[:-1], w.shape[0])
    a, b = lower(kind.op, "x", q), lower(kind.op, "w", w)
    terms = None if kind.real else plain_terms(q)
    problem = select.MatrixJob(kind.device, kind.real, requantize, a.terms, b, k, kind.part, shared=shared(a, q.ndim))
    constants = select.pick(select.CONSTANTS, problem)
    whole = partial(Product, kind.op, kind.part, terms)
    if constants == select.RESCALED:
        return whole(_scaled(kind.of_integers, w, a, b, _Result(shift, None, shape)))
    if constants == select.PLANES:
        return whole(_planes(kind, w, a, _Result(shift, requantize, shape)))
    ready = partial(_call, kind, result=_Result(shift, requantize, shape))
    if constants != select.FOLDED:
        return whole(ready(w, a, b))
    exact = _call(kind.of_integers, w, a, b, _Result(None, None, shape))
    if layout_of(exact.name) == layout_of("conv_real"):
        return whole(folded_thresholds.fold(ready(w, a, b), exact, 1))
    if not folded_thresholds.folds(a, b):
        folded_thresholds.note_not_folded("conv_real")
        return whole(ready(w, a, b))
    view = w._view()

    def again() -> calls.Call:  # whose layout is not cached besides that of the exact sums
        fresh = view._view()
        return ready(fresh, a._replace(source=fresh), lower(kind.op, "w", fresh))

    return whole(folded_thresholds.fold(again(), exact, 1, again=again))


class _Result(NamedTuple):
    """A last step and the shape of a product [.., outputs]."""

    shift: Array | None  # the bias
    requantize: Thresholds | None
    shape: tuple[int, ...]


def _planes(kind: Kind, w: QuantArray, a: Operand, result: _Result) -> Planes:
    """Prepare a product as a convolution of images of one pixel."""
    (outputs, k), rows = w.shape, math.prod(result.shape[:-1])
    window, pixel = geometry.window(kind.op, (1, 1), (1, 1), 1, 0, 1), w.reshape(outputs, 1, 1, k)
    b, shape = lower(kind.op, "w", pixel), (rows, 1, 1, outputs)
    job = Job(
        kind.device, pixel, a.terms, False, b, window, 1, kind.dtype, 0, result.shift, result.requantize, shape, False,
    )  # fmt: skip
    return Planes(conv_plan.prepare_planes(job), result.shape)


def _call(kind: Kind, w: QuantArray, a: Operand, b: Operand, result: _Result) -> calls.Call:
    """Choose the kernel, and lay out what it reads besides x."""
    (outputs, k), rows = w.shape, math.prod(result.shape[:-1])
    device, dtype, shift = kind.device, kind.dtype, result.shift
    name = select.kernel(
        select.ProductJob(device, dtype, 1, a.terms, b.terms, rows, outputs, word_count(k), Forms()),
    )
    right, sums = _right(kind, name, w, b)
    extra = pad = bias = None
    if kind.real:
        pad = np.zeros((1, outputs))
        bias = pad[0] if shift is None else shift.astype(np.float64)
    else:
        extra = epilogue.integer_extra(a.terms, sums, 0, shift, np.zeros_like(sums), dtype)
    finish = epilogue.finish(result.requantize, outputs, kind.real, extra, pad, bias, lanes=GroupLanes(outputs))
    where = row_plan(rows, word_count(k), max(1, kind.part // WORD_BITS), TILE)
    packed = calls.packed(device, result.requantize, result.shape)
    return calls.Call(device, name, Fixed(right, where, finish, {}, {}), packed, dtype, result.shape)


def _scaled(kind: Kind, w: QuantArray, a: Operand, b: Operand, result: _Result) -> scaled_sums.Scaled:
    """Prepare exact sums, and the constants that rescale them to real results."""
    outputs, shift = w.shape[0], result.shift
    sums = _call(kind, w, a, b, result._replace(shift=None))
    _, ones = _right(kind, sums.name, w, b)
    scale = w._cached("scale", lambda: np.array(full_lane(b.constants(2)[0][0, :, 0], outputs)))
    zeros = np.zeros((1, outputs))
    bias = zeros[0] if shift is None else shift.astype(np.float64)
    rescale = scaled_sums.Rescale(np.zeros(1, np.int64), scale, ones[:, 0], zeros, bias)
    return scaled_sums.Scaled.of(sums, 1, rescale)


def _part_length(op: str, x: QuantArray, w: QuantArray, k: int) -> int:
    """Count the elements of k over which no constant changes: a multiple of 64, or all words of k."""
    groups = [q.group for q in (x, w) if q.group is not None and q.group < k]
    for name, q in (("x", x), ("w", w)):
        if q.group is not None and q.group % WORD_BITS and q.group < k:
            raise ValueError(
                f"{op}: {name} must have one scale for each multiple of {WORD_BITS} elements of the contraction, got "
                f"groups of {q.group}; rows of float32 by linear take such w, with quantize_x=32 as int8; or quantize "
                f"{name} again with group={-(-q.group // WORD_BITS) * WORD_BITS}"
            )
    return math.gcd(*groups) if groups else word_count(k) * WORD_BITS


def _rows(constant: Array, lead: int, shape: tuple[int, ...], group: int | None, part: int) -> Array:
    """Reshape a constant [lead.., *shape's axes] to [lead.., rows or 1, parts]."""
    outer = constant.shape[lead:-1]
    if math.prod(outer) > 1:
        constant = np.broadcast_to(constant, (*constant.shape[:lead], *shape[:-1], constant.shape[-1]))
    flat = constant.reshape(*constant.shape[:lead], -1, constant.shape[-1])
    starts = np.arange(0, max(shape[-1], 1), part)
    index = starts // group if group is not None and flat.shape[-1] > 1 else np.zeros_like(starts)
    return np.asarray(flat[..., index])


def _right(kind: Kind, name: str, w: QuantArray, b: Operand) -> tuple[Right, Array]:
    """Return the weights as the kernel takes them and their terms' sums [parts terms outputs], from w's cache."""

    (outputs, k), part = w.shape, kind.part
    starts = range(0, max(k, 1), part)

    def build() -> tuple[Array, Array]:
        words, step = b.words.reshape(b.planes, outputs, 1, -1), max(1, part // WORD_BITS)
        sums = [
            epilogue.term_sums(b.terms, min(part, k - at), words[..., i * step : (i + 1) * step])[..., 0]
            for i, at in enumerate(starts)
        ]
        return weight_words(kind.device, name, words, 1), np.array(sums)

    layout = layout_of(name)
    words, sums = w._cached(("linear", layout, part), build)
    if b.recoded is None:
        w._laid_out(words_of(layout), words, 1)
    lanes = GroupLanes(outputs)
    scale, offset = calls.UNREAD
    if name == "conv_real":
        scale, offset = b.constants(2)
        scale = np.moveaxis(_rows(scale, 1, w.shape, w.group, part), -1, 0)
        offset = np.moveaxis(_rows(offset[None], 1, w.shape, w.group, part)[0], -1, 0)
        scale, offset = (lanes(full_lane(constant, outputs)) for constant in (scale, offset))
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
        group_elements=k,
    )
    return right, sums
