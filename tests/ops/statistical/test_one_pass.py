"""map_reduce, compiled: any widths and dense operands, against NumPy on the values."""

import math
import subprocess
import sys
import types
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reductions import axes
from strategies import laws, samples, seeds

import quantarray as qa
from quantarray.backends import registry
from quantarray.cpu.reduction import map_reduce as compiled
from quantarray.kernels import one_pass

DENSE = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint32", "float16", "float32", "float64")
LENGTHS = (1, 2, 3, 63, 64, 65, 130)
REDUCE = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max, "prod": np.prod, "any": np.any, "all": np.all}


SINGLE = {1: lambda x: x - 1, 2: lambda x, y: x - y, 3: lambda x, y, z: x - y * z}
SEVERAL = {  # results of integers if all operands are, of floats, and of bools
    1: lambda x: (x * 3, x * 0.5, x > 1),
    2: lambda x, y: (x * 3 + y, y * 0.5, x > y),
    3: lambda x, y, z: (x * 3 + y * z, z * 0.5, x > z),
}


@st.composite
def operands(draw):
    """Draw operands that broadcast to one shape, at least one packed; return them with their values, and the shape."""
    ndim = draw(st.integers(1, 4))
    shape = [draw(st.sampled_from([1, 2, 3, 0] if ndim > 2 else [1, 2, 5])) for _ in range(ndim)]
    shape[draw(st.integers(0, ndim - 1))] = draw(st.sampled_from(LENGTHS))
    pairs = []
    count = draw(st.integers(1, 3))
    packed = draw(st.integers(0, count - 1))
    for i in range(count):
        cut = draw(st.integers(0, ndim - 1))
        ours = tuple(n if draw(st.integers(0, 3)) else 1 for n in shape[cut:])
        if i == packed or draw(st.booleans()):
            axis = draw(st.integers(0, len(ours) - 1))
            x = draw(samples(ours, axis, laws(8), range(len(ours)), (None, None, 5, 64)))
            pairs.append((x.q, x.values.astype(np.int64 if x.exact else np.float64)))
        else:
            pairs.append(draw(dense(ours)))
    return pairs, np.broadcast_shapes(*(v.shape for _, v in pairs))


@st.composite
def dense(draw, shape):
    """Draw numbers of any type and order in memory, or one number."""
    kind, rng = np.dtype(draw(st.sampled_from(DENSE))), np.random.default_rng(draw(seeds()))
    if draw(st.integers(0, 5)) == 0:
        number = draw(st.sampled_from([3, -2.5, True]))
        return number, np.asarray(number).astype(np.float64 if isinstance(number, float) else np.int64)
    order = draw(st.permutations(range(len(shape))))
    laid = rng.normal(size=[shape[d] for d in order]) * 50
    laid = (abs(laid) if kind.kind in "bu" else laid).astype(kind)
    a = laid.transpose(np.argsort(order))[tuple(slice(None, None, draw(st.sampled_from([1, 1, -1]))) for _ in shape)]
    return a, a.astype(np.float64 if kind.kind == "f" else np.int64)


@settings(max_examples=60)
@given(st.data(), operands(), st.booleans(), st.booleans())
def test_equals_numpy_on_values(data, drawn, tuples, keep):
    pairs, shape = drawn
    f, axis = (SEVERAL if tuples else SINGLE)[len(pairs)], data.draw(axes(len(shape)))
    names = [data.draw(st.sampled_from(sorted(REDUCE))) for _ in range(3 if tuples else 1)]
    wide = [np.broadcast_to(v, shape) for _, v in pairs]
    with np.errstate(all="ignore"):
        values = f(*wide) if tuples else (f(*wide),)
        values = [v.astype(np.float64 if v.dtype.kind == "f" else np.int64) for v in values]
    over = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    n = math.prod(shape[d] for d in over)

    def call():
        reduce = names if tuples else names[0]
        return qa.map_reduce(f, *(q for q, _ in pairs), axis=axis, reduce=reduce, keepdims=keep)

    if not n and {"mean", "min", "max"} & set(names):
        with pytest.raises(ValueError, match="map_reduce: no elements have no m"):
            call()
        return
    exact = [np.prod(v.astype(object), axis) if v.size else 1 for v in values]
    too_large = [
        name == "prod" and v.dtype.kind == "i" and v.size and max(map(abs, np.ravel(e))) >= 2**62
        for name, v, e in zip(names, values, exact, strict=True)
    ]
    if any(too_large):
        with pytest.raises(OverflowError, match=r"map_reduce: .*let f return floats"):
            call()
        return
    got = call() if tuples else (call(),)
    for name, value, result in zip(names, values, got, strict=True):
        check(name, value, result, axis, keep)


def check(name, value, got, axis, keep):
    with np.errstate(all="ignore"):
        expected = REDUCE[name](value, axis, keepdims=keep)
    assert np.shape(got) == expected.shape and got.dtype == expected.dtype
    if name in ("min", "max", "any", "all") or (value.dtype.kind == "i" and name != "mean"):
        np.testing.assert_array_equal(got, expected)
    elif name == "prod":
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    else:
        room = 2.0**-44 * np.abs(value).sum(axis, keepdims=keep)
        assert np.all(np.abs(got - expected) <= room)


@pytest.mark.parametrize("length", [1, 64, 65, 1000, one_pass.BLOCK, one_pass.BLOCK + 1, 3 * one_pass.BLOCK - 7])
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_the_order_of_sums_along_rows(rows, length):
    """Element j of a row goes to lane j % 64 of its block; lanes are halved; blocks are added one after the other."""
    rng = np.random.default_rng(length)
    codes = rng.integers(0, 4, (rows, 3, length))
    y = (rng.normal(size=codes.shape) * 10.0 ** rng.integers(-8, 8, codes.shape)).astype(np.float32)
    got = qa.map_reduce(lambda y, x: y * x, y, qa.from_codes(codes, qa.uint2), axis=(0, 2))
    parts = [y.astype(float)[r, :, at : at + one_pass.BLOCK] * codes[r, :, at : at + one_pass.BLOCK]
             for r in range(rows) for at in range(0, length, one_pass.BLOCK)]  # fmt: skip
    each = max(1, one_pass.BLOCK // length)
    total = None
    for first in range(0, len(parts), each):
        lanes = np.zeros((3, 64))
        for part in parts[first : first + each]:
            for at in range(0, part.shape[1], 64):
                lanes[:, : part[:, at : at + 64].shape[1]] += part[:, at : at + 64]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        total = lanes[:, 0] if total is None else total + lanes[:, 0]
    np.testing.assert_array_equal(got, total)


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("length", [3, 64, 1030])
def test_the_order_of_sums_across_rows(rows, length):
    """Rows are added one after the other in blocks of 512, whose sums are added one after the other."""
    rng = np.random.default_rng(length)
    codes = rng.integers(0, 4, (rows, length))
    y = (rng.normal(size=codes.shape) * 10.0 ** rng.integers(-8, 8, codes.shape)).astype(np.float32)
    got = qa.map_reduce(lambda y, x: y * x, y, qa.from_codes(codes, qa.uint2), axis=0)
    values, total = y.astype(float) * codes, None
    for first in range(0, rows, one_pass.FOLDS):
        block = np.zeros(length)
        for row in values[first : first + one_pass.FOLDS]:
            block = block + row
        total = block if total is None else total + block
    np.testing.assert_array_equal(got, total)


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (0, 1)])
def test_threads_change_no_bit(axis, monkeypatch):
    rng = np.random.default_rng(0)
    q = qa.quantize(rng.normal(size=(40, 30, 70)), qa.Uniform(3), scale_axis=(0, 2))
    y = rng.normal(size=q.shape).astype(np.float32)
    results = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(compiled, "_LEAST", least)
        results.append(qa.map_reduce(lambda y, x: (y * x, x), y, q, axis=axis))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_channels_last_in_memory_and_merged_axes():
    """The vector axis follows the memory of the dense array; neighbours that are reduced with it are one row."""
    rng = np.random.default_rng(1)
    codes, y = rng.integers(0, 4, (2, 70, 3, 5)), rng.normal(size=(2, 3, 5, 70)).astype(np.float32)
    for packed in range(4):
        q = qa.from_codes(codes, qa.uint2, axis=packed)
        for values in (y.transpose(0, 3, 1, 2), np.ascontiguousarray(y.transpose(0, 3, 1, 2))):
            for over in ((0, 2, 3), (2, 3), (1,), None):
                got = qa.map_reduce(lambda y, x: y * x, values, q, axis=over)
                np.testing.assert_allclose(got, (values.astype(float) * codes).sum(over), rtol=1e-12, atol=1e-12)


Q = qa.from_codes(np.arange(12).reshape(3, 4) % 8, qa.int4)
Y = np.arange(12.0).reshape(3, 4)


def test_pairs_of_start_and_function():
    x, y = Q.dequantize().astype(np.int64), Y
    bits = qa.map_reduce(lambda y, x: x, Y, Q, axis=0, reduce=(0, lambda a, v: a | v))
    np.testing.assert_array_equal(bits, np.bitwise_or.reduce(x))
    far = qa.map_reduce(lambda y, x: y - x, Y, Q, reduce=(0.0, lambda a, v: max(abs(a), abs(v))))
    assert far == np.abs(y - x).max() and far.dtype == np.float64
    mixed = qa.map_reduce(lambda y, x: (x, y), Y, Q, axis=1, reduce=["sum", (np.inf, np.minimum)])
    np.testing.assert_array_equal(mixed[0], x.sum(1))
    np.testing.assert_array_equal(mixed[1], y.min(1))


def test_pairs_join_blocks():
    long = qa.from_codes(np.arange(3 * one_pass.BLOCK) % 16, qa.uint4)
    assert qa.map_reduce(lambda x: x, long, reduce=(0, lambda a, v: a + v)) == long.codes().sum()


def test_nan_stays():
    y = Y.copy()
    y[1, 2] = np.nan
    for name in ("min", "max", "sum", "mean", "prod"):
        np.testing.assert_array_equal(
            np.isnan(qa.map_reduce(lambda y, x: y, y, Q, axis=0, reduce=name)), [False, False, True, False]
        )


def test_out_alpha_beta():
    total = (Y * Q.dequantize()).sum(0)
    for kind in (np.float64, np.float32, np.float16):
        out = np.arange(4).astype(kind)
        got = qa.map_reduce(lambda y, x: y * x, Y, Q, axis=0, out=out, alpha=0.5, beta=2)
        assert got is out
        np.testing.assert_array_equal(out, (0.5 * total + 2.0 * np.arange(4)).astype(kind))
    whole = np.full(4, 7, np.int32)
    qa.map_reduce(lambda x: x, Q, axis=0, out=whole, alpha=3, beta=-1)  # by counts of codes, too
    np.testing.assert_array_equal(whole, 3 * Q.dequantize().sum(0) - 7)
    unread = np.full(4, np.nan)
    qa.map_reduce(lambda y, x: y * x, Y, Q, axis=0, out=unread)
    np.testing.assert_array_equal(unread, total)
    pair = np.zeros(4), np.zeros(4)
    got = qa.map_reduce(lambda y, x: (y, x), Y, Q, axis=0, out=pair)
    assert got[0] is pair[0] and got[1] is pair[1]
    np.testing.assert_array_equal(pair[1], Q.dequantize().sum(0))
    assert qa.map_reduce(lambda x: x, Q, alpha=2) == 2 * Q.dequantize().sum()
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    for bad, error, said in [
        (np.zeros(5), TypeError, "out must be a writeable array"),
        (read_only, TypeError, "out must be a writeable array"),
        (np.zeros(4, np.int32), TypeError, "out must hold float64, got int32"),
        ([0, 0, 0, 0], TypeError, "out must be a writeable array"),
    ]:
        with pytest.raises(error, match=f"map_reduce: {said}"):
            qa.map_reduce(lambda y, x: y * x, Y, Q, axis=0, out=bad)
    with pytest.raises(OverflowError, match=r"map_reduce: results from .* do not fit out's int8"):
        qa.map_reduce(lambda x: x, Q, axis=0, out=np.zeros(4, np.int8), alpha=100)
    with pytest.raises(TypeError, match="beta is a factor of out"):
        qa.map_reduce(lambda x: x, Q, beta=1)
    with pytest.raises(TypeError, match="out must be a tuple of 2 arrays"):
        qa.map_reduce(lambda y, x: (y, x), Y, Q, axis=0, out=np.zeros(4))


def test_functions_are_compiled_once_by_what_they_do():
    before = len(compiled._plans.entries)

    def scaled(factor):
        return lambda y, x: y * x * factor

    for factor in (2.0, 2.0, 2.0, 3.0):
        assert qa.map_reduce(scaled(factor), Y, Q) == (Y * Q.dequantize()).sum() * factor
    assert len(compiled._plans.entries) - before == 2
    scale = np.array([0.5])  # has no description: compiled once an object
    assert qa.map_reduce(lambda y, x: y * x * scale[0], Y, Q) == (Y * Q.dequantize()).sum() / 2
    scale[0] = 4
    assert qa.map_reduce(lambda y, x: y * x * scale[0], Y, Q) == (Y * Q.dequantize()).sum() * 4
    assert qa.map_reduce(np.hypot, Y, Q, reduce="max") == np.hypot(Y, Q.dequantize()).max()


COUNTING = """
import sys, numpy as np, quantarray as qa
from numba.core import compiler
calls = []
whole = compiler.compile_extra
compiler.compile_extra = lambda *a, **k: calls.append(a[2].__name__) or whole(*a, **k)
q, y = qa.from_codes([0, 1, 3], qa.uint2), np.float32([1, 2, 4])
def double(v):
    return v * 2
from numba import njit
double = njit(double)
print(qa.map_reduce(lambda y, x: double(y) * x, y, q), [c for c in calls if c in ("run", "f")])
"""


def test_kernels_are_kept_on_disk(tmp_path):
    said = []
    for _ in range(2):
        out = subprocess.run(
            [sys.executable, "-c", COUNTING], capture_output=True, text=True, check=True,
            env={**__import__("os").environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        said.append(out.stdout.strip())
    assert said[0].startswith("28.0") and "run" in said[0] and said[1] == "28.0 []"


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: qa.map_reduce(np.add, Y, Y), TypeError, "one of the arrays must be a QuantArray"),
        (lambda: qa.map_reduce(np.abs), TypeError, "one of the arrays must be a QuantArray, got none"),
        (lambda: qa.map_reduce(np.add, Y[:, :3], Q), ValueError, "shapes must broadcast to one"),
        (lambda: qa.map_reduce(np.add, Y.astype(np.uint64), Q), TypeError, "array 0 must fit int64 or float64"),
        (lambda: qa.map_reduce(np.add, Y + 1j, Q), TypeError, "array 0 must be an array of bool"),
        (lambda: qa.map_reduce(lambda y, x: "?", Y, Q), TypeError, "f must return a number or a tuple of numbers"),
        (lambda: qa.map_reduce(lambda y, x: (), Y, Q), TypeError, "f must return .* got an empty tuple"),
        (lambda: qa.map_reduce(lambda y: y, Y, Q), TypeError, "f must be a function that Numba compiles"),
        (lambda: qa.map_reduce(lambda y, x: y.astype("f"), Y, Q), TypeError, "f must be a function that Numba"),
        (lambda: qa.map_reduce(np.add, Y, Q, reduce="median"), ValueError, "reduce must be one of"),
        (lambda: qa.map_reduce(np.add, Y, Q, reduce=[]), ValueError, "reduce must name a reduction"),
        (lambda: qa.map_reduce(np.add, Y, Q, reduce=("sum", "min")), ValueError, "reduce must be one for all results"),
        (lambda: qa.map_reduce(lambda x: (x, x), Q, reduce=("sum",) * 3), ValueError, "reduce must be one for all"),
        (lambda: qa.map_reduce(np.add, Y, Q, reduce=(0.0, lambda a: a)), TypeError, "the function of reduce"),
        (lambda: qa.map_reduce(np.add, Y, Q, reduce=(0.0, lambda a, v: "?")), TypeError, "the function of reduce"),
        (lambda: qa.map_reduce(lambda y, x: x * 2**60, Y, Q), OverflowError, "sums of 12 integers .* let f return"),
    ],
)  # fmt: skip
def test_refusals(call, error, said):
    with pytest.raises(error, match=f"map_reduce: {said}"):
        call()


def test_arrays_on_a_gpu_are_refused_by_name():
    with pytest.raises(qa.DeviceError, match="map_reduce: there is no kernel for device 'cuda'"):
        registry.kernel("cuda", "map_reduce")


def test_explain_names_how():
    how = qa.explain(qa.map_reduce, lambda x: x, Q, axis=0)
    assert [(c.stage, c.taken) for c in how.choices] == [("how f is reduced", "counts of codes")]
    how = qa.explain(qa.map_reduce, lambda y, x: x, Y, Q)
    assert how.choices[0].taken == "compiled" and "counts of codes: no, an array is dense" in repr(how)


def test_functions_are_told_apart_by_what_they_read(monkeypatch):
    """Attributes of modules, fields of named tuples, and arrays: each change is another kernel."""
    q, ones = qa.encode([1, 2, 3], values=range(4)), np.ones(3)
    settings = types.ModuleType("settings")
    monkeypatch.setitem(sys.modules, "settings", settings)
    settings.K = 2

    def scaled(x, d):
        return x * d * settings.K

    assert qa.map_reduce(scaled, q, ones) == 12
    settings.K = 10
    assert qa.map_reduce(scaled, q, ones) == 60
    for fields, wanted in (("a b", 6), ("b a", 600)):
        pair = namedtuple("P", fields)(1, 100)
        assert qa.map_reduce(lambda x, d, pair=pair: x * d * pair.a, q, ones) == wanted
    a = np.array([2.0, 3.0])

    def by_array(x, d):
        return x * d * a[0]

    assert qa.map_reduce(by_array, q, ones) == 12
    a[0] = 5
    assert qa.map_reduce(by_array, q, ones) == 30


def test_integers_beyond_int64_are_refused():
    c = qa.encode([[1, 2, 3], [1, 2, 3]], values=range(4))
    for factors in ({"alpha": 2**62}, {"alpha": 2**64}, {"out": np.full(3, 2**62), "beta": 3}):
        with pytest.raises(OverflowError, match="beyond int64"):
            qa.map_reduce(lambda x: x, c, axis=0, **factors)
    q = qa.encode([1, 2, 3], values=range(4))
    with pytest.raises(OverflowError, match="int64 does not hold"):
        qa.map_reduce(lambda x: x.astype(np.uint64) + np.uint64(2**63), q, reduce="max")
    with pytest.raises(TypeError, match=r"uint64; np\.int64"):
        qa.map_reduce(lambda x, d: np.uint64(2**63) + np.uint64(x), q, np.ones(3), reduce="max")
    with pytest.raises(ValueError, match="reduce must be one of"):
        qa.map_reduce(lambda x: x, q, reduce=(2**63, lambda a, v: a + v))


def test_functions_that_raise_and_targets_that_do_not_fit():
    q, ones = qa.encode([1, 2, 3], values=range(4)), np.ones(3)

    def fails(x, d):
        return d * (1, 2, 3)[x]

    with pytest.raises(ValueError, match="f raised an error for some elements"):
        qa.map_reduce(fails, q, ones)

    def calls_itself(x, d):
        return calls_itself(x - 1, d) if x > 0 else d

    with pytest.raises(TypeError, match="that Numba compiles"):
        qa.map_reduce(calls_itself, q, ones)
    with pytest.raises(TypeError, match="empty tuple"):
        qa.map_reduce(lambda x: (), q)
    first = np.zeros(3)
    with pytest.raises(TypeError, match="out must"):
        qa.map_reduce(lambda x: (x, x), qa.stack([q, q]), axis=0, out=(first, np.zeros(4)))
    assert not first.any()


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">i2", "<f2"])
def test_byte_orders_and_broadcast_strides(dtype):
    q = qa.encode(np.random.default_rng(0).integers(0, 4, (5, 70)), values=range(4))
    d = np.broadcast_to(np.array(3, dtype), (5, 70))
    assert qa.map_reduce(lambda x, d: x * d, q, d) == 3 * q.dequantize().sum()
    row = np.broadcast_to(np.arange(70).astype(dtype)[::-1], (5, 70))
    assert qa.map_reduce(lambda x, d: x * d, q, row) == (q.dequantize() * row.astype(np.float64)).sum()
