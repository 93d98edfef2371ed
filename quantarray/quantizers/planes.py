"""sum_k alpha[k] * s_k, s_k = +-1: laws of signed planes."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array, Constants
from .base import float32


def plus_minus(op: str, alpha: Array, shape: tuple[int, ...], center: float | Array = 0.0) -> Constants:
    """center + sum_k alpha[k] * s_k as a law of bits b_k = (s_k + 1) / 2: scale 2 alpha, offset center - sum alpha.

    alpha: float64 [channels bits], one row for each entry of the constants' `shape`; center: one number, or float64
    [channels]. alpha is rounded to float32 before it is doubled, so that offset and scale / 2 are about the same
    numbers, the smallest of float32 included.

    >>> c = plus_minus("example", np.array([[1.0, 0.5]]), (1,))
    >>> c.scale.tolist(), c.offset.tolist()
    ([[2.0], [1.0]], [-1.5])
    """
    alpha = float32(op, "coefficient", alpha).astype(np.float64)
    float32(op, "level", np.abs(alpha).sum(axis=1) + np.abs(center))
    scale, offset = float32(op, "scale", 2 * alpha.T), float32(op, "offset", center - alpha.sum(axis=1))
    return Constants(scale.reshape(alpha.shape[1], *shape), offset.reshape(shape))
