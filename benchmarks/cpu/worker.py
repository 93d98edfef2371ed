"""A process that serves one library: it prepares a case, gives its outputs, and times a call when it is its turn.

A process of its own keeps one library's spinning threads, allocator and settings away from the others, and a crash
takes down nothing but itself.
"""

import multiprocessing
import os
import statistics
import time
import traceback

from . import contenders

PREPARE_SECONDS = 300
START_SECONDS = 120
_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerError(RuntimeError):
    """A worker that died, or gave no answer in time."""


def median_seconds(call, seconds):
    """Median of the calls that fit into `seconds`, at least one; a first eighth of them warms up and does not count."""
    times, began = [], time.perf_counter()
    while not times or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 8 :])


def serve(name, pipe):
    """The child's loop: (verb, arguments) in, ("ok", answer) or ("error", text) out, until "stop"."""
    contender, entries = None, {}
    while True:
        verb, *args = pipe.recv()
        if verb == "stop":
            return
        try:
            if verb == "start":
                contender = contenders.load(name)
                answer = contender.version()
            elif verb == "prepare":
                entries, absent = contenders.split(contender.entries(*args))
                answer = (
                    {title: (entry.read(entry.call()), entry.tolerance) for title, entry in entries.items()},
                    absent,
                )
            else:
                title, seconds = args
                answer = median_seconds(entries[title].call, seconds)
        except ImportError as error:
            pipe.send(("absent", f"not installed ({error})"))
        except Exception as error:
            pipe.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        else:
            pipe.send(("ok", answer))


class Worker:
    """The parent's end of one library's process."""

    def __init__(self, name, threads):
        context = multiprocessing.get_context("spawn")
        self.name, self.version = name, None
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(name, theirs), daemon=True)
        before = {pool: os.environ.get(pool) for pool in _POOLS}
        os.environ |= dict.fromkeys(_POOLS, str(threads))  # read once, when a library is loaded
        try:
            self._process.start()
        finally:
            for pool, value in before.items():
                os.environ.pop(pool) if value is None else os.environ.update({pool: value})
        theirs.close()

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
        """End the process; it is killed where it does not listen."""
        try:
            self._pipe.send(("stop",))
        except OSError:
            pass
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    @property
    def alive(self):
        return self._process.is_alive()

    def _ask(self, seconds, *message):
        try:
            self._pipe.send(message)
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            return "error", f"the process ended with exit code {self._process.exitcode}"
        self._process.kill()
        return "error", f"no answer in {seconds} s"
