"""Times of several kernels for the same call, taken in turns so that a change of the machine's speed affects all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from ..core.progress import Progress

_SAMPLE = 2e-4  # seconds of a sample: short calls are repeated, so that the clock and cold caches weigh little
_BUDGET = 0.2  # seconds that all samples together may take, unless the least number of rounds takes longer
_LEAST, _MOST = 5, 25  # rounds
_LEAST_GAIN, _LEAST_WON = 1.02, 0.8


def in_turns(runs: dict[str, Callable[[], Any]], text: str = "", began: float | None = None) -> dict[str, list[float]]:
    """Time calls in turns: microseconds of each by round, after two calls of each that do not count, as the first may
    compile.

    `text` is shown beside the progress bar, which appears once more than a second has passed since `began`.
    """
    calls = {name: _calls(run) for name, run in runs.items()}
    once = sum(seconds * n for seconds, n in calls.values())
    rounds = min(_MOST, max(_LEAST, int(_BUDGET / once)))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    with Progress(rounds, text, began) as bar:
        for done in range(rounds):
            for name in runs if done % 2 else reversed(runs):
                samples[name].append(1e6 * _seconds(runs[name], calls[name][1]))
            bar.update(done + 1)
    return samples


def better(challenger: list[float], champion: list[float]) -> bool:
    """True where the challenger is surely faster: by 2 % at the median, and in more than four rounds of five.

    Beside other work medians alone are a lottery: samples are then as long as the scheduler's slices.
    """
    won = sum(a < b for a, b in zip(challenger, champion, strict=True))
    faster = statistics.median(champion) > _LEAST_GAIN * statistics.median(challenger)
    return faster and won > _LEAST_WON * len(champion)


def _calls(run: Callable[[], Any]) -> tuple[float, int]:
    """(seconds of a call, how many calls make a sample)."""
    run()
    seconds = _seconds(run, 1)
    return seconds, max(1, int(_SAMPLE / max(seconds, 1e-7)))


def _seconds(run: Callable[[], Any], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls
