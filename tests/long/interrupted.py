"""Saves that do not come to their end: the disk is full, or the process is killed in the middle."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import quantarray as qa

Same = Callable[[qa.QuantArray, qa.QuantArray], bool]


def disk_full(rng: np.random.Generator, path: Path, old: qa.QuantArray, new: qa.QuantArray, same: Same) -> str:
    """Save to a file that the size limit cuts off: an OSError must name the file, whose old content must remain."""
    size = _before(rng, path, old, new)
    before = path.read_bytes() if path.exists() else None
    most = int(rng.integers(size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        qa.save(path, new)
    except OSError as error:
        assert error.errno and error.filename == str(path) and str(error).startswith(f"[Errno {error.errno}] save: ")
    else:
        raise AssertionError(f"{size} bytes are written where {most} fit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (path.read_bytes() if path.exists() else None) == before, "the old file is not what it was"
    assert not list(path.parent.glob(f".*{path.suffix}")), "half a file is left"
    return "disk full"


def killed(rng: np.random.Generator, path: Path, old: qa.QuantArray, new: qa.QuantArray, same: Same) -> str:
    """Save in a process that a signal ends: the file must be the old one, the new one, or absent if it was absent."""
    size = _before(rng, path, old, new)
    existed = path.exists()
    in_write, calls, most = rng.random() < 0.5, int(2 ** rng.uniform(0, 10)), int(rng.integers(size))
    child = os.fork()
    if child == 0:
        _die(path, new, most if in_write else None, calls)
    _, status = os.waitpid(child, 0)
    ended = os.WIFSIGNALED(status)
    assert ended or (not in_write and os.WEXITSTATUS(status) == 0), f"the save ended with {status}"
    for left in path.parent.glob(f".*{path.suffix}"):  # a process that is killed cannot clear away
        left.unlink()
    if path.exists():
        loaded = qa.load(path)
        assert same(loaded, new) or (existed and same(loaded, old)), "neither the old file nor the new one"
        assert ended or same(loaded, new), "a save that ended well left the old file"
    else:
        assert ended and not existed, "there is no file"
    return "killed"


def _before(rng: np.random.Generator, path: Path, old: qa.QuantArray, new: qa.QuantArray) -> int:
    """Save the old array, or remove the file, and return the size that the new array takes."""
    qa.save(path, new)
    size = path.stat().st_size
    if rng.random() < 0.5:
        qa.save(path, old)
    else:
        path.unlink()
    return size


def _die(path: Path, q: qa.QuantArray, most: int | None, calls: int) -> None:
    """Save until a file reaches a size, or until so many functions were called; then by a signal."""
    try:
        if most is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        else:
            left = [calls]

            def count(*_: object) -> None:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(count)
        qa.save(path, q)
        sys.setprofile(None)
        os._exit(0)
    except BaseException:
        os._exit(1)
