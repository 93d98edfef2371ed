"""Values to packed codes in one pass, by how many ascending thresholds each value is at least.

Codes of one and two bits are packed 8 half-words at a time, by a ballot a threshold. Of more bits, a lane reads 16
bytes of values and finds their ranks in a tree of thresholds, so that all lanes take the same steps: 8 bits are 8
compares, where one for each threshold would be 255. A warp's codes are bytes in shared memory until each lane packs 32
of them. Values of 8 and 16 bits are widened in a register, where the compare is exact.
"""

from functools import cache

import numpy as np

from ...core.format import WORD_BITS
from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import ballot, everywhere, lanes_left, low_bits, place_of_batch, place_of_lane
from ..tensor_cores import ptx
from .pack import WORDS, take_bits

BATCH = 8  # half-words that a warp packs at a time, whose values it reads before it looks at the first: a sector out
ROWS = 8  # that a warp strides over
_LINE = 16  # bytes of the widest load
_FAR = 1 << 20  # elements, more than a lane looks at
_TOP = 3  # levels of a tree in registers
_AHEAD = 4  # groups of 4 values that a lane reads before it looks at the first
_VALUES, _NODES = 4 * _AHEAD, 1 << _TOP


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    halves, planes = launch.halves(out), out.shape[0]
    tables = tuple(launch.resident(a) for a in (thresholds, codes, row))
    before, length, after = x.shape
    if _is_short(x, thresholds, planes):
        x, halves = _joined(x, halves, row)
        grid, block = launch.rows_by_halves(halves.shape[1], -(-halves.shape[2] // BATCH), ROWS)
        launch.run(_short(planes, thresholds.shape[2], reader(x)), grid, block, x, *tables, nan, halves)
        return
    one = thresholds.size == thresholds.shape[2]
    form = planes, thresholds.shape[2].bit_length(), one, _is_plain(codes), reader(x)
    if after == 1:
        if one and length % WORD_BITS == 0:
            x, halves = x.reshape(1, -1, 1), halves.reshape(planes, 1, -1)
        rows, length, _ = x.shape
        lines = launch.address(x) % _LINE == 0 and (rows == 1 or length % 4 == 0)
        (wide, high), block = launch.rows_by_halves(rows, -(-halves.shape[2] // LANES), ROWS)
        grid = min(wide, launch.BUSY), high
        kernel = _along(*form, fours[x.dtype] if lines else None, launch.WARPS)
    else:
        kernel = _across(*form)
        grid, block = launch.rows_by_items(before * halves.shape[2], after)
    launch.run(kernel, grid, block, x, *tables, group, nan, halves)


def _is_plain(codes):
    """True if the code of a value is its rank."""
    return isinstance(codes, np.ndarray) and bool((codes == np.arange(codes.shape[2])).all())


def _is_short(x, thresholds, planes):
    """True if the codes are of one bit or two, of thresholds that a whole row shares, along an axis without gaps."""
    parts, count = thresholds.shape[1:]
    return x.shape[2] == 1 == parts and planes <= 2 and 0 < count < 1 << planes and launch.is_contiguous(x)


def _joined(x, halves, row):
    """Join rows of whole words, which all have the same table, by twos until they are as long as a batch."""
    (rows, length, _), planes = x.shape, halves.shape[0]
    while row.size == 1 and length % (2 * LANES) == 0 and length < BATCH * LANES and rows % 2 == 0:
        rows, length = rows // 2, 2 * length
    if length != x.shape[1]:
        x, halves = x.reshape(rows, length, 1), halves.reshape(planes, rows, length // LANES)
    return x, halves


def reader(x):
    if x.dtype == np.uint16:
        return _of_bfloat16
    return _as_float64 if x.dtype == np.float64 else _as_float32


@inline
def _as_float32(value):
    return np.float32(value)


@inline
def _as_float64(value):
    return np.float64(value)


@inline
def _of_bfloat16(value):
    """bfloat16 is the upper half of float32."""
    return np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)


@inline
def _four_float32(x, at, values, first):
    words = ptx.read_bytes16(x, at)
    for k in range(4):
        values[first + k] = words[k].view(np.float32)


@inline
def _four_float64(x, at, values, first):
    for k in range(0, 4, 2):
        words = ptx.read_bytes16(x, at + k)
        for i in range(2):
            bits = np.uint64(words[2 * i + 1]) << np.uint64(32) | np.uint64(words[2 * i])
            values[first + k + i] = bits.view(np.float64)


@inline
def _four_float16(x, at, values, first):
    words = ptx.read_bytes8(x, at)
    for k in range(4):
        values[first + k] = libdevice.half2float(np.int16(words[k // 2] >> np.uint32(16 * (k % 2))))


@inline
def _four_bfloat16(x, at, values, first):
    words = ptx.read_bytes8(x, at)
    for k in range(4):
        values[first + k] = _of_bfloat16(np.uint16(words[k // 2] >> np.uint32(16 * (k % 2))))


@inline
def _four_uint8(x, at, values, first):
    word = ptx.read_bytes4(x, at)
    for k in range(4):
        values[first + k] = np.float32(np.uint8(word >> np.uint32(8 * k)))


@inline
def _four_int8(x, at, values, first):
    word = ptx.read_bytes4(x, at)
    for k in range(4):
        values[first + k] = np.float32(np.int8(word >> np.uint32(8 * k)))


fours = {
    np.dtype(np.float32): _four_float32, np.dtype(np.float64): _four_float64, np.dtype(np.float16): _four_float16,
    np.dtype(np.uint16): _four_bfloat16, np.dtype(np.uint8): _four_uint8, np.dtype(np.int8): _four_int8,
}  # fmt: skip


@inline
def _plant(thresholds, depth, tree, top):
    """Lay ascending thresholds out as a tree in shared memory: the nodes below n are 2 n and 2 n + 1, the root is 1.

    Lanes that are as far down read nodes side by side, so that up to 32 nodes are in different banks. Nodes without a
    threshold are NaN, which no value is at least. The first levels are copied to the registers `top`.
    """
    node = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    while node < 1 << depth:
        level = np.int32(31) - np.int32(cuda.clz(np.int32(node)))
        place = (2 * (node - (1 << level)) + 1 << depth - 1 - level) - 1
        tree[node] = np.nan
        if 0 <= place < thresholds.shape[2]:
            tree[node] = thresholds[0, 0, place]
        node += cuda.blockDim.x * cuda.blockDim.y
    cuda.syncthreads()
    if depth >= _TOP:
        for node in range(1, 1 << _TOP):
            top[node] = tree[node]


@inline
def _rank_in_tree(value, top, tree, depth):
    """Count the thresholds that a value is at least, in a tree of `_plant`; NaN is at least none.

    The first three of its levels are read from registers.
    """
    node, levels = np.uint32(1), depth
    if depth >= _TOP:
        first = value >= top[1]
        second = value >= (top[3] if first else top[2])
        low, high = (top[5] if second else top[4]), (top[7] if second else top[6])
        third = value >= (high if first else low)
        node, levels = np.uint32(8 + 4 * first + 2 * second + third), depth - _TOP
    for _ in range(levels):
        node = np.uint32(node << np.uint32(1)) + np.uint32(value >= tree[node])
    return np.uint32(node - np.uint32(1 << depth))


@inline
def _rank_in_table(value, thresholds, begin, depth):
    """Count the thresholds that a value is at least, of those from place `begin` on."""
    count, passed = np.int32(thresholds.shape[2]), np.int32(0)
    for down in range(depth):
        at = np.int32(passed + np.int32(1 << depth - 1 - down))
        if value >= ptx.read(thresholds, begin + min(at, count) - 1) and at <= count:
            passed = at
    return np.uint32(passed)


@cache
def _short(planes, count, read):
    """Make a kernel for each number of planes and thresholds, so that what a lane keeps of them stays in registers."""
    kind = np.float64 if read is _as_float64 else np.float32

    @cuda.jit
    def encode_short(x, thresholds, codes, row, nan, out):
        """x[rows length 1]: a warp reads 8 half-words of values, then lane k keeps the ballots of the k-th.

        Bit p of a code changes at each threshold that a value is at least, where bit p of the codes on both sides does.
        """
        values, cuts = cuda.local.array(BATCH, kind), cuda.local.array(count, kind)
        above = cuda.local.array(count, np.uint32)
        lane, first, r, step = place_of_batch(BATCH)
        rows, length, _ = x.shape
        left, half, unordered = lanes_left(length, first), first + lane, False
        while r < rows:
            table, at = row[min(r, row.shape[0] - 1)], r * length + first * LANES + lane
            for k in range(BATCH):
                values[k] = 0
                if k * LANES < left:
                    values[k] = read(ptx.read(x, at + k * LANES))
            for t in range(count):
                cuts[t], above[t] = thresholds[table, 0, t], 0
            for k in range(BATCH):
                unordered |= values[k] != values[k]
                for t in range(count):
                    bits = ballot(values[k] >= cuts[t])
                    if lane == k:
                        above[t] = bits
            if lane < BATCH and half < out.shape[2]:
                for plane in range(planes):
                    bits = everywhere(codes[table, 0, 0], plane)
                    for t in range(count):
                        changed = everywhere(codes[table, 0, t] ^ codes[table, 0, t + 1], plane)
                        bits = np.uint32(bits ^ (above[t] & changed))
                    out[plane, r, half] = bits & low_bits(length - half * LANES)
            r += step
        if unordered:
            nan[0] = True

    return encode_short


@cache
def _coder(depth, one, plain):
    """Make the function that finds the codes of four values, as the bytes of a word."""

    @inline
    def four_codes(values, top, tree, thresholds, codes, table):
        word, count = np.uint32(0), thresholds.shape[2]
        for k in range(4):
            if one:
                rank = _rank_in_tree(values[k], top, tree, depth)
            else:
                rank = _rank_in_table(values[k], thresholds, table * count, depth)
            if not plain:
                rank = np.uint32(ptx.read(codes, (0 if one else table * (count + 1)) + rank))
            word |= np.uint32(rank << np.uint32(8 * k))
        return word

    return four_codes


@cache
def _along(planes, depth, one, plain, read, read_four, warps):
    """Make a kernel for x[rows length 1]: a warp takes 32 half-words, its lanes 4 neighbours at a time."""
    kind = np.float64 if read is _as_float64 else np.float32
    four_codes, nodes, room = _coder(depth, one, plain), 1 << depth if one else 1, (warps, WORDS * LANES)

    @cuda.jit
    def encode_along(x, thresholds, codes, row, group, nan, out):
        tree, values = cuda.shared.array(nodes, kind), cuda.local.array(_VALUES, kind)
        top = cuda.local.array(_NODES, kind)
        tiles = cuda.shared.array(room, np.uint32, alignment=_LINE)
        words = cuda.local.array(WORDS, np.uint32)
        if one:
            _plant(thresholds, depth, tree, top)
        lane, number, r, step = place_of_lane()
        warp = (cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x) // LANES
        rows, length, _ = x.shape
        halves, parts, unordered = out.shape[2], thresholds.shape[1], False
        while r < rows:
            first = number * LANES
            while first < halves:
                element = first * LANES + 4 * lane
                part, rest = np.int64(0), np.int32(0)
                if parts > 1:
                    part = element // group
                    rest = np.int32(min((part + 1) * group - element, _FAR))
                table = row[min(r, row.shape[0] - 1)] * parts
                left, whole = np.int32(min(length - element, _FAR)), (first + LANES) * LANES <= length
                for begin in range(0, WORDS, _AHEAD):
                    for k in range(_AHEAD):
                        skip = np.int32(4 * LANES * (begin + k))
                        if read_four is not None and whole:
                            read_four(x, r * length + element + skip, values, 4 * k)
                        else:
                            for i in range(4):
                                values[4 * k + i] = 0
                                if skip + i < left:
                                    values[4 * k + i] = read(ptx.read(x, r * length + element + skip + i))
                    for k in range(_AHEAD):
                        for i in range(4):
                            unordered |= values[i] != values[i]
                        tiles[warp, (begin + k) * LANES + lane] = four_codes(
                            values, top, tree, thresholds, codes, table + part
                        )
                        for i in range(4, _VALUES):  # no index of registers that a loop has: it may stay a loop
                            values[i - 4] = values[i]
                        if parts > 1:
                            rest -= np.int32(4 * LANES)
                            while rest <= 0:
                                part, rest = min(part + 1, parts - 1), np.int32(rest + min(group, _FAR))
                cuda.syncwarp()
                half = first + lane
                if half < halves:
                    for k in range(0, WORDS, 4):
                        words[k], words[k + 1], words[k + 2], words[k + 3] = ptx.read_bytes16(
                            tiles, (warp * LANES + lane) * WORDS + k
                        )
                    inside = low_bits(length - half * LANES)
                    for plane in range(planes):
                        out[plane, r, half] = take_bits(words) & inside
                cuda.syncwarp()
                first += cuda.gridDim.x * (cuda.blockDim.x // LANES) * LANES
            r += step
        if unordered:
            nan[0] = True

    return encode_along


@cache
def _across(planes, depth, one, plain, read):
    """Make a kernel for each number of planes, so that what a thread makes stays in registers."""
    kind = np.float64 if read is _as_float64 else np.float32
    four_codes, nodes = _coder(depth, one, plain), 1 << depth if one else 1

    @cuda.jit
    def encode_across(x, thresholds, codes, row, group, nan, out):
        """x[before length after]: a thread takes 32 elements of a row, its neighbour those of the next row.

        So a warp reads 32 neighbours each time, and a thread has its own half a word of each plane: packing along an
        earlier axis transposes without a ballot or shared memory.
        """
        tree, values, top = cuda.shared.array(nodes, kind), cuda.local.array(4, kind), cuda.local.array(_NODES, kind)
        words = cuda.local.array(WORDS, np.uint32)
        if one:
            _plant(thresholds, depth, tree, top)
        a, item = cuda.grid(2)
        before, length, after = x.shape
        halves, parts, unordered = out.shape[2], thresholds.shape[1], False
        while item < before * halves and a < after:
            b = item // halves
            half = item - b * halves
            first, r = half * LANES, b * after + a
            left = np.int32(min(length - first, LANES))
            table = row[min(r, row.shape[0] - 1)] * parts
            if parts > 1:
                table += min(first, length - 1) // group
            for k in range(WORDS):
                for i in range(4):
                    values[i] = 0
                    if 4 * k + i < left:
                        values[i] = read(ptx.read(x, (b * length + first + 4 * k + i) * after + a))
                for i in range(4):
                    unordered |= values[i] != values[i]
                for i in range(1, WORDS):
                    words[i - 1] = words[i]
                words[WORDS - 1] = four_codes(values, top, tree, thresholds, codes, table)
            inside = low_bits(np.int64(left))
            for plane in range(planes):
                out[plane, r, half] = take_bits(words) & inside
            item += cuda.gridDim.y * cuda.blockDim.y
        if unordered:
            nan[0] = True

    return encode_across
