"""Convolutions of groups of few channels, single bits to single bits, bit by bit.

Of 32 groups of 4 channels an output sees 4 of the 64 bits of a word. In turns (`slices.py`) a word is 64 outputs, whose
bits are all in use.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..dtypes import Array
from . import slices
from .contraction import Job

_SIZES = (1, 2, 4, 8, 16, 32)  # of groups: whole ones fill a word, and whole words are not faster yet


def sliced(job: Job) -> Job:
    """The job in turns where that is possible; else itself.

    It was 1.3 to 12 times as fast as merged groups, but for results of some 200 words, where it takes 2 us more.
    """
    n, one_bit = job.w.shape[3], job.requantize is not None and job.requantize.into.bits == 1
    even = job.groups > 1 and n in _SIZES and job.shape[3] == n * job.groups
    if not even or not one_bit or job.real or job.of_bytes or len(job.b.terms) > 1:
        return job
    turned = _turned(job)
    return replace(job, turned=turned) if slices.possible(job.device, job.terms, turned) else job


def _turned(job: Job) -> Array:
    """The weights as int64[taps * n, channels]: in turn r of a tap output i of a group has channel (i + r) % n."""
    n, channels = job.w.shape[3], job.shape[3]
    _, _, base, step = job.b.terms[0].tolist()
    codes = job.w.codes().reshape(channels, -1, n).transpose(1, 2, 0)
    places = (np.arange(channels) + np.arange(n)[:, None]) % n
    turned: Array = base + step * np.take_along_axis(codes, places[None], axis=1).astype(np.int64)
    return turned.reshape(-1, channels)
