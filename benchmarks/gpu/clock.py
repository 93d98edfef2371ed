"""Times by events of the device, in turns, so that clocks that rise or fall do so for all."""

from statistics import median

_LEAST, _CALLS = 2e-3, 1000  # seconds of a turn, so that a launch counts little; calls of one at most


def seconds(xp, calls, rounds):
    """Median seconds of a call for each of {title: call}, whose turns alternate."""
    counts = {}
    for title, call in calls.items():
        for _ in range(3):  # compile, choose an algorithm, fill caches
            call()
        counts[title] = max(1, min(_CALLS, int(_LEAST / max(1e-9, _turn(xp, call, 1)))))
    times = {title: [] for title in calls}
    for _ in range(rounds):
        for title, call in calls.items():
            times[title].append(_turn(xp, call, counts[title]))
    return {title: median(found) for title, found in times.items()}


def _turn(xp, call, count):
    begin, end = xp.cuda.Event(), xp.cuda.Event()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return xp.cuda.get_elapsed_time(begin, end) / 1000 / count
