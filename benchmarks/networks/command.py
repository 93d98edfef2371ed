"""Times and memory of published networks, of ours and of the same networks by other libraries.

Every peer is optional: `pip install ".[bench]" nncf` brings all (PyTorch writes the float32 networks that the others
quantise). Networks are written to --folder and read again by a later run; --build writes them and times nothing. With
the same --json OUT a run continues after the cases that OUT has.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from quantarray.cli.output import count
from quantarray.core.machine import cpu_name

from ..cpu.quiet import Quiet
from ..cpu.rounds import say
from ..gpu.record import Record
from . import table
from .contenders import CONTENDERS, OURS
from .measure import ARCHITECTURES, WrongError, build, measured
from .worker import NetworkWorker

CASES = {name: {} for name in ARCHITECTURES}  # arguments of each model


class Settings(NamedTuple):
    """A choice of batches, numbers of threads, rounds, and seconds of a turn."""

    batches: list[int]
    threads: list[int]
    rounds: int
    seconds: float


def parser(add):
    subparser = add(
        "networks", help="published networks by us and by other libraries", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    subparser.add_argument("--only", default="", help="networks whose names have this text")
    subparser.add_argument("--batch", action="append", type=count, help="images of a call, may be repeated; 1, 8, 16")
    subparser.add_argument("--contender", action="append", choices=CONTENDERS, help="may be repeated; all")
    subparser.add_argument("--threads", type=count, default=min(2, os.cpu_count() or 1), help="measured beside one")
    subparser.add_argument("--rounds", type=count, default=5, help="turns of each contender in a case")
    subparser.add_argument("--seconds", type=float, default=0.2, help="of a turn, which has at least one call")
    subparser.add_argument("--budget", type=count, default=3600, help="seconds, after which no network begins")
    subparser.add_argument("--patience", type=float, default=30, help="seconds that turns may wait for a quiet machine")
    subparser.add_argument("--folder", help="where networks are written; a temporary one")
    subparser.add_argument("--build", action="store_true", help="write networks and compile kernels, time nothing")
    subparser.add_argument(
        "--json", metavar="OUT", help="write rows to this file as they are made; continue after its own"
    )
    subparser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    subparser.add_argument("--plot", metavar="OUT.png", help="draw the rows (needs matplotlib)")
    subparser.set_defaults(run=main)


def main(args):
    if args.plot and not importlib.util.find_spec("matplotlib"):
        sys.exit("networks: --plot needs matplotlib, which is missing: pip install '.[bench]', or leave --plot out")
    settings = Settings(args.batch or [1, 8, 16], sorted({args.threads, 1}, reverse=True), args.rounds, args.seconds)
    versions, absent = _versions(dict.fromkeys([OURS, *(args.contender or CONTENDERS)]))
    machine = {"cpu": cpu_name(), "cpus": os.cpu_count(), "threads": settings.threads, "versions": versions}
    try:
        record = Record(args.json, machine)
    except ValueError as error:
        sys.exit(f"networks: {error}")
    print("  ".join(f"{name} {text}" for name, text in versions.items()), flush=True)
    for name, why in absent.items():
        print(f"without {name}: {why}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        left = _run(args, settings, list(versions), folder, record)
    rows = [*record.rows.values()]
    if rows and not args.build:
        print(f"\n{table.page(rows, settings.threads, table.markdown if args.markdown else table.table)}")
        print("ratio: the fastest peer's time over ours. peak: growth of a process that loads a network and calls it.")
    if left:
        print(f"not run: {', '.join(left)}")
    if args.plot and rows:
        from .plot import draw

        draw(args.plot, rows, settings.threads[0])
    if record.failed:
        sys.exit("\n".join(record.failed))


def _versions(names):
    """({contender: version}, {contender: why it does not take part})."""
    versions, absent = {}, {}
    for name in names:
        worker = NetworkWorker(name, 1)
        why = worker.start()
        worker.stop()
        if why is None:
            versions[name] = worker.version
        else:
            absent[name] = why
    return versions, absent


def _run(args, settings, names, folder, record):
    """Measure networks until the budget is spent; return the names of those that are left."""
    end, left, quiet = time.monotonic() + args.budget, [], Quiet(args.patience)
    for architecture, arguments in ((name, a) for name, a in CASES.items() if args.only in name):
        todo = [n for n in settings.batches if f"{architecture}, batch {n}" not in record.rows]
        if not todo:
            continue
        if time.monotonic() > end:
            left.append(architecture)
            continue
        case, now = (architecture, arguments), settings._replace(batches=todo)
        if args.build:
            for name, why in build(case, folder, names, now).items():
                print(f"{architecture}: without {name}: {why}", flush=True)
            continue
        try:
            rows = measured(case, folder, names, now, quiet)
        except WrongError as error:
            record.fail([f"networks: {error}"])
            continue
        finally:
            say("")
        for row in rows:
            record.add(row)
            print(_line(row, settings.threads[0]), flush=True)
    if quiet.turns:
        print(f"{quiet.disturbed} of {quiet.turns} turns began while others used the CPU")
    return left


def _line(row, threads):
    parts = [f"{name} {table.figure(table.milliseconds(row, name, threads))}" for name in row["seconds"]]
    return f"{row['case']}: {', '.join(parts)} ms an image"
