"""A function of one array, captured as a CUDA graph: all its launches are one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...backends.registry import current, device_of
from . import launch


class Graph:
    """Calls of a function that launches the same kernels each time, as one launch.

    graph(x) copies x, which must be like the example, to `input`, launches the graph on CuPy's current stream, and
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
            self.input = example.copy()
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
        """The output for x, in the memory that all calls share."""
        to, given = _dense(self.input), _dense(x)
        if type(x) is not type(self.input) or given.shape != to.shape or given.dtype != to.dtype:
            raise ValueError(
                f"graph: needs an input like the example, {_kind(self.input)}, got {_kind(x)}; capture another graph"
            )
        with current(device_of(to)):
            to[...] = given
            self._graph.launch()
        return self.output


def _dense(x: Any) -> Any:
    return getattr(x, "words", x)  # of a packed array


def _kind(x: Any) -> str:
    where = x.device if hasattr(x, "words") else "GPU" if hasattr(x, "__cuda_array_interface__") else "CPU"
    return f"{type(x).__name__} {x.dtype} {x.shape} on {where}"
