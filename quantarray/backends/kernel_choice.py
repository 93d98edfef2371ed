"""The choice of a product's kernel among those that can make it: that of the cost model, unless one is forced."""

from __future__ import annotations

from collections.abc import Iterator
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
