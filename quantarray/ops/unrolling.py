"""Convolutions of few channels over windows that are rows of bits.

A word has 64 channels whatever a pixel has: 3x3 windows of 16 channels span 9 words with 16 of 64 bits in use. As rows
of bits they are 3 words.
"""

from __future__ import annotations

from dataclasses import replace

from ..device import has_kernel, product_costs
from ..format import WORD_BITS
from .contraction import Job
from .lanes import LANES


def unrolled(job: Job) -> Job:
    """The job over rows of bits, where the cost model finds that faster; else itself."""
    few = not job.of_bytes and job.groups == 1 and job.w.shape[3] < WORD_BITS and has_kernel(job.device, "unroll")
    if not few or (job.real and not job.scaled):
        return job
    made = replace(job, unrolled=True)
    return made if made.words < job.words and _pays(job, made) else job


def _pays(job: Job, made: Job) -> bool:
    """True where the model is sure."""
    model = product_costs(job.device)
    if model is None:
        return False
    plain, rows = (model.costs(j.terms, j.b.terms, j.pixels, j.shape[3], j.words, j.forms) for j in (job, made))
    blocks = -(-job.shape[3] // LANES)
    unrolling = model.unrolling(job.terms, job.pixels, job.window.taps)
    return bool(model.COUNTING.sure * (blocks * min(rows.values()) + unrolling) < blocks * min(plain.values()))
