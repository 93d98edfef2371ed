"""Quantisers and encode: formulas, edge values, and that an element's code depends on its constants alone."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from quantized import quantize, quiet  # noqa: F401  # a fixture of this file

import quantarray as qa
from quantarray.arrays.array import validate

INPUTS = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64, np.bool_]
TINY = np.float32(1e-45)  # the smallest there is
# every kind of grid that Uniform fits
UNIFORMS = [
    qa.Uniform(bits, signed, symmetric, percentile)
    for bits in (1, 2, 3, 8)
    for signed, symmetric in ((True, True), (False, True), (True, False))
    for percentile in (100, 90)
]
FIXED = [qa.Sign(), qa.Sign(0.7), qa.Uniform(1, step=0.3), qa.Uniform(4, step=0.3), qa.Uniform(3, False, step=2.5)]
FIXED += [qa.Uniform(4, symmetric=False, step=0.3, offset=-1.1), qa.Uniform(8, symmetric=False, step=1e-3)]


def wide(constant, q):
    """A constant of q's shape, groups repeated."""
    if q.group and constant.shape[q.axis] > 1:
        constant = np.repeat(constant, q.group, q.axis).take(range(q.shape[q.axis]), q.axis)
    return np.broadcast_to(constant, q.shape)


def level_table(q):
    """Every level of every element, [n_levels, *shape], float64."""
    levels = q.levels.reshape(len(q.levels), *(q.levels.shape[1:] or (1,) * q.ndim)).astype(np.float64)
    return np.stack([wide(level, q) for level in levels])


def assert_nearest(x, q):
    """No level is nearer than the decoded one, but for one rounding of a level to float32."""
    levels, x64 = level_table(q), x.astype(np.float64)
    error = np.abs(x64 - q.dequantize())
    slack = np.spacing(np.abs(levels).max(axis=0).astype(np.float32)).astype(np.float64)
    assert (error <= np.abs(x64 - levels).min(axis=0) + slack).all()


# formulas


def test_sign_formula():
    x = np.float32([[-3, 0.5, -0.0], [0, 2, -1]])
    q = quantize(x, qa.Sign())
    assert q.dtype is qa.bipolar and q.scale is None
    np.testing.assert_array_equal(q.codes(), [[0, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(q.dequantize(), [[-1, 1, 1], [1, 1, -1]])
    assert quantize(x, qa.Sign(2.5)).dequantize().tolist() == [[-2.5, 2.5, 2.5], [2.5, 2.5, -2.5]]


@pytest.mark.parametrize("dtype", INPUTS)
def test_sign_scale_is_the_mean_magnitude(dtype):
    x = (np.random.default_rng(0).normal(size=(4, 5, 70)) * 50).astype(dtype)
    magnitude = np.abs(x.astype(np.float64))
    for along, axes in ((None, (0, 1, 2)), (0, (1, 2)), ((0, 1), (2,)), (-2, (0, 2)), ((0, 1, 2), ())):
        scale = quantize(x, qa.Sign(scale=True), scale_axis=along).scale
        np.testing.assert_array_equal(scale, magnitude.mean(axes, keepdims=True).astype(np.float32))


def test_sign_error_on_normal_values():
    x = np.random.default_rng(0).normal(size=200_000)
    q = quantize(x, qa.Sign(scale=True))
    assert abs(np.mean((x - q.dequantize()) ** 2) - 0.36338) < 0.005
    assert abs(q.scale[0] - np.sqrt(2 / np.pi)) < 0.005


@pytest.mark.parametrize("bits", range(1, 9))
def test_uniform_formulas(bits):
    x = np.random.default_rng(bits).normal(size=(3, 50)) * [[1], [10], [0.1]]
    top = max(1, 2 ** (bits - 1) - 1)
    q = quantize(x, qa.Uniform(bits), scale_axis=0)
    np.testing.assert_array_equal(q.scale, (np.abs(x).max(1, keepdims=True) / top).astype(np.float32))
    assert q.dtype == (qa.bipolar if bits == 1 else qa.integers(range(-top, top + 1)))
    top = 2**bits - 1
    q = quantize(x, qa.Uniform(bits, signed=False), scale_axis=0)
    np.testing.assert_array_equal(q.scale, (x.max(1, keepdims=True) / top).astype(np.float32))
    assert q.dtype == getattr(qa, f"uint{bits}")
    q = quantize(x, qa.Uniform(bits, symmetric=False), scale_axis=0)
    np.testing.assert_allclose(q.scale, (x.max(1) - x.min(1))[:, None] / top, rtol=2**-16)
    zero = np.rint(-x.min(1, keepdims=True) / q.scale)
    np.testing.assert_array_equal(q.offset, -zero * q.scale)
    assert q.dtype == qa.uniform(bits)


@given(hnp.arrays(np.float32, st.integers(1, 9), elements=st.floats(-1e6, 1e6, width=32)), st.integers(1, 8))
def test_affine_grids_hold_zero(x, bits):
    q = quantize(x, qa.Uniform(bits, symmetric=False))
    assert (q.levels == 0).any() or x.min() == x.max()
    assert quantize(np.append(x, 0), qa.Uniform(bits, symmetric=False)).dequantize()[-1] == 0


def test_percentile():
    x = np.append(np.random.default_rng(0).normal(size=(2, 999)), [[1000], [-1000]], axis=1)
    q = quantize(x, qa.Uniform(4, percentile=99), scale_axis=0)
    expected = np.percentile(np.abs(x), 99, axis=1, keepdims=True) / 7
    np.testing.assert_array_equal(q.scale, expected.astype(np.float32))
    assert q.codes()[:, -1].tolist() == [14, 0]  # values beyond the ends get the end's code
    q = quantize(x, qa.Uniform(4, symmetric=False, percentile=99), scale_axis=0)
    low, high = np.percentile(x, [1, 99], axis=1)
    np.testing.assert_allclose(q.scale[:, 0], (high - low) / 15, rtol=2**-16)
    unsigned = quantize(x, qa.Uniform(4, signed=False, percentile=75), scale_axis=0)
    np.testing.assert_array_equal(unsigned.scale[:, 0], np.float32(np.percentile(np.maximum(x, 0), 75, axis=1) / 15))


def test_fixed_grids():
    x = np.array([-np.inf, -100, -0.8, -0.75, -0.25, -0.0, 0.25, 0.6, 100, np.inf])
    q = quantize(x, qa.Uniform(3, step=0.5))
    assert q.dequantize().tolist() == [-1.5, -1.5, -1.0, -1.0, 0, 0, 0, 0.5, 1.5, 1.5]  # -1.5 and -0.5 tie to even
    q = quantize(x, qa.Uniform(2, signed=False, step=0.5))
    assert q.dequantize().tolist() == [0, 0, 0, 0, 0, 0, 0, 0.5, 1.5, 1.5]
    q = quantize(x, qa.Uniform(2, symmetric=False, step=0.5, offset=-0.75))
    assert q.dequantize().tolist() == [-0.75, -0.75, -0.75, -0.75, -0.25, 0.25, 0.25, 0.75, 0.75, 0.75]
    q = quantize(x, qa.Sign())
    assert q.dequantize().tolist() == [-1, -1, -1, -1, -1, 1, 1, 1, 1, 1]
    q = quantize(np.array([1e300, -1e300, 0]), qa.Uniform(2, step=1e-40))
    assert q.dequantize().tolist() == [np.float32(1e-40), -np.float32(1e-40), 0]


# nearest levels, whatever the input


@pytest.mark.parametrize("quantizer", [*UNIFORMS, *FIXED, qa.Sign(scale=True)], ids=repr)
@pytest.mark.parametrize("dtype", INPUTS)
def test_codes_decode_to_the_nearest_level(quantizer, dtype):
    x = (np.random.default_rng(1).normal(size=(3, 2, 70)) * 3).astype(dtype)
    for kwargs in (
        {},
        {"scale_axis": 0},
        {"axis": 0, "scale_axis": (1, 2)},
        {"group": 32},
        {"axis": 1, "scale_axis": 1},
    ):
        assert_nearest(x, quantize(x, quantizer, **kwargs))


anything = st.floats(-(2.0**125), 2.0**125, width=32) | st.sampled_from(
    [0.0, -0.0, TINY, -TINY, np.float32(1e-38), 0.5, 1.5, 2.5]
)


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5), elements=anything),
    st.sampled_from([*UNIFORMS, *FIXED, qa.Sign(scale=True)]),
    st.integers(0, 2),
    st.sampled_from([None, 1, 2, 3]),
    st.integers(0, 7),
)
def test_any_input(x, quantizer, axis, group, along):
    """Nearest levels, valid arrays; the codes of the constants found are found again with those constants."""
    axis = axis % x.ndim
    kept = tuple(d for d in range(x.ndim) if along >> d & 1 and d != axis) if along else None
    q = quantize(x, quantizer, axis, kept, group)
    assert q.shape == x.shape and q.axis == axis
    assert_nearest(x, q)
    constants = qa.QuantArray(q.words, q.dtype, q.shape, axis, q.constants).constants
    given_constants = type(constants)(*(None if c is None else wide(c, q) for c in (constants.scale, constants.offset)))
    if quantizer.dtype != qa.bipolar or quantizer.fixed:
        again = quantizer.encode(q.dequantize(), given_constants)
        decoded = np.take_along_axis(level_table(q), again[None].astype(int), 0)[0]
        np.testing.assert_array_equal(decoded, q.dequantize())


@pytest.mark.parametrize("quantizer", FIXED, ids=repr)
def test_fixed_constants_are_idempotent(quantizer):
    x = np.random.default_rng(0).normal(size=(5, 70)) * 3
    q = quantize(x, quantizer)
    assert qa.array_equal(quantize(q.dequantize(), quantizer), q)


@pytest.mark.parametrize("quantizer", [*UNIFORMS, qa.Sign(scale=True)], ids=repr)
def test_neighbours_do_not_matter(quantizer):
    """A channel or a group alone is what it is among others."""
    x = np.random.default_rng(0).normal(size=(6, 100)) * 10.0 ** np.arange(-3, 3)[:, None]
    q = quantize(x, quantizer, scale_axis=0)
    for row, values in zip(q, x, strict=True):
        assert qa.array_equal(row, quantize(values, quantizer))
    grouped = quantize(x, quantizer, group=32)
    for start in range(0, 100, 32):
        part = quantize(x[:, start : start + 32], quantizer, scale_axis=0)
        assert qa.array_equal(grouped[:, start : start + 32], part)
    perm = np.random.default_rng(1).permutation(6)
    assert qa.array_equal(quantize(x[perm].copy(), quantizer, scale_axis=0)[0], q[int(perm[0])])


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("axis", [0, 1])
def test_groups(length, axis):
    """The last group is shorter where the group does not divide the length."""
    x = np.random.default_rng(0).normal(size=(length, 3) if axis == 0 else (3, length))
    q = quantize(x, qa.Sign(scale=True), axis, group=32)
    cuts = range(32, length, 32)
    expected = np.concatenate([np.abs(p).mean(axis, keepdims=True) for p in np.split(x, cuts, axis)], axis)
    np.testing.assert_array_equal(q.scale, expected.astype(np.float32))
    assert q.group == (32 if length > 32 else None)
    whole = quantize(x, qa.Sign(scale=True), axis, group=32, scale_axis=())
    assert whole.scale.shape[1 - axis] == 1
    assert qa.array_equal(quantize(x, qa.Uniform(4), axis, group=10**30), quantize(x, qa.Uniform(4), axis, 1 - axis))


def test_constants_for_each_packed_element():
    """scale_axis may name the packed axis: depthwise weights have a scale an output channel."""
    w = np.random.default_rng(0).normal(size=(70, 3, 3, 1))
    q = quantize(w, qa.Sign(scale=True), axis=0, scale_axis=0)
    assert q.scale.shape == (70, 1, 1, 1) and q.group == 1
    np.testing.assert_array_equal(q.scale.ravel(), np.abs(w).mean((1, 2, 3)).astype(np.float32))
    assert qa.array_equal(q, quantize(w, qa.Sign(scale=True), scale_axis=0))


# edge values


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)])
@pytest.mark.parametrize("quantizer", [qa.Sign(), qa.Sign(scale=True), *UNIFORMS, *FIXED], ids=repr)
def test_empty(shape, quantizer):
    for axis, along in itertools.product(range(len(shape)), (None, 0, tuple(range(len(shape))))):
        q = quantize(np.zeros(shape), quantizer, axis, along)
        assert q.shape == q.dequantize().shape == shape and "none" in repr(q)
        assert qa.array_equal(q, q.copy())
    for axis in range(len(shape)):
        assert quantize(np.zeros(shape), quantizer, axis, group=2).shape == shape


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 0.1, -3.7, TINY, -TINY, 1e-40, 3e38, -3e38, 2.0**24 + 2])
@pytest.mark.parametrize("shape", [(1,), (3, 2)])
@pytest.mark.parametrize("quantizer", [*UNIFORMS, qa.Sign(scale=True)], ids=repr)
def test_constant_arrays_decode_to_themselves(value, shape, quantizer):
    x = np.full(shape, value, np.float32)
    decoded = quantize(x, quantizer).dequantize()
    if repr(quantizer).count("signed=False") and value < 0:  # such a grid has no negative level
        assert (decoded == 0).all()
    elif not getattr(quantizer, "symmetric", True) or value == 0 or isinstance(quantizer, qa.Sign):
        np.testing.assert_array_equal(decoded, x)
    else:
        top = (1 << quantizer.bits) - 1
        np.testing.assert_allclose(decoded, x, rtol=2**-23, atol=TINY * top / 2)


def test_zeros_and_empties_have_these_constants():
    for x, step, sign in ((np.zeros(3), 1, 0), (np.zeros(0), 1, 1)):
        assert quantize(x, qa.Sign(scale=True)).scale.tolist() == [sign]
        assert quantize(x, qa.Uniform(4)).scale.tolist() == [step]
        assert quantize(x, qa.Uniform(4, symmetric=False)).offset.tolist() == [0]
        assert quantize(x, qa.Uniform(1)).scale.tolist() == [sign]


def test_extreme_integers():
    """int8 -128 and int64 -2**63 are the ones whose absolute value overflows in their own type."""
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        least = np.iinfo(dtype).min
        x = np.full(3, least, dtype)
        assert quantize(x, qa.Sign(scale=True)).dequantize().tolist() == [float(least)] * 3
        assert quantize(x, qa.Uniform(1)).dequantize().tolist() == [float(least)] * 3
        assert quantize(x, qa.Uniform(8, symmetric=False)).dequantize().tolist() == [float(least)] * 3
    x = np.array([0, 2**64 - 1], np.uint64)
    assert quantize(x, qa.Sign(scale=True)).scale.tolist() == [2.0**63]
    assert quantize(x, qa.Uniform(2, False)).codes().tolist() == [0, 3]


def test_subnormal_and_huge_values_together():
    x = np.float64([1e-320, -1e-320, TINY, 3e38, -3e38])
    assert quantize(x, qa.Uniform(4)).codes().tolist() == [7, 7, 7, 14, 0]
    assert quantize(x[:2], qa.Uniform(4)).dequantize().tolist() == [0, 0]
    assert quantize(x[:2], qa.Sign(scale=True)).dequantize().tolist() == [0, 0]


def test_inputs_are_not_changed_and_layout_does_not_matter():
    x = np.random.default_rng(0).normal(size=(4, 6, 70)).astype(np.float32)
    kept = x.copy()
    for quantizer in (*UNIFORMS, qa.Sign(scale=True)):
        q = quantize(x, quantizer, scale_axis=0)
        for other in (np.asfortranarray(x), x[::-1][::-1], np.repeat(x, 2, 1)[:, ::2], x.astype(">f4")):
            assert quantize(other, quantizer, scale_axis=0).digest() == q.digest()
        assert quantize(x.tolist(), quantizer, scale_axis=0).digest() == q.digest()
    np.testing.assert_array_equal(x, kept)


def test_reprs_make_the_same_quantizer():
    names = {"Sign": qa.Sign, "Uniform": qa.Uniform}
    for quantizer in (*UNIFORMS, *FIXED, qa.Sign(scale=True)):
        assert vars(eval(repr(quantizer), names)) == vars(quantizer)


# encode


@pytest.mark.parametrize("dtype", [*INPUTS[:-1], np.int64])
def test_encode_holds_exactly_these_values(dtype):
    for values in ((-1, 1), (-1, 0, 1), range(8), {5, 0, 3}, (7, -2, 4), np.array([3, 1]), qa.int4, qa.uint8, [0]):
        levels = list(values.levels) if isinstance(values, qa.DType) else list(values)
        if min(levels) < 0 and np.dtype(dtype).kind == "u":
            continue
        x = np.random.default_rng(0).choice(levels, (3, 70))
        if (x.astype(dtype) != x).any():
            continue
        q = qa.encode(x.astype(dtype), values, axis=0)
        validate(q)
        np.testing.assert_array_equal(q.dequantize(), x)
        assert q.scale is None and q.dequantize().dtype == np.int32 and sorted(q.dtype.levels) == sorted(set(levels))


def test_encode_dtypes_and_orders():
    assert qa.encode([1, -1], (-1, 1)).dtype is qa.bipolar
    assert qa.encode([1, -1], {1, -1}).dtype is qa.bipolar
    assert qa.encode([0, 1], (-1, 0, 1)).dtype is qa.ternary
    assert qa.encode([3], range(8)).dtype is qa.uint3
    assert qa.encode([3], range(7, -1, -1)).dtype is qa.uint3
    assert qa.encode([True, False]).dtype is qa.uint1
    assert qa.encode([1.0, -0.0], (0, 1)).codes().tolist() == [1, 0]
    reversed_levels = qa.encode([1, -1, 1], (1, -1))
    assert reversed_levels.dtype.levels == (1, -1) and reversed_levels.codes().tolist() == [0, 1, 0]
    assert qa.array_equal(reversed_levels, qa.encode([1, -1, 1], (-1, 1)))
    assert qa.encode([2**31 - 1], (2**31 - 1, 0)).dequantize().tolist() == [2**31 - 1]
    assert qa.encode(np.zeros((0, 3)), (-1, 1)).shape == (0, 3)


@given(st.lists(st.integers(-(2**31) + 1, 2**31 - 1), min_size=1, max_size=256, unique=True), st.integers(0, 2**32 - 1))
def test_encode_any_levels(levels, seed):
    x = np.random.default_rng(seed).choice(levels, 70)
    q = qa.encode(x, levels)
    validate(q)
    assert q.dtype.levels == tuple(levels)
    np.testing.assert_array_equal(q.dequantize(), x)
    foreign = next(v for v in itertools.count() if v not in levels)
    with pytest.raises(ValueError, match=rf"got {foreign} at \(70,\)"):
        qa.encode(np.append(x, foreign), levels)
