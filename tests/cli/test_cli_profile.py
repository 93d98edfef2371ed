"""`quantarray profile`: times of layers, of networks of plain integers and of graphs, as text and as JSON."""

import json
import sys

import numpy as np
import pytest
from plain_files import Builder, small

import quantarray as qa
from quantarray.cli import main
from quantarray.core import progress


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network of plain integers, the same as `.qa`, a graph, layers without an input, and a network of no samples."""
    folder = tmp_path_factory.mktemp("profile")
    small().save(folder / "net.npz")
    qa.nn.load_network(folder / "net.npz").save(folder / "net.qa")
    x, y = qa.nn.Value("x", ("n", 4), "float32", True), qa.nn.Value("y", ("n", 4), "float32", True)
    x, y = (qa.nn.Value(v.name, (1, 4), "float32", True) for v in (x, y))
    qa.nn.Graph([x], [y], [qa.nn.Node("Relu", ("x",), ("y",))], {}).save(folder / "graph.qa")
    qa.nn.Sequential([qa.nn.MaxPool2d(2)]).save(folder / "layers.qa")
    return folder


def call(capsys, *args):
    status = main([str(a) for a in args])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(("name", "layers"), [("net.npz", 4), ("net.qa", 4), ("graph.qa", 1)])
@pytest.mark.parametrize("batch", [1, 9])
def test_rows_and_sums(name, layers, batch, files, capsys):
    status, out, err = call(capsys, "profile", files / name, "--batch", batch)
    assert (status, err) == (0, "") and "share" in out and f"for a batch of {batch}, each layer" in out
    status, out, _ = call(capsys, "profile", files / name, "--batch", batch, "--json")
    facts = json.loads(out)
    assert (status, facts["batch"], len(facts["layers"])) == (0, batch, layers)
    assert facts["seconds"] == pytest.approx(sum(row["seconds"] for row in facts["layers"])) and facts["seconds"] > 0
    assert all(row["shape"][0] == batch and row["runs"] in ("packed", "NumPy") for row in facts["layers"])


def test_progress_is_for_people_who_wait(files, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for name, total in (("net.qa", "4  layers timed"), ("graph.qa", "5  runs of a node")):
        _, out, err = call(capsys, "profile", files / name)
        assert f"of {total}" in err and err.endswith("\r\x1b[K") and "\r" not in out
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    assert call(capsys, "profile", files / "net.qa")[2] == ""


def test_summaries_show_no_progress(files, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    qa.nn.load(files / "net.qa").summary()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["layers.qa"], "profile: {} holds layers without a description of their inputs"),
        (["missing.qa"], "No such file"),
        (["net.qa", "--batch", "0"], "--batch: needs a positive integer, got '0'"),
        ([], "required: NET (see quantarray profile --help)"),
    ],
)
def test_errors_are_one_line(args, text, files, capsys):
    paths = [files / a if a.endswith("qa") else a for a in args]
    status, out, err = call(capsys, "profile", *paths)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert text.format(files / "layers.qa") in err


def test_a_network_without_samples(tmp_path, capsys):
    made = Builder(0, (4, 4, 3), table=range(100)).conv((2, 1, 1)).save(tmp_path / "n.npz")
    network = qa.nn.load_network(made)
    assert len(network.plain.input)  # the builder stores some: those of a file without are refused by name
    none = network.plain.input[:0]
    object.__setattr__(network.plain, "input", none)
    from quantarray.cli.profile import batch_of

    with pytest.raises(ValueError, match=r"profile: there are no inputs in n\.npz"):
        batch_of("profile", "n.npz", network, 3)
    object.__setattr__(network.plain, "input", np.concatenate([none, np.zeros((2, *none.shape[1:]), np.uint8)]))
    assert batch_of("profile", "n.npz", network, 3)[0].shape == (3, *none.shape[1:])
