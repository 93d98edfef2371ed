"""Times of searches for the nearest rows, and how many of them are found, of ours and of other libraries, on the CPU.

Vectors by codes of 1 to 8 bits (RaBitQ beside rabitqlib), clusters by 2 and 4 bits (beside turbovec), sets by Tanimoto
similarity (beside RDKit) and binary codes by Hamming distance for any k (beside faiss and usearch). Every peer is
optional: `pip install ".[bench]" rabitqlib turbovec rdkit` brings all. With the same --json OUT a run continues after
the cases that OUT has.
"""

import argparse
import sys

from quantarray.cli.output import count
from quantarray.core.text import table

from ..cpu.contenders import OURS
from ..cpu.rounds import say
from ..peers import announced, milliseconds, results_and_times, started, stop
from .cases import CODES, JUDGED, SETS, cases
from .contenders import CONTENDERS, Setup
from .worker import SearchWorker


def parser(add):
    subparser = add(
        "search", help="searches by us and by other libraries", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    subparser.add_argument("--only", default="", help='cases whose names have this text, such as "4 bits" or codes')
    subparser.add_argument("--threads", type=count, default=1, help="of each library; 1")
    subparser.add_argument("--rounds", type=count, default=3, help="turns of each contender in a case")
    subparser.add_argument("--seconds", type=float, default=0.5, help="of a turn, which has at least one call")
    subparser.add_argument("--json", metavar="OUT", help="write rows to this file, and continue after its own")
    subparser.set_defaults(run=main)


def main(args):
    if not any(args.only in case.name for case in cases()):
        sys.exit(f"search: no case has {args.only!r} in its name; there are {', '.join(c.name for c in cases())}")
    setup = Setup(args.threads)
    versions, record = announced("search", SearchWorker, CONTENDERS, setup, args.json)
    wanted = [case for case in cases() if args.only in case.name and case.name not in record.rows]
    for kind, shape in dict.fromkeys((case.kind, case.shape) for case in wanted):
        workers, _ = started(SearchWorker, [name for name in versions if kind in CONTENDERS[name].kinds], setup)
        try:
            for case in (c for c in wanted if (c.kind, c.shape) == (kind, shape)):
                say(case.name)
                _measure(case, workers, setup, args, record)
        finally:
            say("")
            stop(workers)
    print(_page([*record.rows.values()], args.threads))
    if record.failed:
        sys.exit("\n".join(record.failed))


def _measure(case, workers, setup, args, record):
    """Add a row of a case to the record, or the failure of what finds other rows than the nearest."""
    exact = case.kind in (CODES, SETS)
    facts, seconds, absent = results_and_times(
        workers, case, setup, args, lambda facts: facts["recall"] == 1 or not exact
    )
    recall = {name: each["recall"] for name, each in facts.items()}
    wrong = [f"{name} finds {share:.1%}" for name, share in recall.items() if exact and share < 1]
    if wrong or OURS not in seconds:
        record.fail([f"search: {case.name}: {', '.join(wrong) or absent.get(OURS)}"])
    else:
        record.add({"case": case.name, **case._asdict(), "seconds": seconds, "recall": recall, "absent": absent})


def _page(rows, threads):
    """Format rows as a table, with notes below on libraries that did not take part."""
    names = [name for name in CONTENDERS if any(name in row["seconds"] for row in rows)]
    lines, reasons = [], {}
    for row in rows:
        seconds, exact = row["seconds"], row["kind"] in (CODES, SETS)
        cells = [milliseconds(seconds.get(name)) for name in names]
        if not exact and row["queries"] >= JUDGED:
            cells = [cell and f"{cell} ({row['recall'][name]:.3f})" for cell, name in zip(cells, names, strict=True)]
        pairs = row["queries"] * row["shape"][0] * (1 if row["kind"] == SETS else row["shape"][1])
        lines.append([row["case"], *cells, f"{pairs / seconds[OURS] / 1e9:,.2f}"])
        for name, why in row["absent"].items():
            reasons.setdefault((name, why), []).append(row["case"])
    notes = [f"without {name} in {'; '.join(of)}: {why}" for (name, why), of in reasons.items()]
    notes.append(
        f"least {'CPU time' if threads == 1 else 'time'} of a call in ms; threads: {threads}. In brackets: the share "
        "of the nearest by floats that is found. G/s: elements of rows by queries, or pairs of sets, a second by us."
    )
    return "\n".join([table(["ms (recall)", *names, "G/s"], lines), *notes])
