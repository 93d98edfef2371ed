"""CUDA twins of what constants are fitted to, bit for bit what the CPU's kernels find; and fits that use them."""

from unittest.mock import patch

import numpy as np
import pytest
from cuda_backend import both, twins

import quantarray as qa
from quantarray.backends.registry import kernel
from quantarray.cuda.runtime import launch

BLOCK = 256

LENGTHS = (1, 5, 33, 700, BLOCK + 40)


@pytest.fixture(autouse=True, scope="module", params=[1, 3])
def few_warps(request):
    """Blocks so small that rows need several, and that a block has warps without a task."""
    with patch.object(launch, "WARPS", request.param):
        yield


def values(seed, rows, length, dtype):
    """Normal values of all magnitudes, equal ones and zeros of both signs among them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, length)) * 2.0 ** rng.integers(-9, 9, (rows, length))
    return np.where(rng.random(x.shape) < 0.2, rng.choice([0.0, -0.0, 0.5, -1.0], x.shape), x).astype(dtype)


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_extremes(length, dtype, pieces):
    x = values(length, 3, length, dtype)
    cpu, cuda = both("extremes", x, out=np.zeros((2, 3, min(pieces, length))))
    np.testing.assert_array_equal(cuda, cpu)
    np.testing.assert_array_equal(cuda[0].min(1), x.min(1))
    np.testing.assert_array_equal(cuda[1].max(1), x.max(1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_extremes_of_bytes(dtype):
    x = np.random.default_rng(0).integers(0, 256, (2, 300)).astype(dtype)
    out = np.zeros((2, 2, 4))
    kernel("cuda", "extremes")(x, out)
    assert out[0].min(1).tolist() == x.min(1).tolist() and out[1].max(1).tolist() == x.max(1).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 31, 32, 200, 299])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_extremes_of_what_is_not_finite(value, place, dtype):
    """A NaN is seen in its part, and no other; infinities are values."""
    x = values(place, 2, 300, dtype)
    x[1, place] = value
    cpu, cuda = both("extremes", x, out=np.zeros((2, 2, 3)))
    np.testing.assert_array_equal(cuda, cpu)
    wrong = ~np.isfinite(cuda)
    assert wrong[:, 1, place // 100].any() and wrong[0].sum() + wrong[1].sum() == (2 if np.isnan(value) else 1)


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("cuts", [0, 2, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_sums(length, dtype, cuts, power):
    x = values(length, 3, length, dtype)
    rng = np.random.default_rng(cuts)
    limits = np.sort(rng.choice([*x.reshape(-1), -1.0, 0.0, 0.5], (3, cuts)).astype(np.float64), axis=1)
    shift = rng.choice([0.0, 0.1, -300], 3)
    cpu, cuda = both("sums", x, BLOCK, limits, shift, power, out=np.zeros((2, 3, cuts + 1, -(-length // BLOCK))))
    np.testing.assert_array_equal(cuda, cpu)
    assert (cuda[0].sum((1, 2)) == length).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_below(length, dtype):
    x = np.sort(values(length, 3, length, dtype), axis=1)
    rng = np.random.default_rng(length)
    row = np.array([2, 0, 1, 2])
    some = rng.choice(x.reshape(-1), (4, 5)).astype(np.float64)
    thresholds = np.hstack([some, np.nextafter(some, np.inf), np.full((4, 1), np.inf), np.full((4, 1), -1e300)])
    cpu, cuda = both("below", x, BLOCK, row, thresholds, out=np.zeros((4, *thresholds.shape)))
    np.testing.assert_array_equal(cuda, cpu)
    count = (x[row][:, None] < thresholds[:, :, None]).sum(2)
    np.testing.assert_array_equal(cuda[0], count)
    np.testing.assert_array_equal(cuda[3], np.take_along_axis(x[row], np.minimum(count, length - 1), 1))


FITTED = [
    qa.XNOR(), qa.Ternary(), qa.Uniform(3, symmetric=False), qa.Uniform(2, mse=True), qa.LloydMax(2), qa.LQ(2),
    qa.ABC(3), qa.Greedy(2), qa.Greedy(2, refit=True), qa.DoReFa(2), qa.NormalFloat(2),
]  # fmt: skip


@pytest.mark.parametrize("quantizer", FITTED, ids=repr)
@pytest.mark.parametrize("along", [None, 0])
def test_fits(quantizer, along):
    """Constants that are fitted by the twins are those that are fitted on the CPU, to the bit."""
    x = values(0, 2, 70, np.float32)
    expected = qa.quantize(x, quantizer, scale_axis=along)
    with twins(packing=False):
        found = qa.quantize(x.copy(), quantizer, scale_axis=along)
    for (_, a, _), (_, b, _) in zip(found.constants.items(), expected.constants.items(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found.words, expected.words)
