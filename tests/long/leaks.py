"""No memory is lost: every public operation 200 times, and 100,000 calls of kernels of every family.

A case draws operands for each operation of `chapters`, and calls it, networks and models 200 times. The blocks that
Numba's runtime has allocated and not freed must be as many after call 200 as after call 100, which had caches filled
and results replaced. Then the process' resident memory may grow by less than 1 MB from call 10,000 to call 100,000 of a
mixture of `FAMILIES`.
"""

from __future__ import annotations

import gc
import resource
import warnings
from collections.abc import Callable
from importlib.resources import files
from itertools import cycle, islice, pairwise
from typing import Any

import numpy as np
from numba.core.runtime import rtsys

import quantarray as qa

from . import calls
from .chapters import OPS
from .drawing import Draw
from .proof import Proof

_CALLS, _FIRST, _ALL = 100, 10_000, 100_000
_TRIES = 3
_GROWTH = 10**6  # bytes
_RNG = np.random.default_rng(0)
_CUT, _STEPS = qa.Thresholds([0]), qa.Thresholds([-2, 0, 3])


def _signs(*shape: int) -> qa.QuantArray:
    return qa.encode(_RNG.integers(0, 2, shape) * 2 - 1, (-1, 1))


def _codes(*shape: int) -> qa.QuantArray:
    return qa.encode(_RNG.integers(0, 4, shape), range(4))


_IMAGE, _ROWS, _VALUES = _signs(1, 7, 6, 64), _signs(40, 70), _RNG.standard_normal((5, 130), np.float32)
_W3, _W1, _FEW = _signs(40, 3, 3, 64), _signs(70, 70), _signs(5, 70)
_CODED, _CODED_3 = _codes(1, 7, 6, 64), _codes(40, 3, 3, 64)
_EACH = _signs(64, 3, 3, 1)
_REAL = qa.quantize(_RNG.standard_normal((40, 3, 3, 64)), qa.LQ(2, basis=(0.3, 1)), axis=-1)
_BYTES = _RNG.integers(0, 256, (1, 7, 6, 64), np.uint8)
# Calls of the kernels of each folder of `cpu/`, one small problem a technique
FAMILIES: dict[str, Callable[[], Any]] = {
    "bits by bits to values": lambda: qa.linear(_ROWS, _W1),
    "bits by bits to few values": lambda: qa.linear(_ROWS, _FEW),
    "bits by bits to bits": lambda: qa.linear(_ROWS, _W1, requantize=_CUT),
    "bits by bits to codes": lambda: qa.linear(_ROWS, _W1, requantize=_STEPS),
    "windows of bits to values": lambda: qa.conv2d(_IMAGE, _W3, padding=1),
    "windows of bits to bits": lambda: qa.conv2d(_IMAGE, _W3, padding=1, requantize=_CUT),
    "windows of codes": lambda: qa.conv2d(_CODED, _CODED_3, padding=1),
    "windows of codes to codes": lambda: qa.conv2d(_CODED, _CODED_3, stride=2, requantize=_STEPS),
    "windows of bytes": lambda: qa.conv2d(_BYTES, _W3),
    "windows of real weights": lambda: qa.conv2d(_CODED, _REAL, requantize=_CUT),
    "depthwise": lambda: qa.conv2d(_IMAGE, _EACH, groups=64),
    "depthwise of codes": lambda: qa.conv2d(_CODED, _EACH, groups=64, requantize=_STEPS),
    "pools": lambda: (qa.max_pool2d(_CODED, 2), qa.avg_pool2d(_CODED, 2)),
    "search": lambda: (qa.top_k(_ROWS[:3], _ROWS, 2), qa.hamming(_ROWS[:3], _ROWS[:3])),
    "reductions": lambda: (qa.sum(_CODED, 0), qa.argmax(_CODED, -1), qa.sort(_CODED), qa.counts(_CODED, 0)),
    "codes of floats": lambda: (qa.quantize(_VALUES, qa.Uniform(4)), qa.quantize(_VALUES, qa.LloydMax(2))),
    "values of codes": lambda: (_CODED.codes(), _CODED.dequantize(), _REAL.dequantize()),
    "bits moved": lambda: (_CODED[..., 1:], _CODED.transpose(3, 1, 2, 0), _CODED.repack(1), qa.repeat(_CODED, 2, 3)),
}


def _networks() -> dict[str, Callable[[], Any]]:
    digits = qa.nn.load_network(files("quantarray") / "data" / "digits.npz")
    shown, prepared = digits.plain.input[:2], digits.prepared()
    layers = qa.nn.Sequential([qa.nn.Conv2d(_W3, requantize=_CUT), qa.nn.MaxPool2d(2), qa.nn.Dense(_signs(3, 160))])
    prepared_layers, graph = layers.prepared(reuse=True), qa.nn.models.lfc(seed=1)
    prepared_graph, image = graph.prepared(), _RNG.integers(0, 256, (2, 784), np.uint8)
    return {
        "nn.load_network": lambda: digits(shown),
        "prepared network": lambda: prepared(shown),
        "prepared layers": lambda: prepared_layers(_IMAGE),
        "nn.models": lambda: graph(image),
        "prepared graph": lambda: prepared_graph(image),
    }


def blocks() -> tuple[int, int]:
    """Count the (memory blocks, descriptions of arrays) that Numba's runtime has allocated and not freed."""
    gc.collect()
    stats = rtsys.get_allocation_stats()
    return stats.alloc - stats.free, stats.mi_alloc - stats.mi_free


def lost(call: Callable[[], Any], times: int = _CALLS) -> int:
    """Return by how many blocks so many calls grow after as many others, in each of three tries if in the first.

    What is stored once, as for another number of threads after some came late, grows in one of them alone.
    """
    counts = []
    for _ in range(_TRIES + 1):
        for _ in range(times):
            call()
        counts.append(blocks())
        if len(counts) > 1 and counts[-1] == counts[-2]:
            return 0
    growths = (max(b - a for a, b in zip(before, after, strict=True)) for before, after in pairwise(counts))
    return max(0, min(growths))


def resident() -> int:
    """Return the bytes of the process in memory."""
    gc.collect()
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[1]) * resource.getpagesize()


def grown(first: int, last: int) -> int:
    """Return by how many bytes the process grows from call `first` to call `last` of a mixture of all families."""
    for call in islice(cycle(FAMILIES.values()), first):
        call()
    before = resident()
    for call in islice(cycle(FAMILIES.values()), last - first):
        call()
    return resident() - before


def run(rng: np.random.Generator) -> str:
    gc.collect()
    gc.freeze()  # `blocks` collects 500 times: what is compiled is a million objects, 0.4 s each time
    seed = int(rng.integers(2**63))
    drawn = {name: OPS[name](Draw(seed, small=True)) for name in OPS}
    every = {name: lambda name=name, call=call: calls.attempt(name, call) for name, call in drawn.items()}
    every |= FAMILIES | _networks()
    leaks = {name: n for name, call in every.items() if (n := lost(call))}
    assert not leaks, f"blocks lost in {_CALLS} calls: {leaks}"
    growth = grown(_FIRST, _ALL)
    assert growth < _GROWTH, f"{growth:,} bytes more after call {_ALL:,} than after call {_FIRST:,}"
    return f"rounds of {len(every)} operations"


def prepare() -> None:
    """Check that calls of all public functions and methods are drawn, and that Numba counts what it allocates."""
    warnings.simplefilter("ignore")
    calls.check_names()
    qa.linear(_ROWS, _W1)
    assert blocks() > (0, 0), "Numba counts nothing: set NUMBA_NRT_STATS=1"


def verdict(counts: dict[str, int]) -> str | None:
    return None if counts else "no round of all operations came to its end"


PROOF = Proof(
    run, count=20, seconds=3600.0, stretch=5, prepare=prepare, environment={"NUMBA_NRT_STATS": "1"}, verdict=verdict
)
