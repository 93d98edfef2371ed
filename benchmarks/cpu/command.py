"""The command: which suites, which libraries, how long; table, JSON, picture."""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import sys
from datetime import date

from quantarray.cli.output import count

from . import limits, rounds, table
from .contenders import LIBRARIES
from .cores import Cores
from .quiet import Quiet
from .suites import SUITES


def parser(add):
    subparser = add("cpu", help="CPU kernels and other libraries on the same inputs", description=__doc__)
    subparser.add_argument("--suite", action="append", choices=SUITES, help="one of the suites, may be repeated; all")
    subparser.add_argument(
        "--library", action="append", choices=LIBRARIES, help="one of the libraries, may be repeated; all"
    )
    subparser.add_argument(
        "--python", action="append", type=interpreter, default=[], metavar="LIBRARY=PATH",
        help="the Python that a library runs in, where it needs an environment of its own (larq: contenders/larq.py)",
    )  # fmt: skip
    subparser.add_argument("--threads", type=count, default=min(2, os.cpu_count() or 1), help="of every library")
    subparser.add_argument("--rounds", type=count, default=7, help="turns of each contender in a case")
    subparser.add_argument(
        "--patience", type=float, default=120, help="seconds that turns may wait for a quiet machine, in all"
    )
    subparser.add_argument("--json", metavar="OUT", help="write the rows to this file")
    subparser.add_argument("--plot", metavar="OUT.png", help="draw the rows (needs matplotlib)")
    subparser.set_defaults(run=main)


def interpreter(text):
    """(library, path of its Python) of LIBRARY=PATH."""
    name, _, path = text.partition("=")
    if name not in LIBRARIES or not shutil.which(path):
        raise argparse.ArgumentTypeError(f"{text!r} is not LIBRARY=PATH of one of {', '.join(LIBRARIES)} and a Python")
    return name, shutil.which(path)


def main(args):
    if args.plot and not importlib.util.find_spec("matplotlib"):
        sys.exit("cpu: --plot needs matplotlib, which is missing: pip install '.[bench]', or leave --plot out")
    chosen = {name: SUITES[name] for name in args.suite or SUITES}
    workers, absent = rounds.start_all(args.library or LIBRARIES, args.threads, dict(args.python))
    quiet = Quiet(args.patience, cores=Cores() if min(args.threads, os.cpu_count() or 1) > 1 else None)
    rows, failed, total, done = [], [], sum(map(len, chosen.values())), 0
    try:
        print("  ".join(f"{worker.name} {worker.version}" for worker in workers))
        for name, why in absent.items():
            print(f"without {name}: {why}")
        for suite, cases in chosen.items():
            measured = []
            for case in cases:
                done += 1
                rounds.say(f"{done} of {total}: {suite}, {case.name}")
                try:
                    measured.append(rounds.measure(suite, case, workers, args.threads, args.rounds, quiet))
                except rounds.UnequalError as error:
                    failed.append(f"cpu: outputs differ, so nothing is timed: {error}")
            rounds.say("")
            rows += measured
            print(f"\n{table.suite_table(measured)}" if measured else "", flush=True)
    finally:
        rounds.say("")
        for worker in workers:
            worker.stop()
    popcounts = args.threads * limits.popcounts()
    print(f"\n{table.legend(limits.products(args.threads), popcounts, args.threads)}")
    print(f"{quiet.disturbed} of {quiet.turns} turns began while others used the CPU, or on cores worse than before")
    if args.json:
        write(args.json, rows, workers, absent, quiet, args)
    if args.plot and rows:
        from .plot import draw

        draw(args.plot, rows)
    if failed:
        sys.exit("\n".join(failed))


def write(path, rows, workers, absent, quiet, args):
    """Write the rows, in microseconds, and the machine, settings and versions to a JSON file."""
    report = {
        "date": str(date.today()),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": args.threads,
        "rounds": args.rounds,
        "turns": {"all": quiet.turns, "disturbed": quiet.disturbed},
        "line_ns": None if quiet.cores is None else quiet.cores.best[1] * 1e9,  # of a cache line to and fro
        "products_per_second": limits.products(args.threads),
        "popcounts_per_second": args.threads * limits.popcounts(),  # products by a popcount of each word
        "versions": {worker.name: worker.version for worker in workers},
        "absent": absent,
        "rows": [row.record() for row in rows],
    }
    with open(path, "w") as f:
        json.dump(report, f, indent=1)
