"""Calls from eight Python threads at once by changing numbers of threads, with forks in between: right, and no hang.

A case is some hundred calls. They alternate between kernels, and between one and four threads of the pool, on a machine
that may have fewer processors. All threads share the arrays; the forked child makes calls of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import quantarray as qa

from . import fork_cases
from .proof import Proof

_THREADS, _LEAST, _MOST = 8, 8, 17  # threads, and calls of each: 12 on average
_MOST_WORKERS = 4
_PATIENCE = 300.0  # seconds after which a child or a thread hangs
_expected: list[Any] = []

_RNG = np.random.default_rng(0)
_SIGNS = [qa.encode(_RNG.integers(0, 2, shape) * 2 - 1, (-1, 1)) for shape in ((2, 28, 28, 128), (96, 3, 3, 128))]
_CODES = [qa.encode(_RNG.integers(0, 4, shape), range(4)) for shape in ((200, 700), (150, 700))]
_VALUES, _ROWS = _RNG.standard_normal((300, 1000)), qa.encode(_RNG.integers(0, 2, (5000, 256)) * 2 - 1, (-1, 1))
_CUT = qa.Thresholds([0])


def _packed(q: qa.QuantArray) -> tuple[Any, ...]:
    return q.words, *(array for _, array, _ in q.constants.items())


CALLS: tuple[Callable[[], tuple[Any, ...]], ...] = (
    lambda: _packed(qa.conv2d(_SIGNS[0], _SIGNS[1], padding=1, requantize=_CUT)),
    lambda: (qa.conv2d(_SIGNS[0], _SIGNS[1]),),
    lambda: (qa.linear(_CODES[0], _CODES[1]),),
    lambda: _packed(qa.quantize(_VALUES, qa.Sign())),
    lambda: _packed(qa.quantize(_VALUES, qa.Uniform(4, step=0.1, signed=True))),
    lambda: (_ROWS.codes(),),
    lambda: tuple(qa.top_k(_ROWS[:7], _ROWS, 3)),
    lambda: _packed(qa.max_pool2d(_SIGNS[0], 2)),
)


def _right(which: int) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(CALLS[which](), _expected[which], strict=True))


def _work(seed: int, wrong: list[str]) -> None:
    rng = np.random.default_rng(seed)
    for which in rng.integers(0, len(CALLS), int(rng.integers(_LEAST, _MOST))):
        threads = int(rng.integers(1, _MOST_WORKERS + 1))
        qa.set_num_threads(threads)
        if not _right(int(which)):
            wrong.append(f"call {which} by {threads} threads gave another result than by one")


def _child(which: np.ndarray) -> int:
    """Fork a child that makes these calls, exits with status 0 if all are right, and return its process number."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if all(_right(int(one)) for one in which) else 1)
        finally:
            os._exit(2)  # after an exception
    return child


def run(rng: np.random.Generator) -> str:
    wrong: list[str] = []
    seeds = rng.integers(2**62, size=_THREADS)
    threads = [threading.Thread(target=_work, args=(int(seed), wrong), daemon=True) for seed in seeds]
    for thread in threads:
        thread.start()
    forks = int(rng.integers(0, 3))
    for _ in range(forks):
        time.sleep(float(rng.random()) * 0.02)
        wrong += fork_cases.outcome(_child(rng.integers(0, len(CALLS), 2)), _PATIENCE)
    for thread in threads:
        thread.join(_PATIENCE)
    hung = sum(thread.is_alive() for thread in threads)
    if wrong or hung:
        raise AssertionError("; ".join([*wrong, *([f"{hung} threads hung"] if hung else [])]))
    return f"cases with {forks} forks"


def _prepare() -> None:
    """Make every call by one thread first: compiles it, and says what is right."""
    qa.set_num_threads(1)
    _expected[:] = [call() for call in CALLS]
    qa.set_num_threads(_MOST_WORKERS)


PROOF = Proof(
    run, count=1050, seconds=3 * _PATIENCE, prepare=_prepare, stretch=250,
    environment={"NUMBA_NUM_THREADS": str(_MOST_WORKERS)},
)  # fmt: skip
