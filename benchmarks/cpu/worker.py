"""A process that serves one library: it prepares a case, gives its outputs, and times a call when it is its turn.

A process of its own keeps one library's spinning threads, allocator and settings away from the others, and a crash
takes down nothing but itself.
"""

import os
import statistics
import subprocess
import sys
import time
import traceback
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from . import contenders

PREPARE_SECONDS = 300
START_SECONDS = 120
ROOT = Path(__file__).resolve().parents[2]
_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerError(RuntimeError):
    """A worker that died, or gave no answer in time."""


def median_seconds(call, seconds, counted=None):
    """Return the median seconds of the calls that fit into `seconds` (at least two), or of `counted(result)` of each.

    An earlier call, which wakes threads and fills the cache, and the first eighth of the calls do not count.
    """
    call()
    times, began = [], time.perf_counter()
    while len(times) < 2 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start if counted is None else counted(result))
    return statistics.median(times[len(times) // 8 :])


def answer_requests(pipe, answer):
    """Serve requests of the parent, until "stop": (verb, arguments) in, ("ok", answer(..)) or ("error", text) out."""
    while True:
        verb, *args = pipe.recv()
        if verb == "stop":
            return
        try:
            reply = "ok", answer(verb, *args)
        except ImportError as error:
            reply = "absent", f"not installed ({error})"
        except Exception as error:
            reply = "error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        pipe.send(reply)


def serve(name, pipe):
    contender, entries = None, {}

    def answer(verb, *args):
        nonlocal contender, entries
        if verb == "start":
            contender = contenders.load(name)
            return contender.version()
        if verb == "prepare":
            entries, absent = contenders.split(contender.entries(*args))
            return {title: (entry.read(entry.call()), entry.tolerance) for title, entry in entries.items()}, absent
        title, seconds = args
        return median_seconds(entries[title].call, seconds, entries[title].seconds)

    answer_requests(pipe, answer)


class Worker:
    """A process that runs one library by the interpreter `python`, seen from the parent.

    A library may need an environment of its own.
    """

    MODULE = "benchmarks.cpu.worker"

    def __init__(self, name, threads, python=sys.executable):
        self.name, self.version = name, None
        self._pipe, theirs = Pipe()
        try:
            self._process = subprocess.Popen(
                [python, "-m", self.MODULE, name, str(theirs.fileno())],
                env=os.environ | self.settings(threads),  # read once, when a library is loaded
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )
        finally:
            theirs.close()

    def settings(self, threads):
        """Return variables of the environment that libraries read."""
        return dict.fromkeys(_POOLS, str(threads))

    def start(self):
        """Load the library: None, or why it does not take part."""
        kind, answer = self._ask(START_SECONDS, "start")
        if kind == "ok":
            self.version = answer
            return None
        return answer.splitlines()[0]

    def prepare(self, case, threads):
        """({title: (output, tolerance)}, {title: why not}) of all that the library has for a case."""
        kind, answer = self._ask(PREPARE_SECONDS, "prepare", case, threads)
        return answer if kind == "ok" else ({}, {self.name: answer.splitlines()[0]})

    def time(self, title, seconds):
        kind, answer = self._ask(PREPARE_SECONDS, "time", title, seconds)
        if kind != "ok":
            raise WorkerError(f"{self.name}: {title}: {answer}")
        return answer

    def stop(self):
        """End the process, and kill it if it does not react within 5 seconds."""
        try:
            self._pipe.send(("stop",))
        except OSError:
            pass
        if self._ended() is None:
            self._process.kill()
            self._process.wait()
        self._pipe.close()

    @property
    def alive(self):
        return self._process.poll() is None

    def _ask(self, seconds, *message):
        try:
            self._pipe.send(message)
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        except (EOFError, OSError):
            return "error", f"the process ended with exit code {self._ended()}"
        self._process.kill()
        return "error", f"no answer in {seconds} s"

    def _ended(self):
        """Wait for the process at most 5 seconds and return its exit code, or None if it still runs."""
        try:
            return self._process.wait(5)
        except subprocess.TimeoutExpired:
            return None


if __name__ == "__main__":
    serve(sys.argv[1], Connection(int(sys.argv[2])))
