"""The benchmark of networks on tiny ones: files, rows, tables, peers that are missing; no figure is judged."""

import json
from importlib.util import find_spec
from itertools import count

import numpy as np
import pytest

import quantarray as qa
from benchmarks.__main__ import main
from benchmarks.networks import command, measure, orders, table, worker
from benchmarks.networks.contenders import CONTENDERS, OURS, image_shape

TINY = {"lfc": {"width": 64, "inputs": 100}}
SMALL = {"size": 32, "classes": 10}
COMMAND = ["networks", "--batch", "2", "--rounds", "1", "--seconds", "0.01", "--patience", "0", "--threads", "2"]
PEERS = {
    "torch float32": "torch",
    "torch int8": "torch",
    "onnxruntime int8": "onnxruntime",
    "openvino int8": "openvino",
}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(command, "CASES", TINY)


@pytest.mark.full
def test_command(tiny, tmp_path, capsys):
    out, picture = tmp_path / "rows.json", tmp_path / "rows.png"
    arguments = [*COMMAND, "--json", str(out), "--folder", str(tmp_path / "files")]
    main([*arguments, "--plot", str(picture)])
    text = capsys.readouterr().out
    assert "2 threads" in text and "1 thread\n" in text and "lfc, batch 2: quantarray" in text
    for name, package in PEERS.items():
        assert find_spec(package) or f"without {name}: not installed" in text
    saved = json.loads(out.read_text())
    (row,) = saved["rows"]
    assert (row["case"], row["image"]) == ("lfc, batch 2", [100]) and set(row["seconds"]) <= set(saved["versions"])
    assert not (find_spec("torch") and find_spec("onnxruntime")) or "onnxruntime int8" in row["seconds"], row["absent"]
    for one in row["seconds"].values():
        assert all(0 < one[n]["median"] <= one[n]["p99"] and one[n]["calls"] for n in ("1", "2"))
    ours = row["memory"][OURS]
    assert ours["file"] == (tmp_path / "files" / "lfc.qa").stat().st_size
    assert ours["constants"] == qa.nn.models.lfc(**TINY["lfc"]).nbytes and ours["layouts"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    main([*arguments, "--markdown"])
    again = capsys.readouterr().out
    assert "lfc, batch 2: quantarray" not in again and "| lfc, batch 2 |" in again, "a row of the file is run again"


def test_nothing_begins_after_the_budget(tiny, monkeypatch, capsys, tmp_path):
    now = count(0, 1000)
    monkeypatch.setattr(command.time, "monotonic", lambda: next(now))
    main([*COMMAND, "--contender", OURS, "--budget", "10"])
    assert "not run: lfc" in capsys.readouterr().out


def test_networks_are_written_alone(tiny, capsys, tmp_path):
    main([*COMMAND, "--contender", OURS, "--build", "--folder", str(tmp_path)])
    assert (tmp_path / "lfc.qa").exists() and "ratio" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({OURS: np.zeros((2, 3)), "peer": np.zeros((2, 4))}, r"lfc: peer: \(2, 4\) scores, ours are \(2, 3\)"),
        ({OURS: np.zeros((2, 3)), "peer": np.full((2, 3), np.nan)}, "lfc: peer: a score is not finite"),
    ],
)
def test_wrong_results_are_told(results, words):
    with pytest.raises(measure.WrongError, match=words):
        measure._compare("lfc", results)


def test_our_results_are_the_same_each_time(monkeypatch):
    numbers = iter(range(9))
    varying = CONTENDERS[OURS]._replace(ready=lambda *how: lambda: np.array([next(numbers)]))
    monkeypatch.setitem(CONTENDERS, OURS, varying)
    with pytest.raises(ValueError, match="scores differ between calls"):
        worker.prepare(varying, "stem", (1, 4), [2, 1])


@pytest.mark.full
def test_a_peer_that_fails_is_named_and_the_others_are_timed(tiny, monkeypatch, capsys, tmp_path):
    """An interpreter without a peer, or a peer that raises, leaves a row without it."""
    monkeypatch.setattr(command, "_versions", lambda names: ({OURS: "1", "no such library": "2"}, {}))
    monkeypatch.setitem(CONTENDERS, "no such library", CONTENDERS[OURS]._replace(files=lambda stem: []))
    main([*COMMAND, "--json", str(tmp_path / "rows.json")])
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert set(row["seconds"]) == {OURS} and "no such library" in row["absent"]
    assert "without no such library: " in capsys.readouterr().out


def test_ratios_are_of_the_fastest_peer():
    def each(s):
        return {"1": {"median": s, "p99": 2 * s, "calls": 1}}

    row = {"case": "net, batch 4", "architecture": "net", "batch": 4, "memory": {}, "absent": {"c": "missing"}}
    row["turns"] = {"all": 4, "disturbed": 3}
    row["seconds"] = {OURS: each(0.004), "a": each(0.016), "b": each(0.008)}
    assert table.ratio(row, 1) == (2.0, "b") and table.milliseconds(row, OURS, 1) == 1.0
    assert table.times([row], 1).splitlines()[-1].split() == "net, batch 4 1.00 2.00 4.00 2.00 2.00".split()
    assert table.notes([row]) == [
        "others used the CPU in most turns of net, batch 4",
        "without c: missing",
    ]


def test_all_models_are_measured():
    assert set(measure.ARCHITECTURES) == set(qa.nn.models.__all__) - {"parameters"}


@pytest.mark.parametrize("architecture", measure.ARCHITECTURES)
def test_the_float_network_has_the_same_shapes(architecture):
    torch = pytest.importorskip("torch")
    from benchmarks.networks import topology

    arguments = {"lfc": TINY["lfc"], "cnv": {}, "xnor_alexnet": SMALL | {"size": 67}, "tinier_yolo": {"size": 64}}
    arguments = arguments.get(architecture, SMALL)
    graph = getattr(qa.nn.models, architecture)(**arguments)
    network = topology.floats(architecture, arguments)
    with torch.inference_mode():
        out = network(torch.rand(image_shape(architecture, arguments)))
    assert tuple(out.shape[1:]) == graph.outputs[0].shape[1:] and bool(torch.isfinite(out).all())
    weights = sum(p.numel() for p in network.parameters())
    state = qa.nn.models.parameters(getattr(qa.nn.models, architecture), **arguments)
    assert weights == sum(a.size for name, a in state.items() if "running" not in name)


def test_times_relative_to_ours():
    rows = [
        {
            "case": "a, batch 2",
            "batch": 2,
            "seconds": {name: {"1": {"median": s, "p99": s}} for name, s in each.items()},
        }
        for each in ({OURS: 0.002, "torch int8": 0.005}, {OURS: 0.004})
    ]
    assert [line.split()[-2:] for line in table.relative(rows, 1).splitlines()[2:]] == [["1.00", "2.50"], ["2", "1.00"]]


def test_both_orders_of_axes_are_timed():
    network = qa.nn.models.cnv()
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
    both = orders.orders(network, x, 0)
    assert both.keys() == {"images", "layers"} and all(min(each.values()) > 0 for each in both.values())
    first, last = (orders._convolutions(network, x, order) for order in orders.ORDERS)
    assert len(first) == sum(node.op == "conv2d" for node in network.nodes) > 5
    for one, other in zip(first, last, strict=True):
        np.testing.assert_array_equal(one().transpose(0, 2, 3, 1), other())
    rows = [{"case": "cnv", "batch": 2, "orders": both}, {"case": "lfc", "batch": 2, "orders": None}]
    assert "images NCHW" in table.orders(rows) and "lfc" not in table.orders(rows) and not table.orders(rows[1:])
