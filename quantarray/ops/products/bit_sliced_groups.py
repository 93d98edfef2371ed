"""Convolutions of groups of few channels, single bits to single bits, bit by bit.

Of 32 groups of 4 channels an output sees 4 of the 64 bits of a word. In turns (`bit_sliced.py`) a word is 64 outputs,
whose bits are all in use.
"""

from __future__ import annotations

import numpy as np

from ...core.dtypes import Array
from .conv_job import Job
from .operand import term_values

_SIZES = (1, 2, 4, 8, 16, 32)  # of groups: whole ones fill a word, and whole words are not faster yet


def refusal(job: Job) -> str:
    """Say why groups are not counted in turns, as far as shapes and dtypes tell; else ""."""
    n, thresholds = job.w.shape[3], job.requantize
    if job.groups == 1 or n not in _SIZES or job.shape[3] != n * job.groups:
        return f"groups do not have as many outputs as channels, one of {', '.join(map(str, _SIZES))}"
    if thresholds is None or thresholds.into.bits > 1:
        return "results have more than one bit"
    if job.of_bytes or len(job.b.terms) > 1:
        return "x has bytes" if job.of_bytes else "w is a sum of several terms"
    return "" if job.exact_sums else "sums are not of integers"


def turned(job: Job) -> Array:
    """Return the weights in turns, int64[taps * n, channels].

    In turn r of a tap output i of a group has its channel (i + r) % n. It was 1.3 to 12 times as fast as merged groups,
    but for results of some 200 words, where it takes 2 us more.
    """
    n, channels = job.w.shape[3], job.shape[3]
    by_output = term_values(job.b, n).reshape(channels, -1, n)
    places = (np.arange(channels) + np.arange(n)[:, None]) % n
    return np.take_along_axis(by_output.transpose(1, 2, 0), places[None], axis=1).reshape(-1, channels)
