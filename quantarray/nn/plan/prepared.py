"""Networks that run from compiled calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ...backends.registry import device_of
from ..operators.movement import order_in_memory
from ..steps import Step
from . import captured
from .micro_batches import MicroBatches, in_micro_batches
from .part import elements, form
from .recording import runtime
from .reserved import is_told
from .segments import Plan

_MOST = 8  # forms of inputs that are planned for a thread


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


class PlannedPart(NamedTuple):
    """A part of a plan: the names of its operations, and how they run.

    kernels: those that one compiled call launches, in order, as file and module of `quantarray/cpu`; None for
    operations that run one by one, in NumPy. nbytes: of all results of the launches, which share memory. rows: those of
    the inputs that a call takes at once where results of all would not stay in the caches, or None.
    """

    operations: tuple[str, ...]
    kernels: tuple[str, ...] | None
    nbytes: int
    rows: int | None = None


class Prepared:
    """A network that runs from compiled calls: `prepared(x)` equals `network(x)`.

    The second call with inputs of some forms (dtype, shape, constants) records what the operations launch, on arrays
    without elements, and plans their memory; it and later ones launch that, without Python between two operations. An
    operation that reads elements, as NumPy does, runs as always between two compiled calls, and what depends on
    constants alone is kept; `plan` and `summary` say which is which.

    Any threads may call it; each has its own plans and memory, for the last forms of its inputs. With `reuse=True`
    outputs may be in a plan's memory, and the next call of the thread overwrites them.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.ones((64, 64), int), values=(-1, 1))
    >>> net = qa.nn.Sequential([qa.nn.Dense(w, qa.Thresholds([0])), qa.nn.Dense(w[:2])])
    >>> prepared, x = net.prepared(), qa.encode(np.ones((1, 64), int), values=(-1, 1))
    >>> prepared(x), (prepared(x) == net(x)).all()
    (array([[64, 64]], dtype=int32), np.True_)
    """

    def __init__(self, name: str, program: Program, reuse: bool, encode: Callable[[Any], Any] | None = None) -> None:
        """encode: makes the program's only input of what a call is passed."""
        self._name, self._program, self._reuse, self._encode = name, program, reuse, encode
        self._of_thread = threading.local()

    def __call__(self, *x: Any, **named: Any) -> Any:
        program, values = self._program, self._ready(x, named)
        if not program._input_slots:
            return program._outputs_of(program._run(values))
        if _device(program, values) != "cpu":
            return program._outputs_of(self._launched(values) if _fits(program, values) else program._run(values))
        forms = [_form_and_order(values[at]) for at in program._input_slots]
        try:
            plan = None if None in forms else self._plan(tuple(forms), values)
            done = None if plan is None else plan(values, self._reuse)
            return program._outputs_of(program._run(values) if done is None else done)
        except ValueError as error:
            program._name_nan(error, values)
            raise

    def _launched(self, values: list[Any]) -> list[Any]:
        """Launch the CUDA graph for inputs of these forms on a GPU; the first of them captures it."""
        program = self._program
        inputs = [values[at] for at in program._input_slots]
        forms = tuple(map(captured.form, inputs))
        graphs: dict[Any, captured.Captured] = self._of_thread.__dict__.setdefault("graphs", {})
        graph = graphs.pop(forms, None) or captured.Captured(self._results, inputs)
        graphs[forms] = graph
        if len(graphs) > _MOST:
            del graphs[next(iter(graphs))]
        for at, result in zip(program._output_slots, graph(inputs, self._reuse), strict=True):
            values[at] = result
        return values

    def _results(self, *inputs: Any) -> tuple[Any, ...]:
        program = self._program
        values = program._initial.copy()
        for at, x in zip(program._input_slots, inputs, strict=True):
            values[at] = x
        done = program._run(values)
        return tuple([done[at] for at in program._output_slots])

    def _ready(self, x: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        return self._program._ready(x if self._encode is None else tuple(map(self._encode, x)), named)

    def _plan(self, forms: tuple[Any, ...], values: list[Any]) -> Plan | MicroBatches | None:
        """Return the plan for inputs of some forms, or None at the first of them."""
        whole = forms, runtime().threads.allowed()
        plans: dict[Any, Plan | MicroBatches | None] = self._of_thread.__dict__.setdefault("plans", {})
        plan = plans.get(whole)
        if plan is None:
            plan = self._planned(values) if whole in plans else None
            plans.pop(whole, None)
            if len(plans) >= _MOST:
                del plans[next(iter(plans))]
            plans[whole] = plan
        return plan

    def _planned(self, values: list[Any]) -> Plan | MicroBatches:
        program = self._program
        plan = Plan(program._steps, program._initial, program._output_slots, values.copy())
        return in_micro_batches(plan, values, program._input_slots, program._output_slots) or plan

    def plan(self, *x: Any, **named: Any) -> list[PlannedPart]:
        """Return the parts of the plan for inputs like these, in order, without running it.

        Without inputs, a graph is planned for zeros of its inputs' shapes. Kernels do not run but for weights that no
        call has laid out yet; where NumPy computes an operation, it and those before it run once.

        >>> import quantarray as qa
        >>> (part,) = qa.nn.models.lfc().prepared().plan()
        >>> part.operations[:2], part.kernels[0], len(part.kernels), part.nbytes < 1000
        (('threshold', 'linear'), 'epilogue.threshold', 6, True)
        """
        values = self._ready(x or (self._program._zeros() if not named else x), named)
        if self._program._input_slots and _device(self._program, values) != "cpu":
            names = tuple([step.name for step in self._program._steps])
            return [PlannedPart(names, ("cuda graph",) if _fits(self._program, values) else None, 0)]
        plan = self._planned(values)
        return [
            PlannedPart(
                tuple([step.name for step in segment.steps]),
                None if segment.call is None else segment.call.kernels,
                0 if segment.call is None else segment.call.nbytes,
                plan.size if isinstance(plan, MicroBatches) else None,
            )
            for segment in plan.segments
        ]

    def summary(self, *x: Any, **named: Any) -> list[str]:
        """Return a line for each part of `plan`: its operations, and how they run."""
        lines, first = [], 0
        for part in self.plan(*x, **named):
            last = first + len(part.operations) - 1
            names = ", ".join(part.operations)
            how = f"one by one, {names}" if part.kernels is None else f"compiled, {len(part.kernels)} launches"
            how += f", {part.rows} rows at a time" if part.rows else ""
            lines.append(f"operations {first} to {last}: {how}")
            first = last + 1
        if not is_told():
            lines.append("nothing is compiled: this system does not say which memory is read (docs/decisions/0033)")
        return lines

    def __repr__(self) -> str:
        return f"Prepared({self._name}: {len(self._program._steps)} operations)"


def _device(program: Program, values: list[Any]) -> str:
    return device_of(elements(values[program._input_slots[0]]))


def _fits(program: Program, values: list[Any]) -> bool:
    """Return True if a CUDA graph may be captured: of CuPy's arrays, and without functions of a user's, which run."""
    held = any(step.operator.holds for step in program._steps)
    return not held and all(captured.takes(values[at]) for at in program._input_slots)


def _form_and_order(x: Any) -> Any:
    """Return what a plan is for: `form`, and the order in memory, in which NumPy's operators sum floats."""
    one = form(x)
    return one if one is None or elements(x).flags.c_contiguous else (one, order_in_memory(elements(x)))
