"""Run a proof's cases in worker processes, and survive what kills them: crashes, hangs, the end of the day."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .proof import Proof

MOST_FAILURES = 20  # after which a run stops


@dataclass
class Run:
    """A run of a proof. Its state is saved after each stretch, so that the same command continues it."""

    name: str
    seed: int
    count: int
    first: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        way = os.environ.get("QUANTARRAY_CPU", "best")
        return Path(".long") / f"{self.name}-{way}-{self.seed}-{self.count}.json"

    def resume(self) -> None:
        if self.path.exists():
            state = json.loads(self.path.read_text())
            self.first, self.counts = state["first"], Counter(state["counts"])
            self.failures = {int(number): why for number, why in state["failures"].items()}

    def save(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        state = {"first": self.first, "counts": self.counts, "failures": self.failures}
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps(state))
        beside.replace(self.path)


def supervise(proof: Proof, run: Run, progress: Any) -> None:
    """Run the cases that are left; `progress(run)` is called now and then."""
    while run.first < run.count and len(run.failures) < MOST_FAILURES:
        _stretch(proof, run, min(run.count, run.first + proof.stretch), progress)
        run.save()


def _stretch(proof: Proof, run: Run, last: int, progress: Any) -> None:
    """Run cases run.first .. last in one worker; if it dies or hangs, its current case fails and the stretch ends."""
    command = [sys.executable, "-m", "tests.long.worker", run.name, *map(str, (run.seed, run.first, last))]
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, bufsize=1, env={**os.environ, **proof.environment}
    )
    reports: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(worker.stdout, reports), daemon=True).start()
    at, counted, why = run.first, run.first, "the process died"
    while True:
        try:
            line = reports.get(timeout=proof.seconds)
        except queue.Empty:
            why = f"hung for {proof.seconds:.0f} s"
            break
        if line is None:
            break
        report = json.loads(line)
        at = report.get("begun", at)
        if "failed" in report:
            run.failures[report["failed"]] = report["why"]
            print(f"\ncase {report['failed']} failed: {report['why'].strip().splitlines()[-1]}", file=sys.stderr)
        if "at" in report:
            run.counts.update(report["counts"])
            counted = report["at"]
            progress(run, counted)
        if counted == last or len(run.failures) >= MOST_FAILURES:
            break
    worker.kill() if counted != last else worker.wait()
    code = worker.wait()
    run.first = last if counted == last else at + 1
    if counted != last and at not in run.failures:
        run.failures[at] = f"{why} (exit code {code})"
        run.counts["passed"] += max(0, at - counted)  # begun after the last report, and not failed


def _read(stream: Any, reports: queue.Queue[str | None]) -> None:
    for line in stream:
        reports.put(line)
    reports.put(None)


class Progress:
    """A line on stderr with how many cases have run, and how long the rest takes."""

    def __init__(self, run: Run) -> None:
        self.began, self.start, self.shown = time.monotonic(), run.first, 0.0

    def __call__(self, run: Run, at: int) -> None:
        now = time.monotonic()
        if now - self.shown < 2:
            return
        self.shown = now
        rate = (at - self.start) / max(now - self.began, 1e-9)
        left = (run.count - at) / rate if rate else 0
        state = f"{at:,} of {run.count:,}, {len(run.failures)} failed, {rate:.0f}/s, {left / 60:.0f} min left"
        print(f"\r{run.name}: {state}    ", end="", file=sys.stderr, flush=True)
