"""Parameters of a model by name: those of a state dict, or random ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...core.dtypes import Array

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
_SHOWN = 8  # names in an error


_recorded: ContextVar[dict[str, Array] | None] = ContextVar("recorded", default=None)


def recorded(build: Callable[[], Any]) -> dict[str, Array]:
    """Return the parameters of the model that `build` builds."""
    values: dict[str, Array] = {}
    token = _recorded.set(values)
    try:
        build()
    finally:
        _recorded.reset(token)
    return values


class Parameters:
    """A source of the parameters of one model: read from `state` if there is one, else drawn from a generator.

    state: arrays by name, or tensors of PyTorch on the CPU, such as a `state_dict()`.
    """

    def __init__(self, model: str, state: Mapping[str, Any] | None, seed: int) -> None:
        if state is not None and not isinstance(state, Mapping):
            raise TypeError(
                f"{model}: state must be a dict of arrays by name, such as a state_dict(), got {type(state).__name__}; "
                f"other arguments are given by name, such as classes=10"
            )
        self.model, self.state, self.rng = model, state, np.random.default_rng(seed)
        shared = _recorded.get()
        self.values: dict[str, Array] = {} if shared is None else shared
        self.missing: list[str] = []
        self.other_shapes: list[str] = []

    def __call__(self, name: str, shape: tuple[int, ...], draw: Draw) -> Array:
        """Return the parameter as float32; note it if the state lacks it or has it in another shape."""
        if self.state is None or name not in self.state:
            if self.state is not None:
                self.missing.append(name)
            a = np.asarray(draw(self.rng, shape), np.float32)
        else:
            a = _array(self.state[name])
            if a.shape != shape:
                self.other_shapes.append(f"{name} must be {shape}, got {a.shape}")
                a = np.zeros(shape, np.float32)
            a = np.ascontiguousarray(a, np.float32)
            if not np.isfinite(a).all():
                raise ValueError(f"{self.model}: {name} has a NaN or an infinity")
        self.values[name] = a
        return a

    def check(self) -> None:
        """Raise ValueError with the names that a state lacks, has too many or in other shapes."""
        if self.state is None:
            return
        ignored = ("num_batches_tracked",)
        more = [n for n in self.state if n not in self.values and not n.endswith(ignored)]
        lines = [
            f"{what}: {', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' * (len(names) > _SHOWN)}"
            for what, names in (("it lacks", self.missing), ("unknown", more), ("other shapes", self.other_shapes))
            if names
        ]
        if lines:
            raise ValueError(
                f"{self.model}: state does not fit; {'; '.join(lines)}. "
                f"parameters({self.model}) lists every name with an array of its shape"
            )


def _array(value: Any) -> Array:
    """Convert a parameter to an array; one of PyTorch that needs a gradient too."""
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def normal(scale: float) -> Draw:
    """Return a function that draws normal numbers of a standard deviation."""
    return lambda rng, shape: scale * rng.standard_normal(shape)


def gammas(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw factors of a batch norm: from 0.5 to 1.5, one in eight of them negative."""
    return rng.uniform(0.5, 1.5, shape) * np.where(rng.random(shape) < 1 / 8, -1, 1)


def variances(scale: float) -> Draw:
    """Return a function that draws variances of a batch norm about the square of a standard deviation."""
    return lambda rng, shape: scale**2 * rng.uniform(0.5, 1.5, shape)
