"""CUDA twins of what moves, looks up and pools codes, bit for bit what the CPU's kernels make."""

from unittest.mock import patch

import naive
import numpy as np
import pytest
from conv_cases import Case, arrays, check, integer_bias, real_bias, real_depthwise
from cuda_backend import both, twins
from hypothesis import given, settings
from hypothesis import strategies as st
from results import assert_bits
from strategies import laws

import quantarray as qa
from quantarray.core.format import tail_mask, word_count
from quantarray.cuda.depthwise import bit_sliced
from quantarray.cuda.runtime import launch

LENGTHS = (1, 31, 32, 33, 64, 65, 129)
few = settings(max_examples=6)


@pytest.fixture(autouse=True, scope="module", params=[1, 3], ids=["1-warp", "3-warps"])
def few_warps(request):
    """Blocks so small that rows need several, and grids so low that rows are walked."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch, "WARPS", request.param)
        patched.setattr(launch, "MOST_ROWS", 2)
        yield


def words(rng, *shape, length):
    """Random words [.. word] of rows of `length` bits, tails zero."""
    made = rng.integers(0, 1 << 64, (*shape, word_count(length)), np.uint64)
    made[..., -1] &= np.uint64(tail_mask(length))
    return made


def equal(name, *args, out):
    cpu, cuda = both(name, *args, out=out)
    assert cpu.any()
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("length", (1, 33, 64, 129))
@pytest.mark.parametrize("bits, more, new_bits, group", [
    (1, 0, 1, 1000), (2, 0, 3, 1000), (1, 2, 2, 20), (8, 0, 15, 64), (3, 4, 8, 64),
])  # fmt: skip
@pytest.mark.parametrize("row", [[1, 0, 1], [0]], ids=["a table a row", "one for all"])
def test_recode(row, bits, more, new_bits, group, length):
    """Codes of one array or of two, through tables whose code 0 becomes another one; tails are zero."""
    rng = np.random.default_rng(length)
    groups = max(1, -(-length // group))
    tables = rng.integers(0, 2**new_bits, (max(row) + 1, groups, 2 ** (bits + more)), np.uint32)
    x, above = words(rng, bits, 3, length=length), words(rng, more, 3, length=length)
    tables[..., 0] = 1
    args, out = (x, above, tables, np.array(row), group, length), np.full((new_bits, *x.shape[1:]), 77, np.uint64)
    equal("recode", *args, out=out)
    got = both("recode", *args, out=out)[1]
    assert not (got[..., -1] & ~np.uint64(tail_mask(length))).any()
    part = np.arange(length) // group if groups > 1 else np.zeros(length, int)
    expected = tables[np.broadcast_to(row, 3)[:, None], part, codes_of(np.concatenate([x, above]), length)]
    np.testing.assert_array_equal(codes_of(got, length), expected)


@pytest.mark.parametrize("length", (1, 33, 64, 129))
@pytest.mark.parametrize("bits, more, new_bits", [(1, 1, 2), (4, 4, 5), (7, 2, 8), (2, 7, 8), (3, 3, 6)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_add_codes(turned, bits, more, new_bits, length):
    rng = np.random.default_rng(length)
    x, y = words(rng, bits, 3, length=length), words(rng, more, 3, length=length)
    args, out = (x, y, turned, length), np.full((new_bits, *x.shape[1:]), 77, np.uint64)
    cpu, got = both("add_codes", *args, out=out)
    np.testing.assert_array_equal(got, cpu)
    assert not (got[..., -1] & ~np.uint64(tail_mask(length))).any()
    a, b = codes_of(x, length), codes_of(y, length)
    expected = (2**bits - 1 - a if turned[0] else a) + (2**more - 1 - b if turned[1] else b)
    np.testing.assert_array_equal(codes_of(got, length), expected)


def codes_of(packed, length):
    """Return the codes [rows length] of words [planes rows words]."""
    bits = np.unpackbits(packed.view(np.uint8), axis=-1, bitorder="little", count=length)
    return np.tensordot(1 << np.arange(len(bits)), bits.astype(int), 1)


@pytest.mark.parametrize("length, segments, new_length, new_segments, start", [
    (5, 7, 35, 1, 0), (35, 1, 5, 7, 0), (65, 3, 64, 3, 0), (64, 3, 31, 4, 13), (129, 2, 100, 2, 40), (1, 70, 70, 1, 0),
    (200, 1, 3, 20, 77),
])  # fmt: skip
def test_rebit(length, segments, new_length, new_segments, start):
    x = words(np.random.default_rng(length), 3, segments, length=length)
    out = np.zeros((3, new_segments, word_count(new_length)), np.uint64)
    equal("rebit", x, length, start, new_length, out=out)


@pytest.mark.parametrize("step", [1, -1, 0, 2, 3, -7])
@pytest.mark.parametrize("count", (1, 32, 63, 64, 130))
@pytest.mark.parametrize("before", (0, 5, 100))
def test_place(step, count, before):
    """The second of three parts is one row for all."""
    rng = np.random.default_rng(count + before)
    reach = abs(step) * (count - 1)
    start = 3 if step >= 0 else reach + 3
    first, last = words(rng, 3, length=100), words(rng, 3, length=70)
    one = words(rng, 1, length=reach + 9)
    for x in (one, words(rng, 3, length=reach + 9)):
        parts = [(first, 0, 1, before), (x, start, step, count), (last, 1, 1, 66)]
        equal("place", parts, out=np.zeros((3, word_count(before + count + 66)), np.uint64))


@pytest.mark.parametrize("times", (1, 2, 3, 31, 64, 70))
@pytest.mark.parametrize("length", (1, 33, 65))
def test_spread(length, times):
    x = words(np.random.default_rng(times), 3, length=length)
    equal("spread", x, times, out=np.zeros((3, word_count(length * times)), np.uint64))


@pytest.mark.parametrize("dtype", [np.int64, np.int16])
@pytest.mark.parametrize("n", LENGTHS)
def test_gather(n, dtype):
    rng = np.random.default_rng(n)
    x = words(rng, 4, length=100) | np.uint64(1)
    indices = rng.integers(-100, 100, (2, n)).astype(dtype)
    equal("gather", x, 100, indices, out=np.zeros((4, word_count(n)), np.uint64))
    equal("gather", x, 100, np.broadcast_to(indices[:1], (4, n)), out=np.zeros((4, word_count(n)), np.uint64))


@pytest.mark.parametrize("n", (1, 33, 65))
def test_gather_rows(n):
    rng = np.random.default_rng(n)
    x = words(rng, 2, 2, 5, 3, length=n)
    indices = rng.integers(-5, 5, (2, 4, 3, n))
    equal("gather_rows", x, indices, out=np.zeros((2, 2, 4, 3, word_count(n)), np.uint64))
    shared = np.broadcast_to(indices[:, :, :1], indices.shape)
    equal("gather_rows", x, shared, out=np.zeros((2, 2, 4, 3, word_count(n)), np.uint64))


@pytest.mark.parametrize("p", LENGTHS)
@pytest.mark.parametrize("a", (1, 33, 70))
def test_repack(a, p):
    x = words(np.random.default_rng(a + p), 2, a, 3, length=p)
    equal("repack", x, out=np.zeros((2, p, 3, word_count(a)), np.uint64))


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("channels", (1, 130))
def test_max_pool(bits, channels):
    values = np.random.default_rng(bits).integers(0, 2**bits, (2, 4, 5, channels))
    expected = values[:, :3, 1:4]
    for i, j in np.ndindex(2, 3):
        expected = np.maximum(expected, values[:, i : i + 3, j : j + 3])
    with twins():
        got = qa.max_pool2d(qa.encode(values, range(2**bits)), (2, 3), stride=1, padding=((0, 0), (0, 0)))
        padded = qa.max_pool2d(qa.encode(values, range(2**bits)), (2, 3), stride=2, padding=((1, 0), (2, 0)))
    np.testing.assert_array_equal(got.codes(), expected)
    np.testing.assert_array_equal(padded.codes(), naive.max_pool2d(values, (2, 3), (2, 2), ((1, 0), (2, 0))))


@pytest.mark.parametrize("bits", (1, 3))
@pytest.mark.parametrize("channels", (1, 70))
def test_max_pool_numbers_the_first_tap_and_falls(bits, channels):
    values = np.random.default_rng(bits).integers(0, 2**bits, (2, 3, 4, 5, channels))
    geometry = {"stride": (2, 1, 2), "padding": ((0, 1), (1, 0), (1, 1)), "dilation": (1, 2, 1), "ceil_mode": True}
    falling = np.arange(channels) % 3 == 1
    sign = np.where(falling, -1, 1)
    largest, place, *_ = naive.pool(values * sign, (2, 2, 3), **geometry)
    q, how = qa.encode(values, range(2**bits)), {"falling": falling, **geometry}
    with twins():
        got, where = qa.max_pool3d(q, (2, 2, 3), return_indices=True, **how)
        alone = qa.max_pool3d(q, (2, 2, 3), **how)
    np.testing.assert_array_equal(got.codes(), largest * sign)
    np.testing.assert_array_equal(alone.words, got.words)
    np.testing.assert_array_equal(where, place)


@st.composite
def cases(draw):
    """Depthwise convolutions of few pixels, with channel multipliers."""
    channels, copies = draw(st.sampled_from([(1, 1), (33, 1), (65, 1), (5, 3), (40, 2)]))
    kernel, image, stride = ([draw(st.integers(1, n)) for _ in range(2)] for n in (2, 3, 2))
    pads = [
        [draw(st.integers(0, 1)) + max(0, k - n), draw(st.integers(0, 1))] for k, n in zip(kernel, image, strict=True)
    ]
    options = {"stride": tuple(stride), "dilation": (1, 1), "groups": channels, "pad_value": draw(st.integers(-2, 2))}
    x = draw(st.integers(1, 2)), *image, channels
    return Case(x, (channels * copies, *kernel, 1), options, tuple(pads), "NHWC")


@few
@given(st.data(), cases())
def test_integers_depthwise(data, case):
    law = laws(3, kinds=["integer"])
    x, w, *ours = arrays(data.draw, case, law, law, w_axis=0)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    with twins():
        check(data.draw, case, *ours, expected.astype(np.int32), bias)


@few
@given(st.data(), cases())
def test_floats_depthwise(data, case):
    """Constants vary by image and channel on the left and by channel on the right."""
    law = laws(2, ["scaled", "uniform", "basis", "table"])
    x, w, *ours = arrays(data.draw, case, law, law, x_vary=(0, 3), w_axis=0)
    bias, expected = real_bias(data.draw, lambda b: real_depthwise(case, x, w, b))
    with twins():
        check(data.draw, case, *ours, expected, bias)


@pytest.mark.parametrize("law", [(-1, 1), range(8)])
def test_avg_pool(law):
    values = np.random.default_rng(0).choice(law, (2, 3, 4, 65))
    q = qa.encode(values, law)
    on_cpu = qa.avg_pool2d(q, (2, 3), stride=1, padding=((1, 0), (1, 1)))
    with twins():
        assert_bits(qa.avg_pool2d(q, (2, 3), stride=1, padding=((1, 0), (1, 1))), on_cpu)


def test_avg_pool_counts_padding():
    """Places of a `ceil_mode` window after the padding count in no mean."""
    values = np.random.default_rng(0).choice([-1, 1], (2, 2, 3, 4, 65))
    geometry = {"stride": (1, 2, 3), "padding": ((0, 1), (1, 0), (1, 1)), "ceil_mode": True}
    _, _, total, _, counted = naive.pool(values, (2, 2, 3), **geometry)
    with twins():
        got = qa.avg_pool3d(qa.encode(values, (-1, 1)), (2, 2, 3), count_include_pad=True, **geometry)
    assert_bits(got, (total / counted[..., None]).astype(np.float32))


@pytest.mark.parametrize("field", [1, 2, 8, 32])
def test_turn(field):
    x = np.random.default_rng(field).integers(0, 1 << 64, (3, 5), np.uint64)
    equal("turn", x, field, out=np.zeros((3, field, 5), np.uint64))


@pytest.mark.parametrize("channels, per_group, size", [(70, 1, 1), (130, 1, 3), (130, 1, 6), (64, 4, 2), (96, 8, 3)])
@pytest.mark.parametrize("signs", [(-1, 1), (0, 1)])
def test_bits_in_groups_of_few_channels(channels, per_group, size, signs):
    """Counters of 4, 6 and 8 planes; thresholds that rise and fall; x with a step of 2 and of 1."""
    rng = np.random.default_rng(channels)
    x = qa.encode(rng.choice(signs, (2, 3, 4, channels)), signs)
    w = rng.choice((-1, 1), (channels, size, size, per_group))
    law = qa.Thresholds(rng.integers(-2, 3, (channels, 1)), greater=rng.integers(0, 2, channels).astype(bool))

    def run():
        packed = qa.encode(w, (-1, 1), axis=0 if per_group == 1 else -1)
        groups = channels // per_group
        return qa.conv2d(x, packed, padding=size // 2, groups=groups, requantize=law).words

    on_cpu = run()
    with twins(), patch.object(bit_sliced, "sliced", wraps=bit_sliced.sliced) as ran:
        np.testing.assert_array_equal(run(), on_cpu)
    assert ran.call_count
