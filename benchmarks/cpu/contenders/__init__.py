"""One file a library. Each has

    version()              the library's version; ImportError where it is not installed
    entries(case, threads) {title: Entry, or a line that says why it does not take part}; {} where it has no such thing

An entry's `call` is what is timed: all that a caller has to do for each new input, and nothing that is done once for
fixed weights. `read` turns what it gives into NumPy, outside the time.
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


def split(found):
    """(entries, lines of those that do not take part)."""
    absent = {title: entry for title, entry in found.items() if isinstance(entry, str)}
    return {title: entry for title, entry in found.items() if title not in absent}, absent


def attempt(make, *args):
    """make(*args), or the line that says what it raised."""
    try:
        return make(*args)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def fastest(entries):
    """Of several ways that a library has, the one whose calls take least; the second call of each counts."""
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
