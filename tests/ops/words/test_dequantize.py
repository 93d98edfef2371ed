"""Values by the kernels `decode_uniform` and `decode_levels`, and `out=`."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.core.code_values import values_of_codes
from quantarray.ops.words.conversion import expand

RNG = np.random.default_rng(5)
SHAPES = [(1, 64), (3, 200), (2, 5, 256), (1000,), (4, 32), (2, 3, 31), (0, 64), (7, 577)]
LAWS = {
    "a group": {"quantizer": lambda bits: qa.Grouped(bits, group=128, seed=3)},
    "a group that cuts words": {"quantizer": lambda bits: qa.Grouped(bits, group=40, constants="float32")},
    "a row": {"quantizer": qa.Uniform, "scale_axis": 0},
    "an array": {"quantizer": lambda bits: qa.Uniform(bits, symmetric=False)},
}


def by_formula(q):
    """offset + scale * code for each element, by NumPy."""
    return values_of_codes(q.dtype, q.constants.map(lambda a, lead: expand(a, lead, q), 1), q.codes())


def packed(shape, law, bits):
    settings = dict(LAWS[law])
    scheme = settings.pop("quantizer")(bits)
    return qa.quantize(RNG.normal(size=shape).astype(np.float32), scheme, **settings)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_values_equal_the_formula(law, shape, bits):
    if law == "a row" and len(shape) == 1:
        shape = (1, *shape)
    q = packed(shape, law, bits)
    expected = by_formula(q)
    for got in (q.dequantize(), q.dequantize(out=np.full(shape, np.nan, np.float32))):
        assert got.dtype == np.float32 and got.tobytes() == expected.tobytes()


def levels_of(bits, kind):
    """2**bits levels: in steps of 1, or uneven and as wide as int32, or real numbers."""
    if kind == "even":
        return np.arange(1 << bits)
    if kind == "wide":
        return np.array([1 - 2**31, *range(7, 5 + (1 << bits)), 2**31 - 1])
    return np.sort(RNG.normal(size=1 << bits)).astype(np.float32)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("shape", [(3, 200, 5), (67, 2, 64), (1, 1, 1024), (0, 70, 2), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("kind", ["even", "wide", "real"])
def test_levels_are_looked_up(kind, shape, bits):
    """Rows of any length, packed along any axis, to new memory and to `out`; small arrays too, which NumPy does."""
    levels, codes = levels_of(bits, kind), RNG.integers(0, 1 << bits, shape)
    expected = levels[codes].astype(np.float32 if kind == "real" else np.int32)
    for axis in range(3):
        if kind == "real":
            q = qa.from_codes(codes, qa.table(bits), axis, table=levels.reshape(-1, 1, 1, 1))
        else:
            q = qa.from_codes(codes, qa.integers(levels.tolist()), axis)
        for got in (q.dequantize(), q.dequantize(out=np.full(shape, 77, expected.dtype))):
            assert got.dtype == expected.dtype and got.tobytes() == expected.tobytes()


def test_threads_share_words_of_levels():
    codes = RNG.integers(0, 16, (3, 100_003))
    assert np.array_equal(qa.from_codes(codes, qa.uint4).dequantize(), codes)


def test_threads_share_rows():
    q = packed((3, 100_003), "a group", 3)
    assert np.array_equal(q.dequantize(), by_formula(q))


@pytest.mark.parametrize(
    "q",
    [
        qa.encode(RNG.integers(0, 3, (50, 6000)), range(3)),
        qa.quantize(RNG.normal(size=(40, 70)), qa.LloydMax(2)),
        qa.quantize(RNG.normal(size=(640, 3)), qa.Uniform(4), axis=0),
        qa.quantize(RNG.normal(size=(4, 64)), qa.Sign(scale=True), scale_axis=0),
    ],
    ids=["integers", "table", "another axis", "a scale"],
)
def test_out_takes_the_values_of_any_law(q):
    expected = q.dequantize()
    out = np.zeros(q.shape, expected.dtype)
    assert q.dequantize(out=out) is out and np.array_equal(out, expected)
    apart = np.zeros((*q.shape[:-1], 2 * q.shape[-1]), expected.dtype)
    q.dequantize(out=apart[..., ::2])
    assert np.array_equal(apart[..., ::2], expected) and not apart[..., 1::2].any()


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("axis", range(3))
def test_out_of_another_float_takes_what_the_values_round_to(axis, kind):
    """Of integers, of one table, of a scale for each row; integers beyond float16 become infinities."""
    codes = RNG.integers(0, 4, (6, 70, 40))
    shape = [n if d == (axis + 1) % 3 else 1 for d, n in enumerate(codes.shape)]
    scale = RNG.normal(size=shape).astype(np.float32)
    for q in (
        qa.from_codes(codes, qa.integers(-70000, -1, 3, 2047), axis),
        qa.from_codes(codes, qa.table(2), axis, table=RNG.normal(size=(4, 1, 1, 1)).astype(np.float32)),
        qa.from_codes(codes, qa.uniform(2), axis, scale=scale, offset=-scale),
    ):
        out = np.full(q.shape, 7, kind)
        with np.errstate(over="ignore"):
            expected = q.dequantize().astype(np.float32).astype(kind)
        assert q.dequantize(out=out) is out and out.tobytes() == expected.tobytes()


def test_out_of_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q = packed((3, 200), "a row", 4)
    out = np.zeros((3, 200), ml_dtypes.bfloat16)
    bits = q.dequantize(out=out)
    assert bits.dtype == np.uint16 and np.shares_memory(bits, out)
    np.testing.assert_array_equal(out, q.dequantize().astype(ml_dtypes.bfloat16))


READ_ONLY = np.zeros((2, 64), np.float32)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    "out", [np.zeros((2, 63), np.float32), np.zeros((2, 64)), READ_ONLY, [[0.0] * 64] * 2, 3], ids=lambda o: type(o)
)
def test_another_out_is_refused_by_name(out):
    q = packed((2, 64), "a group", 2)
    with pytest.raises(TypeError, match=r"^dequantize: out must be a writeable array on the CPU of shape \(2, 64\)"):
        q.dequantize(out=out)


@pytest.mark.parametrize("name", ["scale", "offset"])
def test_one_constant_in_groups_and_the_other_for_all(name):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (3, 130))
    groups = rng.uniform(0.5, 2, (3, 130)).astype(np.float32)
    constants = {"scale": np.float32(2), "offset": np.float32(-1), name: groups}
    q = qa.from_codes(codes, qa.uniform(2), group=1, **constants)
    expected = (np.float64(constants["offset"]) + np.float64(constants["scale"]) * codes).astype(np.float32)
    np.testing.assert_array_equal(q.dequantize(), expected)
