"""Plan: steps of a network in rows, those that only launch kernels as compiled calls, the others one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ..operators.movement import order_in_memory
from ..operators.products import laid_out
from ..steps import Step
from .part import Compiled, compiled, elements, form, like, others
from .recording import root


class _View(NamedTuple):
    """Keep the order of axes in which a dense array is C-contiguous; None for a packed one."""

    order: tuple[int, ...] | None

    @classmethod
    def of(cls, x: Any) -> _View:
        if isinstance(x, QuantArray):
            return cls(None)
        return cls(order_in_memory(x))

    @classmethod
    def by_pixels(cls, x: Any) -> _View:
        """Return the order of images [n c ..] with the channels last, in which they are copied to a plan's memory."""
        return cls(None if isinstance(x, QuantArray) else (0, *range(2, x.ndim), 1)) if x.ndim > 2 else cls.of(x)

    def laid(self, x: Any) -> Any:
        """Return x with its axes in this order."""
        return x if self.order is None else x.transpose(self.order)

    def back(self, x: Any) -> Any:
        """Return what `laid` had."""
        return x if self.order is None else x.transpose(np.argsort(self.order))


class Segment:
    """A row of steps without others between: `call` runs them at once, where they could be compiled."""

    def __init__(
        self, steps: Sequence[Step], initial: list[Any], values: list[Any], wanted: set[int],
        fixed: Collection[int] = (), launching: bool = True,
    ) -> None:  # fmt: skip
        """Compile steps, if `launching`, for the values that they take, of which `initial` has the graph's constants.

        wanted: places of values that are needed after them. fixed: of those whose order in memory kernels chose; other
        images are copied with their channels last.
        """
        self.steps, self._initial = tuple(steps), initial
        results = {at for step in steps for at in step.results}
        taken = {at for step in steps for at in step.operands if at >= 0 and at not in results and initial[at] is None}
        self._taken, self._given = sorted(taken), sorted(results & wanted)
        self.held = self._taken if any(step.operator.holds for step in steps) else []
        self.last = self.sure = False
        images = _images(steps).difference(fixed)
        self._views = [(_View.by_pixels if at in images else _View.of)(values[at]) for at in self._taken]
        self._turned = any(view.order is not None for view in self._views)
        inputs = self._inputs(values)
        launching = launching and all(step.operator.launches != "never" for step in steps)
        launching = launching and all(form(x) is not None for x in inputs)
        self.call: Compiled | None = compiled(self._results, inputs) if launching else None

    def _inputs(self, values: list[Any]) -> list[Any]:
        if not self._turned:  # as in most calls
            return [values[at] for at in self._taken]
        return [view.laid(values[at]) for at, view in zip(self._taken, self._views, strict=True)]

    def gives_views(self, values: list[Any]) -> bool:
        """Return True if all results are views of what the steps take."""
        inputs = self._inputs(values)
        owners = {id(root(elements(x))) for x in inputs}
        try:
            return all(id(root(elements(x))) in owners for x in self._results(*inputs))
        except (ValueError, ArithmeticError):  # of these elements
            return False

    def _results(self, *inputs: Any) -> tuple[Any, ...]:
        values = self._initial.copy()
        for at, view, x in zip(self._taken, self._views, inputs, strict=True):
            values[at] = view.back(x)
        for step in self.steps:
            step(values)
        return tuple([values[at] for at in self._given])

    def place(self, known: set[int], later: Sequence[Segment]) -> None:
        """Note whether what it takes always has the forms that it was compiled for, and whether no segment reads it.

        known: places of values of such forms, to which its results are added.
        """
        self.sure = known.issuperset(self._taken)
        self.last = not any(set(one._taken).intersection(self._given) for one in later)
        if self.sure and self.call is not None:
            known.update(self._given)

    def __call__(self, values: list[Any], reuse: bool) -> bool:
        """Compute what is needed after the steps; return whether no later call overwrites it.

        With `reuse`, and for results that a segment reads, it is in memory that the next call overwrites.
        """
        if self.call is not None:
            inputs = self._inputs(values)
            fit = self.sure or tuple(map(form, inputs)) == self.call.forms
            results = self.call(inputs, reuse or not self.last) if fit else None
            if results is not None:
                for at, x in zip(self._given, results, strict=True):
                    values[at] = x
                return self.last and not reuse
        for step in self.steps:
            step(values)
        return False


def _images(steps: Sequence[Step]) -> set[int]:
    """Return the places of values that steps read as images alone: others keep their order, for sums by NumPy."""
    count = [step.operator.images for step in steps]
    images = {at for step, n in zip(steps, count, strict=True) for at in step.operands[:n]}
    return images.difference(at for step, n in zip(steps, count, strict=True) for at in step.operands[n:])


class Plan:
    """A list of the segments of a network for inputs of some forms, in one thread.

    What depends on constants alone is computed once, and kept.
    """

    def __init__(self, steps: Sequence[Step], initial: list[Any], outputs: Sequence[int], values: list[Any]) -> None:
        self._initial, self._outputs = initial.copy(), outputs
        known = {at for at, x in enumerate(values) if x is not None}
        rows = _rows(_folded(steps, self._initial), self._initial, values)
        self.segments: list[Segment] = []
        for i, (launching, row) in enumerate(rows):
            wanted = {at for _, later in rows[i + 1 :] for step in later for at in step.operands} | set(outputs)
            if launching:
                self.segments += _compiled_segments(row, self._initial, values, wanted)
            else:
                self.segments.append(Segment(row, self._initial, values, wanted, launching=False))
            for step in row:
                step(values)
        for i, segment in enumerate(self.segments):
            segment.place(known, self.segments[i + 1 :])
        self._constant = any(x is not None for x in self._initial)
        self._whole = bool(self.segments) and set(outputs) == set(self.segments[-1]._given)
        self._memories = {id(root(a)) for one in self.segments if one.call for a in one.call.memories}
        self._busy = False

    def __call__(self, values: list[Any], reuse: bool) -> list[Any] | None:
        """Return all values that outputs need; None where a call of this thread is interrupted by another."""
        if self._busy:
            return None
        self._busy = True
        try:
            if self._constant:
                values = [x if known is None else known for x, known in zip(values, self._initial, strict=True)]
            fresh = False
            for segment in self.segments:
                for at in () if reuse else segment.held:
                    values[at] = self._own(values[at])
                fresh = segment(values, reuse)
            for at in () if reuse or (fresh and self._whole) else self._outputs:
                values[at] = self._own(values[at])
            return values
        finally:
            self._busy = False

    def _own(self, x: Any) -> Any:
        """Return a value that no later call overwrites: a copy if it is in the plan's memory."""
        memory = elements(x)
        planned = isinstance(memory, np.ndarray) and id(root(memory)) in self._memories
        return like(x, memory.copy("K")) if planned else x


def _folded(steps: Sequence[Step], initial: list[Any]) -> list[Step]:
    """Compute what depends on constants alone, put it among them, and return the steps that are left.

    Weights of float convolutions are put in the order in memory in which kernels read them.
    """
    left = []
    for step in steps:
        if step.operands and all(at < 0 or initial[at] is not None for at in step.operands):
            step(initial)
        else:
            left.append(step)
    for step in left:
        if step.name == "Conv" and initial[step.operands[1]] is not None:
            initial[step.operands[1]] = laid_out(initial[step.operands[1]])
    return left


def _compiled_segments(
    steps: Sequence[Step], initial: list[Any], values: list[Any], wanted: set[int]
) -> list[Segment]:  # fmt: skip
    """Return a compiled segment of steps, or where there is none those of its halves, down to single steps."""
    segment = Segment(steps, initial, values, wanted)
    if segment.call is not None or len(steps) == 1 or steps[0].operator.launches == "never":
        return [segment]
    first, second = steps[: len(steps) // 2], steps[len(steps) // 2 :]
    between = values.copy()
    for step in first:
        step(between)
    needed = wanted | {at for step in second for at in step.operands}
    return [
        *_compiled_segments(first, initial, values, needed),
        *_compiled_segments(second, initial, between, wanted),
    ]  # fmt: skip


def _rows(steps: Sequence[Step], initial: list[Any], values: list[Any]) -> list[tuple[bool, list[Step]]]:
    """Cut steps into rows of those that launch kernels only (True), and of others."""
    known = [x if constant is None else constant for x, constant in zip(values, initial, strict=True)]
    for at in _images(steps):  # as a plan takes them
        if at >= 0 and initial[at] is None and isinstance(known[at], np.ndarray):
            view = _View.by_pixels(known[at])
            known[at] = view.back(np.ascontiguousarray(view.laid(known[at])))
    rows: list[tuple[bool, list[Step]]] = []
    inside: set[int] = set()  # places of the results of the row
    for step in steps:
        integers = all(_is_integer(known[at]) for at in step.operands if at >= 0)
        when = step.operator.launches  # thresholds of floats look for a NaN in NumPy
        launches = when == "always" or (when == "integers" and integers)
        launches = launches and _only_launches(step, initial, known, inside)
        if not rows or rows[-1][0] != launches:
            rows.append((launches, []))
            inside.clear()
        rows[-1][1].append(step)
        step(known)
        inside.update(step.results)
    values[:] = [x if constant is None else constant for x, constant in zip(values, initial, strict=True)]
    return rows


def _only_launches(step: Step, initial: list[Any], known: list[Any], inside: set[int]) -> bool:
    """Return True if a step does nothing but launch kernels, or gives a view of an operand.

    It is tried alone, on random elements. Recordings of a row begin with what a user has, such as a black image: what
    NumPy computes from it may be the same in both, and would be taken for a constant.
    """
    variable = [at for at in step.operands if at >= 0 and initial[at] is None]
    if any(form(known[at]) is None for at in variable) or (step.operator.views and variable != [step.operands[0]]):
        return False
    for wide in (True, False):  # numbers of any size may be more than an operation takes
        random = known.copy()
        for at in variable:
            view = _View.of(known[at])
            random[at] = view.back(others(view.laid(known[at]), wide))
        try:
            with np.errstate(all="ignore"):  # of numbers that no user passed
                alone = Segment([step], initial, random, set(step.results), inside)
        except (ValueError, ArithmeticError):
            continue
        return alone.call is not None or alone.gives_views(random)
    return False


def _is_integer(x: Any) -> bool:
    """Return True but for floats, which may be NaN, and for int64, of which thresholds refuse the least in NumPy."""
    return not isinstance(x, np.ndarray) or (x.dtype.kind in "iub" and x.dtype != np.int64)
