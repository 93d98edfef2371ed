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
    subparser = add("beside", help="beside busy processes and other libraries", description=__doc__)
    subparser.add_argument("--situation", action="append", choices=SITUATIONS, help="one of them, may be repeated; all")
    subparser.add_argument("--threads", type=count, default=2, help="compared with one")
    subparser.add_argument("--rounds", type=count, default=20, help="in which each takes a block")
    subparser.add_argument(
        "--seconds", type=float, default=1.0, help=f"of a block; {BUSY_SECONDS:g} times beside processes"
    )
    subparser.add_argument("--json", metavar="OUT", help="write what was found to this file")
    subparser.set_defaults(run=main)


def measure(name, threads, rounds, seconds):
    """Run a worker for the situation `name` and return what it printed: times of blocks, or why it cannot run.

    The worker has a session of its own, so that the kernel schedules its processes as it does those of other users.
    """
    how = SITUATIONS[name]
    seconds *= BUSY_SECONDS if how["kind"] == "beside" else 1
    arguments = json.dumps({**how, "threads": threads, "count": rounds, "seconds": seconds})
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.beside.worker", arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if done.returncode:
        sys.exit(f"beside: {name}: the process ended with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main(args):
    if args.threads < 2:
        sys.exit("beside: --threads must be at least 2: one thread is what they are compared with")
    summaries = {}
    for name in args.situation or SITUATIONS:
        rounds = measure(name, args.threads, args.rounds, args.seconds)
        if "absent" in rounds:
            print(f"{name}: {rounds['absent']}", flush=True)
            continue
        kind = SITUATIONS[name]["kind"]
        summaries[name] = summarise(kind, rounds)
        print("\n  ".join([name, *lines(kind, summaries[name])]), flush=True)
    if args.json:
        write(args.json, summaries, args)


def write(path, summaries, args):
    """Write medians and quartiles over rounds to a JSON file: seconds, calls a second, and ratios."""
    report = {
        "date": str(date.today()),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": args.threads,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "situations": {
            name: {what: one._asdict() for what, one in summary.items()} for name, summary in summaries.items()
        },
    }
    Path(path).write_text(json.dumps(report, indent=1))
