"""Named tuples by which micro-kernels take their operands, and how LLVM code takes them apart.

In functions that `jit.inline` compiles a tuple costs nothing: its fields stay in registers. A slice would cost two
atomic operations in others.
"""

from typing import NamedTuple

import numpy as np
from numba import types


class View(NamedTuple):
    """A C-contiguous array, indexed flat from data[at] on."""

    data: np.ndarray
    at: int


class Rows(NamedTuple):
    """A C-contiguous array, indexed flat: rows `apart` elements from each other, the first from data[at] on."""

    data: np.ndarray
    at: int
    apart: int


class Planes(NamedTuple):
    """A view of bit-planes, indexed flat: plane i begins at words[at + i * apart], i < planes."""

    words: np.ndarray
    at: int
    planes: int
    apart: int


class RunSpan(NamedTuple):
    """A span of runs first .. last of int64 runs[n 3]: (words from a pixel's origin, weight word, length)."""

    runs: np.ndarray
    first: int
    last: int


class Counted(NamedTuple):
    """A pair of operands whose common or differing bits are counted: 4 pixels by one or two blocks of 32 channels."""

    words: Planes  # of x, from an image's first word on
    origins: View  # int64[4]: where the pixels begin, in words
    weights: Rows  # of the first block; those of the second are `apart` from them
    runs: RunSpan
    differ: int  # -1 to count a ^ b, 0 to count a & b


class ByteWeights(NamedTuple):
    """A view of weights as bytes: `blocks` blocks of 32 channels, `apart` bytes apart, the first from data[at] on."""

    data: np.ndarray  # uint8, read as int8 [quads 32 4]
    at: int
    apart: int
    blocks: int


class TileSpan(NamedTuple):
    """A span of tiles, begin .. end of all images; their words begin `shift` words after those of the plan."""

    begin: int
    end: int
    shift: int


class Limits(NamedTuple):
    """A view of limits; counts are compared with them into bits used & (flips ^ (count > limit))."""

    limits: np.ndarray
    at: int  # of the first lane's
    flips: np.uint64
    used: np.uint64


class ByteLines(NamedTuple):
    """A table from sums to codes as bytes: trunc(slope * sum + shift) in float32, clipped and perhaps turned."""

    lines: np.ndarray  # float32[4 lanes]: slopes, shifts, ..
    ends: np.ndarray  # uint8[4 lanes]: least and greatest rank, bits that are turned, bits that are used


class Checks(NamedTuple):
    """A view of thresholds, by which codes of `ByteLines` that may be one too low are computed again.

    flips and used are those of `Limits`, of a block of 32 lanes and of the one after it.
    """

    limits: np.ndarray
    at: int  # of the first lane's
    flips: np.uint64
    used: np.uint64
    other_flips: np.uint64
    other_used: np.uint64


def flat(context, builder, signature, args):
    """Return (signature, args) of an intrinsic with tuples replaced by their fields; integers become int64."""
    kinds, values = [], []

    def add(kind, value):
        if isinstance(kind, types.BaseTuple):
            for i, field in enumerate(kind.types):
                add(field, builder.extract_value(value, i))
        else:
            if isinstance(kind, types.Integer):
                value, kind = context.cast(builder, value, kind, types.int64), types.int64
            kinds.append(kind)
            values.append(value)

    for kind, value in zip(signature.args, args, strict=True):
        add(kind, value)
    return signature.return_type(*kinds), values
