"""Waiting for a machine that does nothing else: between turns all workers sleep, so what is busy then is not ours.

And for cores as good as they were: a virtual machine's CPUs may share one for some seconds (`cores.py`).
"""

import time
from pathlib import Path

PAUSE = 0.04  # seconds between turns: threads that spin for work give up meanwhile
BUSY = 0.2  # of all CPU time: more is somebody else's work
_STAT = Path("/proc/stat")


def ticks():
    """(busy, all) clock ticks of all CPUs since the machine started, or None where Linux is not there to say."""
    try:
        spent = [int(n) for n in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(spent) - spent[3] - spent[4], sum(spent)


class Quiet:
    """A pause between turns: until nobody else computes and `cores`, if not None, are no worse than at their best.

    All pauses together wait at most `patience` seconds longer. `turns` counts the pauses, `disturbed` those that ended
    while the machine was still busy.
    """

    def __init__(self, patience, pause=PAUSE, cores=None):
        self.patience, self.pause, self.cores = patience, pause, cores
        self.turns = self.disturbed = 0

    def wait(self):
        time.sleep(self.pause)
        start = time.perf_counter()
        while disturbed := self._busy() or (self.cores is not None and self.cores.worse()):
            now = time.perf_counter()
            self.patience, start = self.patience - (now - start), now
            if self.patience <= 0:
                break
        self.turns += 1
        self.disturbed += disturbed

    def _busy(self):
        before = ticks()
        time.sleep(self.pause)
        after = ticks()
        if before is None or after is None or after[1] == before[1]:
            return False
        return (after[0] - before[0]) / (after[1] - before[1]) > BUSY
