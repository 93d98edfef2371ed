"""A part of the contract: kernels that search rows."""

from __future__ import annotations

from ..core.dtypes import Array


def nearest(words: Array, queries: Array, out: Array) -> None:
    """Search the nearest of words[rows words] for each of queries[asked words] by the number of differing bits.

    out int64[2 asked kept]: distances, then rows, nearest first and of equal ones the lowest row; int64's largest and
    -1 where there are fewer rows than are kept."""


def nearest_sets(words: Array, queries: Array, alpha: float, beta: float, scores: Array, out: Array) -> None:
    """Search the most similar sets, by c / (c + alpha (a - c) + beta (b - c)) of a query's a elements and a row's b, c
    of which are common; 0 / 0 is 0. scores float64[asked kept], out int64[asked kept]: rows, of equal ones the lowest
    first; -1 where there are fewer rows. On the CPU only."""


def within_sets(
    words: Array, queries: Array, alpha: float, beta: float, radius: float, counts: Array, scores: Array, out: Array
) -> None:  # fmt: skip
    """Search all sets of a similarity, that of `nearest_sets`, of at least `radius`, which is not negative.

    Rows are searched in pieces, whose lengths differ by at most one. They store counts int64[pieces], scores
    float64[pieces 1 room] and out int64[pieces 2 room], queries and rows; rows of a query ascend. On the CPU only."""
