"""The benchmark's machinery on tiny cases: right outputs, tables, processes that start and end; nothing is timed."""

import dataclasses
import json
import math
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import fake_cupy
import numba
import numpy as np
import pytest
from paths import PACKAGED

from benchmarks import plane_order
from benchmarks.__main__ import main
from benchmarks.cpu import quiet, rounds, suites, table
from benchmarks.cpu.cases import Bases, Case, Conv, Network, Pack, Product, Search, Unpack
from benchmarks.cpu.contenders import OURS, Entry, attempt, fastest, quantarray, split
from benchmarks.cpu.contenders import numpy as numpy_contender
from benchmarks.cpu.cores import Cores
from benchmarks.cpu.quiet import Quiet
from benchmarks.cpu.worker import Worker, WorkerError, median_seconds
from benchmarks.gpu import checks, clock, contenders, limits
from benchmarks.gpu import command as gpu_command
from benchmarks.gpu.calls import Call

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
    pause = Quiet(60, 0.001)
    pause.wait()
    assert 0 < pause.patience < 60 and (pause.turns, pause.disturbed) == (1, 0)
    pause.patience = 0
    pause.wait()
    assert (pause.turns, pause.disturbed) == (2, 1)
    pause.wait()
    assert (pause.turns, pause.disturbed) == (3, 1)


def test_cores_that_are_worse_than_they_were_are_waited_for(monkeypatch):
    """After good cores come a shared core, then a slow cache line, then cores that are as good as at first."""
    found = iter([(1.0, 1.0), (1.9, 1.0), (1.0, 3.0), (1.1, 1.5), (1.0, 9.0)])
    monkeypatch.setattr(quiet, "ticks", lambda: None)
    monkeypatch.setattr(Cores, "measured", lambda self: next(found))
    pause = Quiet(60, 0.001, Cores())
    pause.wait()
    assert 0 < pause.patience < 60 and (pause.turns, pause.disturbed) == (1, 0)
    pause.patience = 0
    pause.wait()
    assert (pause.turns, pause.disturbed) == (2, 1)


def test_two_threads_are_timed():
    spent, line = Cores().best
    assert 0 < spent < 60 and line > 0


def test_attempt_and_fastest():
    assert attempt(lambda: 1 / 0) == "ZeroDivisionError: division by zero"
    slow, quick = (Entry(lambda n=n: sum(range(n)), np.asarray) for n in (300_000, 10))
    assert fastest([slow, quick, "absent"]) is quick and fastest(["absent"]) == "absent"


def test_the_first_call_of_a_turn_does_not_count():
    naps = iter([0.2, 0, 0])
    assert 0 <= median_seconds(lambda: time.sleep(next(naps)), 0) < 0.1


def test_what_of_a_call_counts():
    assert median_seconds(lambda: 3, 0, lambda found: found / 2) == 1.5


COMMAND = ["cpu", "--suite", "product", "--library", OURS, "--rounds", "1", "--threads", "1", "--patience", "0"]


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(suites.SUITES, "product", [TINY])
    monkeypatch.setattr(rounds.limits, "seconds", lambda case, threads: (1e-6, "products"))
    monkeypatch.setattr(rounds.limits, "products", lambda threads: 1e12)
    out = tmp_path / "x.json"
    picture = tmp_path / "x.png"
    main([*COMMAND, "--json", str(out), "--plot", str(picture)])
    text = capsys.readouterr().out
    assert "product: 1 thread\n" in text and "tiny" in text and "1.00 T/s (1 thread" in text
    (row,) = json.loads(out.read_text())["rows"]
    assert row["case"] == "tiny" and set(row["us"]) == {OURS} and row["limit_us"] == 1.0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_reports_unequal_outputs(capsys, monkeypatch):
    monkeypatch.setitem(suites.SUITES, "product", [TINY])
    monkeypatch.setattr(Product, "expected", lambda self: np.zeros((3, 5)))
    monkeypatch.setattr(rounds.limits, "products", lambda threads: 1e12)
    with pytest.raises(SystemExit, match="outputs differ, so nothing is timed: product, tiny: quantarray: 1"):
        main(COMMAND)


def test_unknown_suite(capsys):
    with pytest.raises(SystemExit):
        main(["cpu", "--suite", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


GPU_SMALL = {Conv: {"size": 5, "batch": 2, "channels": 33, "outputs": 3}, Product: {"m": 70, "k": 70, "n": 33}}
GPU_SMALL |= {Pack: {"rows": 3, "length": 70}, Network: {}, Call: {}}
GPU_TIMES = ["gpu", "--part", "times", "--rounds", "1"]


@pytest.fixture
def gpu_suites(monkeypatch):
    """The suites with tiny cases, on a stand-in for a GPU; no time is kept."""
    suites = {
        suite: [
            dataclasses.replace(case, **GPU_SMALL[type(case)])
            for case in cases
            if not isinstance(case, Network) or (case.path.exists() and case.batch == 1 and "yolo" not in case.name)
        ]
        for suite, cases in gpu_command.SUITES.items()
    }
    packaged = Network(name="digits, batch 1", file=str(PACKAGED.with_suffix("")), batch=1)
    suites["network"] = suites["network"] or [packaged]  # in a checkout without trained networks beside it
    monkeypatch.setattr(gpu_command, "SUITES", suites)
    monkeypatch.setattr(limits, "_COPIED", 1 << 10)
    monkeypatch.setattr(clock, "_LEAST", 0)
    return suites


def test_the_gpu_command_compares_and_tabulates(gpu_suites, capsys, tmp_path):
    with fake_cupy.gpu():
        main([*GPU_TIMES, "--json", str(tmp_path / "gpu.json")])
    made = json.loads((tmp_path / "gpu.json").read_text())
    assert made["device"] == "a stand-in" and not made["failed"]
    assert len(made["rows"]) == sum(map(len, gpu_suites.values()))
    for row in made["rows"]:
        assert all(seconds["called"] > 0 and seconds["moved"] > 0 for seconds in row["seconds"].values())
        assert row["seconds"][OURS]["cold"] > 0
        assert row["limit"] > 0 and row["bytes"] > 0
    rows = {row["case"]: row for row in made["rows"]}
    assert "cuDNN fp16" in rows["56x56x64, batch 1"]["absent"] and "cuBLAS int8" in rows["1024^3"]["absent"]
    if find_spec("numba_cuda"):
        graphs = {name for name, row in rows.items() if "warm" in row["seconds"][OURS]}
        assert set(rows) - graphs == {"float32 to 1 bit, 1 GB", "quantize, 64x1024"}
    packing = rows["float32 to 1 bit, 1 GB"]["seconds"]
    assert {"device copy", f"{OURS}, the kernel"} < set(packing)
    text = capsys.readouterr().out
    assert "share" in text and re.search(r"called\W+cold\W+moved\b", text) and re.search(r"[0-9] \w?s moved[,;]", text)


def test_moved_calls_bring_inputs_and_results(gpu_suites):
    """A "moved" call copies inputs from the host and results back each time; a plain call does not."""
    with fake_cupy.gpu():
        for suite in gpu_command.SUITES.values():
            for title, make in contenders.makers(suite[0], fake_cupy).items():
                if not contenders.is_ours(title) or title.split()[-1] in contenders.isa.UNITS:
                    continue
                one = make()
                one.call()
                one.moved()
                fake_cupy.waits.clear()
                one.call()
                alone = list(fake_cupy.waits)
                fake_cupy.waits.clear()
                one.moved()
                assert fake_cupy.waits.count("an array is moved to the GPU") == 1, title
                flags = alone.count("an array is moved to the CPU")  # for NaN, which quantize waits for
                assert fake_cupy.waits.count("an array is moved to the CPU") == 1 + flags, title
                assert flags <= 1, title
                assert not any("moved to the GPU" in why for why in alone), title


@pytest.mark.parametrize("case", [
    Conv(name="c", batch=2, size=6, channels=64, outputs=8), Product(name="p", m=70, k=64, n=40),
], ids=lambda case: case.name)  # fmt: skip
def test_what_peers_on_a_gpu_make(case, monkeypatch):
    """Results of the peers' code, run with PyTorch's functions on the CPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    for title, make in contenders.PEERS[type(case)].items():
        entry = make(case)
        for output in entry.call(), entry.moved():
            assert rounds.unequal(contenders.expected(case), entry.read(output), entry.tolerance) is None, title


def test_the_gpu_command_times_no_wrong_output_of_moved_calls(gpu_suites, monkeypatch):
    monkeypatch.setattr(gpu_command, "SUITES", {"product": [dataclasses.replace(TINY)]})
    monkeypatch.setattr(contenders.Entry, "moved", property(lambda entry: lambda: entry.call() + 1))
    with fake_cupy.gpu(), pytest.raises(SystemExit, match=r"gpu: tiny: quantarray is wrong: 15 of 15 elements differ"):
        main(GPU_TIMES)


def test_the_gpu_command_goes_on_where_it_was_ended(gpu_suites, capsys, tmp_path):
    out = str(tmp_path / "gpu.json")
    with fake_cupy.gpu():
        main([*GPU_TIMES, "--suite", "pack", "--json", out])
        capsys.readouterr()
        main([*GPU_TIMES, "--suite", "pack", "--suite", "product", "--json", out])
        lines = capsys.readouterr().out.splitlines()
        assert not any(line.startswith("float32 to 1 bit, 1 GB: ") for line in lines)
        assert any(line.startswith("8192^3: ") for line in lines)
        assert [row["case"] for row in json.loads(Path(out).read_text())["rows"]][:2] == [
            "float32 to 1 bit, 1 GB", "8192^3",
        ]  # fmt: skip
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fake_cupy, "__version__", "15")
            with pytest.raises(SystemExit, match=r"gpu: .*gpu\.json is of another cupy; name another file"):
                main([*GPU_TIMES, "--json", out])


def test_the_gpu_command_begins_no_case_after_its_budget(gpu_suites, monkeypatch, capsys, tmp_path):
    now = iter(range(0, 10**6, 100))
    monkeypatch.setattr(gpu_command.time, "monotonic", lambda: next(now))
    with fake_cupy.gpu():
        main([*GPU_TIMES, "--suite", "product", "--budget", "250", "--json", str(tmp_path / "gpu.json")])
    assert len(json.loads((tmp_path / "gpu.json").read_text())["rows"]) == 2
    assert "not run: 1024^3, 2048^3, 16384^3, 1x4096x4096" in capsys.readouterr().out


def test_the_gpu_command_times_no_wrong_output(gpu_suites, monkeypatch):
    monkeypatch.setattr(gpu_command, "SUITES", {"product": [dataclasses.replace(TINY)]})
    monkeypatch.setattr(contenders, "expected", lambda case: case.expected() + 1)
    with fake_cupy.gpu(), pytest.raises(SystemExit, match=r"gpu: tiny: quantarray is wrong: 15 of 15 elements differ"):
        main(GPU_TIMES)


def test_the_gpu_command_stops_when_nothing_runs_any_more(gpu_suites, monkeypatch, tmp_path):
    def lost(*args):
        raise RuntimeError("an illegal memory access was encountered")

    def breaks(case):
        monkeypatch.setattr(fake_cupy.cuda.runtime, "deviceSynchronize", lost)
        return lost()

    monkeypatch.setattr(contenders, "PEERS", contenders.PEERS | {Conv: {"cuDNN fp16": breaks}})
    with fake_cupy.gpu(), pytest.raises(SystemExit, match=r"cuDNN fp16: .*illegal memory access.* run the others with"):
        main([*GPU_TIMES, "--suite", "product", "--suite", "conv", "--json", str(tmp_path / "gpu.json")])
    made = json.loads((tmp_path / "gpu.json").read_text())
    assert len(made["rows"]) == len(gpu_suites["product"]) and "illegal memory" in made["failed"][0]


def test_the_gpu_command_runs_tests_and_says_what_failed(monkeypatch, capsys):
    """Only files with tests for a GPU are run; a run that takes too long is ended."""
    assert {"tests/backends/test_device.py", "tests/nn/test_device_network.py", "tests/arrays/test_exchange.py"} <= set(
        checks.files()
    )
    assert not any("test_cuda_" in name for name in checks.files())
    for code, seconds, message in (
        ("raise SystemExit(3)", 60, "failed with exit code 3"),
        ("import time; time.sleep(60)", 0.3, "was ended after 0 s; --budget"),
    ):
        monkeypatch.setattr(checks, "_pytest", lambda only, code=code: (sys.executable, "-c", code))
        with fake_cupy.gpu(), pytest.raises(SystemExit, match=message):
            monkeypatch.setattr(gpu_command.time, "monotonic", iter([0, 60 - seconds]).__next__)
            main(["gpu", "--part", "tests", "--budget", "60"])
    monkeypatch.setattr(checks, "_pytest", lambda only: ("-c", "exit 1"))
    monkeypatch.setattr(checks.shutil, "which", lambda name: "there")
    monkeypatch.setattr(checks, "SANITIZER", ("sh", "-c", "echo 'Device not supported'; exit 1"))
    assert checks.sanitized("", 60) == []
    assert "it does not support this device" in capsys.readouterr().out


def test_the_gpu_command_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit, match=r"gpu: nothing was tested or measured: .*CuPy"):
        main(["gpu"])


def test_plane_order_measures_both_layouts():
    assert all(us > 0 for us in plane_order.measure(8, 64, 2, 1))
