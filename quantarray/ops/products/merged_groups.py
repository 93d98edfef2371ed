"""Convolutions of groups with few channels, as ones of fewer groups with more.

A word has 64 channels and a block 32 outputs, so 32 groups of 4 channels and 4 outputs would be 32 nearly empty words a
tap, each by a nearly empty block. Some groups beside each other are one whose weights are 0 where an output doesn't see
a channel: the same sums, of whole words by whole blocks. +-1 become +-1 and 0, two planes for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import product_costs
from ...core.dtypes import Array, DType, integers
from ...core.format import MAX_BITS
from ..creation.creation import from_codes
from .conv_job import Job
from .lanes import LANES
from .operand import lower

_MOST = 128  # channels, and outputs, that a group is merged up to: beyond, all that grows is the share of zeros


def refusal(job: Job) -> str:
    """Say why groups are not merged; "" where they can be."""
    if product_costs(job.device) is None:
        return f"nothing is known about costs on {job.device}"
    if not job.exact_sums:
        return "sums are not of integers"
    if _with_zero(job.w.dtype) is None:
        return "no dtype has the levels of w and 0"
    return "" if any(_multiples(job)) else f"two groups have more than {_MOST} channels or outputs"


def costs(job: Job) -> dict[int, float]:
    """Return what a tile costs with so many groups merged, by the fastest kernel; 1 means the groups of w."""
    costs_of = product_costs(job.device).costs
    by_times = {1: _cost(costs_of, job, job.b.terms, 1)}
    dtype = _with_zero(job.w.dtype)
    assert dtype is not None, "asked for where groups are merged only"
    terms = _terms(dtype)
    return by_times | {times: _cost(costs_of, job, terms, times) for times in _multiples(job)}


def _multiples(job: Job) -> Iterator[int]:
    """Yield how many groups may be merged to one."""
    each = max(job.w.shape[3], job.shape[3] // job.groups)
    return (times for times in range(2, job.groups + 1) if job.groups % times == 0 and each * times <= _MOST)


def merged(job: Job, times: int) -> Job:
    """Return the job with `times` groups merged to one."""
    dtype = _with_zero(job.w.dtype)
    assert dtype is not None
    w: QuantArray = job.w._cached(("merged", job.groups, times), lambda: _merged(job.w, dtype, job.groups, times))
    return replace(job, w=w, b=lower("conv2d", "w", w), groups=job.groups // times, merged=True)


def _cost(costs: Callable[..., dict[str, float]], job: Job, terms: Array, times: int) -> float:
    """Return what a tile costs with so many groups merged, by the fastest kernel."""
    channels = job.shape[3] // job.groups * times
    sizes = job.pixels, channels, job.words_of(job.w.shape[3] * times), job.forms
    return min(costs(job.terms, terms, *sizes).values()) * -(-channels // LANES) * (job.groups // times)


def _with_zero(dtype: DType) -> DType | None:
    """Return a dtype of the same integer levels and 0; None where there is none."""
    levels = dtype.levels
    if levels is None or 0 in levels:
        return dtype if levels else None
    return integers(sorted({*levels, 0})) if len(levels) < 2**MAX_BITS else None


def _terms(dtype: DType) -> Array:
    """Return the terms of weights of a dtype."""
    return lower("conv2d", "w", from_codes(np.zeros(1, np.uint8), dtype)).terms


def _merged(w: QuantArray, dtype: DType, groups: int, times: int) -> QuantArray:
    """Merge weights [o kh kw c] to [o kh kw times*c] of a dtype that has 0, for groups that an output is not in."""
    assert w.dtype.levels is not None and dtype.levels is not None
    code = np.array([dtype.levels.index(level) for level in w.dtype.levels], np.uint8)
    outputs, *taps, c = w.shape
    codes = np.full((outputs, *taps, times, c), dtype.levels.index(0), np.uint8)
    place = np.arange(outputs) // (outputs // groups) % times
    codes[np.arange(outputs), :, :, place] = code[w.codes()]
    return from_codes(codes.reshape(outputs, *taps, times * c), dtype, axis=3, **_constants(w))


def _constants(w: QuantArray) -> dict[str, Any]:
    return {} if w.scale is None else {"scale": w.scale}
