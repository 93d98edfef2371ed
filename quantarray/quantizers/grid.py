"""Evenly spaced codes as one formula, which NumPy and the CPU's kernel compute alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.dtypes import Array, Constants


class Grid(NamedTuple):
    """code = clip(round((x - start) * factor / step), low, high) - low, in float64.

    `round` is to the nearest integer, ties to the even one; with `down` to the next one below. `start` and `step`, not
    0, broadcast against x as the constants do that they are made of. All operations are IEEE 754's, in this order, so
    every backend that has them gives the same codes.

    >>> Grid(np.zeros(1), np.ones(1), low=-1, high=2).codes(np.float32([-9, -0.5, 0.5, 1.5, 9]))
    array([0, 1, 1, 3, 3], dtype=uint8)
    """

    start: Array
    step: Array
    factor: float = 1.0
    low: int = 0
    high: int = 1
    down: bool = False

    def codes(self, x: Array) -> Array:
        """uint8 codes of x, in its shape."""
        with np.errstate(over="ignore"):
            steps = (x.astype(np.float64) - self.start) * self.factor / self.step
        steps = np.floor(steps) if self.down else np.rint(steps)
        return np.asarray((np.clip(steps, self.low, self.high) - self.low).astype(np.uint8))


def sign_grid(constants: Constants) -> Grid:
    """1 where x >= 0, else 0, whatever the scale.

    >>> sign_grid(Constants()).codes(np.float32([-np.inf, -1e-45, -0.0, 3]))
    array([0, 0, 1, 1], dtype=uint8)
    """
    shape = () if constants.scale is None else constants.scale.shape
    return Grid(np.zeros(shape), np.ones(shape), low=-1, high=0, down=True)
