"""Rows of floats by packed weights, against sums in the order of lanes, and against BitNet's formula."""

import tracemalloc

import fake_cupy
import numpy as np
import pytest
from float_products import in_groups, in_lanes
from hypothesis import given
from hypothesis import strategies as st
from strategies import channels, laws, samples, seeds

import quantarray as qa
from quantarray.backends.registry import few_rows, kernel

GROUPS = None, 1, 5, 16, 32, 48, 64
RNG = np.random.default_rng(0)
W = qa.from_codes(RNG.integers(0, 3, (300, 200)), qa.ternary)
X = RNG.normal(size=(4, 200)).astype(np.float32)


@given(st.data(), channels(), st.integers(1, 40), seeds())
def test_values_of_any_law(data, k, outputs, seed):
    w = data.draw(samples((outputs, k), 1, laws(8), (0, 1), GROUPS)).q
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(data.draw(st.integers(0, 5)), k)) * 10.0 ** rng.integers(-2, 3)).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = in_lanes(x, w.dequantize().astype(np.float32))
        np.testing.assert_array_equal(qa.linear(x, w), expected)


@pytest.mark.parametrize("rows", [1, 4, 5, 11, 200])
@pytest.mark.parametrize("outputs, k", [(1, 1), (7, 15), (33, 70), (70, 161), (3, 4200)])
@pytest.mark.parametrize("planes", [1, 4, 8])
def test_tiles(rows, outputs, k, planes):
    """Rows and outputs that fill no tile, and rows of codes that fill no vector, word or stretch."""
    w = qa.from_codes(RNG.integers(0, 2**planes, (outputs, k)), qa.uniform(planes), scale=np.float32(0.5), offset=0.1)
    x = RNG.normal(size=(rows, k)).astype(np.float32)
    np.testing.assert_array_equal(qa.linear(x, w), in_lanes(x, w.dequantize()))


NOTHING = [(*shape, rows) for shape in ((0, 0), (0, 70), (3, 0)) for rows in (0, 1, 5, 20)] + [(3, 70, 0)]


@pytest.mark.parametrize("outputs, k, rows", NOTHING)
def test_no_outputs_no_elements_and_no_rows(outputs, k, rows):
    """Every law and every kind of x: the result is zeros, or has none."""
    codes, one = np.zeros((outputs, k), np.uint8), np.ones((outputs, 1), np.float32)
    groups = {g: np.ones((outputs, -(-k // g)), np.float32) for g in (16, 64)}
    blocks = qa.SuperBlocks(groups[16].astype(np.int8), groups[16][:, :1].astype(np.float16))
    unscaled = [qa.from_codes(codes, law) for law in (qa.bipolar, qa.int4)]
    weights = [
        *unscaled,
        qa.from_codes(codes, qa.int4, scale=one),
        qa.from_codes(codes, qa.integers(0, 1, 5), scale=one),
        qa.from_codes(codes, qa.uniform(4), scale=one, offset=one),
        qa.from_codes(codes, qa.basis(2), scale=np.ones((2, 1, 1), np.float32), offset=one[:1]),
        qa.from_codes(codes, qa.table(4), table=np.ones((16, 1, 1), np.float32)),
        qa.from_codes(codes, qa.int4, scale=groups[16], group=16),
        qa.from_codes(codes, qa.uniform(4), scale=groups[64], offset=groups[64], group=64),
        qa.from_codes(codes, qa.int4, scale=blocks, group=16),
    ]
    for w in weights:
        spaced = w.dtype.kind == "uniform" or w.dtype.step is not None
        for how in (None, "row", *(16, 64) * spaced):
            for lead in ((rows,), (rows, 2), (0, rows)):
                y = qa.linear(np.ones((*lead, k), np.float32), w, quantize_x=how)
                assert y.shape == (*lead, outputs) and y.dtype == np.float32 and not y.any()
    for w in unscaled:
        for x in (np.ones((rows, k), np.int8), qa.from_codes(np.zeros((rows, k), np.uint8), qa.int2)):
            y = qa.linear(x, w)
            assert y.shape == (rows, outputs) and not y.any()


@pytest.mark.parametrize("at_once", [1, 300])
def test_parts_of_outputs(monkeypatch, at_once):
    """Tables of levels, and values, of which some outputs' are in memory at once."""
    w = qa.quantize(RNG.normal(size=(30, 64)).astype(np.float32), qa.LloydMax(2), group=32)
    deep = qa.quantize(RNG.normal(size=(30, 64)).astype(np.float32), qa.LloydMax(8), group=32)
    x = RNG.normal(size=(3, 64)).astype(np.float32)
    monkeypatch.setattr(qa.ops.products.float_rows, "_VALUES", at_once)
    for q in (w, deep):
        np.testing.assert_array_equal(qa.linear(x, q), in_lanes(x, q.dequantize()))


@pytest.mark.parametrize("levels", [(0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -3, -4, -6, -8, -12), (-5, 0, 1), (1, 7)])
@pytest.mark.parametrize("k, group", [(100, 16), (128, 32), (70, None), (30, 5)])
def test_scaled_integers_that_are_not_evenly_spaced(levels, k, group):
    codes = RNG.integers(0, len(levels), (9, k))
    groups = 1 if group is None else -(-k // group)
    w = qa.from_codes(codes, qa.integers(levels), scale=RNG.random((9, groups)).astype(np.float32), group=group)
    np.testing.assert_array_equal(qa.linear(X[:, :k], w), in_lanes(X[:, :k], w.dequantize()))


def test_tables_are_laid_out_once():
    w = qa.quantize(RNG.normal(size=(256, 4096)).astype(np.float32), qa.NormalFloat(4), group=64)
    x = RNG.normal(size=(1, 4096)).astype(np.float32)
    expected = qa.linear(x, w)
    assert w.nbytes_cached < w.nbytes
    tracemalloc.start()
    np.testing.assert_array_equal(qa.linear(x, w), expected)
    assert tracemalloc.get_traced_memory()[1] < 1 << 18 < w.nbytes_cached
    tracemalloc.stop()


def test_types_and_shapes():
    exact = qa.linear(X, W)
    half = X.astype(np.float16)
    np.testing.assert_array_equal(qa.linear(half, W), qa.linear(half.astype(np.float32), W))
    np.testing.assert_array_equal(qa.linear(X, W, out_dtype=np.float16), exact.astype(np.float16))
    np.testing.assert_array_equal(qa.linear(X.reshape(2, 2, 200), W), exact.reshape(2, 2, 300))
    np.testing.assert_array_equal(qa.linear(X[1], W), exact[1])
    np.testing.assert_array_equal(qa.linear(X[::2], W), exact[::2])
    np.testing.assert_array_equal(qa.linear(X.astype(">f4"), W), exact)
    assert qa.linear(X[:0], W).shape == (0, 300) and qa.linear(X[:0], W, quantize_x="row").shape == (0, 300)
    bias = RNG.normal(size=300).astype(np.float32)
    np.testing.assert_array_equal(qa.linear(X, W, bias=bias), exact + bias)
    packed = qa.linear(X, W, requantize=qa.Thresholds([0.0]))
    np.testing.assert_array_equal(packed.dequantize() > 0, exact > 0)


@pytest.mark.parametrize("quantize_x", [None, "row", 64])
def test_results_where_they_are_wanted(quantize_x):
    out = np.full((4, 300), np.nan, np.float32)
    assert qa.linear(X, W, out=out, quantize_x=quantize_x) is out
    np.testing.assert_array_equal(out, qa.linear(X, W, quantize_x=quantize_x))
    half = np.empty((4, 300), np.float16)
    qa.linear(X, W, out=half, out_dtype=np.float16, quantize_x=quantize_x)
    np.testing.assert_array_equal(half, out.astype(np.float16))


def bitnet(x, w):
    """BitLinear of BitNet b1.58: activations by absmax in float32, integers, and the division."""
    s = np.float32(127) / np.maximum(np.abs(x).max(1, keepdims=True), np.float32(1e-5))
    codes = np.clip(np.rint(x * s), -128, 127)
    return ((codes.astype(np.int64) @ w.T.astype(np.int64)).astype(np.float64) / s).astype(np.float32)


@given(st.integers(1, 1200), st.sampled_from([1e-30, 1e-6, 1.0, 1e30]), seeds())
def test_rows_as_bitnet_has_them(k, size, seed):
    rng = np.random.default_rng(seed)
    w = rng.integers(-1, 2, (5, k))
    x = (rng.normal(size=(3, k)) * size).astype(np.float32)
    x[1] = 0
    got = qa.linear(x, qa.encode(w, (-1, 0, 1)), quantize_x="row")
    np.testing.assert_array_equal(got, bitnet(x, w))


def test_the_largest_magnitude_is_127():
    """Check magnitudes of either sign, also where the quotient is rounded up."""
    w = qa.encode(np.eye(64, dtype=int), (0, 1))
    for magnitude in np.float32(10) ** np.arange(-4, 30, 0.37, np.float32):
        x = np.zeros((1, 64), np.float32)
        x[0, 3], x[0, 5] = -magnitude, magnitude
        y = qa.linear(x, w, quantize_x="row")
        assert y[0, 5] == -y[0, 3] and abs(y[0, 5] / magnitude - 1) < 3e-7


FORMS = {
    "plain": lambda codes: qa.from_codes(codes % 3, qa.ternary),
    "scaled": lambda codes: qa.from_codes(codes % 3, qa.ternary, scale=(1 + np.arange(len(codes))[:, None]) / 7),
    "two apart": lambda codes: qa.from_codes(codes % 2, qa.bipolar),
    "scaled bits": lambda codes: qa.from_codes(codes % 2, qa.uint1, scale=(1 + np.arange(len(codes))[:, None]) / 7),
    "four bits": lambda codes: qa.from_codes(codes % 16, qa.int4),
    "bytes": lambda codes: qa.from_codes(codes, qa.uint8),
    "offsets": lambda codes: qa.quantize(np.sin(codes).astype(np.float32), qa.Uniform(3, symmetric=False)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("outputs", [1, 2, 9, 15, 40])
@pytest.mark.parametrize("k", [1, 64, 65, 130, 192, 256, 448, 449, 512, 513, 1100])
def test_few_rows_from_words(form, k, outputs):
    """Few rows have a kernel of their own, some by four or eight, and the same results as those rows among more."""
    w = FORMS[form](RNG.integers(0, 256, (outputs, k), dtype=np.uint8))
    x = RNG.normal(size=(few_rows("cpu", w.bits) + 4, k)).astype(np.float32)
    for part in (w, w[outputs // 3 :], w[::2]):
        expected = qa.linear(x, part, quantize_x="row")
        for rows in range(1, few_rows("cpu", w.bits) + 1):
            np.testing.assert_array_equal(qa.linear(x[:rows], part, quantize_x="row"), expected[:rows])


def test_words_that_leave_the_cache():
    """Rows meet some outputs after others, where the words of all are more than a cache holds."""
    w = FORMS["bytes"](RNG.integers(0, 256, (1100, 1100), dtype=np.uint8))
    x = RNG.normal(size=(few_rows("cpu", w.bits) + 4, 1100)).astype(np.float32)
    y = qa.linear(x[: few_rows("cpu", w.bits)], w, quantize_x="row")
    np.testing.assert_array_equal(y, qa.linear(x, w, quantize_x="row")[: len(y)])


@pytest.mark.parametrize("form", ["two apart", "scaled bits"])
@pytest.mark.parametrize("outputs", [4096, 4127, 5000])
@pytest.mark.parametrize("k", [193, 250, 256, 512, 1000, 1025, 2048])
def test_bits_that_are_looked_up(form, outputs, k):
    """One row by many outputs of one bit, also where they fill no block of 32 and no 4 words."""
    w = FORMS[form](RNG.integers(0, 2, (outputs, k), dtype=np.uint8))
    x = RNG.normal(size=(20, k)).astype(np.float32)
    for part in (w, w[::2], w[1:]):
        y = qa.linear(x[:1], part, quantize_x="row")
        np.testing.assert_array_equal(y, qa.linear(x, part, quantize_x="row")[:1])


@pytest.mark.parametrize("code", [-128, 127])
def test_the_largest_sums_of_bits(code):
    """Sums of 256 bytes fill the 16 bits of a table's entries."""
    bits, out = np.ones((4100, 768), np.uint8), np.empty((1, 4100), np.float32)
    bits[::2, 300:] = 0
    words, none = qa.pack_bits(bits).words, np.empty(0, np.float32)
    codes = np.full((1, 768), code, np.int8)
    kernel("cpu", "byte_row_product")(codes, np.ones(1, np.float32), words, 0, 1, none, none, out)
    np.testing.assert_array_equal(out[0], code * bits.sum(axis=1, dtype=np.int64))


@pytest.mark.parametrize("k", [2**16, 2**16 + 1])
@pytest.mark.parametrize("rows", [1, 8])
def test_few_rows_at_the_bound_of_sums(k, rows):
    w = qa.from_codes(np.full((2, k), 255, np.uint8), qa.uint8)
    for x in (np.ones((rows, k), np.float32), -np.ones((rows, k), np.float32)):
        np.testing.assert_array_equal(qa.linear(x, w, quantize_x="row"), x[:, :1] * np.float32([[255 * k, 255 * k]]))


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_largest_sums_of_units(bits):
    """Products that fill the 16 bits in which AVX2 adds those of few bits."""
    w = qa.encode(np.full((35, 520), 2**bits - 1), range(2**bits))
    for rows in (1, 2, 4, 9, 40):
        x = np.where(np.arange(rows)[:, None] % 2, np.ones((rows, 520)), -1).astype(np.float32)
        for run in (16, 32, "row"):
            exact = (2**bits - 1) * 520 * x[:, :1]
            if run != "row":
                np.testing.assert_array_equal(qa.linear(x, w, quantize_x=run), in_groups(x, w, run))
            np.testing.assert_allclose(qa.linear(x, w, quantize_x=run), np.repeat(exact, 35, axis=1), 1e-6)
        codes, out = np.full((rows, 520), -128, np.int8), np.empty((rows, 35), np.float32)
        none = np.empty(0, np.float32)
        kernel("cpu", "byte_row_product")(codes, np.ones(rows, np.float32), w.words, 0, 1, none, none, out)
        np.testing.assert_array_equal(out, -128 * 520 * (2**bits - 1))


def test_few_rows_lay_nothing_out():
    w = qa.from_codes(RNG.integers(0, 3, (64, 2048), dtype=np.uint8), qa.ternary)
    qa.linear(RNG.normal(size=(few_rows("cpu", w.bits), 2048)).astype(np.float32), w, quantize_x="row")
    assert w.nbytes_cached == 0


SCHEMES = {
    "integers": lambda bits: qa.Uniform(bits),
    "offsets": lambda bits: qa.Uniform(bits, symmetric=False),
}


@given(st.data(), st.integers(1, 8), st.integers(1, 21), st.sampled_from([1, 2, 15, 17, 40]), seeds())
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_in_groups(scheme, data, bits, rows, outputs, seed):
    """Groups of x and of w of 16, 32 and more, rows that end within a word or a block, and one scale for all."""
    lengths = [1, 15, 33, 64, 100, 127, 200, 256, 448, 512, 1024, 1100, 1536, 2600]
    rng, k = np.random.default_rng(seed), data.draw(st.sampled_from(lengths))
    x, base = (rng.normal(size=(n, k)).astype(np.float32) for n in (rows, outputs))
    group = data.draw(st.sampled_from([None, 16, 32, 64, 128, 192, 256, 512, 1024]))
    w = qa.quantize(base, SCHEMES[scheme](bits), **({} if group is None else {"group": group}))
    run = data.draw(st.sampled_from([16, 32, 64, 192, "row"] if w.group else [16, 32, 64, 192]))
    expected = in_groups(x, w, k if run == "row" else run)
    np.testing.assert_array_equal(qa.linear(x, w, quantize_x=run), expected)
    exact = x.astype(np.float64) @ w.dequantize().astype(np.float64).T
    half_steps = np.abs(x).max() / 254 * np.abs(w.dequantize()).sum(axis=1).max()
    assert np.abs(expected - exact).max() <= 1.01 * half_steps + 1e-6


@pytest.mark.parametrize("run", [16, 32])
@pytest.mark.parametrize("group", [16, 32, 64, 128, 256, 512, 1024, 2048])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_constants_of_several_units(scheme, group, run):
    """Rows of whole blocks, whose constants are read where they are stored, each for 1 to 64 units."""
    base = (RNG.normal(size=(18, 2048)) * RNG.uniform(0.1, 9, (18, 128)).repeat(16, axis=1)).astype(np.float32)
    x = RNG.normal(size=(13, 2048)).astype(np.float32)
    for bits in (1, 2, 4, 8):
        w = qa.quantize(base, SCHEMES[scheme](bits), group=group)
        for rows in (1, 3, 8, 13):
            np.testing.assert_array_equal(qa.linear(x[:rows], w, quantize_x=run), in_groups(x[:rows], w, run))


@pytest.mark.parametrize("k", [16, 48, 250, 512, 700])
@pytest.mark.parametrize("run, unit", [(16, 16), (32, 16), (32, 32), (64, 32), (256, 32), (320, 16), (704, 32)])
def test_kernel_encode_runs(k, run, unit):
    """Runs that end with a row and before it, the largest and the least magnitude, and what is not finite."""
    x = RNG.normal(size=(3, k)).astype(np.float32) * RNG.choice([1e-9, 1, 1e30], (3, k)).astype(np.float32)
    x[1] = 0
    units = -(-k // unit)
    codes, scales = np.empty((3, units * unit), np.int8), np.empty((3, 3, units), np.float32)
    wrong = np.zeros(1, bool)
    kernel("cpu", "encode_runs")(x, run, unit, -3, wrong, *scales, codes)
    starts = range(0, k, run)
    ends = np.stack([np.maximum(np.abs(x[:, i : i + run]).max(axis=1), np.float32(1e-5)) for i in starts], axis=1)
    whole = np.zeros((3, units * unit), np.int64)
    whole[:, :k] = np.rint(x * np.repeat(np.float32(127) / ends, run, axis=1)[:, :k])
    totals = whole.reshape(3, units, unit).sum(axis=2)
    shares = np.repeat(ends / np.float32(127), run, axis=1)[:, ::unit][:, :units]
    np.testing.assert_array_equal(codes, whole)
    for got, expected in zip(scales, (shares, -3 * totals, totals.astype(np.float32) * shares), strict=True):
        np.testing.assert_array_equal(got, expected.astype(np.float32))
    assert not wrong[0]
    for number in (np.inf, -np.inf, np.nan):
        for place in (0, k // 2, k - 1):
            bad = x.copy()
            bad[2, place], wrong[0] = number, False
            kernel("cpu", "encode_runs")(bad, run, unit, -3, wrong, *scales, codes)
            assert wrong[0]


@pytest.mark.parametrize("rows, outputs", [(131, 21), (300, 3)])
@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_in_groups(rows, outputs, threads):
    """More rows than have their sums in L2 at once, and tasks of several threads."""
    w = qa.quantize(RNG.normal(size=(outputs, 1100)).astype(np.float32), qa.Uniform(4, symmetric=False), group=32)
    x = RNG.normal(size=(rows, 1100)).astype(np.float32)
    before = qa.get_num_threads()
    try:
        qa.set_num_threads(threads)
        np.testing.assert_array_equal(qa.linear(x, w, quantize_x=32), in_groups(x, w, 32))
    finally:
        qa.set_num_threads(before)


@pytest.mark.parametrize("run", [16, 32, 64])
def test_plain_integers_in_groups(run):
    """Levels that are one, two, and more apart, with and without sign, and zero rows."""
    x = np.concatenate([X, X[::-1], -X[:1]])
    x[1] = 0
    for levels in ((-1, 0, 1), (-1, 1), (-3, -1, 1, 3), (1, 3, 5, 7, 9), range(0, 256, 2), range(-9, 30, 3), range(8)):
        w = qa.encode(np.array(levels)[RNG.integers(0, len(levels), (35, 200))], tuple(levels))
        for rows in (x, x[:2], x[:5], x[:8]):
            np.testing.assert_array_equal(qa.linear(rows, w, quantize_x=run), in_groups(rows, w, run))


@pytest.mark.parametrize("group", [None, 64])
def test_a_number_of_elements_is_any_integer(group):
    w = qa.quantize(X, qa.Uniform(4), **({} if group is None else {"group": group}))
    for number in (np.int64(64), np.array(64), np.uint8(64)):
        np.testing.assert_array_equal(qa.linear(X, w, quantize_x=number), qa.linear(X, w, quantize_x=64))
        nearest = qa.top_k(X, w, 1, "dot", quantize_queries=number)
        np.testing.assert_array_equal(nearest.indices, qa.top_k(X, w, 1, "dot", quantize_queries=64).indices)
        taken = [qa.explain(qa.linear, X, w, quantize_x=n).choices[0].taken for n in (number, 64)]
        assert taken[0] == taken[1]


def exact_in_groups(x, w, run):
    """Exact sums of products of int8 and integer levels, of each `run` elements, divided by the scale in float64."""
    total = np.zeros((len(x), len(w.codes())))
    for first in range(0, x.shape[1], run):
        part, values = (a[:, first : first + run] for a in (x, w.dequantize()))
        s = np.float32(127) / np.abs(part).max(1, keepdims=True)
        total += (np.rint(part * s).astype(int) @ values.T.astype(int)) / s.astype(np.float64)
    return total.astype(np.float32)


@pytest.mark.parametrize("run", [64, 128])
@pytest.mark.parametrize("levels", [(-2, 0, 3), (5000, 5001, 5002)])
def test_other_levels_in_groups(run, levels):
    """Compare with exact sums of each group of x: levels are uneven, or so large that float32 is not exact."""
    w = qa.encode(np.array(levels)[W.codes()], levels)
    np.testing.assert_array_equal(qa.linear(X, w, quantize_x=run), exact_in_groups(X, w, run))
    with pytest.raises(ValueError, match="needs levels of w that are evenly spaced"):
        qa.linear(X, w, quantize_x=32)


TABLES = {
    "table": lambda a: qa.quantize(a, qa.NormalFloat(4)),
    "tables of outputs": lambda a: qa.quantize(a, qa.LloydMax(2), scale_axis=0),
    "tables of groups": lambda a: qa.quantize(a, qa.NormalFloat(4), group=64),
    "uneven levels in groups": lambda a: qa.from_codes(
        np.signbit(a) + 2 * (np.abs(a) > 0.5), qa.integers((-9, -2, 0, 5)), scale=np.ones((30, 4)) / 3, group=64
    ),
}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("run", ["row", 64, 128])
def test_tables_meet_rounded_rows(form, rows, run):
    """Levels that are not evenly spaced: codes of x become floats again, and meet the values of w."""
    w = TABLES[form](RNG.normal(size=(30, 200)).astype(np.float32))
    x = RNG.normal(size=(rows, 200)).astype(np.float32)
    x[0, :64] = 0
    parts = [x] if run == "row" else np.split(x, range(run, 200, run), axis=1)
    scales = [np.float32(127) / np.maximum(np.abs(part).max(1, keepdims=True), np.float32(1e-5)) for part in parts]
    rounded = np.concatenate([np.rint(part * s) / s for part, s in zip(parts, scales, strict=True)], axis=1)
    np.testing.assert_array_equal(qa.linear(x, w, quantize_x=run), qa.linear(rounded, w))


def test_scaled_weights():
    rng = np.random.default_rng(0)
    w = qa.quantize(rng.normal(size=(30, 256)).astype(np.float32), qa.Uniform(4), group=64)
    x = rng.normal(size=(4, 256)).astype(np.float32)
    error = np.abs(qa.linear(x, w, quantize_x="row") - qa.linear(x, w)).max()
    assert 0 < error < 0.5


@pytest.mark.parametrize("quantize_x", [None, "row", 32, 64])
def test_a_gpu_gives_the_same(quantize_x):
    expected = qa.linear(X, W, bias=np.float32(range(300)), quantize_x=quantize_x)
    with fake_cupy.gpu() as xp, fake_cupy.sums_in_another_order():
        got = qa.linear(xp.asarray(X), W.to_device("cuda"), bias=np.float32(range(300)), quantize_x=quantize_x)
        np.testing.assert_array_equal(xp.asnumpy(got), expected)
        with pytest.raises(qa.DeviceError, match="linear: operands are on different devices"):
            qa.linear(X, W.to_device("cuda"), quantize_x=quantize_x)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: qa.linear(X[:, :7], W), ValueError, r"x \(4, 7\) and w \(300, 200\) must have the same last length"),
        (lambda: qa.linear(X.astype(np.float64), W), TypeError, "float64"),
        (lambda: qa.linear(X, W, quantize_x=60), ValueError, 'must be "row", 16, 32, or a multiple of 64'),
        (lambda: qa.linear(X, W, quantize_x=100), ValueError, 'must be "row", 16, 32, or a multiple of 64'),
        (lambda: qa.linear(X, W, quantize_x="column"), ValueError, 'must be "row", 16, 32, or a multiple of 64'),
        (lambda: qa.linear(X, W, quantize_x=0), ValueError, 'must be "row", 16, 32, or a multiple of 64'),
        (lambda: qa.linear(X, W, quantize_x=True), ValueError, "elements, got True"),
        (lambda: qa.linear(X, W, quantize_x=32.0), TypeError, 'must be "row", 16, 32, or a multiple of 64'),
        (lambda: qa.linear(X * np.nan, W, quantize_x="row"), ValueError, "got nan at row 0, element 0"),
        (
            lambda: qa.linear(np.float32([[0] * 200, [*[1] * 199, np.inf]]), W, quantize_x=64),
            ValueError,
            "must be finite where it is quantised, got inf at row 1, element 199",
        ),
        (
            lambda: qa.linear(np.ones((1, 200), np.int8), W, quantize_x="row"),
            TypeError,
            "got int8 array .*; leave quantize_x out",
        ),
        (lambda: qa.linear(X, W, out_dtype=np.int32), TypeError, "out_dtype must be one of float16, float32"),
        (lambda: qa.linear(X, W, out=np.empty((4, 30), np.float32)), ValueError, "out must be a writable NumPy array"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_no_matrix_of_all_weights():
    """A product of 4 million weights takes memory for a few outputs' values."""
    w = qa.from_codes(np.zeros((1024, 4096), np.uint8), qa.uint4, scale=np.ones((1024, 1), np.float32))
    x = np.ones((1, 4096), np.float32)
    qa.linear(x, w)
    tracemalloc.start()
    qa.linear(x, w)
    assert tracemalloc.get_traced_memory()[1] < 1 << 18
    tracemalloc.stop()


@pytest.mark.parametrize(
    "quantizer, group, quantize_x, words",
    [
        (qa.Uniform(4), 96, "row", "16, 32 or a multiple of 64, got 96"),
        (qa.NormalFloat(4), 64, 32, 'table.*in groups of 64; pass "row"'),
        (qa.NormalFloat(4), None, 16, r'evenly spaced, got table\(4\); pass "row"'),
        (qa.NormalFloat(4), 32, "row", "groups of 32; leave quantize_x out"),
    ],
)
def test_forms_that_no_kernel_takes(quantizer, group, quantize_x, words):
    w = qa.quantize(np.ones((4, 192), np.float32), quantizer, group=group)
    with pytest.raises(ValueError, match=words):
        qa.linear(np.ones((2, 192), np.float32), w, quantize_x=quantize_x)


def test_an_explanation_names_the_form():
    uneven = qa.quantize(RNG.normal(size=(30, 192)).astype(np.float32), qa.NormalFloat(4), group=64)
    for w, quantize_x, form in (
        (W, None, "values of w"),
        (W, 32, "int8 runs and groups of w"),
        (W, "row", "int8 rows and the words of w"),
        (uneven, "row", "rounded rows and values of w"),
    ):
        x = np.ones((2, w.shape[1]), np.float32)
        how = qa.explain(qa.linear, x, w, quantize_x=quantize_x)
        assert [choice.taken for choice in how.choices if choice.stage == "rows of floats"] == [form]


@pytest.mark.parametrize("k", [1, 17, 200])
@pytest.mark.parametrize("least", [1e-5, 1e-36])
def test_kernel_encode_rows(k, least):
    x = (RNG.normal(size=(9, k)) * 10.0 ** RNG.integers(-40, 30, (9, 1))).astype(np.float32)
    x[0], x[1] = 0, np.float32(3e38)
    codes, scales, wrong = np.empty((9, k), np.int8), np.empty(9, np.float32), np.zeros(1, bool)
    kernel("cpu", "encode_rows")(x, least, wrong, scales, codes)
    expected = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(least))
    np.testing.assert_array_equal(scales, expected)
    np.testing.assert_array_equal(codes, np.rint(x * expected[:, None]))
    assert not wrong[0]
    for value in (np.nan, np.inf, -np.inf):
        x[5, k // 2] = value
        kernel("cpu", "encode_rows")(x, least, wrong, scales, codes)
        assert wrong[0]
        wrong[0] = False


@pytest.mark.parametrize("most", [9, 2**24, 2**24 + 9, 2**31 - 1, 2**40])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_kernel_divide_rows(dtype, most):
    """A quotient is rounded once, on both sides of the bound up to which integers are float32."""
    if most > np.iinfo(np.int32).max and dtype == np.int32:
        pytest.skip("it does not fit")
    sums = RNG.integers(-most, most, (40, 33), endpoint=True).astype(dtype)
    sums[0], sums[1, :2], sums[2] = 0, (most, -most), -sums[2] * 0
    scales = np.exp(RNG.normal(size=40) * 20).astype(np.float32)
    out = np.empty(sums.shape, np.float32)
    kernel("cpu", "divide_rows")(sums, scales, out)
    exact = sums.astype(np.longdouble) / scales[:, None]  # of 64 digits, which round to float32 as the quotient does
    np.testing.assert_array_equal(out, exact.astype(np.float32))
    assert not np.signbit(out[sums == 0]).any()


def test_doubles_are_named():
    with pytest.raises(TypeError, match=r"got float64 array \(2, 200\); pass x.astype\(np.float32\)$"):
        qa.linear(np.ones((2, 200)), W)
