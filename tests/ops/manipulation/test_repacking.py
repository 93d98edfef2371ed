"""Another packed axis: the same values, every length around a word, threads or none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import arrays, laws, samples, threads

import quantarray as qa
from quantarray.backends.registry import kernel
from quantarray.core.format import word_count

LENGTHS = st.sampled_from([0, 1, 2, 31, 32, 33, 63, 64, 65, 200])


@given(st.data(), arrays(), st.booleans())
def test_repack(data, x, many):
    q = x.q
    new = data.draw(st.integers(-q.ndim, q.ndim - 1))
    with threads(many):
        got = qa.repack(q, new)
        assert_packed(got, x.values)
        assert got.axis == new % q.ndim
        assert_packed(q.repack(new), x.values)
        assert_packed(got.repack(q.axis), x.values)
        assert_packed(q.T.repack(new), x.values.T)


@given(st.data(), LENGTHS, LENGTHS, st.integers(0, 3), st.booleans())
def test_repack_both_ways_at_every_length(data, a, b, at, many):
    shape = [2, 3]
    shape.insert(min(at, 2), a)
    shape.insert(data.draw(st.integers(0, 3)), b)
    x = data.draw(samples(tuple(shape), data.draw(st.integers(0, 3)), laws(8), range(4), (None, 64)))
    with threads(many):
        assert_packed(qa.repack(x.q, data.draw(st.integers(0, 3))), x.values)


def test_repack_keeps_what_is_packed_so():
    q = qa.from_codes(np.zeros((2, 3), int), qa.ternary)
    assert qa.repack(q, 1) is q and qa.repack(q) is q
    with pytest.raises(IndexError, match="repack: axis 2 is out of bounds"):
        qa.repack(q, 2)


def test_constants_become_one_an_element():
    scale = np.float32([[1, 2], [3, 4]])
    q = qa.from_codes(np.ones((2, 100), int), qa.bipolar, scale=scale, group=64)
    got = qa.repack(q, 0)
    assert got.group == 1 and got.scale.shape == (2, 100)
    assert qa.repack(q[:1], 0).group is None


@pytest.mark.parametrize(
    ("a", "p", "between"),
    [
        (1024, 100, 1),
        (512 * 3, 64, 8),
        (700, 130, 3),
        (1100, 64, 1),
        (1500, 200, 1),
        (1100, 65, 2),
        (740, 65, 2),
        (1400, 64, 4),
    ],
)
@pytest.mark.parametrize("shift", range(8))
def test_words_that_begin_off_a_cache_line(a, p, between, shift):
    """Whole lines of out are stored past the cache, which only their own addresses take."""
    bits = np.zeros((2, a, between, word_count(p) * 64), np.uint8)
    bits[..., :p] = np.random.default_rng(p).integers(0, 2, (2, a, between, p))
    expected = np.zeros((2, p, between, word_count(a) * 64), np.uint8)
    expected[..., :a] = bits[..., :p].transpose(0, 3, 2, 1)
    shape = (*expected.shape[:3], word_count(a))
    out = np.zeros(np.prod(shape) + shift, np.uint64)[shift:].reshape(shape)
    packed = np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)
    words = np.zeros(packed.size + shift, np.uint64)[shift:].reshape(packed.shape)
    words[...] = packed
    kernel("cpu", "repack")(words, out)
    np.testing.assert_array_equal(out, np.packbits(expected, axis=-1, bitorder="little").view(np.uint64))
