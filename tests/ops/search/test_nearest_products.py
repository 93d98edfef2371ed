"""`top_k` of a few queries by the words of rows: the order and the scores of all products, sorted; and by planes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import seeds

import quantarray as qa
from quantarray.cpu.hamming import nearest_products
from quantarray.ops.search import nearest

LAWS = qa.bipolar, qa.ternary, qa.uint2, qa.integers(-3, -1, 1, 3), qa.int4, qa.integers(range(-15, 16)), qa.uint8
LENGTHS = 1, 64, 100, 128, 192, 256, 300, 448, 512, 700, 1100, 1536
ROWS = 1, 8, 33, 500, 520, 1100, 4200


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "pieces"])
def threads(request, monkeypatch):
    """All rows in a piece, and in several."""
    if request.param > 1:
        monkeypatch.setattr(nearest_products, "LEAST", 1)
    before = qa.get_num_threads()
    qa.set_num_threads(min(request.param, before))
    yield
    qa.set_num_threads(before)


def rows_of(rng, law, n, d, constants):
    """Return packed rows of which some occur twice, and their levels."""
    codes = rng.integers(0, law.n_levels, (max(1, n * 2 // 3), d))[rng.integers(0, max(1, n * 2 // 3), n)]
    if constants == "offsets":
        scheme = qa.Uniform(law.bits, symmetric=False)
        return qa.quantize(codes + rng.uniform(-3, 9, (n, 1)), scheme, scale_axis=0), None
    scale = rng.uniform(0.1, 2, (n, 1)).astype(np.float32) if constants else None
    return qa.from_codes(codes, law, scale=scale), np.array(law.levels)[codes].astype(np.int64)


def best(scores, k, sign):
    ids = np.argsort(sign * scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, 1), ids


@settings(deadline=None)
@given(st.data(), st.sampled_from(LAWS), st.sampled_from([None, "scales", "offsets"]), seeds())
def test_products(data, law, constants, seed):
    """Products of floats are those of `linear`, which `tests/ops/products/test_float_rows.py` compares with a sum."""
    n, d = data.draw(st.sampled_from(ROWS)), data.draw(st.sampled_from(LENGTHS))
    m, k = data.draw(st.sampled_from([1, 2, 4, 5, 16, 17, 70, 300])), data.draw(st.sampled_from([1, 10, 33, n]))
    rng = np.random.default_rng(seed)
    rows, _ = rows_of(rng, law, n, d, constants)
    if data.draw(st.booleans()) and n > 2:
        rows = rows[1:-1] if n < 1000 else rows[n // 3 :]  # words of planes are apart
    queries = rng.normal(size=(m, d)).astype(np.float32)
    if d == 1:
        queries[0] = 0
    top = qa.top_k(queries, rows, min(k, len(rows)), "dot", quantize_queries="row")
    scores, ids = best(qa.linear(queries, rows, quantize_x="row"), min(k, len(rows)), -1)
    np.testing.assert_array_equal(top.indices, ids)
    np.testing.assert_array_equal(top.distances, scores)


@settings(deadline=None)
@given(st.data(), st.sampled_from(LAWS), st.sampled_from(["dot", "cosine", "l2"]), st.booleans(), seeds())
def test_integers(data, law, name, packed, seed):
    """Scores of integers are exact, beyond what float32 has, too."""
    n, d = data.draw(st.sampled_from(ROWS)), data.draw(st.sampled_from([*LENGTHS, 2100]))
    m, k = data.draw(st.sampled_from([1, 3, 16, 17])), data.draw(st.sampled_from([1, 40]))
    rng = np.random.default_rng(seed)
    rows, values = rows_of(rng, law, n, d, None)
    if packed:
        of = data.draw(st.sampled_from([qa.bipolar, qa.int4, qa.int8, qa.uint8]))
        codes = rng.integers(0, of.n_levels, (m, d))
        queries, asked = qa.from_codes(codes, of), np.array(of.levels)[codes].astype(np.int64)
    else:
        queries = rng.integers(data.draw(st.sampled_from([-128, 100])), 128, (m, d)).astype(np.int8)  # 100: large sums
        asked = queries.astype(np.int64)
    products, (a, b) = asked @ values.T, ((side**2).sum(1) for side in (asked, values))
    if name == "l2":
        products = a[:, None] + b - 2 * products
    elif name == "cosine":
        lengths = np.sqrt(a.astype(float))[:, None] * np.sqrt(b.astype(float))
        products = np.divide(products, lengths, out=np.zeros(products.shape), where=lengths > 0)
    top = qa.top_k(queries, rows, min(k, n), name)
    scores, ids = best(products, min(k, n), 1 if name == "l2" else -1)
    np.testing.assert_array_equal(top.indices, ids)
    np.testing.assert_array_equal(top.distances, scores)
    assert top.distances.dtype.kind == ("f" if name == "cosine" else "i")


def by_planes(queries, codes, levels, scale, planes, bits):
    """Return products of int8 queries and what the highest planes say of levels: the middle of those left open."""
    low, kept = bits - planes, codes >> (bits - planes)
    middle = np.array([(levels[c << low] + levels[(c << low) + (1 << low) - 1]) / 2 for c in range(1 << planes)])
    largest = np.maximum(np.abs(queries).max(axis=1, keepdims=True), np.float32(1e-36))
    factor = np.float32(127) / largest
    exact = np.rint(queries * factor).astype(np.int64) @ middle[kept].T
    return (scale.T.astype(np.float64) * exact).astype(np.float32) / factor


@settings(deadline=None)
@given(st.data(), st.integers(1, 8), seeds())
@pytest.mark.parametrize("name", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("form", ["row", "floats"])
def test_candidates_by_planes(form, name, data, bits, seed):
    n, d, m = (data.draw(st.sampled_from(each)) for each in ([50, 600], [64, 300, 512], [1, 3, 20]))
    planes, k = data.draw(st.integers(1, bits)), data.draw(st.integers(0, 7))
    number = data.draw(st.sampled_from([7, 40]))
    rng = np.random.default_rng(seed)
    law = qa.Uniform(bits, midrise=True).dtype
    codes, scale = rng.integers(0, 2**bits, (n, d)), rng.uniform(0.1, 2, (n, 1)).astype(np.float32)
    rows, queries = qa.from_codes(codes, law, scale=scale), rng.normal(size=(m, d)).astype(np.float32)
    how = {"quantize_queries": "row" if form == "row" else None}
    top = qa.top_k(queries, rows, k, name, candidates=number, planes=planes, **how)
    estimates = by_planes(queries, codes, law.levels, scale, planes, bits)
    a, b = ((side.astype(np.float64) ** 2).sum(axis=1) for side in (queries, rows.dequantize()))
    sign = 1 if name == "l2" else -1
    if name == "l2":
        estimates = np.maximum(a[:, None] + b - 2 * estimates.astype(np.float64), 0)
    elif name == "cosine":
        estimates = estimates / (np.sqrt(a)[:, None] * np.sqrt(b))
    near = np.argsort(sign * estimates, axis=1, kind="stable")[:, :number]
    whole = qa.top_k(queries, rows, n, name, **how)  # of which those that are near are left
    for q, (ids, scores) in enumerate(zip(whole.indices, whole.distances, strict=True)):
        left = np.isin(ids, near[q])
        np.testing.assert_array_equal(top.indices[q], ids[left][:k])
        np.testing.assert_array_equal(top.distances[q], scores[left][:k])


@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_planes_of_rotated_rows(metric):
    """Three planes of eight find what all find, and all planes as candidates are a search of all rows."""
    rng = np.random.default_rng(1)
    x, queries = rng.normal(size=(3000, 128)).astype(np.float32) + 1, rng.normal(size=(20, 128)).astype(np.float32) + 1
    rows = qa.RaBitQ(8, center=x.mean(0)).quantize(x)
    whole = qa.top_k(queries, rows, 10, metric, quantize_queries="row")
    for planes, number, part in ((8, 10, 1.0), (3, 100, 0.98)):
        few = qa.top_k(queries, rows, 10, metric, quantize_queries="row", candidates=number, planes=planes)
        both = [len(set(a) & set(b)) for a, b in zip(whole.indices.tolist(), few.indices.tolist(), strict=True)]
        assert sum(both) >= part * whole.indices.size


def test_refusals():
    rng = np.random.default_rng(2)
    rows, queries = qa.quantize(rng.normal(size=(20, 64)), qa.Uniform(4), scale_axis=0), rng.normal(size=(2, 64))
    with pytest.raises(ValueError, match="planes says how candidates are found; pass candidates too"):
        qa.top_k(queries, rows, 3, "dot", planes=2)
    for planes in (0, 5):
        with pytest.raises(ValueError, match="planes must be"):
            qa.top_k(queries, rows, 3, "dot", candidates=5, planes=planes)
    uneven = qa.quantize(rng.normal(size=(20, 64)), qa.NormalFloat(4))
    with pytest.raises(TypeError, match="levels that are evenly spaced"):
        qa.top_k(queries, uneven, 3, "dot", candidates=5, planes=2)
    with pytest.raises(ValueError, match="finite"):
        qa.top_k(queries * np.nan, rows, 3, "dot", candidates=5, planes=2)


def test_largest_sums():
    """Products at the bounds of int32's sums: 65,536 elements of the largest magnitudes."""
    d = 1 << 16
    rows = qa.from_codes(np.stack([np.zeros(d), np.full(d, 255), np.arange(d) % 256]).astype(np.uint8), qa.uint8)
    queries = np.stack([np.full(d, -128), np.full(d, 127)]).astype(np.int8)
    top = qa.top_k(queries, rows, 3, "dot")
    products = queries.astype(np.int64) @ rows.codes().astype(np.int64).T
    scores, ids = best(products, 3, -1)
    assert top.distances.tolist() == scores.tolist() and top.indices.tolist() == ids.tolist()


def test_blocks_of_queries(monkeypatch):
    """Queries at a time do not change what is found."""
    rng = np.random.default_rng(5)
    rows, queries = qa.quantize(rng.normal(size=(900, 200)), qa.Uniform(4), scale_axis=0), rng.normal(size=(9, 200))
    whole = qa.top_k(queries, rows, 50, "l2", quantize_queries="row", candidates=100, planes=2)
    monkeypatch.setattr(nearest, "_CANDIDATES", 500)
    again = qa.top_k(queries, rows, 50, "l2", quantize_queries="row", candidates=100, planes=2)
    np.testing.assert_array_equal(whole.indices, again.indices)
    np.testing.assert_array_equal(whole.distances, again.distances)
