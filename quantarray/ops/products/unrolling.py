"""Convolutions of few channels over windows, or rows of windows, that are rows of bits.

A word has 64 channels whatever a pixel has: 3x3 windows of 16 channels span 9 words with 16 of 64 bits in use. As rows
of bits they are 3 words, whether the taps of whole windows are joined or those of each row.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...backends.registry import has_kernel, product_costs
from ...kernels.windows import along
from .conv_job import Job
from .lanes import LANES


def refusal(job: Job, axes: int) -> str:
    """Say why taps of few channels along the last `axes` axes of a window are not made rows of bits; else ""."""
    if product_costs(job.device) is None or not has_kernel(job.device, "unroll"):
        return f"there is no kernel for it on {job.device}"
    if job.real and not job.rescaled:
        return "sums are not of integers, or meet thresholds of real results"
    return "" if replace(job, unrolled=axes).words < job.words else "it saves no words"


def sure_cost(job: Job, axes: int) -> float:
    """Return the cost with rows of bits, times what the model must be sure of before it is taken."""
    return float(product_costs(job.device).COUNTING.sure * cost(replace(job, unrolled=axes)))


def cost(job: Job) -> float:
    """Return what a tile of all outputs costs; 0 where nothing is known about costs."""
    model = product_costs(job.device)
    if model is None:
        return 0.0
    kernels = model.costs(job.terms, job.b.terms, job.pixels, job.shape[3], job.words, job.forms)
    blocks = -(-job.shape[3] // LANES)
    return float(blocks * min(kernels.values()) + (_unrolling(job) if job.unrolled else 0))


def _unrolling(job: Job) -> float:
    """Return what it costs to make the rows of bits, by a call of its own."""
    pixels = job.shape[0] * math.prod(along(job.window, job.unrolled).image)
    rows, taps = job.rows
    sizes = job.pixels, pixels, taps, job.words // rows, job.window.stride[1]
    return float(product_costs(job.device).unrolling(job.terms, *sizes))
