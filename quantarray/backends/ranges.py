"""Ranges of NVTX, by which profilers such as Nsight Systems show what a kernel was launched for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def nvtx() -> Any:
    """Return CuPy's NVTX, or None where CuPy is not imported or was built without it."""
    cupy = sys.modules.get("cupy")
    module = getattr(getattr(cupy, "cuda", None), "nvtx", None)
    return module if hasattr(module, "RangePush") else None


@contextmanager
def shown(marks: Any, name: str) -> Iterator[None]:
    """Mark what runs inside as the range `name`; `marks` is `nvtx()`, not None."""
    marks.RangePush(name)
    try:
        yield
    finally:
        marks.RangePop()
