"""A step of a network as it runs: an operation on values that have numbers instead of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .operators.record import Operator


class Step(NamedTuple):
    """An operation as it runs, with the places of its operands (-1 for one that is left out) and of its results."""

    name: str
    operator: Operator
    attributes: dict[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def __call__(self, values: list[Any]) -> None:
        """Compute the results from the values and put them there."""
        got = self.results_of([values[i] if i >= 0 else None for i in self.operands])
        for at, array in zip(self.results, got, strict=True):
            values[at] = array

    def results_of(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results for operands, None where one is left out."""
        got = self.operator.run(self.attributes, *operands)
        return (got,) if len(self.results) == 1 else tuple(got)
