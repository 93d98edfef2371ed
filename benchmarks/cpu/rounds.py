"""A case from start to end: every contender prepares it, outputs are compared, then they take turns in short rounds."""

import statistics
import sys
from dataclasses import dataclass, field

import numpy as np

from . import limits
from .contenders import OURS
from .worker import Worker

TURN = 0.05  # seconds of calls in a turn


class UnequalError(AssertionError):
    """A difference between a contender's output and the expected one."""


@dataclass
class Row:
    """A case's medians in seconds by contender, the least it could take, and who does not take part and why.

    `fastest` are the turns least disturbed: where they are far below the medians, the machine was not quiet.
    """

    name: str
    suite: str
    threads: int
    seconds: dict[str, float]
    limit: float | None
    bound: str
    absent: dict[str, str] = field(default_factory=dict)
    fastest: dict[str, float] = field(default_factory=dict)

    @property
    def ours(self):
        return self.seconds.get(OURS)

    @property
    def best_peer(self):
        """(seconds, name) of the fastest other, or None."""
        return min(((s, name) for name, s in self.seconds.items() if name != OURS), default=None)

    @property
    def ratio(self):
        """fastest peer's seconds / our seconds; None without one of them."""
        return self.best_peer[0] / self.ours if self.ours and self.best_peer else None

    @property
    def share(self):
        return self.limit / self.ours if self.ours and self.limit else None

    def record(self):
        """Return the row as a dict for JSON, in microseconds."""
        return {
            "suite": self.suite,
            "case": self.name,
            "threads": self.threads,
            "us": {name: s * 1e6 for name, s in self.seconds.items()},
            "fastest_us": {name: s * 1e6 for name, s in self.fastest.items()},
            "limit_us": None if self.limit is None else self.limit * 1e6,
            "bound": self.bound,
            "ratio": self.ratio,
            "share": self.share,
            "absent": self.absent,
        }


def start_all(names, threads, pythons=None):
    """([workers that run], {library: why it does not}); `pythons` has the interpreters of some libraries."""
    workers, absent = [], {}
    for name in names:
        worker = Worker(name, threads, (pythons or {}).get(name, sys.executable))
        why = worker.start()
        if why is None:
            workers.append(worker)
        else:
            worker.stop()
            absent[name] = why
    return workers, absent


def unequal(expected, output, tolerance):
    """Describe in words how an output differs from the expected one; None if it does not."""
    if output.shape != expected.shape:
        return f"shape {output.shape}, expected {expected.shape}"
    if not tolerance:
        differing = np.count_nonzero(output != expected)
        return f"{differing} of {expected.size} elements differ" if differing else None
    error = np.abs(output.astype(np.float64) - expected).max(initial=0)
    most = tolerance * np.abs(expected.astype(np.float64)).max(initial=0)
    return f"an error of {error:.3g}, {most:.3g} is allowed" if not error <= most else None


def measure(suite, case, workers, threads, rounds, quiet, turn=TURN, limit=True):
    """Measure a case and return its `Row`.

    Raises UnequalError, which names the contender and the difference, before anything is timed.
    """
    threads = case.threads or threads
    turns, absent, wrong, expected = [], {}, [], None
    for worker in workers:
        outputs, without = worker.prepare(case, threads)
        absent |= without
        for title, (output, tolerance) in outputs.items():
            if expected is None:
                expected = case.expected()
            if how := unequal(expected, output, tolerance):
                wrong.append(f"{title}: {how}")
            turns.append((worker, title))
    if wrong:
        raise UnequalError(f"{suite}, {case.name}: " + "; ".join(wrong))
    times = {title: [] for _, title in turns}
    for i in range(rounds):
        for worker, title in turns if i % 2 == 0 else turns[::-1]:
            quiet.wait()
            times[title].append(worker.time(title, turn))
    least, bound = limits.seconds(case, threads) if limit and turns else (None, "")
    medians = {title: statistics.median(seconds) for title, seconds in times.items()}
    return Row(
        case.name, suite, threads, medians, least, bound, absent, {t: min(seconds) for t, seconds in times.items()}
    )


def say(text):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
