"""Share the tile of both convolutions: output pixels by output channels, counted in registers.

A warp takes a few pixels and, lane by lane, 32 output channels of a few blocks. The words of the contraction come
through shared memory a stage at a time. Pixels of all border classes share a tile: a table has the place of the word
under each weight word for a pixel's class. If that is outside the image, a zero is counted, which adds nothing to
|a & b|. `docs/kernels/conv.md` has the algebra, and why the form is AND.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import ALL, warp_sum

OUTSIDE = -1


class Tile(NamedTuple):
    """Cut the work of a thread block."""

    warps: int
    pixels: int  # of a warp; its lanes share them
    blocks: int  # of 32 channels; a lane takes a channel of each
    words: int  # of the contraction in shared memory at a time


class Taps(NamedTuple):
    """A `Plan` for pixels of any class side by side."""

    places: object  # int64[pixels 3]: output pixel, border class, word at which its window begins; by class
    offsets: object  # int32[classes words]: words from there to the one under a weight word, or OUTSIDE
    parts: object  # int64[parts 2]: first word and end of each part
    paired: bool  # words come in adjacent pairs, from an even place on
    dense: bool  # every window is words side by side, as in a matrix product


class Shape(NamedTuple):
    """A set of the sizes that a kernel needs of its operands."""

    rows: int  # output pixels of all images
    pixels: int  # of one image
    image_words: int
    groups: int
    group_words: int
    group_lanes: int
    group_blocks: int
    alone: int  # 1 where no two groups' channels share a half-word of the result


def taps(plan):
    """Return the plan on the device, made once."""
    arrays = plan.pixels, plan.counts, plan.classes, plan.origin, plan.first_run, plan.runs
    return launch.cached(_taps, arrays, plan.parts)


def _taps(pixels, counts, classes, origin, first_run, runs, parts):
    places = places_of(pixels, counts, classes, origin)
    words = int((runs[:, 1] + runs[:, 2]).max(initial=0))
    offsets = np.full(((len(first_run) - 1) // parts, max(words, 1)), OUTSIDE, np.int32)
    bounds = [[words, 0] for _ in range(parts)]
    for i in range(len(first_run) - 1):
        for at, weight, length in runs[first_run[i] : first_run[i + 1]].tolist():
            offsets[i // parts, weight : weight + length] = np.arange(at, at + length)
            first, last = bounds[i % parts]
            bounds[i % parts] = [min(first, weight), max(last, weight + length)]
    bounds = np.array(bounds, np.int64)
    # An even number of words, and every other one followed by its neighbour or, outside as well, by the same
    starts = offsets[:, ::2]
    follow = offsets.shape[1] % 2 == 0 and (offsets[:, 1::2] == np.where(starts == OUTSIDE, OUTSIDE, starts + 1)).all()
    paired = follow and not (starts[starts != OUTSIDE] % 2).any() and not (places[:, 2] % 2).any()
    dense = (offsets == np.arange(offsets.shape[1])).all() and words > 0
    return Taps(launch.resident(places), launch.resident(offsets), launch.resident(bounds), bool(paired), bool(dense))


def places_of(pixels, counts, classes, origin):
    """Return `Taps.places` of a plan."""
    used = np.arange(pixels.shape[1]) < counts[:, None]
    kinds = np.broadcast_to(classes[:, None], used.shape)[used]
    return np.stack([pixels[used], kinds, origin[pixels[used]]], axis=1)


def shape_of(x, w, plan):
    pixels = plan.origin.size
    alone = w.groups == 1 or w.group_lanes % LANES == 0
    return Shape(
        x.images * pixels, pixels, plan.image_words, w.groups, w.group_words, w.group_lanes,
        w.words.shape[1] // w.groups, int(alone),
    )  # fmt: skip


def tile_for(group_blocks):
    """Return the tile for output channels of so many blocks: 128 or 64 channels by 32 pixels, or 32 channels by 64."""
    if group_blocks == 1:
        return Tile(warps=8, pixels=8, blocks=1, words=8)
    return Tile(warps=8, pixels=4, blocks=2 if group_blocks == 2 else 4, words=8)


def real_tile_for(group_blocks):
    """Return the tile if each count comes with a value: shared memory holds half as many."""
    return Tile(warps=8, pixels=4, blocks=min(group_blocks, 2), words=8)


def run(kernel, tile, shape, *args):
    """Launch a kernel on tiles of `warps * pixels` pixels."""
    blocks = grid(shape, tile.warps * tile.pixels, tile.blocks)
    launch.run(kernel, blocks, (LANES, tile.warps), shape, *args, tiled=True)


def grid(shape, pixels, blocks):
    """Return a grid of thread blocks of so many pixels along x, of so many blocks of channels, a column, along y."""
    return -(-shape.rows // pixels), min(shape.groups * -(-shape.group_blocks // blocks), launch.MOST_ROWS)


def whole_grid(shape, pixels, blocks):
    """Return a grid as `grid` does, with a thread block for each column: along y, and where these are many along z."""
    across, down = -(-shape.rows // pixels), shape.groups * -(-shape.group_blocks // blocks)
    deep = -(-down // launch.MOST_ROWS)
    return across, -(-down // deep), deep


@inline
def columns(shape, blocks):
    """Count the columns: chunks of a group's channels. Thread blocks walk over them from blockIdx.y on."""
    return shape.groups * ((shape.group_blocks + blocks - 1) // blocks)


@inline
def column_at(shape, blocks, column):
    """Return (group, first block of channels, last block of the group, its first word in a pixel) of a column."""
    chunks = (shape.group_blocks + blocks - 1) // blocks
    group = column // chunks
    first = group * shape.group_blocks + (column - group * chunks) * blocks
    return group, first, (group + 1) * shape.group_blocks, group * shape.group_words


@cache
def locator(size):
    """Make `locate` for thread blocks of `size` pixels and at least as many threads."""

    @inline
    def locate(shape, places, begins, kinds, rows):
        """Write where each pixel of the tile begins, its border class and its row of the result to shared memory.

        After the last pixel come the first ones again: if all blocks read one pixel at once, they wait for its memory.
        """
        thread = cuda.threadIdx.y * LANES + cuda.threadIdx.x
        if thread < size:
            at = cuda.blockIdx.x * size + thread
            if at >= shape.rows:
                at = np.int64(np.uint32(thread) % np.uint32(min(shape.rows, size)))
            image = at // shape.pixels if shape.rows > ALL else np.int64(np.uint32(at) // np.uint32(shape.pixels))
            place = at - image * shape.pixels
            begins[thread] = image * shape.image_words + places[place, 2]
            kinds[thread] = places[place, 1]
            rows[thread] = image * shape.pixels + places[place, 0]
        cuda.syncthreads()

    return locate


@cache
def counter(tile):
    warps, pixels, blocks, words = tile
    threads, size = warps * LANES, warps * pixels

    @inline
    def count(left, i, right, j, begins, kinds, shift, offsets, first_block, last_block, start, stop, a, b, dot, power):
        """dot[warp, p * blocks + c, lane] += 2^power |a & b| over words start .. stop of two planes.

        That is pixel p of this thread's warp by channel `lane` of block first_block + c; from last_block on the result
        means nothing. `shift` is the group's first word in a pixel. a uint64[pixels words], b uint64[blocks words
        lanes] and dot are shared; each thread reads its own of dot only.
        """
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        thread = warp * LANES + lane
        counts = cuda.local.array((pixels, blocks), np.int32)
        for p in range(pixels):
            for c in range(blocks):
                counts[p, c] = 0
        for word in range(start, stop, words):
            for at in range(thread, size * words, threads):
                pixel, k = at // words, at % words
                loaded = np.uint64(0)
                if word + k < stop:
                    offset = offsets[kinds[pixel], word + k]
                    if offset != OUTSIDE:
                        loaded = left[i, begins[pixel] + shift + offset]
                a[pixel, k] = loaded
            for at in range(thread, blocks * words * LANES, threads):
                c, k = at // (words * LANES), at // LANES % words
                block = min(first_block + c, last_block - 1)
                b[c, k, at % LANES] = right[j, block, min(word + k, stop - 1), at % LANES]
            cuda.syncthreads()
            for k in range(words):
                for c in range(blocks):
                    weight = b[c, k, lane]
                    for p in range(pixels):
                        counts[p, c] += cuda.popc(a[warp * pixels + p, k] & weight)
            cuda.syncthreads()
        for p in range(pixels):
            for c in range(blocks):
                dot[warp, p * blocks + c, lane] += np.int64(counts[p, c]) << power

    return count


@inline
def sum_codes(left, first, planes, begin, kind, offsets, start, stop):
    """Return the sum of a pixel's codes over words start .. stop, in every lane: the lanes share the words out."""
    total = np.int64(0)
    for word in range(start + cuda.threadIdx.x, stop, LANES):
        offset = offsets[kind, word]
        if offset != OUTSIDE:
            for i in range(planes):
                total += np.int64(cuda.popc(left[first + i, begin + offset])) << i
    return warp_sum(total)
