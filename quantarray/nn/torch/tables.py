"""Functions of integers as tables of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..onnx.building import Builder
from ..onnx.laws import Source, Tensor, lookup
from . import grids
from .functions import Function

if TYPE_CHECKING:
    from .conversion import Conversion

PACKED_LEVELS = 16  # of floats that are packed; more stay bytes, which products take as they are
_MOST = 1 << 16  # integers of a table


def packs(levels: grids.Uneven) -> bool:
    """Tell if products take these levels packed: as sums of a basis, or as a table."""
    return len(levels.values) <= PACKED_LEVELS or levels.basis is not None


def of_uneven(b: Builder, f: Function) -> Tensor | None:
    """Return a function of codes that gives uneven levels, alike for all channels, as a table of its values."""
    source, kind, levels = f.base.source, f.out_dtype, f.base.source.levels
    if levels is None or len(levels) > PACKED_LEVELS or f.pools or f.reshapes:
        return None
    if f.varying() != -1 or kind.kind != "f":
        return None
    order = np.sort(levels)
    values = f.evaluate(order.reshape(-1, *(1,) * (len(f.base.shape) - 1))).reshape(-1)
    if not np.isfinite(values).all() or grids.grid_of(values) is not None:
        return None
    ranks = tuple(np.searchsorted(order, levels).tolist())
    name = source.name
    if ranks != levels:
        name = b.emit("relabel", [name], b.hint, levels=ranks)
    held = Source(name, source.shape, np.dtype(np.int32), ranks, 0, len(ranks) - 1)
    return Tensor(f.base.shape, kind, held, (lookup(values.astype(kind)),))


def of_integers(c: Conversion, f: Function) -> str | None:
    """Compute a function of integers by a table of its values; one of others after a part of it that quantises."""
    source = f.base.source
    if f.pools or f.reshapes or f.out_dtype.kind != "f":
        return None
    low, high = (min(source.bounds[0], 0), max(source.bounds[1], 0)) if source.whole else (0, _MOST)
    if high - low >= _MOST or f.varying() != -1:
        for middle, end in f.cuts()[::-1]:
            quantised = c.quantised(middle, middle.out)
            if quantised is not None:
                return of_integers(c, Function(quantised, middle.out, end, f.out))
        return None
    order = np.roll(np.arange(low, high + 1), low)  # negative integers count from the end
    values = f.evaluate(order.reshape(-1, *(1,) * (len(f.base.shape) - 1))).reshape(-1)
    table = c.builder.constant(values, f"{c.builder.hint}.table")
    return c.builder.emit("Gather", [table, c.builder.integers(f.base)], c.builder.hint, axis=0)
