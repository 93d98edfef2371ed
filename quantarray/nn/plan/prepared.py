"""Networks whose layers run from one compiled call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..convolutions import Conv2d
from ..layers import Dense
from ..named import OF_INPUTS, say_first
from ..pooling import AvgPool2d, GlobalAvgPool, MaxPool2d
from .part import Compiled, compiled, form, others
from .recording import runtime

_MOST = 8  # forms of inputs that are planned for a thread
_TYPES = Conv2d, Dense, MaxPool2d, AvgPool2d, GlobalAvgPool  # layers that cannot change, and look at no elements


class Layers:
    """A row of layers that run one by one, the first of which is layer `first` of a network."""

    def __init__(self, layers: Sequence[Any], first: int) -> None:
        self.layers, self.first = layers, first

    def __call__(self, x: Any) -> Any:
        for i, layer in enumerate(self.layers, self.first):
            try:
                x = layer(x)
            except OF_INPUTS as error:
                say_first(error, f"layer {i}, ")
                raise
        return x

    def results(self, x: Any) -> tuple[Any]:
        """Return the result of a call as a tuple."""
        return (self(x),)


class Part:
    """A row of layers of a network: `call` runs them for inputs of its form, `layers` for all others."""

    def __init__(self, layers: Layers, call: Compiled | None) -> None:
        self.layers, self.call = layers, call

    def __call__(self, x: Any, reuse: bool, checked: bool) -> Any:
        """Return the result for x; `checked` says that it has the form that the plan is for."""
        if self.call is not None and (checked or form(x) == self.call.forms[0]):
            results = self.call([x], reuse)
            if results is not None:
                return results[0]
        return self.layers(x)


class Plan:
    """A list of the parts of a network for inputs of one form, in one thread."""

    def __init__(self, layers: Sequence[Any], x: Any) -> None:
        self.parts = list(_parts(layers, x))
        self._busy = False

    def __call__(self, x: Any, reuse: bool) -> Any:
        """Return (result,), or None where a call of this thread is interrupted by another, such as a signal's."""
        if self._busy:
            return None
        self._busy = True
        try:
            for i, part in enumerate(self.parts):
                x = part(x, reuse, checked=i == 0)
            return (x,)
        finally:
            self._busy = False


def _is_recorded(layer: Any) -> bool:
    return type(layer) in _TYPES and not getattr(layer, "return_indices", False)


def _tried(layers: Sequence[Any], x: Any) -> Iterator[tuple[bool, Any]]:
    """Run each layer once; tell if it only launches kernels, and what it takes.

    A layer that may is tried alone on random elements, as the steps of a graph are.
    """
    for i, layer in enumerate(layers):
        one = Layers((layer,), i)
        result = one(x)  # first calls prepare what later ones take from caches
        takes = _is_recorded(layer) and form(x) is not None
        yield takes and compiled(one.results, [others(x, 1)]) is not None, x
        x = result


def _parts(layers: Sequence[Any], x: Any) -> Iterator[Part]:
    first = 0
    for takes, group in groupby(_tried(layers, x), lambda pair: pair[0]):
        inputs = [taken for _, taken in group]
        row = Layers(tuple(layers[first : first + len(inputs)]), first)
        yield Part(row, compiled(row.results, inputs[:1]) if takes else None)
        first += len(inputs)


class Prepared:
    """A network that runs its layers from one compiled call: `prepared(x)` equals `network(x)`.

    The second call with inputs of one form (dtype, shape, constants) records what the layers launch, and plans their
    memory; later ones launch the same on other elements without Python in between. Layers that do more than launch
    kernels run as always, between two compiled parts; `summary` says which.

    Any threads may call it; each has its own plans and memory, for the last forms of its inputs. With `reuse=True`
    results are in a plan's memory, and the next call of the thread overwrites them.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.ones((64, 64), int), values=(-1, 1))
    >>> net = qa.nn.Sequential([qa.nn.Dense(w, qa.Thresholds([0])), qa.nn.Dense(w[:2])])
    >>> prepared, x = net.prepared(), qa.encode(np.ones((1, 64), int), values=(-1, 1))
    >>> prepared(x), (prepared(x) == net(x)).all()
    (array([[64, 64]], dtype=int32), np.True_)
    """

    def __init__(self, layers: Callable[[], tuple[Any, ...]], encode: Callable[[Any], Any], reuse: bool) -> None:
        self._layers, self._encode, self._reuse = layers, encode, reuse
        self._of_thread = threading.local()

    def __call__(self, x: Any) -> Any:
        x, layers = self._encode(x), self._layers()
        key = form(x)
        plan = None if key is None else self._plan(key, layers, x)
        result = None if plan is None else plan(x, self._reuse)
        return Layers(layers, 0)(x) if result is None else result[0]

    def summary(self, x: Any) -> list[str]:
        """Return a line for each part of the plan for x: its layers, and whether they are one compiled call."""
        x, layers = self._encode(x), self._layers()
        lines = []
        for part in _parts(layers, x):
            first, last = part.layers.first, part.layers.first + len(part.layers.layers) - 1
            how = "one by one" if part.call is None else f"compiled, {part.call.launches} launches"
            lines.append(f"layers {first} to {last}: {how}")
        return lines

    def _plan(self, key: Any, layers: tuple[Any, ...], x: Any) -> Plan | None:
        """Return the plan for inputs of a form, or None at the first of them."""
        whole = key, runtime().threads.allowed()
        plans: dict[Any, tuple[Any, Plan | None]] = self._of_thread.__dict__.setdefault("plans", {})
        of, plan = plans.get(whole, (None, None))
        if of is not layers or plan is None:
            plan = Plan(layers, x) if of is layers else None
            plans.pop(whole, None)
            if len(plans) >= _MOST:
                del plans[next(iter(plans))]
            plans[whole] = layers, plan
        return plan

    def __repr__(self) -> str:
        return f"Prepared({len(self._layers())} layers)"
