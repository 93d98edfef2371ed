"""GPU kernels: tests on this machine's GPU, compute-sanitizer, then times of outputs that were compared before.

The image needs numba, numba-cuda, CuPy and NumPy, pytest and hypothesis for the tests, PyTorch for cuDNN and cuBLAS.
Where a command may only take so long, run it in parts: --part, --suite, or again and again with the same --json OUT,
which continues after the cases that OUT has.
"""

import sys
import time

import quantarray as qa
from quantarray.backends.registry import cupy
from quantarray.cli.output import count

from ..cpu.cases import Network
from . import checks, limits, plan
from .cases import SUITES
from .measure import LostError, described, measured
from .record import Record
from .table import legend, line, summary

PARTS = ("tests", "sanitizer", "times")


def parser(add):
    subparser = add("gpu", help="GPU kernels: tests, then times", description=__doc__)
    subparser.add_argument("--part", action="append", choices=PARTS, help="one of the parts, may be repeated; all")
    subparser.add_argument(
        "--suite", action="append", choices=SUITES, help="one of the suites of times, may be repeated"
    )
    subparser.add_argument("--only", default="", help="cases, or tests, whose names have this text")
    subparser.add_argument("--rounds", type=count, default=7, help="turns of each contender in a case")
    subparser.add_argument("--budget", type=count, default=540, help="seconds, after which no case begins")
    subparser.add_argument(
        "--json", metavar="OUT", help="write rows to this file as they are made; continue after its own"
    )
    subparser.add_argument("--plan", action="store_true", help="the first minutes on a GPU, step by step, to --json")
    subparser.add_argument("--seconds", type=count, default=1800, help="of the whole plan")
    subparser.set_defaults(run=main)


def main(args):
    if args.plan:
        plan.run(args.json or "gpu-plan.json", args.seconds)
        return
    end = time.monotonic() + args.budget
    try:
        qa.encode([1, -1], (-1, 1)).to_device("cuda")
    except qa.DeviceError as error:
        sys.exit(f"gpu: nothing was tested or measured: {error}")
    xp, parts = cupy("gpu"), args.part or PARTS
    machine = described(xp)
    print("  ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    try:
        record = Record(args.json, machine)
    except ValueError as error:
        sys.exit(f"gpu: {error}")
    if "tests" in parts:
        record.fail(checks.tests(args.only, end - time.monotonic()))
    if "sanitizer" in parts:
        record.fail(checks.sanitized(args.only, end - time.monotonic()))
    if "times" in parts:
        timed(args, xp, record, end)
    if record.failed:
        sys.exit("\n".join(record.failed))


def timed(args, xp, record, end):
    """Time the cases that `args` selects and that the record lacks, until the time `end`."""
    rates, left = (limits.products_per_second(xp), limits.bytes_per_second(xp)), []
    for case in (case for suite in args.suite or SUITES for case in SUITES[suite]):
        if args.only not in case.name or case.name in record.rows:
            continue
        if isinstance(case, Network) and not case.path.exists():
            print(f"without {case.name}: {case.path.name} is not part of the repository")
        elif time.monotonic() > end:
            left.append(case.name)
        else:
            try:
                row, wrong = measured(case, xp, args.rounds, rates)
            except LostError as error:
                record.fail([f"gpu: {error}"])
                left.append(case.name)
                break
            print(line(row), flush=True)
            record.add(row)
            record.fail(wrong)
    print(f"\n{summary([*record.rows.values()])}\n{legend(*rates)}")
    if left:
        print(f"not run: {', '.join(left)}")
