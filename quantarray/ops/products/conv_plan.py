"""Convolution over channels, made ready: all that does not depend on the words of its left operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, kernel
from ...core.dtypes import Array, uint1
from ...core.format import WORD_BITS, word_count
from ...kernels.operands import Fixed, Frame, Left, Plan, Right, Squares
from ...kernels.windows import along, classes, counted, frame, images_of_a_tile, over_images, plan, squares
from . import (
    bit_sliced,
    calls,
    depthwise_plan,
    epilogue,
    folded_thresholds,
    geometry,
    parts,
    plane_sums,
    scaled_sums,
    select,
)
from .channels import channels_last
from .conv_job import Job
from .lanes import TILE, CopyLanes, GroupLanes, full_lane, layout_of, weight_words, words_of
from .operand import Operand, lower


class UnrolledBits(NamedTuple):
    """A call that unrolls windows, or rows of these, to rows of bits."""

    length: int  # bits a pixel
    rows: tuple[tuple[int, ...], ...]  # size, stride, padding before and dilation along the axes that are left out, too
    shape: tuple[int, ...]  # [i j word]

    @classmethod
    def of(cls, job: Job) -> UnrolledBits:
        window, whole = job.window, 2 - job.unrolled
        before = tuple(pair[0] for pair in window.pads)

        def along_those(axes: tuple[int, ...], left_out: int) -> tuple[int, ...]:
            return (left_out,) * whole + axes[whole:]

        rows = (
            along_those(window.size, 1),
            along_those(window.stride, 1),
            along_those(before, 0),
            along_those(window.dilation, 1),
        )
        return cls(job.w.shape[3], rows, (*along(window, job.unrolled).image, _unit(job)))

    def __call__(self, device: str, words: Array) -> Array:
        """Unroll words [planes n h w 1] to [planes n i j word]."""
        out = empty(device, (*words.shape[:2], *self.shape))
        kernel(device, "unroll")(contiguous(words).reshape(words.shape[:4]), self.length, *self.rows, out)
        return out


class Contraction(NamedTuple):
    """A ready-to-run convolution. It holds packed weights, not w, whose cache holds it."""

    channels: int
    groups: int  # whose channels are moved to words of their own; 1 if all have their own
    images: int  # as the plan counts them
    terms: Array | None  # of x, if its words or bytes are taken as they are
    of_bytes: bool
    unrolled: UnrolledBits | None
    call: calls.Sums | scaled_sums.Scaled | folded_thresholds.Folded

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        """x [n h w c] in, a QuantArray or int8 or uint8 if it is `of_bytes`, the result out."""
        return self.call(self.left(x), out)

    def left(self, x: Any) -> Left:
        """Return x as the kernel takes it."""
        if self.terms is not None:
            words = channels_last(x.view(np.uint8))[None] if self.of_bytes else self._split(x.words)
            return calls.left(words, self.terms, self.images, False)
        a = lower("conv2d", "x", x)
        return _left(self._split(a.words), a, self.images)

    def _split(self, words: Array) -> Array:
        if self.unrolled is not None:
            return self.unrolled(self.call.device, words)
        return words if self.groups == 1 else _split_groups(self.call.device, words, self.channels, self.groups)


class InTurns(NamedTuple):
    """A real result of groups bit by bit, its constants folded into thresholds; `otherwise` where that can't be."""

    exact: folded_thresholds.Exact
    images: int
    otherwise: Contraction

    @property
    def call(self) -> calls.Sums | calls.Output | scaled_sums.Scaled | folded_thresholds.Folded:
        return self.otherwise.call

    def __call__(self, x: QuantArray, out: Array | None = None) -> Any:
        """Run as `Contraction` does."""
        a = lower("conv2d", "x", x)
        left = _left(a.words, a, self.images)
        exact = self.exact.for_scale(left)
        if exact is not None:
            return exact(left)
        folded_thresholds.note_not_folded("conv_real")
        return self.otherwise(x, out)


_Whole = Contraction | plane_sums.PlaneSums | InTurns | depthwise_plan.Channelwise
_Run = _Whole | parts.ByOutputs | parts.ByRows | calls.OfNothing


class Prepared(NamedTuple):
    """A checked convolution, ready to run for any x of one form; w's cache holds it."""

    shape: tuple[int, ...]  # of the result, with channels last
    channels_first: bool
    pack: Callable[[Array], QuantArray] | None  # an image of bytes, if it is not taken as it is
    run: _Run
    reach: int = 0  # of exact sums with bias

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        """Compute the result, in `out` if it is passed: C-contiguous, two axes of an image."""
        axes, x = len(self.shape) - 2, self.images(x)
        if isinstance(self.run, (depthwise_plan.Channelwise, calls.OfNothing)):
            result = self.run(x, lower("conv2d", "x", x), out=out)
        else:
            result = self.run(x, out)
        if axes != 2:
            result = result.reshape(*self.shape)
        return result.transpose(*geometry.to_first(axes)) if self.channels_first else result

    def images(self, x: Any) -> Any:
        """Return x with channels last and two axes of an image, packed if it has to be."""
        axes = len(self.shape) - 2
        if self.channels_first:
            x = x.transpose(*geometry.to_last(axes))
        if axes != 2:
            x = two_axes(x)
        if self.pack is not None and not isinstance(x, QuantArray):  # bytes, as `operand` has it
            x = self.pack(x)
        return x

    def rows(self, out: Array | None) -> Array | None:
        """View a result with channels last as one of two axes of an image."""
        return out if out is None or len(self.shape) == 4 else out.reshape(self.run.call.shape)


def two_axes(a: Any) -> Any:
    """View lines [n w c] as images of one row, and volumes [n d h w c] as images of d * h rows.

    >>> two_axes(np.zeros((2, 3, 4, 5, 6))).shape, two_axes(np.zeros((2, 5, 6))).shape
    ((2, 12, 5, 6), (2, 1, 5, 6))
    """
    rows = math.prod(a.shape[1:-2])
    return a.reshape(a.shape[0], rows, *a.shape[-2:])


def _left(words: Array, a: Operand, images: int) -> Left:
    """Wrap words of an image with the constants of its lowered form."""
    if a.exact:
        return calls.left(words, a.terms, images, False)
    scale, offset = a.constants(4)
    scale, offset = contiguous(scale[None, :, :, 0, 0, :1]), contiguous(offset[None, :, 0, 0, :1])
    return calls.left(words, a.terms, images, False, scale, offset)


def prepare(job: Job) -> Contraction | plane_sums.PlaneSums:
    """Lay the weights out, and everything else that does not depend on the words of x."""
    constants = select.pick(select.CONSTANTS, job)
    if constants == select.RESCALED:
        return _prepare_scaled(job)
    if constants == select.PLANES:
        return prepare_planes(job)
    return _prepare_folded(job) if constants == select.FOLDED else _prepare(job)


def _prepare(job: Job) -> Contraction:
    groups, shape, name = job.groups, job.shape, select.kernel(select.ProductJob.of(job))
    images, where = _where(job, name)
    inside = classes(job.window).inside
    right, inside_sums, outside = _right(job, name, inside)
    extra = pad = shift = None
    if job.real:
        scale, offset = _weight_constants(job.b, shape[3])
        n_outside = (~inside).sum(axis=1) * job.w.shape[3]
        pad, shift = epilogue.real_extras(job.pad, job.bias, outside, n_outside, scale, offset)
    else:
        extra = epilogue.integer_extra(job.terms, inside_sums, int(job.pad), job.bias, outside, job.dtype)
    lanes = GroupLanes(shape[3], groups)
    finish = epilogue.finish(job.requantize, shape[3], job.real, extra, pad, shift, lanes=lanes)
    packed = calls.packed(job.device, job.requantize, shape)
    call = calls.Call(job.device, name, Fixed(right, where, finish, {}, {}), packed, job.dtype, shape)
    per_group, terms = job.w.shape[3], job.terms if job.plain else None
    split = 1 if per_group % WORD_BITS == 0 else groups
    unrolled = UnrolledBits.of(job) if job.unrolled else None
    return Contraction(per_group * groups, split, images, terms, job.of_bytes, unrolled, call)


def _where(job: Job, name: str) -> tuple[int, Plan | Squares | Frame]:
    """(images, plan): where a kernel finds its windows; as the plan counts images."""
    if name == "winograd":
        return job.shape[0], squares(job.window, _unit(job), job.groups)
    if name == "framed":
        return job.shape[0], frame(job.window, _unit(job), job.shape[0])
    # The pixels of a class in as many images as a tile has pixels fill tiles wholly; constants go by image
    together = 1 if job.real else images_of_a_tile(job.shape[0], TILE)
    window = over_images(job.window, together)
    return job.shape[0] // together, plan(window, _unit(job), job.groups, TILE, job.unrolled)


def _prepare_scaled(job: Job) -> Contraction:
    """Prepare exact sums that become real results afterwards."""
    exact = _prepare(job.of_integers)
    assert isinstance(exact.call, calls.Call)
    inside, of_pixel = classes(job.window).inside, classes(job.window).of_pixel
    _, ones, outside = _right(job, exact.call.name, inside)
    scale, offset = _weight_constants(job.b, job.shape[3])
    n_outside = (~inside).sum(axis=1) * job.w.shape[3]
    pad, bias = epilogue.real_extras(job.pad, job.bias, outside, n_outside, scale, offset)
    rescale = scaled_sums.Rescale(of_pixel, scale[0], ones[:, 0], pad, bias)
    call = scaled_sums.Scaled.of(exact.call, exact.images, rescale)
    return exact._replace(images=job.shape[0], call=call)


def prepare_planes(job: Job) -> plane_sums.PlaneSums:
    """Prepare the exact sums of all pairs of terms, and the pass that adds them up."""
    w, channels = plane_sums.stacked_weights(job.w, job.b), job.shape[3]
    terms = job.terms if len(job.terms) == 1 else uint1._term_rows
    shape = (job.shape[0] * len(job.terms), *job.shape[1:3], w.shape[0])
    exact = replace(job.of_integers, w=w, b=lower("conv2d", "w", w), terms=terms, plain=True, shape=shape)
    exact = replace(exact, unrolled=select.AXES[select.pick(select.TAPS, exact)] if exact.few_channels else 0)
    window = classes(job.window)
    sums, outside = _sums_by_class(job, window.inside)
    n_inside = window.inside.sum(axis=1) * job.w.shape[3]
    n_outside = window.inside.shape[1] * job.w.shape[3] - n_inside
    scale, offset = _weight_constants(job.b, channels)
    pad, bias = epilogue.real_extras(job.pad, job.bias, outside, n_outside, scale, offset)
    held = plane_sums.Weights(
        scale, offset if plane_sums.has_offset(job.b) else offset[:0], sums, n_inside, pad, bias,
    )  # fmt: skip
    finish = epilogue.finish(job.requantize, channels, True, lanes=GroupLanes(channels, 1))
    output = calls.Output(calls.packed(job.device, job.requantize, job.shape), job.dtype, job.shape)
    return plane_sums.PlaneSums(prepare(exact), window.of_pixel, held, finish, output)


def _sums_by_class(job: Job, inside: Array) -> tuple[Array, Array]:
    """Return the terms' sums over inner and padded taps [classes terms channels]."""
    words = job.b.words.reshape(job.b.planes, job.shape[3], job.window.taps, -1)
    by_tap = epilogue.term_sums(job.b.terms, job.w.shape[3], words)
    sums = np.moveaxis(by_tap @ inside.T.astype(np.int64), -1, 0)
    return sums, by_tap.sum(axis=-1)[None] - sums


def in_turns(job: Job, turned: Array, merged: Job) -> Contraction | InTurns:
    """Prepare a convolution by weights in turns; a real result is done as `merged` where its constants do not fold."""
    if not job.real:
        return _prepare_sliced(job, turned)
    if select.pick(select.CONSTANTS, job) != select.FOLDED:
        return _prepare(merged)
    exact = _prepare_sliced(job.of_integers, turned)
    assert isinstance(exact.call, bit_sliced.Sliced)
    channels, lanes = job.shape[3], CopyLanes(job.shape[3], 1)
    bias = np.zeros(channels) if job.bias is None else job.bias.astype(np.float64)
    last = epilogue.finish(job.requantize, channels, True, bias=bias, lanes=lanes)
    packed = calls.packed(job.device, job.requantize, job.shape)
    scale, _ = _weight_constants(job.b, channels)
    # An x whose constants do not fold here would not fold in the merged form either
    return InTurns(
        folded_thresholds.Exact(exact.call, lanes(scale[0]), last, packed, {}), exact.images, _prepare(merged)
    )


def _prepare_sliced(job: Job, turned: Array) -> Contraction:
    n, channels, inside = job.w.shape[3], job.shape[3], classes(job.window).inside.astype(np.int64)
    by_tap = turned.reshape(-1, n, channels).sum(axis=1)
    sums, exact = (inside @ by_tap)[:, None], np.dtype(np.int64)
    extra = epilogue.integer_extra(job.terms, sums, int(job.pad), job.bias, by_tap.sum(axis=0) - sums, exact)
    finish = epilogue.finish(job.requantize, channels, False, extra, lanes=CopyLanes(channels, 1))
    output = calls.Output(calls.packed(job.device, job.requantize, job.shape), job.dtype, job.shape)
    call = bit_sliced.prepare(job.device, job.terms, turned, n, job.window, finish, output)
    return Contraction(channels, 1, job.shape[0], job.terms if job.plain else None, False, None, call)


def _prepare_folded(job: Job) -> Contraction:
    """Prepare exact sums that are compared with thresholds made for them."""
    exact = _prepare(job.of_integers)
    assert isinstance(exact.call, calls.Call)
    again = None
    if layout_of(exact.call.name) != layout_of("conv_real"):
        if not job.folds or job.merged:  # merged words, kept for the real call, would be as large as a layout
            folded_thresholds.note_not_folded("conv_real")
            return _prepare(job)
        again = partial(_real_call, apart(job))
        job = apart(job)
    real = _prepare(job)
    assert isinstance(real.call, calls.Call)
    return real._replace(call=folded_thresholds.fold(real.call, exact.call, exact.images, again=again))


def apart(job: Job) -> Job:
    """Return the job for weights that keep layouts of their own."""
    view = job.w._view()
    return replace(job, w=view, b=lower("conv2d", "w", view))


def _real_call(job: Job) -> calls.Call:
    call = _prepare(apart(job)).call  # whose layout is not kept besides that of the exact sums
    assert isinstance(call, calls.Call)
    return call


def _unit(job: Job) -> int:
    """Count the words of a group in a pixel, or its bytes."""
    return job.w.shape[3] if job.of_bytes else word_count(job.rows[1] * job.w.shape[3])


def side_by_side(w: QuantArray, rows: int = 1) -> QuantArray:
    """Reshape weights [o kh kw c] to [o rows 1 taps*c]."""
    flat: QuantArray = w._cached(
        ("side by side", rows), lambda: w.reshape(w.shape[0], rows, 1, math.prod(w.shape[1:]) // rows)
    )
    return flat


def _split_groups(device: str, words: Array, channels: int, groups: int) -> Array:
    """Move each group's channels to words of their own: [planes n h w word] to [planes n h w group word]."""
    per_group = channels // groups
    source = contiguous(words)
    out = empty(device, (*source.shape[:-1], groups, word_count(per_group)))
    if out.size:
        rows = out.reshape(-1, groups, out.shape[-1])
        kernel(device, "rebit")(source.reshape(-1, 1, source.shape[-1]), channels, 0, per_group, rows)
    return out


def _right(job: Job, name: str, inside: Array) -> tuple[Right, Array, Array]:
    """Return the weights as the kernel takes them, and the terms' sums over inner and padded taps [classes terms
    channels]."""
    per_group, channels = job.w.shape[3], job.shape[3]

    def layout() -> tuple[Array, Array]:
        by_tap = job.b.words.reshape(job.b.planes, channels, job.window.taps, -1)
        words = by_tap
        if job.side_by_side:
            rows = job.rows[0]
            words = lower("conv2d", "w", side_by_side(job.w, rows)).words.reshape(len(by_tap), channels, rows, -1)
        return weight_words(job.device, name, words, job.groups), epilogue.term_sums(job.b.terms, per_group, by_tap)

    order = layout_of(name)
    words, by_tap = job.w._cached((order, job.groups, job.side_by_side), layout)
    if job.b.recoded is None and not job.side_by_side:
        job.w._laid_out(words_of(order), words, job.groups)

    def over(taps: Array) -> Array:
        """Sum over some taps of a window, for each class: [classes terms channels]."""
        return np.moveaxis(by_tap @ taps.T.astype(np.int64), -1, 0)

    sums = over(inside)
    lanes = GroupLanes(channels, job.groups)
    scale, offset = calls.UNREAD
    if name == "conv_real":
        scale, offset = (lanes(constant)[None] for constant in _weight_constants(job.b, channels))
    taken = counted(job.window, job.unrolled)  # pixels have no bits at those of them that are outside
    sums_by_class, elements = over(taken), taken.sum(axis=1) * per_group
    if name == "winograd":
        sums_by_class, elements = np.moveaxis(by_tap, -1, 0), np.full(job.window.taps, per_group)
    right = Right(
        words=words,
        terms=job.b.terms,
        scale=scale,
        offset=offset,
        sums=lanes(sums_by_class),
        inside=elements,
        groups=job.groups,
        group_words=_unit(job),
        group_lanes=channels // job.groups,
        group_elements=0 if job.of_bytes else job.rows[1] * per_group,
    )
    return right, sums, by_tap.sum(axis=-1)[None] - sums


def _weight_constants(b: Operand, channels: int) -> tuple[Array, Array]:
    """Return scale [terms channels] and offset [channels] of weights that vary along their outputs only."""
    scale, offset = b.constants(4)
    return full_lane(scale[:, :, 0, 0, 0], channels), full_lane(offset[:, 0, 0, 0], channels)
