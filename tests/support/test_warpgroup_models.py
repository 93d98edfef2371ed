"""The models of a warpgroup's instructions against the PTX manual's layouts, as it and CUTLASS write them in terms of
CuTe, and against kernels that do not wait, fence or agree.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import warpgroup_models
from tensor_models import Models
from warpgroup_models import SPOILT, Descriptor, WarpgroupModels


def number(start, leading=1, stride=64, base=0, mode=1):
    """Build a descriptor from its fields, which are in units of 16 bytes."""
    return start | leading << 16 | stride << 32 | base << 49 | mode << 62


def test_fields():
    assert Descriptor.of(number(0x3FFF, 2, 0x3FFF, 5, 3)) == Descriptor(0x3FFF0, 32, 0x3FFF0, 5, 3)
    for bit in (14, 15, 30, 31, 46, 48, 52, 61):
        with pytest.raises(AssertionError, match="no meaning"):
            Descriptor.of(number(0) | 1 << bit)


def crd2idx(shape, stride, i):
    """Compute the index of the i-th element of a layout as CuTe's crd2idx does, the first mode fastest."""
    index = 0
    for n, step in zip(shape, stride, strict=True):
        index += i % n * step
        i //= n
    return index


def swizzle(bits, at):
    """Apply CuTe's Swizzle<bits, 4, 3> to the address of a byte."""
    return at ^ (at >> 3 & ((1 << bits) - 1) << 4)


@pytest.mark.parametrize(
    ("mode", "bits", "rows", "columns", "leading", "stride"),
    [  # ((8, 2), (T, 2k)) of tf32: T = 4, k = 2, "Canonical Layouts" and its examples, and the same for the others
        (0, 0, (4, 32), (1, 64), 16, 8),
        (3, 1, (8, 64), (1, 4), 1, 16),
        (2, 2, (16, 128), (1, 4), 1, 32),
        (1, 3, (32, 256), (1, 4), 1, 64),
    ],
)
@pytest.mark.parametrize("k", (0, 1))
def test_shared_memory_layouts(mode, bits, rows, columns, leading, stride, k):
    """Check that the k-th product of a stage reads columns 8k to 8k + 7 of 16 rows, where its descriptor starts."""
    if mode == 3 and k:
        return  # a row of 32 bytes is one product
    start = 4 * crd2idx((4, 4), columns, 8 * k)
    chunks = Descriptor.of(number(1024 + start >> 4, leading, stride, 0, mode)).chunks(16)
    for row in range(16):
        for chunk in range(2):
            at = crd2idx((8, 2), rows, row) + crd2idx((4, 4), columns, 8 * k + 4 * chunk)
            assert chunks[row, chunk] == swizzle(bits, 1024 + 4 * at)


def test_patterns_begin_at_their_multiples():
    for start, base in ((1024 + 128, 0), (1024, 1), (512, 0)):
        with pytest.raises(AssertionError, match="between its multiples"):
            Descriptor.of(number(start >> 4, base=base)).chunks(8)


def test_chunks_that_a_product_reads_at_once_lie_in_all_banks():
    for k in range(4):
        banks = Descriptor.of(number((2048 >> 4) + 2 * k)).chunks(64).reshape(8, 8, 2) // 16 % 8
        assert (np.sort(banks, axis=1) == np.arange(8)[:, None]).all()


@pytest.mark.parametrize("channels", (8, 32, 256))
def test_fragment(channels):
    """CLayout_64xN of CUTLASS: threads (4, 8, 4) and values (2, 2, N / 8) to elements of 64 rows, column by column."""
    elements = np.arange(64 * channels).reshape(channels, 64).T
    for thread in range(128):
        registers = warpgroup_models.fragment(elements[thread // 32 * 16 :][:16])[thread % 32]
        for value in range(channels // 2):
            at = crd2idx((4, 8, 4), (128, 1, 16), thread) + crd2idx((2, 2, channels // 8), (64, 8, 512), value)
            assert registers[value] == at


class Lane(SimpleNamespace):
    """A lane whose warp does as it does."""


@pytest.fixture
def one():
    """(models of `tensor` and of `warpgroup`, shared memory, its first word, sums) for lane 0 of a warpgroup."""
    room = np.full(1 << 14, 0xBA, np.uint8)
    memory = room[-room.ctypes.data % 1024 :][: 3 << 12]
    lane = Lane(thread_id=0, block=SimpleNamespace())
    tensor = Models(lambda: lane, lambda value: (0, [value] * 32))
    sums = np.zeros((1, 1, 2, 2), np.int32)
    return tensor, WarpgroupModels(tensor, lambda: memory), memory.view(np.uint64), sums


def descriptors(words):
    return [number((words.ctypes.data + at) % (1 << 18) >> 4) for at in (0, 8192)]


def test_products_are_made_when_they_are_waited_for(one):
    _, warpgroup, words, sums = one
    words[:] = np.random.default_rng(0).integers(0, 2**64, words.size, np.uint64)
    sums[:] = 7
    warpgroup.fence_sums(8)(sums)
    warpgroup.mma(8)(sums, *descriptors(words))
    warpgroup.commit()
    warpgroup.fence()
    warpgroup.mma(8)(sums, *descriptors(words))
    warpgroup.commit()
    warpgroup.wait(1)
    assert (sums == SPOILT).all(), "one more is on its way"
    warpgroup.collect(8)(sums)
    rows = [np.unpackbits(words[at : at + 4].view(np.uint8)) for at in (0, 1024)]  # pixel 0, channel 0
    assert sums[0, 0, 0, 0] == 7 + 2 * (rows[0] & rows[1]).sum()


def begin(one):
    _, warpgroup, words, sums = one
    warpgroup.fence_sums(8)(sums)
    warpgroup.mma(8)(sums, *descriptors(words))
    warpgroup.commit()


def test_sums_belong_to_products_until_they_are_collected(one):
    begin(one)
    one[3][0, 0, 0, 0] = 1
    with pytest.raises(AssertionError, match="sums that are touched"):
        one[1].wait(0)


def test_sums_have_to_be_fenced(one):
    begin(one)
    one[1].collect(8)(one[3])
    one[3][:] += 1
    one[1].fence()
    with pytest.raises(AssertionError, match="sums used since"):
        one[1].mma(8)(one[3], *descriptors(one[2]))


def test_products_have_to_be_fenced_and_committed(one):
    _, warpgroup, words, sums = one
    with pytest.raises(AssertionError, match="no fence"):
        warpgroup.mma(8)(sums, *descriptors(words))
    warpgroup.fence_sums(8)(sums)
    warpgroup.mma(8)(sums, *descriptors(words))
    with pytest.raises(AssertionError, match="not committed"):
        warpgroup.collect(8)(sums)


def test_memory_belongs_to_products_until_they_are_waited_for(one):
    begin(one)
    one[2][1024] ^= np.uint64(1)
    with pytest.raises(AssertionError, match="memory that changes"):
        one[1].wait(0)


def test_copies_have_to_be_shown(one):
    tensor, warpgroup, words, _ = one
    tensor.copy_pair(words, 0, np.arange(2, dtype=np.uint64), 0, True)
    tensor.commit()
    warpgroup.fence_copies()  # too early: they arrive with the next line
    tensor.wait(0)
    with pytest.raises(AssertionError, match="no proxy fence"):
        begin(one)
    warpgroup.fence_copies()
    begin(one)


def test_warps_and_lanes_agree(one):
    tensor, warpgroup, words, sums = one
    begin(one)
    tensor.current().thread_id, tensor.current().products = 32, 0
    a, b = descriptors(words)
    warpgroup.fence()
    with pytest.raises(AssertionError, match="warps that do not agree"):
        warpgroup.mma(8)(sums, a + 2, b)
    tensor.exchange = lambda value: (31, [value] * 31 + [(a + 2, b, 8)])
    with pytest.raises(AssertionError, match="lanes that do not agree"):
        warpgroup.mma(8)(sums, a, b)


def test_shapes():
    for channels in (4, 40, 72, 264):
        with pytest.raises(AssertionError, match="a shape"):
            WarpgroupModels(SimpleNamespace(show=None), None).mma(channels)
