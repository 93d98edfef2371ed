"""Values that a dtype has exactly, to codes: block by block, and nothing is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.blocks import SIZE, blocks
from ...backends.registry import device_of, empty, moveaxis, namespace, to_host
from ...core.dtypes import Array, DType
from ...core.format import WORD_BITS, word_count
from ..words.conversion import pack_codes

_GPU_SIZE = 1 << 24  # elements of a block on a GPU


def encoded(op: str, a: Array, dtype: DType, at: int) -> QuantArray:
    """Pack an array along axis `at`; ValueError with the first value that the dtype does not have."""
    device = device_of(a)
    last = moveaxis(a, at, -1)
    length, coded = a.shape[at], _coder(dtype, a.dtype, device)
    words = empty(device, (dtype.bits, *last.shape[:-1], word_count(length)))
    size = SIZE if device == "cpu" else _GPU_SIZE
    for *outer, run in blocks((*last.shape[:-1], words.shape[-1]), size=size // WORD_BITS):
        codes, right = coded(last[(*outer, slice(WORD_BITS * run.start, WORD_BITS * run.stop))])
        if not right.all():
            raise _foreign(op, a, dtype, coded)
        words[(slice(None), *outer, run)] = pack_codes(codes, -1, dtype.bits)
    return QuantArray(words, dtype, a.shape, at)


def _coder(dtype: DType, numbers: np.dtype[Any], device: str) -> Callable[[Array], tuple[Array, Array]]:
    """Return the function from values to their codes, uint8, and whether the dtype has them."""
    xp, levels = namespace(device), np.array(dtype.levels)
    if device != "cpu":  # CuPy compares integers and floats as C++ does; all levels are float64 numbers
        levels = levels.astype(np.float64)
    order = np.argsort(levels).astype(np.uint8)
    ascending, of_rank, all_levels = (xp.asarray(a) for a in (levels[order], order, levels))

    def searched(block: Array) -> tuple[Array, Array]:
        wide = block if device == "cpu" else block.astype(np.float64)
        codes = of_rank[xp.minimum(xp.searchsorted(ascending, wide), len(levels) - 1)]
        return codes, all_levels[codes] == wide

    if numbers.itemsize > 1 or device != "cpu":
        return searched
    codes, right = (a.tobytes() for a in searched(np.arange(256).astype(np.uint8).view(numbers)))

    def looked_up(block: Array) -> tuple[Array, Array]:
        values = block.tobytes()  # a table of all bytes: ten times as fast as NumPy's indexing

        def through(table: bytes, dtype: Any) -> Array:
            return np.frombuffer(values.translate(table), dtype).reshape(block.shape)

        return through(codes, np.uint8), through(right, np.bool_)

    return looked_up


def _foreign(op: str, a: Array, dtype: DType, coded: Callable[[Array], tuple[Array, Array]]) -> ValueError:
    """Return the error for the first value that the dtype does not have."""
    for key in blocks(a.shape):
        wrong = np.argwhere(~coded(a[key])[1])
        if len(wrong):
            where = tuple(s.start + int(i) for s, i in zip(key, wrong[0], strict=True))
            levels = dtype.levels or ()
            few = f"({', '.join(map(str, levels[:8]))}{', ..' if len(levels) > 8 else ''})"
            return ValueError(f"{op}: x must hold only the values of {dtype} {few}, got {to_host(a[where])} at {where}")
    raise AssertionError("unreachable: some value is wrong")
