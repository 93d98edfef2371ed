"""Lay weights out in the order in which kernels read them, and back: a permutation of the bits of 32 channels' words.

`words` are uint64[planes channels words], laid out uint64[planes blocks words 32]: one word of each of 32 channels is
32 words in one of three orders, which the micro-kernels specify as `lay_out` and `lay_out_quads`:

    bytes    byte 0 of all channels, then byte 1, ..         8 x 8 bytes transposed, four times
    quads    4 bits of 16 channels a word                    16 x 16 fours of bits transposed, twice
    halves   lower halves of all channels, then ~(lower ^ upper)

Squares are transposed by exchanging halves of words, then quarters, on 8 words of each channel at once: 4.4 MB take
a millisecond or two, where NumPy's packbits took 53, so that weights may be laid out in each call
(`ops/products/parts.py`).
"""

import numpy as np

from ..llvm.fields import transpose_bytes, transpose_quads
from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.isa import COUNTING
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel

QUADS, BYTES, HALVES = 4, 8, 32  # bits that stay together
COUNTED = BYTES if COUNTING in ("avx2", "avx512bw", "neon", "portable") else HALVES  # what `conv` reads
_LINE = 8  # words of a channel that are moved at a time: a cache line
_CUT = 1 << 9  # words of a channel in one task
_LEAST = 1 << 14  # words that are worth a parallel region
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def interleave(words, groups, bits, out):
    """Lay words out in the order that keeps so many bits together."""
    if words.size:
        threads.run(_lay_blocks, (words, groups, bits, out), *_shares(out))


def restore(laid_out, groups, bits, words):
    """Restore `words` from what `interleave` laid out."""
    if words.size:
        threads.run(_bring_blocks, (laid_out, groups, bits, words), *_shares(laid_out))


def _shares(laid_out):
    """Return (tasks, workers)."""
    planes, blocks, length, _ = laid_out.shape
    return planes * blocks * -(-length // _CUT), threads.workers(laid_out.size, _LEAST)


@inline
def _place_of(task, channels, groups, laid_out):
    """Return (first channel of all planes, number, place, first and last word) of a task."""
    blocks, length = laid_out.shape[1], laid_out.shape[2]
    cuts, group_lanes, group_blocks = -(-length // _CUT), channels // groups, blocks // groups
    plane, block, cut = task // (blocks * cuts), task // cuts % blocks, task % cuts
    lane = block % group_blocks * LANES
    channel, valid = block // group_blocks * group_lanes + lane, min(LANES, group_lanes - lane)
    last = min(length, (cut + 1) * _CUT)
    return plane * channels + channel, valid, (plane * blocks + block) * length, cut * _CUT, last


@Kernel
def _lay_blocks(words, groups, bits, out, first, last):
    length, square = words.shape[2], np.zeros(LANES * _LINE, np.uint64)
    for task in range(first, last):
        channel, valid, place, begin, end = _place_of(task, words.shape[1], groups, out)
        for at in range(begin, end, _LINE):
            near = min(_LINE, end - at)
            _gather(words, channel * length + at, length, valid, near, square)
            _transpose(square, bits)
            _store(square, near, bits, out, (place + at) * LANES)


@Kernel
def _bring_blocks(laid_out, groups, bits, words, first, last):
    length, square = words.shape[2], np.zeros(LANES * _LINE, np.uint64)
    for task in range(first, last):
        channel, valid, place, begin, end = _place_of(task, words.shape[1], groups, laid_out)
        for at in range(begin, end, _LINE):
            near = min(_LINE, end - at)
            _load(laid_out, (place + at) * LANES, near, bits, square)
            _transpose(square, bits)
            _scatter(square, valid, near, words, channel * length + at, length)


@inner
def _transpose(square, bits):
    if bits == QUADS:
        transpose_quads(square)
    elif bits == BYTES:
        transpose_bytes(square)


@inner
def _gather(words, row, length, valid, near, square):
    """square[i, k] = word k of channel i, 0 for channels that do not exist."""
    flat = words.reshape(-1)
    for i in range(valid):
        at, to = np.uint64(row + i * length), np.uint64(i * _LINE)
        for k in range(np.uint64(near)):
            square[to + k] = flat[at + k]
    square[valid * _LINE :] = 0


@inner
def _scatter(square, valid, near, words, row, length):
    flat = words.reshape(-1)
    for i in range(valid):
        at, to = np.uint64(row + i * length), np.uint64(i * _LINE)
        for k in range(np.uint64(near)):
            flat[at + k] = square[to + k]


@inline
def _place(i, size):
    """Return the place of row i of the squares among 32 words: row 0 of each square first."""
    return np.uint64(i % size * (LANES // size) + i // size)


@inner
def _store(square, near, bits, laid_out, place):
    flat = laid_out.reshape(-1)
    for k in range(np.uint64(near)):
        at = np.uint64(place) + k * np.uint64(LANES)
        if bits == HALVES:
            _store_halves(square, k, flat, at)
        elif bits == QUADS:
            for i in range(LANES):
                flat[at + _place(i, 16)] = square[np.uint64(i * _LINE) + k]
        else:
            for i in range(LANES):
                flat[at + _place(i, 8)] = square[np.uint64(i * _LINE) + k]


@inline
def _store_halves(square, k, flat, at):
    for i in range(LANES // 2):
        first, second = square[np.uint64(2 * i * _LINE) + k], square[np.uint64((2 * i + 1) * _LINE) + k]
        flat[at + np.uint64(i)] = (first & _LOW) | (second << _HALF)
        first, second = ~(first ^ (first >> _HALF)), ~(second ^ (second >> _HALF))
        flat[at + np.uint64(LANES // 2 + i)] = (first & _LOW) | (second << _HALF)


@inner
def _load(laid_out, place, near, bits, square):
    flat = laid_out.reshape(-1)
    for k in range(np.uint64(near)):
        at = np.uint64(place) + k * np.uint64(LANES)
        if bits == HALVES:
            _load_halves(flat, at, square, k)
        elif bits == QUADS:
            for i in range(LANES):
                square[np.uint64(i * _LINE) + k] = flat[at + _place(i, 16)]
        else:
            for i in range(LANES):
                square[np.uint64(i * _LINE) + k] = flat[at + _place(i, 8)]


@inline
def _load_halves(flat, at, square, k):
    for i in range(LANES // 2):
        low = flat[at + np.uint64(i)]
        high = ~(flat[at + np.uint64(LANES // 2 + i)] ^ low)
        square[np.uint64(2 * i * _LINE) + k] = (low & _LOW) | (high << _HALF)
        square[np.uint64((2 * i + 1) * _LINE) + k] = (low >> _HALF) | (high & ~_LOW)
