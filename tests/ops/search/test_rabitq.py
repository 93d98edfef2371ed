"""RaBitQ against its formulas in NumPy, and searches by its estimates against all estimates."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.ops.search import rabitq

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(60, 100)) * RNG.random(100) ** 3 + 2).astype(np.float32)
ASKED = X[:5] + 0.1 * RNG.normal(size=(5, 100)).astype(np.float32)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 128, 192, 200, 320, 768])
def test_a_rotation_keeps_products(length):
    matrix = rabitq._rotation(length, 5).astype(np.float64)
    assert matrix.shape == (length, -(-length // 64) * 64)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(length), atol=1e-5)
    assert np.abs(matrix).max() < 0.8  # no element stays where it is
    assert not np.array_equal(matrix, rabitq._rotation(length, 6))


def test_a_hadamard_matrix_is_that_of_sylvester():
    expected = np.ones((1, 1))
    for _ in range(5):
        expected = np.block([[expected, expected], [expected, -expected]])
    np.testing.assert_allclose(rabitq._hadamard(np.eye(32)), expected / np.sqrt(32), atol=1e-15)


def test_a_seed_gives_the_same_rotation_everywhere():
    """These numbers were written down once."""
    written = np.float32([[-0.05859375, 0.08984375], [0.02734375, -0.02734375], [0.09765625, 0.08984375]])
    np.testing.assert_array_equal(rabitq._rotation(3, 7)[:, :2], written)


def search_of_factors(row, bits):
    """Return the levels of the largest cosine with a row, by all factors at which a level changes."""
    top, best = 2 ** (bits - 1), (-1.0, None)
    magnitudes = np.abs(row)
    ends = np.unique((np.arange(1, top)[:, None] / magnitudes[magnitudes > 0]).ravel())
    for factor in np.concatenate([[ends[0] / 2 if len(ends) else 1.0], ends * (1 + 1e-12)]):
        levels = np.where(row < 0, -1, 1) * (2 * np.minimum(np.floor(magnitudes * factor), top - 1) + 1)
        cosine = levels @ row / np.linalg.norm(levels)
        if cosine > best[0]:
            best = cosine, levels
    return best


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_codes_have_nearly_the_largest_cosine(bits):
    rows = qa.RaBitQ(bits, center=X.mean(0)).quantize(X[:12])
    rotated = rabitq.rotate(X[:12] - X.mean(0), 0).astype(np.float64)
    levels = rows.codes.dequantize() / rows.codes.scale
    for row, level in zip(rotated, levels, strict=True):
        largest, expected = search_of_factors(row, bits)
        cosine = level @ row / np.linalg.norm(level)
        assert cosine > largest * (1 - 1e-4)
        if bits == 1:
            np.testing.assert_array_equal(level, expected)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("block", [1 << 22, 700])
def test_constants(bits, block, monkeypatch):
    monkeypatch.setattr(rabitq, "_VALUES", block)
    center = X.mean(0)
    rows = qa.RaBitQ(bits, center=center, seed=2).quantize(X)
    rotated = rabitq.rotate(X - center, 2).astype(np.float64)
    assert rows.codes.dtype.bits == bits and rows.shape == X.shape and rows.nbytes == rows.codes.nbytes + 4 * 160
    np.testing.assert_allclose(rows.norms, np.linalg.norm(X - center, axis=1), rtol=1e-5)
    # <codes, r> = |r|**2: the estimate of a product of a row with itself is exact
    np.testing.assert_allclose((rows.codes.dequantize() * rotated).sum(1), (rotated**2).sum(1), rtol=1e-5)
    assert np.abs(rows.dequantize() - X).mean() < 4 * np.abs(X - center).mean() / 2**bits


def test_estimates_are_not_biased():
    """Over rotations, the mean of the estimates is the product."""
    x, q = RNG.normal(size=(2, 1, 64)).astype(np.float32)
    got = [qa.top_k(q, qa.RaBitQ(1, seed=seed).quantize(x), 1, "dot").distances[0, 0] for seed in range(400)]
    assert abs(np.mean(got) - q[0] @ x[0]) < 4 * np.std(got) / 20


def estimates(rows, queries, metric):
    center, values = rows.center.astype(np.float64), rows.codes.dequantize().astype(np.float64)
    if metric == "dot":
        return rabitq.rotate(queries, rows.seed).astype(float) @ values.T + (queries @ center)[:, None]
    away = queries - center
    products = rabitq.rotate(away.astype(np.float32), rows.seed).astype(float) @ values.T
    return (away**2).sum(1)[:, None] + rows.norms.astype(float) ** 2 - 2 * products


@pytest.mark.parametrize("quantize_queries", [None, "row"])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_search(metric, bits, quantize_queries):
    rows = qa.RaBitQ(bits, center=X.mean(0), seed=1).quantize(X)
    expected, sign = estimates(rows, ASKED, metric), 1 if metric == "l2" else -1
    got = qa.top_k(ASKED, rows, len(X), metric, quantize_queries=quantize_queries)
    near = np.take_along_axis(expected, got.indices, 1)
    loose = {"atol": 0.5 if quantize_queries else 1e-3}
    np.testing.assert_allclose(got.distances, near, **loose)
    np.testing.assert_allclose(sign * np.sort(sign * expected, axis=1), near, **loose)
    np.testing.assert_array_equal(np.sort(got.indices, axis=1), np.broadcast_to(np.arange(len(X)), (5, len(X))))
    if bits == 8 and metric == "l2":
        assert got.indices[:, 0].tolist() == [0, 1, 2, 3, 4]
    lists = qa.top_k(ASKED.astype(float).tolist(), rows, len(X), metric, quantize_queries=quantize_queries)
    np.testing.assert_array_equal(lists.indices, got.indices)
    one = qa.top_k(ASKED[1], rows, 7, metric, quantize_queries=quantize_queries)
    np.testing.assert_array_equal(one.indices, got.indices[1, :7])
    if quantize_queries is None:
        radius = float(np.median(expected))
        near = qa.within(ASKED, rows, radius, metric, where=np.arange(0, 60, 2))
        count = np.count_nonzero(sign * expected[:, ::2] <= sign * radius)
        assert abs(len(near.indices) - count) <= 2 and set(near.indices.tolist()) <= set(range(0, 60, 2))


def test_where_and_parts():
    rows = qa.RaBitQ(3).quantize(X)
    whole, ids = qa.top_k(ASKED, rows, 60, "dot"), np.array([3, 9, 4, 50])
    some = qa.top_k(ASKED, rows, 4, "dot", where=ids)
    for q in range(5):
        expected = [i for i in whole.indices[q].tolist() if i in ids]
        assert some.indices[q].tolist() == expected
    part = rows[10:20]
    assert len(part) == 10 and part.norms.shape == (10,)
    np.testing.assert_array_equal(rows[ids].codes.codes(), rows.codes.codes()[ids])


def test_rows_at_the_center():
    rows = qa.RaBitQ(2, center=X[0]).quantize(X[:3])
    assert rows.norms[0] == 0 and np.isfinite(rows.dequantize()).all()
    np.testing.assert_array_equal(rows.dequantize()[0], X[0])
    assert qa.top_k(X[:1], rows, 1, "l2") == (0.0, 0)
    assert len(qa.RaBitQ(2).quantize(X[:0])) == 0


def test_saved(tmp_path):
    rows = qa.RaBitQ(4, center=X.mean(0), seed=9).quantize(X)
    qa.save(tmp_path / "rows.qa", rows.arrays())
    again = qa.RotatedRows(**qa.load(tmp_path / "rows.qa"))
    for got, expected in zip(qa.top_k(ASKED, again, 5, "l2"), qa.top_k(ASKED, rows, 5, "l2"), strict=True):
        np.testing.assert_array_equal(got, expected)


ROWS = qa.RaBitQ(4).quantize(X)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: qa.RaBitQ(9), ValueError, "bits must be an integer from 1 to 8"),
        (lambda: qa.RaBitQ(4, seed=-1), ValueError, "seed must be at least 0"),
        (lambda: qa.RaBitQ(4, center=[[1.0]]), ValueError, "center must have 1 axes"),
        (lambda: qa.RaBitQ(4, center=X[0, :9]).quantize(X), ValueError, "must have the same last length"),
        (lambda: qa.RaBitQ(4).quantize(X[0]), ValueError, r"x must be \[rows elements\]"),
        (lambda: qa.RaBitQ(4).quantize(np.full((2, 4), np.nan)), ValueError, "x must be finite"),
        (lambda: qa.top_k(ASKED, ROWS, 1), ValueError, "estimates of dot and l2 alone, got metric 'hamming'"),
        (lambda: qa.top_k(ASKED, ROWS, 1, "cosine"), ValueError, "estimates of dot and l2 alone, got metric 'cosine'"),
        (lambda: qa.top_k(ASKED[:, :9], ROWS, 1, "dot"), ValueError, "queries .* have 9 elements a row"),
        (lambda: qa.top_k(qa.pack_bits(X > 0), ROWS, 1, "dot"), TypeError, "queries of rotated rows must be floats"),
        (lambda: qa.RotatedRows(ROWS.codes, ROWS.norms[:3], ROWS.center, 0), ValueError, "codes must be"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
