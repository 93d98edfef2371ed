"""Arrays on a device: where new ones are made, moves between devices, and functions as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, overload

from ...arrays.array import QuantArray
from ...backends.registry import allocating, cupy, current, device_of, graph_class, known_device, namespace, to_host
from ...core.dtypes import Array
from ...core.errors import DeviceError
from ...core.format import WORD

if TYPE_CHECKING:
    from ...cuda.runtime.graph import Graph

P = ParamSpec("P")
_default: ContextVar[str] = ContextVar("quantarray_device", default="cpu")


@contextmanager
def device(name: str) -> Iterator[None]:
    """Make new arrays on a device inside a `with` block: "cpu", "cuda" or "cuda:1".

    What `quantize`, `encode`, `from_codes` and their like pack there from arrays of the CPU is moved once it is packed.

    >>> import quantarray as qa
    >>> with qa.device("cpu"):
    ...     q = qa.encode([1, -1], values=(-1, 1))
    """
    token = _default.set(known_device("device", name))
    try:
        yield
    finally:
        _default.reset(token)


def created(make: Callable[P, QuantArray]) -> Callable[P, QuantArray]:
    """Wrap a function that makes arrays, so that they are put where the `with` block around its call wants them."""

    @wraps(make)
    def placed(*args: P.args, **kwargs: P.kwargs) -> QuantArray:
        q, wanted = make(*args, **kwargs), _default.get()
        return q if wanted in (q.device, "cpu") else q.to_device(wanted)

    return placed


def move(q: QuantArray, device: str) -> QuantArray:
    """Return the array on another device; constants, which are small, stay on the CPU, and kernels keep a copy."""
    to = known_device("to_device", device)
    if to == q.device:
        return q
    words: Any = q.words
    if q.device != "cpu":
        words = cupy("to_device").asnumpy(words)
    if to != "cpu":
        with allocating(to, words.shape, WORD):
            words = namespace(to).asarray(words)
    return QuantArray(words, q.dtype, q.shape, q.axis, q.constants, q.scheme)


@overload
def asnumpy(x: QuantArray) -> QuantArray: ...
@overload
def asnumpy(x: Any) -> Array: ...
def asnumpy(x: Any) -> Any:
    """Return a QuantArray or a dense array on the CPU; itself if it is there.

    >>> import quantarray as qa
    >>> qa.asnumpy(qa.encode([1, -1], values=(-1, 1))).device
    'cpu'
    """
    return x.to_device("cpu") if isinstance(x, QuantArray) else to_host(x)


def graph(function: Callable[[Any], Any], x: Any) -> Graph:
    """Capture `function`, of one array on a GPU, as a CUDA graph."""
    on = device_of(x)
    if on == "cpu":
        raise DeviceError("graph: needs an input on a GPU, got one on the CPU; move it, and the layers, to 'cuda'")
    with current(on):
        captured: Graph = graph_class()(function, x, cupy("graph"))
    return captured
