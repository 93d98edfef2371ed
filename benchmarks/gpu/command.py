"""GPU kernels: tests on this machine's GPU, compute-sanitizer, then times of outputs that were compared before.

The image needs numba, numba-cuda, CuPy and NumPy, pytest and hypothesis for the tests, PyTorch for cuDNN and cuBLAS.
"""

import json
import os
import shutil
import subprocess
import sys
from datetime import date

import quantarray as qa
from quantarray.cli.output import count
from quantarray.device import cupy
from quantarray.text import table

from ..cpu.cases import Network
from ..cpu.contenders import OURS, split
from ..cpu.rounds import unequal
from ..cpu.table import duration
from . import contenders, limits
from .cases import CASES
from .clock import seconds

TESTS = (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests")
SANITIZED = ("compute-sanitizer", "--error-exitcode", "1", *TESTS, "-k", "conv2d or linear or pack")


def parser(add):
    made = add("gpu", help="GPU kernels: tests, then times", description=__doc__)
    made.add_argument("--only", default="", help="cases whose names have this text")
    made.add_argument("--rounds", type=count, default=7, help="turns of each contender in a case")
    made.add_argument("--no-tests", action="store_true", help="times only")
    made.add_argument("--json", metavar="OUT", help="write the rows to this file")
    made.set_defaults(run=main)


def main(args):
    try:
        qa.encode([1, -1], (-1, 1)).to_device("cuda")
    except qa.DeviceError as error:
        sys.exit(f"gpu: nothing was tested or measured: {error}")
    xp = cupy("gpu")
    machine = described(xp)
    print("  ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    failed = [] if args.no_tests else [*checked(TESTS), *checked(SANITIZED)]
    rows, rates = [], (limits.products_per_second(xp), limits.bytes_per_second(xp))
    for case in CASES:
        if args.only not in case.name:
            continue
        if isinstance(case, Network) and not case.path.exists():
            print(f"without {case.name}: {case.path.name} is not part of the repository")
        else:
            row, wrong = measured(case, xp, args.rounds)
            row["limit"] = limits.least_seconds(case, *rates)
            failed += wrong
            rows.append(row)
            print(f"{case.name}: {line(row)}", flush=True)
    print(f"\n{summary(rows)}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(
                {
                    "date": str(date.today()),
                    **machine,
                    "products_per_second": rates[0],
                    "bytes_per_second": rates[1],
                    "failed": failed,
                    "rows": rows,
                },
                f,
                indent=1,
            )
    if failed:
        sys.exit("\n".join(failed))


def described(xp):
    """What the figures were measured on."""
    found = xp.cuda.runtime.getDeviceProperties(0)
    name = found["name"]
    return {
        "device": name.decode() if isinstance(name, bytes) else name,
        "compute_capability": f"{found['major']}.{found['minor']}",
        "driver": xp.cuda.runtime.driverGetVersion(),
        "cupy": xp.__version__,
        "quantarray": qa.__version__,
    }


def checked(command):
    """Run a command in the repository; what failed, in a line. One that is not installed fails nothing."""
    if not shutil.which(command[0]):
        print(f"without {command[0]}: it is not installed")
        return []
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(command, cwd=root)
    return [f"gpu: {' '.join(command[:4])} .. failed with exit code {done.returncode}"] if done.returncode else []


def measured(case, xp, rounds):
    """(the row of a case, the contenders whose outputs are wrong, which are not timed)."""
    entries, absent = split(contenders.entries(case, xp))
    expected, wrong = contenders.expected(case), []
    for title, entry in list(entries.items()):
        if how := unequal(expected, entry.read(entry.call()), entry.tolerance):
            wrong.append(f"gpu: {case.name}: {title} is wrong: {how}")
            del entries[title]
    found = seconds(xp, {title: entry.call for title, entry in entries.items()}, rounds) if entries else {}
    return {
        "case": case.name,
        "seconds": found,
        "absent": absent,
        "tera_operations": 2 * case.products / found[OURS] / 1e12 if OURS in found else None,
        "gigabytes_per_second": case.nbytes / found[OURS] / 1e9 if OURS in found else None,
    }, wrong


def line(row):
    took = ", ".join(f"{title} {duration(s)}" for title, s in row["seconds"].items())
    return "; ".join(
        [took or "nothing was timed", *(f"without {title}: {why}" for title, why in row["absent"].items())]
    )


def summary(rows):
    """A table: ours, each peer, how many times as fast as the fastest peer, rates."""
    titles = list(dict.fromkeys(title for row in rows for title in row["seconds"] if title != OURS))
    peers = [title for title in titles if not title.startswith(OURS)]
    lines = []
    for row in rows:
        found, best = row["seconds"], min((s for t, s in row["seconds"].items() if t in peers), default=None)
        ratio = f"{best / found[OURS]:.2f}" if best and OURS in found else ""
        rates = [row["tera_operations"], row["gigabytes_per_second"]]
        lines.append(
            [
                row["case"],
                *(duration(found.get(title)) for title in (OURS, *titles)),
                ratio,
                *("" if rate is None else f"{rate:.3g}" for rate in rates),
                duration(row["limit"]),
                f"{row['limit'] / found[OURS]:.0%}" if OURS in found else "",
            ]
        )
    return table(["case", OURS, *titles, "ratio", "TOPS", "GB/s", "limit", "share"], lines)
