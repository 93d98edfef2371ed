"""Straight-through gradients: values of one function, gradients of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..arrays import checks
from .holder import ACTIVE

_SWISH = 5.0  # beta of SwishSign
_POWER, _NEAR, _FAR = 3.0, 0.1, 1.5  # ReSTE: root, where it is replaced by a line, where gradients end


class _Straight(torch.autograd.Function):
    generate_vmap_rule = True  # of `torch.func`: inputs may be transformed where weights are quantised

    @staticmethod
    def forward(values: torch.Tensor, surrogate: torch.Tensor) -> torch.Tensor:
        """Return the values."""
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        """Give the gradient to the surrogate."""
        return None, gradients[0]


def straight(values: torch.Tensor, surrogate: torch.Tensor) -> torch.Tensor:
    """Return `values` with the gradient of `surrogate`, and with its gradients of gradients."""
    result: torch.Tensor = _Straight.apply(values, surrogate)
    if not torch.compiler.is_compiling() and ACTIVE.holders:
        ACTIVE.holders[-1].follow(values, result)
    return result


def clip(x: torch.Tensor) -> torch.Tensor:
    """clip(x, -1, 1): the gradient passes where |x| <= 1."""
    return x.clamp(-1, 1)


def identity(x: torch.Tensor) -> torch.Tensor:
    """x: the gradient passes everywhere."""
    return x


def approx_sign(x: torch.Tensor) -> torch.Tensor:
    """2 * x - x * |x| in [-1, 1]: the gradient is 2 - 2 * |x| there (Bi-Real Net, arXiv 1808.00278)."""
    inside = x.clamp(-1, 1)
    return 2 * inside - inside * inside.abs()


def swish_sign(x: torch.Tensor) -> torch.Tensor:
    """2 * s(5x) * (1 + 5x * (1 - s(5x))) - 1, s the logistic function (BNN+, arXiv 1812.11800)."""
    gate = torch.sigmoid(_SWISH * x)
    return 2 * gate * (1 + _SWISH * x * (1 - gate)) - 1


def reste(x: torch.Tensor) -> torch.Tensor:
    """sign(x) * |x|**(1/3), a line where |x| < 0.1 and constant beyond 1.5 (ReSTE, arXiv 2308.06689)."""
    size = x.abs().clamp(_NEAR, _FAR) ** (1 / _POWER)
    return torch.where(x.abs() < _NEAR, x * _NEAR ** (1 / _POWER - 1), size * torch.sign(x))


ESTIMATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clip": clip,
    "identity": identity,
    "approx_sign": approx_sign,
    "swish_sign": swish_sign,
    "reste": reste,
}


def estimator_of(op: str, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return an estimator by its name."""
    return ESTIMATORS[checks.choice(op, "estimator", name, tuple(ESTIMATORS))]
