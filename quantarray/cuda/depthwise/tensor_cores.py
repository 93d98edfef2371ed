"""Depthwise convolution as products of bytes on tensor cores. `docs/kernels/depthwise_cuda.md` has tile and algebra.

A block expands the pixels under its windows to bytes in shared memory, for 32 channels at a time. An instruction
multiplies four taps of 8 channels of 16 pixels by a matrix of which each column has the weights of one channel.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..bits.exchange import exchange
from ..popcount.tiles import OUTSIDE
from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..tensor_cores import ptx
from ..tensor_cores.stages import FULL, PIXELS, SIDES, place_in_fragment
from .constants import integers, reals
from .last_step import CHANNELS, add_extra, add_offsets, add_products, clear, place_of, shift, storer
from .weights import NBYTES, TAPS, digits_of, largest
from .windows import BEGIN, FIRST, KIND, LAST, most_seen, windows_of

WARPS = 8  # of a block: all of them expand pixels, those that have windows multiply
SIZES = 8, 4, 2, 1  # of them that may multiply
SLOT = 4  # words of shared memory of a pixel's channels
USUAL, MOST = 48 << 10, 96 << 10  # bytes of shared memory of blocks several of which share a multiprocessor; of any
_BITS = 8  # of a code


class Shape(NamedTuple):
    """A set of the sizes that a kernel needs of its operands."""

    rows: int  # output pixels of all images
    pixels: int  # of one image
    image_pixels: int  # of x
    pixel_halves: int
    channels: int  # of x; outputs are `copies` times as many
    copies: int
    halves: int  # of the result
    tile: int  # output pixels of a block
    pairs: int  # of taps
    digits: int  # of a weight
    zero: int  # the slot of a pixel of zeros


class Form(NamedTuple):
    """List what a kernel is compiled for."""

    bits: int  # of x's codes, at most
    planes: int  # of the result's codes, 0 for values
    steps: int  # of a search for a rank
    fragments: int  # of 16 pixels, of a warp
    real: bool
    offsets: bool  # weights have offsets, so codes are summed too
    whole: bool  # values are stored four at a time
    repeated: bool  # a channel has several outputs


class Tile(NamedTuple):
    """Cut the work of a thread block."""

    pixels: int
    slots: int  # pixels of x in shared memory, and one of zeros

    @property
    def shared(self):
        return 8 * SLOT * self.slots


def tile_for(x, w, plan, finish, out):
    """Return the tile, or None where sums may pass int32 or no tile's pixels fit into shared memory."""
    most = largest(w) * ((1 << int(x.terms[:, 1].max())) - 1)
    if finish.thresholds.dtype != np.float64:
        most = most * abs(int(x.terms[0, 3])) + launch.cached(_size, (finish.extra,))
    seen = windows_of(plan, w.group_words)
    all_pixels, rows = x.images * (plan.image_words // w.group_words), x.images * plan.origin.size
    if max(most, all_pixels, rows) >= 1 << 31 or (x.terms[:, 1] > _BITS).any() or out.dtype == np.int64:
        return None
    sizes = [warps * _fragments(finish.thresholds.dtype == np.float64) * PIXELS for warps in SIZES]
    tiles = [Tile(size, 1 + min(most_seen(seen, size), all_pixels)) for size in sizes]
    several = [tile for tile in tiles if tile.shared <= USUAL and _halves(w, out) * rows >= FULL * tile.pixels]
    return several[0] if several else tiles[-1] if tiles[-1].shared <= MOST else None


def _fragments(real):
    """Count the fragments of 16 pixels of a warp: values in float64 take twice the registers."""
    return 1 if real else 2


def _size(a):
    return int(np.abs(a).max(initial=0))


def _halves(w, out):
    """Count the halves of words of a row of the result."""
    return 2 * out.shape[2] if out.dtype == np.uint64 else -(-w.group_lanes * w.words.shape[1] // LANES)


def run(tile, x, w, plan, finish, divisor, out):
    codes, real = out.dtype == np.uint64, finish.thresholds.dtype == np.float64
    copies, halves, seen = w.words.shape[1], _halves(w, out), windows_of(plan, w.group_words)
    weights = digits_of(w, seen.offsets.shape[1], halves)
    last = reals(x, w, finish, divisor, halves) if real else integers(x, w, finish, halves)
    shape = Shape(
        x.images * plan.origin.size, plan.origin.size, plan.image_words // w.group_words, 2 * w.group_words,
        w.group_lanes, copies, halves, tile.pixels, seen.offsets.shape[1] // TAPS, weights.shape[1], tile.slots - 1,
    )  # fmt: skip
    form = Form(
        int(x.terms[:, 1].max()), out.shape[0] if codes else 0, len(finish.thresholds).bit_length(),
        _fragments(real), real,
        real and bool(w.offset.any()), not codes and out.shape[1] % 4 == 0 and launch.address(out) % 16 == 0,
        copies > 1,
    )  # fmt: skip
    across = -(-shape.rows // tile.pixels)
    down = min(halves, -(-4 * FULL // across), launch.MOST_ROWS)
    launch.run(
        _kernel(form), (across, down), (LANES, WARPS), shape, launch.halves(x.words), weights, seen.places,
        seen.offsets, last, launch.array(out).view(np.uint8 if codes else np.int32), shared=tile.shared, tiled=True,
    )  # fmt: skip


@cache
def _expander(form):
    bits, read = form.bits, _repeated if form.repeated else _side_by_side

    @inline
    def expand(shape, left, first, planes, begin, end, half, held):
        """Write the codes of pixels begin .. end, of the channels of a half-word of the result, as bytes.

        A slot has 8 times 4 bytes, number i with the codes of channels i, 8 + i, 16 + i and 24 + i.
        """
        words = cuda.local.array(8, np.uint32)
        slot = np.int32(cuda.threadIdx.y * LANES + cuda.threadIdx.x)
        while slot < end - begin:
            for j in range(8):
                words[j] = 0
            for j in range(bits):
                if j < planes:
                    words[j] = read(shape, left, first + j, begin + slot, half)
            exchange(words)
            at = np.int32(SLOT * slot + _turn(slot))
            ptx.write_bytes16(held, at, words[0], words[1], words[2], words[3])
            ptx.write_bytes16(held, at ^ 2, words[4], words[5], words[6], words[7])
            slot += np.int32(WARPS * LANES)

    return expand


@inline
def _side_by_side(shape, left, plane, pixel, half):
    return ptx.read(left, plane * left.shape[1] + pixel * shape.pixel_halves + half)


@inline
def _repeated(shape, left, plane, pixel, half):
    """Return the bits of a half-word in which each channel's is repeated for all of its outputs."""
    bits = np.uint32(0)
    for i in range(LANES):
        channel = (half * LANES + i) // shape.copies
        if channel < shape.channels:
            word = left[plane, pixel * shape.pixel_halves + (channel >> 5)]
            bits |= ((word >> np.uint32(channel & 31)) & np.uint32(1)) << np.uint32(i)
    return bits


@inline
def _multiply(shape, weights, term, half, offsets, seen, held, sums):
    """sums int32[fragments sides channels] = codes times the weights of a term over the taps inside, modulo 2^32.

    Lane 4 * g + t has pixels g and g + 8 of each fragment, and outputs 8 * t to 8 * t + 7 of the half-word. For the
    loads of two taps, lane i names pixel i % 16 under the first or, from 16 on, under the second.
    """
    lane = cuda.threadIdx.x
    w = cuda.local.array(CHANNELS, np.uint32)
    clear(sums)
    for digit in range(shape.digits):
        shift(sums)
        at = (((term * shape.digits + digit) * shape.halves + half) * shape.pairs * LANES + lane) * NBYTES
        tap = np.int32(lane >> 4)
        while tap < shape.pairs * TAPS:
            w[0], w[1], w[2], w[3] = ptx.read_bytes16(weights, at)
            w[4], w[5], w[6], w[7] = ptx.read_bytes16(weights, at + 16)
            for r in range(sums.shape[0]):
                offset = ptx.read(offsets, seen[r, 1] + tap)
                slot = np.int32(shape.zero) if offset == OUTSIDE else np.int32(seen[r, 0] + offset)
                place = np.int32(SLOT * slot + _turn(slot))
                for chunk in range(2):
                    a0, a1, a2, a3 = ptx.load_rows(held, place ^ (2 * chunk))
                    for i in range(4 * chunk, 4 * chunk + 4, 2):
                        sums[r, 0, i], sums[r, 0, i + 1], sums[r, 1, i], sums[r, 1, i + 1] = ptx.mma_signed(
                            sums[r, 0, i], sums[r, 0, i + 1], sums[r, 1, i], sums[r, 1, i + 1],
                            a0, a1, a2, a3, w[i], w[i + 1],
                        )  # fmt: skip
            at += LANES * NBYTES
            tap += np.int32(TAPS)


@inline
def _turn(slot):
    """Return which half of a slot comes first: 8 neighbours that are written or read at once then meet in no bank."""
    return np.int32((slot >> 1) & 2)


@cache
def _of_integers(form):
    expand, store, size = _expander(form), storer(form), form.fragments * PIXELS

    @inline
    def compute(shape, left, weights, offsets, c, begin, end, row, seen, images, kinds, half, held, sums, out):
        expand(shape, left, c.terms[0, 0], c.terms[0, 1], begin, end, half, held)
        cuda.syncthreads()
        if cuda.threadIdx.y * size < shape.tile:
            _multiply(shape, weights, 0, half, offsets, seen, held, sums)
            add_extra(shape, c, half, kinds, sums)
            store(shape, c, row, half, sums, out)

    return compute


@cache
def _of_reals(form):
    expand, store, parts, fragments = _expander(form), storer(form), 2 if form.offsets else 1, form.fragments
    size = fragments * PIXELS

    @inline
    def compute(shape, left, weights, offsets, c, begin, end, row, seen, images, kinds, half, held, sums, out):
        """Sum in the documented order: products, then codes times offsets of weights, then x's offset."""
        values = cuda.local.array((fragments, SIDES, CHANNELS), np.float64)
        clear(values)
        terms, multiplies = c.sums.shape[1] - 1, cuda.threadIdx.y * size < shape.tile
        for part in range(parts):
            first, last = (0, terms) if part == 0 else (terms, terms + 1)
            for t in range(c.terms.shape[0]):
                expand(shape, left, c.terms[t, 0], c.terms[t, 1], begin, end, half, held)
                cuda.syncthreads()
                if multiplies:
                    for s in range(first, last):
                        _multiply(shape, weights, s, half, offsets, seen, held, sums)
                        add_products(shape, c, t, s, half, images, kinds, sums, values)
                cuda.syncthreads()
        if multiplies:
            add_offsets(shape, c, half, images, kinds, values)
            store(shape, c, row, half, values, out)

    return compute


@inline
def image_at(shape, row):
    return np.int32(np.int32(row) // np.int32(shape.pixels))


@cache
def _kernel(form):
    compute, fragments = (_of_reals if form.real else _of_integers)(form), form.fragments

    @cuda.jit
    def depthwise_tile(shape, left, weights, places, offsets, c, out):
        held = cuda.shared.array(0, np.uint64, alignment=16)
        sums = cuda.local.array((fragments, SIDES, CHANNELS), np.int32)
        images = cuda.local.array((fragments, SIDES), np.int32)
        kinds = cuda.local.array((fragments, SIDES), np.int32)
        seen = cuda.local.array((fragments, 2), np.int32)  # slot under the first tap, its class' row of offsets
        first, nothing = cuda.blockIdx.x * shape.tile, np.uint32(0)
        last = min(first + shape.tile, shape.rows) - 1
        begin, end = image_at(shape, first), image_at(shape, last)
        begin = begin * shape.image_pixels + places[first - begin * shape.pixels, FIRST]
        end = end * shape.image_pixels + places[last - end * shape.pixels, LAST] + 1
        of_warp = first + cuda.threadIdx.y * (fragments * PIXELS)
        row = of_warp + place_in_fragment()[0]
        for r in range(fragments):
            at = min(of_warp + r * PIXELS + cuda.threadIdx.x % PIXELS, last)
            image = image_at(shape, at)
            place = at - image * shape.pixels
            seen[r, 0] = image * shape.image_pixels + places[place, BEGIN] - begin
            seen[r, 1] = places[place, KIND] * offsets.shape[1]
            for side in range(SIDES):
                at = min(row + place_of(r, side), last)
                images[r, side] = image_at(shape, at)
                kinds[r, side] = places[at - images[r, side] * shape.pixels, KIND]
        if cuda.threadIdx.x < 2 and cuda.threadIdx.y == 0:
            ptx.write_bytes16(held, SLOT * shape.zero + 2 * cuda.threadIdx.x, nothing, nothing, nothing, nothing)
        half = cuda.blockIdx.y
        while half < shape.halves:
            compute(shape, left, weights, offsets, c, begin, end, row, seen, images, kinds, half, held, sums, out)
            cuda.syncthreads()
            half += cuda.gridDim.y

    return depthwise_tile
