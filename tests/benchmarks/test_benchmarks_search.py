"""The benchmark of searches on small ones: rows, recall, tables, wrong results; no figure is judged."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from local_worker import Local

import quantarray as qa
from benchmarks.__main__ import main
from benchmarks.search import cases, command, worker
from benchmarks.search.contenders import CONTENDERS, OURS

COMMAND = ["search", "--rounds", "1", "--seconds", "0"]
PEERS = {"rabitqlib": "rabitqlib", "turbovec": "turbovec", "faiss": "faiss", "usearch": "usearch", "rdkit": "rdkit"}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cases, "SHAPES", dict.fromkeys(cases.SHAPES, (400, 128)))
    monkeypatch.setattr(cases, "CODE_SHAPES", [(1500, 128)])
    monkeypatch.setattr(command, "SearchWorker", lambda name, threads: Local(name, worker.serve))
    threads = qa.get_num_threads()
    yield
    qa.set_num_threads(threads)


def test_command(small, tmp_path, capsys):
    path = tmp_path / "rows.json"
    main([*COMMAND, "--only", "bits, 300", "--json", str(path)])
    main([*COMMAND, "--json", str(path)])
    text, rows = capsys.readouterr().out, json.loads(path.read_text())["rows"]
    assert sorted(row["case"] for row in rows) == sorted(case.name for case in cases.cases())
    for row in rows:
        assert row["case"] in text and 0 < row["seconds"][OURS]
        least = 1 if row["kind"] in (cases.CODES, cases.SETS) else 0.5 if row["bits"] > 1 else 0.1
        assert least <= row["recall"][OURS] <= 1
    for name, package in PEERS.items():
        assert find_spec(package) or f"without {name}: not installed" in text


def test_wrong_results_are_an_error(small, monkeypatch):
    far = lambda case, data, setup: (lambda: np.arange(case.k), lambda ids: [ids])  # noqa: E731
    monkeypatch.setitem(CONTENDERS, OURS, CONTENDERS[OURS]._replace(ready=far))
    with pytest.raises(SystemExit, match=r"search: sets, 400 x 128, k = 10, 100 queries: quantarray finds \d"):
        main([*COMMAND, "--only", "sets"])


def test_unknown_cases_are_named():
    with pytest.raises(SystemExit, match="no case has 'floats' in its name; there are vectors, 1 bit, 1 query"):
        main([*COMMAND, "--only", "floats"])


@pytest.mark.parametrize("kind", list(cases.SHAPES))
def test_the_nearest_are_those_of_all_distances(kind):
    case = cases.Case(kind, (300, 128), 1, 20, cases.K)
    data = cases.data(kind, case.shape, case.queries)
    if kind == cases.SETS:
        both = data.queries.astype(int) @ data.rows.T
        scores = both / (data.queries.sum(1)[:, None] + data.rows.sum(1) - both)
    else:
        scores = -((data.queries[:, None].astype(float) - data.rows) ** 2).sum(axis=2)
    order = np.argsort(-scores, axis=1, kind="stable")
    assert cases.recall(case, data, order[:, : case.k]) == 1
    assert cases.recall(case, data, order[:, case.k : 2 * case.k]) < 0.5
