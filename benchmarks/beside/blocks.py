"""Timing calls in turn for some time."""

from time import perf_counter
from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
    """A block of calls as measured: median and 0.99 quantile of a call in seconds, and calls a second."""

    median: float
    p99: float
    rate: float


def block(calls, seconds):
    """Make the calls in turn for `seconds`, each at least once, and return a `Block` for each call."""
    times, began = [[] for _ in calls], perf_counter()
    end, now = began + seconds, began
    while now < end or not times[0]:
        for call, spent in zip(calls, times, strict=True):
            before = now
            call()
            now = perf_counter()
            spent.append(now - before)
    return [Block(float(np.median(one)), float(np.quantile(one, 0.99)), len(one) / (now - began)) for one in times]


def rounds(situations, count, seconds, begin=lambda name: None):
    """{name: [[Block of each call] of each round]} of {name: calls}: all in turn, every other round backwards.

    `begin(name)` is called before a situation's block, whose first calls are not timed.
    """
    blocks = {name: [] for name in situations}
    for i in range(count):
        for name in list(situations)[:: 1 if i % 2 == 0 else -1]:
            begin(name)
            block(situations[name], seconds / 20)
            blocks[name].append(block(situations[name], seconds))
    return blocks
