"""Run a proof: python -m tests.long NAME [--count N] [--seed S] [--case K] [--fresh] [--json]."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time

from .proof import generator
from .supervise import Progress, Run, supervise

NAMES = (
    "products", "calls", "files", "forks", "threads", "networks", "plans", "leaks", "graphs", "modules",
    "unlisted_modules", "gradients", "gguf",
)  # fmt: skip


def main() -> int:
    """0 where every case passed; 1 where one did not, with the command that repeats it."""
    parser = argparse.ArgumentParser(prog="python -m tests.long", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--count", type=int, help="cases; as many as the whole proof has, unless told")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this one case here and now")
    parser.add_argument("--fresh", action="store_true", help="from the first case on, not from where it stopped")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    proof = importlib.import_module(f"tests.long.{options.name}").PROOF
    if options.case is not None:
        if missing := {k: v for k, v in proof.environment.items() if os.environ.get(k) != v}:
            os.execve(sys.executable, [sys.executable, "-m", "tests.long", *sys.argv[1:]], {**os.environ, **missing})
        proof.prepare()
        print(proof.run(generator(options.seed, options.case)) or "passed")
        return 0
    run = Run(options.name, options.seed, proof.count if options.count is None else options.count)
    if not options.fresh:
        run.resume()
    began = time.monotonic()
    supervise(proof, run, Progress(run))
    return report(run, time.monotonic() - began, proof.verdict(dict(run.counts)), options.json)


def report(run: Run, seconds: float, verdict: str | None, as_json: bool) -> int:
    """Print what was counted, and for each failure the command that repeats it."""
    way = os.environ.get("QUANTARRAY_CPU")
    prefix = f"QUANTARRAY_CPU={way} " if way else ""
    repeat = {n: f"{prefix}python -m tests.long {run.name} --seed {run.seed} --case {n}" for n in run.failures}
    passed = not run.failures and verdict is None and run.first == run.count
    if as_json:
        state = {"name": run.name, "way": way, "seed": run.seed, "count": run.count, "counts": dict(run.counts)}
        failures = [{"case": n, "why": why, "repeat": repeat[n]} for n, why in run.failures.items()]
        print(json.dumps({**state, "seconds": round(seconds, 1), "failures": failures, "verdict": verdict}))
        return 0 if passed else 1
    counted = ", ".join(f"{n:,} {kind}" for kind, n in sorted(run.counts.items()))
    print(f"\n{prefix}{run.name}: seed {run.seed}, {run.first:,} of {run.count:,} cases in {seconds:.0f} s: {counted}")
    for number, why in sorted(run.failures.items()):
        print(f"\ncase {number} failed; repeat it with\n    {repeat[number]}\n{why}")
    if verdict:
        print(f"\nnot passed: {verdict}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
