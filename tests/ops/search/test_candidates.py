"""`top_k(candidates=)`: the rows whose signs differ least, in the order and with the scores of a search of all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import quantarray as qa
from quantarray.ops.search import nearest

LAWS = qa.bipolar, qa.ternary, qa.integers(-3, -1, 1, 3), qa.int4, qa.integers(range(-7, 8))


@pytest.fixture(autouse=True, params=[1 << 22, 60])
def at_once(request, monkeypatch):
    """All queries at once, and a few at a time."""
    monkeypatch.setattr(nearest, "_CANDIDATES", request.param)


def expected(whole, query_signs, row_signs, k, number):
    """Return (scores, ids) of the candidates alone, of a result that has all rows."""
    far = (query_signs[:, None] != row_signs[None]).sum(-1)
    results = []
    for scores, ids, distances in zip(whole.distances, whole.indices, far, strict=True):
        chosen = np.isin(ids, np.argsort(distances, kind="stable")[:number])
        results.append((scores[chosen][:k], ids[chosen][:k]))
    return [np.array(each) for each in zip(*results, strict=True)]


def check(got, scores_and_ids):
    np.testing.assert_array_equal(got.indices, scores_and_ids[1])
    np.testing.assert_array_equal(got.distances, scores_and_ids[0])


@given(st.data(), st.sampled_from(LAWS), st.booleans(), seeds())
@pytest.mark.parametrize("name", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("form", ["floats", "row", "int8", "packed"])
def test_candidates(form, name, data, law, scaled, seed):
    m, n, d = (data.draw(st.sampled_from(each)) for each in ([1, 2, 17, 35], [1, 9, 60], [3, 64, 130]))
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, law.n_levels, (n, d))
    scale = rng.uniform(0.1, 2, (n, 1)).astype(np.float32) if scaled else None
    rows = qa.from_codes(codes, law, scale=scale)
    queries = rng.normal(size=(m, d)).astype(np.float32)
    if form == "int8":
        queries = (40 * queries).astype(np.int8)
    signs = queries > 0
    if form == "packed":
        queries = qa.from_codes(rng.integers(0, 16, (m, d)), qa.int4)
        signs = queries.dequantize() > 0
    number = data.draw(st.integers(1, n + 1))
    k = data.draw(st.integers(0, min(number, n)))
    how = {"quantize_queries": "row" if form == "row" else None}
    whole = qa.top_k(queries, rows, n, name, **how)
    got = qa.top_k(queries, rows, k, name, candidates=number, **how)
    assert got.distances.dtype == whole.distances.dtype
    check(got, expected(whole, signs, codes >= 2 ** (law.bits - 1), k, number))
    one = qa.top_k(queries[0], rows, k, name, candidates=number, **how)
    np.testing.assert_array_equal(one.indices, got.indices[0])


@pytest.mark.parametrize("metric", ["dot", "l2"])
@pytest.mark.parametrize("bits", [1, 4])
def test_rotated_rows(metric, bits):
    rng = np.random.default_rng(3)
    x, queries = (rng.normal(size=(n, 100)).astype(np.float32) + 1 for n in (80, 20))
    rows = qa.RaBitQ(bits, center=x.mean(0)).quantize(x)
    signs = rows.rotated(queries, metric) > 0
    whole = qa.top_k(queries, rows, 80, metric)
    plane = rows.codes.codes() >= 2 ** (bits - 1)
    got = qa.top_k(queries, rows, 10, metric, candidates=30)
    check(got, expected(whole, signs, plane, 10, 30))


def test_where():
    rng = np.random.default_rng(4)
    rows = qa.quantize(rng.normal(size=(50, 90)).astype(np.float32), qa.Uniform(4, midrise=True), scale_axis=0)
    queries, ids = rng.normal(size=(3, 90)).astype(np.float32), np.arange(5, 50, 3)
    got = qa.top_k(queries, rows, 4, "cosine", where=ids, candidates=8)
    part = qa.top_k(queries, rows[ids], 4, "cosine", candidates=8)
    check(got, (part.distances, ids[part.indices]))
    assert qa.top_k(queries[:0], rows, 4, "dot", candidates=8).indices.shape == (0, 4)
    assert qa.top_k(queries, rows, 0, "dot", candidates=8).indices.shape == (3, 0)


def test_errors():
    queries = np.ones((2, 8), np.float32)
    rows = qa.from_codes(np.arange(32).reshape(4, 8) % 16, qa.int4)
    for k, number in ((3, 2), (1, -1)):
        with pytest.raises(ValueError, match=f"candidates must be at least k = {k}, got {number}"):
            qa.top_k(queries, rows, k, "dot", candidates=number)
    with pytest.raises(ValueError, match="candidates are for the metrics dot, cosine, l2, got 'hamming'"):
        qa.top_k(rows, rows, 1, candidates=2)
    laws = qa.uint4, qa.integers(-1, 1, 2, 3), qa.integers(1, -1)
    others = [qa.from_codes(np.zeros((4, 8), int), law) for law in laws]
    others.append(qa.from_codes(np.zeros((4, 8), int), qa.uniform(4), scale=1, offset=-8))
    others.append(qa.from_codes(np.zeros((4, 8), int), qa.table(1), table=[-1, 1]))
    for rows in others:
        with pytest.raises(TypeError, match="the highest plane, which must tell levels above and below 0 apart"):
            qa.top_k(queries, rows, 1, "dot", candidates=2)
