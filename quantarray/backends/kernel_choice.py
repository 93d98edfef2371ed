"""Choices between techniques: at each stage an ordered table of them, with conditions and costs; and between kernels.

    taken = the first technique of a stage that is not refused and has no cost, or
            argmin of cost over the techniques that are not refused, the first of equal ones

`quantarray.explain` prints what was considered and taken. The kernel of a product is that of the cost model, unless one
is forced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class Question(NamedTuple):
    """A question asked while a call was prepared: which kernels could do it, and which the model took."""

    candidates: tuple[str, ...]
    model: str


_forced: ContextVar[str | None] = ContextVar("quantarray_forced_kernel", default=None)
_heard: ContextVar[list[Question] | None] = ContextVar("quantarray_kernel_questions", default=None)


def chosen(costs: Any, *problem: Any) -> str:
    """Choose the kernel of a problem; `costs` is a backend's module of that name, which says what a problem is."""
    name, questions = _forced.get(), _heard.get()
    model: str = costs.integer_kernel(*problem)
    if name is None and questions is None:
        return model
    candidates = costs.candidates(*problem)
    if questions is not None:
        questions.append(Question(candidates, model))
    return model if name is None or name not in candidates else name


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Let calls that are prepared inside take the kernel `name` wherever it is one of those that can do it."""
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def heard() -> Iterator[list[Question]]:
    """Collect the questions that are asked inside."""
    questions: list[Question] = []
    token = _heard.set(questions)
    try:
        yield questions
    finally:
        _heard.reset(token)


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
