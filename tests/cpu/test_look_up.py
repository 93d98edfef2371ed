"""Codes through a table, and sums of scaled codes in its place."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.core.dtypes import integers
from quantarray.cpu.bits.look_up import _look_up
from quantarray.cpu.runtime import threads
from quantarray.ops.words.code_tables import NO_FACTORS, look_up, scaled_sum

RNG = np.random.default_rng(0)
SHAPES = [(1, 1), (3, 64), (5, 100), (2, 7, 130), (40, 30, 24)]


def packed(shape, bits):
    codes = RNG.integers(0, 2**bits, shape, dtype=np.uint8)
    return codes, qa.from_codes(codes, integers(*range(2**bits)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bits", [(8, 0, 8), (8, 8, 8), (3, 5, 4), (8, 1, 2), (1, 8, 8)], ids=str)
def test_entries_of_a_table(shape, bits):
    (codes, q), (more, other) = packed(shape, bits[0]), packed(shape, max(bits[1], 1))
    table = RNG.integers(0, 2 ** bits[2], 2 ** (bits[0] + bits[1]), dtype=np.uint8)
    got = look_up(q, other if bits[1] else None, table, NO_FACTORS, integers(*range(2 ** bits[2])))
    places = codes.astype(int) + 2 ** bits[0] * more.astype(int) if bits[1] else codes
    np.testing.assert_array_equal(got.codes(), table[places])


def as_bytes(q):
    """Codes as a plan stores them: bytes of whole words, zeros after the elements."""
    codes = q.codes().reshape(-1, q.shape[-1])
    stored = np.zeros((len(codes), q.words.shape[-1] * 64), np.uint8)
    stored[:, : codes.shape[1]] = codes
    return stored.view(np.uint64)[None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("forms", range(8))
@pytest.mark.parametrize("bits", [(8, 8, 8), (3, 5, 4), (8, 0, 2)], ids=str)
def test_codes_as_bytes(shape, forms, bits):
    """Operands and results, each as planes or as bytes."""
    (_, q), (_, other) = packed(shape, bits[0]), packed(shape, max(bits[1], 1))
    table = RNG.integers(0, 2 ** bits[2], 2 ** (bits[0] + bits[1]), dtype=np.uint8)
    expected = look_up(q, other if bits[1] else None, table, NO_FACTORS, integers(*range(2 ** bits[2])))
    read = [
        as_bytes(a) if forms >> i & 1 else a.words.reshape(a.bits, -1, a.words.shape[-1])
        for i, a in ((0, q), (1, other))
    ]
    if not bits[1]:
        read[1] = read[1][:0]
    wanted = as_bytes(expected) if forms & 4 else expected.words.reshape(expected.bits, -1, expected.words.shape[-1])
    out = np.full_like(wanted, 2**64 - 1)
    count = q.words[0].size
    threads.run(_look_up, (*read, table, NO_FACTORS, np.int64(shape[-1]), *map(np.int64, bits[:2]), out), count, 1)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("seed", range(30))
def test_sums_equal_their_table(seed):
    rng = np.random.default_rng(seed)
    scale = np.float32(rng.uniform(0.001, 0.1, 3))
    zero = rng.integers(0, 256, 3)
    offsets = -(scale[:2] * zero[:2].astype(np.float32))
    low, high = np.sort(rng.choice(256, 2, False)) if seed % 2 else (0, 255)
    factors = np.float32([scale[0], offsets[0], scale[1], offsets[1], 1 / scale[2], zero[2], low, high])
    every = np.arange(2**16)
    codes = [(every % 256).astype(np.uint8).reshape(256, 256), (every // 256).astype(np.uint8).reshape(256, 256)]
    q, other = (qa.from_codes(c, integers(*range(256))) for c in codes)
    law = integers(*range(256))
    table = scaled_sum(factors, (8, 8))
    got = look_up(q, other, np.zeros(2**16, np.uint8), factors, law).codes().reshape(-1)
    np.testing.assert_array_equal(got, table)
    exact = [np.float32(np.float64(scale[i]) * (c.reshape(-1) - zero[i].astype(float))) for i, c in enumerate(codes)]
    near = np.clip(np.rint((exact[0] + exact[1]) / scale[2]) + zero[2], low, high)
    assert (np.abs(near - table) <= 1).all() and (near != table).mean() < 1e-3
