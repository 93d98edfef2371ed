"""Blocks of bounded size, for what has to look at values or keeps counts of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ..core.format import WORD_BITS
from .array import QuantArray

SIZE = 1 << 18  # elements: a block's values, codes and what is computed from them stay in the cache


def blocks(shape: tuple[int, ...], size: int = SIZE, arrays: Sequence[QuantArray] = ()) -> Iterator[tuple[slice, ...]]:
    """Yield keys that cut a shape into blocks of at most `size` elements, but of one at least, in C order.

    For arrays of this shape, slices of their packed axes begin on words and on groups, so that they are views and no
    group is cut.

    >>> list(blocks((3, 4), 8))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 3, None), slice(0, 4, None))]
    """
    units = [
        math.lcm(1, *((math.lcm(WORD_BITS, q.group or 1)) for q in arrays if q.axis == d)) for d in range(len(shape))
    ]
    # Whole units of packed axes first, whichever axes these are: else a block could have 64 times its size
    steps, room = [], max(1, size // math.prod(max(1, min(n, unit)) for n, unit in zip(shape, units, strict=True)))
    for n, unit in zip(reversed(shape), reversed(units), strict=True):
        count = max(1, min(-(-n // unit), room))
        steps.append(min(count * unit, max(n, 1)))
        room = max(1, room // count)
    ranges = (
        [slice(i, min(i + step, n)) for i in range(0, n, step)] for n, step in zip(shape, reversed(steps), strict=True)
    )
    return itertools.product(*ranges)
