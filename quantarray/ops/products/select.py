"""Choices of how a product is made, by stages and techniques (`quantarray/backends/kernel_choice.py`).

A cost is in units of the backend's cost model (`quantarray.cpu.costs`): the time of counting one pair of planes for 4
pixels by 32 output channels by a word of 64 elements. `quantarray.explain` prints what was considered and taken.

    conv2d:           ROWS -> GROUPS -> TAPS -> OUTPUTS -> BYTES -> CONSTANTS -> kernel
    depthwise:        DEPTHWISE_CONSTANTS -> DEPTHWISE_SUMS
    linear, matmul:   LAYOUT -> ROWS -> OUTPUTS -> CONSTANTS -> kernel
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.thresholds import Thresholds
from ...backends.kernel_choice import Asked, Choice, Stage, Way, are_recorded, record
from ...backends.kernel_choice import pick as pick
from ...backends.registry import has_kernel, integer_kernel, product_costs
from ...core.dtypes import Array
from ...core.forks import cached_property
from ...kernels.operands import Forms
from . import (
    bit_sliced,
    bit_sliced_groups,
    depthwise_taps,
    few_outputs,
    folded_thresholds,
    merged_groups,
    plane_sums,
    scaled_sums,
    unrolling,
)
from .conv_job import Job
from .depthwise_job import DepthwiseJob
from .operand import Operand


def _never(problem: Any) -> str:
    return ""


# Groups and taps of conv2d


class Groups:
    """A convolution whose groups are brought to a form; `turned` are its weights in turns where they can be."""

    def __init__(self, job: Job) -> None:
        self.job, self.turned = job, None
        self.not_turned = bit_sliced_groups.refusal(job)
        if not self.not_turned:
            turned = bit_sliced_groups.turned(job)
            self.not_turned = bit_sliced.refusal(job.device, job.terms, turned)
            self.turned = None if self.not_turned else turned
        self.not_merged = merged_groups.refusal(job)

    @cached_property
    def costs(self) -> dict[int, float]:
        """Return what a tile costs, by how many groups are merged to one."""
        return {1: 0.0} if self.not_merged else merged_groups.costs(self.job)

    @property
    def times(self) -> int:
        """Count the groups that are merged to one where merging is the cheapest."""
        return min(self.costs.keys() - {1}, key=self.costs.__getitem__)


BIT_SLICED, AS_THEY_ARE, MERGED = "bit-sliced", "as they are", "merged"
_AS_THEY_ARE = Way(AS_THEY_ARE, _never, lambda groups: groups.costs[1])
_MERGED = Way(MERGED, lambda groups: groups.not_merged, lambda groups: groups.costs[groups.times])
GROUPS = Stage("groups", (Way(BIT_SLICED, lambda groups: groups.not_turned), _AS_THEY_ARE, _MERGED))
# Real results that are bit-sliced need a second call, for an x whose constants do not fold into thresholds
OTHERWISE = Stage("groups, where constants do not fold", (_AS_THEY_ARE, _MERGED))

APART, IN_ROWS, IN_WINDOWS = "apart", "bits of a row of taps", "bits of a window"
AXES = {APART: 0, IN_ROWS: 1, IN_WINDOWS: 2}
TAPS = Stage(
    "taps",
    (
        Way(APART, _never, lambda job: unrolling.cost(job)),
        Way(IN_ROWS, lambda job: unrolling.refusal(job, 1), lambda job: unrolling.sure_cost(job, 1)),
        Way(IN_WINDOWS, lambda job: unrolling.refusal(job, 2), lambda job: unrolling.sure_cost(job, 2)),
    ),
)


# Constants of real results

EXACT, RESCALED, FOLDED = "none", "rescaled sums", "folded into thresholds"
PLANES, IN_KERNEL = "sums of planes", "in the kernel"


class MatrixJob(NamedTuple):
    """A matrix product with the same constants over `part` elements of the `k` that it contracts."""

    device: str
    real: bool
    requantize: Thresholds | None
    terms: Array
    b: Operand
    k: int
    part: int
    pad: float = 0
    shared: bool = True  # constants of x are one for all rows

    @property
    def elements(self) -> int:
        return self.k


def _real(job: Any) -> str:
    return "the result is real" if job.real else ""


def _varies(job: Any) -> str:
    varies = isinstance(job, MatrixJob) and job.part < job.k
    return "constants vary along the contraction" if varies else ""


def _not_rescaled(job: Any) -> str:
    return _varies(job) or scaled_sums.refusal(job.device, job.requantize, job.terms, job.b, job.elements)


def _not_folded(job: Any) -> str:
    return _varies(job) or folded_thresholds.refusal(job.requantize, job.terms, job.b, job.elements, job.pad)


def not_planes(job: Any) -> str:
    """Say why a real product is not added up from sums of planes; "" where it can be."""
    if isinstance(job, Job) and (job.groups > 1 or job.of_bytes):
        return "w has groups, or x is bytes"
    if not job.shared:
        return "constants of x vary"
    return _varies(job) or plane_sums.refusal(job.device, job.terms, job.b, job.elements)


CONSTANTS = Stage(
    "constants",
    (
        Way(EXACT, _real),
        Way(RESCALED, _not_rescaled),
        Way(FOLDED, _not_folded),
        Way(PLANES, not_planes),
        Way(IN_KERNEL, _never),
    ),
)


def _depthwise_not_folded(job: DepthwiseJob) -> str:
    if job.requantize is None:
        return "the result has no thresholds"
    if job.pad or (job.divisor != job.divisor[:1]).any():
        return "padded taps have a value, or means are of different numbers of elements"
    return job.inexact


def _depthwise_not_rescaled(job: DepthwiseJob) -> str:
    if job.requantize is not None:
        return "the sums of a thresholded result would need memory of their own"
    return job.inexact if has_kernel(job.device, "rescale") else f"there is no kernel for it on {job.device}"


DEPTHWISE_CONSTANTS = Stage(
    "constants",
    (
        Way(EXACT, _real),
        Way(FOLDED, _depthwise_not_folded),
        Way(RESCALED, _depthwise_not_rescaled),
        Way(IN_KERNEL, _never),
    ),
)


# Sums of depthwise convolutions and means

PAIRS_OF_TAPS, BY_PLANES = "pairs of taps as bytes", "by planes"


def _depthwise_not_bit_sliced(problem: tuple[DepthwiseJob, Thresholds | None]) -> str:
    job, law = problem
    if law is None or law.into.bits > 1:
        return "results have more than one bit"
    if len(job.w.values) > 1 or job.shape[-1] != job.channels:
        return "w is a sum of several terms, or has several outputs a channel"
    return bit_sliced.refusal(job.device, job.terms, job.w.values[0])


def _not_pairs(problem: tuple[DepthwiseJob, Thresholds | None]) -> str:
    job = problem[0]
    return depthwise_taps.refusal(job.device, job.terms, job.w.values, job.dtype, job.window)


DEPTHWISE_SUMS = Stage(
    "sums",
    (Way(BIT_SLICED, _depthwise_not_bit_sliced), Way(PAIRS_OF_TAPS, _not_pairs), Way(BY_PLANES, _never)),
)


# Layout of weights, and products by parts

IN_PLACE, LAID_OUT = "counted in place", "laid out for a kernel"
LAYOUT = Stage("weights", (Way(IN_PLACE, lambda asked: few_outputs.refusal(*asked)), Way(LAID_OUT, _never)))

IN_TURN, AT_ONCE = "some in turn", "all at once"


def _rows_fit(asked: tuple[int, int]) -> str:
    step, rows = asked
    return "planes of x that are not its own, and the plan, fit" if step >= rows else ""


def _layout_fits(asked: tuple[int, int]) -> str:
    layout, room = asked
    return f"the layout of w, {layout:,} bytes, may be kept" if layout <= room else ""


ROWS = Stage("rows of x", (Way(IN_TURN, _rows_fit), Way(AT_ONCE, _never)))
OUTPUTS = Stage("outputs", (Way(IN_TURN, _layout_fits), Way(AT_ONCE, _never)))


# Kernels

KERNEL = "kernel"


class ProductJob(NamedTuple):
    """A product of operands of one term: `rows` windows of `words` words, by `channels` outputs a group."""

    device: str
    dtype: np.dtype[Any]  # of sums
    groups: int
    x_terms: Array
    w_terms: Array
    rows: int
    channels: int
    words: int
    forms: Forms
    of_bytes: bool = False  # x is not packed

    @classmethod
    def of(cls, job: Job) -> ProductJob:
        """Describe a convolution."""
        dtype = np.dtype(np.int32) if job.rescaled else job.dtype
        sizes = job.pixels, job.shape[3] // job.groups, job.words, job.forms
        return cls(job.device, dtype, job.groups, job.terms, job.b.terms, *sizes, job.of_bytes)

    @property
    def problem(self) -> tuple[Any, ...]:
        """Return the arguments of the cost model."""
        return self[3:]

    @property
    def kernel(self) -> str:
        """Name the kernel of the product: that of the cost model for sums of int32."""
        if self.dtype == np.float32:
            return "conv_real"
        return "conv" if self.dtype == np.int64 else integer_kernel(self.device)(*self.problem)


def kernel(job: ProductJob) -> str:
    """Return the kernel of a product."""
    name = job.kernel
    if are_recorded():
        record(Choice(KERNEL, name, _kernels_asked(job, name), job))
    return name


def _kernels_asked(job: ProductJob, name: str) -> tuple[Asked, ...]:
    model = product_costs(job.device)
    if model is None or job.dtype != np.int32:
        return (Asked(name, "", None),)
    asked = tuple(Asked(one, "", float(cost)) for one, cost in model.costs(*job.problem).items())
    return asked + tuple(Asked(one, why, None) for one, why in model.refusals(*job.problem).items())


# Bytes of an image

MULTIPLIED, PACKED = "multiplied as they are", "packed first"


def _not_multiplied(job: Job) -> str:
    return "" if ProductJob.of(job).kernel == "dot" else "counting is cheaper, or bytes do not fit the kernel"


BYTES = Stage("bytes of x", (Way(MULTIPLIED, _not_multiplied), Way(PACKED, _never)))
