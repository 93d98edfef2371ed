"""Choices between techniques: at each stage an ordered table of named techniques, with conditions and costs.

    taken = the first technique of a stage that is not refused and has no cost, or
            argmin of cost over the techniques that are not refused, the first of equal ones

`quantarray.explain` prints what was considered and taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class Way(NamedTuple):
    """A technique for a stage: `refusal(problem)` says why it can't be taken, or "" if it can."""

    name: str
    refusal: Callable[[Any], str]
    cost: Callable[[Any], float] | None = None


class Stage(NamedTuple):
    """A decision about a product, and its techniques in the order in which they are considered."""

    name: str
    ways: tuple[Way, ...]


class Asked(NamedTuple):
    """A technique that was considered: why it was refused, or its cost in units of the model, if it has one."""

    way: str
    refused: str
    cost: float | None


class Choice(NamedTuple):
    """A stage that was decided."""

    stage: str
    taken: str
    asked: tuple[Asked, ...]
    problem: Any  # what the decision is about


_choices: ContextVar[list[Choice] | None] = ContextVar("quantarray_choices", default=None)


@contextmanager
def recorded() -> Iterator[list[Choice]]:
    """Collect the choices that are made inside, in their order."""
    choices: list[Choice] = []
    token = _choices.set(choices)
    try:
        yield choices
    finally:
        _choices.reset(token)


def are_recorded() -> bool:
    """True if someone collects choices."""
    return _choices.get() is not None


def pick(stage: Stage, problem: Any) -> str:
    """Return the name of the technique that a stage takes: the first without a cost, or the cheapest."""
    asked: list[Asked] = []
    taken: Asked | None = None
    for way in stage.ways:
        refused = way.refusal(problem)
        cost = None if refused or way.cost is None else way.cost(problem)
        asked.append(Asked(way.name, refused, cost))
        if refused:
            continue
        if cost is None:
            taken = taken or asked[-1]
            break
        if taken is None or taken.cost is None or cost < taken.cost:
            taken = asked[-1]
    assert taken is not None, f"every technique of {stage.name} is refused"
    record(Choice(stage.name, taken.way, tuple(asked), problem))
    return taken.way


def record(choice: Choice) -> None:
    """Note a choice for who collects them."""
    choices = _choices.get()
    if choices is not None:
        choices.append(choice)
