"""Run a plan on micro-batches, some rows at a time, where the results of all rows would not stay in the caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators.movement import order_in_memory
from .recording import runtime
from .segments import Plan, Segment

BYTES = 1 << 23  # of a plan's memory, for each thread: ResNet-18 of one bit took 18 % longer with eight times as much


def in_micro_batches(
    whole: Plan, values: list[Any], inputs: Sequence[int], outputs: Sequence[int]
) -> MicroBatches | None:
    """Return a plan for some rows of the inputs at a time, or None where all at once are as fast, or may differ.

    Results are the same if the plan is one compiled call, each of whose operations says so (`Operator.rows`).
    """
    rows = {len(values[at]) if type(values[at]) is np.ndarray and values[at].ndim else 0 for at in inputs}
    segments = whole.segments
    if len(rows) != 1 or len(segments) != 1 or segments[0].call is None or not segments[0].call.dense:
        return None
    count = rows.pop()
    pieces = min(count, -(-segments[0].call.nbytes // (BYTES * runtime().threads.allowed())))
    if pieces < 2 or not _are_apart(segments[0], set(inputs), outputs, count):
        return None
    most = -(-count // pieces)
    divisor = max(size for size in range(1, most + 1) if count % size == 0)
    size = divisor if 2 * divisor >= most else most  # a rest of another length is a second plan
    try:
        batches = MicroBatches(whole, size, values, inputs, outputs)
    except Exception:  # a number of rows is written in an attribute: no error of a call's
        return None
    known = segments[0].shapes
    scaled = {at: (size, *known[at][1:]) for step in segments[0].steps for at in step.results}
    fewer = batches.segments[0].shapes if len(batches.segments) == 1 else {}
    return batches if scaled.items() <= fewer.items() else None  # nor is there one that gives other shapes


def _are_apart(segment: Segment, inputs: set[int], outputs: Sequence[int], count: int) -> bool:
    """Return True if row i of all outputs depends on row i of the inputs alone."""
    apart, shapes = set(inputs), segment.shapes
    for step in segment.steps:
        rows = step.operator.rows(step.attributes, [shapes.get(at) for at in step.operands])
        for i, at in enumerate(step.operands):
            if at >= 0 and ((at in apart) != (i in rows) or (i in rows and len(shapes[at]) < 2)):
                return False  # of an array of one axis, rows are channels
        if not rows or any(shapes[at][:1] != (count,) for at in step.results):
            return False
        apart.update(step.results)
    return apart.issuperset(outputs)


class MicroBatches:
    """A plan for micro-batches of some rows, and one for the rest. Calls are those of a `Plan`."""

    def __init__(
        self, whole: Plan, size: int, values: list[Any], inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        """size: rows at once, of inputs and outputs at these places."""
        self.size, self._inputs, self._outputs, self._like = size, inputs, outputs, whole.like
        self._plans = {size: self._like(self._rows(values, 0))}
        self._results: list[Array] = []

    @property
    def segments(self) -> list[Segment]:
        """Return the segments of the plan for `size` rows."""
        return self._plans[self.size].segments

    def __call__(self, values: list[Any], reuse: bool) -> list[Any] | None:
        """Return all values that outputs need; None where a call of this thread is interrupted by another."""
        count = len(values[self._inputs[0]])
        results, self._results = self._results, []  # so that a call that interrupts this one makes its own
        for begin in range(0, count, self.size):
            part, end = self._rows(values, begin), min(begin + self.size, count)
            plan = self._plans.get(end - begin)
            if plan is None:
                plan = self._plans[end - begin] = self._like(part)
            done = plan(part, True)
            if done is None:
                return None
            results = results or [_longer(done[at], count) for at in self._outputs]
            for at, result in zip(self._outputs, results, strict=True):
                result[begin:end] = done[at]
        self._results = results if reuse else []
        values = values.copy()
        for at, result in zip(self._outputs, results, strict=True):
            values[at] = result
        return values

    def _rows(self, values: list[Any], begin: int) -> list[Any]:
        part = values.copy()
        for at in self._inputs:
            part[at] = values[at][begin : begin + self.size]
        return part


def _longer(x: Array, count: int) -> Array:
    """Return an array of `count` rows like x, with its axes in the same order in memory."""
    order = order_in_memory(x)
    shape = count, *x.shape[1:]
    return np.empty([shape[i] for i in order], x.dtype).transpose(np.argsort(order))
