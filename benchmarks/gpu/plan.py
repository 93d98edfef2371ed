"""The first minutes on a GPU, step by step, so that none of them is lost: `python -m benchmarks gpu --plan`.

Each step runs in a process of its own with a limit. What it says is written to the JSON file before the next one
begins; a step that fails, hangs or kills its process costs its own results only. `benchmarks/gpu/steps.py` has them.
"""

import json
import os
import subprocess
import sys
import time
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


STEPS = (
    Step("versions", "A", 60),
    Step("one_kernel", "A", 60),
    Step("numba_arrays", "A", 90),
    Step("tests_of_popc", "A", 90),
    Step("tests_of_bmma", "A", 90, ("QUANTARRAY_CUDA", "popc")),
    Step("tests_of_wgmma", "A", 90, ("QUANTARRAY_PLAN_WGMMA", "no")),
    Step("tests_of_arrays", "A", 120),
    Step("first_product", "B", 120),
    Step("first_convolution", "B", 120),
    Step("first_packing", "B", 90),
    Step("counters", "C", 240),
    Step("sweep_of_tiles", "D", 180),
    Step("sweep_of_stages", "D", 120),
    Step("layouts", "D", 60),
    Step("memcheck", "E", 150),
    Step("racecheck", "E", 150),
    Step("tables", "F", 420),
)


def run(path, seconds, steps=STEPS):
    """Runs the steps within so many seconds; gives the record, which lies in the file after each of them."""
    end, environment = time.monotonic() + seconds, dict(os.environ)
    record = {"date": str(date.today()), "seconds": seconds, "steps": [], "fell_back": []}
    for step in steps:
        left = end - time.monotonic()
        if left < 1:
            found = {"status": SKIPPED, "why": "no time was left"}
        else:
            found = _run(step, min(step.seconds, left), environment)
        record["steps"].append({"step": step.name, "part": step.part, **found})
        if found["status"] in (FAILED, ENDED) and step.without:
            name, value = step.without
            environment[name] = value
            record["fell_back"].append(f"{step.name} {found['status']}: {name}={value} from here on")
        Path(path).write_text(json.dumps(record, indent=1))
        print(_line(record["steps"][-1]), flush=True)
        for name, what in found.get("missing", {}).items():
            print(f"  without {name}: no {what}", flush=True)
    print("fell back: " + ("; ".join(record["fell_back"]) or "nothing"))
    return record


def _run(step, seconds, environment):
    """What a step says of itself, or what became of its process."""
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
        found = json.loads(out.read_text()) if out.exists() else {}
    if status is None:
        status = found.get("status", OK) if process.returncode == 0 else FAILED
    made = {**found, "status": status, "took": round(time.monotonic() - begin, 2)}
    return made | ({"output": text[-_TAIL:]} if status in (FAILED, ENDED) else {})


def _line(step):
    lines = step.get("output", "").strip().splitlines()
    why = step.get("why") or step.get("error") or (lines[-1] if lines else "")
    return f"{step['part']} {step['step']}: {step['status']}" + (f", {why}" if why else "")
