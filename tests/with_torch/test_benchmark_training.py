"""The benchmark of training on tiny cases: rows, text, and the search of a largest batch; nothing is timed."""

import json
import sys

import pytest
from torch_models import torchvision

from benchmarks.__main__ import main
from benchmarks.training import command, worker

JOB = {"batch": 2, "size": 32, "steps": 1, "threads": 1, "device": "cpu", "bfloat16": False}


@pytest.fixture
def inside(monkeypatch):
    """Measure in this process: a process of its own takes seconds."""
    torchvision()

    def measured(job):
        work = worker.gradients if job["mode"] == "gradients" else worker.steps
        return json.loads(json.dumps(work(job)))

    monkeypatch.setattr(command, "measured", measured)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_table_of_steps(inside, tmp_path, capsys):
    out = tmp_path / "rows.json"
    settings = "--model squeezenet1_0 --batch 4 --size 64 --steps 1 --threads 1 --mode exact --mode L2".split()
    main(["training", *settings, "--json", str(out)])
    exact, packed = json.loads(out.read_text())["rows"]
    assert exact["loss"] == packed["loss"] and "saved" not in exact and packed["saved"][0] > 4 * packed["saved"][1]
    assert all(row["seconds"] > 0 and row["peak"] >= row["held"] for row in (exact, packed))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("squeezenet1_0  exact     batch 4: ") and "of exact for each input), held" in lines[1]


def test_gradients_of_networks(inside, capsys):
    main("training --gradients --model squeezenet1_0 --batch 2 --size 64".split())
    assert "8 bits: loss equal, gradients off by 0.0" in capsys.readouterr().out


def test_modes_are_contexts():
    for mode in command.MODES[1:]:
        assert worker.context_of(mode, None).bits == {"L0": None, "L1": 4, "L2": 4, "L3": 2, "L4": 2}.get(
            mode, int(mode[0]) if mode[0].isdigit() else None
        )


@pytest.mark.parametrize(("fixed", "each"), [(100, 10), (0, 1), (7, 450), (400, 0.5)])
def test_the_largest_batch(fixed, each):
    """Of a peak that is a line, the batch is right to a 32nd, and none is tried that needs thrice the bound."""
    bound, tried = 1000, []

    def measure(job):
        tried.append(job["batch"])
        return {"peak": int(fixed + each * job["batch"]), "seconds": 1.0}

    row = command._largest({**JOB, "batch": 3}, bound, measure)
    right = int((bound - fixed) / each)
    assert row["peak"] <= bound and right - max(1, right // 16) <= row["batch"] <= right
    assert max(map(lambda n: fixed + each * n, tried)) <= 3 * bound and len(tried) <= command.MOST_TRIES


def test_a_largest_batch_that_is_none():
    assert "failed" in command._largest({**JOB, "batch": 4}, 10, lambda job: {"peak": 20})
    failing = command._largest({**JOB, "batch": 4}, 10, lambda job: {"failed": "no memory"})
    assert failing == {"failed": "a batch of 1 is above the bound", "bound": 10}
