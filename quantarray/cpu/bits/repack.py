"""Change the packed axis: bit matrices are transposed in blocks of 64 x 64, cache lines of them at a time.

`docs/kernels/repack.md` has the algebra and what was tried.
"""

from ..llvm.transpose import (
    SQUARES,
    copy_2,
    copy_4,
    copy_8,
    empty_squares,
    stream_8,
    transpose,
    weave_1,
    weave_2,
    weave_4,
    weave_8,
    weave_rows,
)
from ..llvm.vectors import WIDTH
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel

_LEAST = 1 << 13  # words that are worth a parallel region
_LINE = 8  # words of a cache line


def repack(words, out):
    if not out.size:
        return
    words = words.reshape(words.shape[0], words.shape[1], -1)
    # Words of a row in a tile: lanes hold neighbours in out, up to a cache line, and then neighbours in words
    near = min(WIDTH, 1 << (out.shape[3] - 1).bit_length())
    early = _early(words), _early(out) if near == _LINE else 0
    tiles = words.shape[0] * -(-(out.shape[3] + early[1]) // near) * -(-(words.shape[2] + early[0]) // _LINE)
    threads.run(_repack_tiles, (words, near, early, out), tiles, threads.workers(words.size, _LEAST))


def _early(a):
    """Return by how many words the first tile begins before the array, so that the others begin on cache lines."""
    return a.ctypes.data // 8 % _LINE


@inner
def _load(words, row, a, near, first, count, squares):
    """Load `count` words of the 64 * near rows from a on, the rows of a matrix one below the other in a lane.

    All words of a cache line are loaded at once: rows a power of two apart evict each other from the cache. Words past
    the wanted words or rows are read too, if they exist, and go to lanes that nobody stores.
    """
    rows, length = words.shape[1], words.shape[2]
    valid = min(64 * near, rows - a)
    flat, begin = words.reshape(-1), (row * rows + a) * length + first
    inside = begin + (64 * near - 1) * length + _LINE <= flat.size
    if inside and near == 8 and _LINE % length == 0:  # whole rows, some to a line
        for i in range(0, 64, _LINE // length):
            weave_rows(flat, begin + i * length, 64 * length, squares, i * WIDTH, length)
    elif inside:
        for i in range(64):
            at, apart, to = begin + i * length, 64 * length, i * WIDTH
            if near == 8:
                weave_8(flat, at, apart, squares, to)
            elif near == 4:
                weave_4(flat, at, apart, squares, to)
            elif near == 2:
                weave_2(flat, at, apart, squares, to)
            else:
                weave_1(flat, at, apart, squares, to)
    else:
        for i in range(valid):
            for k in range(count):
                squares[_lane(k, near) + (i >> 6) + (i & 63) * WIDTH] = flat[begin + i * length + k]
    for i in range(valid, -(-valid // 64) * 64):
        for k in range(count):
            squares[_lane(k, near) + (i >> 6) + (i & 63) * WIDTH] = 0


@inner
def _lane(k, near):
    """Return the place of the first word of the first of the `near` matrices of the k-th words."""
    return k * near // WIDTH * SQUARES + k * near % WIDTH


@inner
def _store(squares, near, row, first, count, new_word, new_words, whole, out):
    """Store the matrices of words first .. first + count as 64 rows each, `new_words` words from `new_word` on."""
    old_words, apart = -(-out.shape[1] // 64), out.shape[2] * out.shape[3]
    flat = out.reshape(-1)
    for k in range(count):
        b, p = (first + k) // old_words, (first + k) % old_words * 64
        at, rows = _lane(k, near), min(64, out.shape[1] - p)
        to = (row * out.shape[1] + p) * apart + b * out.shape[3] + new_word
        if new_words == 8 and whole:
            for j in range(rows):
                stream_8(squares, at + j * WIDTH, flat, to + j * apart)
        elif new_words == 8:
            for j in range(rows):
                copy_8(squares, at + j * WIDTH, flat, to + j * apart)
        elif new_words == 4:
            for j in range(rows):
                copy_4(squares, at + j * WIDTH, flat, to + j * apart)
        elif new_words == 2:
            for j in range(rows):
                copy_2(squares, at + j * WIDTH, flat, to + j * apart)
        else:
            for j in range(rows):
                for n in range(new_words):
                    flat[to + j * apart + n] = squares[at + j * WIDTH + n]


@Kernel
def _repack_tiles(words, near, early, out, first, last):
    lines, groups = -(-(words.shape[2] + early[0]) // _LINE), -(-(out.shape[3] + early[1]) // near)
    squares = empty_squares(near * SQUARES)
    whole = out.shape[3] % _LINE == 0  # each row of out begins where the first does in a cache line
    for tile in range(first, last):
        at, rest = tile % lines * _LINE - early[0], tile // lines
        row, to = rest // groups, rest % groups * near - early[1]
        count, new_words = min(words.shape[2], at + _LINE), min(out.shape[3], to + near)
        at, to = max(0, at), max(0, to)
        _load(words, row, to * 64, near, at, count - at, squares)
        for square in range(-(-(count - at) * near // WIDTH)):
            transpose(squares, square * SQUARES)
        _store(squares, near, row, at, count - at, to, new_words - to, whole, out)
