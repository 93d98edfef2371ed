"""The command: which situations, how many rounds, of how long blocks; text and JSON."""

import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

from quantarray.cli.output import count

from .situations import BUSY_SECONDS, SITUATIONS
from .summary import lines, summarise

ROOT = Path(__file__).resolve().parents[2]


def parser(add):
    made = add("beside", help="beside busy processes and other libraries", description=__doc__)
    made.add_argument("--situation", action="append", choices=SITUATIONS, help="one of them, may be repeated; all")
    made.add_argument("--threads", type=count, default=2, help="compared with one")
    made.add_argument("--rounds", type=count, default=20, help="in which each takes a block")
    made.add_argument("--seconds", type=float, default=1.0, help=f"of a block; {BUSY_SECONDS:g} times beside processes")
    made.add_argument("--json", metavar="OUT", help="write what was found to this file")
    made.set_defaults(run=main)


def measure(name, threads, rounds, seconds):
    """What a worker found of a situation, in a session of its own, so that its processes compete as strangers."""
    how = SITUATIONS[name]
    seconds *= BUSY_SECONDS if how["kind"] == "beside" else 1
    told = json.dumps({**how, "threads": threads, "count": rounds, "seconds": seconds})
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.beside.worker", told]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if done.returncode:
        sys.exit(f"beside: {name}: the process ended with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main(args):
    if args.threads < 2:
        sys.exit("beside: --threads must be at least 2: one thread is what they are compared with")
    found = {}
    for name in args.situation or SITUATIONS:
        rounds = measure(name, args.threads, args.rounds, args.seconds)
        if "absent" in rounds:
            print(f"{name}: {rounds['absent']}", flush=True)
            continue
        kind = SITUATIONS[name]["kind"]
        found[name] = summarise(kind, rounds)
        print("\n  ".join([name, *lines(kind, found[name])]), flush=True)
    if args.json:
        write(args.json, found, args)


def write(path, found, args):
    """Medians and quartiles over rounds, in seconds, calls a second and ratios."""
    made = {
        "date": str(date.today()),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": args.threads,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "situations": {name: {what: one._asdict() for what, one in made.items()} for name, made in found.items()},
    }
    Path(path).write_text(json.dumps(made, indent=1))
