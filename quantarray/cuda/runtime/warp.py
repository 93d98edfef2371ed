"""Vote, sum and pack with 32 lanes. Every lane of a warp must come by: a predicate, never an early return."""

import numpy as np

from .launch import LANES, inline
from .target import cuda, libdevice

ALL = 0xFFFFFFFF
_FAR = 1 << 30


@inline
def ballot(bit):
    """Return half a word: bit i is the bit of lane i."""
    return np.uint32(cuda.ballot_sync(ALL, bit))


@inline
def warp_sum(value):
    """Return the sum of an int64 over the warp, in every lane."""
    value += cuda.shfl_xor_sync(ALL, value, 16)
    value += cuda.shfl_xor_sync(ALL, value, 8)
    value += cuda.shfl_xor_sync(ALL, value, 4)
    value += cuda.shfl_xor_sync(ALL, value, 2)
    value += cuda.shfl_xor_sync(ALL, value, 1)
    return value


@inline
def line_sum(value, lanes):
    """Return the sum of an int64 over `lanes` neighbours, a power of two, or over the warp if it has no more."""
    offset = 16
    while offset > 0:
        other = cuda.shfl_xor_sync(ALL, value, offset)
        if offset < lanes:
            value += other
        offset >>= 1
    return value


@inline
def sum_of_halves(value):
    """Return the sum of a float32 over 16 neighbours: those 8 apart are added, then 4, 2 and 1, as a CPU does."""
    value = libdevice.fadd_rn(value, cuda.shfl_xor_sync(ALL, value, 8))
    value = libdevice.fadd_rn(value, cuda.shfl_xor_sync(ALL, value, 4))
    value = libdevice.fadd_rn(value, cuda.shfl_xor_sync(ALL, value, 2))
    return libdevice.fadd_rn(value, cuda.shfl_xor_sync(ALL, value, 1))


@inline
def alike(value):
    """Return (how many of the lanes before this one, and of all, have this lane's int64)."""
    same = np.uint32(cuda.match_any_sync(ALL, value))
    before = np.uint32((np.uint32(1) << np.uint32(cuda.threadIdx.x % LANES)) - np.uint32(1))
    return cuda.popc(np.uint32(same & before)), cuda.popc(same)


@inline
def put_code(code, lane, out, row, half):
    """Write the codes of 32 lanes as half a word in each plane of uint32 out[planes rows halves].

    Lane p keeps the ballot of plane p, so that one store writes all planes.
    """
    mine = np.uint32(0)
    for plane in range(out.shape[0]):
        bits = ballot((code >> plane) & 1)
        if lane == plane:
            mine = bits
    if lane < out.shape[0] and half < out.shape[2]:
        out[lane, row, half] = mine


@inline
def place_of_lane():
    """Return (lane, half-word of the row, first row, rows to the next) in a grid of `launch.rows_by_halves`.

    Rows are walked by `while`: a `range` with a step that is not constant divides first.
    """
    lane = cuda.threadIdx.x % LANES
    half = cuda.blockIdx.x * (cuda.blockDim.x // LANES) + cuda.threadIdx.x // LANES
    return lane, half, cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y, cuda.gridDim.y * cuda.blockDim.y


@inline
def place_of_batch(size):
    """`place_of_lane` in a grid of batches of half-words: (lane, first half-word, first row, rows to the next).

    The lane has 32 bits here, since it is compared with the number of each half-word.
    """
    lane, batch, row, step = place_of_lane()
    return np.int32(lane), batch * size, row, step


@inline
def lanes_left(length, half):
    """Count a row's elements from this lane's of half-word `half` on, in 32 bits; zero or less after the row."""
    return np.int32(min(length - half * LANES - cuda.threadIdx.x % LANES, _FAR))


@inline
def everywhere(bits, plane):
    """Return half a word, 32 times bit `plane`."""
    return np.uint32(((bits >> np.uint32(plane)) & np.uint32(1)) * np.uint32(ALL))


@inline
def low_bits(count):
    """Return half a word whose lowest bits, so many of an int64, are ones: all from 32 on, none up to 0."""
    return np.uint32(np.uint64(ALL) >> np.uint64(LANES - min(max(count, 0), LANES)))
