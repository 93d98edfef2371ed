"""The last step of tensor cores' products, straight from the registers that hold the sums.

Lane 4 * g + t has, of pixels g and g + 8 of each row of instructions, channels 8n + 2t and 8n + 2t + 1 for every n.
Its values are what `conv` makes: table + along * |a| + step * sum. Integers are stored two at a time. Of codes the four
lanes of a pixel join their bits by two shuffles, so that lane t has the half-word of the t-th block of 32 channels.
"""

from functools import cache

import numpy as np

from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import ALL, everywhere, low_bits
from ..tensor_cores import ptx
from ..tensor_cores.stages import CHANNELS, PIXELS, SIDES, place_in_fragment
from .added import adder, orderer
from .finish import put_bits

BLOCKS = 4  # of 32 channels that are finished together: one for each of the four lanes of a pixel
_COLUMNS = LANES // CHANNELS  # of instructions in a block


@cache
def finisher(tile, form, part=0):
    """Build the epilogue of a warp's sums from part `part` on; a part is one side of a row of instructions by 4 blocks.

    It stores what a `stages.Form` says: planes of codes, integers, or what is near. Each part is a function that calls
    the next one: registers have no indices that vary, and the compiler would keep a loop over all this code.
    """
    chunks = -(-tile.blocks // BLOCKS)
    if part == tile.rows * SIDES * chunks:
        return _nothing
    r, side, skip = part // (SIDES * chunks), part // chunks % SIDES, part % chunks * BLOCKS
    rows, across, size, of_warp = tile.rows, tile.across, tile.pixels, tile.blocks
    blocks = min(of_warp - skip, BLOCKS)
    columns = blocks * _COLUMNS
    evaluate = _evaluator(form.along, r, side, skip * _COLUMNS, columns)
    if form.near:
        store = _near_storer(blocks)
    else:
        store = _code_storer(blocks, form.planes) if form.planes else _value_storer(blocks, form.paired)
    if form.added is not None:
        store = _sum_storer(form.added, blocks, form.planes, store)
    finish_rest = finisher(tile, form, part + 1)

    @inline
    def finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out):
        warp, (g, _) = cuda.threadIdx.y, place_in_fragment()
        values = cuda.local.array((columns, 2), np.int32)
        pixel = (warp // across * rows + r) * PIXELS + side * 8 + g
        block = first + warp % across * of_warp + skip
        evaluate(terms, last.extra, kinds[pixel], block, end, sums, ones, values)
        inside = cuda.blockIdx.x * size + pixel < shape.rows
        store(shape, last, group, block, end, inside, values, out, out_rows[pixel])
        finish_rest(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out)

    return finish


@inline
def _nothing(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out):
    pass


@inline
def lane_of(block, end, n):
    """Return the first lane of the tables for channel column n from a block on, at most the last block's."""
    return min(block + n // _COLUMNS, end - 1) * LANES + n % _COLUMNS * CHANNELS + 2 * place_in_fragment()[1]


@cache
def _evaluator(along, r, side, skip, columns):
    @inline
    def evaluate(terms, extra, kind, block, end, sums, ones, values):
        """values int32[columns 2] of one pixel, modulo 2^32; extra [classes lanes]."""
        ones_along, step = np.int32(0), np.int32(terms.step)
        if along:
            ones_along = ones[r, side]
            ones_along += cuda.shfl_xor_sync(ALL, ones_along, 1)
            ones_along += cuda.shfl_xor_sync(ALL, ones_along, 2)
            ones_along = np.int32(ones_along * np.int32(terms.along))
        for n in range(columns):
            first, second = ptx.read_pair(extra, kind * extra.shape[1] + lane_of(block, end, n))
            values[n, 0] = np.int32(first + ones_along + step * sums[r, skip + n, side, 0])
            values[n, 1] = np.int32(second + ones_along + step * sums[r, skip + n, side, 1])

    return evaluate


@cache
def _value_storer(blocks, paired):
    columns = blocks * _COLUMNS

    @inline
    def store(shape, last, group, block, end, inside, values, out, row):
        """Write values to out[row channels], two channels at a time where every pair of them begins at 8 bytes."""
        before = (block - group * shape.group_blocks) * LANES + 2 * place_in_fragment()[1]  # channels of the group
        at, left = row * out.shape[1] + group * shape.group_lanes + before, np.int32(shape.group_lanes - before)
        if inside:
            for n in range(columns):
                if paired:
                    if n * CHANNELS < left:
                        ptx.write_pair(out, at + n * CHANNELS, values[n, 0], values[n, 1])
                else:
                    for e in range(2):
                        if n * CHANNELS + e < left:
                            ptx.write(out, at + n * CHANNELS + e, values[n, e])

    return store


@cache
def _sum_storer(added, blocks, planes, store_result):
    """Add the shortcut, store sums where they are wanted besides codes, and then the result."""
    add, order, store_sums = adder(added, blocks), orderer(blocks * _COLUMNS), _value_storer(blocks, added.paired)
    stored, ordered = added.stored, added.real and planes

    @inline
    def store(shape, last, group, block, end, inside, values, out, row):
        add(shape, last, group, block, inside, values, row)
        if stored:
            store_sums(shape, last, group, block, end, inside, values, last.sums, row)
        if ordered:
            order(values)
        store_result(shape, last, group, block, end, inside, values, out, row)

    return store


@cache
def _near_storer(blocks):
    columns = blocks * _COLUMNS

    @inline
    def store(shape, last, group, block, end, inside, values, out, row):
        """Add row and value, as one number, to out int64[channels room] where it is at most the channel's bound.

        All that are near are counted, and those for which there is room are stored.
        """
        first, beyond = block * LANES + 2 * place_in_fragment()[1], np.int32(1)
        for n in range(columns):
            bounds = ptx.read_pair(last.bounds, lane_of(block, end, n))
            for e in range(2):
                beyond = min(beyond, np.int32(values[n, e] - bounds[e]))
        if inside and beyond <= 0:  # few rows are near a query
            for n in range(columns):
                bounds = ptx.read_pair(last.bounds, lane_of(block, end, n))
                for e in range(2):
                    channel = first + n * CHANNELS + e
                    if values[n, e] <= bounds[e] and channel < shape.group_lanes:
                        at = cuda.atomic.add(last.counts, channel, 1)
                        if at < out.shape[1]:
                            out[channel, at] = (np.int64(values[n, e]) << last.row_bits) | row

    return store


@cache
def _code_storer(blocks, planes):
    ballot = _quad_ballot(blocks)

    @inline
    def store(shape, last, group, block, end, inside, values, out, row):
        """Write codes to out[planes row halves]: bit p changes at each passed threshold where `changed` has bit p.

        A channel that counts downwards passes a threshold where its value is not above it, and its changes come in
        reverse.
        """
        t = place_in_fragment()[1]
        codes = cuda.local.array(planes, np.uint32)
        down, count = last.flip[min(block + t, end - 1)], last.thresholds.shape[0]
        for plane in range(planes):
            codes[plane] = everywhere(last.changed[0], plane)
        for i in range(count):
            passed = np.uint32(ballot(last.thresholds, i, block, end, values) ^ down)
            for plane in range(planes):
                up, back = everywhere(last.changed[i + 1], plane), everywhere(last.changed[count - i], plane)
                codes[plane] = np.uint32(codes[plane] ^ (passed & ((down & back) | (~down & up))))
        before = (block - group * shape.group_blocks + t) * LANES  # channels of the group
        left = shape.group_lanes - before
        if inside and t < blocks and left > 0:
            used = low_bits(left)
            for plane in range(planes):
                channel = group * shape.group_lanes + before
                put_bits(np.uint32(codes[plane] & used), channel, shape.alone, out, plane, row)

    return store


@cache
def _quad_ballot(blocks):
    columns = blocks * _COLUMNS

    @inline
    def ballot(thresholds, i, block, end, values):
        """Compare a pixel's values with threshold i, a bit a channel: lane t gets the bits of the t-th block."""
        bits, mine = cuda.local.array(blocks, np.int32), np.int32(0)
        t = place_in_fragment()[1]
        for c in range(blocks):
            bits[c] = 0
        for n in range(columns):
            first, second = ptx.read_pair(thresholds, i * thresholds.shape[1] + lane_of(block, end, n))
            if values[n, 0] > first:
                bits[n // _COLUMNS] |= np.int32(1 << (n % _COLUMNS * CHANNELS))
            if values[n, 1] > second:
                bits[n // _COLUMNS] |= np.int32(2 << (n % _COLUMNS * CHANNELS))
        for c in range(blocks):
            half = np.int32(bits[c] << (2 * t))
            half |= cuda.shfl_xor_sync(ALL, half, 1)
            half |= cuda.shfl_xor_sync(ALL, half, 2)
            if c == t:
                mine = half
        return np.uint32(mine)

    return ballot
