"""A model of `quantarray.cuda.tensor_cores.ptx` for the simulator: its instructions as the PTX manual describes them.

"Matrix fragments for mma.m16n8k256" and "m16n8k32": a lane holds 4 registers of A, 2 of B, 4 of C and D. Copies arrive
when they are waited for, and what they will overwrite is spoilt when they begin: so late and so early at once is no
GPU.
"""

from functools import partial

import numpy as np

M, N, K = 16, 8, 256
SPOILT = np.uint64(0xBAD0BAD0BAD0BAD0)

_lane = np.arange(32)[:, None, None]
_group, _in_group = _lane >> 2, _lane % 4
_i = np.arange(32)


def _of_a(register):
    row = _group + (8 if register % 2 else 0)
    return row, _in_group * 32 + _i + (128 if register >= 2 else 0)


def _of_b(register):
    return _in_group * 32 + _i + 128 * register, _group


def _of_c(register):
    return _group[..., 0] + (8 if register >= 2 else 0), _in_group[..., 0] * 2 + register % 2


def mma_and_popc(a, b, c):
    """Compute D = A B + C of a warp: a uint32[32 4], b uint32[32 2], c int32[32 4], by lane and register."""
    left, right, sums = np.zeros((M, K), np.int64), np.zeros((K, N), np.int64), np.zeros((M, N), np.int64)
    for register in range(4):
        left[_of_a(register)] = (a[:, register, None, None] >> _i.astype(np.uint32)) & 1
        sums[_of_c(register)] = c[:, register, None]
    for register in range(2):
        right[_of_b(register)] = (b[:, register, None, None] >> _i.astype(np.uint32)) & 1
    sums += left @ right
    return np.concatenate([sums[_of_c(register)] for register in range(4)], axis=1).astype(np.int32)


def mma_u8(a, b, c, right_type=np.uint8):
    """Compute D = A B + C of a warp in the bytes of the same registers, modulo 2^32; those of B may have a sign."""
    left, right, sums = np.zeros((M, 32), np.int64), np.zeros((32, N), np.int64), np.zeros((M, N), np.int64)
    lane, i = np.arange(32)[:, None], np.arange(4)
    group, k = lane >> 2, lane % 4 * 4 + i
    for register in range(4):
        codes = np.ascontiguousarray(a[:, register, None]).view(np.uint8)
        left[group + (8 if register % 2 else 0), k + (16 if register >= 2 else 0)] = codes
        sums[_of_c(register)] = c[:, register, None]
    for register in range(2):
        right[k + 16 * register, group] = np.ascontiguousarray(b[:, register, None]).view(right_type)
    sums += left @ right
    return np.concatenate([sums[_of_c(register)] for register in range(4)], axis=1).astype(np.int32)


def _multiply(mma):
    def multiply(registers):
        c, a, b = (np.array([one[part] for one in registers]) for part in (slice(4), slice(4, 8), slice(8, 10)))
        assert (c.dtype, a.dtype, b.dtype) == (np.int32, np.uint32, np.uint32)
        return mma(a, b, c)

    return multiply


class Models:
    """A model of the functions of `tensor`, for threads that are `current()` and exchange values in their warp."""

    NAMES = (
        "mma", "mma_bytes", "mma_signed", "add_bytes", "merge", "plus", "load_matrix", "load_rows", "address", "read",
        "read_half", "read_bytes4", "read_bytes8", "read_bytes16", "write_bytes16", "read_pair", "read_words", "write",
        "write_pair", "write_words", "copy_word", "copy_pair", "commit", "wait",
    )  # fmt: skip

    def __init__(self, current, exchange):
        self.current, self.exchange = current, exchange
        self.unseen = set()  # addresses of words that threads have written and not shown to the async proxy

    def mma(self, *registers):
        lane, shown = self.exchange(registers)
        return tuple(shown.once(_multiply(mma_and_popc))[lane])

    def mma_bytes(self, *registers):
        lane, shown = self.exchange(registers)
        return tuple(shown.once(_multiply(mma_u8))[lane])

    def mma_signed(self, *registers):
        lane, shown = self.exchange(registers)
        return tuple(shown.once(_multiply(partial(mma_u8, right_type=np.int8)))[lane])

    @staticmethod
    def add_bytes(total, four):
        assert four.dtype == np.uint32
        return np.int32(int(total) + sum(int(four).to_bytes(4, "little")))

    @staticmethod
    def merge(mask, one, other):
        assert 0 < mask < 1 << 32
        both = np.uint64(mask << 32 | mask)
        return (one & both) | (other & ~both)

    @staticmethod
    def plus(place, words):
        return place + words

    def load_matrix(self, array, at):
        lane, shown = self.exchange(at)
        for m in range(0, 32, 8):
            assert len({row // 2 % 8 for row in shown[m : m + 8]}) == 8, "rows that meet in a bank"
        return self._loaded(array, lane, shown)

    def load_rows(self, array, at):
        return self._loaded(array, *self.exchange(at))

    def _loaded(self, array, lane, shown):
        rows = [self._words(array, 2, shown[8 * m + lane // 4]).view(np.uint32) for m in range(4)]
        return tuple(row[lane % 4] for row in rows)

    @staticmethod
    def _words(array, words, at):
        """Return a view of some words of an array seen flat, which must be there and aligned."""
        view = array.reshape(-1)[at : at + words]
        assert at >= 0 and view.shape == (words,), "words that are not there"
        assert view.ctypes.data % (8 * words) == 0, "words that are not aligned"
        return view

    @staticmethod
    def address(array, at):
        return array.ctypes.data + array.itemsize * int(at)

    @staticmethod
    def read_half(array, at):
        assert at >= 0
        return array.reshape(-1).view(np.uint32)[at]

    @staticmethod
    def read(array, at):
        assert at >= 0
        return array.reshape(-1)[at]

    def read_bytes4(self, array, at):
        return self._bytes(array, at, 4)[0]

    def read_bytes8(self, array, at):
        return tuple(self._bytes(array, at, 8))

    def read_bytes16(self, array, at):
        return tuple(self._bytes(array, at, 16))

    @staticmethod
    def write_bytes16(array, at, *words):
        flat = array.reshape(-1)
        place = flat[at : at + 16 // array.itemsize]
        assert at >= 0 and place.nbytes == 16 and place.ctypes.data % 16 == 0, "16 bytes that are not there"
        place.view(np.uint32)[:] = np.array(words).astype(np.uint32)

    @staticmethod
    def _bytes(array, at, count):
        """Load words that have at least one byte of the array; bytes outside of it are undefined, here 0xFF."""
        flat = array.reshape(-1).view(np.uint8)
        at = int(at) * array.itemsize
        assert -count < at < flat.size, "words without a byte of the array"
        assert array.dtype == np.uint8 or 0 <= at <= flat.size - count, "words that are not there"
        assert (flat.ctypes.data + at) % count == 0, "words that are not aligned"
        inside = np.arange(max(at, 0), min(at + count, flat.size))
        loaded = np.full(count, 0xFF, np.uint8)
        loaded[inside - at] = flat[inside]
        return loaded.view(np.uint32)

    @staticmethod
    def _pair(array, at):
        """Return a view of two elements, which must be there and aligned."""
        view = array.reshape(-1)[at : at + 2]
        assert array.dtype == np.int32 and at >= 0 and view.shape == (2,), "a pair that is not there"
        assert view.ctypes.data % 8 == 0, "a pair that is not aligned"
        return view

    def read_pair(self, array, at):
        return tuple(self._pair(array, at))

    def read_words(self, array, at):
        return tuple(self._words(array, 2, at))

    @staticmethod
    def write(array, at, value):
        assert 0 <= at < array.size
        array.reshape(-1)[at] = value

    def write_pair(self, array, at, *values):
        self._pair(array, at)[:] = values

    def write_words(self, array, at, *values):
        self._words(array, 2, at)[:] = values

    def copy_word(self, into, at, source, start, inside):
        self._copy(1, into, at, source, start, inside)

    def copy_pair(self, into, at, source, start, inside):
        self._copy(2, into, at, source, start, inside)

    def _copy(self, words, into, at, source, start, inside):
        to, of = self._words(into, words, at), self._words(source, words, start) if inside else np.uint64(0)
        to[:] = SPOILT
        self.unseen.update(addresses(to))
        vars(self.current()).setdefault("begun", []).append((to, of))

    def commit(self):
        me = vars(self.current())
        me.setdefault("groups", []).append(me.pop("begun", []))

    def wait(self, groups):
        waiting, arrived = self.current().groups, vars(self.current()).setdefault("arrived", [])
        while len(waiting) > groups:
            for to, of in waiting.pop(0):
                assert (to == SPOILT).all(), "words that are written to while a copy to them is on its way"
                to[:] = of
                arrived += addresses(to)

    def show(self):
        """Show the async proxy what has arrived for this thread, and barriers that it started."""
        self.unseen.difference_update(vars(self.current()).pop("arrived", []))
        for barrier in vars(self.current()).pop("started", []):
            barrier.fenced = True


def addresses(words):
    return range(words.ctypes.data, words.ctypes.data + words.nbytes, 8)
