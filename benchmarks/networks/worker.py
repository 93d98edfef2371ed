"""A process that serves one library: `python -m benchmarks.networks.worker NAME FD`.

Requests: "build", which writes a network's files; "memory", what loading a network and its first calls add to the
process; "prepare", calls of a batch with each number of threads and their results; "time", a turn of one of them;
"orders", our times by the order of axes.
"""

import gc
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from ..cpu.worker import Worker, answer_requests
from .contenders import CONTENDERS, OURS, images, our_network

WARM_CALLS = 3  # PyTorch's traced networks compile themselves in the second
LONG = 0.3  # seconds of a call that needs no call before it in each turn
MB = 1e6


def resident(field):
    """Return VmRSS or VmHWM of this process in bytes; 0 where Linux is not there to say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def _forget_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def memory(contender, stem, shape, threads):
    """Return bytes: the peak's growth while a network is loaded and called twice, what stays, and files."""
    first = np.ones(shape, np.uint8)  # NumPy and the library are loaded before
    del first
    gc.collect()
    before = resident("VmRSS")
    _forget_peak()
    call = contender.ready(stem, shape, threads)
    for _ in range(2):
        call()
    figures = {"peak": max(0, resident("VmHWM") - before), "stays": max(0, resident("VmRSS") - before)}
    figures["file"] = sum(path.stat().st_size for path in contender.files(stem))
    if contender is CONTENDERS[OURS]:
        figures |= _packed(stem)
    return figures


def _packed(stem):
    """Return bytes of our constants, and of the layouts that calls left with them."""
    network = our_network(stem)
    layouts = sum(getattr(a, "nbytes_cached", 0) for a in network.constants.values())
    return {"constants": int(network.nbytes), "layouts": int(layouts)}


def _orders(stem, shape, threads, seconds):
    """Return our times by the order of axes, with a number of threads; None for a network without images."""
    if len(shape) != 4:
        return None
    import quantarray as qa

    from .orders import orders

    qa.set_num_threads(threads)
    return orders(our_network(stem), images(shape, np.uint8), seconds)


def prepare(contender, stem, shape, threads):
    """Return ({threads: call}, {threads: result}); raise ValueError where a result is not the same each time."""
    calls, results = {}, {}
    for n in threads:
        calls[n] = contender.ready(stem, shape, n)
        results[n] = np.array(calls[n]())
        again = [np.array(calls[n]()) for _ in range(WARM_CALLS - 1)]
        if contender is CONTENDERS[OURS]:
            _check(results[n], again)
    if contender is CONTENDERS[OURS]:
        first, *others = results.values()
        _check(first, others)
    return calls, results


def _check(first, others):
    if not np.isfinite(first).all():
        raise ValueError("a score is not finite")
    if not all(np.array_equal(first, other) for other in others):
        raise ValueError("scores differ between calls")


def turn(call, seconds, last):
    """Return the seconds of each call that begins within `seconds`; a call of fewer than `LONG` is made before."""
    if last is None or last < LONG:
        call()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def serve(name, pipe):
    contender, calls, last = CONTENDERS.get(name), {}, {}

    def answer(verb, *args):
        nonlocal calls
        if verb == "start":
            return contender.version()
        if verb == "build":
            return contender.build(*args)
        if verb == "memory":
            return memory(contender, *args)
        if verb == "orders":
            return _orders(*args)
        if verb == "prepare":
            calls.clear()
            last.clear()
            calls, answer = prepare(contender, *args)
            return answer
        threads, seconds = args
        times = turn(calls[threads], seconds, last.get(threads))
        last[threads] = times[-1]
        return times

    answer_requests(pipe, answer)


class NetworkWorker(Worker):
    """A process that runs one contender, seen from the parent."""

    MODULE = "benchmarks.networks.worker"
    BUILD_SECONDS = 600

    def settings(self, threads):
        """Return the environment; ours has one thread of OpenBLAS, whose others spin where our threads would run."""
        settings = super().settings(threads)
        return settings | {"OPENBLAS_NUM_THREADS": "1"} if self.name == OURS else settings

    def ask(self, *message):
        """(True, answer) of a request, or (False, why not)."""
        kind, answer = self._ask(self.BUILD_SECONDS, *message)
        return (True, answer) if kind == "ok" else (False, answer.splitlines()[0])


if __name__ == "__main__":
    serve(sys.argv[1], Connection(int(sys.argv[2])))
