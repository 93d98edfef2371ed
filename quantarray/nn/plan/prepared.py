"""Networks that run from compiled calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..convolutions import Conv2d
from ..layers import Dense
from ..named import OF_INPUTS, say_first
from ..operators.movement import order_in_memory
from ..operators.record import Operator
from ..pooling import AvgPool2d, GlobalAvgPool, MaxPool2d
from ..steps import Step
from .part import elements, form
from .recording import runtime
from .segments import Plan

_MOST = 8  # forms of inputs that are planned for a thread
_LAUNCHING = Conv2d, Dense, MaxPool2d, AvgPool2d, GlobalAvgPool  # layers that cannot change, and look at no elements


class Program(Protocol):
    """A network as its steps on a list of values: a graph, or layers in a row."""

    _steps: list[Step]
    _initial: list[Any]  # values that are constant, None for the others
    _input_slots: list[int]
    _output_slots: list[int]

    def _ready(self, x: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Return a list of all values, in which only constants and checked inputs are set yet."""

    def _run(self, values: list[Any]) -> list[Any]:
        """Take all steps, one by one."""

    def _outputs_of(self, values: list[Any]) -> Any:
        """Return what a call returns."""

    def _name_nan(self, error: ValueError, values: list[Any]) -> None:
        """Let an error say which input has a NaN."""

    def _zeros(self) -> tuple[Any, ...]:
        """Return inputs to plan for where nobody passed any."""


class LayersInRow:
    """Layers in a row as steps: value i is what layer i takes. `encode` makes the first of an input."""

    def __init__(self, layers: Sequence[tuple[int, Callable[[Any], Any]]], encode: Callable[[Any], Any]) -> None:
        self._steps = [_step(at, i, layer) for at, (i, layer) in enumerate(layers)]
        self._initial: list[Any] = [None] * (len(layers) + 1)
        self._input_slots, self._output_slots = [0], [len(layers)]
        self._encode = encode

    def _ready(self, x: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        if len(x) != 1 or named:
            raise TypeError(f"a network of layers takes one input, without a name; got {len(x) + len(named)}")
        return [self._encode(x[0]), *self._initial[1:]]

    def _run(self, values: list[Any]) -> list[Any]:
        for step in self._steps:
            step(values)
        return values

    def _outputs_of(self, values: list[Any]) -> Any:
        return values[-1]

    def _name_nan(self, error: ValueError, values: list[Any]) -> None:
        pass  # the layer that refuses it has

    def _zeros(self) -> tuple[Any, ...]:
        return ()


def _step(at: int, i: int, layer: Callable[[Any], Any]) -> Step:
    """Return the step of layer i of a network, from value `at` to the next."""

    def run(attributes: dict[str, Any], x: Any) -> Any:
        try:
            return layer(x)
        except OF_INPUTS as error:
            say_first(error, f"layer {i}, ")
            raise

    launching = type(layer) in _LAUNCHING and not getattr(layer, "return_indices", False)
    name = getattr(layer, "__name__", type(layer).__name__)
    return Step(name, Operator(run=run, launches="always" if launching else "never"), {}, (at,), (at + 1,))


class Prepared:
    """A network that runs from compiled calls: `prepared(x)` equals `network(x)`.

    The second call with inputs of some forms (dtype, shape, constants) records what the operations launch, and plans
    their memory; later ones launch the same on other elements, without Python between two operations. What does more
    than launch kernels, such as what runs in NumPy, runs as always between two compiled calls, and what depends on
    constants alone is kept; `summary` says which is which.

    Any threads may call it; each has its own plans and memory, for the last forms of its inputs. With `reuse=True`
    outputs may be in a plan's memory, and the next call of the thread overwrites them.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.ones((64, 64), int), values=(-1, 1))
    >>> net = qa.nn.Sequential([qa.nn.Dense(w, qa.Thresholds([0])), qa.nn.Dense(w[:2])])
    >>> prepared, x = net.prepared(), qa.encode(np.ones((1, 64), int), values=(-1, 1))
    >>> prepared(x), (prepared(x) == net(x)).all()
    (array([[64, 64]], dtype=int32), np.True_)
    """

    def __init__(self, name: str, program: Program, reuse: bool) -> None:
        self._name, self._program, self._reuse = name, program, reuse
        self._of_thread = threading.local()

    def __call__(self, *x: Any, **named: Any) -> Any:
        program = self._program
        values = program._ready(x, named)
        forms = [_form_and_order(values[at]) for at in program._input_slots]
        try:
            plan = None if None in forms else self._plan(tuple(forms), values)
            done = None if plan is None else plan(values, self._reuse)
            return program._outputs_of(program._run(values) if done is None else done)
        except ValueError as error:
            program._name_nan(error, values)
            raise

    def _plan(self, forms: tuple[Any, ...], values: list[Any]) -> Plan | None:
        """Return the plan for inputs of some forms, or None at the first of them."""
        whole = forms, runtime().threads.allowed()
        plans: dict[Any, Plan | None] = self._of_thread.__dict__.setdefault("plans", {})
        plan = plans.get(whole)
        if plan is None:
            plan = self._planned(values) if whole in plans else None
            plans.pop(whole, None)
            if len(plans) >= _MOST:
                del plans[next(iter(plans))]
            plans[whole] = plan
        return plan

    def _planned(self, values: list[Any]) -> Plan:
        program = self._program
        return Plan(program._steps, program._initial, program._output_slots, values.copy())

    def summary(self, *x: Any, **named: Any) -> list[str]:
        """Return a line for each part of the plan for inputs like these: its operations, and how they run.

        Without inputs, a graph is planned for zeros of its inputs' shapes.
        """
        values = self._program._ready(x or (self._program._zeros() if not named else x), named)
        lines, first = [], 0
        for segment in self._planned(values).segments:
            last = first + len(segment.steps) - 1
            names = ", ".join(step.name for step in segment.steps)
            how = f"one by one, {names}" if segment.call is None else f"compiled, {segment.call.launches} launches"
            lines.append(f"operations {first} to {last}: {how}")
            first = last + 1
        return lines

    def __repr__(self) -> str:
        return f"Prepared({self._name}: {len(self._program._steps)} operations)"


def _form_and_order(x: Any) -> Any:
    """Return what a plan is for: `form`, and the order in memory, in which NumPy's operators sum floats."""
    one = form(x)
    return one if one is None or elements(x).flags.c_contiguous else (one, order_in_memory(elements(x)))
