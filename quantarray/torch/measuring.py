"""Measure the sensitivity of each saved tensor by extra passes: GACT (Liu et al., arXiv 2206.11357)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from .rounding import Rounding


def measured(
    context: AbstractContextManager[Any],
    loss: Callable[[], torch.Tensor],
    model: torch.nn.Module | None,
    rounding: Rounding,
) -> dict[str, float]:
    """Set each tensor's factor so that its C says what its rounding alone moved gradients by; return C by layer."""
    allocation = rounding.allocation
    if allocation is None or model is None:
        raise ValueError("compressed_activations: measure needs model= and allocate=True")
    parameters = [p for p in model.parameters() if p.requires_grad]
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    random = torch.get_rng_state()

    def gradients() -> list[torch.Tensor]:
        torch.set_rng_state(random)
        try:
            with context:
                value = loss()
            of_each = torch.autograd.grad(value, parameters, allow_unused=True)
        finally:
            with torch.no_grad():
                for name, buffer in model.named_buffers():
                    buffer.copy_(state[name])
        return [g for g in of_each if g is not None]

    with rounding.measuring(None):
        exact = gradients()
    allocation.start()  # which takes the norms of this pass
    layers: dict[str, float] = {}
    for key, place in allocation.places.items():
        with rounding.measuring(key):
            moved = gradients()
        distance = sum(float((a - b).double().square().sum()) for a, b in zip(moved, exact, strict=True))
        c = distance * (2**allocation.bits - 1) ** 2
        place.factor = 1.0
        usual = float(place.sensitivities(allocation.usual).sum())
        place.factor = c / usual if usual > 0 else 1.0
        layers[key[0]] = layers.get(key[0], 0.0) + c
    return layers
