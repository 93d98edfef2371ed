"""One pass for each scheme: the codes and constants of its formula in NumPy, as it was before there was a kernel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import threads

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.backends.registry import kernel
from quantarray.core.bounded_cache import Kept
from quantarray.ops.quantize import prepared_schemes as prepared
from quantarray.quantizers.base import Quantizer
from quantarray.quantizers.extremes import extremes

FLOATS = [np.float16, np.float32, np.float64]


def uniform_codes(quantizer, x, constants):
    x = x.astype(np.float64)
    if quantizer.dtype == qa.bipolar:
        return (x >= 0).astype(np.uint8)
    if quantizer.midrise:
        step = 2 * constants.scale.astype(np.float64)
        half = 2 ** (quantizer.bits - 1)
        return (np.clip(np.floor(x / np.where(step == 0, 1, step)), -half, half - 1) + half).astype(np.uint8)
    if getattr(quantizer, "alpha", None) is not None:
        top = 2**quantizer.bits - 1
        return np.rint(np.clip(x, 0, quantizer.alpha) * top / quantizer.alpha).astype(np.uint8)
    offset = 0.0 if constants.offset is None else constants.offset.astype(np.float64)
    steps = np.rint((x - offset) / constants.scale)
    both = quantizer.signed and quantizer.symmetric
    top = max(1, 2 ** (quantizer.bits - 1) - 1) if both else 2**quantizer.bits - 1
    lowest = -top if both else 0
    return (np.clip(steps, lowest, top) - lowest).astype(np.uint8)


def table_codes(quantizer, x, constants):
    x, table = x.astype(np.float64), constants.table.astype(np.float64)
    if isinstance(quantizer, qa.PowerOfTwo):
        table = table[quantizer.exponents :]
    middle, size = (table[1:] + table[:-1]) / 2, np.abs(x) if isinstance(quantizer, qa.PowerOfTwo) else x
    place = sum((size >= m).astype(np.int64) for m in middle)
    if isinstance(quantizer, qa.PowerOfTwo):
        place = np.where(x < 0, quantizer.exponents - place, quantizer.exponents + place)
    return place.astype(np.uint8)


def expected(quantizer, x, constants):
    """Codes by NumPy, of constants that don't vary in groups."""
    with np.errstate(all="ignore"):
        if isinstance(quantizer, qa.Sign):
            return (x >= 0).astype(np.uint8)
        return (uniform_codes if isinstance(quantizer, qa.Uniform) else table_codes)(quantizer, x, constants)


def uniform_constants(quantizer, x, axes):
    """(scale, offset or None) as NumPy fitted them."""
    tiny = np.nextafter(np.float32(0), np.float32(1))
    x = x.astype(np.float64)
    top = 2**quantizer.bits - 1
    if quantizer.symmetric:
        if quantizer.signed and not quantizer.midrise:
            top = max(1, 2 ** (quantizer.bits - 1) - 1)
        step = (np.abs(x) if quantizer.signed else np.maximum(x, 0)).max(axis=axes, keepdims=True) / top
        without_zero = quantizer.midrise or quantizer.dtype == qa.bipolar
        return (step if without_zero else np.where(step == 0, 1, np.maximum(step, tiny))).astype(np.float32), None
    low, high = x.min(axis=axes, keepdims=True), x.max(axis=axes, keepdims=True)
    start, end, constant = np.minimum(low, 0), np.maximum(high, 0), low == high
    mantissa, exponent = np.frexp((end - start) / top)
    step = np.where(constant, 1, np.ldexp(np.rint(mantissa * 2**16), exponent - 16))
    scale = np.where(step == 0, 1, np.maximum(step, tiny)).astype(np.float32)
    return scale, np.where(constant, low, -np.rint(-start / scale) * scale).astype(np.float32) + np.float32(0)


FITTED = [
    *(qa.Uniform(bits) for bits in (1, 2, 3, 5, 8)),
    *(qa.Uniform(bits, signed=False) for bits in (1, 4, 8)),
    *(qa.Uniform(bits, symmetric=False) for bits in (1, 3, 8)),
    *(qa.Uniform(bits, midrise=True) for bits in (1, 2, 8)),
    qa.PACT(4),
]
FIXED = [
    *(qa.Uniform(bits, step=step) for bits, step in ((1, 0.5), (2, 0.5), (3, 1e-40), (4, 0.3), (7, 1e30), (8, 0.1))),
    qa.Uniform(8, symmetric=False, step=0.1, offset=-3.3),
    qa.Uniform(5, midrise=True, step=0.25),
    qa.PACT(2, alpha=1.5),
    qa.PACT(8, alpha=0.7),
    qa.Sign(),
]
TABLES = [*(qa.NormalFloat(bits) for bits in (2, 4, 5, 8)), *(qa.PowerOfTwo(bits) for bits in (2, 4, 6, 8))]
TABLES += [qa.PowerOfTwo(6, exponents=10), qa.LloydMax(2), qa.LloydMax(5)]


@st.composite
def arrays(draw, sizes=(1e-42, 1e-20, 1e-3, 1.0, 1e4, 1e30)):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    length = draw(st.sampled_from([1, 2, 31, 63, 64, 65, 128, 200, 257, 1000]))
    x = rng.standard_normal((*draw(st.lists(st.integers(1, 4), max_size=2)), length))
    x = np.where(rng.random(x.shape) < 0.3, np.round(x * 4) / 4, x) * draw(st.sampled_from(sizes))
    with np.errstate(over="ignore"):
        x = x.astype(draw(st.sampled_from(FLOATS)))
    x[~np.isfinite(x)] = 0
    if draw(st.booleans()):
        x[tuple(int(rng.integers(n)) for n in x.shape)] = 0.0 * draw(st.sampled_from([1, -1]))
    return x


def at_the_ends(quantizer, x, constants):
    """x with values where codes change, and their neighbours."""
    levels = np.sort(np.asarray(qa.quantize(x, quantizer, calibration=x).levels, np.float64).reshape(-1))
    with np.errstate(over="ignore"):
        middle = ((levels[1:] + levels[:-1]) / 2).astype(x.dtype)
        near = [middle, np.nextafter(middle, x.dtype.type(np.inf)), np.nextafter(middle, x.dtype.type(-np.inf))]
    ties = np.concatenate([x.reshape(-1), *near, *np.array([[0.0, -0.0]], x.dtype)])
    return ties[np.isfinite(ties)]


@given(arrays(), st.sampled_from([*FITTED, *FIXED, *TABLES]), st.booleans(), st.booleans())
def test_codes_are_those_of_the_formula(x, quantizer, vary, many):
    with threads(many):
        q = qa.quantize(x, quantizer, scale_axis=0 if vary and x.ndim > 1 else None)
        validate(q)
        np.testing.assert_array_equal(q.codes(), expected(quantizer, x, q.constants))
        ties = at_the_ends(quantizer, x, q.constants)
        q = qa.quantize(ties, quantizer, calibration=x.reshape(-1))
        np.testing.assert_array_equal(q.codes(), expected(quantizer, ties, q.constants))


@given(arrays(), st.sampled_from(FITTED), st.booleans())
def test_constants_are_those_of_the_formula(x, quantizer, vary):
    axes = tuple(range(1, x.ndim)) if vary and x.ndim > 1 else tuple(range(x.ndim))
    scale, offset = uniform_constants(quantizer, x, axes)
    made = quantizer.fit(x, axes)
    np.testing.assert_array_equal(made.scale, scale)
    assert (made.offset is None) == (offset is None)
    if offset is not None:
        np.testing.assert_array_equal(made.offset, offset)
        assert not np.signbit(made.offset[made.offset == 0]).any()


@pytest.mark.parametrize("quantizer", [*FIXED, qa.DoReFa(3, activations=True)], ids=repr)
@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.uint8])
def test_infinities_and_bytes(quantizer, dtype):
    x = np.arange(256).astype(np.uint8).view(np.int8).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x = np.concatenate([x / dtype(8), np.array([np.inf, -np.inf, 0.0, -0.0, 6e4, -6e4], dtype)])
    q = qa.quantize(np.stack([x, x[::-1]]), quantizer)
    one = qa.PACT(3, alpha=1.0) if isinstance(quantizer, qa.DoReFa) else quantizer
    np.testing.assert_array_equal(q.codes(), expected(one, np.stack([x, x[::-1]]), q.constants))


EVEN = [*FIXED[2:8], FIXED[9], *FITTED, qa.DoReFa(4, activations=True), qa.Sign(scale=True)]


@pytest.mark.parametrize("quantizer", EVEN, ids=repr)
def test_evenly_spaced_codes_need_no_formula_in_numpy(quantizer, monkeypatch):
    def encode(*_):
        raise AssertionError("a kernel does this")

    monkeypatch.setattr(qa.Uniform, "encode", encode)
    monkeypatch.setattr(qa.Sign, "encode", encode)
    monkeypatch.setattr(qa.DoReFa, "encode", encode)
    x = np.random.default_rng(0).standard_normal((16, 4096)).astype(np.float32)
    assert qa.quantize(x, quantizer, scale_axis=0).shape == x.shape


@pytest.mark.parametrize("quantizer", [*TABLES[:8], qa.ABCActivations(np.linspace(-2, 2, 8), np.arange(8))], ids=repr)
def test_many_thresholds_are_searched_in_one_pass(quantizer, monkeypatch):
    x = np.random.default_rng(0).standard_normal((16, 4096)).astype(np.float32)
    codes = quantizer.encode(x, quantizer.fit(x, (0, 1)))
    first = qa.quantize(x, quantizer)
    monkeypatch.setattr(type(quantizer), "encode", lambda *_: 1 / 0)
    np.testing.assert_array_equal(first.codes(), codes)
    if not isinstance(quantizer, qa.ABCActivations):
        monkeypatch.setattr(prepared, "_kept", Kept(256))
    np.testing.assert_array_equal(qa.quantize(x, quantizer).codes(), codes)


@pytest.mark.parametrize("place", [0, 63, 64, 998, 999, 200_000])
@pytest.mark.parametrize("quantizer", [qa.Uniform(8, step=0.1), qa.Uniform(8), qa.NormalFloat(8)], ids=repr)
def test_nan_is_refused_at_first_and_again(quantizer, place):
    x = np.ones(max(1000, place + 100), np.float32)
    qa.quantize(x, quantizer)
    x[place] = np.nan
    with pytest.raises(ValueError, match=rf"quantize: x must hold no NaN, got one at \({place},\)"):
        qa.quantize(x, quantizer)


def test_calls_that_are_known_look_at_their_values():
    """Constants are those of each array, and what they cannot be fitted to is refused as at first."""
    x = np.random.default_rng(0).standard_normal((8, 640)).astype(np.float32)
    calls = [(q, {}) for q in (*FITTED, *TABLES, qa.Sign(scale=True), qa.Grouped(2), qa.Grouped(4, 64))]
    calls += [(q, {"scale_axis": 0}) for q in (qa.Uniform(4), qa.NormalFloat(4), qa.XNOR())]
    calls += [(q, {"group": 64}) for q in (qa.Uniform(4), qa.NormalFloat(4), qa.Uniform(8, symmetric=False))]
    calls += [(qa.Uniform(3), {"group": 640}), (qa.Uniform(3), {"axis": 0}), (qa.Uniform(3), {"axis": 0, "group": 4})]
    for quantizer, kwargs in calls:
        for values in (x, 3 * x, x * 0, -np.abs(x), x * np.float32(1e37), np.asfortranarray(x), x[::-1]):
            q = qa.quantize(values, quantizer, **kwargs)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(prepared, "_kept", Kept(256))
                first = qa.quantize(values, quantizer, **kwargs)
            validate(q)
            assert q.digest() == first.digest() and q.scheme == first.scheme, (quantizer, kwargs)
        wrong = x.copy()
        wrong[3, 5] = np.inf
        with pytest.raises(ValueError, match="inf"):
            qa.quantize(wrong, quantizer, **kwargs)


@pytest.mark.parametrize("shape", [(32, 4100), (40, 3, 2048), (1, 2**17), (3, 65, 64)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_ranges_of_runs_are_fitted_and_encoded_by_one_kernel(shape, dtype, monkeypatch):
    """Several threads work too; the last word of a row and of x is incomplete."""
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    calls = [(q, {"scale_axis": 0}) for q in FITTED]
    calls += [(q, {"group": 64}) for q in (qa.Uniform(4), qa.Uniform(8, symmetric=False), qa.Grouped(3, seed=5))]
    calls += [(qa.Grouped(4, 128, stochastic=False, constants="float32"), {}), (qa.Grouped(1, 64, seed=2**40), {})]
    for quantizer, kwargs in calls:
        expected = quantizer_result(x, quantizer, kwargs, monkeypatch)
        qa.quantize(x, quantizer, **kwargs)
        q = qa.quantize(x, quantizer, **kwargs)
        validate(q)
        assert q.digest() == expected.digest() and q.scheme == expected.scheme, (quantizer, kwargs)


def quantizer_result(x, quantizer, kwargs, monkeypatch):
    """The result of a call that is not prepared."""
    with monkeypatch.context() as patch:
        patch.setattr(prepared, "_kept", Kept(256))
        return qa.quantize(x, quantizer, **kwargs)


def test_a_call_of_known_ranges_asks_no_scheme(monkeypatch):
    """One kernel does all, also after the array was written to."""
    x = np.random.default_rng(0).standard_normal((16, 640)).astype(np.float32)
    for quantizer, kwargs in ((qa.Uniform(4), {"scale_axis": 0}), (qa.PACT(8), {}), (qa.Grouped(2), {"group": 64})):
        qa.quantize(x, quantizer, **kwargs)
        x *= 2
        expected = quantizer_result(x, quantizer, kwargs, monkeypatch)
        with monkeypatch.context() as patch:
            for name in ("fit", "fit_range", "encode", "grid", "encode_words"):
                patch.setattr(type(quantizer), name, lambda *_: 1 / 0)
            assert qa.quantize(x, quantizer, **kwargs).digest() == expected.digest()


def test_a_subclass_with_an_encode_of_its_own_is_asked():
    class Backwards(qa.Uniform):
        monotone = nearest = False

        def encode(self, x, constants):
            return self.dtype.n_levels - 1 - super().encode(x, constants)

    class Nothing(qa.NormalFloat):
        def encode(self, x, constants):
            return np.zeros(x.shape, np.uint8)

        def fit(self, x, axes):
            return super().fit(2 * x, axes)

    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(qa.quantize(x, Backwards(4)).codes(), 14 - qa.quantize(x, qa.Uniform(4)).codes())
        q = qa.quantize(x, Nothing(5))
        assert not q.codes().any() and q.levels.max() == 2


def test_what_a_scheme_says_without_a_grid():
    assert Quantizer.grid(qa.Ternary(), None) is Quantizer.cuts(qa.Ternary(), None) is None
    assert qa.Ternary().fit_range(np.zeros((2, 1))) is qa.Uniform(2, step=1.0).fit_range(np.zeros((2, 1))) is None


@given(st.data(), st.sampled_from(FLOATS), st.integers(1, 255), st.booleans(), st.booleans())
def test_places_among_thresholds(data, dtype, count, ascending, search):
    """The kernel itself, at every number of thresholds: ties, infinities, ends of rows."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    of = np.float64 if dtype == np.float64 else np.float32
    cuts = np.sort(rng.standard_normal((2, 2, count)).astype(np.float16).astype(of))
    length = data.draw(st.sampled_from([1, 64, 65, 127, 128]))
    x = rng.choice(np.concatenate([cuts.reshape(-1), [np.inf, -np.inf, 0.1]]), (2, length)).astype(dtype)
    order = np.arange(count + 1) if ascending else rng.permutation(count + 1)
    codes = np.broadcast_to(order.astype(np.uint8), (2, 2, count + 1)).copy()
    out, nan = np.zeros((8, 2, -(-length // 64)), np.uint64), np.zeros(8, np.bool_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quantarray.cpu.bits.encode.searches", lambda *_: search)
        kernel("cpu", "encode")(x[:, :, None], cuts, codes, np.arange(2), 64 if length > 64 else length, nan, out)
    got = np.zeros((2, length), np.uint8)
    kernel("cpu", "unpack")(out, got)
    for r in range(2):
        for i in range(min(length, 128)):
            assert got[r, i] == order[np.searchsorted(cuts[r, i // 64], of(x[r, i]), "right")]


@given(st.data(), st.sampled_from(FLOATS), st.booleans())
def test_extremes(data, dtype, many):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows, length = data.draw(st.sampled_from([(1, 1), (3, 63), (2, 64), (2, 200), (1, 300_000), (70, 5)]))
    x = rng.standard_normal((rows, length)).astype(dtype)
    if data.draw(st.booleans()):
        x[rng.integers(rows), rng.integers(length)] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    with threads(many):
        for axes in ((1,), (0, 1), (0,)):
            low, high = extremes(x, axes)
            np.testing.assert_array_equal(low, x.min(axis=axes, keepdims=True).astype(np.float64))
            np.testing.assert_array_equal(high, x.max(axis=axes, keepdims=True).astype(np.float64))


@pytest.mark.parametrize("quantizer", [*FITTED, *FIXED, *TABLES, qa.Grouped(2), qa.Sign(scale=True)], ids=repr)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_the_second_call_of_no_elements(quantizer, shape):
    """A call prepares the next one only for arrays that have elements."""
    first, second = (qa.quantize(np.zeros(shape, np.float32), quantizer) for _ in range(2))
    assert first.shape == second.shape == shape and first.digest() == second.digest()
