"""Times of linear layers with weights of few bits, of ours and of other programs, on the CPU.

One layer of 4096 x 4096 by default, which a cache may hold. --ring has one row and layers of four times the last cache
in all, --model one row and all linear layers of a ternary model of 2B. Every peer is optional. With the same --json OUT
a run continues after the cases that OUT has.
"""

import argparse
import os
import sys

from quantarray.cli.output import count
from quantarray.core.text import table

from ..cpu.contenders import OURS
from ..cpu.rounds import say
from ..peers import announced, milliseconds, results_and_times, started, stop
from .cases import KINDS, MODEL, Case
from .contenders import CONTENDERS, Setup
from .rate import vnni
from .worker import LinearWorker

MOST = 0.02  # error of a product with rows of int8, relative to its norm


def parser(add):
    subparser = add(
        "linear", help="low-bit linear layers by us and by other programs", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    subparser.add_argument("--only", default="", help='cases whose names have this text, such as Q4_0 or "8 rows"')
    subparser.add_argument("--rows", action="append", type=count, help="of a layer, may be repeated; 1, 8, 64, 512")
    subparser.add_argument("--ring", action="store_true", help="layers of four times the last cache, not one layer")
    subparser.add_argument("--model", action="store_true", help="the layers of a ternary model of 2B, not one layer")
    subparser.add_argument("--threads", type=count, default=1, help="of each program; 1")
    subparser.add_argument("--rounds", type=count, default=5, help="turns of each contender in a case")
    subparser.add_argument("--seconds", type=float, default=0.2, help="of a turn, which has at least one call")
    subparser.add_argument("--ggml", metavar="FOLDER", help="of libggml-base.so and libggml-cpu.so; libggml-python's")
    subparser.add_argument("--json", metavar="OUT", help="write rows to this file, and continue after its own")
    subparser.set_defaults(run=main)


def main(args):
    if not any(args.only in case.name for case in _cases(args)):
        kinds = ", ".join(dict.fromkeys(case.kind for case in _cases(args)))
        sys.exit(f"linear: no case has {args.only!r} in its name; there are {kinds}")
    if args.ggml and not os.path.isdir(args.ggml):
        sys.exit(f"linear: --ggml: {args.ggml} is no folder")
    setup = Setup(args.threads, args.ggml and os.path.abspath(args.ggml))
    versions, record = announced("linear", LinearWorker, CONTENDERS, setup, args.json)
    cases = [case for case in _cases(args) if args.only in case.name and case.name not in record.rows]
    rate = vnni()
    for kind, part in dict.fromkeys((case.kind, case.part) for case in cases):
        workers, _ = started(LinearWorker, [name for name in versions if kind in CONTENDERS[name].kinds], setup)
        try:
            for case in (c for c in cases if (c.kind, c.part) == (kind, part)):
                say(case.name)
                facts, seconds, absent = results_and_times(
                    workers, case, setup, args, lambda facts: facts["error"] < MOST
                )
                row = _row(case, facts, seconds, absent)
                wrong = [f"{name} {error:.2%}" for name, error in row["errors"].items() if error >= MOST]
                if wrong or OURS not in row["seconds"]:
                    why = f"errors of {', '.join(wrong)}" if wrong else row["absent"].get(OURS)
                    record.fail([f"linear: {case.name}: {why}"])
                else:
                    record.add(row | {"vnni": rate})
        finally:
            say("")
            stop(workers)
    print(_page([*record.rows.values()], args.threads, rate))
    if record.failed:
        sys.exit("\n".join(record.failed))


def _cases(args):
    if args.ring:
        yield from (Case(kind, "ring", 1) for kind in KINDS)
    if args.model:
        yield Case(MODEL, "model", 1)
    if not (args.ring or args.model):
        yield from (Case(kind, "layer", rows) for kind in KINDS for rows in args.rows or (1, 8, 64, 512))


def _row(case, facts, seconds, absent):
    """Return a row for JSON."""
    errors = {name: each["error"] for name, each in facts.items()}
    row = {"case": case.name, **case._asdict(), "seconds": seconds, "errors": errors, "absent": absent}
    return row | {key: facts.get(OURS, {}).get(key) for key in ("layers", "nbytes", "products")}


def _page(rows, threads, rate):
    """Format rows as a table, with notes below on programs that did not take part."""
    peers = [name for name in CONTENDERS if name != OURS and any(name in row["seconds"] for row in rows)]
    lines, reasons = [], {}
    for row in rows:
        each = row["seconds"]
        ours, best = each[OURS], min((s for name, s in each.items() if name != OURS), default=None)
        cells = [milliseconds(each.get(name)) for name in (OURS, *peers)] + [f"{best / ours:.2f}" if best else ""]
        rates = f"{row['products'] / ours / 1e9:,.0f}", f"{row['nbytes'] / ours / 1e9:.1f}"
        lines.append([row["case"], *cells, *rates])
        for name, why in row["absent"].items():
            reasons.setdefault((name, why), []).append(row["case"])
    notes = [f"without {name} in {'; '.join(cases)}: {why}" for (name, why), cases in reasons.items()]
    notes.append(
        f"least {'CPU time' if threads == 1 else 'time'} of a call in ms, of the ring for a layer; threads: {threads}. "
        "ratio: the fastest peer's time over ours. G/s, GB/s: our products and bytes of weights a second. torch "
        "fbgemm, onednn: int8 by these engines."
    )
    if rate:
        notes.append(f"VNNI makes {rate / 1e9:,.0f} G products of bytes a second in one thread.")
    return "\n".join([table(["ms", OURS, *peers, "ratio", "G/s", "GB/s"], lines), *notes])
