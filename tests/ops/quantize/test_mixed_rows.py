"""Rows of bits of their own in one buffer (`encode_mixed`, `decode_mixed`): each equals what `quantize` gives."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.ops.quantize.mixed_rows import are_ordinary, ends_of_groups, round_rows, spread


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def mixed(x, bits, scheme):
    return round_rows(x, ends_of_groups(x, min(scheme.group, x.shape[1])), np.array(bits), scheme)


@pytest.mark.parametrize("length", [1, 40, 64, 256, 300, 1000, 4097])
@pytest.mark.parametrize(
    "scheme",
    [qa.Grouped(1, seed=7), qa.Grouped(1, 64, 3, constants="float32"), qa.Grouped(1, 128, stochastic=False)],
    ids=repr,
)
def test_each_row_is_that_of_quantize(length, scheme):
    x, bits = normal(8, length), [3, 8, 1, 2, 7, 4, 5, 6]
    got = mixed(x, bits, scheme)
    values = np.full((8, length), np.nan, np.float32)
    got.dequantize(values)
    for r, b in enumerate(bits):
        settings = {"seed": scheme.seed, "stochastic": scheme.stochastic, "constants": scheme.constants}
        expected = qa.quantize(x, qa.Grouped(b, scheme.group, **settings), 1)[r]
        row = got.row(r)
        assert row.bits == b and np.array_equal(row.codes(), expected.codes())
        for a, e in ((row.scale, expected.scale), (row.offset, expected.offset)):
            assert np.array_equal(np.ravel(a), np.ravel(e))
        assert np.array_equal(values[r], expected.dequantize())
        tail = got.words[got.first[r] :][: b * -(-length // 64)].reshape(b, -1)[:, -1]
        assert length % 64 == 0 or not (tail >> np.uint64(length % 64)).any()
    assert got.words.size == sum(bits) * -(-length // 64)


def test_ends_and_spread():
    x = normal(5, 700)
    ends = ends_of_groups(x, 256)
    parts = [x[:, :256], x[:, 256:512], x[:, 512:]]
    assert np.array_equal(ends, np.float64([[p.min(1) for p in parts], [p.max(1) for p in parts]]).transpose(0, 2, 1))
    expected = sum(np.ptp(p.astype(np.float64), axis=1) ** 2 * p.shape[1] / 4 for p in parts)
    assert np.allclose(spread(ends, 700, 256), expected, rtol=1e-12)
    assert are_ordinary(ends)
    for bad in (np.nan, np.inf, -np.inf, 2e30):
        x[3, 650] = bad
        assert not are_ordinary(ends_of_groups(x, 256))


def test_many_rows_on_two_threads_are_those_on_one():
    x, bits = normal(64, 4096), np.arange(64) % 8 + 1
    both, before = [], qa.get_num_threads()
    try:
        for threads in (1, 2):
            qa.set_num_threads(threads)
            both.append(mixed(x, bits, qa.Grouped(1, seed=2)))
    finally:
        qa.set_num_threads(before)
    assert np.array_equal(both[0].words, both[1].words) and np.array_equal(both[0].constants, both[1].constants)


def test_a_group_that_is_no_whole_words_is_refused():
    with pytest.raises(ValueError, match="group of whole words of 64, got 100"):
        mixed(normal(2, 300), [1, 2], qa.Grouped(1, 100))
