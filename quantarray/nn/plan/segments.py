"""Plan: steps of a network in rows, those that only launch kernels as compiled calls, the others one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.products.dense_product import ScaledBytes
from ..operators.products import laid_out
from ..steps import Step
from .part import Compiled, Row, elements, form, like


class Segment:
    """A row of steps: `call` runs them at once, if they only launch kernels; else they run one by one."""

    def __init__(self, steps: Sequence[Step], wanted: set[int], row: Row | None = None) -> None:
        """wanted: places of values that are needed after the steps. row: where they were recorded."""
        self.steps, self.last, self.sure = tuple(steps), False, False
        results = {at for step in steps for at in step.results}
        self.taken = {at for step in steps for at in step.operands if at >= 0} - results
        self._given = sorted(results & wanted)
        self.held = self.taken if any(step.operator.holds for step in steps) else set()
        self.call = Compiled(row, self._given) if row is not None else None
        self.shapes = row.shapes() if row is not None else {}

    def gives(self, outputs: Sequence[int]) -> bool:
        """Return True if what is needed after the steps are the outputs of the network, all of them."""
        return set(outputs) == set(self._given)

    def place(self, known: set[int], later: Sequence[Segment]) -> None:
        """Note whether what it takes always has the forms that it was compiled for, and whether no segment reads it.

        known: places of values of such forms, to which its results are added.
        """
        self.sure = known.issuperset(self.taken)
        self.last = not any(one.taken.intersection(self._given) for one in later)
        if self.sure and self.call is not None:
            known.update(self._given)

    def __call__(self, values: list[Any], reuse: bool) -> bool:
        """Compute what is needed after the steps; return whether no later call overwrites it.

        With `reuse`, and for results that a segment reads, it is in memory that the next call overwrites.
        """
        if self.call is not None:
            inputs = [one.laid(values) for one in self.call.inputs]
            fit = self.sure or tuple(map(form, inputs)) == self.call.forms
            results = self.call(inputs, reuse or not self.last) if fit else None
            if results is not None:
                for at, x in zip(self._given, results, strict=True):
                    values[at] = x
                return self.last and not reuse
        for step in self.steps:
            step(values)
        return False


class Plan:
    """A list of the segments of a network for inputs of some forms, in one thread.

    Each step is recorded on arrays without elements. One that needs elements is run with them, and what is before it.
    What depends on constants alone is computed once, and kept.
    """

    def __init__(self, steps: Sequence[Step], initial: list[Any], outputs: Sequence[int], values: list[Any]) -> None:
        self._initial, self._outputs = initial.copy(), outputs
        known = {at for at, x in enumerate(values) if x is not None}
        self._steps = _folded(steps, self._initial, outputs)
        self.segments = _segments(self._steps, self._initial, values, outputs)
        for i, segment in enumerate(self.segments):
            known.update(at for at, x in enumerate(self._initial) if x is not None)
            segment.place(known, self.segments[i + 1 :])
        # Outputs that depend on constants alone
        self._computed = [at for at in outputs if self._initial[at] is not None and initial[at] is None]
        self._constant = any(x is not None for x in self._initial)
        self._whole = bool(self.segments) and self.segments[-1].gives(outputs)
        self._memories = [place for one in self.segments if one.call for place in one.call.addresses]
        self._busy = False

    def like(self, values: list[Any]) -> Plan:
        """Return the plan of the same steps for inputs of other forms."""
        return Plan(self._steps, self._initial, self._outputs, values)

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
            for at in self._computed:
                values[at] = like(values[at], elements(values[at]).copy("K"))
            return values
        finally:
            self._busy = False

    def _own(self, x: Any) -> Any:
        """Return a value that no later call overwrites: a copy if it is in the plan's memory."""
        memory = elements(x)
        if not isinstance(memory, np.ndarray):
            return x
        first = memory.__array_interface__["data"][0]
        planned = any(start <= first <= start + size for start, size in self._memories)
        return like(x, memory.copy("K")) if planned else x


def _folded(steps: Sequence[Step], initial: list[Any], outputs: Sequence[int]) -> list[Step]:
    """Compute what depends on constants alone, put it among them, and return the steps that are left.

    Weights of float convolutions are put in the order in memory in which kernels read them, and those of matrix
    products that are int8 times scales stay so.
    """
    left, multiplied = [], _only_multiplied(steps, outputs)
    for step in steps:
        if step.operands and all(at < 0 or initial[at] is not None for at in step.operands):
            scaled = _scaled_bytes(step, initial) if step.results[0] in multiplied else None
            if scaled is not None:
                initial[step.results[0]] = scaled
            else:
                step(initial)
        else:
            left.append(step)
    for step in left:
        if step.name == "Conv" and initial[step.operands[1]] is not None:
            initial[step.operands[1]] = laid_out(initial[step.operands[1]])
    return left


def _only_multiplied(steps: Sequence[Step], outputs: Sequence[int]) -> set[int]:
    """Return the values that are nothing but the second operand of matrix products."""
    read = {at for step in steps for at in step.operands[: 1 if step.name == "MatMul" else None]}
    return {step.operands[1] for step in steps if step.name == "MatMul"} - read - set(outputs)


def _scaled_bytes(step: Step, initial: list[Any]) -> ScaledBytes | None:
    """Return int8 [k n] times a scale for each column, or for all, as a matrix; None for other steps."""
    if step.name != "scale" or np.dtype(step.attributes.get("to", np.float32)) != np.float32:
        return None
    integers, scale = (initial[at] for at in step.operands)
    if not all(isinstance(a, np.ndarray) for a in (integers, scale)) or scale.dtype != np.float32:
        return None
    if integers.dtype != np.int8 or integers.ndim != 2 or scale.size not in (1, integers.shape[1]):
        return None
    if scale.size > 1 and scale.shape[-1] == 1:  # of a row
        return None
    columns = np.broadcast_to(scale.reshape(-1), integers.shape[1])
    return ScaledBytes(np.ascontiguousarray(integers), np.ascontiguousarray(columns))


def _segments(
    steps: Sequence[Step], initial: list[Any], values: list[Any], outputs: Sequence[int]
) -> list[Segment]:  # fmt: skip
    """Return segments for inputs like those among the values."""
    known = [x if constant is None else constant for x, constant in zip(values, initial, strict=True)]
    parts: list[tuple[list[Step], Row | None]] = []
    row = Row(initial, known)
    for step in steps:
        if step.operator.launches and row.take(step):
            continue
        _add(parts, row)
        for one in row.steps:
            one(known)
        if step.operator.holds:  # a function of a user's, which may write to what it takes
            for at in step.operands:
                known[at] = like(known[at], elements(known[at]).copy("K")) if form(known[at]) else known[at]
        step(known)
        _add(parts, [step])
        row = Row(initial, known)
    _add(parts, row)
    segments, done = [], 0
    for part, recorded in parts:
        done += len(part)
        wanted = {at for step in steps[done:] for at in step.operands}.union(outputs)
        segments.append(Segment(part, wanted, recorded))
    return segments


def _add(parts: list[tuple[list[Step], Row | None]], more: Row | list[Step]) -> None:
    """Add a row that launches kernels, or steps that run one by one, to those that do so before them."""
    if isinstance(more, Row) and more.recorder.launches:
        parts.append((more.steps, more))
        return
    steps = more.steps if isinstance(more, Row) else more
    if parts and parts[-1][1] is None:
        parts[-1][0].extend(steps)
    elif steps:
        parts.append(([*steps], None))
