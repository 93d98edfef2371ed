"""Searches by every metric, against NumPy on all pairs: ids, their order, and scores."""

import fractions

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import laws, samples, seeds

import quantarray as qa
from quantarray.cpu.hamming import reservoir
from quantarray.ops.search import nearest, selection

SETS = "jaccard", "dice", "tversky"
PRODUCTS = "dot", "cosine", "l2"


ROTATED = qa.RaBitQ(2).quantize(np.ones((3, 8)))


def pairs(name, a, b, alpha=1.0, beta=1.0):
    """Return scores of all pairs of rows [m d] and [n d], of values."""
    if name == "hamming":
        return (a[:, None] != b[None]).sum(-1)
    if name in SETS:
        both = a.astype(int) @ b.T.astype(int)
        only_a, only_b = a.sum(1)[:, None] - both, b.sum(1)[None] - both
        if name == "dice":
            up, down = 2 * both, 2 * both + only_a + only_b
        else:
            up, down = both, both + alpha * only_a + beta * only_b if name == "tversky" else both + only_a + only_b
        return np.where(down > 0, up / np.where(down > 0, down, 1), 0.0)
    products = a @ b.T
    if name == "dot":
        return products
    one, two = (a * a).sum(1)[:, None], (b * b).sum(1)[None]
    if name == "l2":
        return one + two - 2 * products
    norms = np.sqrt(one.astype(float)) * np.sqrt(two.astype(float))
    return np.where(norms > 0, products / np.where(norms > 0, norms, 1), 0.0)


def nearest_of(name, scores, k):
    """(scores, ids) by a stable sort of all."""
    sign = 1 if name in ("hamming", "l2") else -1
    ids = np.argsort(sign * scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, 1), ids


def check(got, expected):
    np.testing.assert_array_equal(got.indices, expected[1])
    np.testing.assert_array_equal(got.distances, expected[0])
    assert got.indices.dtype == np.int64


@st.composite
def sizes(draw):
    return draw(st.integers(0, 5)), draw(st.integers(1, 60)), draw(st.sampled_from([1, 3, 64, 70, 130]))


@pytest.fixture(autouse=True, params=[1 << 18, 7])
def block(request, monkeypatch):
    """Whole databases and all queries at once, and a few rows and queries at a time."""
    monkeypatch.setattr(nearest, "_SCORES", request.param)
    monkeypatch.setattr(nearest, "_PRODUCTS", request.param)
    monkeypatch.setattr(nearest, "_CANDIDATES", 4 * request.param)
    monkeypatch.setattr(reservoir, "_MOST", 4 * request.param)


@given(st.data(), sizes(), st.sampled_from([0.0, 0.02, 0.5, 1.0]), seeds())
@pytest.mark.parametrize("name", ["hamming", *SETS])
def test_sets(name, data, size, density, seed):
    m, n, d = size
    rng = np.random.default_rng(seed)
    a, b = rng.random((m, d)) < density, rng.random((n, d)) < density
    k, settings = data.draw(st.integers(0, n)), {"alpha": 0.25, "beta": 2.0} if name == "tversky" else {}
    expected = nearest_of(name, pairs(name, a, b, **settings), k)
    check(qa.top_k(a, b, k, name, **settings), expected)
    signs = [qa.from_codes(x.astype(np.uint8), qa.bipolar) for x in (a, b)]
    check(qa.top_k(*signs, k, name, **settings), expected)


@st.composite
def drawn_sets(draw):
    """Draw sets that fill lanes, tiles of queries, pairs of words and stretches, or do not; some equal or empty."""
    m, n = draw(st.sampled_from([1, 3, 4, 5, 6, 11, 23])), draw(st.sampled_from([1, 8, 33, 100, 300]))
    d, seed = draw(st.sampled_from([5, 64, 100, 512, 768, 832, 1088])), draw(seeds())
    rng, dense = np.random.default_rng(seed), draw(st.sampled_from([0.01, 0.1, 0.5, 0.95]))
    a, b = rng.random((m, d)) < dense, rng.random((n, d)) < draw(st.sampled_from([dense, 0.02, 0.5]))
    if draw(st.booleans(), "equal rows"):
        b[rng.integers(0, n, n // 2)] = b[0]
        a[0] = b[0]
    if draw(st.booleans(), "empty sets"):
        a[-1] = b[-1] = False
    return a, b


WEIGHTS = st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.0, 7.0])


@given(st.data(), drawn_sets(), WEIGHTS, WEIGHTS)
@pytest.mark.parametrize("name", ["hamming", *SETS])
def test_sets_of_any_size(name, data, sets, alpha, beta):
    settings = {"alpha": alpha, "beta": beta} if name == "tversky" else {}
    a, b = map(qa.pack_bits, sets)
    scores, k = pairs(name, *sets, **settings), data.draw(st.integers(1, len(sets[1])))
    check(qa.top_k(a, b, k, name, **settings), nearest_of(name, scores, k))
    radius = data.draw(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 1.0, 1.5, *np.unique(scores)[:50].tolist()]))
    got = qa.within(a, b, radius, name, **settings)
    query, row = np.nonzero(scores <= radius if name == "hamming" else scores >= radius)
    np.testing.assert_array_equal(got.indices, row)
    np.testing.assert_array_equal(got.distances, scores[query, row])
    assert got.distances.dtype == scores.dtype
    np.testing.assert_array_equal(got.starts, np.searchsorted(query, np.arange(len(a) + 1)))


@given(st.data(), sizes(), seeds())
@pytest.mark.parametrize("name", PRODUCTS)
def test_integers_of_any_bits(name, data, size, seed):
    m, n, d = size
    one, two = (data.draw(laws(8, kinds=("integer",))) for _ in range(2))
    x, y = (data.draw(samples(shape, 1, law)) for shape, law in (((m, d), one), ((n, d), two)))
    k = data.draw(st.integers(0, n))
    check(qa.top_k(x.q, y.q, k, name), nearest_of(name, pairs(name, x.values, y.values), k))


@given(st.data(), sizes(), seeds())
def test_codes_of_several_bits_by_places_that_differ(data, size, seed):
    m, n, d = size
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, (m, d)), rng.integers(0, 3, (n, d))
    k = data.draw(st.integers(0, n))
    check(
        qa.top_k(*(qa.from_codes(x, qa.ternary) for x in (a, b)), k), nearest_of("hamming", pairs("hamming", a, b), k)
    )


@given(st.data(), sizes(), st.sampled_from([np.float32, np.float16, np.int8]), seeds())
@pytest.mark.parametrize("name", PRODUCTS)
def test_dense_queries(name, data, size, dtype, seed):
    """Products are those of `linear`; what is computed of them is float64."""
    m, n, d = size
    rng = np.random.default_rng(seed)
    queries = (rng.normal(size=(m, d)) * 40).astype(dtype)
    rows = qa.quantize(rng.normal(size=(n, d)).astype(np.float32), qa.Uniform(4), scale_axis=0)
    k = data.draw(st.integers(0, n))
    products = qa.linear(queries, rows)
    one = (queries.astype(np.float64) ** 2).sum(1)[:, None]
    two = (rows.dequantize().astype(np.float64) ** 2).sum(axis=1)[None]
    if name == "dot":
        scores = products
    elif name == "l2":
        scores = np.maximum(one + two - 2 * products.astype(float), 0)
    else:
        norms = np.sqrt(one) * np.sqrt(two)
        scores = np.where(norms > 0, products / np.where(norms > 0, norms, 1), 0.0)
    check(qa.top_k(queries, rows, k, name), nearest_of(name, scores, k))


def test_tanimoto_is_jaccard():
    a, b = np.random.default_rng(0).random((2, 20, 100)) < 0.3
    check(qa.top_k(a, b, 7, "tanimoto"), nearest_of("jaccard", pairs("jaccard", a, b), 7))
    assert qa.within(a, b, 0.2, "tanimoto").indices.tolist() == qa.within(a, b, 0.2, "jaccard").indices.tolist()
    with pytest.raises(TypeError, match="jaccard compares sets"):
        qa.top_k(CODES, CODES, 1, "tanimoto")
    assert qa.top_k(a, b[:2], 1, where=[0, 1]).indices.shape == (20, 1)  # ids: a mask of two would be of bools


def test_queries_made_int8():
    rng = np.random.default_rng(0)
    queries, rows = rng.normal(size=(3, 256)).astype(np.float32), qa.pack_bits(rng.random((100, 256)) < 0.5)
    scores = qa.linear(queries, rows, quantize_x="row")
    check(qa.top_k(queries, rows, 9, "dot", quantize_queries="row"), nearest_of("dot", scores, 9))


def test_ratios_are_compared_exactly():
    """Neighbouring fractions of 20,000 bits differ by 2.5e-9; equal ones of other counts are ties."""
    d, rows = 20000, np.zeros((4, 20000), bool)
    for row, count in enumerate((9999, 10000, 5000, 10000)):
        rows[row, :count] = True
    query = np.ones(d, bool)
    found = qa.top_k(query, rows, 4, "jaccard")
    assert found.indices.tolist() == [1, 3, 0, 2]
    assert [fractions.Fraction(x).limit_denominator(d) for x in found.distances] == [
        fractions.Fraction(n, d) for n in (10000, 10000, 9999, 5000)
    ]
    half = qa.top_k(np.arange(8) < 2, [[1, 0] * 4, [1, 1, 1, 1, 0, 0, 0, 0]] == np.int64(1), 2, "jaccard")
    assert half.indices.tolist() == [1, 0] and half.distances.tolist() == [0.5, 0.2]


@pytest.mark.parametrize("name", ["hamming", "jaccard", "dot"])
@given(st.data(), seeds())
def test_where(name, data, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.random((3, 70)) < 0.5, rng.random((40, 70)) < 0.5
    mask = rng.random(40) < data.draw(st.sampled_from([0.1, 0.5, 1.0]))
    k = data.draw(st.integers(0, int(mask.sum())))
    values = pairs(name, a.astype(int), b.astype(int)) if name == "dot" else pairs(name, a, b)
    scores, ids = nearest_of(name, values[:, mask], k)
    ids = np.flatnonzero(mask)[ids]
    packed = [qa.pack_bits(x) for x in (a, b)]
    some = rng.permutation(
        np.concatenate([np.flatnonzero(mask), np.flatnonzero(mask)[:3] - 40])
    )  # twice, and from the end
    radius = float(np.median(values))
    query, row = np.nonzero((values <= radius if name == "hamming" else values >= radius) & mask)
    for where in (mask, qa.pack_bits(mask), some, some.tolist()):
        check(qa.top_k(*packed, k, name, where=where), (scores, ids))
        near = qa.within(*packed, radius, name, where=where)
        np.testing.assert_array_equal(near.indices, row)
        np.testing.assert_array_equal(near.distances, values[query, row])
        np.testing.assert_array_equal(near.starts, np.searchsorted(query, np.arange(4)))


@st.composite
def drawn_scores(draw):
    """Draw scores [m n] of a few values or of many, small integers, large ones or floats of any size."""
    rng, few = np.random.default_rng(draw(seeds())), draw(st.sampled_from([1, 2, 9, 1 << 40]))
    m, n = draw(st.integers(1, 3)), draw(st.sampled_from([1, 5, 64, 300, 1500]))
    kind = draw(st.sampled_from([np.int32, np.int64, np.float32, np.float64]))
    if kind in (np.float32, np.float64):
        values = rng.normal(size=min(few, 4 * n)) * 10.0 ** rng.integers(-30, 30, min(few, 4 * n))
        values[:3] = np.array([0.0, -0.0, np.inf])[: len(values)]
    else:
        most = np.iinfo(kind).max // 2
        values = rng.integers(-most, most, min(few, 4 * n)) if draw(st.booleans()) else np.arange(min(few, 4 * n))
    return rng.choice(values, (m, n)).astype(kind)


@pytest.mark.parametrize("order", ["as drawn", "ascending", "descending"])
@given(st.data(), drawn_scores(), st.sampled_from([1, -1]))
def test_the_best_scores(order, data, scores, sign):
    """Best first and of equal ones the first, from any order in which they come: each better than all before, too."""
    if order != "as drawn":
        scores = np.sort(scores, axis=1)[:, :: 1 if order == "ascending" else -1]
    m, n = scores.shape
    k, size = data.draw(st.integers(0, n)), data.draw(st.sampled_from([n, 1, 70]))
    best = selection.Best(m, n, k, sign)
    for first in range(0, n, size):
        best.add(scores[:, first : first + size], first)
    got, rows = best.result()
    expected = np.argsort(sign * scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(got, np.take_along_axis(scores, expected, 1))
    assert got.dtype == scores.dtype


@pytest.mark.parametrize("name", ["hamming", "jaccard"])
@pytest.mark.parametrize("least", [0, 1 << 62])
@pytest.mark.parametrize("asked", [1, 6])
@pytest.mark.parametrize("k", [1, 10, 33, 100, 700, 1400, 1999, 2000])
def test_k_of_any_size(name, least, asked, k, monkeypatch):
    """Reservoirs fill up many times, once or never, in one piece or several. Rows get nearer, so all are stored."""
    monkeypatch.setattr(reservoir, "LEAST", least)
    rng = np.random.default_rng(k)
    b = rng.random((2000, 100)) < np.linspace(0.2, 0.8, 2000)[:, None]
    a = np.ones((asked, 100), bool)
    a[1:] = rng.random((asked - 1, 100)) < 0.7
    check(qa.top_k(a, b, k, name), nearest_of(name, pairs(name, a, b), k))
    check(qa.top_k(a, b[::-1].copy(), k, name), nearest_of(name, pairs(name, a, b[::-1]), k))


@given(sizes(), st.sampled_from(["hamming", *SETS, *PRODUCTS]), st.sampled_from([0.0, 0.3, 0.5, 3.0]), seeds())
def test_within(size, name, radius, seed):
    m, n, d = size
    rng = np.random.default_rng(seed)
    a, b = rng.random((m, d)) < 0.3, rng.random((n, d)) < 0.3
    values = pairs(name, a.astype(int), b.astype(int)) if name in PRODUCTS else pairs(name, a, b)
    inside = values <= radius if name in ("hamming", "l2") else values >= radius
    starts, indices, distances = (
        qa.within(a, b, radius, name)
        if name not in PRODUCTS
        else qa.within(qa.pack_bits(a), qa.pack_bits(b), radius, name)
    )
    np.testing.assert_array_equal(starts, np.concatenate([[0], np.cumsum(inside.sum(1))]))
    np.testing.assert_array_equal(indices, np.nonzero(inside)[1])
    np.testing.assert_array_equal(distances, values[inside])


@pytest.mark.parametrize("name", PRODUCTS)
def test_rescore(name, tmp_path):
    rng = np.random.default_rng(0)
    floats = rng.normal(size=(500, 96)).astype(np.float32)
    asked = floats[:4] + 0.2 * rng.normal(size=(4, 96)).astype(np.float32)
    stored = np.memmap(tmp_path / "rows", np.float32, "w+", shape=floats.shape)
    stored[:] = floats
    found = qa.top_k(asked > 0, floats > 0, 50)
    values = pairs(name, asked.astype(float), floats.astype(float))
    mask = np.full(values.shape, np.inf if name == "l2" else -np.inf)
    np.put_along_axis(mask, found.indices, np.take_along_axis(values, found.indices, 1), 1)
    scores, ids = nearest_of(name, mask, 10)
    for rows in (floats, stored):
        got = qa.rescore(found, asked, rows, 10, name)
        np.testing.assert_array_equal(got.indices, ids)
        np.testing.assert_allclose(got.distances, scores, rtol=1e-9, atol=1e-9)
    assert qa.rescore(found.indices[0], asked[0], floats, 1, name).indices.tolist() == ids[0, :1].tolist()
    assert qa.rescore(found, asked, floats, 0, name).indices.shape == (4, 0)


def test_equal_candidates_come_in_order():
    rows = np.float32([[1, 0], [2, 0], [1, 0], [2, 0]])
    assert qa.rescore([[3, 2, 1, 0]], np.float32([[1, 0]]), rows, 4).indices.tolist() == [[1, 3, 0, 2]]


BITS, CODES = qa.pack_bits(np.eye(8, dtype=bool)), qa.from_codes(np.zeros((8, 8), np.uint8), qa.uint4)
FAR = qa.from_codes(np.ones((2, 8), np.uint8), qa.uint1, scale=1e9)
VALUES = qa.from_embeddings(np.zeros((3, 8), np.int8), "int8", [[-1] * 8, [1] * 8])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: qa.top_k(BITS, BITS, 1, "euclid"), ValueError, "metric must be one of 'hamming', 'jaccard'"),
        (lambda: qa.top_k(BITS, BITS, 1, ["dot"]), ValueError, "metric must be one of 'hamming', 'jaccard'"),
        (lambda: qa.top_k(CODES, CODES, 1, "jaccard"), TypeError, "jaccard compares sets, so queries must have 1 bit"),
        (lambda: qa.top_k(BITS, CODES, 1), TypeError, "must have one dtype"),
        (
            lambda: qa.top_k(np.ones((1, 8), int), BITS, 1, "dot"),
            TypeError,
            "queries must be packed, or floats, int8 or uint8, got int64",
        ),
        (lambda: qa.top_k(np.float32([[np.nan] * 8]), BITS, 1, "dot"), ValueError, r"queries must be finite.*\(0, 0\)"),
        (lambda: qa.top_k(BITS, BITS, 1, "tversky", alpha=-1), ValueError, "alpha and beta of tversky must not be"),
        (
            lambda: qa.top_k(BITS, BITS, 1, quantize_queries="row"),
            ValueError,
            "quantize_queries is for the metrics dot",
        ),
        (lambda: qa.top_k(BITS, BITS, 3, where=[1, 1, 2]), ValueError, "at most the 2 rows of 8 that where selects"),
        (lambda: qa.top_k(BITS, BITS, 1, where=[True] * 7), ValueError, r"where must be a mask \[8\] or ids of rows"),
        (
            lambda: qa.top_k(BITS, BITS, 1, where=np.eye(8, dtype=np.uint8)[2]),
            ValueError,
            r"where is uint8 \(8,\) of 0 and 1 alone.*where.astype\(bool\)",
        ),
        (lambda: qa.within(BITS, BITS, 1, where=[1] * 8), ValueError, r"where is int64 \(8,\) of 0 and 1 alone"),
        (lambda: qa.top_k(BITS, BITS[:2], 1, where=np.uint8([0, 1])), ValueError, "may be a mask or ids"),
        (lambda: qa.top_k(BITS, BITS, 1, where=[8]), IndexError, "8 is out of bounds for axis 0 of length 8"),
        (lambda: qa.top_k(BITS, BITS, 1, where=[0.5]), TypeError, "where must be a mask"),
        (lambda: qa.rescore([[9]], np.ones((1, 8)), np.ones((3, 8)), 1), IndexError, "candidates name row 9"),
        (lambda: qa.rescore([[0]], np.ones((2, 8)), np.ones((3, 8)), 1), ValueError, "needs queries"),
        (lambda: qa.rescore([[0]], np.ones((1, 7)), np.ones((3, 8)), 1), ValueError, "the same last length"),
        (lambda: qa.rescore([[0]], np.ones((1, 8)), np.ones((3, 8)), 2), ValueError, "k must be at most 1, got 2"),
        (lambda: qa.rescore([[0]], np.full((1, 8), np.nan), np.ones((3, 8)), 1), ValueError, r"got nan at \(0, 0\)"),
        (
            lambda: qa.rescore([[0, 1]], np.ones((1, 2)), np.float32([[1, 2], [3, np.inf]]), 1),
            ValueError,
            r"rows must be finite, got inf at \(1, 1\), a candidate of query 0",
        ),
        (
            lambda: qa.rescore([[0]], np.ones((1, 8)), ROTATED, 1),
            TypeError,
            "rows must be floats or bytes",
        ),
        (lambda: qa.top_k(ROTATED, ROTATED, 1, "l2"), TypeError, "queries of rotated rows stay floats"),
        (lambda: qa.top_k(np.ones((1, 8)), ROTATED.arrays(), 1, "l2"), TypeError, r"RotatedRows\(\*\*load\(file\)\)"),
        (lambda: qa.RaBitQ(4, center=0.5), ValueError, r"x.mean\(axis=0\) is such a vector"),
        (lambda: qa.quantize(np.ones((3, 8)), qa.RaBitQ(4)), TypeError, r"call RaBitQ\(4\).quantize\(x\)"),
        (lambda: qa.save("r.qa", ROTATED), TypeError, r"save\(file, value.arrays\(\)\) saves its arrays"),
        (
            lambda: qa.within(np.ones((1, 8), np.float32), BITS, 1, "dot", quantize_queries=100),
            ValueError,
            'within: quantize_queries must be "row" or a multiple of 64 elements, got 100',
        ),
        (lambda: qa.within(BITS, BITS, np.inf), ValueError, "radius must be finite"),
        (
            lambda: qa.top_k(np.full((1, 8), 1e39), BITS, 1, "dot"),
            ValueError,
            r"queries must be at most 1e\+30, got 1e\+39",
        ),
        (lambda: qa.within(np.full((1, 8), 3e38), BITS, 1, "l2"), ValueError, "queries must be at most"),
        (lambda: qa.top_k(np.full((1, 8), 2e30), ROTATED, 1, "l2"), ValueError, "queries must be at most"),
        (lambda: qa.top_k(np.full((1, 8), 1e30), FAR, 1, "cosine"), OverflowError, "scores pass the largest float"),
        (lambda: qa.within(np.full((1, 8), 1e30), FAR, 1, "dot"), OverflowError, "scores pass the largest float"),
        (lambda: qa.top_k(VALUES, VALUES, 1, "dot"), ValueError, "pass queries as floats, as queries.dequantize"),
        (
            lambda: qa.top_k(np.ones((1, 8)), VALUES, 1, "dot", quantize_queries="row"),
            ValueError,
            "leave quantize_queries out",
        ),
        (lambda: qa.top_k(np.ones((1, 8)), ROTATED, 1), ValueError, 'got metric .hamming.; pass metric="l2" or "dot"'),
        (lambda: qa.rescore(qa.within(BITS, BITS, 3), np.ones((8, 8)), np.ones((8, 8)), 1), TypeError, "one of within"),
        (
            lambda: qa.from_embeddings(np.zeros((1, 2), np.int8), "int8", [[0, 1], [1, 0]]),
            ValueError,
            r"ranges are \[least, largest\], got 1.0 and 0.0 of dimension 1",
        ),
        (lambda: qa.from_embeddings(np.zeros((1, 1), np.int8), "int8", [[0], [np.nan]]), ValueError, "ranges must be"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", ["hamming", *PRODUCTS])
def test_rescore_compares_as_the_candidates_were_found(name):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(60, 16)) * rng.uniform(0.1, 9, (60, 1))).astype(np.float32)
    asked = rng.normal(size=(5, 16)).astype(np.float32)
    if name == "hamming":
        found = qa.top_k(qa.pack_bits(asked > 0), qa.pack_bits(rows > 0), 20)
    else:
        found = qa.top_k(asked, qa.quantize(rows, qa.Uniform(6), scale_axis=0), 20, name)
    again = qa.rescore(found, asked, rows, 5)
    expected = qa.rescore(found, asked, rows, 5, "dot" if name == "hamming" else name)
    assert (again.indices == expected.indices).all() and again.metric == expected.metric and found.metric == name
    assert tuple(again)[1] is again.indices and repr(again).startswith("Nearest(distances=") and len(again) == 2
    assert (qa.rescore(found.indices, asked, rows, 5).indices == qa.rescore(found, asked, rows, 5, "dot").indices).all()


@pytest.mark.parametrize("quantize_queries", ["row", 64])
@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e20])
def test_cosines_do_not_depend_on_the_size_of_queries(quantize_queries, size):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 128)).astype(np.float32)
    database = qa.quantize(rows, qa.Uniform(4), scale_axis=0)
    for values in (rows[:9], np.eye(9, 128, dtype=np.float32)):
        small = qa.top_k(values * np.float32(size), database, 3, "cosine", quantize_queries=quantize_queries)
        usual = qa.top_k(values, database, 3, "cosine", quantize_queries=quantize_queries)
        np.testing.assert_array_equal(small.indices, usual.indices)
        np.testing.assert_allclose(small.distances, usual.distances, rtol=1e-5)
