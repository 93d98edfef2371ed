"""Values that a dtype has exactly, to codes: block by block, and nothing is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import QuantArray
from ..dtypes import Array, DType
from ..format import WORD_BITS, empty_words, word_count
from .blocks import SIZE, blocks
from .conversion import pack_codes


def encoded(op: str, a: Array, dtype: DType, at: int) -> QuantArray:
    """The array packed along axis `at`; ValueError with the first value that the dtype does not have."""
    last = np.moveaxis(a, at, -1)
    length, coded = a.shape[at], _coder(dtype, a.dtype)
    words = empty_words((dtype.bits, *last.shape[:-1], word_count(length)))
    for *outer, run in blocks((*last.shape[:-1], words.shape[-1]), size=SIZE // WORD_BITS):
        codes, right = coded(last[(*outer, slice(WORD_BITS * run.start, WORD_BITS * run.stop))])
        if not right.all():
            raise _foreign(op, a, dtype, coded)
        words[(slice(None), *outer, run)] = pack_codes(codes, -1, dtype.bits)
    return QuantArray(words, dtype, a.shape, at)


def _coder(dtype: DType, given: np.dtype[Any]) -> Callable[[Array], tuple[Array, Array]]:
    """The function from values to their codes, uint8, and whether the dtype has them."""
    levels = np.array(dtype.levels)
    order = np.argsort(levels).astype(np.uint8)
    ascending = levels[order]

    def searched(block: Array) -> tuple[Array, Array]:
        codes = order[np.minimum(np.searchsorted(ascending, block), len(levels) - 1)]
        return codes, levels[codes] == block

    if given.itemsize > 1:
        return searched
    codes, right = (a.tobytes() for a in searched(np.arange(256).astype(np.uint8).view(given)))

    def looked_up(block: Array) -> tuple[Array, Array]:
        values = block.tobytes()  # a table of all bytes: ten times as fast as NumPy's indexing

        def through(table: bytes, dtype: Any) -> Array:
            return np.frombuffer(values.translate(table), dtype).reshape(block.shape)

        return through(codes, np.uint8), through(right, np.bool_)

    return looked_up


def _foreign(op: str, a: Array, dtype: DType, coded: Callable[[Array], tuple[Array, Array]]) -> ValueError:
    """The error for the first value that the dtype does not have."""
    for key in blocks(a.shape):
        wrong = np.argwhere(~coded(a[key])[1])
        if len(wrong):
            where = tuple(s.start + int(i) for s, i in zip(key, wrong[0], strict=True))
            levels = dtype.levels or ()
            few = f"({', '.join(map(str, levels[:8]))}{', ..' if len(levels) > 8 else ''})"
            return ValueError(f"{op}: x must hold only the values of {dtype} {few}, got {a[where]} at {where}")
    raise AssertionError("unreachable: some value is wrong")
