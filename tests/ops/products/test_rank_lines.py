"""Codes of 7 thresholds and more, on lines and searched, equal counts of the thresholds that a value passes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import quantarray as qa
from quantarray.ops.products.rank_lines import SURE, lines_of

BITS = 3, 4, 5, 6, 7, 8
MANY = 5, 6, 7, 8  # bits whose lines may be corrected


def even(rng, count, channels, dtype):
    """Thresholds [count channels] of uniform quantisers of any step and zero point, as integers."""
    step = 10 ** rng.uniform(-2, 6, channels)
    zero = rng.normal(size=channels) * step * rng.choice([1, 100, 1000])
    ends = np.iinfo(dtype)
    at = np.floor(step * (np.arange(count)[:, None] + 0.5 - count / 2) + zero)
    return np.clip(at, max(ends.min, -(2**33)), min(ends.max, 2**33)).astype(dtype)


def with_ends(rng, thresholds):
    """Some lanes with thresholds that all or no sums pass."""
    count, channels = thresholds.shape
    ends, number = np.iinfo(thresholds.dtype), np.arange(count)[:, None]
    low = np.where(rng.random(channels) < 0.3, rng.integers(0, count + 1, channels), 0)
    high = np.where(rng.random(channels) < 0.3, rng.integers(0, count + 1, channels), count)
    return np.where(number < low, ends.min, np.where(number >= np.maximum(low, high), ends.max, thresholds))


def near(thresholds):
    """Integers at, before and after each threshold, and far from all of them."""
    ends, wide = np.iinfo(thresholds.dtype), thresholds.astype(np.int64)
    inside = np.where((wide == ends.min) | (wide == ends.max), 0, wide)
    far = np.array([[-(2**31) + 1], [2**31 - 1], [0]]) * np.ones(thresholds.shape[1], np.int64)
    return np.concatenate([inside - 1, inside, inside + 1, far])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MANY), st.integers(1, 130), st.sampled_from(["i4", "i8"]))
def test_lines_give_ranks(seed, bits, channels, dtype):
    """Lines of evenly spaced thresholds are there, and exact at every threshold."""
    rng = np.random.default_rng(seed)
    t = with_ends(rng, even(rng, 2**bits - 1, channels, dtype))
    lines = lines_of(t)
    assert lines.shape in ((4, channels), (9, channels))
    v = near(t)
    ranks = (v[:, None] > t).sum(axis=1)
    assert (ranks_of(lines[:4], t, v) == ranks).all()
    if len(lines) == 9:
        assert (ranks_of(lines[4:], t, v) == ranks).all() and (ranks_in_single(lines[4:], t, v) == ranks).all()


def ranks_of(lines, t, v):
    """Ranks of v by lines, those that may be one less corrected by a compare."""
    slope, shift, least, most = lines[:4]
    ranks = np.clip(v * slope + shift, least, most).astype(np.int64)
    return ranks if len(lines) == 4 else ranks + (v > np.take_along_axis(t, ranks, axis=0))


def ranks_in_single(lines, t, v, fused=False):
    """Ranks of v in float32, compared with thresholds only where a fraction is far from a half, as kernels do."""
    slope, shift, least, most, right = lines.astype(np.float32)
    half, x = np.float32(0.5), v.astype(np.int32).astype(np.float32)
    z = x * slope + (shift + half)
    if fused:
        z = (x.astype(np.float64) * slope + (shift + half)).astype(np.float32)
    if (right == SURE).all():
        assert (np.abs(z) < 2**31).all()
        return np.clip(np.trunc(z).astype(np.int32), least, most + 1)
    z = np.clip(z, least + half, most + np.float32(1.25))
    ranks, lower = z.astype(np.int64), (z - half).astype(np.int64)
    checked = lower + (v > np.take_along_axis(t, lower, axis=0))
    return np.where(np.abs(z - half - ranks) > right, checked, ranks)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(BITS), st.integers(1, 130), st.booleans())
def test_sure_lines_give_ranks(seed, bits, channels, moved):
    """Lines that are never corrected are right for all integers."""
    rng = np.random.default_rng(seed)
    t = even(rng, 2**bits - 1, channels, "i4")
    if moved:
        t = np.sort(t + rng.integers(-1, 2, t.shape).astype(np.int32), axis=0)
    t = with_ends(rng, t).astype(np.int32)
    lines = lines_of(t)
    sure = lines.size > 0 and (lines[-1] == SURE).all()
    event("sure" if sure else "not sure")
    if sure:
        v = np.concatenate([near(t), rng.integers(-(2**31) + 1, 2**31, (50, channels))])
        assert (ranks_in_single(lines[-5:], t, v) == (v[:, None] > t).sum(axis=1)).all()
    else:
        assert not lines.size or bits in MANY


@pytest.mark.parametrize("count", [7, 15, 31, 255])
@pytest.mark.parametrize("step", [1.5, 7.3, 90.7])
def test_quantisers_have_sure_lines(count, step):
    """A quantiser whose steps are longer than a sum's unit has them, with lanes that pass one threshold, or none."""
    t = np.floor(step * (np.arange(count)[:, None] + np.linspace(-20, 5, 40))).astype(np.int32)
    number = np.arange(count)
    t[:, 3], t[:, 4] = 2**31 - 1, -(2**31)
    t[:, 5] = np.where(number < 2, -(2**31), np.where(number > 2, 2**31 - 1, 55))
    assert (lines_of(t)[-1] == SURE).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MANY), st.integers(1, 130), st.sampled_from(["i4", "i8"]))
def test_lines_near_ranks(seed, bits, channels, dtype):
    """Thresholds that are a unit off, or a quarter of their distance, have lines that are corrected."""
    rng = np.random.default_rng(seed)
    t = even(rng, 2**bits - 1, channels, dtype)
    off = np.maximum(1, np.diff(t, axis=0).min(axis=0) // 4)
    t = with_ends(rng, np.sort(t + rng.integers(-off, off + 1, t.shape), axis=0).astype(dtype))
    lines = lines_of(t)
    event(f"{len(lines)} rows")
    if lines.size:
        ranks = ((v := near(t))[:, None] > t).sum(axis=1)
        assert (ranks_of(lines[:5] if len(lines) == 5 else lines[:4], t, v) == ranks).all()
        for fused in (False, True) if len(lines) > 4 and dtype == "i4" else ():
            assert (ranks_in_single(lines[-5:], t, v, fused) == ranks).all()
    assert lines.size or (off == 1).any()


@pytest.mark.parametrize("moved", [-40, 40])
def test_uneven_thresholds_have_none(moved):
    t = (np.arange(255, dtype=np.int32) * 100)[:, None] + np.arange(3, dtype=np.int32)
    assert lines_of(t).shape == (9, 3) and lines_of(t.astype(np.int64)).shape == (4, 3)
    t[100, 1] += moved
    assert lines_of(t).shape == (5, 3)
    t[100, 1], t[50, 1] = t[100, 1] + moved, t[50, 1] - 2 * moved
    assert not lines_of(t).size
    assert not lines_of(t.astype(np.float64)).size and not lines_of(t[:6]).size
    assert not lines_of(t.astype(np.int64)[:, :1] + 2**40).size  # float64 products are not exact enough


@pytest.mark.parametrize("at", [0, 7, -70_000, 10**6, -(2**30), 2**30 + 3])
@pytest.mark.parametrize("count", [1, 2])
def test_lone_thresholds_have_lines(at, count):
    """Lanes with one threshold, or two far apart, beside others: all other thresholds are at the ends."""
    t = (np.arange(255, dtype=np.int32) * 100)[:, None] + np.arange(3, dtype=np.int32)
    t[100, 1] -= 2
    t[:100, 2], t[100, 2], t[100 + count :, 2] = -(2**31), at, 2**31 - 1
    t[101 : 100 + count, 2] = at + 100_000
    lines = lines_of(t)
    assert lines.shape == (5, 3)
    v = np.concatenate([near(t), near(t) + 50, near(t) * 3 // 2])
    v = np.clip(v, -(2**31) + 1, 2**31 - 1)
    ranks = (v[:, None] > t).sum(axis=1)
    assert (ranks_of(lines, t, v) == ranks).all() and (ranks_in_single(lines, t, v) == ranks).all()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.sampled_from(BITS),
    channels=st.sampled_from([1, 5, 31, 32, 33, 64, 100]),
    dtype=st.sampled_from(["int32", "int64", "float32"]),
    off=st.sampled_from([0, 50, 1000]),
)
def test_thresholds_count(seed, bits, channels, dtype, off):
    """Thresholds of dense values, rising and falling, with and without equality."""
    rng = np.random.default_rng(seed)
    count, integers = 2**bits - 1, "int32" if dtype == "float32" else dtype
    t = even(rng, count, channels, integers)
    if off:
        t = np.sort(t + rng.integers(-3, 4, t.shape) * np.maximum(1, np.abs(t) // off), axis=0)
    v = near(t.astype(integers)).astype(dtype)
    greater, strict = rng.random(channels) < 0.5, rng.random(channels) < 0.5
    codes = qa.Thresholds(t.T, greater=greater, strict=strict)(v).codes()
    a, b = v[:, None].astype(np.float64), t[None].astype(np.float64)
    passed = np.where(greater, np.where(strict, a > b, a >= b), np.where(strict, a < b, a <= b))
    assert (codes == passed.sum(axis=1)).all()


ENDS = -(2**31), -(2**31) + 1, -(2**31) + 2, -5, -1, 0, 1, 7, 2**31 - 2, 2**31 - 1


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]),
    channels=st.sampled_from([1, 3, 24, 31, 33, 64, 70]),
    count=st.sampled_from([1, 3, 7, 15, 31]),
)
def test_ends_count(seed, dtype, channels, count):
    """Values and thresholds at the ends of int32, of every dtype: the lowest int32 is no threshold below all values."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    v = rng.choice(
        [n for n in (*ENDS, info.min + (dtype == "int64"), info.max) if info.min <= n <= info.max], (9, channels)
    )
    if rng.random() < 0.5:
        t = np.sort(rng.choice([*ENDS, -(2**31) - 1, 2**31, -(2**40), 2**40], (channels, count)), axis=1)
    else:
        t = rng.integers(-300, 300, (channels, 1)) + rng.integers(0, 40, (channels, 1)) * np.arange(count)
    greater, strict = rng.random((2, channels, 1)) < 0.5
    codes = qa.Thresholds(t, greater=greater[:, 0], strict=strict[:, 0])(v.astype(dtype)).codes()
    a = v[..., None]
    passed = np.where(greater, np.where(strict, a > t, a >= t), np.where(strict, a < t, a <= t))
    assert (codes == passed.sum(axis=-1)).all()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("spaced", ["on a line", "near one", "anywhere", "few"])
@pytest.mark.parametrize("law", [qa.bipolar, qa.uint4, qa.int8])
@pytest.mark.parametrize("op", ["conv2d", "depthwise", "linear"])
def test_products_count(bits, spaced, law, op):
    """Products by every kernel, whose results are codes of many bits."""
    rng, count = np.random.default_rng(bits), 2**bits - 1
    shapes = {
        "conv2d": ((3, 9, 9, 40), (70, 3, 3, 40)),
        "depthwise": ((3, 20, 9, 70), (70, 3, 3, 1)),
        "linear": ((150, 200), (70, 200)),
    }[op]
    axes = -1, 0 if op == "depthwise" else -1
    x, w = (
        qa.from_codes(rng.integers(0, law.n_levels, shape, dtype=np.uint8), law, axis)
        for shape, axis in zip(shapes, axes, strict=True)
    )
    product = partial(qa.conv2d, groups=70) if op == "depthwise" else getattr(qa, op)
    sums = product(x, w)
    ends = [f(sums.reshape(-1, 70), axis=0) for f in (np.min, np.max)]
    t = ends[0] + (ends[1] - ends[0]) * (np.arange(count)[:, None] + 0.3) / count
    t += rng.uniform(-0.15, 0.15, t.shape) * (ends[1] - ends[0]) / count if spaced == "near one" else 0
    t = np.floor(np.sort(rng.uniform(*ends, t.shape), axis=0) if spaced == "anywhere" else t)
    if spaced == "few":  # some lanes have one threshold that sums pass, or none
        keep, number = rng.integers(0, count, 70), np.arange(count)[:, None]
        ends_of_lane = np.where(number < keep, -(2.0**30), 2.0**30)
        t = np.where((np.arange(70) % 3 == 0) & (number != keep), ends_of_lane, t)
    greater = rng.random(70) < 0.7
    got = product(x, w, requantize=qa.Thresholds(t.T, greater=greater)).codes()
    above, below = (compare(sums[..., None, :], t).sum(axis=-2) for compare in (np.greater, np.less))
    assert (got == np.where(greater, above, below)).all()
    assert op == "depthwise" or spaced == "few" or len(np.unique(got)) > count // 2
