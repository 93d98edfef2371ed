"""Waiting for a machine that does nothing else: between turns all workers sleep, so what is busy then is not ours."""

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
    """Pauses between turns. They last until nobody else computes, at most `patience` seconds longer in all.

    `turns` counts the pauses, `disturbed` those after which others were still busy.
    """

    def __init__(self, patience, pause=PAUSE):
        self.patience, self.pause = patience, pause
        self.turns = self.disturbed = 0

    def wait(self):
        time.sleep(self.pause)
        while busy := self._busy():
            if self.patience <= 0:
                break
            self.patience -= self.pause
        self.turns += 1
        self.disturbed += busy

    def _busy(self):
        before = ticks()
        time.sleep(self.pause)
        after = ticks()
        if before is None or after is None or after[1] == before[1]:
            return False
        return (after[0] - before[0]) / (after[1] - before[1]) > BUSY
