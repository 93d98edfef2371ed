"""Dealing pieces of work out to threads: each takes the next piece when it has done one.

Numba gives each thread its share of a `prange` before the loop begins, whatever `set_parallel_chunksize` says, so a
thread that starts late, or on a core that others use too, would hold all up. A parallel kernel is therefore a `prange`
over its `workers`, the last argument, which `threads.run` adds, and each takes pieces from one counter:

    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, tasks)
            ...
            piece = next_piece(dealt)
"""

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from .micro.vectors import const, pointer


@njit(cache=True, nogil=True)
def none_dealt():
    """A counter for `next_piece`."""
    dealt = np.empty(1, np.int64)  # `np.zeros` would be a parallel loop of its own
    dealt[0] = 0
    return dealt


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def share(piece, pieces, tasks):
    """(first, last): the tasks of a piece, as many as of any other or one fewer."""
    return tasks * piece // pieces, tasks * (piece + 1) // pieces


@intrinsic
def next_piece(typingctx, dealt):
    """The number of the next piece, from 0 on; no two threads get the same."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", pointer(context, builder, signature, args, 0), const(1), "monotonic")

    return types.int64(dealt), codegen
