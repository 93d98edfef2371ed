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


def within_distance(words: Array, queries: Array, radius: int, counts: Array, out: Array) -> None:
    """Search all rows of words[rows words] that differ from queries[asked words] in at most `radius` bits.

    Rows are searched in pieces, whose lengths differ by at most one. They store counts int64[pieces 1] and out
    int64[pieces 2 1 room]: distances, and row * asked + query; rows of a query ascend. On the CPU only."""


def within_sets(
    words: Array, queries: Array, alpha: float, beta: float, radius: float, counts: Array, out: Array
) -> None:
    """Search all sets of a similarity, that of `nearest_sets`, of at least `radius`, which is not negative.

    Counts and out are those of `within_distance`, with the bits of the similarity, negative, as distances. On the CPU
    only."""


def add_candidates(scores: Array, flip: int, first: int, k: int, counts: Array, limits: Array, out: Array) -> None:
    """Add rows from `first` on, with scores int64[asked rows], to candidates out int64[2 asked room]: keys, then rows.

    A key is a score whose bits `flip` are inverted where it is negative: all but the sign for bits of float64, whose
    order keys then have. There are counts int64[asked] candidates; a row is added if its key is below limits
    int64[asked]. When the room is full, all but the k least are dropped, of equal keys the last, and limits lowered;
    it is at least k, or that of all rows. On the CPU only."""


def add_products(
    products: Array, across: bool, divisors: Array, of_query: Array, of_row: Array, metric: int,
    first: int, k: int, counts: Array, limits: Array, out: Array,
) -> None:  # fmt: skip
    """Add rows from `first` on to candidates as `add_candidates` does, by float64 scores of products float32 or int32
    [asked rows], or [rows asked] if they are `across`.

    Each is divided by divisors float64[asked] and rounded to float32 p, or is p where there are none. With a of
    of_query float64[asked] and b of of_row float32 or float64[rows], of which 0 needs none, the score is -(p + a) for
    metric 0, (a + b b) - 2 p for 1, (a + b) - 2 p, at least 0, for 2, and -p / (a b) for 3, 0 where a b is 0. On the
    CPU only."""


def least_candidates(counts: Array, candidates: Array, out: Array) -> None:
    """out int64[2 asked k]: the k least of `candidates`, of which there are counts[asked], at least k, ascending, of
    equal keys those first that were added first. On the CPU only."""


def nearest_products(
    codes: Array, scales: Array, words: Array, first: float, apart: float, by: Array, offset: Array, of_query: Array,
    of_row: Array, metric: int, out: Array,
) -> None:  # fmt: skip
    """Search the best rows by products of codes int8[asked k] and words [planes rows ..], as of `byte_row_product`.

    first and apart may have a fraction, a half or a quarter or .., of which float64 sums are exact. Without scales
    products are exact integers. out int64[2 asked kept]: keys as `add_products` has them without divisors, then rows,
    best first, of equal keys the lowest row. There are at least as many rows as are kept, which are 1 or more. On the
    CPU only."""
