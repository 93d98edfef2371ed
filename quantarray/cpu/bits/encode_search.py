"""Encode floats by many thresholds: each value's place among them is searched, then packed."""

import numpy as np

from ..llvm.masks import low_bits, mask_nan, mask_of_plane, prefetch
from ..runtime import threads
from ..runtime.schedule import Kernel, share
from .search_tree import IN_REGISTERS, NODES, order, search_15, search_255

_ORDERS = {levels: order(levels) for levels in (4, 8)}


def searches(thresholds, values):
    """True where searching so many values is less work than comparing them with each threshold, and trees are smaller
    than a quarter of the values.
    """
    tables, groups, count = thresholds.shape
    least = 8 if IN_REGISTERS and thresholds.dtype == np.float32 else 16
    return count >= least and 4 * tables * groups * _ORDERS[_levels(count)].size <= max(values, 4 * NODES)


def _levels(count):
    return 4 if count <= 15 else 8


def encode_searched(x, thresholds, codes, row, group, nan, workers, out):
    """Encode rows x[rows length] as `encode` does, by search trees."""
    levels = _levels(thresholds.shape[2])
    some = (*thresholds.shape[:2], 2**levels - 1 - thresholds.shape[2])
    padded = np.concatenate([thresholds, np.full(some, np.nan, thresholds.dtype)], axis=2)
    trees = padded.take(_ORDERS[levels], axis=2)  # C-contiguous, which an index would not make it
    ascending = bool((codes == np.arange(codes.shape[2], dtype=np.uint8)).all())
    arguments = x, trees, levels == 4, codes, ascending, row, group, nan, out
    threads.run(_encode_range, arguments, len(nan), workers, len(nan))


@Kernel
def _encode_range(x, trees, few, codes, ascending, row, group, nan, out, piece, _):
    planes, _, words = out.shape
    first, last = share(piece, len(nan), x.shape[0] * words)
    length, groups = x.shape[1], trees.shape[1]
    rest, places, unordered = np.zeros((1, 64), x.dtype), np.zeros(64, np.uint8), np.uint64(0)
    for at in range(first, last):
        r, word = at // words, at % words
        table, part = row[min(r, row.size - 1)], word * 64 // group if groups > 1 else 0
        begin, valid, tree = (
            r * length + word * 64,
            min(64, length - word * 64),
            (table * groups + part) * trees.shape[2],
        )
        # The last word of a row is 64 values too: those of the next row are masked out
        if begin + 64 <= x.size:
            prefetch(x, begin)
            unordered |= mask_nan(x, begin)
            if few:
                search_15(x, begin, trees, tree, places)
            else:
                search_255(x, begin, trees, tree, places)
        else:
            for i in range(valid):
                rest[0, i] = x[r, word * 64 + i]
            unordered |= mask_nan(rest, 0)
            if few:
                search_15(rest, 0, trees, tree, places)
            else:
                search_255(rest, 0, trees, tree, places)
        if not ascending:
            for i in range(64):
                places[i] = codes[table, part, places[i]]
        for plane in range(planes):
            out[plane, r, word] = mask_of_plane(places, 0, plane) & low_bits(valid)
    nan[piece] = unordered != 0
