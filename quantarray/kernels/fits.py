"""A part of the contract: kernels that find what constants are fitted to, and constants."""

from __future__ import annotations

from ..core.dtypes import Array


def extremes(x: Array, out: Array) -> None:
    """out[0] is the least and out[1] the largest of x[rows length], float16, 32 or 64; NaN where there is one.

    out float64[2 rows pieces] has those of each of `pieces` parts, at most `length`, of a row. x is C-contiguous, on a
    GPU int8 or uint8 too."""


def group_ends(x: Array, group: int, out: Array) -> None:
    """`extremes` of each `group` of a row of x[rows length], float32 or 64; out float64[2 rows groups]. CPU only."""


def range_constants(ends: Array, top: int, signed: bool, symmetric: bool, zero: bool, out: Array) -> None:
    """out float64[2 n] = steps and offsets of evenly spaced levels for values from ends[0] to ends[1], float64[2 n].

    `top` is the largest level in steps. Symmetric: the step is max |x| / top, or max(x, 0) / top if not signed, and
    the offset 0; with `zero`, where a level is 0, no step is 0. Else the step is (max(x, 0) - min(x, 0)) / top, rounded
    to 16 bits, and the offset a multiple of it as float32. On the CPU only."""


def group_constants(ends: Array, top: int, digits: int, out: Array) -> None:
    """out float64[3 n] = steps, offsets and last levels for values from ends[0] to ends[1], float64[2 n], all inside.

    The offset is ends[0] rounded down to `digits` bits, the step (ends[1] - offset) / top rounded up, 1 where it is 0;
    neither finer than a subnormal float32 of so many. On the CPU only."""


def sums(x: Array, size: int, cuts: Array, shift: Array, power: int, out: Array) -> None:
    """out[0, r, k, b] = how many values of block b of row r are at least k of cuts[r]; out[1] = their sum.

    The sum is of g(x - shift[r]); g(t) is |t|, t or t * t for a power of 0, 1 or 2. x[rows length], float32 or float64;
    cuts float64[rows K - 1], ascending; shift float64[rows]; out float64[2 rows K blocks], blocks of `size` values, of
    which the last has the rest. All in float64. Lane l of 32 adds the values l, l + 32, .. of a block, in order, then
    lanes l and l + 16 are added, l and l + 8, to l and l + 1."""


def below(x: Array, size: int, row: Array, thresholds: Array, out: Array) -> None:
    """out[0, r, t] = how many values of the ascending row[r]-th row of x are less than thresholds[r, t].

    out[1] = the sum of those of them that are in no whole block of `size`, by lanes as in `sums`; out[2] and out[3] =
    the values before and at that place, or the nearest that there is. x[rows length], float32 or float64; row
    int64[asked]; thresholds float64[asked T]; out float64[4 asked T]."""
