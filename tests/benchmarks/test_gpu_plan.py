"""The plan for the first minutes on a GPU: it runs to its end without one, and whatever its steps do."""

import json
import subprocess
import sys
from importlib.resources import files
from types import SimpleNamespace

import fake_cupy
import pytest
from gpus import PRODUCTS

import quantarray as qa
from benchmarks.gpu import plan, profile, steps
from benchmarks.gpu.plan import ENDED, FAILED, NO_DEVICE, SKIPPED, STEPS, Step
from quantarray.cli.output import count

PARTS = "ABCDE"
DIGITS = files("quantarray") / "data" / "digits.npz"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plan.json"


@pytest.fixture
def start_with(monkeypatch):
    """Return a function that replaces how the plan starts a process, and only the plan: other threads start some."""

    def replace(start):
        monkeypatch.setattr(plan, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))

    return replace


@pytest.mark.full
def test_every_step_says_that_there_is_no_device(path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "gpu", "--plan", "--json", str(path)],
        cwd=plan.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert [step["step"] for step in record["steps"]] == [step.name for step in STEPS]
    assert {step["status"] for step in record["steps"]} == {NO_DEVICE} and record["fell_back"] == []
    assert sum(step["took"] for step in record["steps"]) > 0 and "fell back: nothing" in done.stdout
    missing = record["steps"][0]["missing"]
    assert all(f"without {name}: no {what}" in done.stdout for name, what in missing.items())


def test_every_step_may_fail(path, monkeypatch, capsys):
    """After a failed step the next one begins; what later steps do without is set and printed."""
    monkeypatch.setenv(steps.FAIL, "all")
    record = plan.run(path, 600)
    assert [step["status"] for step in record["steps"]] == [FAILED] * len(STEPS)
    assert {step["error"] for step in record["steps"]} == {"a fake failure"}
    assert len(record["fell_back"]) == sum(step.without is not None for step in STEPS) == 2
    assert "tests_of_bmma failed: QUANTARRAY_CUDA=popc from here on" in capsys.readouterr().out


def test_what_is_known_is_kept_after_each_step(path, start_with):
    """A step that never ends is ended with what it has started; one that kills its process has failed."""
    seen = []

    def program(code):
        return [sys.executable, "-c", code]

    codes = {"hangs": "import time; time.sleep(60)", "dies": "import os; os.abort()", "last": "print('done')"}

    def start(command, **how):
        seen.append(len(json.loads(path.read_text())["steps"]) if path.exists() else 0)
        return subprocess.Popen(program(codes[command[3]]), **how)

    start_with(start)
    record = plan.run(path, 60, (Step("hangs", "A", 1), Step("dies", "A", 30), Step("last", "B", 30)))
    assert [step["status"] for step in record["steps"]] == [ENDED, FAILED, plan.OK] and seen == [0, 1, 2]
    assert json.loads(path.read_text()) == record


def test_no_step_begins_when_time_is_over(path):
    record = plan.run(path, 0, (Step("versions", "A", 30),))
    assert [step["status"] for step in record["steps"]] == [SKIPPED]


def test_later_steps_see_what_failed_before(path, monkeypatch, start_with):
    seen = []

    def start(command, env, **how):
        seen.append(env.get("QUANTARRAY_CUDA"))
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], env=env, **how)

    monkeypatch.delenv("QUANTARRAY_CUDA", raising=False)
    start_with(start)
    chosen = [step for step in STEPS if step.name in ("tests_of_bmma", "tables")]
    record = plan.run(path, 60, chosen)
    assert seen == [None, "popc"] and record["fell_back"][0].startswith("tests_of_bmma failed")


def test_steps_are_functions_in_the_order_of_their_parts():
    assert all(callable(getattr(steps, step.name)) for step in STEPS)
    assert "".join(dict.fromkeys(step.part for step in STEPS)) == PARTS
    assert sum(step.seconds for step in STEPS) < 45 * 60 and count("1800") == 1800


def test_a_step_without_what_it_needs_is_skipped(monkeypatch):
    monkeypatch.setattr(steps, "has_device", lambda: True)
    monkeypatch.setattr(steps, "find_spec", lambda name: None)
    monkeypatch.setattr(steps.shutil, "which", lambda name: None)
    for name in ("tests_of_bmma", "first_product", "sweep_of_tiles", "counters", "memcheck"):
        report = steps._attempt(getattr(steps, name), 10)
        assert report["status"] == SKIPPED and "needs cupy" in report["why"]
    assert {"cupy", "pytest", "ncu"} <= set(steps._attempt(steps.versions, 10)["missing"])


def test_an_error_of_a_step_is_kept(monkeypatch, tmp_path):
    def broken(seconds):
        raise ValueError("wrong sums")

    monkeypatch.setattr(steps, "has_device", lambda: True)
    monkeypatch.setattr(steps, "layouts", broken)
    out = tmp_path / "out.json"
    assert steps.main("layouts", out, "10") == 1
    assert json.loads(out.read_text()) == {"status": FAILED, "error": "ValueError: wrong sums"}


def test_the_sanitizer_sees_large_tiles(monkeypatch):
    """The selected tests have a product whose grid fills a GPU in the largest tile of `bmma` and of `wgmma`."""
    from benchmarks.gpu import checks
    from quantarray.cuda.popcount.tiles import Shape
    from quantarray.cuda.tensor_cores import bmma, wgmma

    monkeypatch.delenv("QUANTARRAY_CUDA_TILE", raising=False)
    names = [name for name in PRODUCTS if any(word in name for word in checks.SANITIZED.split(" or "))]
    assert names
    (m, length), (n, _) = PRODUCTS["product of many_blocks"][:2]
    shape = Shape(m, m, -(-length // 64), 1, -(-length // 64), n, -(-n // 32), 1)
    (tile, _), (of_warpgroups, _) = (module.tile_for(shape, 64) for module in (bmma, wgmma))
    assert (tile.pixels, tile.all_blocks) == (128, 4) and of_warpgroups == wgmma.TILES[0]


def test_a_profile_shows_the_layers_of_a_network(monkeypatch):
    seen = []
    runtime = fake_cupy.cuda.runtime
    monkeypatch.setattr(fake_cupy.cuda, "nvtx", SimpleNamespace(RangePush=seen.append, RangePop=lambda: None), False)
    monkeypatch.setattr(runtime, "profilerStart", lambda: seen.append("start"), raising=False)
    monkeypatch.setattr(runtime, "profilerStop", lambda: seen.append("stop"), raising=False)
    with fake_cupy.gpu():
        call = profile.call_of("network", fake_cupy)
        with profile.profiled(fake_cupy):
            call()
    types = [type(layer).__name__ for layer in qa.nn.load_network(DIGITS).layers]
    assert seen == ["start", *(f"{i} {name}" for i, name in enumerate(types)), "stop"] and len(types) > 2
