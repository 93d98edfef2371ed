"""Embeddings as sentence-transformers writes them, by its formulas."""

import numpy as np
import pytest

import quantarray as qa

X = np.random.default_rng(0).normal(size=(9, 40)).astype(np.float32)


def written(x, precision, ranges=None):
    """`quantize_embeddings` of sentence-transformers 5."""
    if precision == "ubinary":
        return np.packbits(x > 0).reshape(len(x), -1)
    if precision == "binary":
        return (np.packbits(x > 0).reshape(len(x), -1) - 128).astype(np.int8)
    steps = (ranges[1] - ranges[0]) / 255
    if precision == "uint8":
        return ((x - ranges[0]) / steps).astype(np.uint8)
    return ((x - ranges[0]) / steps - 128).astype(np.int8)


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_signs(precision):
    q = qa.from_embeddings(written(X, precision), precision)
    assert q.dtype == qa.uint1 and qa.array_equal(q, qa.pack_bits(X > 0))
    one = qa.from_embeddings(written(X, precision)[3], precision)
    assert qa.array_equal(one, qa.pack_bits(X[3] > 0))


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_bytes(precision):
    ranges = np.stack([X.min(0), X.max(0)])
    data = written(X, precision, ranges)
    q = qa.from_embeddings(data, precision, ranges)
    step = (ranges[1] - ranges[0]) / 255
    assert q.bits == 8 and (np.abs(q.dequantize() - X) <= 1.01 * step).all()
    whole = qa.from_embeddings(data, precision)
    np.testing.assert_array_equal(whole.dequantize(), data)
    one = qa.from_embeddings(data[2], precision, ranges)
    np.testing.assert_array_equal(one.dequantize(), q.dequantize()[2])


def test_the_device_is_followed():
    with qa.device("cpu"):
        assert qa.from_embeddings(written(X, "ubinary"), "ubinary").device == "cpu"


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: qa.from_embeddings(X, "binary"), TypeError, "binary embeddings are int8, got float32"),
        (lambda: qa.from_embeddings(written(X, "binary"), "ubinary"), TypeError, "ubinary embeddings are uint8"),
        (lambda: qa.from_embeddings(X, "float32"), ValueError, "precision must be one of 'ubinary', 'binary'"),
        (
            lambda: qa.from_embeddings(written(X, "binary"), "binary", X[:2]),
            ValueError,
            "ranges are for int8 and uint8",
        ),
        (lambda: qa.from_embeddings(np.zeros((2, 3), np.int8), "int8", X[:2]), ValueError, r"ranges must be \[2, 3\]"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
