"""Plan networks blind: on arrays that kill the process which reads or writes an element."""

import ctypes
import faulthandler
import os

from quantarray.nn.plan import reserved
from quantarray.nn.plan.part import Compiled, Row
from quantarray.nn.plan.segments import Plan

_NOBODY = 0  # PROT_NONE


def rows(program, x):
    """Yield the rows that are compiled for inputs x, and all values before each."""
    plan = Plan(program._steps, program._initial, program._output_slots, program._ready(x, {}))
    known = plan._initial.copy()
    for at, one in zip(program._input_slots, x, strict=True):
        known[at] = one
    for segment in plan.segments:
        if segment.call is not None:
            row = Row(plan._initial, known.copy())
            assert all(map(row.take, segment.steps))
            yield row, segment
        for step in segment.steps:
            step(known)


def dies(program, x):
    """Return the names of the steps of the first compiled row for x that reads or writes an element."""
    for row, _ in rows(program, x):
        if not survives(row.steps, row._initial, row._known):
            return [step.name for step in row.steps]
    return []


def survives(steps, initial, known):
    """Return whether steps are recorded in a child process whose reserved memory nobody may read or write."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    faulthandler.disable()  # of the process that runs the tests
    try:
        reserved.Reserved._reserve = _without_rights(reserved.Reserved._reserve)
        reserved.Reserved.is_touched = lambda self: False
        row = Row(initial, known)
        taken = all(map(row.take, steps))
    except BaseException:
        os._exit(1)
    os._exit(0 if taken else 1)


def _without_rights(reserve):
    def protected(self, size):
        reserve(self, size)
        start, memory = self._chunks[-1]
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(len(memory)), _NOBODY):
            os._exit(2)

    return protected


def constants_written(program, x):
    """Count the constants that the launches of compiled calls for x change, as if they were results: none may be."""
    changed = 0
    for row, segment in rows(program, x):
        arrays = [a for launch in row.recorder.launches for a in launch.arrays]
        constants = [a for a in arrays if row.recorder.place_of(a) is None]
        before = [a.tobytes() for a in constants]
        call = Compiled(row, segment._given)
        call([one.laid(row._known) for one in call.inputs])
        changed += sum(a.tobytes() != old for a, old in zip(constants, before, strict=True))
    return changed
