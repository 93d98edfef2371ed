"""Chains of functions of elements in one kernel, `elementwise`, equal NumPy's, one after the other, to the bit."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import quantarray as qa
from quantarray.nn.operators.packed import OPERATORS, STEPS
from quantarray.ops.products.chain import _below

FUNCTIONS = {
    "add": lambda v, k, other: v + k,
    "subtract": lambda v, k, other: v - k,
    "subtract from": lambda v, k, other: k - v,
    "multiply": lambda v, k, other: v * k,
    "divide": lambda v, k, other: v / k,
    "max": lambda v, k, other: np.maximum(v, k),
    "min": lambda v, k, other: np.minimum(v, k),
    "slope": lambda v, k, other: np.where(v < 0, v * k, v),
    "add other": lambda v, k, other: v + other,
}


def by_channel(k, ndim):
    return k.reshape(-1, *(1,) * (ndim - 2))


def oracle(x, other, steps, constants, scale, other_scale):
    """The values in float32; products with scales in float64, rounded once."""
    second = other if other_scale is None or other is None else other * by_channel(other_scale, x.ndim)
    v = (x if scale is None else x * by_channel(scale, x.ndim)).astype(np.float32)
    second = None if second is None else second.astype(np.float32)
    for i, (step, k) in enumerate(zip(steps, constants, strict=True)):
        if step == "affine":  # with the offset that follows: in float64, rounded once
            offset = by_channel(constants[i + 1], x.ndim)
            v = (v.astype(np.float64) * by_channel(k, x.ndim) + offset).astype(np.float32)
        elif step != "offset":
            v = FUNCTIONS[step](v, by_channel(k, x.ndim), second)
        assert v.dtype == np.float32
    return v


def operand(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 6)).astype(dtype)
    info = np.iinfo(dtype)
    wide = rng.random() < 0.3
    low, high = (info.min, info.max) if wide else (max(info.min, -500), min(info.max, 500))
    return rng.integers(low, high, shape, dtype, endpoint=True)


def run(x, other, steps, constants, scale, other_scale, thresholds, gives):
    attributes = {"steps": tuple(steps), "gives": gives}
    return OPERATORS["chain"].run(attributes, x, other, constants, scale, other_scale, thresholds)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    channels=st.sampled_from([1, 3, 16, 63, 64, 65, 100, 128, 200]),
    image=st.sampled_from([(), (1, 1), (3, 5), (30, 29)]),
    dtype=st.sampled_from(["int8", "uint8", "int32", "int64", "float32"]),
    other=st.sampled_from([None, "float32", "int32"]),
    count=st.integers(0, 6),
    levels=st.sampled_from([0, 2, 3, 4, 5, 16, 20, 32, 64, 256]),
)
@example(0, 64, (30, 29), "int32", "float32", 4, 2)
def test_a_chain_is_its_steps(seed, channels, image, dtype, other, count, levels):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 4)), channels, *image)
    x = operand(rng, shape, dtype)
    scaled = dtype != "float32" or rng.random() < 0.3
    scale = rng.uniform(-0.5, 0.5, channels) if scaled and rng.random() < 0.8 else None
    y = None if other is None else operand(rng, shape, other)
    other_scale = rng.uniform(0.1, 0.5, channels) if other == "int32" else None
    steps = [str(s) for s in rng.choice(STEPS[: STEPS.index("add other")], count)]
    if y is not None:
        steps.insert(int(rng.integers(0, count + 1)), "add other")
    for _ in range(int(rng.integers(0, 3))):
        at = int(rng.choice([i for i in range(len(steps) + 1) if i == 0 or steps[i - 1] != "affine"]))
        steps[at:at] = ["affine", "offset"]
    constants = rng.uniform(-2, 2, (len(steps), channels)).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = oracle(x, y, steps, constants, scale, other_scale)
    T = thresholds(rng, wanted, levels)
    gives = ("values",) if T is None else (("codes",), ("values", "codes"))[int(rng.integers(2))]
    memory_last = rng.random() < 0.7  # as convolutions give images
    x, y = (a if a is None or not memory_last else channels_last(a) for a in (x, y))
    results = run(x, y, steps, constants, scale, other_scale, T, gives)
    results = dict(zip(gives, results if isinstance(results, tuple) else (results,), strict=True))
    if "values" in results:
        assert results["values"].dtype == np.float32
        assert np.array_equal(results["values"], wanted)
    if "codes" in results:
        expected = T(wanted, 1)
        assert (results["codes"].dtype, results["codes"].axis) == (expected.dtype, expected.axis)
        assert np.array_equal(results["codes"].words, expected.words)


def channels_last(a):
    order = (0, *range(2, a.ndim), 1)
    back = (0, a.ndim - 1, *range(1, a.ndim - 1))
    return np.ascontiguousarray(a.transpose(order)).transpose(back)


def thresholds(rng, values, levels):
    """Thresholds near the values, some of them equal to one, some for each channel, falling or with equality."""
    if not levels or np.isnan(values).any():
        return None
    channels, count = values.shape[1], levels - 1
    each = rng.random() < 0.6
    picked = rng.choice(values.reshape(-1), (channels if each else 1, count)).astype(np.float64)
    if rng.random() < 0.5:
        picked = picked * rng.uniform(0.9, 1.1)  # between float32 numbers
    flags = [rng.random(channels) < 0.5 if each else bool(rng.random() < 0.5) for _ in range(2)]
    values_of = picked if each else picked[0]
    per_channel = None if each else False
    return qa.Thresholds(values_of, per_channel=per_channel, greater=flags[0], strict=flags[1])


def test_a_nan_that_would_be_encoded_is_told():
    x = np.zeros((1, 64, 2, 2), np.float32)
    x[0, 5, 1, 1] = np.nan
    T = qa.Thresholds([0.0])
    with pytest.raises(ValueError, match="NaN"):
        run(x, None, [], np.zeros((0, 64), np.float32), None, None, T, ("codes",))
    values = run(x, None, ["max"], np.zeros((1, 64), np.float32), None, None, None, ("values",))
    assert np.isnan(values[0, 5, 1, 1]) and np.isnan(values).sum() == 1


def test_limits_are_the_float32_at_or_below():
    rng = np.random.default_rng(0)
    t = np.concatenate(
        [rng.standard_normal(1000) * 10.0 ** rng.integers(-40, 39, 1000), [np.inf, -np.inf, 1e300, -1e300]]
    )
    got = _below(t)
    v = np.concatenate([got, np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))])
    assert np.array_equal(v[:, None] > t, v[:, None] > got)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"constants": np.zeros((1, 3), np.float32)}, "its constants must be"),
        ({"constants": np.zeros((1, 4))}, "float32 without NaN"),
        ({"constants": np.full((1, 4), np.nan, np.float32)}, "without NaN"),
        ({"scale": np.ones(3)}, "its scale must be"),
        ({"scale": np.ones(4, np.float32)}, "its scale must be"),
        ({"other": np.zeros((1, 4, 2, 2), np.float32)}, "the other operand"),
        ({"steps": ["add other"]}, "the other operand"),
        ({"gives": ("codes",)}, "no thresholds"),
        ({"gives": ()}, "it gives"),
        ({"thresholds": qa.Thresholds([[1.0]] * 3), "gives": ("codes",)}, "3 channels"),
    ],
)
def test_operands_that_do_not_go_together_are_told(change, words):
    call = {
        "x": np.zeros((1, 4, 2, 2), np.float32), "other": None, "steps": ["add"],
        "constants": np.zeros((1, 4), np.float32), "scale": None, "other_scale": None, "thresholds": None,
        "gives": ("values",),
    }  # fmt: skip
    with pytest.raises((ValueError, TypeError), match=words):
        run(**{**call, **change})


def test_an_affine_step_has_its_offset():
    x, constants = np.ones((1, 2, 1, 1), np.float32), np.ones((2, 2), np.float32)
    for steps in (["affine", "add"], ["add", "affine"], ["offset", "add"], ["offset", "affine"]):
        with pytest.raises(ValueError, match="must be followed by its offset"):
            run(x, None, steps, constants, None, None, None, ("values",))
