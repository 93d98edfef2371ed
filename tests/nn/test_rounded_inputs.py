"""Inputs of floats that are rounded to bytes: a kernel beside NumPy, inside of the compiled call."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.backends.registry import kernel
from quantarray.nn.graph import Graph, Node, Value
from quantarray.nn.operators import OPERATORS
from quantarray.ops.words.conversion import pack_codes, pack_signed

RNG = np.random.default_rng(0)
STEPS = [0.1, 1 / 3, 1.0, 7.25, 2.0**-20, 1e-38, 3e38]
ENDS = [("int8", -128, 127), ("uint8", 0, 255), ("int8", -7, 7), ("uint8", 3, 3)]


def values(step, size=1000):
    """Numbers on and beside halves of a step, far ones, zeros of both signs and infinities."""
    x = (RNG.integers(-600, 600, size) / 2 * step).astype(np.float32)
    x = np.where(RNG.random(size) < 0.5, np.nextafter(x, np.float32(RNG.choice((-np.inf, np.inf)))), x)
    x[:6] = 0.0, -0.0, np.inf, -np.inf, 3e38, -3e38
    return x


def quantize(x, step, zero, low, high, kind):
    """round(clip(x / scale + zero)), as NumPy computes it."""
    return np.rint(np.clip(x / step + zero, low, high)).astype(kind)


def quantize_linear(x, step, zero, low, high, kind):
    """clip(round(x / scale) + zero), as NumPy computes it."""
    return np.clip(np.rint(x / step).astype(np.float64) + zero, low, high).astype(kind)


def quantize_affine(x, factor, offset, low, high, kind):
    """clip(round(x * factor + offset)), as NumPy computes it."""
    y = (x.astype(np.float64) * factor + offset).astype(np.float32)
    return np.clip(np.rint(y), low, high).astype(kind)


FORMULAS = quantize, quantize_linear, quantize_affine


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.__name__)
def test_values_are_rounded_as_by_numpy(formula, step, ends):
    kind, low, high = ends
    with np.errstate(over="ignore"):
        for size, zero in ((1000, 0), (1, 3), (70_001, -5)):
            x, scale = values(step, max(size, 6))[:size], np.float32(step)
            out, nan = np.empty(size, kind), np.zeros(8, np.bool_)
            single = np.full(1, scale), np.full(1, zero, np.float32)
            kernel("cpu", "round_values")(
                x, *single, np.float32(low), np.float32(high), FORMULAS.index(formula), nan, out
            )  # fmt: skip
            np.testing.assert_array_equal(out, formula(x, scale, np.float32(zero), low, high, kind))
            assert not nan.any()
            attributes = {"low": low, "high": high, "rounding": "ROUND", "to": kind}
            result = OPERATORS[formula.__name__].run(attributes, x.reshape(1, -1), *(k.reshape(()) for k in single))
            np.testing.assert_array_equal(result, out[None])


@pytest.mark.parametrize("at", [0, 40_000, -1])
@pytest.mark.parametrize("name", [f.__name__ for f in FORMULAS])
def test_a_nan_is_refused(name, at):
    x = np.zeros((1, 70_001), np.float32)
    x[0, at] = np.nan
    attributes = {"low": 0, "high": 255, "rounding": "ROUND", "to": "uint8"}
    with pytest.raises(ValueError, match="NaN"):
        OPERATORS[name].run(attributes, x, np.float32(0.1), np.float32(0))


@pytest.mark.parametrize("zero", [0.5, np.float64(3), np.int64(3)])
def test_other_zero_points_are_computed_by_numpy(zero):
    x, attributes = values(0.1)[None], {"low": -128, "high": 127, "rounding": "ROUND", "to": "int8"}
    got = OPERATORS["quantize"].run(attributes, x, np.float32(0.1), np.asarray(zero))
    np.testing.assert_array_equal(got, quantize(x, np.float32(0.1), np.asarray(zero), -128, 127, "int8"))


def test_order_in_memory_is_kept():
    x = np.ascontiguousarray(RNG.normal(size=(2, 5, 6, 3)).astype(np.float32)).transpose(0, 3, 1, 2)
    attributes = {"low": -128, "high": 127, "rounding": "ROUND", "to": "int8"}
    got = OPERATORS["quantize"].run(attributes, x, np.float32(0.1), np.float32(0))
    np.testing.assert_array_equal(got, quantize(x, np.float32(0.1), np.float32(0), -128, 127, "int8"))
    assert [s * 4 for s in got.strides] == list(x.strides)


@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (5, 100), (2, 3, 70), (700, 200)])
def test_int8_is_packed_without_a_copy(shape):
    x = RNG.integers(-128, 128, shape).astype(np.int8)
    for axis in range(x.ndim):
        np.testing.assert_array_equal(pack_signed(x, axis), pack_codes(x.view(np.uint8) ^ np.uint8(128), axis, 8))


def test_a_network_of_floats_is_one_compiled_call():
    w = qa.from_codes(RNG.integers(0, 256, (64, 100)), qa.int8)
    nodes = [
        Node("Mul", ("x", "factor"), ("scaled",)),
        Node("quantize", ("scaled", "one", "zero"), ("codes",),
             {"low": -128, "high": 127, "rounding": "ROUND", "to": "int8"}),
        Node("linear", ("codes", "w"), ("y",)),
    ]  # fmt: skip
    constants = {name: np.float32(k).reshape(()) for name, k in {"factor": 30, "one": 1, "zero": 0}.items()}
    graph = Graph([Value("x", (1, 100), "float32")], [Value("y", (1, 64), "int32")], nodes, {**constants, "w": w})
    net, x = graph.prepared(), RNG.normal(size=(3, 100)).astype(np.float32)
    expected = np.clip(np.rint(x * np.float32(30)), -128, 127).astype(np.int64) @ w.dequantize().T
    for _ in range(3):
        np.testing.assert_array_equal(net(x), expected)
    (part,) = net.plan(x)
    assert part.kernels is not None
    x[1, 7] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        net(x)
