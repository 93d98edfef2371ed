"""Constants of groups as small integers times a float16 of each super-block, as GGUF's K types have them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .format import is_locked, locked

Array = np.ndarray[Any, Any]
NIBBLE, BYTE = 4, 8
MOST = 255 * 65504.0  # the largest magnitude of a value


class SuperBlocks:
    """A scale or an offset of groups: values[.., g] = float32(integers[.., g]) * float32(halves[.., g // r]).

    integers: int8 or uint8 [.., groups]; with bits=4 uint8 up to 15, two of which are stored in a byte. halves: finite
    float16 [.., groups / r], one for each super-block of r groups; a negative one is subtracted. A value has at most 19
    significant bits, so float32 holds it exactly, and none is -0. Read-only for good: arrays that can be written to are
    copied. Raises TypeError for other dtypes, ValueError for other shapes and numbers.

    It is passed as `scale` or `offset`, whose last axis is the packed one, to `from_codes` and `from_words`. On a GPU,
    products read the values, float32.

    >>> import numpy as np, quantarray as qa
    >>> scale = qa.SuperBlocks(np.int8([[1, -2, 3, 4]]), np.float16([[0.5, 0.25]]))
    >>> scale.values().tolist(), scale.nbytes
    ([[0.5, -1.0, 0.75, 1.0]], 8)
    >>> w = qa.from_codes(np.ones((1, 64), np.uint8), qa.uint4, scale=scale, group=16)
    >>> w[0, ::16].dequantize().tolist()
    [0.5, -1.0, 0.75, 1.0]
    """

    __slots__ = ("_halves", "_integers", "_shape", "bits")

    def __init__(self, integers: Array, halves: Array, bits: int = BYTE) -> None:
        integers, halves = np.asarray(integers), np.asarray(halves)
        if bits not in (NIBBLE, BYTE):
            raise ValueError(f"SuperBlocks: bits must be {NIBBLE} or {BYTE}, got {bits!r}")
        allowed = (np.uint8,) if bits == NIBBLE else (np.uint8, np.int8)
        if integers.dtype not in allowed or halves.dtype != np.float16:
            raise TypeError(
                f"SuperBlocks: integers of {bits} bits must be {' or '.join(t.__name__ for t in allowed)} and halves "
                f"float16, got {integers.dtype} and {halves.dtype}"
            )
        if bits == NIBBLE and integers.max(initial=0) >= 1 << NIBBLE:
            raise ValueError(f"SuperBlocks: integers of {NIBBLE} bits are at most 15, got {integers.max()}")
        self._take(pairs(integers) if bits == NIBBLE else integers, halves, integers.shape, bits)

    @classmethod
    def of_stored(cls, integers: Array, halves: Array, shape: tuple[int, ...], bits: int) -> SuperBlocks:
        """Take integers as they are stored, two in a byte where they have 4 bits. ValueError where they don't fit."""
        blocks = object.__new__(cls)
        blocks._take(integers, halves, shape, bits)
        return blocks

    def _take(self, integers: Array, halves: Array, shape: tuple[int, ...], bits: int) -> None:
        groups = shape[-1] if shape else 0
        fits = len(shape) >= 1 and halves.ndim == len(shape) and halves.shape[:-1] == shape[:-1]
        count = halves.shape[-1] if fits else 0
        if not fits or (groups % count if count else groups):
            raise ValueError(
                "SuperBlocks: integers [.., groups] need halves [.., a divisor of groups], with the same leading "
                f"lengths, got {shape} and {halves.shape}"
            )
        if integers.shape != (*shape[:-1], stored_length(groups, bits)):
            raise ValueError(f"SuperBlocks: {shape} integers of {bits} bits are not stored as {integers.shape}")
        if bits == NIBBLE and groups % 2 and (integers[..., -1:] >> NIBBLE).any():
            raise ValueError("SuperBlocks: the bits after the last integer of a row must be zero")
        if not np.isfinite(halves).all():
            raise ValueError("SuperBlocks: halves must be finite")
        negative_zero = halves.view(np.uint16) == 0x8000
        if negative_zero.any():
            halves = np.where(negative_zero, np.float16(0), halves)
        self._integers, self._halves = _read_only(integers), _read_only(halves)
        self._shape, self.bits = shape, bits

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the integers, and of the values."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Return the number of values."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the values, float32."""
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        """Count the bytes of integers and halves."""
        return self._integers.nbytes + self._halves.nbytes

    @property
    def integers(self) -> Array:
        """Return the integers, int8 or uint8 [.., groups]."""
        if self.bits == BYTE:
            return self._integers.view()
        both = np.stack([self._integers & 15, self._integers >> NIBBLE], axis=-1)
        return both.reshape(*self._integers.shape[:-1], 2 * self._integers.shape[-1])[..., : self._shape[-1]]

    @property
    def stored(self) -> Array:
        """Return the integers as they are stored: with 4 bits two in a byte, the first one in its low bits."""
        return self._integers.view()

    @property
    def halves(self) -> Array:
        """Return the float16 of each super-block."""
        return self._halves.view()

    def values(self) -> Array:
        """Return the values, float32 [.., groups], read-only and computed by each call."""
        values = self.integers.astype(np.float32)
        if values.size:
            blocks = values.reshape(*self._halves.shape, -1)
            blocks *= self._halves.astype(np.float32)[..., None]
            blocks += np.float32(0)  # -0 becomes 0
        return locked(values)

    def map(self, change: Any) -> SuperBlocks:
        """Apply a function of arrays, which picks and moves leading axes, to the integers and to the halves."""
        integers, halves = (a if is_locked(a) else locked(a) for a in map(change, (self._integers, self._halves)))
        shape = *integers.shape[:-1], self._shape[-1]
        return SuperBlocks.of_stored(integers, halves, shape, self.bits)

    def __eq__(self, other: object) -> bool:
        """True for the same integers of as many bits, and the same halves."""
        return (
            isinstance(other, SuperBlocks)
            and (self.bits, self._shape, self._integers.dtype) == (other.bits, other._shape, other._integers.dtype)
            and np.array_equal(self._integers, other._integers)
            and np.array_equal(self._halves, other._halves)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        integers, halves = (np.ascontiguousarray(a) for a in (self._integers, self._halves))
        return _rebuilt, (integers, halves, self._shape, self.bits)

    def __repr__(self) -> str:
        """Name the shapes.

        >>> SuperBlocks(np.uint8([1, 2]), np.float16([0.5]), bits=4)
        SuperBlocks((2,) uint4 in blocks of 2)
        """
        kind = "uint4" if self.bits == NIBBLE else self._integers.dtype.name
        return f"SuperBlocks({self._shape} {kind} in blocks of {self._shape[-1] // max(1, self._halves.shape[-1])})"


def _rebuilt(integers: Array, halves: Array, shape: tuple[int, ...], bits: int) -> SuperBlocks:
    """Rebuild what was copied or unpickled, whose arrays come back writeable and are nobody else's."""
    return SuperBlocks.of_stored(locked(integers), locked(halves), shape, bits)


def pairs(integers: Array) -> Array:
    """Store integers up to 15 two in a byte along the last axis, the first in its low bits; an odd last one alone.

    >>> pairs(np.uint8([1, 2, 3])).tolist()
    [33, 3]
    """
    out = integers[..., ::2].copy()
    high = integers[..., 1::2]
    out[..., : high.shape[-1]] |= high << NIBBLE
    return out


def stored_length(groups: int, bits: int) -> int:
    """Count the bytes of so many integers."""
    return -(-groups * bits // BYTE)


def _read_only(a: Array) -> Array:
    return a if is_locked(a) else locked(a.copy())
