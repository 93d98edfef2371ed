"""A process that serves one library: `python -m benchmarks.search.worker NAME FD`.

Requests: "start", the library's version; "prepare", a call of a case and what it finds; "time", a turn.
"""

import sys
import time
from multiprocessing.connection import Connection

from ..cpu.worker import answer_requests
from ..linear.worker import turn
from ..networks.worker import NetworkWorker
from .cases import data, recall
from .contenders import CONTENDERS


def serve(name, pipe):
    contender, call, clock = CONTENDERS[name], None, time.perf_counter

    def answer(verb, *args):
        nonlocal call, clock
        if verb == "start":
            return contender.version(*args)
        if verb == "prepare":
            case, setup = args
            of_case = data(case.kind, case.shape, case.queries)
            ready = contender.ready(case, of_case, setup)
            if ready is None:
                raise ValueError(f"has no case of {case.bits} bits")
            call, ids = ready
            clock = time.process_time if setup.threads == 1 else time.perf_counter
            return {"recall": recall(case, of_case, ids(call()))}
        return turn(call, *args, clock)

    answer_requests(pipe, answer)


class SearchWorker(NetworkWorker):
    """A process that runs one contender, seen from the parent."""

    MODULE = "benchmarks.search.worker"

    def settings(self, threads):
        """Return the environment; rayon is what turbovec has threads of."""
        return super().settings(threads) | {"RAYON_NUM_THREADS": str(threads)}


if __name__ == "__main__":
    serve(sys.argv[1], Connection(int(sys.argv[2])))
