"""Convolutions of groups of few channels, single bits to single bits, bit by bit.

Of 32 groups of 4 channels an output sees 4 of the 64 bits of a word. In turns (`slices.py`) a word is 64 outputs, whose
bits are all in use.
"""

from __future__ import annotations

import numpy as np

from ...core.dtypes import Array
from . import bit_sliced
from .conv_plan import Job
from .operand import term_values

_SIZES = (1, 2, 4, 8, 16, 32)  # of groups: whole ones fill a word, and whole words are not faster yet


def turned(job: Job) -> Array | None:
    """The weights as int64[taps * n, channels], where groups can be counted so; else None.

    In turn r of a tap output i of a group has its channel (i + r) % n. It was 1.3 to 12 times as fast as merged groups,
    but for results of some 200 words, where it takes 2 us more.
    """
    n, one_bit = job.w.shape[3], job.requantize is not None and job.requantize.into.bits == 1
    even = job.groups > 1 and n in _SIZES and job.shape[3] == n * job.groups
    if not even or not one_bit or not job.exact_sums or job.of_bytes or len(job.b.terms) > 1:
        return None
    channels = job.shape[3]
    by_output = term_values(job.b, n).reshape(channels, -1, n)
    places = (np.arange(channels) + np.arange(n)[:, None]) % n
    values = np.take_along_axis(by_output.transpose(1, 2, 0), places[None], axis=1).reshape(-1, channels)
    return values if bit_sliced.possible(job.device, job.terms, values) else None
