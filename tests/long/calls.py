"""Public calls in little memory: beside operands and result, 4x the operands and 64 MiB for all that they need.

Each call is first made on operands of the same laws and ranks with at most 64 elements an axis, so that its kernels are
compiled and threads started. Then the address space is limited to what is mapped, 4x the operands, the result and
64 MiB. Calls that compile under the limit, which is lifted then, are repeated. Calls whose result alone is larger than
the machine's memory are drawn apart, and have to say so before they allocate it.
"""

from __future__ import annotations

import ctypes
import re
import resource
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core import event

import quantarray as qa

from .chapters import OPS, TOO_LARGE, WEIGHTS
from .drawing import Draw, nbytes, values
from .proof import Proof

TIMES, SLACK = 4, 64 << 20
CHECKED = 1 << 14  # elements of operands whose results are compared with NumPy's
REFUSALS = (ValueError, TypeError, OverflowError, IndexError)
_SYSTEM = ctypes.CDLL(None)
_PAGE = resource.getpagesize()
_NAMES = sorted(OPS)
_P = np.array([WEIGHTS.get(name, 1.0) for name in _NAMES])
_P /= _P.sum()


def run(rng: np.random.Generator) -> str | None:
    """Draw a call and run it under the memory limit, after a small one of equal draws; seldom one that is too large."""
    seed = int(rng.integers(2**63))
    if rng.random() < 0.005:
        return refused_for_size(str(rng.choice(sorted(TOO_LARGE))))
    name = str(rng.choice(_NAMES, p=_P))
    small = OPS[name](Draw(seed, small=True))
    attempt(name, small, check=True)
    d = Draw(seed)
    call = OPS[name](d)
    try:
        return limited(name, call, d)
    except BaseException as error:
        raise AssertionError(f"{name} of {', '.join(map(described, d.operands))}: {type(error).__name__}") from error


def limited(name: str, call: Any, d: Draw) -> str:
    """Run a call under the memory limit: "passed", "refused", or "compiled" if it was repeated after a compilation."""
    operands, result, outcome = sum(map(nbytes, d.operands)), None, "passed"
    for _ in range(4):
        LISTENER.compiled = False
        try:
            with limit(TIMES * operands + (result or 0) + SLACK):
                refused, out = attempt(name, call)
        except MemoryError:
            if result is not None:
                raise
            result = nbytes(attempt(name, call)[1])  # how large it is, nobody knows before
            continue
        if not LISTENER.compiled:
            if not refused and operands <= CHECKED:
                compare(out, call)
            return "refused" if refused else outcome
        outcome = "compiled"
    return outcome


def attempt(name: str, call: Any, check: bool = False) -> tuple[bool, Any]:
    """Run a call: (True, None) if it was refused with a message that names it, (False, result) otherwise."""
    function = call[0] if isinstance(call, tuple) else call
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            out = function()
    except REFUSALS as error:
        cuts = isinstance(error, IndexError) and "through a group" in str(error)  # of constants, which is documented
        if isinstance(error, IndexError) and not cuts and not isinstance(error, np.exceptions.AxisError):
            raise
        if not re.match(r"[\w.]+: |[\w.]+ needs ", str(error)) and not isinstance(error, np.exceptions.AxisError):
            raise
        return True, None
    if check:
        compare(out, call)
    return False, out


def compare(out: Any, call: Any) -> None:
    """Assert that a result equals NumPy's result of the values, if the call has one."""
    if not isinstance(call, tuple):
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(call[1]())
    actual = values(out) if not isinstance(out, (tuple, list)) else np.asarray([values(a) for a in out])
    assert actual.shape == expected.shape, f"shape {actual.shape}, NumPy's {expected.shape}"
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0)) if expected.size else 0
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5 * largest)


def refused_for_size(name: str) -> str:
    """Make a call whose result no machine holds: it must raise an error with the size, and allocate little before."""
    try:
        with limit(SLACK):
            TOO_LARGE[name]()
    except (MemoryError, ValueError, OverflowError) as error:
        assert re.match(r"[\w.]+: .*\d", str(error)), f"{name} does not say what it needs: {error}"
        return "too large"
    raise AssertionError(f"{name} returned")


@contextmanager
def limit(room: int) -> Iterator[None]:
    """Let the process map `room` bytes more than it has, once what is free was given back."""
    _SYSTEM.malloc_trim(0)
    with open("/proc/self/statm") as sizes:
        mapped = int(sizes.read().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (mapped + room, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        lift()


def lift() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Compilations(event.Listener):
    """A listener that lifts the limit during compilations: the compiler does not survive a lack of memory."""

    compiled = False

    def on_start(self, _: Any) -> None:
        self.compiled = True
        lift()

    def on_end(self, _: Any) -> None:
        pass


LISTENER = Compilations()


def described(a: Any) -> str:
    """Describe an operand for a message."""
    if isinstance(a, qa.QuantArray):
        group = f", group={a.group}" if a.group else ""
        return f"{str(a.dtype)[:60]} {a.shape} packed on {a.axis}, constants {list(a.constants.shapes)}{group}"
    return f"{a.dtype} {a.shape}" if isinstance(a, np.ndarray) else repr(a)[:80]


def check_names() -> None:
    """Check that calls of all public functions and methods are drawn."""
    functions = {n for n in qa.__all__ if callable(getattr(qa, n)) and not isinstance(getattr(qa, n), type)}
    methods = {n for n in dir(qa.QuantArray) if n[0] != "_" and callable(getattr(qa.QuantArray, n))}
    missing = (functions | methods) - {name.partition(" ")[0] for name in OPS}
    assert not missing, f"no calls are drawn of {sorted(missing)}"


def prepare() -> None:
    """Check what is drawn, register the listener, and start threads."""
    check_names()
    event.register("numba:compile", LISTENER)
    image = qa.encode(np.ones((1, 64, 64, 64), int), values=(-1, 1))
    qa.conv2d(image, image[0, :32].reshape(32, 8, 8, 64)[:, :3, :3], padding=1)
    qa.sort(image)


def verdict(counts: dict[str, int]) -> str | None:
    total = sum(counts.values())
    if total and counts.get("compiled", 0) > total / 100:
        return f"{counts['compiled']} of {total} calls compiled under the limit, more than 1 %"
    return None


Operation = Callable[[Draw], Any]
PROOF = Proof(run, count=10**5, prepare=prepare, verdict=verdict, environment={"MALLOC_ARENA_MAX": "1"})
