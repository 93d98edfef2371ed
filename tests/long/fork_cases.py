"""A fork: threads make calls, the process forks at a random moment, and the child must finish a call too."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import quantarray as qa

_RNG = np.random.default_rng(0)
_IMAGE, _WEIGHT = _RNG.integers(0, 2, (2, 9, 9, 70)) * 2 - 1, _RNG.integers(0, 2, (33, 3, 3, 70)) * 2 - 1
_WINDOWS = np.lib.stride_tricks.sliding_window_view(_IMAGE.astype(float), (3, 3), (1, 2))
_CONVOLVED = np.einsum("nijcab,oabc->nijo", _WINDOWS, _WEIGHT.astype(float), optimize=True)
_REAL, _CODES = _RNG.standard_normal((6, 200)), _RNG.integers(0, 8, (12, 150))
_shared: list[qa.QuantArray] = []  # by threads and children, with what kernels keep of them


def share() -> None:
    """Make the arrays that later calls have in common."""
    _shared[:] = _x(), _w()


def _x() -> qa.QuantArray:
    return _shared[0] if _shared else qa.encode(_IMAGE, (-1, 1))


def _w() -> qa.QuantArray:
    return _shared[1] if _shared else qa.encode(_WEIGHT, (-1, 1))


def _conv() -> bool:
    w = _w()
    w.drop_cache()  # its layouts and preparations are made again
    return bool((qa.conv2d(_x(), w) == _CONVOLVED).all())


def _thresholded() -> bool:
    z = qa.conv2d(_x(), _w(), requantize=qa.Thresholds([0.0]))
    return bool((z.dequantize() == np.where(_CONVOLVED > 0, 1, -1)).all())


def _linear() -> bool:
    q = qa.encode(_CODES, range(8))
    return bool((qa.linear(q, q) == _CODES @ _CODES.T).all()) and q.nbytes_cached >= 0


def _sums() -> bool:
    q = qa.encode(_CODES, range(8))
    return bool((q.sum(axis=1) == _CODES.sum(axis=1)).all()) and bool((qa.sort(q).codes() == np.sort(_CODES)).all())


def _quantized() -> bool:
    signs = qa.quantize(_REAL, qa.Sign()).dequantize()
    uniform = qa.quantize(_REAL, qa.Uniform(4, step=0.5, signed=True)).dequantize()
    return bool((signs == np.where(_REAL >= 0, 1, -1)).all()) and bool(
        (abs(uniform - _REAL.clip(-4, 3.5)) <= 0.25).all()
    )


def _file() -> bool:
    q = qa.encode(_CODES, range(8))
    with tempfile.TemporaryDirectory() as folder:
        qa.save(Path(folder) / "q.npz", q)
        return qa.load(Path(folder) / "q.npz").digest() == q.digest()


def _seldom() -> bool:
    """Test parts of the package that other calls do not import."""
    try:
        np.median(qa.encode(_CODES, range(8)))
    except TypeError as error:
        return "dequantize" in str(error) and qa.nn.__name__ == "quantarray.nn" and qa.get_num_threads() >= 1
    return False


CALLS: tuple[Callable[[], bool], ...] = (
    _conv, _thresholded, _linear, _sums, _quantized, _file, _seldom,
)  # fmt: skip


def fork(rng: np.random.Generator, longest: float, patience: float) -> str:
    """Return "right", or what went wrong. The fork is within `longest` seconds from when the threads start.

    What takes more than `patience` seconds hangs.
    """
    faulthandler.register(signal.SIGUSR1)
    calls = [CALLS[int(i)] for i in rng.integers(0, len(CALLS), int(rng.integers(1, 4)))]
    child_call, delay = CALLS[int(rng.integers(len(CALLS)))], longest * 10 ** -(3.5 * rng.random())
    wrong: list[str] = []
    threads = [threading.Thread(target=_call, args=(call, wrong), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(delay)
    child = os.fork()
    if child == 0:
        _call(child_call, wrong)
        print(*wrong, sep="\n", end="", file=sys.stderr, flush=True)
        os._exit(1 if wrong else 0)
    ended = outcome(child, patience)
    for thread in threads:
        thread.join(patience)
    hung = [
        f"{call.__name__} hung in a thread of the parent"
        for call, t in zip(calls, threads, strict=True)
        if t.is_alive()
    ]
    names = ", ".join(call.__name__ for call in calls)
    what = f"threads in {names}, forked after {delay:.4f} s, child in {child_call.__name__}"
    return f"{what}: {'; '.join([*ended, *wrong, *hung])}" if ended or wrong or hung else "right"


def _call(call: Callable[[], bool], wrong: list[str]) -> None:
    try:
        if not call():
            wrong.append(f"{call.__name__} gave a wrong result")
    except BaseException as error:
        wrong.append(f"{call.__name__} raised {error!r}")


def outcome(child: int, patience: float) -> list[str]:
    """Wait for a child, and say what is wrong with its end. One that hangs writes where to stderr, and is killed."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return [] if status == 0 else [f"the child ended with status {status}"]
        time.sleep(0.002)
    os.kill(child, signal.SIGUSR1)
    time.sleep(0.5)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return [f"the child hung for {patience:.0f} s"]
