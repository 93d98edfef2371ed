"""A GPU that starts nothing: the twins' own host code on the stand-in for CuPy, with a driver that takes notes.

`counted` counts the calls of a function as cProfile does, built-ins too, but not what the stand-in does itself: CuPy's
functions are compiled, and each is one call; its attributes are none.
"""

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import fake_cupy
import numpy as np

from quantarray.arrays import launched
from quantarray.core.bounded_cache import Kept
from quantarray.ops.quantize import prepared_schemes

_FREE = ("__getattr__", "data")  # of the stand-in, which CuPy's arrays have without a call


@contextmanager
def nothing_recorded():
    """Forget recorded calls at both ends: those of another driver start nothing here."""
    with patch.object(launched, "_calls", Kept(256)), patch.object(prepared_schemes, "_kept", Kept(256)):
        yield


@contextmanager
def stubbed():
    """Give the list of launches inside."""
    from quantarray.cuda.runtime import driver, launch

    started = []

    def launcher(*how):
        started.append(how)
        return (0,)

    runtime = SimpleNamespace(getDevice=lambda: 0), fake_cupy.get_current_stream
    with (
        fake_cupy.arrays() as xp,
        nothing_recorded(),
        patch.object(launch, "_driver", lambda: True),
        patch.object(launch, "capability", lambda: (9, 0)),
        patch.object(launch, "multiprocessors", lambda: 132),
        patch.object(launch, "_move", lambda a: fake_cupy.ndarray(a.copy())),
        patch.object(launch, "_function", lambda kernel, args: (kernel, kernel)),
        patch.object(driver, "set_attributes", lambda *how: None),
        patch.object(driver, "handle_of", lambda kernel: kernel),
        patch.object(driver, "_runtime", lambda: runtime),
        patch.object(driver.cuda, "current_context", lambda: None),
        patch.object(driver, "_launcher", lambda: launcher),
        patch.object(driver, "_stream", lambda handle: handle),
        patch.object(xp, "empty", lambda *args: fake_cupy.ndarray(np.zeros(*args)), create=True),
    ):
        yield xp, started


def counted(call):
    """Count the calls that `call()` makes."""
    count, inside = 0, 0

    def look(frame, event, arg):
        nonlocal count, inside
        ours = frame.f_code.co_filename in (fake_cupy.__file__, __file__)
        if event == "call":
            if inside:
                inside += 1
            elif ours:
                inside = 1
                count += frame.f_code.co_name not in _FREE
            else:
                count += 1
        elif event == "return" and inside:
            inside -= 1
        elif event == "c_call" and not inside:
            count += 1

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 2  # `call` itself, and the end of the count
