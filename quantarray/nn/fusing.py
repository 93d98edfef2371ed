"""Layers in a row that run as one: a convolution, a pool and thresholds.

The largest integer of a window passes as many thresholds as the integer that passes the most of them, or where a larger
integer passes fewer, the fewest. So the convolution gives codes, these are pooled, and no integer is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.thresholds import Thresholds
from .convolutions import Convolution
from .mapping import Threshold
from .pooling import MaxPool1d, MaxPool2d, MaxPool3d

Layer = Callable[[Any], Any]
_POOLS = {1: MaxPool1d, 2: MaxPool2d, 3: MaxPool3d}


def fused(layers: Sequence[Layer]) -> tuple[tuple[int, Layer], ...]:
    """Return the layers that run for `layers`, each with the number of the layer that it replaces."""
    run: list[tuple[int, Layer]] = []
    i = 0
    while i < len(layers):
        parts = _pooled_codes(layers[i : i + 3])
        if parts is None:
            run.append((i, layers[i]))
            i += 1
        else:
            conv, pool, count = parts
            run += [(i, conv), (i + 1, pool)]
            i += count
    return tuple(run)


def _pooled_codes(layers: Sequence[Layer]) -> tuple[Layer, Layer, int] | None:
    """Return (convolution to codes, pool of codes, how many layers they replace); None for other layers."""
    if len(layers) < 2 or not isinstance(layers[0], Convolution) or type(layers[1]) is not _POOLS[layers[0].axes]:
        return None
    conv: Any = layers[0]
    pool: Any = layers[1]
    law = _law_after(layers[1:], conv.axes + 2)
    if law is None or conv.requantize is not None or pool.data_format != conv.data_format or pool.return_indices:
        return None
    outputs = conv.weight.shape[0]
    if law.channels not in (None, outputs) or np.shape(pool.falling) not in ((), (outputs,)):
        return None  # what the layers say to that is said when they are called
    turned = np.broadcast_to(pool.falling, outputs) ^ ~np.broadcast_to(law.greater, outputs)
    falling = turned if turned.any() else False
    count = 2 if pool.requantize is not None else 3
    try:
        codes: Layer = replace(conv, requantize=law)
    except ValueError:  # thresholds of two readings
        return None
    return codes, replace(pool, falling=falling, requantize=None), count


def _law_after(layers: Sequence[Any], ndim: int) -> Thresholds | None:
    """Return the thresholds of a pool, or of the layer after it on its channels; they must count by rank."""
    pool, axis = layers[0], -1
    law: Thresholds | None = pool.requantize
    at = ndim - 1 if pool.data_format.endswith("C") else 1
    if law is not None:
        axis = at
    elif len(layers) > 1 and type(layers[1]) is Threshold:
        law, axis = layers[1].thresholds, layers[1].axis
    elif len(layers) > 1 and type(layers[1]) is Thresholds:
        law = layers[1]
    by_rank = law is not None and axis % ndim == at and (law._codes == law._ranked_codes()).all()
    return law if by_rank else None
