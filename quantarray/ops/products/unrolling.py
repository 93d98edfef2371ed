"""Convolutions of few channels over windows, or rows of windows, that are rows of bits.

A word has 64 channels whatever a pixel has: 3x3 windows of 16 channels span 9 words with 16 of 64 bits in use. As rows
of bits they are 3 words, whether the taps of whole windows lie side by side or those of each of its rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...backends.registry import has_kernel, product_costs
from ...core.format import WORD_BITS
from ...kernels.windows import along
from .conv_plan import Job
from .lanes import LANES

AXES = (1, 2)  # of windows, along which taps may lie side by side


def unrolled(job: Job) -> Job:
    """The job over rows of bits, where the cost model finds that faster; else itself."""
    few = not job.of_bytes and job.groups == 1 and job.w.shape[3] < WORD_BITS and has_kernel(job.device, "unroll")
    if not few or (job.real and not job.scaled):
        return job
    ways = [made for axes in AXES if (made := replace(job, unrolled=axes)).words < job.words]
    return _fastest(job, ways) if ways else job


def _fastest(job: Job, ways: list[Job]) -> Job:
    """Of some ways the fastest where the model is sure that it is faster than the job as it is; else that."""
    model = product_costs(job.device)
    if model is None:
        return job
    found = min(ways, key=_cost)
    return found if model.COUNTING.sure * _cost(found) < _cost(job) else job


def _cost(job: Job) -> float:
    model = product_costs(job.device)
    kernels = model.costs(job.terms, job.b.terms, job.pixels, job.shape[3], job.words, job.forms)
    blocks = -(-job.shape[3] // LANES)
    return float(blocks * min(kernels.values()) + (_unrolling(job) if job.unrolled else 0))


def _unrolling(job: Job) -> float:
    """What it costs to make the rows of bits, by a call of its own."""
    made = job.shape[0] * math.prod(along(job.window, job.unrolled).image)
    rows, taps = job.rows
    sizes = job.pixels, made, taps, job.words // rows, job.window.stride[1]
    return float(product_costs(job.device).unrolling(job.terms, *sizes))
