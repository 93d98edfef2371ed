"""`top_k` of products that the kernel looks at: the order and the scores of a sort of all of them, to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import quantarray as qa
from quantarray.ops.search import metrics, nearest
from quantarray.ops.search.rabitq import RotatedRows

SCALES = {
    "one": lambda rng, n: None,
    "even": lambda rng, n: rng.uniform(0.1, 2, (n, 1)),
    "equal": lambda rng, n: np.full((n, 1), 0.3),
    "tiny": lambda rng, n: rng.choice([1e-30, 3e-30], (n, 1)),
    "wide": lambda rng, n: 10.0 ** rng.integers(-12, 12, (n, 1)),
}


def by_sorting(queries, rows, k, name, quantize):
    """Compute all scores with NumPy, and sort them."""
    how = metrics.metric_of("test", name, 1.0, 1.0, quantize)
    scores = metrics.scores_of("test", queries, metrics.rotated_of(queries, rows, how), rows, how)(rows)
    order = np.argsort(how.sign * scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


@pytest.fixture(autouse=True, params=[1 << 20, 700])
def block(request, monkeypatch):
    """All rows at once, and a few."""
    monkeypatch.setattr(nearest, "_SCORES", request.param)
    monkeypatch.setattr(nearest, "_PRODUCTS", request.param)


@given(st.data(), st.sampled_from(sorted(SCALES)), seeds())
@pytest.mark.parametrize("name", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("form", ["floats", "row", "groups", "int8"])
@pytest.mark.parametrize("law", [qa.bipolar, qa.int4, qa.uint8, qa.integers(-7, -1, 0, 3), "rotated"], ids=str)
def test_order_and_scores(law, form, name, data, scale, seed):
    m, n, d = (data.draw(st.sampled_from(each)) for each in ([1, 2, 5, 17, 70], [1, 9, 65, 300], [1, 3, 64, 130, 256]))
    rng = np.random.default_rng(seed)
    some = np.round(
        rng.normal(size=(max(1, n // data.draw(st.sampled_from([1, 3]))), d)), 1
    )  # rows occur several times
    base = some[rng.integers(0, len(some), n)].astype(np.float32)
    queries = np.concatenate([base[:m] * 3, np.zeros((1, d)), rng.normal(size=(m, d))])[:m].astype(np.float32)
    if law == "rotated":
        name, rows = (
            ("dot" if name == "dot" else "l2"),
            qa.RaBitQ(data.draw(st.integers(1, 8)), base.mean(axis=0)).quantize(base),
        )
    else:
        codes = np.clip(np.rint(base * 3).astype(np.int64) + law.n_levels // 2, 0, law.n_levels - 1)
        rows = qa.from_codes(codes, law, scale=SCALES[scale](rng, n))
    if form == "int8":
        queries = np.clip(40 * queries, -128, 127).astype(np.int8)
    if form == "int8" and isinstance(rows, RotatedRows):
        return  # queries of RaBitQ are floats
    k = data.draw(st.sampled_from(sorted({1, min(n, 33), n // 2, n})))
    quantize = {"row": "row", "groups": 64}.get(form)
    got = qa.top_k(queries, rows, k, name, quantize_queries=quantize)
    scores, ids = by_sorting(queries, rows, k, name, quantize)
    np.testing.assert_array_equal(got.indices, ids)
    np.testing.assert_array_equal(got.distances, scores)
    assert got.distances.dtype == scores.dtype
