"""Run launches of kernels one after the other without Python in between.

The compiled counterpart of `threads.run`: a list of steps, each a launch or a piece of memory to clear. A step takes
0.05 us besides its kernel, and threads of the pool are still awake from the step before (`thread_pool.py`).
"""

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8
from . import threads
from .atomics import number, set_number
from .jit import entry
from .launch import Launch
from .schedule import LINE, run_piece, version
from .team import deal_by
from .thread_pool import limited

# Numbers of a step: of a launch, or the address and the number of bytes of memory to clear
_PIECE, _RECORD, _TASKS, _PIECES, _WORKERS, _TAKES, _CLEARED, _BYTES = range(8)
_FAILED = Launch.FAILED


@intrinsic
def _clear(typingctx, address, size):
    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], I8.as_pointer())
        cgutils.memset(builder, place, args[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@entry
def _drive(steps, size, count, dealt, deal, pool):
    """Run the steps at an address on up to `count` threads; return the number of those done before one failed.

    `dealt` is memory for what `next_task` reads, `deal` that of `threads.dealer_for`. The pool is asked
    before each step how many threads come in time: a network may take longer than the pool's limit after a stall lasts.
    """
    for i in range(size):
        step = steps + i * 64
        if number(step, _BYTES):
            _clear(number(step, _CLEARED), number(step, _BYTES))
            continue
        piece, record, tasks = number(step, _PIECE), number(step, _RECORD), number(step, _TASKS)
        takes, workers = number(step, _TAKES), limited(pool, min(count, number(step, _WORKERS)))
        pieces = number(step, _PIECES) if workers > 1 else tasks
        if workers > 1 or takes:
            set_number(dealt, 0, workers)
            set_number(dealt, 1, pieces)
            for worker in range(workers):
                set_number(dealt, (worker + 1) * LINE, pieces * worker // workers)
        if workers > 1:
            deal_by(piece, record, dealt, tasks, takes, deal)
        elif takes:
            run_piece(piece, record, dealt, 0)
        else:
            run_piece(piece, record, 0, tasks)
        if number(record, _FAILED):
            set_number(record, _FAILED, 0)
            return i
    return size


class Driver:
    """A list of steps, for one caller at a time. It holds all memory that they read and write but the pool's."""

    def __init__(self, steps):
        """steps: (launch, tasks, pieces, workers, takes), or an array to clear."""
        self._holds = steps
        self._steps = np.zeros((len(steps), 8), np.int64)
        for row, step in zip(self._steps, steps, strict=True):
            if isinstance(step, np.ndarray):
                row[_CLEARED:] = step.ctypes.data, step.nbytes
            else:
                launch, *numbers = step
                row[:_CLEARED] = launch.piece, launch.record, *numbers
        self._workers = max([1, *self._steps[:, _WORKERS].tolist()])
        lines = np.zeros((self._workers + 2) * LINE, np.int64)  # of 64 bytes each, of which no two threads share one
        self._dealt = lines[-lines.ctypes.data % 64 // 8 :]
        self._arguments = self._steps.ctypes.data, len(steps), self._dealt.ctypes.data
        self._drive = version(_drive, (types.int64,) * 6).entry_point

    def run(self):
        """Run all steps: True, or False where this caller's threads are those of Numba's loop.

        Raises MemoryError where a kernel fails.
        """
        steps, size, dealt = self._arguments
        most, pool = threads.most()
        count = min(most, self._workers)
        deal = threads.dealer_for(count) if count > 1 else 0
        if count > 1 and not deal:
            return False
        if self._drive(steps, size, count, dealt, deal, pool) < size:
            raise MemoryError("quantarray: no memory for a kernel's buffers")
        return True
