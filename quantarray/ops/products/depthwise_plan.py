"""Windows over each channel by itself: depthwise convolution and average pooling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import has_kernel
from ...core.dtypes import Array
from ...core.forks import cached_property
from ...core.format import WORD_BITS
from ...kernels.contract import Finish, Fixed, Right
from ...kernels.windows import Window, classes, plan
from . import (
    bit_sliced,
    calls,
    depthwise_taps,
    epilogue,
    folded_thresholds,
    scaled_sums,
)
from .lanes import CopyLanes
from .operand import Operand, term_values


class Weights(NamedTuple):
    """values int64[terms taps channels], scale float64[terms channels], offset float64[channels]."""

    values: Array
    scale: Array
    offset: Array


def weights(w: QuantArray, b: Operand) -> Weights:
    """Depthwise weights [o kh kw 1] packed on their outputs, as channels."""
    channels = w.shape[0]
    scale, offset = b.constants(4)
    scale, offset = scale[:, :, 0, 0, 0], offset[:, 0, 0, 0]
    if w.group is not None:
        index = np.arange(channels) // w.group
        scale, offset = (c if c.shape[-1] == 1 else c[..., index] for c in (scale, offset))
    values = w._cached("depthwise", lambda: term_values(b, channels))
    return Weights(values, calls.full_lane(scale, channels), calls.full_lane(offset, channels))


@dataclass(frozen=True)
class Job:
    """A checked window over each channel: `terms` are those of x, `channels` its channels, `shape` the result's."""

    device: str
    channels: int
    terms: Array
    w: Weights
    window: Window
    dtype: np.dtype[Any]
    pad: float
    bias: Array | None
    requantize: Thresholds | None
    shape: tuple[int, ...]
    mean: bool = False

    @property
    def real(self) -> bool:
        return self.mean or self.dtype == np.float32

    @property
    def of_integers(self) -> Job:
        """The exact sums of a real result."""
        return replace(self, dtype=np.dtype(np.int32), pad=0, bias=None, requantize=None, mean=False)

    @property
    def lanes(self) -> CopyLanes:
        return CopyLanes(self.channels, self.shape[3] // max(self.channels, 1))

    @property
    def inside(self) -> Array:
        """What results of each class are divided by: the elements inside, or 1 where they are no means; int64."""
        inside = classes(self.window).inside.sum(axis=1)
        return inside if self.mean else np.ones_like(inside)

    @property
    def packed(self) -> epilogue.Packed | None:
        return epilogue.packed(self.device, self.requantize, self.shape)

    @cached_property
    def sums(self) -> Array:
        """Of the weights over the taps inside, int64[classes terms outputs]."""
        inside = classes(self.window).inside.astype(np.int64)
        return np.asarray(np.einsum("kt,stc->ksc", inside, self.w.values))

    @property
    def real_extras(self) -> tuple[Array, Array]:
        """(pad [classes outputs], bias [outputs]) of a real result."""
        outside, n_outside = self.w.values.sum(axis=1) - self.sums, (~classes(self.window).inside).sum(axis=1)
        return calls.real_extras(self.pad, self.bias, outside, n_outside, self.w.scale, self.w.offset)


class Channelwise(NamedTuple):
    """The call that is left."""

    call: calls.Sums
    exact: (
        scaled_sums.Scaled | folded_thresholds.Folded | None
    )  # in its place where constants of x are the same for all channels

    def __call__(self, x: QuantArray, a: Operand, out: Array | None = None) -> Any:
        """x [n h w c] and its lowered form in, the result out."""
        if a.exact:
            return (self.exact or self.call)(calls.left(a.words, a.terms, len(x), False), out)
        scale, offset = a.constants(4)
        scale, offset = by_channel(x, scale[:, :, 0, 0])[None], by_channel(x, offset[:, 0, 0])[None]
        left = calls.left(a.words, a.terms, len(x), False, scale, offset)
        call = self.exact if self.exact and scale.shape[-1] == offset.shape[-1] == 1 else self.call
        return call(left, out)


def prepare(job: Job, exact_inside: bool = False) -> Channelwise:
    """Lay everything out as [copy, input channel] lanes; what is left takes x.

    `exact_inside`: sums are exact, and the constants of a real result come after that.
    """
    if not job.real:
        return Channelwise(_exact(job, job.requantize), None)
    call, images, inside = _by_planes(job), job.shape[0], job.inside
    fast: scaled_sums.Scaled | folded_thresholds.Folded | None = None
    if exact_inside and job.requantize is not None and job.pad == 0 and (inside == inside[:1]).all():
        fast = folded_thresholds.fold(call, _exact(job.of_integers, job.requantize), images, int(inside.max(initial=1)))
    elif exact_inside and job.requantize is None and has_kernel(job.device, "rescale"):
        scale, of_pixel = job.w.scale[0], classes(job.window).of_pixel
        divisor = inside.astype(np.float64) if job.mean else np.empty(0)
        constants = scale, job.sums[:, 0], *job.real_extras, divisor
        fast = scaled_sums.Scaled.of(_sums(job.of_integers), images, of_pixel, *constants)
    return Channelwise(call, fast)


def _exact(job: Job, law: Thresholds | None) -> calls.Sums:
    """The exact sums, counted bit by bit where `law`, which they meet in the end, makes single bits."""
    one_bit = law is not None and law.into.bits == 1 and len(job.w.values) == 1 and job.shape[3] == job.channels
    if not one_bit or not bit_sliced.possible(job.device, job.terms, job.w.values[0]):
        return _sums(job)
    given = job.device, job.terms, job.w.values[0], 1, job.window
    return bit_sliced.prepare(*given, _last_step(job, np.dtype(np.int64)), job.packed, job.dtype, job.shape)


def _sums(job: Job) -> calls.Sums:
    """The exact sums by pairs of taps, where that can be."""
    if not depthwise_taps.possible(job.device, job.terms, job.w.values, job.dtype):
        return _by_planes(job)
    given = job.device, job.terms, job.w.values, job.lanes, job.window
    return depthwise_taps.prepare(*given, _last_step(job, job.dtype), job.packed, job.dtype, job.shape)


def _by_planes(job: Job) -> calls.Call:
    where, last = plan(job.window, job.lanes.width // WORD_BITS, 1, 1), _last_step(job, np.dtype(np.int64))
    results = job.packed, job.dtype, job.shape, (job.mean,)
    return calls.Call(job.device, "depthwise", Fixed(_right(job), where, last, {}, {}), *results)


def _right(job: Job) -> Right:
    lanes, values = job.lanes, job.w.values
    by_lane = lanes(values).reshape(*values.shape[:2], lanes.copies, lanes.width)
    return Right(
        words=np.ascontiguousarray(by_lane.transpose(0, 2, 1, 3)),
        terms=np.array([(s, 1, 0, 1) for s in range(len(values))], np.int64),
        scale=lanes(job.w.scale)[None],
        offset=lanes(job.w.offset)[None],
        sums=lanes(job.sums),
        inside=classes(job.window).inside.sum(axis=1),
        groups=1,
        group_words=lanes.width // WORD_BITS,
        group_lanes=job.channels,
    )


def _last_step(job: Job, dtype: np.dtype[Any]) -> Finish:
    """Sums are of a dtype, if they are integers."""
    extra = pad = shift = None
    if job.real:
        pad, shift = job.real_extras
    else:
        outside = job.w.values.sum(axis=1) - job.sums
        extra = calls.integer_extra(job.terms, job.sums, int(job.pad), job.bias, outside, dtype)
    return epilogue.finish(job.requantize, job.shape[3], job.real, extra, pad, shift, lanes=job.lanes)


def by_channel(x: QuantArray, constant: Array) -> Array:
    """A constant [.., channels or groups or 1] with groups repeated."""
    if x.group is None or constant.shape[-1] == 1:
        return constant
    return np.asarray(constant[..., np.arange(x.shape[3]) // x.group])
