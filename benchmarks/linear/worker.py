"""A process that serves one program: `python -m benchmarks.linear.worker NAME FD`.

Requests: "start", the program's version; "prepare", a call of a case and the error of its results; "time", a turn.
"""

import math
import sys
import time
import traceback
from multiprocessing.connection import Connection

import numpy as np

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
    """Serve requests of the parent, until "stop": (verb, arguments) in, ("ok", answer) or ("error", text) out."""
    contender, call, per, clock = CONTENDERS[name], None, 1, time.perf_counter
    while True:
        verb, *args = pipe.recv()
        if verb == "stop":
            return
        try:
            if verb == "start":
                answer = contender.version(*args)
            elif verb == "prepare":
                call, per, answer = prepare(contender, *args)
                clock = time.process_time if args[1].threads == 1 else time.perf_counter
            else:
                answer = turn(call, *args, clock) / per
        except ImportError as error:
            pipe.send(("absent", f"not installed ({error})"))
        except Exception as error:
            pipe.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        else:
            pipe.send(("ok", answer))


class LinearWorker(NetworkWorker):
    """A process that runs one contender, seen from the parent."""

    MODULE = "benchmarks.linear.worker"


if __name__ == "__main__":
    serve(sys.argv[1], Connection(int(sys.argv[2])))
