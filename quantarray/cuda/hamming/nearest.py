"""The nearest rows by Hamming distance: products on tensor cores whose last step keeps what may be near.

Distances to some rows give a bound for each query. Products of all rows with all queries follow, and rows within a
query's bound are its candidates, of which the nearest are put in order. `docs/kernels/nearest_cuda.md` says how many
there are, and what happens where there are more than there is room for.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from ..popcount.conv import Terms, conv_weights
from ..popcount.tiles import Shape, Taps
from ..runtime import isa, launch
from ..runtime.launch import LANES
from ..tensor_cores import bmma, wgmma
from ..tensor_cores.images import lay_stages
from . import by_digits
from .bounds import find_bounds
from .settle import settle

_PRODUCTS = {"popc": bmma.run, "bmma": bmma.run, "wgmma": partial(wgmma.run, images=lay_stages)}
MOST = 1 << 12  # rows that are kept, at most: a block puts those of a query in order
ROOM = 1 << 23  # candidates of all queries that are searched together
LEAST, PLENTY = 1 << 10, 1 << 14  # candidates of a query beside 4 for each row that is kept; of few queries
SAMPLE = 1 << 10  # rows for bounds, at least
_SAFE = 4  # times as many candidates as are expected fit


class Near(NamedTuple):
    """A last step of products that keeps what is near; a lane is a query."""

    extra: object  # int32[1 lanes]: ones of the query
    bounds: object  # int32[1 lanes]: distances up to here are kept
    counts: object  # int32[lanes]: how many there are
    row_bits: int  # of a candidate: the row, below the distance


def nearest(words, queries, out):
    if not out.size:
        return
    (rows, length), most = words.shape, out.shape[2]
    capability = launch.capability()
    if not words.size or most > MOST or isa.best(capability) not in ("bmma", "wgmma"):
        by_digits.search(words, queries, out)
        return
    room = max(LEAST + 4 * most, min(PLENTY, ROOM // len(queries)))
    sample = 0 if rows <= room else min(rows, max(SAMPLE, -(-_SAFE * rows * most // room)))
    taps = _taps(length)
    for first in range(0, len(queries), max(1, ROOM // room)):
        asked = queries[first : first + max(1, ROOM // room)]
        blocks = -(-len(asked) // LANES)
        shape = Shape(rows, 1, length, 1, length, len(asked), blocks, 1)
        right = launch.scratch((1, blocks, length, LANES), np.uint64)
        conv_weights(asked.reshape(1, *asked.shape), 1, right)
        ones, bounds = (launch.scratch((1, blocks * LANES), np.int32) for _ in range(2))
        near = Near(ones, bounds, launch.scratch((blocks * LANES,), np.int32), max(1, (rows - 1).bit_length()))
        candidates = launch.scratch((len(asked), room), np.int64)
        find_bounds(words, asked, sample, most, near)
        multiply = _PRODUCTS[isa.units_of_bits(capability, rows, length)]
        multiply(shape, Terms(0, 1, 0, 1, 1, -2), words.reshape(1, -1), right, taps, near, candidates)
        settle(words, asked, near, candidates, first, out)


def _taps(length):
    """Return the plan of rows as images of one pixel, whose windows are their words."""
    places, offsets = np.zeros((1, 3), np.int64), np.arange(length, dtype=np.int32)[None]
    parts = np.array([[0, length]])
    return Taps(*map(launch.resident, (places, offsets, parts)), length % 2 == 0, True)
