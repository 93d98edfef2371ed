"""What both convolutions do with a tile: 4 pixels of one border class by blocks of 32 output channels."""

from itertools import product
from typing import NamedTuple

import numpy as np

from .compiled import entry, inline, inner
from .deal import next_task, share
from .finish import Lanes
from .lines import empty_lines
from .micro import LANES, TILE, add_counts, count_tile, plane_counts, popcount

IN_REGISTERS = plane_counts is not None  # a branch on a global is not even compiled where it is False
_CUT = 1 << 9  # words of a block that are laid out at a time: as bits, a byte each, 1 MiB


def lay_out_blocks(words, groups, lay_out, out):
    """Words [planes channels words] as out [planes blocks words 32], channels side by side and then `lay_out`."""
    planes, channels, length = words.shape
    group_lanes, group_blocks = channels // groups, out.shape[1] // groups
    for plane, block, start in product(range(planes), range(out.shape[1]), range(0, length, _CUT)):
        group, first = block // group_blocks, block % group_blocks * LANES
        valid = min(LANES, group_lanes - first)
        channel, stop = group * group_lanes + first, min(start + _CUT, length)
        lanes = np.zeros((stop - start, LANES), np.uint64)
        lanes[:, :valid] = words[plane, channel : channel + valid, start:stop].T
        out[plane, block, start:stop] = lay_out(lanes)


class Places(NamedTuple):
    """Tiles that are worked on together."""

    origins: np.ndarray  # int64[tiles 4]: the words where their pixels begin
    rows: np.ndarray  # int64[tiles 4]: of the result
    kinds: np.ndarray  # int64[tiles]: border classes
    sizes: np.ndarray  # int64[tiles]: how many pixels count


@inner
def empty_places(tiles):
    origins, rows = np.empty((tiles, TILE), np.int64), np.empty((tiles, TILE), np.int64)
    return Places(origins, rows, np.empty(tiles, np.int64), np.empty(tiles, np.int64))


@inline
def place_tiles(plan, low, band, word, places):
    """Fill in `band` tiles from tile `low` on, whose pixels begin `word` words behind the plan's."""
    pixels, counts, classes, origin = plan.pixels, plan.counts, plan.classes, plan.origin
    tile, image = np.uint64(low % counts.size), low // counts.size
    start, row = image * plan.image_words + word, image * origin.size
    for i in range(np.uint64(band)):
        places.kinds[i], places.sizes[i] = classes[tile], counts[tile]
        for p in range(np.uint64(TILE)):
            places.origins[i, p] = start + origin[np.uint64(pixels[tile, p])]
            places.rows[i, p] = row + pixels[tile, p]
        tile += np.uint64(1)
        if tile == np.uint64(counts.size):
            tile, start, row = np.uint64(0), start + plan.image_words, row + origin.size


class Group(NamedTuple):
    """Output channels that see the same channels of x."""

    block: int  # the first of its own
    channel: int  # likewise
    channels: int


@inline
def lanes_of(group, block):
    lane = (block - group.block) * LANES
    return Lanes(block * LANES, group.channel + lane, min(LANES, group.channels - lane), 1)


@inline
def sum_codes(words, first, planes, origins, tile, runs, start, stop, ones, t):
    """ones[t, p] = sum of the codes of a term's planes over runs start .. stop, for pixels origins[tile, p]."""
    for p in range(TILE):
        total = 0
        for j in range(planes):
            count, plane = 0, np.uint64(first + j)  # unsigned: Numba checks signed indices for negative values
            for r in range(start, stop):
                at = np.uint64(origins[tile, p] + runs[r, 0])
                for k in range(np.uint64(runs[r, 2])):
                    count += popcount(words[plane, at + k])
            total += count << j
        ones[t, p] = total


@inline
def count(
    left, i0, planes_i, origins, tile, right, j0, planes_j, block, runs, start, stop, differ, valid, counts, total
):  # fmt: skip
    """total[p, lane] = sum_ij 2^(i+j) |left_i & right_j| over the planes of two terms and runs start .. stop.

    Of the first `valid` lanes; others may be anything. The pixels begin at words origins[tile, p]. Where `differ` is -1
    and not 0, |left_i ^ right_j|.
    """
    plane, block_size = left.shape[1], right.shape[2] * LANES
    for j in range(planes_j):  # a plane of weights, the longer one, stays in L1
        weight = ((j0 + j) * right.shape[1] + block) * block_size
        if IN_REGISTERS:
            if j == 0:
                plane_counts(
                    left, i0 * plane, planes_i, plane, origins, tile * TILE, right, weight, runs, start, stop, differ,
                    total, valid,
                )  # fmt: skip
            else:
                plane_counts(
                    left, i0 * plane, planes_i, plane, origins, tile * TILE, right, weight, runs, start, stop, differ,
                    counts, valid,
                )  # fmt: skip
                add_counts(counts, j, total)
        else:
            for i in range(planes_i):
                word = (i0 + i) * plane
                if i + j == 0:
                    count_tile(left, word, origins, tile * TILE, right, weight, runs, start, stop, differ, total)
                else:
                    count_tile(left, word, origins, tile * TILE, right, weight, runs, start, stop, differ, counts)
                    add_counts(counts, i + j, total)


@inline
def next_stretch(dealt, worker, chunks, parts, tiles):
    """(chunk of channels, first tile, last): the next task of a product for a thread, of no tiles if none is left."""
    task = next_task(dealt, worker)
    if task < 0:
        return -1, 0, 0
    first, last = share(task % parts, parts, tiles)
    return task // parts, first, last


@inline
def blocks(first, blocks, together, chunk, chunks):
    """The blocks of a chunk: so many `together` are shared out, 2 or 4, that is whole words."""
    low, high = share(chunk, chunks, -(-blocks // together))
    return first + low * together, first + min(blocks, high * together)


@entry
def differing(w_terms):
    """True where the values of w are +-a number: u*v then is a matter of where bits of x's planes and w differ."""
    return w_terms[0, 1] == 1 and 2 * w_terms[0, 2] + w_terms[0, 3] == 0


class Added(NamedTuple):
    """A sum is fixed[kind, lane] + along * |a| + step * sum_ij 2^(i+j) |a_j & b_i|.

    Or where `differ` is -1 and not 0, fixed - (step_x * step_w / 2) * sum_j 2^j |a_j ^ b|.
    """

    fixed: np.ndarray  # of the type that results are summed in
    along: int
    step: int
    differ: int


@inner
def as_counts(extra, x_terms, w_terms):
    """What is added to counts; where bits of x and w differ `fill_added` has to fill it in."""
    step, along = x_terms[0, 3] * w_terms[0, 3], x_terms[0, 3] * w_terms[0, 2]
    if differing(w_terms):
        return Added(np.empty_like(extra), 0, -(step // 2), -1)
    return Added(extra, along, step, 0)


class Limits(NamedTuple):
    """Thresholds on counts themselves, [kinds lanes], of no elements where there are none: a bit of a result is whether
    a count is above its limit, or with `turned` is not."""

    counts: np.ndarray  # int64
    least: np.ndarray  # uint16, where counts are: the first that is above
    turned: int  # all ones or none


@inner
def empty_limits(like, step):
    """Of no elements where `like` has none."""
    least = np.empty((0, 0), np.uint16) if IN_REGISTERS else empty_table(like, np.uint16)
    return Limits(empty_table(like, np.int64), least, np.uint64(-(step < 0)))


@inline
def fill_added(x, w, finish, lanes, added, limits):
    """What is added to counts of lanes first .. last, or what is compared with them."""
    if limits.counts.size:
        fill_fixed(finish.extra, x.terms, w.terms, w.sums, w.inside, added.differ, lanes, limits.counts)
        turn_to_limits(finish.thresholds, added.step, lanes, limits.counts)
        if not IN_REGISTERS:
            fill_least(limits.counts, lanes, limits.least)
    elif added.differ:
        fill_fixed(finish.extra, x.terms, w.terms, w.sums, w.inside, added.differ, lanes, added.fixed)


@inner
def fill_fixed(extra, x_terms, w_terms, sums, inside, differ, lanes, fixed):
    """fixed[kind, lane] of lanes first .. last: `extra`, and for differing bits what they add to it.

    As |a_j & b| is (|a_j| + |b| - |a_j ^ b|) / 2, |a| cancels; |b| comes in here, from the sums base_w * inside +
    step_w * |b|. In int64 nothing wraps.
    """
    times = x_terms[0, 3] * ((1 << x_terms[0, 1]) - 1) if differ else 0
    for kind in range(extra.shape[0]):
        base = w_terms[0, 2] * inside[kind]
        for lane in range(np.uint64(lanes[0]), np.uint64(lanes[1])):
            fixed[kind, lane] = extra[kind, lane] + times * ((sums[kind, 0, lane] - base) // 2)


@inner
def is_power(number):
    """True for powers of two."""
    return number > 0 and number & (number - 1) == 0


@inner
def turn_to_limits(thresholds, step, lanes, limits):
    """int64 limits[kind, lane] of lanes first .. last from what is fixed, which they held before.

    fixed + step * c > threshold where the count c > limit, or for a negative step is not. The step is a power of two,
    or minus one.
    """
    turned, shift = -(step < 0), np.int64(0)
    while abs(step) >> (shift + 1):
        shift += 1
    for kind in range(limits.shape[0]):
        for lane in range(np.uint64(lanes[0]), np.uint64(lanes[1])):
            limits[kind, lane] = ((np.int64(thresholds[0, lane]) - limits[kind, lane]) >> shift) ^ turned


@inner
def fill_least(limits, lanes, least):
    """uint16 least[kind, lane]: the count c > limit where c >= this, for counts of 16 bits below the last."""
    for kind in range(limits.shape[0]):
        for lane in range(np.uint64(lanes[0]), np.uint64(lanes[1])):
            least[kind, lane] = max(-1, min(limits[kind, lane], 65534)) + 1


@inner
def empty_table(like, dtype):
    """A table of so many lanes, of a dtype, for some kinds; from a cache line on."""
    return empty_lines(like.size // LANES, dtype).reshape(like.shape)


@inner
def empty_dots(like):
    """Sums of a tile, and as many of what is added to them, of the dtype of an array."""
    both = empty_lines(2 * TILE, like.dtype)
    return both[:TILE], both[TILE:]
