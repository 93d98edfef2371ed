"""Windows over each channel by itself: depthwise convolution and average pooling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.format import WORD_BITS
from ...kernels.operands import Finish, Fixed, Right
from ...kernels.windows import classes, plan
from . import bit_sliced, calls, depthwise_taps, epilogue, folded_thresholds, scaled_sums, select
from .depthwise_job import DepthwiseJob
from .operand import Operand


class Channelwise(NamedTuple):
    """A ready-to-run depthwise product: it takes x, and has all that does not depend on its words."""

    call: calls.Sums
    exact: scaled_sums.Scaled | folded_thresholds.Folded | None  # for an x with the same constants for all channels

    def __call__(self, x: QuantArray, a: Operand, out: Array | None = None) -> Any:
        """x [n .. c] and its lowered form in, the result out."""
        if a.exact:
            return (self.exact or self.call)(calls.left(a.words, a.terms, len(x), False), out)
        scale, offset = (c.reshape(*c.shape[: c.ndim - x.ndim + 1], c.shape[-1]) for c in a.constants(x.ndim))
        scale, offset = by_channel(x, scale)[None], by_channel(x, offset)[None]
        left = calls.left(a.words, a.terms, len(x), False, scale, offset)
        call = self.exact if self.exact and scale.shape[-1] == offset.shape[-1] == 1 else self.call
        return call(left, out)


def prepare(job: DepthwiseJob) -> Channelwise:
    """Lay everything out as [copy, input channel] lanes; what is left takes x."""
    constants = select.pick(select.DEPTHWISE_CONSTANTS, job)
    if constants == select.EXACT:
        return Channelwise(_sums(job, job.requantize), None)
    call, images, divisor = _by_planes(job), job.shape[0], job.divisor
    if constants == select.FOLDED:
        exact = _sums(job.of_integers, job.requantize)
        return Channelwise(call, folded_thresholds.fold(call, exact, images, int(divisor.max(initial=1))))
    if constants == select.RESCALED:
        scale, of_pixel = job.w.scale[0], classes(job.window).of_pixel
        rescale = scaled_sums.Rescale(of_pixel, scale, job.sums[:, 0], *job.real_extras, divisor)
        return Channelwise(call, scaled_sums.Scaled.of(_sums(job.of_integers), images, rescale))
    return Channelwise(call, None)


def _sums(job: DepthwiseJob, law: Thresholds | None = None) -> calls.Sums:
    """Prepare exact sums, which `law` thresholds in the end."""
    technique = select.pick(select.DEPTHWISE_SUMS, (job, law))
    output = calls.Output(job.packed, job.dtype, job.shape)
    if technique == select.BIT_SLICED:
        finish = _last_step(job, np.dtype(np.int64))
        return bit_sliced.prepare(job.device, job.terms, job.w.values[0], 1, job.window, finish, output)
    if technique == select.PAIRS_OF_TAPS:
        finish = _last_step(job, job.dtype)
        return depthwise_taps.prepare(job.device, job.terms, job.w.values, job.lanes, job.window, finish, output)
    return _by_planes(job)


def _by_planes(job: DepthwiseJob) -> calls.Call:
    where, last = plan(job.window, job.lanes.width // WORD_BITS, 1, 1), _last_step(job, np.dtype(np.int64))
    results = job.packed, job.dtype, job.shape, (job.divisor,)
    return calls.Call(job.device, "depthwise", Fixed(_right(job), where, last, {}, {}), *results)


def _right(job: DepthwiseJob) -> Right:
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


def _last_step(job: DepthwiseJob, dtype: np.dtype[Any]) -> Finish:
    """Return the last step; sums of integers are of `dtype`."""
    extra = pad = shift = None
    if job.real:
        pad, shift = job.real_extras
    else:
        outside = job.w.values.sum(axis=1) - job.sums
        extra = epilogue.integer_extra(job.terms, job.sums, int(job.pad), job.bias, outside, dtype)
    return epilogue.finish(job.requantize, job.shape[-1], job.real, extra, pad, shift, lanes=job.lanes)


def by_channel(x: QuantArray, constant: Array) -> Array:
    """Repeat the groups of a constant [.., channels or groups or 1]."""
    if x.group is None or constant.shape[-1] == 1:
        return constant
    return np.asarray(constant[..., np.arange(x.shape[-1]) // x.group])
