"""Fit the constants of a quantiser to an array, in parts where constants vary, so that x may be larger than memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...arrays import checks
from ...backends.registry import device_of, to_host
from ...core.dtypes import Array, Constants
from ...core.format import locked
from ...quantizers.base import Quantizer, ones_like_reduced
from ...quantizers.extremes import extremes
from . import encoding, parts

Key = tuple[slice, ...]


def fit(
    op: str, a: Array, quantizer: Quantizer, at: int, varying: tuple[int, ...], group: int | None, size: int
) -> Constants:
    """Fit constants of x for each index of the axes `varying`; with `group`, for each group of packed axis `at` too.

    On a GPU all of x is in work at once, and is looked at for NaN and infinities only where the scheme refuses what it
    has found: each look waits for a pass over x.

    About `size` elements are in work at a time where constants vary along the first axis. Parts are written into the
    result: joined at the end, they would take its size twice.
    """
    if device_of(a) != "cpu":
        size = max(a.size, 1)
    entries = tuple(n if d in varying else 1 for d, n in enumerate(a.shape))
    if group is not None and a.shape[at]:
        entries = (*entries[:at], -(-a.shape[at] // group), *entries[at + 1 :])
    joined: dict[str, Array] = {}
    for key, fitted in _parts(op, a, quantizer, at, varying, group, size):
        if all(cut.stop - cut.start == n for cut, n in zip(key, entries, strict=True)):
            return fitted
        for name, c, lead in fitted.items():
            if name not in joined:
                joined[name] = np.empty((*c.shape[:lead], *entries), c.dtype)
            kind = np.result_type(joined[name], c)
            joined[name] = joined[name].astype(kind, copy=False)  # a scheme of the caller's may mix types
            joined[name][(slice(None),) * lead + key] = c if c.dtype == np.uint16 else c + c.dtype.type(0)  # not -0
    stored = {name: locked(a) for name, a in joined.items()}
    return Constants(stored.get("scale"), stored.get("offset"), stored.get("table"))


def _parts(
    op: str, a: Array, quantizer: Quantizer, at: int, varying: tuple[int, ...], group: int | None, size: int
) -> Iterator[tuple[Key, Constants]]:
    """(index among the constants' entries, constants) of each part of x."""
    if quantizer.fixed:
        yield from _part(op, a, quantizer, at, varying, group)
        return
    d, cuts = parts.slices(a.shape, at, group, size)
    if not (d in varying or (d == at and group)):
        cuts = [slice(0, a.shape[d])]  # its constants come from all parts at once
    for cut in cuts:
        part = a[parts.along(d, cut)]
        if device_of(a) == "cpu":
            check_values(op, part, quantizer, d, cut.start)
        first = cut.start // (group if group and d == at else 1)
        try:
            for key, fitted in _part(op, part, quantizer, at, varying, group):
                yield _moved(key, d, first), fitted
        except ValueError:
            if device_of(a) != "cpu":
                check_values(op, part, quantizer, d, cut.start)
            raise


def _part(
    op: str, a: Array, quantizer: Quantizer, at: int, varying: tuple[int, ...], group: int | None
) -> Iterator[tuple[Key, Constants]]:
    if group is None or not a.shape[at]:
        yield from _fits(op, a, quantizer, tuple(d for d in range(a.ndim) if d not in varying))
        return
    reduce = (*(d if d < at else d + 1 for d in range(a.ndim) if d not in varying and d != at), at + 1)
    for elements, groups, length in parts.in_groups(a.shape[at], at, group):
        for key, fitted in _fits(op, parts.split(a[elements], at, length), quantizer, reduce):
            without = (*key[: at + 1], *key[at + 2 :])
            yield _moved(without, at, groups.start), fitted.map(lambda c, lead: c.squeeze(lead + at + 1))


def _fits(op: str, a: Array, quantizer: Quantizer, reduce: tuple[int, ...]) -> Iterator[tuple[Key, Constants]]:
    entries = ones_like_reduced(a, reduce)
    for key in parts.of_constants(quantizer.dtype, entries):
        yield key, encoding.fit(op, quantizer, a[parts.elements_of(key, entries)], reduce)


def _moved(key: Key, d: int, first: int) -> Key:
    """Return the key with axis d counted from `first` on."""
    return (*key[:d], slice(key[d].start + first, key[d].stop + first), *key[d + 1 :])


def check_values(op: str, a: Array, fitted: Quantizer | None, d: int, start: int) -> None:
    """Raise ValueError for a NaN, and for infinities that a quantiser is fitted to.

    `a` begins at index `start` of x's axis d.
    """
    if a.dtype.kind != "f" or not a.size:
        return
    low, high = extremes(a, tuple(range(a.ndim))).ravel().tolist()
    if math.isfinite(low) and math.isfinite(high) if fitted else low <= high:
        return
    wrong = ~np.isfinite(a) if fitted else np.isnan(a)
    if wrong.any():
        at = checks.first(wrong)
        where = (*at[:d], at[d] + start, *at[d + 1 :])
        if np.isnan(a[at]):
            raise ValueError(f"{op}: x must hold no NaN, got one at {where}")
        raise ValueError(f"{op}: x, to which {fitted} is fitted, must be finite, got {to_host(a[at])} at {where}")
