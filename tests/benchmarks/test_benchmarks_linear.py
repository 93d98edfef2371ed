"""The benchmark of linear layers on small ones: kinds of weights, rows, tables, wrong results; no figure is judged."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from local_worker import Local

import quantarray as qa
from benchmarks.__main__ import main
from benchmarks.linear import cases, command, worker
from benchmarks.linear.contenders import CONTENDERS, OURS
from benchmarks.peers import milliseconds

SHAPE = 16, 512
COMMAND = ["linear", "--rounds", "1", "--seconds", "0"]
PEERS = {"ggml": "libggml", "onnxruntime": "onnxruntime", "torch onednn": "torch", "litespark": "litespark_inference"}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cases, "SQUARE", SHAPE)
    monkeypatch.setattr(cases, "MODEL_SHAPES", [(32, 256), (8, 512), (32, 256)])
    monkeypatch.setattr(cases, "last_cache", lambda: 10_000)
    monkeypatch.setattr(command, "LinearWorker", lambda name, threads: Local(name, worker.serve))
    threads = qa.get_num_threads()
    yield
    qa.set_num_threads(threads)


def test_command(small, tmp_path, capsys):
    path = tmp_path / "rows.json"
    main([*COMMAND, "--rows", "3", "--json", str(path)])
    main([*COMMAND, "--ring", "--model", "--json", str(path)])
    text, rows = capsys.readouterr().out, json.loads(path.read_text())["rows"]
    layers, rings = ([f"{kind}, {part}" for kind in cases.KINDS] for part in ("3 rows", "ring"))
    assert [row["case"] for row in rows] == [*layers, *rings, "ternary 2B, model"]
    for row in rows:
        assert all(0 <= error < command.MOST for error in row["errors"].values()) and OURS in row["seconds"]
        assert row["case"] in text and 0 < row["seconds"][OURS]
        assert (row["layers"] > 1) == (row["part"] != "layer")
    assert (rows[0]["products"], rows[-1]["products"]) == (3 * 16 * 512, 32 * 256 * 2 + 8 * 512)
    for name, package in PEERS.items():
        assert find_spec(package) or f"without {name}: not installed" in text


def test_wrong_results_are_an_error(small, monkeypatch, capsys):
    wrong = CONTENDERS[OURS]._replace(ready=lambda layers, xs, setup: lambda: [np.ones((2, 16)) for _ in layers])
    monkeypatch.setitem(CONTENDERS, OURS, wrong)
    with pytest.raises(SystemExit, match=r"linear: ternary, 2 rows: errors of quantarray \d+"):
        main([*COMMAND, "--only", "ternary", "--rows", "2"])


@pytest.mark.parametrize("kind", [cases.TERNARY, *cases.FILES])
def test_blocks_have_the_values_of_the_array(kind):
    w = cases.weights(kind, SHAPE)
    values = w.array.dequantize()
    np.testing.assert_array_equal(cases._read(w.type, w.blocks, SHAPE).dequantize(), values)
    assert np.isfinite(values).all() and len(np.unique(values)) > 1


def test_results_that_are_not_finite_have_an_infinite_error():
    weights = [cases.weights(cases.TERNARY, SHAPE)]
    xs = cases.inputs(weights, 2)
    exact = xs[512] @ weights[0].array.dequantize().T
    assert worker.error([exact], weights, xs) < 1e-6 and worker.error([exact * 1.5], weights, xs) == pytest.approx(0.5)
    assert worker.error([exact * np.nan], weights, xs) == float("inf")


def test_times_have_three_figures():
    assert [milliseconds(s) for s in (0.0002564, 0.0123, 1.234, None)] == ["0.256", "12.3", "1,234", ""]
