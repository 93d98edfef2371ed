"""Training on compressed activations and exactly, in fresh processes: time of a step, and memory.

By default five models at small sizes, which takes some minutes on two cores. "held" is what the process or the GPU has
more after the forward pass than before, and "peak" is the most in a step. --memory MB finds the largest batch with such
a peak. --gradients compares the gradients of 18 networks of torchvision instead. Needs PyTorch and torchvision; held
and peak of a CPU need Linux.
"""

import argparse
import json
import os
import subprocess
import sys

from quantarray.cli.output import count
from quantarray.core.machine import cpu_name

MODES = ("exact", "L0", "L1", "L2", "L3", "L4", "8 bits", "4 bits", "2 bits")
USUAL = ("exact", "L1", "L2", "L3", "2 bits")
MODELS = ("resnet18", "resnet50", "mobilenet_v2", "vit_b_16", "transformer")
MOST_TRIES = 12  # of a largest batch
FINE = 32  # a largest batch is right to a 32nd


def parser(add):
    sub = add(
        "training", help="steps on compressed activations", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    sub.add_argument("--model", action="append", help="may be repeated; of torchvision, or transformer; all five")
    sub.add_argument("--mode", action="append", choices=MODES, help=f"may be repeated; {', '.join(USUAL)}")
    sub.add_argument("--batch", type=count, default=16)
    sub.add_argument("--size", type=count, default=64, help="height and width of images")
    sub.add_argument("--steps", type=count, default=3, help="that are timed, after a step of two images")
    sub.add_argument("--threads", type=count, default=min(2, os.cpu_count() or 1))
    sub.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    sub.add_argument("--bfloat16", action="store_true", help="under autocast")
    sub.add_argument("--memory", type=count, metavar="MB", help="find the largest batch with such a peak")
    sub.add_argument("--gradients", action="store_true", help="compare gradients of 18 networks at 8 and 2 bits")
    sub.add_argument("--json", metavar="OUT", help="write rows to this file as they are measured")
    sub.set_defaults(run=main)


def main(args):
    rows = []
    for job in _jobs(args):
        row = _largest(job, args.memory << 20) if args.memory and not args.gradients else measured(job)
        rows.append(job | row)
        print(line(rows[-1], rows), flush=True)
        if args.json:
            with open(args.json, "w") as out:
                machine = {"cpu": cpu_name(), "cpus": os.cpu_count()}
                json.dump({"machine": machine, "rows": rows}, out, indent=1)
    if any("failed" in row for row in rows):
        sys.exit(1)


def _jobs(args):
    models, modes = args.model or MODELS, args.mode or USUAL
    if args.gradients:
        from .models import NETWORKS

        models, modes = args.model or NETWORKS, ("gradients",)
    same = ("batch", "size", "steps", "threads", "device", "bfloat16")
    for model in models:
        for mode in modes:
            yield {"model": model, "mode": mode} | {name: getattr(args, name) for name in same}


def measured(job):
    """Return what a process measured, or why it failed."""
    command = [sys.executable, "-m", "benchmarks.training.worker", json.dumps(job)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        said = process.stderr.strip().splitlines()
        return {"failed": said[-1] if said else f"exit status {process.returncode}"}
    return json.loads(process.stdout)


def _largest(job, bound, measure=measured):
    """Return the row of the largest batch whose peak is at most `bound` bytes, by lines through what was measured."""
    best, low, high, batch = {"failed": "a batch of 1 is above the bound"}, 0, None, job["batch"]
    for _ in range(MOST_TRIES):
        row = measure(job | {"batch": batch, "steps": 1})
        if "failed" not in row and row["peak"] <= bound:
            best, low = row | {"batch": batch}, batch
        else:
            high = batch
        if high is not None and high - low <= max(1, low // FINE):
            break
        guess = batch * bound // max(row.get("peak", 2 * bound), 1)
        above = 2 * low if high is None else high - 1  # a batch of more than twice might not end well
        batch = min(max(guess, low + 1), above) if high is None or low < guess < high else (low + high) // 2
        batch = max(batch, 1)
    return best | {"bound": bound}


def line(row, rows):
    """Return a row as text, beside the exact one of its model."""
    name = f"{row['model']:14} {row['mode']:9}"
    if "failed" in row:
        return f"{name} failed: {row['failed']}"
    if row["mode"] == "gradients":
        parts = [
            f"{mode}: loss {'equal' if row[mode]['loss is equal'] else 'NOT EQUAL'}, gradients off by "
            f"{row[mode]['error']:.2g}, {row[mode]['ratio']:.1f}x fewer bytes"
            for mode in ("8 bits", "2 bits")
        ]
        return f"{row['model']:20} {'; '.join(parts)}"
    exact = next((one for one in rows if one["model"] == row["model"] and one["mode"] == "exact"), None)
    seconds, usual = (0 if one is None or "failed" in one else one["seconds"] / one["batch"] for one in (row, exact))
    times = f" ({seconds / usual:.2f} of exact for each input)" if usual else ""
    saved = f", saved {row['saved'][0] / 1e6:.0f} -> {row['saved'][1] / 1e6:.0f} MB" if "saved" in row else ""
    return (
        f"{name} batch {row['batch']}: {1e3 * row['seconds']:.0f} ms a step{times}, held {row['held'] / 1e6:.0f} MB, "
        f"peak {row['peak'] / 1e6:.0f} MB{saved}"
    )
