"""The models of tensor core instructions against the PTX manual, read off lane by lane and bit by bit."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensor_models


def test_mma_m16n8k256():
    """ "Matrix Fragments for mma.m16n8k256": rows and columns of a_i, b_i and c_i as the manual gives them."""
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 2, (16, 256)), rng.integers(0, 2, (256, 8))
    sums = rng.integers(-(2**30), 2**30, (16, 8))
    a, b = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    c, d = np.zeros((32, 4), np.int32), np.zeros((32, 4), np.int32)
    expected = sums + left @ right
    for laneid in range(32):
        group_id, thread_in_group = laneid >> 2, laneid % 4
        for i in range(128):
            row = group_id if 0 <= i < 32 or 64 <= i < 96 else group_id + 8
            col = thread_in_group * 32 + (i & 0x1F) + (0 if i < 64 else 128)
            a[laneid, i // 32] |= np.uint32(left[row, col] << (i % 32))
        for i in range(64):
            row = thread_in_group * 32 + (i & 0x1F) + (0 if i < 32 else 128)
            b[laneid, i // 32] |= np.uint32(right[row, group_id] << (i % 32))
        for i in range(4):
            row = group_id if i < 2 else group_id + 8
            col = thread_in_group * 2 + (i & 0x1)
            c[laneid, i], d[laneid, i] = sums[row, col], expected[row, col]
    np.testing.assert_array_equal(tensor_models.mma_and_popc(a, b, c), d)


def test_mma_wraps():
    every = np.full((32, 4), 0xFFFFFFFF, np.uint32)
    most = np.full((32, 4), 2**31 - 1, np.int32)
    result = tensor_models.mma_and_popc(every, every[:, :2], most)
    assert result.dtype == np.int32 and (result == -(2**31) + 255).all()


def test_mma_m16n8k32():
    """ "Matrix Fragments for mma.m16n8k32" with .u8: rows and columns of a_i, b_i and c_i as the manual gives them."""
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 256, (16, 32)), rng.integers(0, 256, (32, 8))
    sums = rng.integers(-(2**30), 2**30, (16, 8))
    a, b = np.zeros((32, 16), np.uint8), np.zeros((32, 8), np.uint8)
    c, d = np.zeros((32, 4), np.int32), np.zeros((32, 4), np.int32)
    expected = sums + left @ right
    for laneid in range(32):
        group_id, thread_in_group = laneid >> 2, laneid % 4
        for i in range(16):
            row = group_id if 0 <= i < 4 or 8 <= i < 12 else group_id + 8
            a[laneid, i] = left[row, thread_in_group * 4 + (i & 0x3) + (0 if i < 8 else 16)]
        for i in range(8):
            b[laneid, i] = right[thread_in_group * 4 + (i & 0x3) + (0 if i < 4 else 16), group_id]
        for i in range(4):
            row = group_id if i < 2 else group_id + 8
            col = thread_in_group * 2 + (i & 0x1)
            c[laneid, i], d[laneid, i] = sums[row, col], expected[row, col]
    np.testing.assert_array_equal(tensor_models.mma_u8(a.view(np.uint32), b.view(np.uint32), c), d)


def test_mma_of_bytes_wraps():
    every = np.full((32, 4), 0xFFFFFFFF, np.uint32)
    most = np.full((32, 4), 2**31 - 1, np.int32)
    result = tensor_models.mma_u8(every, every[:, :2], most)
    assert result.dtype == np.int32 and (result == -(2**31) - 1 + 32 * 255**2).all()


def test_ldmatrix_x4():
    """Compare with the manual: lane l gets elements 2 * (l % 4) and the next one of row l / 4 of each 8 x 8 matrix.

    Lanes 8 * m to 8 * m + 7 name the addresses of the rows of matrix m; elements have 16 bits.
    """
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, 128, np.uint64)
    elements = words.view(np.uint16)
    # Rows of a matrix are in different banks
    at = np.concatenate([2 * (rng.permutation(8) + 8 * rng.integers(0, 8, 8)) for _ in range(4)])
    for lane in range(32):
        models = tensor_models.Models(None, lambda value, lane=lane: (lane, list(at)))
        loaded = models.load_matrix(words, at[lane])
        for m in range(4):
            row = elements[at[8 * m + lane // 4] * 4 :][:8]
            low, high = int(row[lane % 4 * 2]), int(row[lane % 4 * 2 + 1])
            assert loaded[m] == low | high << 16


def test_copies_arrive_when_they_are_waited_for():
    thread = SimpleNamespace()
    models = tensor_models.Models(lambda: thread, None)
    into, source = np.zeros(6, np.uint64), np.arange(10, 16, dtype=np.uint64)
    models.copy_pair(into, 0, source, 2, True)
    models.commit()
    models.copy_word(into, 3, source, 1, True)
    models.copy_word(into, 4, source, 0, False)
    models.commit()
    source[2] = 99
    assert (into[[0, 1, 3, 4]] == tensor_models.SPOILT).all() and (into[[2, 5]] == 0).all()
    models.wait(1)
    assert into[:3].tolist() == [99, 13, 0] and (into[3:5] == tensor_models.SPOILT).all()
    models.wait(0)
    assert into.tolist() == [99, 13, 0, 11, 0, 0]


def test_what_is_being_copied_to_is_not_written_to():
    thread = SimpleNamespace()
    models = tensor_models.Models(lambda: thread, None)
    into = np.zeros(2, np.uint64)
    models.copy_word(into, 1, np.ones(1, np.uint64), 0, True)
    models.commit()
    into[1] = 5
    with pytest.raises(AssertionError, match="on its way"):
        models.wait(0)


def test_rows_that_meet_in_a_bank_are_refused():
    models = tensor_models.Models(None, lambda value: (0, [4 * lane for lane in range(32)]))
    with pytest.raises(AssertionError, match="bank"):
        models.load_matrix(np.zeros(256, np.uint64), 0)
