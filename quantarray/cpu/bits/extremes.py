"""Compute the least and the largest value of each row in one pass, and evenly spaced levels between them."""

import math

import numpy as np

from ..runtime import threads
from ..runtime.jit import entry, inline
from ..runtime.schedule import Kernel, share
from .extremes_64 import extremes_64

_LEAST = 1 << 17  # values that are worth a parallel region
ORDINARY = 1e30  # magnitudes up to which no constant and no level is beyond float32
_TINY = float(np.nextafter(np.float32(0), np.float32(1)))


def extremes(x, out):
    _, rows, pieces = out.shape
    x = x.view(np.int16) if x.itemsize == 2 else x  # of which Numba knows the bits only
    kind = x.dtype.char, x.flags.num
    threads.run(_extremes, (x, out), rows * pieces, threads.workers(x.size, _LEAST), None, kind)


@Kernel
def _extremes(x, out, first, last):
    """Compute the extremes of parts of rows. What is left of a part after whole blocks is copied after repeats of its
    first value, to fill a block.
    """
    pieces = out.shape[2]
    rest, ends, more = np.zeros((1, 64), x.dtype), np.zeros(2), np.zeros(2)
    for task in range(first, last):
        row, piece = task // pieces, task % pieces
        begin, end = share(piece, pieces, x.shape[1])
        start = row * x.shape[1]
        wrong = ends_of(x, start + begin, start + end, rest, ends, more)
        out[0, row, piece], out[1, row, piece] = (np.nan, np.nan) if wrong else (ends[0], ends[1])


@inline
def ends_of(x, begin, end, rest, ends, more):
    """ends[:] = the least and the largest of values begin .. end of the flattened x; not 0 where one is NaN."""
    whole, over, length = (end - begin) // 64, (end - begin) % 64, x.shape[1]
    wrong = np.uint64(0)
    if whole:
        wrong |= extremes_64(x, begin, whole, ends)
    if over:
        for i in range(64):
            at = end - over + i if i < over else begin
            rest[0, i] = x[at // length, at % length]
        wrong |= extremes_64(rest, 0, 1, more)
        ends[0] = min(ends[0], more[0]) if whole else more[0]
        ends[1] = max(ends[1], more[1]) if whole else more[1]
    return wrong


def range_constants(ends, top, signed, symmetric, zero, out):
    fit_range(ends, top, signed, symmetric, zero, out)


@entry
def fit_range(ends, top, signed, symmetric, zero, out):
    """Compute scale and offset of ranges; compiled, as 24 operations of NumPy took 12 us for one range."""
    for i in range(ends.shape[1]):
        low, high = ends[0, i], ends[1, i]
        start, end = min(low, 0.0), max(high, 0.0)
        if symmetric:
            step = (max(-start, end) if signed else end) / top
            out[0, i], out[1, i] = _safe(step) if zero else step, 0.0
            continue
        one = low == high  # its level is the value itself, and no step is needed to reach it
        out[0, i] = 1.0 if one else _safe(_sixteen_bits((end - start) / top))
        stored = np.float64(np.float32(out[0, i]))
        out[1, i] = (low if one else -np.rint(-start / stored) * stored) + 0.0  # not -0


@inline
def _safe(step):
    """Replace a step of 0 by 1, and one that rounding would make vanish by the smallest float32."""
    return 1.0 if step == 0 else max(step, _TINY)


@inline
def _sixteen_bits(step):
    """Round a step to 16 significant bits: 255 times it, or less, is exact in the 24 bits of a float32."""
    if not math.isfinite(step):
        return step
    mantissa, exponent = math.frexp(step)
    return math.ldexp(np.rint(mantissa * 2**16), exponent - 16)


def group_constants(ends, top, digits, out):
    fit_group(ends, top, digits, out)


@entry
def fit_group(ends, top, digits, out):
    for i in range(ends.shape[1]):
        step, start = grid_of_group(ends[0, i], ends[1, i], top, digits)
        out[0, i], out[1, i], out[2, i] = step, start, start + step * top


@inline
def grid_of_group(low, high, top, digits):
    """Return the step and the first level, of so many digits, of levels that reach from `low` to `high`."""
    unit = _unit(low, digits)
    start = np.floor(low / unit) * unit + 0.0  # not -0
    step = (high - start) / top
    unit = _unit(step, digits)
    step = np.ceil(step / unit) * unit
    return step if step != 0 else 1.0, start


@inline
def _unit(x, digits):
    """Return the unit of the last of `digits` binary digits of x, as float32 has them at least."""
    exponent = math.frexp(x)[1] if math.isfinite(x) else 1
    return math.ldexp(1.0, max(exponent, -125) - digits)
