"""A process that serves one program: `python -m benchmarks.linear.worker NAME FD`.

Requests: "start", the program's version; "prepare", a call of a case and the error of its results; "time", a turn.
"""

import math
import sys
import time
from multiprocessing.connection import Connection

import numpy as np

from ..cpu.worker import answer_requests
from ..networks.worker import NetworkWorker
from .cases import inputs, layers
from .contenders import CONTENDERS


def prepare(contender, case, setup):
    """(call, layers that a time is divided by, what the parent wants to know of the case)."""
    weights = layers(case, contender.nbytes)
    xs = inputs(weights, case.rows)
    call, per = contender.ready(weights, xs, setup), len(weights) if case.part == "ring" else 1
    facts = {
        "layers": len(weights),
        "nbytes": sum(map(contender.nbytes, weights)) / per,
        "products": case.rows * sum(w.array.size for w in weights) / per,
        "error": error(call(), weights, xs),
    }
    return call, per, facts


def error(results, weights, xs):
    """Return the largest error of a layer, relative to the float64 product of its decoded weights: Frobenius norms."""
    exact, largest = {}, 0.0
    for w, y in zip(weights, results, strict=True):
        if id(w) not in exact:
            exact[id(w)] = xs[w.array.shape[1]].astype(np.float64) @ w.array.dequantize().astype(np.float64).T
        y = np.asarray(y.float() if hasattr(y, "float") else y, np.float64)  # NumPy has no bfloat16
        difference = np.linalg.norm(y - exact[id(w)]) / np.linalg.norm(exact[id(w)])
        largest = max(largest, float(difference) if np.isfinite(difference) else math.inf)
    return largest


def turn(call, seconds, clock):
    """Return the least seconds of the calls that begin within `seconds`."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def serve(name, pipe):
    contender, call, per, clock = CONTENDERS[name], None, 1, time.perf_counter

    def answer(verb, *args):
        nonlocal call, per, clock
        if verb == "start":
            return contender.version(*args)
        if verb == "prepare":
            call, per, facts = prepare(contender, *args)
            clock = time.process_time if args[1].threads == 1 else time.perf_counter
            return facts
        return turn(call, *args, clock) / per

    answer_requests(pipe, answer)


class LinearWorker(NetworkWorker):
    """A process that runs one contender, seen from the parent."""

    MODULE = "benchmarks.linear.worker"


if __name__ == "__main__":
    serve(sys.argv[1], Connection(int(sys.argv[2])))
