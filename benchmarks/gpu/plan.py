"""The first minutes on a GPU, step by step, so that none of them is lost: `python -m benchmarks gpu --plan`.

Each step runs in a process of its own with a limit. What it says is written to the JSON file before the next one
begins; a step that fails, hangs or kills its process costs its own results only. Checks run side by side: on the first
GPU they took 136 s so, and would have taken 540 s one by one. `benchmarks/gpu/steps.py` has them.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OK, FAILED, ENDED, NO_DEVICE, SKIPPED = "ok", "failed", "ended", "no device", "skipped"
_TAIL = 4000  # characters of a step's output that are kept


class Step(NamedTuple):
    """A function of `steps`, by name; `without` is the variable that is set for later steps where this one fails."""

    name: str
    part: str
    seconds: int
    without: tuple[str, str] | None = None
    times: bool = True  # it measures the GPU, which then has nothing else to do


STEPS = (
    Step("versions", "A", 60),
    Step("one_kernel", "A", 60),
    Step("numba_arrays", "A", 90, times=False),
    Step("tests_of_popc", "A", 90, times=False),
    Step("tests_of_bmma", "A", 120, ("QUANTARRAY_CUDA", "popc"), times=False),
    Step("tests_of_wgmma", "A", 120, ("QUANTARRAY_PLAN_WGMMA", "no"), times=False),
    Step("tests_of_arrays", "A", 180, times=False),
    Step("memcheck", "A", 180, times=False),
    Step("racecheck", "A", 180, times=False),
    Step("first_product", "B", 120),
    Step("first_convolution", "B", 120),
    Step("first_packing", "B", 90),
    Step("counters", "C", 240),
    Step("sweep_of_tiles", "D", 180),
    Step("sweep_of_stages", "D", 120),
    Step("layouts", "D", 60),
    Step("tables", "E", 420),
)


def run(path, seconds, steps=STEPS):
    """Run the steps within `seconds` and return the record, which is written to the file `path` after each step."""
    end, environment = time.monotonic() + seconds, dict(os.environ)
    record = {"date": str(date.today()), "seconds": seconds, "steps": [], "fell_back": []}
    for together in _together(steps):
        with ThreadPoolExecutor(len(together)) as threads:
            outcomes = threads.map(lambda step: _within(end, step, dict(environment)), together)
            for step, outcome in zip(together, outcomes, strict=True):
                _note(record, step, outcome, environment)
                Path(path).write_text(json.dumps(record, indent=1))
    print("fell back: " + ("; ".join(record["fell_back"]) or "nothing"))
    return record


def _together(steps):
    """List the steps that run side by side: those that measure nothing and mostly wait for compilers."""
    lists = []
    for step in steps:
        if step.times or not lists or lists[-1][-1].times:
            lists.append([])
        lists[-1].append(step)
    return lists


def _within(end, step, environment):
    """Run a step if there is time left, and return its outcome."""
    left = end - time.monotonic()
    if left < 1:
        return {"status": SKIPPED, "why": "no time was left"}
    return _run(step, min(step.seconds, left), environment)


def _note(record, step, outcome, environment):
    """Add an outcome to the record, and to the environment what later steps do without."""
    record["steps"].append({"step": step.name, "part": step.part, **outcome})
    if outcome["status"] in (FAILED, ENDED) and step.without:
        name, value = step.without
        environment[name] = value
        record["fell_back"].append(f"{step.name} {outcome['status']}: {name}={value} from here on")
    print(_line(record["steps"][-1]), flush=True)
    for name, what in outcome.get("missing", {}).items():
        print(f"  without {name}: no {what}", flush=True)


def _run(step, seconds, environment):
    """Run a step in a process and return its report, with its status and how long it took."""
    with TemporaryDirectory() as folder:
        out, begin = Path(folder) / "out.json", time.monotonic()
        command = [sys.executable, "-m", "benchmarks.gpu.steps", step.name, str(out), f"{seconds:.0f}"]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                text, status = process.communicate(timeout=seconds)[0], None
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)  # with what the step itself has started
                text, status = process.communicate()[0], ENDED
        report = json.loads(out.read_text()) if out.exists() else {}
    if status is None:
        status = report.get("status", OK) if process.returncode == 0 else FAILED
    outcome = {**report, "status": status, "took": round(time.monotonic() - begin, 2)}
    return outcome | ({"output": text[-_TAIL:]} if status in (FAILED, ENDED) else {})


def _line(step):
    lines = step.get("output", "").strip().splitlines()
    why = step.get("why") or step.get("error") or (lines[-1] if lines else "")
    return f"{step['part']} {step['step']}: {step['status']}" + (f", {why}" if why else "")
