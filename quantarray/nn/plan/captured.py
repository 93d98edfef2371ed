"""Networks on a GPU as CUDA graphs, one for each form of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.array import QuantArray
from ...backends.registry import cupy, current, device_of, graph_class
from .part import elements, like


def takes(x: Any) -> bool:
    """Return True for packed arrays and CuPy's; layers in a row may take other libraries' too."""
    return isinstance(x, QuantArray) or hasattr(x, "flags")


def form(x: Any) -> tuple[Any, ...]:
    """Return all that kernels for x depend on but its elements: a graph is launched for inputs of one form."""
    if isinstance(x, QuantArray):
        return x.device, x._form, x._scheme, tuple([(name, a.tobytes()) for name, a, _ in x.constants.items()])
    return device_of(x), x.dtype, x.shape, x.strides


class Captured:
    """A function of arrays on a GPU as one launch; `graph` is None where it waits for the GPU, which no capture may."""

    def __init__(self, function: Callable[..., tuple[Any, ...]], inputs: Sequence[Any]) -> None:
        self._function = function
        with current(device_of(elements(inputs[0]))):
            xp = cupy("prepared")
            try:
                self.graph: Any = graph_class()(lambda x: function(*x), tuple(inputs), xp)
            except RuntimeError:  # of CUDA, whose errors are CuPy's
                self.graph = None

    def __call__(self, inputs: Sequence[Any], reuse: bool) -> tuple[Any, ...]:
        """Return the results; with `reuse` in memory that the next call overwrites."""
        if self.graph is None:
            return self._function(*inputs)
        results: tuple[Any, ...] = self.graph(tuple(inputs))
        return results if reuse else tuple([like(x, elements(x).copy()) for x in results])
