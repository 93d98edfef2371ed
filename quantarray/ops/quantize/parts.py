"""Cut an array into parts that are encoded, or have constants fitted to them, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...arrays.blocks import blocks
from ...core.dtypes import Array, Constants, DType
from ...core.format import WORD_BITS

# Levels of constants in work at a time, those of all codes counted: schemes compute several float64 arrays of them.
LEVELS = 1 << 19


def slices(shape: tuple[int, ...], at: int, group: int | None, size: int) -> tuple[int, list[slice]]:
    """Return an axis, and slices of it that hold about `size` elements each; one slice where x has no more.

    Axes before it have a length of 1, so a part is one run of the flattened array. Slices of the packed axis begin on
    words and on groups.
    """
    if math.prod(shape) <= size:
        return 0, [slice(0, shape[0])]
    d = next(d for d, n in enumerate(shape) if n > 1)
    unit = math.lcm(WORD_BITS, group or 1) if d == at else 1
    step = max(1, size // max(1, math.prod(shape[d + 1 :])))
    step = -(-step // unit) * unit
    return d, [slice(i, min(i + step, shape[d])) for i in range(0, shape[d], step)]


def along(d: int, part: slice) -> tuple[slice, ...]:
    """Index that takes a slice of axis d."""
    return (*(slice(None),) * d, part)


def in_groups(length: int, at: int, group: int) -> Iterator[tuple[tuple[slice, ...], slice, int]]:
    """(elements, groups, elements a group) of the whole groups along the packed axis, then of a shorter last one."""
    whole = length // group * group
    if whole:
        yield along(at, slice(0, whole)), slice(0, whole // group), group
    if length > whole:
        yield along(at, slice(whole, length)), slice(whole // group, -(-length // group)), length - whole


def split(a: Array, at: int, length: int) -> Array:
    """Split axis `at` into two: [groups, elements a group]."""
    return a.reshape(*a.shape[:at], a.shape[at] // length, length, *a.shape[at + 1 :])


def groups_of(a: Array, law: Constants, at: int) -> Iterator[tuple[Array, Constants]]:
    """Yield parts of an array with groups as an axis, and their constants; the array itself where there are none."""
    if law.group is None:
        yield a, law
        return
    for elements, groups, length in in_groups(a.shape[at], at, law.group):

        def part(c: Array, lead: int, groups: slice = groups) -> Array:
            cut = c[along(lead + at, groups)] if c.shape[lead + at] > 1 else c
            return np.expand_dims(cut, lead + at + 1)

        yield split(a[elements], at, length), law.map(part)


def of_constants(dtype: DType, entries: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield keys that cut constants of shape `entries` into parts of at most LEVELS levels.

    A law without tables has one key. A basis counts as a table: least squares and encoding compute all its levels.
    """
    if dtype.kind in ("table", "basis") and math.prod(entries) * dtype.n_levels > LEVELS:
        yield from blocks(entries, max(1, LEVELS // dtype.n_levels))
    else:
        yield tuple(slice(0, n) for n in entries)


def elements_of(key: tuple[slice, ...], entries: tuple[int, ...]) -> tuple[slice, ...]:
    """Index of the elements whose constants have this key: all elements along axes that share constants."""
    return tuple(slice(None) if n == 1 else cut for cut, n in zip(key, entries, strict=True))
