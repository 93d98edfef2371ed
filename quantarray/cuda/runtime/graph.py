"""A function of arrays, captured as a CUDA graph: all its launches are one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...backends.registry import current, device_of
from . import launch


class Graph:
    """Launch at once what a function launches, the same kernels each time.

    graph(x) copies x, an array or a tuple of them like the example, to `input`, launches on CuPy's current stream, and
    returns `output`. Nothing waits for it, and nothing is allocated: the next call overwrites `output`, so copy what
    is to stay.

    The function runs twice on the example first: once to compile its kernels and to move its constants, neither of
    which may happen in a capture, then to be captured. What it allocates comes from memory that belongs to the graph,
    and all constants that its kernels read are kept with it.
    """

    def __init__(self, function: Callable[[Any], Any], example: Any, xp: Any) -> None:
        xp.cuda.get_current_stream().synchronize()
        self._pool, stream = xp.cuda.MemoryPool(), xp.cuda.Stream(non_blocking=True)
        with stream, xp.cuda.using_allocator(self._pool.malloc), launch.holding() as self._held:
            self.input = tuple([x.copy() for x in example]) if isinstance(example, tuple) else example.copy()
            function(self.input)
            stream.synchronize()
            stream.begin_capture()
            try:
                self.output = function(self.input)
            except BaseException:
                with suppress(Exception):  # that the capture is invalid, which would hide why
                    stream.end_capture()
                raise
            self._graph = stream.end_capture()

    def __call__(self, x: Any) -> Any:
        """Return the output for x, in the memory that all calls share."""
        pairs = list(zip(self.input, x, strict=True)) if isinstance(self.input, tuple) else [(self.input, x)]
        for to, new in pairs:
            if type(new) is not type(to) or new.shape != to.shape or new.dtype != to.dtype:
                raise ValueError(
                    f"graph: needs an input like the example, {_kind(to)}, got {_kind(new)}; capture another graph"
                )
        with current(device_of(_dense(pairs[0][0]))):
            for to, new in pairs:
                _dense(to)[...] = _dense(new)
            self._graph.launch()
        return self.output


def _dense(x: Any) -> Any:
    return getattr(x, "words", x)  # of a packed array


def _kind(x: Any) -> str:
    where = x.device if hasattr(x, "words") else "GPU" if hasattr(x, "__cuda_array_interface__") else "CPU"
    return f"{type(x).__name__} {x.dtype} {x.shape} on {where}"
