"""CUDA twins of kernels of dense values, between the products of a network, bit for bit what the CPU's kernels make."""

import math

import numpy as np
import pytest
from cuda_backend import both

from quantarray.backends.registry import kernel, writes_words
from quantarray.core.format import word_count
from quantarray.cuda.runtime import launch
from quantarray.kernels.operands import ADD_OTHER, AFFINE, OFFSET, Chain


@pytest.fixture(autouse=True, scope="module", params=[1, 3], ids=["1-warp", "3-warps"])
def few_warps(request):
    """Blocks so small that rows need several, grids so low that rows are walked."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch, "WARPS", request.param)
        patched.setattr(launch, "MOST_ROWS", 2)
        yield


def drawn(rng, shape, dtype):
    """Draw numbers of many sizes; floats with infinities, both zeros and subnormals among them."""
    d = np.dtype(dtype)
    if d.kind != "f":
        ends = np.iinfo(d)
        return rng.integers(ends.min, ends.max, shape, d, endpoint=True) >> d.type(rng.integers(0, d.itemsize * 8))
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(d)
    special = np.array([0, -0.0, np.inf, -np.inf, 1e-42, 3e38], d)
    return np.where(rng.random(shape) < 0.1, rng.choice(special, shape), x)


def same(one, other):
    """Compare bits, but those of a NaN, whose sign and payload no operation promises."""
    for a, b in zip(one, other, strict=True):
        if a.dtype.kind == "f":
            a, b = (np.where(np.isnan(v), np.float32(np.nan), v) for v in (a, b))
        np.testing.assert_array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


@pytest.mark.parametrize("seed", range(24))
def test_elementwise(seed):
    rng = np.random.default_rng(seed)
    rows, channels = int(rng.integers(1, 6)), int(rng.choice([1, 31, 32, 64, 65, 100]))
    wide, count, planes = word_count(channels) * 64, int(rng.integers(0, 6)), int(rng.choice([0, 1, 2, 3]))
    x = drawn(rng, (rows, channels), rng.choice(["float32", "int32", "int8", "uint8", "int64"]))
    other = np.empty((0, 0), np.float32)
    steps = [int(s) for s in rng.integers(0, ADD_OTHER, count)]
    if rng.random() < 0.5:
        other = drawn(rng, (rows, channels), rng.choice(["float32", "int32"]))
        steps.insert(int(rng.integers(0, count + 1)), ADD_OTHER)
    if rng.random() < 0.5:
        at = int(rng.integers(0, len(steps) + 1))
        steps[at:at] = [AFFINE, OFFSET]
    constants = np.zeros((max(len(steps), 1), wide), np.float32)
    constants[: len(steps), :channels] = drawn(rng, (len(steps), channels), "float32")
    scales = [drawn(rng, channels, "float64") if rng.random() < 0.6 else np.empty(0) for _ in range(2)]
    limits = (
        np.sort(drawn(rng, ((1 << planes) - 1, wide), "float32"), axis=0) if planes else np.empty((0, 0), np.float32)
    )
    flip = np.zeros((2, word_count(channels)), np.uint64)
    if planes:
        bits = np.zeros((2, wide), np.uint8)
        bits[0, :channels], bits[1, :channels] = rng.random(channels) < 0.5, 1
        flip = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    stored, results = not planes or rng.random() < 0.5, []
    for device in ("cpu", "cuda"):
        nan = np.zeros(8, np.bool_)
        values = np.empty((rows, channels) if stored else (0, 0), np.float32)
        cleared = device == "cuda" and not writes_words(device, "elementwise", rows, channels)
        out = np.full((planes, rows, word_count(channels)), 0 if cleared else 7, np.uint64)
        if not planes:
            out = np.empty((0, 0, 0), np.uint64)
        chain = Chain(*scales, np.array(steps, np.int64), constants)
        with np.errstate(all="ignore"):
            kernel(device, "elementwise")(x, other, chain, limits, flip, nan, values, out)
        results.append((values, out, nan.any(keepdims=True)))
    if results[0][2]:
        results = [result[::2] for result in results]  # codes of NaN have no meaning
    same(*results)


@pytest.mark.parametrize("seed", range(18))
def test_pool_values(seed):
    rng = np.random.default_rng(seed)
    image = [int(n) for n in rng.integers(1, 6, 3)]
    taps, strides, dilations = ([int(n) for n in rng.integers(1, most, 3)] for most in (4, 3, 3))
    before = [int(rng.integers(0, k)) for k in taps]
    output = [
        (n + b + 1 - d * (k - 1) - 1) // s + 1
        for n, b, d, k, s in zip(image, before, dilations, taps, strides, strict=True)
    ]
    output = [max(1, n) for n in output]
    grid = np.array([taps, strides, dilations, before], np.int64).T
    n, channels = int(rng.integers(1, 3)), int(rng.choice([1, 3, 33, 64]))
    dtype = "float32" if seed % 3 else "int32"
    x, flip = drawn(rng, (n, *image, channels), dtype), np.zeros(channels, np.uint32)
    counts = np.empty(0, np.float32)
    if seed % 3 == 1:
        kind = np.float32 if rng.random() < 0.5 else np.float64
        counts = rng.integers(1, 28, math.prod(output)).astype(kind)
    else:
        flip[rng.random(channels) < 0.4] = 1 << 31 if dtype == "float32" else (1 << 32) - 1
    with np.errstate(all="ignore"):
        cpu, cuda = both("pool_values", x, grid, counts, flip, out=np.empty((n, *output, channels), x.dtype))
    same([cpu], [cuda])


@pytest.mark.parametrize("seed", range(18))
def test_float_product(seed):
    rng = np.random.default_rng(seed)
    plain = seed % 3 == 0
    image, taps = (
        ([1] * 3, [1] * 3)
        if plain
        else ([int(n) for n in rng.integers(1, 5, 3)], [int(k) for k in rng.integers(1, 3, 3)])
    )
    strides, dilations = ([int(n) for n in rng.integers(1, 3, 3)] for _ in range(2))
    before = [0 if plain else int(rng.integers(0, 2)) for _ in range(3)]
    output = [
        max(1, (n + 2 * b - d * (k - 1) - 1) // s + 1)
        for n, b, d, k, s in zip(image, before, dilations, taps, strides, strict=True)
    ]
    n, groups = int(rng.integers(1, 4)), 1 if plain else int(rng.choice([1, 1, 2, 3]))
    channels, outputs = groups * int(rng.integers(1, 5)), groups * int(rng.choice([1, 2, 17]))
    x = rng.standard_normal((n, *image, channels)).astype(np.float32)
    strided = [s // 4 for s in x.strides]
    if rng.random() < 0.5:  # channels first in memory
        x = np.ascontiguousarray(x.transpose(0, 4, 1, 2, 3))
        strided = [x.strides[0] // 4, *(s // 4 for s in x.strides[2:]), x.strides[1] // 4]
    form = np.array([(n, *image, channels), strided, (n, *output, 0)])
    grid = np.array([taps, strides, dilations, before], np.int64).T
    w = rng.standard_normal((math.prod(taps) * channels // groups, outputs)).astype(np.float32)
    bias = rng.standard_normal(outputs).astype(np.float32)
    out = np.empty((n * math.prod(output), outputs), np.float32)
    cpu, cuda = both("float_product", x.reshape(-1), form, grid, w, bias, out=out)
    same([cpu], [cuda])


@pytest.mark.parametrize("rows, outputs, k", [(1, 1, 1), (3, 5, 40), (2, 33, 17), (2, 3, 0)])
def test_row_product(rows, outputs, k):
    rng = np.random.default_rng(k)
    x, values = (rng.standard_normal((n, k)).astype(np.float32) for n in (rows, outputs))
    cpu, cuda = both("row_product", x, values, out=np.full((rows, outputs), np.nan, np.float32))
    same([cpu], [cuda])


@pytest.mark.parametrize(
    "planes, group, unit, offsets", [(1, 600, 32, False), (3, 16, 16, True), (4, 32, 32, True), (8, 64, 16, False)]
)
def test_group_product(planes, group, unit, offsets):
    rng = np.random.default_rng(planes)
    rows, outputs, k = 3, 5, 590
    n, groups = -(-k // unit), -(-k // group)
    codes = rng.integers(-127, 128, (rows, n * unit)).astype(np.int8)
    codes[:, k:] = 0
    shares, sums = (rng.standard_normal((rows, n)).astype(np.float32) for _ in range(2))
    starts = rng.integers(-900, 900, (rows, n)).astype(np.float32)
    words = rng.integers(0, 2**64, (planes, outputs, -(-k // 64)), np.uint64)
    low, step = (rng.standard_normal((outputs, groups)).astype(np.float32) for _ in range(2))
    low = low if offsets else np.empty((0, 0), np.float32)
    out = np.full((rows, outputs), np.nan, np.float32)
    arguments = codes, shares, starts, sums, words, low, step, 2 if planes == 1 else 1, group, unit
    same(*[[one] for one in both("group_product", *arguments, out=out)])


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (5, 33)])
@pytest.mark.parametrize("first", [0, 4])
def test_join(shape, first):
    x, out = drawn(np.random.default_rng(first), shape, "float32"), np.zeros((shape[0], shape[1] + 9), np.float32)
    same(*[[one] for one in both("join", x, first, out=out)])


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 70), (3, 5, 33), (5, 16, 2)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_put_channels_last(shape, dtype):
    x = drawn(np.random.default_rng(0), shape, dtype)
    out = np.zeros((shape[0], shape[2], shape[1]), dtype)
    same(*[[one] for one in both("put_channels_last", x, out=out)])
