"""Measure whether two threads run on separate cores, and how near these are: virtual CPUs move between real ones.

Its CPUs may share one core for seconds, and two threads then are as fast as one; or they are under two third level
caches, and data from one thread take six times as long to reach the other (docs/decisions/0015).
"""

from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_TRIES = 9
_ROUNDS = 300_000  # of some ten instructions of numbers
_PASSES = 2_000  # of a cache line, to and fro
_POLLS = 1_000_000  # after which a thread gives up on the other, which is not running
_WORSE = 1.2, 2  # than the best that was met: seconds of work, seconds to and fro


@intrinsic
def _load(typingctx, address):
    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(types.uint64), codegen


@intrinsic
def _store(typingctx, address, number):
    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store_atomic(args[1], place, "release", 8)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64), codegen


@njit(nogil=True)
def _work(rounds):
    """Run independent additions, shifts and exclusive ors, enough that two threads on one core slow each other."""
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    for _ in range(rounds):
        a, b = a + (b >> np.uint64(3)) ^ np.uint64(5), b + (b << np.uint64(2)) ^ np.uint64(7)
        c, d = c + (d >> np.uint64(3)) ^ np.uint64(5), d + (d << np.uint64(2)) ^ np.uint64(7)
    return a ^ b ^ c ^ d


@njit(nogil=True)
def _pass(address, mine, passes):
    """Wait for one's turn at a number and hand it on, so many times. False where the other does not."""
    for turn in range(mine, 2 * passes, 2):
        polls = 0
        while _load(address) != turn:
            polls += 1
            if polls > _POLLS:
                return False
        _store(address, turn + 1)
    return True


class Cores:
    """A pair of threads that is timed, and its best times so far."""

    def __init__(self):
        self.best = self.measured()

    def measured(self):
        """(seconds of the same work on both, seconds of a cache line to and fro), each the median of some tries: the
        least says nothing of a core that others have half of the time.

        The second is infinite where one thread never met the other.
        """
        with ThreadPoolExecutor(2) as pool:
            return median(self._spent(pool) for _ in range(_TRIES)), median(self._passed(pool) for _ in range(_TRIES))

    def worse(self):
        """True where they are much slower than they were at their best."""
        times = self.measured()
        self.best = tuple(map(min, zip(times, self.best, strict=True)))
        return any(now > most * least for now, most, least in zip(times, _WORSE, self.best, strict=True))

    @staticmethod
    def _spent(pool):
        start = perf_counter()
        list(pool.map(_work, (_ROUNDS, _ROUNDS)))
        return perf_counter() - start

    @staticmethod
    def _passed(pool):
        line = np.zeros(16, np.int64)
        address, start = line.ctypes.data + -line.ctypes.data % 64, perf_counter()
        met = list(pool.map(lambda mine: _pass(address, mine, _PASSES), range(2)))
        return (perf_counter() - start) / _PASSES if all(met) else float("inf")
