"""Errors of a layer's call, which name the layer and say what it takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
OF_INPUTS = (TypeError, ValueError, OverflowError)


def named(call: F) -> F:
    """Wrap `__call__` so that its errors begin with the layer's `name` and `takes`, before what they say of the input.

    >>> import quantarray as qa
    >>> layer = qa.nn.Dense(qa.encode([[1, 1, -1, -1]], values=(-1, 1)))
    >>> layer(qa.encode([[1, 1, -1]], values=(-1, 1)))
    Traceback (most recent call last):
    ValueError: dense 4 -> 1 takes [n 4]: linear: x (1, 3) and w (1, 4) must have the same last length
    """

    @wraps(call)
    def checked(self: Any, x: Any, *more: Any) -> Any:
        try:
            return call(self, x, *more)
        except OF_INPUTS as error:
            say_first(error, f"{self.name} takes {self.takes}: ")
            raise

    return cast(F, checked)


def say_first(error: Exception, text: str) -> None:
    """Put a text before an error's message; errors of a device or of an axis keep theirs."""
    if type(error) in OF_INPUTS:
        error.args = (f"{text}{error}",)
