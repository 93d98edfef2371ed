"""Run cases in a process of its own: `python -m tests.long.worker NAME SEED FIRST LAST`, one line of JSON a report."""

import importlib
import json
import sys
import traceback

from .proof import generator

EVERY = 50  # cases between two reports; a case that failed is reported at once


def main(name: str, seed: int, first: int, last: int) -> None:
    """Report {"at": n, "counts": {..}} of cases that passed, and {"failed": n, "why": ..} of those that did not."""
    # What the cases print goes to stderr: stdout has the reports
    reports, sys.stdout = sys.stdout, sys.stderr
    proof = importlib.import_module(f"tests.long.{name}").PROOF
    proof.prepare()
    counts: dict[str, int] = {}
    for number in range(first, last):
        print(json.dumps({"begun": number}), file=reports, flush=True)
        try:
            kind = proof.run(generator(seed, number)) or "passed"
        except BaseException as error:  # a case may exit, too
            if isinstance(error, KeyboardInterrupt):
                raise
            print(json.dumps({"failed": number, "why": traceback.format_exc()}), file=reports, flush=True)
            continue
        counts[kind] = counts.get(kind, 0) + 1
        if (number + 1 - first) % EVERY == 0 or number + 1 == last:
            print(json.dumps({"at": number + 1, "counts": counts}), file=reports, flush=True)
            counts = {}


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
