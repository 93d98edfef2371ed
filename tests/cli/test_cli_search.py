"""`quantarray search`: the table and the JSON are what `top_k` finds; errors are of one line."""

import json

import numpy as np
import pytest

import quantarray as qa
from quantarray.cli import main

ROWS = np.random.default_rng(0).normal(size=(50, 70)).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    qa.save(tmp_path / "signs.qa", qa.pack_bits(ROWS > 0))
    qa.save(tmp_path / "codes.qa", qa.quantize(ROWS, qa.Uniform(4)))
    np.save(tmp_path / "bools.npy", ROWS > 0)
    np.save(tmp_path / "queries.npy", ROWS[3:5])
    np.save(tmp_path / "one.npy", ROWS[7])
    return tmp_path


def called(capsys, *arguments):
    status = main(["search", *map(str, arguments)])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("database", ["signs.qa", "bools.npy"])
def test_signs(files, capsys, database):
    status, out, _ = called(capsys, files / database, files / "queries.npy", "-k", 3, "--signs", "--json")
    nearest = qa.top_k(ROWS[3:5] > 0, ROWS > 0, 3)
    assert status == 0 and json.loads(out) == {
        "metric": "hamming",
        "ids": nearest.indices.tolist(),
        "distances": nearest.distances.tolist(),
    }


def test_table(files, capsys):
    status, out, _ = called(capsys, files / "codes.qa", files / "one.npy", "-k", 2, "--metric", "cosine")
    nearest = qa.top_k(ROWS[7], qa.quantize(ROWS, qa.Uniform(4)), 2, "cosine")
    lines = [line.split() for line in out.splitlines()[-2:]]
    assert status == 0 and [int(line[2]) for line in lines] == nearest.indices.tolist() == [7, nearest.indices[1]]
    assert lines[0][3] == f"{nearest.distances[0]:.6g}" and "cosine" in out
    settings = "--metric", "dot", "-k", 3, "--candidates", 5, "--json"
    few = called(capsys, files / "codes.qa", files / "one.npy", *settings)[1]
    nearest = qa.top_k(ROWS[7], qa.quantize(ROWS, qa.Uniform(4)), 3, "dot", candidates=5)
    assert json.loads(few)["ids"] == [nearest.indices.tolist()]
    few = called(capsys, files / "codes.qa", files / "one.npy", *settings, "--planes", 2)[1]
    nearest = qa.top_k(ROWS[7], qa.quantize(ROWS, qa.Uniform(4)), 3, "dot", candidates=5, planes=2)
    assert json.loads(few)["ids"] == [nearest.indices.tolist()]


def test_k_is_at_most_all_rows(files, capsys):
    out = called(capsys, files / "bools.npy", files / "bools.npy", "-k", 999, "--json")[1]
    assert np.shape(json.loads(out)["ids"]) == (50, 50)


@pytest.mark.parametrize(
    "database, queries, metric, said",
    [
        ("signs.qa", "queries.npy", "hamming", "queries must be a QuantArray"),
        ("codes.qa", "queries.npy", "jaccard", "queries must be a QuantArray"),
        ("none.qa", "queries.npy", "dot", "none.qa"),
        ("signs.qa", "none.npy", "dot", "none.npy"),
        ("two.qa", "queries.npy", "dot", "search needs a file of one packed array, got dict"),
    ],
)
def test_errors(files, capsys, database, queries, metric, said):
    qa.save(files / "two.qa", {"a": qa.pack_bits(ROWS > 0), "b": qa.pack_bits(ROWS > 0)})
    status, _, err = called(capsys, files / database, files / queries, "--metric", metric)
    assert status == 2 and said in err and err.count("\n") == 1


def test_rows_of_rabitq_and_queries_that_are_no_numbers(files, capsys):
    rows = qa.RaBitQ(4).quantize(ROWS)
    qa.save(files / "rotated.qa", rows.arrays())
    settings = "--metric", "l2", "-k", 2, "--json"
    out = called(capsys, files / "rotated.qa", files / "queries.npy", *settings)[1]
    assert json.loads(out)["ids"] == qa.top_k(ROWS[3:5], rows, 2, "l2").indices.tolist()
    np.save(files / "wrong.npy", np.full((1, 70), np.nan, np.float32))
    status, _, error = called(capsys, files / "signs.qa", files / "wrong.npy", "--signs")
    assert status and "queries must be finite" in error
