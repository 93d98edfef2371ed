"""A limit on the memory that reading a file may take."""

from __future__ import annotations

import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLACK = 4 << 20  # bytes that a load may take beyond TIMES the file
TIMES = 16
MAPPED = 64 << 20  # bytes of address space that may be added: the allocator takes more than is asked for


@contextmanager
def little_memory(size: int, measured: bool) -> Iterator[None]:
    """Limit the address space to some more than is mapped, and sometimes measure what NumPy and Python take."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped = pages * resource.getpagesize() + MAPPED + TIMES * size
    resource.setrlimit(resource.RLIMIT_AS, (mapped, resource.RLIM_INFINITY))
    if measured:
        tracemalloc.start()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= SLACK + TIMES * size, f"{peak:,} bytes to read a file of {size:,}"
