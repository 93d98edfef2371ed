"""Contenders, one file a library. Each has

    version()              the library's version; ImportError if it is not installed
    entries(case, threads) {title: Entry, or the reason why it does not take part}; {} if it has no such operation

An entry's `call` is timed: it has all that a caller must do for each new input, and nothing that is done once for fixed
weights. `read` converts its result to NumPy, outside the time.
"""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

OURS = "quantarray"
LIBRARIES = (OURS, "torch", "openvino", "onnxruntime", "larq", "numkong", "simsimd", "faiss", "usearch", "numpy")


class Entry(NamedTuple):
    """`tolerance` is relative to the largest expected magnitude; 0 asks for equality. `seconds` says what of a call
    counts, from what it gave, where that is not all of it."""

    call: Callable[[], Any]
    read: Callable[[Any], np.ndarray]
    tolerance: float = 0.0
    seconds: Callable[[Any], float] | None = None


def load(name):
    return import_module(f"{__name__}.{name}")


def split(offered):
    """(entries, lines of those that do not take part)."""
    absent = {title: entry for title, entry in offered.items() if isinstance(entry, str)}
    return {title: entry for title, entry in offered.items() if title not in absent}, absent


def attempt(make, *args):
    """make(*args), or the line that says what it raised."""
    try:
        return make(*args)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def fastest(entries):
    """Return the entry whose calls take least time (median of 5 after a first call); a reason if all are absent."""
    usable = [entry for entry in entries if isinstance(entry, Entry)]
    if not usable:
        return entries[0]

    def seconds(entry):
        entry.call()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            entry.call()
            times.append(time.perf_counter() - start)
        return sorted(times)[2]

    return min(usable, key=seconds) if len(usable) > 1 else usable[0]
