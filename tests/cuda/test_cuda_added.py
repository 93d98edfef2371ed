"""Shortcuts in the last step of tensor cores' products, `conv_added`, against the oracle's product and NumPy's sums."""

import naive
import numpy as np
import pytest
from cuda_backend import split_by, twins
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits, thresholds
from test_cuda_conv import few

import quantarray as qa
from quantarray.cuda.epilogue import added
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import bmma, byte_rows, descriptors, imma, stages, wgmma
from quantarray.cuda.tensor_cores.stages import Tile

UNITS = {  # units, capability, tile, blocks that share it, words of a stage
    "bmma": (bmma, (8, 0), Tile(1, 2, 1, 2, 4), 1, stages.WORDS),
    "bmma, split": (bmma, (8, 0), Tile(2, 1, 2, 1, 3), 3, stages.WORDS),
    "wgmma": (wgmma, (9, 0), Tile(4, 1, 1, 1, 3), 1, descriptors.DEPTH),
    "imma": (imma, (8, 0), Tile(1, 1, 1, 1, 2), 1, byte_rows.WORDS),
    "popc": (None, (7, 0), None, 1, 1),
}
NUMBERS = ("int8", "uint8", "int16", "int32", "float32")
LAWS = {
    "bits": lambda codes: qa.from_codes(codes % 2, qa.bipolar),
    "ternary": lambda codes: qa.from_codes(codes % 3, qa.ternary),
    "scaled": lambda codes: qa.from_codes(codes % 8, qa.uint3) * np.float32(0.3) - np.float32(1),
}


@pytest.fixture(autouse=True, scope="module", params=UNITS)
def launched(request):
    """Give the list of launches, made by units in small tiles."""
    units, capability, tile, splits, depth = UNITS[request.param]
    seen, run = [], launch.run

    def note(kernel, *how, **named):
        seen.append(getattr(kernel, "fn", kernel).__name__)
        run(kernel, *how, **named)

    with pytest.MonkeyPatch.context() as patched:
        if units:
            patched.setattr(units, "tile_for", split_by(tile, splits, depth))
        patched.setattr(launch, "capability", lambda: capability)
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setattr(launch, "run", note)
        patched.setenv("QUANTARRAY_CUDA", request.param.partition(",")[0])
        with twins(packing=False):
            yield seen


def operands(draw, rng):
    """Return images, weights, and how they are convolved: channels that fill words and such that do not."""
    groups = draw(st.sampled_from([1, 1, 2]))
    outputs = 64 if groups == 2 else draw(st.sampled_from([1, 31, 33, 64, 66, 97]))
    channels, size, stride = draw(st.sampled_from([64, 70, 130])), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    bits = draw(st.sampled_from([1, 2]))
    x = rng.integers(0, 2**bits, (draw(st.integers(1, 2)), 3, 4, groups * channels)) * 2 - 1
    w = rng.choice((-1, 1), (outputs, size, size, channels))
    how = {"stride": stride, "padding": draw(st.integers(0, 1)), "groups": groups}
    return x, qa.encode(x, range(-1, 2**bits * 2 - 1, 2)), w, qa.encode(w, (-1, 1)), how


def a_shortcut(kind, shape, rng):
    """(values in int64 or float64, the shortcut)."""
    if kind in LAWS:
        q = LAWS[kind](rng.integers(0, 24, shape))
        values = q.dequantize()
    elif kind == "float32":
        values = (rng.normal(size=shape) * 9).astype(np.float32)
        values[rng.random(shape) < 0.2] = -0.0
        q = values
    else:
        q = values = rng.integers(0 if kind == "uint8" else -100, 100, shape).astype(kind)
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64), q


@few
@given(st.data(), st.sampled_from([*NUMBERS, *LAWS]))
def test_sums_and_codes(launched, data, kind):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, p, w, q, how = operands(draw, rng)
    exact = naive.conv2d(x, w, stride=(how["stride"],) * 2, padding=(how["padding"],) * 2, groups=how["groups"])
    other, shortcut = a_shortcut(kind, exact.shape, rng)
    expected = exact + other
    expected = expected.astype(np.float32 if other.dtype == np.float64 else np.int32)
    law, codes = draw(thresholds(expected))
    launched.clear()
    total = qa.conv2d(p, q, residual=shortcut, **how)
    both = qa.conv2d(p, q, residual=shortcut, requantize=law, return_sum=True, **how)
    alone = qa.conv2d(p, q, residual=shortcut, requantize=law, **how)
    assert_bits(total, expected)
    assert_bits(both[0], expected)
    np.testing.assert_array_equal(alone.dequantize(), codes)
    np.testing.assert_array_equal(both[1].words, alone.words)
    products = [name for name in launched if name.endswith("_tile") or name == "few_rows"]
    assert len(products) == 3
    assert launched.count("add") == (0 if products[0] in ("bmma_tile", "wgmma_tile", "imma_tile") else 3)


@pytest.mark.parametrize("sign", (-1, 1))
def test_sums_at_the_ends_of_int32(sign):
    """Sums up to the ends are exact, the lowest one too, which is computed a second time; beyond is an error."""
    x, w = (qa.encode(np.full(s, n), (-1, 1)) for s, n in (((1, 4, 4, 64), 1), ((32, 1, 1, 64), sign)))
    end = -(2**31) if sign < 0 else 2**31 - 1
    law = qa.Thresholds([end - 1, end, end + 1])
    fits = np.full((1, 4, 4, 32), end - 64 * sign, np.int32)
    total, codes = qa.conv2d(x, w, residual=fits, requantize=law, return_sum=True)
    assert_bits(total, np.full(fits.shape, end, np.int32))
    assert (codes.codes() == 1).all()
    fits[0, 3, 3, 31] += sign
    with pytest.raises(OverflowError, match=r"conv2d: a sum .* does not fit int32; pass out_dtype="):
        qa.conv2d(x, w, residual=fits, requantize=law)


def test_thresholds_of_floats():
    """The order of all float32, and of thresholds between two of them, is that of their integers."""
    rng = np.random.default_rng(0)
    ends = np.float32([-np.inf, -3e38, -1, -1e-45, -0.0, 0.0, 1e-45, 1, 3e38, np.inf])
    values = np.concatenate([ends, rng.integers(0, 2**32, 1000, np.uint32).view(np.float32)])
    values = values[~np.isnan(values)]
    beside = values.astype(np.float64) * (1 + rng.choice([-1e-9, 0, 1e-9], values.size))
    limits = np.concatenate([beside, [np.nan, 1e300, -1e300]])[:, None]
    ordered = values.view(np.int32) ^ (values.view(np.int32) >> 31 & 0x7FFFFFFF)
    np.testing.assert_array_equal(ordered > added._limits(limits), ~(values <= limits))


def test_thresholds_of_integers():
    limits = np.int64([[-(2**40), -(2**31), 5, 2**31 - 1, 2**40]])
    assert added._limits(limits).tolist() == [[-(2**31), -(2**31), 5, 2**31 - 1, 2**31 - 1]]
