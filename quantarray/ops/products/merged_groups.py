"""Convolutions of groups with few channels, as ones of fewer groups with more.

A word has 64 channels and a block 32 outputs, so 32 groups of 4 channels and 4 outputs would be 32 nearly empty words a
tap, each by a nearly empty block. Some groups beside each other are one whose weights are 0 where an output doesn't see
a channel: the same sums, of whole words by whole blocks. +-1 become +-1 and 0, two planes for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import product_costs
from ...core.dtypes import Array, DType, integers
from ...core.format import MAX_BITS
from ..creation.creation import from_codes
from .conv_plan import Job
from .lanes import LANES
from .operand import lower

_MOST = 128  # channels, and outputs, that a group is merged up to: beyond, all that grows is the share of zeros


def merged(job: Job) -> Job:
    """The job with the groups that the cost model finds best; itself where it has no groups, or none to merge."""
    model = product_costs(job.device)
    if job.groups == 1 or model is None or not job.exact_sums:
        return job
    dtype = _with_zero(job.w.dtype)
    if dtype is None:
        return job
    terms = _terms(dtype)
    each = max(job.w.shape[3], job.shape[3] // job.groups)
    found = {1: _cost(model.costs, job, job.b.terms, 1)}
    found |= {
        times: _cost(model.costs, job, terms, times)
        for times in range(2, job.groups + 1)
        if job.groups % times == 0 and each * times <= _MOST
    }
    times = min(found, key=found.__getitem__)
    if times == 1:
        return job
    w: QuantArray = job.w._cached(("merged", job.groups, times), lambda: _merged(job.w, dtype, job.groups, times))
    return replace(job, w=w, b=lower("conv2d", "w", w), groups=job.groups // times, merged=True)


def _cost(costs: Callable[..., dict[str, float]], job: Job, terms: Array, times: int) -> float:
    """What a tile costs with so many groups merged, by the fastest kernel."""
    channels = job.shape[3] // job.groups * times
    sizes = job.pixels, channels, job.words_of(job.w.shape[3] * times), job.forms
    return min(costs(job.terms, terms, *sizes).values()) * -(-channels // LANES) * (job.groups // times)


def _with_zero(dtype: DType) -> DType | None:
    """A dtype of the same integer levels and 0; None where there is none."""
    levels = dtype.levels
    if levels is None or 0 in levels:
        return dtype if levels else None
    return integers(sorted({*levels, 0})) if len(levels) < 2**MAX_BITS else None


def _terms(dtype: DType) -> Array:
    """Those of weights of a dtype."""
    return lower("conv2d", "w", from_codes(np.zeros(1, np.uint8), dtype)).terms


def _merged(w: QuantArray, dtype: DType, groups: int, times: int) -> QuantArray:
    """Weights [o kh kw c] as [o kh kw times*c] of a dtype that has 0: those of groups that an output is not in."""
    assert w.dtype.levels is not None and dtype.levels is not None
    code = np.array([dtype.levels.index(level) for level in w.dtype.levels], np.uint8)
    outputs, *taps, c = w.shape
    made = np.full((outputs, *taps, times, c), dtype.levels.index(0), np.uint8)
    place = np.arange(outputs) // (outputs // groups) % times
    made[np.arange(outputs), :, :, place] = code[w.codes()]
    return from_codes(made.reshape(outputs, *taps, times * c), dtype, axis=3, **_constants(w))


def _constants(w: QuantArray) -> dict[str, Any]:
    return {} if w.scale is None else {"scale": w.scale}
