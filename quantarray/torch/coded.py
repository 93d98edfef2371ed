"""Hold what a quantiser has made as its codes: a saved tensor of few levels that are known comes back to the bit."""

from __future__ import annotations

import numpy as np
import torch

from ..backends.registry import kernel
from ..core.dtypes import Array
from ..core.format import word_count
from ..ops.quantize.encoding import PIECES
from .arena import Arena
from .holder import Levels
from .layout import Layout


class Coded:
    """A tensor in host memory as codes of its levels.

    words uint64[bits rows words]; table float32[rows levels] in ascending order, of equal runs of memory.
    """

    __slots__ = ("dtype", "layout", "nbytes", "table", "words")

    def __init__(self, words: Array, table: Array, layout: Layout, dtype: torch.dtype) -> None:
        self.words, self.table, self.layout, self.dtype = words, table, layout, dtype
        self.nbytes = words.nbytes + table.nbytes

    def restore(self) -> torch.Tensor:
        """Return the values."""
        rows, layout = len(self.table), self.layout
        values = torch.empty(layout.size)
        out = values.numpy().reshape(rows, -1)
        kernel("cpu", "decode_levels")(self.words, self.table[:, None], np.arange(rows), out.shape[1], out)
        return layout.restore(values, self.dtype)


def coded(tensor: torch.Tensor, layout: Layout, levels: Levels, arena: Arena) -> Coded | None:
    """Return a tensor as codes of its memory's levels; None where it has as few elements as there are levels.

    None too where a view shows other rows than the memory has.
    """
    table = levels.table
    rows, count = table.shape
    if 2 * table.nbytes > tensor.nbytes:
        return None
    if rows > 1 and (layout.size != levels.size or not tensor.permute(layout.order).is_contiguous()):
        return None
    x = layout.flat(tensor.detach()).float().numpy().reshape(rows, -1, 1)
    bits, words = max(count - 1, 1).bit_length(), word_count(x.shape[1])
    out, nan = arena.take(bits, rows * words).reshape(bits, rows, words), np.zeros(PIECES, np.bool_)
    # A value is at least as large as all levels up to its own, so that the others' are the thresholds
    codes = np.broadcast_to(np.arange(count, dtype=np.uint8), (rows, 1, count)).copy()
    kernel("cpu", "encode")(x, table[:, None, 1:].copy(), codes, np.arange(rows), x.shape[1], nan, out)
    return Coded(out, table, layout, tensor.dtype)
