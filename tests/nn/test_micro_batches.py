"""A network that is planned for some rows at a time equals its operations one by one, bit for bit."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.nn import Graph, Node, Value
from quantarray.nn.plan import micro_batches

_MODELS = {
    "cnv": {},
    "quicknet": {"size": 64, "classes": 10},
    "bireal_resnet18": {"size": 64, "classes": 10},
    "dorefa_mobilenet_v2": {"size": 64, "classes": 10},
}


@pytest.fixture(autouse=True)
def _one_row_at_a_time(monkeypatch):
    """Plan as few rows as can be, by one thread."""
    monkeypatch.setattr(micro_batches, "BYTES", 1)
    before = qa.get_num_threads()
    qa.set_num_threads(1)
    yield
    qa.set_num_threads(before)


def _rows(prepared, x):
    """Return how many rows a plan takes at once, None for all."""
    return [part.rows for part in prepared.plan(x)]


@pytest.mark.parametrize("name", _MODELS)
def test_models(name, monkeypatch):
    """One row at a time, some and a rest, all; then fewer rows than a plan was made for."""
    network = getattr(qa.nn.models, name)(**_MODELS[name])
    x = np.random.default_rng(0).integers(0, 256, (7, *network.inputs[0].shape[1:]), np.uint8)
    expected, one = network(x), network.prepared().plan(x[:1])[0].nbytes
    for count, limit, rows in ((7, 1, [1]), (7, 3 * one, [3, 4]), (6, 2 * one, [2, 3]), (7, 100 * one, [None])):
        monkeypatch.setattr(micro_batches, "BYTES", limit)
        prepared, reused = network.prepared(), network.prepared(reuse=True)
        (at_once,) = _rows(prepared, x[:count])
        assert at_once in rows
        for _ in range(3):
            assert np.array_equal(prepared(x[:count]), expected[:count])
            assert np.array_equal(reused(x[:count]), expected[:count])
        assert np.array_equal(prepared(x[:2]), expected[:2])


def test_summary_says_so():
    network = qa.nn.models.cnv()
    prepared, x = network.prepared(), np.zeros((3, *network.inputs[0].shape[1:]), np.uint8)
    assert prepared.summary(x)[0].endswith("launches, 1 rows at a time")
    assert "at a time" not in prepared.summary(x[:1])[0]


def test_results_share_memory_only_if_asked():
    network = qa.nn.models.cnv()
    x = np.random.default_rng(0).integers(0, 256, (4, *network.inputs[0].shape[1:]), np.uint8)
    for reuse in (False, True):
        prepared = network.prepared(reuse=reuse)
        prepared(x), prepared(x)
        first = prepared(x)
        before = first.copy()
        second = prepared(x[::-1].copy())
        assert np.shares_memory(first, second) == reuse
        assert np.array_equal(second, before[::-1])
        assert np.array_equal(first, second if reuse else before)


_N, _C, _K = 4, 4, 6  # as many channels as rows
_MOVES = {  # a node before a compiled one, the shape that it gives, and whether its rows are those of x
    "any rows": (Node("Reshape", ("x",), ("moved",), {"shape": (-1, _C * _K)}), (_N, _C * _K), True),
    "literal rows": (Node("Reshape", ("x",), ("moved",), {"shape": (_N, _C * _K)}), (_N, _C * _K), False),
    "more rows": (Node("Reshape", ("x",), ("moved",), {"shape": (-1, _K)}), (_N * _C, _K), False),
    "rows of a number": (Node("Reshape", ("x",), ("moved",), {"shape": (_N, -1)}), (_N, _C * _K), False),
    "rows last": (Node("Transpose", ("x",), ("moved",), {"perm": (1, 2, 0)}), (_C, _K, _N), False),
    "rows first": (Node("Transpose", ("x",), ("moved",), {"perm": (0, 2, 1)}), (_N, _K, _C), True),
    "rows joined": (Node("Concat", ("x", "x"), ("moved",), {"axis": 0}), (2 * _N, _C, _K), False),
    "channels joined": (Node("Concat", ("x", "x"), ("moved",), {"axis": 1}), (_N, 2 * _C, _K), True),
}


@pytest.mark.parametrize("case", _MOVES)
def test_operations_that_mix_rows(case):
    """Plans of one row at a time are made only where no operation depends on which rows, or how many, there are."""
    node, shape, apart = _MOVES[case]
    table = np.linspace(-1, 1, shape[1], dtype=np.float32)[None]
    chain = {"steps": ("multiply",), "gives": ("values",), "rank": len(shape)}
    nodes = [node, Node("chain", ("moved", "", "table"), ("y",), chain)]
    outputs = [Value("y", shape, "float32", batched=False)]
    graph = Graph([Value("x", (_N, _C, _K), "float32")], outputs, nodes, {"table": table})
    x = np.random.default_rng(0).standard_normal((_N, _C, _K)).astype(np.float32)
    prepared = graph.prepared()
    assert _rows(prepared, x) == [1 if apart else None]
    for _ in range(3):
        assert np.array_equal(prepared(x), graph(x))


def test_packed_inputs_are_whole():
    """Take all rows at once where inputs are packed."""
    w = qa.encode(np.random.default_rng(0).choice([-1, 1], (64, 64)), values=(-1, 1))
    x = qa.encode(np.random.default_rng(1).choice([-1, 1], (6, 64)), values=(-1, 1))
    network = qa.nn.Sequential([qa.nn.Dense(w, qa.Thresholds([0])), qa.nn.Dense(w)])
    prepared = network.prepared()
    assert _rows(prepared, x) == [None]
    for _ in range(3):
        assert np.array_equal(prepared(x), network(x))


def test_a_nan_is_an_error_in_any_part():
    network = qa.nn.Sequential([qa.nn.Threshold(qa.Thresholds([0.5])), qa.nn.Dense(_signs(3, 8))])
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    prepared = network.prepared()
    for _ in range(3):
        assert np.array_equal(prepared(x), network(x))
    x[4, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        prepared(x)


def _signs(*shape):
    return qa.encode(np.random.default_rng(2).choice([-1, 1], shape), values=(-1, 1))
