"""The one-pass kernel gives exactly the codes of each quantiser's own `encode`, which is NumPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import threads

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.backends.registry import kernel as kernel_of
from quantarray.core.bounded_cache import Kept
from quantarray.ops.quantize import encoding, grids
from quantarray.ops.quantize import prepared_schemes as prepared

QUANTIZERS = [
    qa.Sign(),
    qa.Sign(scale=True),
    qa.Uniform(1),
    qa.Uniform(2),
    qa.Uniform(4),
    qa.Uniform(3, signed=False),
    qa.Uniform(4, symmetric=False),
    qa.Uniform(3, symmetric=False, step=0.5, offset=-1.0),
    qa.Uniform(2, percentile=80),
]


def both_ways(x, quantizer, **kwargs):
    """quantize() through NumPy's encode and through the kernel of thresholds."""
    made = []
    for kernel in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoding, "pays", lambda *_, kernel=kernel: kernel)
            patch.setattr(grids, "grid_of", lambda *_: None)
            patch.setattr(prepared, "_kept", Kept(256))
            made.append(qa.quantize(x, quantizer, **kwargs))
    return made


@st.composite
def inputs(draw):
    """(x, quantiser, arguments): sizes from subnormal to huge, ties, both dtypes, any packed axis."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    length = draw(st.sampled_from([1, 2, 31, 63, 64, 65, 128, 200, 257]))
    x = rng.standard_normal((*draw(st.lists(st.integers(1, 4), max_size=2)), length))
    x = np.where(rng.random(x.shape) < 0.3, np.round(x * 2) / 2, x) * draw(st.sampled_from([1e-42, 1e-3, 1.0, 1e30]))
    axis = draw(st.integers(-x.ndim, -1))
    x = np.moveaxis(x, -1, axis).astype(draw(st.sampled_from([np.float32, np.float64])))
    group = draw(st.sampled_from([None, 64, 128]))
    scale_axis = draw(st.sampled_from([None, *(d for d in range(x.ndim) if d != axis % x.ndim)]))
    return x, draw(st.sampled_from(QUANTIZERS)), {"axis": axis, "group": group, "scale_axis": scale_axis}


@given(inputs(), st.booleans())
def test_kernel_equals_definition(case, many):
    x, quantizer, kwargs = case
    with threads(many):
        definition, kernel = both_ways(x, quantizer, **kwargs)
    validate(kernel)
    assert np.array_equal(kernel.words, definition.words)


def test_infinities_and_ends():
    x = np.array([-np.inf, np.inf, -0.0, 0.0, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32)
    for quantizer in (qa.Sign(), qa.Uniform(2, step=0.5), qa.Uniform(3, signed=False, step=1e-40)):
        definition, kernel = both_ways(x, quantizer)
        assert np.array_equal(kernel.words, definition.words)


@pytest.mark.parametrize("quantizer", [*QUANTIZERS, qa.LQ(2), qa.PACT(3, alpha=1.5)], ids=repr)
def test_every_float16(quantizer):
    """float16 is widened to float32 for the kernel; subnormals, infinities and both zeros too."""
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    definition, kernel = both_ways(x[~np.isnan(x)], quantizer, calibration=np.float16([-2, -0.7, 0.1, 1.5]))
    assert np.array_equal(kernel.words, definition.words)


@pytest.mark.parametrize("place", [0, 63, 64, 200_000, 299_999])
def test_nan_is_found_wherever_it_is(place):
    x = np.ones(300_000, np.float32)
    x[place] = np.nan
    assert encoding.pays(x, qa.Sign(), qa.Sign().fit(x, (0,)), 0)
    with pytest.raises(ValueError, match=rf"quantize: x must hold no NaN, got one at \({place},\)"):
        qa.quantize(x, qa.Sign())


def test_kernel_serves_large_arrays_and_numpy_small_ones():
    large, small = np.zeros((100, 1000), np.float32), np.zeros(10, np.float32)
    quantizer = qa.Uniform(2, step=1.0)
    assert encoding.pays(large, quantizer, quantizer.fit(large, (0, 1)), 1)
    assert not encoding.pays(small, quantizer, quantizer.fit(small, (0,)), 0)
    assert not encoding.pays(large, qa.Uniform(8, step=1.0), quantizer.fit(large, (0, 1)), 1)


def test_thresholds_are_kept_by_what_they_depend_on():
    """Settings and constants that differ give thresholds that differ, in whatever order they are asked for."""
    x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    schemes = [qa.Sign(), qa.Sign(scale=True), qa.Sign(scale=1.0), qa.Uniform(2), qa.Uniform(3), qa.Ternary()]
    schemes += [qa.Uniform(2, symmetric=False), qa.Uniform(2, step=0.5), qa.Uniform(2, step=1), qa.PACT(2, alpha=1.0)]
    for _ in range(2):
        for scheme in schemes:
            for values in (x, 3 * x, x.astype(np.float64)):
                for axis in (0, 1):
                    q = qa.quantize(values, scheme, axis=axis)
                    np.testing.assert_array_equal(q.codes(), scheme.encode(values, q.constants))


def test_a_setting_that_changes_changes_the_codes():
    x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    scheme = qa.Uniform(2, step=0.5)
    first = qa.quantize(x, scheme).codes()
    scheme.step = 0.25
    second = qa.quantize(x, scheme)
    assert (first != second.codes()).any()
    np.testing.assert_array_equal(second.codes(), scheme.encode(x, second.constants))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("quantizer", [*QUANTIZERS, qa.LQ(2), qa.PACT(3, alpha=1.5), qa.PACT(4, alpha=100)], ids=repr)
def test_every_byte(quantizer, dtype):
    x = np.arange(256).astype(np.uint8).view(dtype).reshape(2, 128)
    for axis in (0, 1):
        definition, kernel = both_ways(x, quantizer, axis=axis, calibration=np.float32([[-2, -0.7], [0.1, 100]]))
        assert np.array_equal(kernel.words, definition.words)


def widened(x):
    """float32 of an array that the kernel widens as it reads; uint16 are the bits of bfloat16."""
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x.astype(np.float32)


def encoded(x, planes, count):
    """Return the kernel's words for x [before length after], and whether it met a NaN."""
    thresholds = np.linspace(-3, 3, count, dtype=np.float32)[None, None]
    out, nan = np.zeros((planes, len(x) * x.shape[2], -(-x.shape[1] // 64)), np.uint64), np.zeros(8, np.bool_)
    codes, row = np.arange(count + 1, dtype=np.uint8)[None, None], np.zeros(1, np.int64)
    kernel_of("cpu", "encode")(x, thresholds, codes, row, x.shape[1], nan, out)
    return out, nan.any()


@given(st.data(), st.booleans())
def test_values_are_widened_as_they_are_read(data, many):
    """Bytes, and every kind of float of 16 bits: subnormal, infinite, NaN; lengths with a rest, any axis."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    length, after = data.draw(st.sampled_from([1, 63, 64, 65, 200, 1000])), data.draw(st.sampled_from([1, 3]))
    dtype = data.draw(st.sampled_from([np.uint8, np.int8, np.float16, np.uint16]))
    x = rng.integers(0, 2**16, (2, length, after)).astype(np.uint16).view(np.float16)
    x = np.where(rng.random(x.shape) < 0.5, rng.standard_normal(x.shape), x).astype(np.float16)
    if data.draw(st.booleans()):
        x = np.nan_to_num(x, nan=0.5, posinf=np.inf, neginf=-np.inf)
    x = x.view(np.uint16) if dtype == np.uint16 else x.view(np.uint16).astype(dtype) if dtype != np.float16 else x
    planes, count = data.draw(st.sampled_from([(1, 1), (2, 3), (4, 15)]))
    with threads(many):
        (got, nan), (expected, met) = (encoded(v, planes, count) for v in (x, widened(x)))
    assert nan == met == np.isnan(widened(x)).any()
    assert nan or np.array_equal(got, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.uint16])
def test_all_floats_of_16_bits_are_widened(dtype):
    """Each next to itself as the threshold: it is at least that, and what is below it is not."""
    bits = np.arange(2**16, dtype=np.uint16)
    values = widened(bits.view(dtype))
    for low in range(0, 2**16, 64):
        for cut in values[low : low + 64 : 9]:
            out, nan = np.zeros((1, 1, 1), np.uint64), np.zeros(1, np.bool_)
            x, codes = bits[low : low + 64].view(dtype)[None, :, None], np.arange(2, dtype=np.uint8)[None, None]
            kernel_of("cpu", "encode")(x, cut.reshape(1, 1, 1), codes, np.zeros(1, np.int64), 64, nan, out)
            assert nan[0] == np.isnan(values[low : low + 64]).any()
            assert out[0, 0, 0] == np.packbits(values[low : low + 64] >= cut, bitorder="little").view(np.uint64)[0]


@pytest.mark.parametrize("tables", [1, 3])
@pytest.mark.parametrize("planes, count", [(1, 1), (2, 1), (2, 2), (2, 3), (3, 7), (4, 9)])
def test_codes_in_any_order(planes, count, tables):
    """The kernel itself: codes that fall or jump, which no scheme of the package has."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 200)).astype(np.float32)
    thresholds = np.sort(rng.standard_normal((tables, 1, count)).astype(np.float32))
    codes = np.array([rng.permutation(2**planes)[: count + 1] for _ in range(tables)], np.uint8)[:, None]
    out, nan = np.zeros((planes, 3, 4), np.uint64), np.zeros(1, np.bool_)
    kernel_of("cpu", "encode")(x[:, :, None], thresholds, codes, np.arange(tables), 200, nan, out)
    bits = out[..., None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    got = sum(bits[plane].reshape(3, 256) << np.uint64(plane) for plane in range(planes))
    for r in range(3):
        table = min(r, tables - 1)
        expected = codes[table, 0][np.searchsorted(thresholds[table, 0], x[r], "right")]
        np.testing.assert_array_equal(got[r, :200], expected)
    assert not got[:, 200:].any() and not nan.any()


FIXED = [
    qa.Sign(),
    qa.Sign(scale=0.5),
    qa.Uniform(2, signed=False, step=0.5),
    qa.Uniform(3, step=1e-3),
    qa.PACT(2, alpha=1.5),
    qa.ABCActivations([-0.5, 0.5], [1.0, 0.25]),
    qa.LQ(2, basis=[0.5, 1.5]),
]


@pytest.fixture
def kept(monkeypatch):
    """Return what calls keep; it is empty at first."""
    monkeypatch.setattr(prepared, "_kept", Kept(256))
    return prepared._kept.entries


def unaligned(x):
    """A read-only copy that begins at an odd address."""
    return np.frombuffer(b" " + x.tobytes(), x.dtype, offset=1).reshape(x.shape)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8])
@pytest.mark.parametrize("quantizer", FIXED, ids=repr)
def test_a_call_that_is_known_gives_what_the_first_did(quantizer, dtype, kept):
    """A known call gives the first one's result, for any memory order and other values."""
    rng = np.random.default_rng(0)
    for axis in (-1, 0, 1):
        for laid_out in (np.copy, np.asfortranarray, np.flip, unaligned):
            x = laid_out((rng.standard_normal((130, 64, 3)) * 2).astype(dtype))
            q = qa.quantize(x, quantizer, axis)
            validate(q)
            np.testing.assert_array_equal(q.codes(), quantizer.encode(x, q.constants))
            first = qa.quantize(x.tolist(), quantizer, axis) if dtype == np.float64 else q
            assert (q.scheme, q.axis, q.constants._form) == (repr(quantizer), axis % 3, first.constants._form)
    assert len(kept) == 3


def test_what_tells_calls_apart(kept):
    x, ones = np.float32([[0.6, -0.6, 0.3]] * 64), np.ones((64, 3), np.float32)
    sign = qa.Sign(scale=1.0)
    first = qa.quantize(x, sign)
    sign.scale = 0.5  # the same object
    assert qa.quantize(x, sign).dequantize().max() == 0.5 and first.dequantize().max() == 1
    sign.scale = True  # equal to 1.0, and fitted
    np.testing.assert_allclose(qa.quantize(x, sign).dequantize().max(), 0.5)
    assert qa.quantize(x, qa.Sign(scale=1.0), axis=0).axis == 0
    assert qa.quantize(x, qa.Sign(scale=1.0), scale_axis=0).scale.shape == (64, 1)
    assert qa.quantize(x, qa.Sign(scale=1.0), calibration=ones).scale.max() == 1
    with pytest.raises(ValueError, match="calibration must have 2 axes"):
        qa.quantize(x, qa.Sign(scale=1.0), calibration=ones[0])
    assert qa.quantize(x, qa.Sign(scale=1.0), 1).axis == 1
    with pytest.raises(TypeError, match="axis must be an integer, got True"):
        qa.quantize(x, qa.Sign(scale=1.0), True)
    with pytest.raises(TypeError, match="quantizer must be a quantiser such as Sign"):
        qa.quantize(x, qa.quantize(x, sign))
    with pytest.raises(TypeError, match="both"):
        qa.quantize(x, qa.Sign(scale=1.0), bits=1)
    with pytest.raises(TypeError, match="masked"):
        qa.quantize(np.ma.masked_array(x), qa.Sign(scale=1.0))


def test_a_nan_in_a_call_that_is_known(kept):
    x = np.ones((64, 64), np.float32)
    qa.quantize(x, qa.Sign())
    assert len(kept) == 1
    x[3, 5] = np.nan
    with pytest.raises(ValueError, match=r"quantize: x must hold no NaN, got one at \(3, 5\)"):
        qa.quantize(x, qa.Sign())


def test_which_calls_are_known(kept, monkeypatch):
    class Own(qa.Sign):
        """May depend on more than its settings."""

    x = np.ones((64, 64), np.float32)
    for quantizer, array in ((Own(), x), (qa.Ternary(), x), (qa.Sign(), x[:0]), (qa.Sign(), x.astype(int))):
        qa.quantize(array, quantizer)
    assert not kept
    monkeypatch.setattr(prepared, "_kept", Kept(3))
    for rows in range(1, 9):
        qa.quantize(x[:rows], qa.Sign())
    kept = prepared._kept.entries
    assert len(kept) == 3 and {key[4] for key in kept} == {(6, 64), (7, 64), (8, 64)}


def any_float(dtype):
    return st.floats(width=np.dtype(dtype).itemsize * 8, allow_nan=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data(), places=st.integers(1, 255))
def test_the_least_float_that_passes(dtype, data, places):
    """The least float is found, wherever the search begins."""
    numbers = st.lists(any_float(dtype), min_size=3, max_size=3)
    least = np.array(data.draw(numbers), dtype)
    with np.errstate(over="ignore"):
        below = np.nextafter(least, dtype(-np.inf))
    near = data.draw(st.one_of(st.none(), numbers, st.just(below)))
    near = None if near is None else np.array(near, np.float64)
    rounds = []

    def passed(x):
        rounds.append(x.shape)
        return x >= least[:, None]

    found = encoding._least_float(passed, (3,), places, np.dtype(dtype), near)
    np.testing.assert_array_equal(found, least)
    if near is not None and places > 2 and np.array_equal(near, below):
        assert rounds == [(3, places)]
    assert np.isnan(encoding._least_float(lambda x: x > np.inf, (3,), places, np.dtype(dtype), near)).all()


def test_thresholds_of_schemes_of_nearest_levels_are_found_in_one_round(monkeypatch):
    for quantizer in (
        *FIXED[:5],
        FIXED[6],
        qa.Uniform(4, step=0.3),
        qa.Uniform(3, step=1e30),
        qa.Uniform(3, step=1e-40),
    ):
        asked, encode = [], type(quantizer).encode
        monkeypatch.setattr(
            type(quantizer), "encode", lambda *a, asked=asked, encode=encode: asked.append(0) or encode(*a)
        )
        monkeypatch.setattr(encoding, "_kept", Kept(256))
        monkeypatch.setattr(grids, "grid_of", lambda *_: None)
        qa.quantize(np.ones((64, 64), np.float32), quantizer)
        assert len(asked) == 1, quantizer
        monkeypatch.undo()
