"""Tables of a function's value for each code, which jobs of counting look up, whole or of a block at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...core.code_values import constant_dims, level_values
from ...core.dtypes import Array, Constants, DType
from ...core.format import WORD_BITS

Key = tuple[slice, ...]
_MOST = 1 << 19  # numbers of a table that is made at once: 4 MiB


def levels(q: QuantArray) -> Array:
    """Return values of all 2**bits codes, int64 or float64 [2**bits, *q's axes]; unused codes go on evenly."""
    return _levels(q.dtype, q.constants, q.ndim)


def _levels(dtype: DType, constants: Constants, ndim: int) -> Array:
    if dtype.step is not None and constants.scale is None:
        assert dtype.levels is not None
        table = dtype.levels[0] + dtype.step * np.arange(2**dtype.bits)
    else:
        values = level_values(dtype, constants)
        table = np.concatenate([values, np.repeat(values[-1:], 2**dtype.bits - len(values), axis=0)])
        table = table.astype(np.int64 if values.dtype == np.int64 else np.float64)
    return table.reshape(len(table), *(table.shape[1:] or (1,) * ndim))


@dataclass(frozen=True)
class LevelTable:
    """f(levels(q)), [2**bits, *axes in some order], of which blocks are computed and the whole never is.

    With a scale for each of 100,000 rows of 64 elements of 8 bits, the whole takes 205 MB, the words 6.4 MB.
    """

    dtype_of_codes: DType
    constants: Constants
    order: tuple[int, ...]  # axes of q, of which those that are left out have one constant
    shape: tuple[int, ...]
    f: Callable[[Array], Array] = lambda table: table

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        first: Array = self[(slice(None), *(slice(0, 1) for _ in self.order))]
        kind: np.dtype[Any] = first.dtype
        return kind

    def map(self, f: Callable[[Array], Array]) -> LevelTable:
        """f of this table, where f takes the first axis as a whole and the others element by element."""
        return replace(self, f=lambda table: f(self.f(table)))

    def ordered(self, order: Sequence[int]) -> LevelTable:
        """Keep some of q's axes, in this order after the first."""
        return replace(self, order=tuple(order), shape=(self.shape[0], *(self.shape[1 + d] for d in order)))

    def __getitem__(self, key: tuple[Any, ...]) -> Array:
        """Return a block: all codes of slices of the axes, or of indices of one of them."""
        at = dict(zip(self.order, key[1:], strict=True))

        def change(a: Array, lead: int) -> Array:
            cuts = (slice(None) if n == 1 else at.get(d, slice(None)) for d, n in enumerate(a.shape[lead:]))
            return a[(*(slice(None),) * lead, *cuts)]

        _, first, lead = self.constants.items()[0]
        ndim = first.ndim - lead
        table = self.f(_levels(self.dtype_of_codes, self.constants.map(change), ndim))
        rest = [d for d in range(ndim) if d not in self.order]
        turned = table.transpose(0, *(1 + d for d in (*self.order, *rest)))
        return turned.reshape(turned.shape[: 1 + len(self.order)])

    def blocks(self) -> Iterator[Array]:
        """Yield all of the table in blocks of some of the elements of the longest axis."""
        lengths = self.shape[1:]
        longest = lengths.index(max(lengths))
        step = max(1, _MOST * lengths[longest] // max(1, math.prod(self.shape)))
        for start in range(0, lengths[longest], step):
            cut = slice(start, start + step)
            yield self[(slice(None), *(cut if d == longest else slice(None) for d in range(len(lengths))))]


def level_table(q: QuantArray) -> Array | LevelTable:
    """`levels`, whole where that is small."""
    if is_small(q):
        return levels(q)
    return LevelTable(q.dtype, q.constants, tuple(range(q.ndim)), _shape(q))


def is_small(q: QuantArray) -> bool:
    """True where `levels` has few numbers; told first by what takes no time."""
    return not q.constants.shapes or q.size << q.bits <= _MOST or math.prod(_shape(q)) <= _MOST


def _shape(q: QuantArray) -> tuple[int, ...]:
    """Return the shape of `levels`, before they are computed."""
    return (2**q.bits, *(constant_dims(q.constants) or (1,) * q.ndim))


def parts(q: QuantArray, uncut: int | None = None) -> list[Key]:
    """Yield keys that cut q along one axis, but not `uncut`, so that each part has few `levels`; [()] where none has to
    be.

    Slices of the packed axis begin on words and on groups.
    """
    if is_small(q):
        return [()]
    shape = _shape(q)
    unit = [math.lcm(WORD_BITS, q.group or 1) if d == q.axis else 1 for d in range(q.ndim)]
    least = {
        d: math.prod(shape) * min(unit[d], n) // n for d, n in enumerate(q.shape) if d != uncut and shape[1 + d] > 1
    }
    if not least:
        return [()]
    d = min(least, key=lambda d: (least[d], d == q.axis))
    step = unit[d] * max(1, _MOST // max(1, least[d]))
    return [(slice(None),) * d + (slice(i, min(i + step, q.shape[d])),) for i in range(0, q.shape[d], step)]


def has_many_levels(q: QuantArray, uncut: int | None = None) -> bool:
    """True where a part that `parts` cuts off still has more levels than it should."""
    keys = parts(q, uncut)
    return not is_small(q) and not is_small(q[keys[0]])


def mapped(f: Callable[[Array], Array], table: Array | LevelTable) -> Any:
    """f of a table, as soon as it is looked at."""
    return table.map(f) if isinstance(table, LevelTable) else f(table)
