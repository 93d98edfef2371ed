"""Networks as one compiled call, from eight Python threads and forked children: right each time.

A case is some 810 calls by inputs of changing batch sizes and forms, by one to four threads of the pool, from eight
threads that share the network, with up to two forks.
"""

from __future__ import annotations

import os
import threading
from importlib.resources import files
from typing import Any

import numpy as np

import quantarray as qa

from . import fork_cases
from .proof import Proof

_THREADS, _CALLS, _FORKED = 8, 100, 8  # threads, calls of each, and calls that a child makes
_MOST_WORKERS = 4
_PATIENCE = 300.0  # seconds after which a child or a thread hangs

_RNG = np.random.default_rng(0)


def _signs(*shape: int) -> qa.QuantArray:
    return qa.encode(_RNG.integers(0, 2, shape) * 2 - 1, (-1, 1))


_CUT = qa.Thresholds([0])
_LARGE = qa.nn.Sequential(  # whose kernels several threads run
    [qa.nn.Conv2d(_signs(128, 3, 3, 128), requantize=_CUT), qa.nn.MaxPool2d(2), qa.nn.Dense(_signs(10, 7 * 7 * 128))]
)
_DIGITS = qa.nn.load_network(files("quantarray") / "data" / "digits.npz")
_NETWORKS: list[Any] = [_DIGITS, _LARGE]
_PREPARED = [network.prepared() for network in _NETWORKS]
_INPUTS = [[_DIGITS.plain.input[i : i + n] for i, n in enumerate((1, 1, 2, 5))]] + [
    [_signs(n, 16, 16, 128) for n in (1, 1, 2, 4)]
]
_expected: list[list[np.ndarray]] = []


def _wrong(rng: np.random.Generator, calls: int) -> str:
    """Call the networks on some inputs; say which result is another than that of layers one by one, or ""."""
    for _ in range(calls):
        which, one = int(rng.integers(len(_NETWORKS))), int(rng.integers(4))
        if not np.array_equal(_PREPARED[which](_INPUTS[which][one]), _expected[which][one]):
            return f"network {which} gave another result for input {one}"
    return ""


def _work(seed: int, wrong: list[str]) -> None:
    rng = np.random.default_rng(seed)
    qa.set_num_threads(int(rng.integers(1, _MOST_WORKERS + 1)))
    try:
        wrong += filter(None, [_wrong(rng, _CALLS)])
    except BaseException as error:
        wrong.append(repr(error))


def _child(seed: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            os._exit(1 if _wrong(np.random.default_rng(seed), _FORKED) else 0)
        finally:
            os._exit(2)  # after an exception
    return child


def run(rng: np.random.Generator) -> str:
    wrong: list[str] = []
    seeds = [int(seed) for seed in rng.integers(2**62, size=_THREADS)]
    threads = [threading.Thread(target=_work, args=(seed, wrong), daemon=True) for seed in seeds]
    for thread in threads:
        thread.start()
    forks = int(rng.integers(0, 3))
    for _ in range(forks):
        wrong += fork_cases.outcome(_child(int(rng.integers(2**62))), _PATIENCE)
    wrong += filter(None, [_wrong(rng, _FORKED)])
    for thread in threads:
        thread.join(_PATIENCE)
    hung = sum(thread.is_alive() for thread in threads)
    if wrong or hung:
        raise AssertionError("; ".join([*wrong, *([f"{hung} threads hung"] if hung else [])]))
    return f"cases of {_THREADS * _CALLS + _FORKED * (1 + forks)} calls with {forks} forks"


def _prepare() -> None:
    """Make every call by one thread, layer by layer: says what is right."""
    qa.set_num_threads(1)
    _expected[:] = [[network(x) for x in inputs] for network, inputs in zip(_NETWORKS, _INPUTS, strict=True)]
    qa.set_num_threads(_MOST_WORKERS)


PROOF = Proof(
    run, count=125, seconds=3 * _PATIENCE, prepare=_prepare, stretch=250,
    environment={"NUMBA_NUM_THREADS": str(_MOST_WORKERS)},
)  # fmt: skip
