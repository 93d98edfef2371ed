"""The benchmark's machinery on tiny cases: right outputs, tables, processes that start and end; nothing is timed."""

import dataclasses
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import fake_cupy
import numba
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.__main__ import main
from benchmarks.cpu import quiet, rounds, suites, table
from benchmarks.cpu.cases import Bases, Case, Conv, Network, Pack, Product, Search, Unpack
from benchmarks.cpu.contenders import OURS, Entry, attempt, fastest, quantarray, split
from benchmarks.cpu.contenders import numpy as numpy_contender
from benchmarks.cpu.quiet import Quiet
from benchmarks.cpu.worker import Worker, WorkerError, median_seconds
from benchmarks.gpu import clock, contenders, limits
from benchmarks.gpu import command as gpu_command

SMALL = {Conv: {"size": 9, "batch": 2}, Product: {"m": 5, "k": 70, "n": 33}, Search: {"rows": 500}}
SMALL |= {Pack: {"rows": 3, "length": 70}, Unpack: {"rows": 3, "length": 70}, Bases: {}, Network: {}}
CASES = [
    pytest.param(dataclasses.replace(case, **SMALL[type(case)]), id=f"{suite}: {case.name}")
    for suite, cases in suites.SUITES.items()
    for case in cases
    if suite not in ("sizes", "threads") and not (type(case) is Network and case.file.startswith("tinier"))
]
TINY = Product(name="tiny", m=3, k=70, n=5)


@pytest.fixture(autouse=True)
def threads():
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_expected_outputs_are_ours(case):
    entries, absent = split(quantarray.entries(case, 1))
    if absent:
        pytest.skip(absent[OURS])
    entry = entries[OURS]
    assert rounds.unequal(case.expected(), entry.read(entry.call()), entry.tolerance) is None
    assert case.products >= 0 and case.nbytes > 0


@pytest.mark.parametrize(
    "case", [case for case in CASES if isinstance(case.values[0], Pack | Unpack | Search | Product)]
)
def test_numpy_agrees(case):
    entries, _ = split(numpy_contender.entries(case, 1))
    for entry in entries.values():
        assert rounds.unequal(case.expected(), entry.read(entry.call()), entry.tolerance) is None


def test_convolution_of_ones():
    case = Conv(name="x", batch=1, size=3, channels=64, outputs=1, out="int32")
    ones = {"x": np.ones((1, 3, 3, 64), np.int8), "w": np.ones((1, 3, 3, 64), np.int8)}
    object.__setattr__(case, "inputs", lambda: ones)
    assert case.expected()[0, :, :, 0].tolist() == [[256, 384, 256], [384, 576, 384], [256, 384, 256]]
    assert case.products == 9 * 9 * 64 and case.nbytes == (9 * 64 + 9 * 64) // 8 + 9 * 4


def test_inputs_are_the_same_each_time():
    again = dataclasses.replace(TINY)
    first = {name: a.copy() for name, a in TINY.inputs().items()}
    Product.inputs.cache_clear()
    assert all(np.array_equal(first[name], a) for name, a in again.inputs().items())


def test_names_are_unique():
    for cases in suites.SUITES.values():
        assert len({case.name for case in cases}) == len(cases)
        assert all(isinstance(case, Case) for case in cases)


def fake(outputs, absent=None):
    """A worker that answers at once; a call takes as many seconds as its output's first element says."""
    return SimpleNamespace(
        prepare=lambda case, threads: (outputs, absent or {}),
        time=lambda title, seconds: float(np.ravel(outputs[title][0])[0]) if outputs else math.nan,
    )


def measured(*workers, case=TINY):
    return rounds.measure("suite", case, workers, 2, 3, Quiet(0, 0), turn=0, limit=False)


def known(right):
    case = dataclasses.replace(TINY)
    object.__setattr__(case, "expected", lambda: np.asarray(right))
    return case


def test_unequal_output_is_named():
    right = np.array([1, 2, 3])
    workers = fake({OURS: (right, 0)}), fake({"bad": (np.array([1, 2, 4]), 0), "flat": (np.ones(2), 0)})
    with pytest.raises(rounds.UnequalError) as error:
        measured(*workers, case=known(right))
    text = "suite, tiny: bad: 1 of 3 elements differ; flat: shape (2,), expected (3,)"
    assert str(error.value) == text


def test_tolerance_is_relative_to_the_largest():
    expected = np.array([0.0, 100.0])
    assert rounds.unequal(expected, np.array([0.9, 100.0]), 0.01) is None
    assert rounds.unequal(expected, np.array([1.1, 100.0]), 0.01) == "an error of 1.1, 1 is allowed"
    assert "nan" in rounds.unequal(expected, np.array([np.nan, 100.0]), 0.01)


def test_row_and_table():
    right = np.array([2.0])
    row = measured(
        fake({OURS: (right, 0)}),
        fake({"a": (np.array([2.5]), 1)}, {"b": "not installed"}),
        fake({"c": (np.array([3.0]), 1)}),
        case=known(right),
    )
    assert row.seconds == {OURS: 2.0, "a": 2.5, "c": 3.0}
    assert row.best_peer == (2.5, "a") and row.ratio == 1.25 and row.share is None
    row.limit = 0.5
    other = rounds.Row("other", "suite", 2, {"c": 1e-3}, None, "", {})
    assert table.suite_table([row, other]).splitlines() == [
        "suite: 2 threads",
        "  case   ours      a     c  ratio   limit  share",
        "  -----  ----  -----  ----  -----  ------  -----",
        "  tiny    2 s  2.5 s   3 s   1.25  500 ms    25%",
        "  other               1 ms",
        "  without b in tiny: not installed",
    ]
    assert json.loads(json.dumps(row.record()))["us"] == {OURS: 2e6, "a": 2.5e6, "c": 3e6}


def test_workers_serve_and_end():
    workers, absent = rounds.start_all([OURS, "numpy", "no_such_library"], 1)
    try:
        assert [worker.name for worker in workers] == [OURS, "numpy"] and list(absent) == ["no_such_library"]
        assert absent["no_such_library"].startswith("not installed")
        ours, peer = workers
        outputs, without = peer.prepare(TINY, 1)
        assert np.array_equal(outputs["numpy"][0], TINY.expected()) and not without
        assert peer.time("numpy", 0.0) > 0
        assert peer.prepare(Conv(name="x", batch=1, size=3, channels=64, outputs=4), 1) == ({}, {})
        with pytest.raises(WorkerError, match="numpy: nothing: KeyError"):
            peer.time("nothing", 0.0)
        assert peer.prepare("no case", 1) == ({}, {})
        ours._process.kill()
        _, without = ours.prepare(TINY, 1)
        assert without == {OURS: "the process ended with exit code -9"}
    finally:
        for worker in workers:
            worker.stop()
    assert not any(worker.alive for worker in workers)


def test_a_library_that_fails_says_why():
    class Failing(Worker):
        def _ask(self, seconds, *message):
            return "error", "ValueError: no such dtype\nTraceback"

    worker = object.__new__(Failing)
    worker.name = "x"
    assert worker.prepare(TINY, 1) == ({}, {"x": "ValueError: no such dtype"})
    assert worker.start() == "ValueError: no such dtype"


def test_a_busy_machine_is_waited_for_and_told(monkeypatch):
    spent = iter([(0, 0), (9, 10), (9, 10), (9, 20), (0, 0), (9, 10), None, None])
    monkeypatch.setattr(quiet, "ticks", lambda: next(spent))
    pause = Quiet(0.002, 0.001)
    pause.wait()
    assert pause.patience == 0.001 and (pause.turns, pause.disturbed) == (1, 0)
    pause.patience = 0
    pause.wait()
    assert (pause.turns, pause.disturbed) == (2, 1)
    pause.wait()
    assert (pause.turns, pause.disturbed) == (3, 1)


def test_attempt_and_fastest():
    assert attempt(lambda: 1 / 0) == "ZeroDivisionError: division by zero"
    slow, quick = (Entry(lambda n=n: sum(range(n)), np.asarray) for n in (300_000, 10))
    assert fastest([slow, quick, "absent"]) is quick and fastest(["absent"]) == "absent"
    assert median_seconds(lambda: None, 0) >= 0


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(suites.SUITES, "product", [TINY])
    monkeypatch.setattr(rounds.limits, "seconds", lambda case, threads: (1e-6, "products"))
    monkeypatch.setattr(rounds.limits, "products", lambda threads: 1e12)
    out = tmp_path / "x.json"
    picture = tmp_path / "x.png"
    command = ["cpu", "--suite", "product", "--library", OURS, "--rounds", "1", "--threads", "1"]
    main([*command, "--json", str(out), "--plot", str(picture)])
    text = capsys.readouterr().out
    assert "product: 1 thread\n" in text and "tiny" in text and "1.00 T/s (1 thread)" in text
    (row,) = json.loads(out.read_text())["rows"]
    assert row["case"] == "tiny" and set(row["us"]) == {OURS} and row["limit_us"] == 1.0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_reports_unequal_outputs(capsys, monkeypatch):
    monkeypatch.setitem(suites.SUITES, "product", [TINY])
    monkeypatch.setattr(Product, "expected", lambda self: np.zeros((3, 5)))
    monkeypatch.setattr(rounds.limits, "products", lambda threads: 1e12)
    with pytest.raises(SystemExit, match="outputs differ, so nothing is timed: product, tiny: quantarray: 1"):
        main(["cpu", "--suite", "product", "--library", OURS, "--rounds", "1", "--threads", "1"])


def test_unknown_suite(capsys):
    with pytest.raises(SystemExit):
        main(["cpu", "--suite", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


GPU_SMALL = {Conv: {"size": 5, "batch": 2, "channels": 33, "outputs": 3}, Product: {"m": 70, "k": 70, "n": 33}}
GPU_SMALL |= {Pack: {"rows": 3, "length": 70}, Network: {}}


def test_the_gpu_command_compares_and_tabulates(monkeypatch, capsys, tmp_path):
    """On a stand-in for a GPU; no figure of it is kept."""
    cases = [case for case in gpu_command.CASES if not isinstance(case, Network) or case.path.exists()]
    small = [dataclasses.replace(case, **GPU_SMALL[type(case)]) for case in cases]
    monkeypatch.setattr(gpu_command, "CASES", small)
    monkeypatch.setattr(limits, "_COPIED", 1 << 10)
    monkeypatch.setattr(clock, "_LEAST", 0)
    with fake_cupy.gpu():
        main(["gpu", "--no-tests", "--rounds", "1", "--json", str(tmp_path / "gpu.json")])
    made = json.loads((tmp_path / "gpu.json").read_text())
    assert made["device"] == "a stand-in" and not made["failed"] and len(made["rows"]) == len(small)
    for row in made["rows"]:
        assert row["seconds"][OURS] > 0 and row["limit"] > 0 and row["gigabytes_per_second"] > 0
    assert "cuDNN fp16" in made["rows"][0]["absent"]
    (packing,) = (row for row in made["rows"] if "1 GB" in row["case"])
    assert "device copy" in packing["seconds"]
    assert "share" in capsys.readouterr().out


def test_the_gpu_command_times_no_wrong_output(monkeypatch):
    monkeypatch.setattr(gpu_command, "CASES", [dataclasses.replace(TINY)])
    monkeypatch.setattr(limits, "_COPIED", 1 << 10)
    monkeypatch.setattr(contenders, "expected", lambda case: case.expected() + 1)
    with fake_cupy.gpu(), pytest.raises(SystemExit, match=r"gpu: tiny: quantarray is wrong: 15 of 15 elements differ"):
        main(["gpu", "--no-tests"])


def test_the_gpu_command_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit, match=r"gpu: nothing was tested or measured: .*CuPy"):
        main(["gpu"])
