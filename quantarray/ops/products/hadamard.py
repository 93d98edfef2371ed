"""Rotations of rows by Hadamard matrices, which some models with weights of few bits have before their products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import checks
from ...backends.registry import device_of, empty, has_kernel, kernel, namespace
from ...core.dtypes import Array
from ...core.format import locked
from ...core.hints import Floats, Vector
from .float_rows import rows_of_floats

_LEAST, _MOST = 32, 4096


class Hadamard:
    """A rotation of rows of floats: signs change, then each block is multiplied by a Hadamard matrix.

        y[.., b * block + i] = sum over j < block of x[.., b * block + j] * signs[b * block + j] * H[j, i] / sqrt(block)

    H is in Sylvester's order, as `scipy.linalg.hadamard` has it: H[j, i] is -1 where j & i has an odd number of bits.
    block: a power of 2 from 32 to 4096. signs: 1 or -1 for each element of a row, or for each of a block, if all blocks
    have the same; without them no sign changes. Rotated rows times rotated weights are rows times weights, but what was
    one large element is spread over its block, so that fewer bits do (Ashkboos et al., 2024, arXiv:2404.00456).

    Called with float32, float16 or bfloat16 [.., k], k a multiple of block, it returns float32: x times
    sign / sqrt(block), rounded once, then sums and differences of elements 1, 2, 4, .. apart: the same on all devices.

    Raises TypeError or ValueError for other blocks, signs and rows.

    >>> import numpy as np, quantarray as qa
    >>> rotate = qa.Hadamard(64)
    >>> y = rotate(np.eye(1, 64, 3, dtype=np.float32))
    >>> y[0, :5], rotate(y)[0, :5]
    (array([ 0.125, -0.125, -0.125,  0.125,  0.125], dtype=float32), array([0., 0., 0., 1., 0.], dtype=float32))
    """

    def __init__(self, block: int, signs: Vector | None = None) -> None:
        op = "Hadamard"
        self.block = checks.integer(op, "block", block, _LEAST, _MOST)
        if self.block & (self.block - 1):
            raise ValueError(f"{op}: block must be a power of 2, got {block}")
        self.signs = None if signs is None else _checked(op, signs, self.block)
        factors = (np.ones(self.block) if self.signs is None else self.signs) / math.sqrt(self.block)
        self._factors = {"cpu": factors.astype(np.float32)}

    def __call__(self, x: Floats) -> Array:
        """float32 [.., k]: rotated rows."""
        op = "Hadamard"
        a = rows_of_floats(op, x)
        factors = self._on(device_of(a))
        if not a.ndim or a.shape[-1] % self.block or len(factors) not in (self.block, a.shape[-1]):
            least = f"{len(factors)} elements, as signs" if len(factors) > self.block else f"multiples of {self.block}"
            raise ValueError(f"{op}: rows of x must have {least}, got {a.shape}")
        return _rotated(a, factors, self.block)

    def _on(self, device: str) -> Array:
        """Return the factors of elements on a device."""
        if device not in self._factors:
            self._factors[device] = namespace(device).asarray(self._factors["cpu"])
        return self._factors[device]

    def __repr__(self) -> str:
        return f"Hadamard({self.block})" if self.signs is None else f"Hadamard({self.block}, signs=[{len(self.signs)}])"


def _checked(op: str, signs: Any, block: int) -> Array:
    """Return signs as int8."""
    a = checks.numbers(op, "signs", signs)
    if a.ndim != 1 or not a.size or a.size % block:
        raise ValueError(f"{op}: signs must be a vector of a multiple of {block} elements, got {a.shape}")
    if not (np.abs(a) == 1).all():
        raise ValueError(f"{op}: signs must be 1 and -1, got {a[np.abs(a) != 1][0]}")
    return locked(a.astype(np.int8))


def _rotated(x: Array, factors: Array, block: int) -> Array:
    device = device_of(x)
    if has_kernel(device, "hadamard"):
        y = empty(device, x.shape, np.float32)
        kernel(device, "hadamard")(x, factors, block, y)
        return y
    xp, apart = namespace(device), 1
    y = (x.reshape(-1, len(factors)) * factors).reshape(-1, block)
    while apart < block:
        pairs = y.reshape(-1, 2, apart)
        first, second = pairs[:, 0], pairs[:, 1]
        y, apart = xp.stack((first + second, first - second), axis=1), 2 * apart
    result: Array = y.reshape(x.shape)
    return result
