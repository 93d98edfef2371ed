"""Times by events of the device, in turns, so that clocks that rise or fall do so for all.

    called  a call from Python after the other
    warm    a call within a CUDA graph of many, inputs and outputs in the caches as far as they fit
    cold    one call within a graph, after the L2 cache was overwritten; its launch is part of it
    moved   a call with its input copied from the host before it, and its result to the host after it

What cannot be captured has no graph: it is called for `cold` too, and has no `warm`.
"""

import os
from statistics import median
from unittest.mock import patch

_LEAST = 2e-3  # seconds of a turn, so that a launch counts little
_CALLS, _CAPTURED, _COLD = 1000, 50, 15  # calls of a turn and of a graph at most, of a cold time
_L2 = 64 << 20  # bytes where the device does not say


def times(xp, entries, rounds):
    """({title: {"called" | "warm" | "cold" | "moved": median seconds of a call}}, {title: why it has no graph})."""
    turns, singles, without = {}, {}, {}
    for title, entry in entries.items():
        with patch.dict(os.environ, entry.environment):
            for _ in range(3):  # compile, choose an algorithm, fill caches
                entry.call()
            count = _count(_turn(xp, entry.call, 1))
            turns[title, "called"] = entry.call, count, 1
            turns[title, "moved"] = entry.moved, _count(_turn(xp, entry.moved, 1)), 1
            try:
                many = min(_CAPTURED, count)
                graph, single = entry.capture(entry.call, many), entry.capture(entry.call, 1)
            except Exception as error:
                without[title], singles[title] = str(error), entry.call
                continue
            graph()
            turns[title, "warm"], singles[title] = (graph, _count(_turn(xp, graph, 1)), many), single
    turn_seconds = {key: [] for key in turns}
    for _ in range(rounds):
        for key, (call, count, calls) in turns.items():
            with patch.dict(os.environ, entries[key[0]].environment):
                turn_seconds[key].append(_turn(xp, call, count) / calls)
    medians = {title: {} for title in entries}
    for (title, how), seconds in turn_seconds.items():
        medians[title][how] = median(seconds)
    for title, call in singles.items():
        with patch.dict(os.environ, entries[title].environment):
            medians[title]["cold"] = _cold(xp, call)
    return medians, without


def seconds(xp, call, rounds):
    """Return the median seconds of a call over `rounds` rounds."""
    call()
    count = _count(_turn(xp, call, 1))
    return median(_turn(xp, call, count) for _ in range(rounds))


def _count(once):
    return max(1, min(_CALLS, int(_LEAST / max(1e-9, once))))


def _cold(xp, call):
    buffer = xp.zeros(2 * xp.cuda.Device(0).attributes.get("L2CacheSize", _L2), "uint8")
    turn_seconds = []
    for i in range(_COLD):
        buffer.fill(i)
        turn_seconds.append(_turn(xp, call, 1))
    return median(turn_seconds)


def _turn(xp, call, count):
    begin, end = xp.cuda.Event(), xp.cuda.Event()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return xp.cuda.get_elapsed_time(begin, end) / 1000 / count
