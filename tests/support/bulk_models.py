"""A model of `quantarray.cuda.tensor_cores.bulk` for the simulator: its instructions as the PTX manual describes them.

A copy's bytes are there when the barrier is waited for, as late as they may be, and what it overwrites is spoilt when
it begins. To wait for a phase that nobody has begun, to begin one twice, or to announce other bytes than are copied is
an error here; a GPU would wait for ever.
"""

from dataclasses import dataclass, field

import numpy as np
from tensor_models import SPOILT, addresses


@dataclass
class Barrier:
    """An mbarrier of one arrival a phase."""

    fenced: bool = False
    parity: int = 0  # of the current phase
    announced: int | None = None
    copies: list = field(default_factory=list)

    def finish(self, models):
        """End the phase: its copies' bytes arrive."""
        assert self.announced is not None, "a phase that nobody has begun"
        assert self.announced == sum(to.nbytes for to, _ in self.copies), "other bytes than were announced"
        for to, of in self.copies:
            assert (to == SPOILT).all(), "words that are written to while a copy to them is on its way"
            to[:] = of
            models.unseen.difference_update(addresses(to))
        self.parity, self.announced, self.copies = self.parity ^ 1, None, []


class BulkModels:
    """A model of the functions of `bulk`, for threads that copy and fence as `models` do."""

    NAMES = "start", "expect", "copy", "arrived"

    def __init__(self, models):
        self.models = models

    def _barrier(self, barriers, i):
        assert barriers.dtype == np.uint64 and 0 <= i < barriers.size
        return vars(self.models.current().block).setdefault("mbarriers", {})[self.models.address(barriers, i)]

    def start(self, barriers, i):
        me, place = self.models.current(), self.models.address(barriers, i)
        barrier = vars(me.block).setdefault("mbarriers", {})[place] = Barrier()
        vars(me).setdefault("started", []).append(barrier)

    def expect(self, barriers, i, nbytes):
        barrier = self._barrier(barriers, i)
        assert barrier.fenced, "a barrier that no proxy fence has shown"
        assert barrier.announced is None, "a phase that is begun twice"
        barrier.announced = int(nbytes)

    def copy(self, into, at, source, first, nbytes, barriers, i):
        words, rest = divmod(int(nbytes), 8)
        to, of = into.reshape(-1)[at : at + words], source.reshape(-1)[first : first + words]
        assert at >= 0 and first >= 0 and rest == 0 and to.size == of.size == words > 0, "words that are not there"
        assert nbytes % 16 == to.ctypes.data % 16 == of.ctypes.data % 16 == 0, "words that are not aligned"
        barrier = self._barrier(barriers, i)
        assert barrier.announced is not None, "a copy that no phase expects"
        to[:] = SPOILT
        self.models.unseen.update(addresses(to))
        barrier.copies.append((to, of))

    def arrived(self, barriers, i, parity):
        barrier = self._barrier(barriers, i)
        if barrier.parity == parity:
            barrier.finish(self.models)
        return True
