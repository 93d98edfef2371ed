"""The base class of all cases, and the values of their elements."""

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case: one row of a table.

    `inputs()` is a dict of arrays, the same in every process; `expected()` what each contender's output must be
    once it is read as NumPy; `products` the products of two bits that the output is a sum of; `nbytes` the bytes that
    must be read or written at least. `threads` overrides the command's.
    """

    name: str
    threads: int | None = None

    def random(self):
        return np.random.default_rng(zlib.crc32(self.name.encode()))


def draw(rng, bits, shape):
    """Draw int8 elements of `bits` bits: -1 or 1 for one bit, two's complement integers for more."""
    if bits == 1:
        return rng.choice(np.array([-1, 1], np.int8), shape)
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape, np.int8)


def levels(bits):
    """Return all values that `draw` can return.

    >>> list(levels(1)), list(levels(2))
    ([-1, 1], [-2, -1, 0, 1])
    """
    return range(-1, 2, 2) if bits == 1 else range(-(1 << bits - 1), 1 << bits - 1)
