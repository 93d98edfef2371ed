"""A part of the contract: a function of several arrays, reduced in one pass; operands, and reductions step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core.dtypes import Array

LANES = 64  # elements of a word: element j of a row is added to lane j % 64
BLOCK = 1 << 15  # elements that are reduced at a time along the vector axis
FOLDS = 1 << 9  # rows that are reduced one after the other across it


class Affine(NamedTuple):
    """Store packed integers base + step * code; without `along`, one element for all of a row."""

    words: Array  # uint64 [planes words]
    base: int
    step: int
    along: bool


class Levels(NamedTuple):
    """Store packed values table[entry + code], whose entry is that of a row and of a group of the elements of a row."""

    words: Array  # uint64 [planes words]
    table: Array  # int32 or float32, flat: the levels of one entry after those of another
    levels: int  # of an entry
    group: int  # 0 where a row has one entry
    along: bool


class Dense(NamedTuple):
    """Store numbers, `stride` elements apart along a row: 0 where a row has one."""

    values: Array
    stride: int


class Steps(NamedTuple):
    """List a row for each index of some axes, in C order: lengths int64 [axes], and how far apart rows are.

    steps: int64 [axes columns], a column for each `Affine` and `Dense`, and two for each `Levels`: its words and its
    entry.
    """

    lengths: Array
    steps: Array

    @property
    def number(self) -> int:
        """Count the rows."""
        return int(self.lengths.prod())


class Rows(NamedTuple):
    """List rows of `length` elements: where those of each result begin, and where from there those are that it reduces.

    lanes: the elements of a row are reduced, too.
    """

    results: Steps
    folds: Steps
    length: int
    lanes: bool

    @property
    def pieces(self) -> int:
        """Count the parts of a row that are reduced apart."""
        return max(1, -(-self.length // BLOCK)) if self.lanes else 1

    @property
    def each(self) -> int:
        """Count the rows, or parts of rows, of a block."""
        return max(1, BLOCK // max(self.length, 1)) if self.lanes else FOLDS

    @property
    def blocks(self) -> int:
        """Count the blocks of a result."""
        return max(1, -(-self.folds.number * self.pieces // self.each))


class Accumulator(NamedTuple):
    """A number that is updated with each value of a result, as Python text of which a kernel is made.

    integer: int64, else float64. `value` is made of {t}, `combine` joins a and v, `joined` arrays of both.
    """

    integer: bool
    value: str
    start: Any
    combine: str
    joined: Callable[[Array, Array], Array]


def accumulators(reduction: str, integer: bool) -> list[Accumulator]:
    """Return what a reduction of integers or floats needs: its result, and of integers what says that it fits int64."""
    value = "np.int64({t})" if integer else "np.float64({t})"
    start: float
    if reduction in ("sum", "mean"):
        total = Accumulator(integer, value, 0 if integer else 0.0, "a + v", np.add)
        # All bits of magnitudes: no sum is further from 0 than so many of the largest of these
        return [total, Accumulator(True, f"{value} ^ ({value} >> 63)", 0, "a | v", np.bitwise_or)][: 1 + integer]
    if reduction == "prod":
        product = Accumulator(integer, value, 1 if integer else 1.0, "a * v", np.multiply)
        size = "0.0 if a == 0.0 or v == 0.0 else a * v"  # where the product of some factors is infinite, too
        return [product, Accumulator(False, f"abs(np.float64({value}))", 1.0, size, _sizes)][: 1 + integer]
    if reduction in ("any", "all"):
        some = reduction == "any"
        return [Accumulator(True, "np.int64({t} != 0)", int(not some), "a | v" if some else "a & v",
                            np.bitwise_or if some else np.bitwise_and)]  # fmt: skip
    least = reduction == "min"
    if integer:
        ends = np.iinfo(np.int64)
        start, combine = (ends.max, "min(a, v)") if least else (ends.min, "max(a, v)")
    else:  # NaN stays
        start, combine = (np.inf, "v if v < a or v != v else a") if least else (-np.inf, "v if v > a or v != v else a")
    return [Accumulator(integer, value, start, combine, np.minimum if least else np.maximum)]


def _sizes(a: Array, v: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where((a == 0) | (v == 0), 0.0, a * v)


def map_reduce(op: str, f: Any, reductions: Any, operands: list[Any], rows: Rows, out: list[Any]) -> None:
    """Reduce f(value of each operand) of all rows, and append to `out` what each result of f gave.

    f takes an int64 or float64 number of each operand and returns a number or a tuple of numbers; reductions(results)
    returns a reduction for each: a name, or (start, function of two). out gets lists of (accumulator, int64 or float64
    [results blocks], with the elements of a row last where these are not reduced), and last whether f returns a tuple.
    On the CPU only.
    """
