"""Select the best of many scores, a block of rows at a time."""

from __future__ import annotations

import numpy as np

from ...core.dtypes import Array


class Best:
    """Keep the k smallest scores of each query so far and their rows; of equal scores those of the lower rows."""

    def __init__(self, queries: int, k: int) -> None:
        self._k = k
        self.scores: Array = np.empty((queries, 0))
        self.rows: Array = np.empty((queries, 0), np.int64)

    def add(self, scores: Array, first: int) -> None:
        """Look at the scores [queries n] of rows from `first` on, which come after all rows that were added before."""
        new = np.broadcast_to(np.arange(first, first + scores.shape[1]), scores.shape)
        if self.scores.shape[1]:
            scores = np.concatenate([self.scores, scores], axis=1)
            new = np.concatenate([self.rows, new], axis=1)
        at = smallest(scores, self._k)
        self.scores, self.rows = np.take_along_axis(scores, at, 1), np.take_along_axis(new, at, 1)


def smallest(scores: Array, k: int) -> Array:
    """Return the places of the k smallest of each row, or of all if there are fewer, in ascending order.

    Of equal scores the first places are taken, and come first. A partition finds the k-th score, so time does not
    depend on k but for the sort of the result.

    >>> smallest(np.array([[3, 1, 2, 1]]), 2), smallest(np.array([[3, 1, 2, 1]]), 3)
    (array([[1, 3]]), array([[1, 3, 2]]))
    """
    rows, n = scores.shape
    if k < n and k:
        last = np.partition(scores, k - 1, axis=1)[:, k - 1 : k]
        below, equal = scores < last, scores == last
        room = k - below.sum(axis=1, keepdims=True)
        taken = below | (equal & (np.cumsum(equal, axis=1) <= room))
        places = np.nonzero(taken)[1].reshape(rows, k)
    else:
        places = np.broadcast_to(np.arange(min(k, n)), (rows, min(k, n)))
    order = np.argsort(np.take_along_axis(scores, places, 1), axis=1, kind="stable")
    ordered: Array = np.take_along_axis(places, order, 1)
    return ordered
