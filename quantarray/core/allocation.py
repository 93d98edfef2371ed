"""MemoryError with the public function that needed the memory, and how many bytes."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

_PUBLIC = tuple(f"quantarray.{name}" for name in ("arrays", "io", "linalg", "methods", "ops"))
_WITHOUT_NAME = ("method", "apply", "placed")  # wrappers of public functions


def no_room(shape: tuple[int, ...], dtype: Any) -> MemoryError:
    """Return the error for an array that could not be allocated; NumPy's names neither the operation nor a fix."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return MemoryError(
        f"{_operation()}: an array of shape {tuple(shape)} and type {np.dtype(dtype)} needs {nbytes:,} bytes, which "
        f"are not free; take it in parts"
    )


def _operation() -> str:
    """Name the outermost function of the package with a public name that is being called.

    Found in the stack, since the helpers that allocate do not get the name of who calls them: only errors pay for it.
    """
    frame, name = sys._getframe(2), "quantarray"
    while frame is not None:
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        if module.startswith(_PUBLIC) and not code.co_name.startswith(("_", "<")) and code.co_name not in _WITHOUT_NAME:
            name = code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return name
