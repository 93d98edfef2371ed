"""A process that measures a situation: `python -m benchmarks.beside.worker '{"kind": "beside", "busy": 1, ..}'`.

It writes one line of JSON: {what: [[Block of each call] of each round]}, or {"absent": why}.
"""

import json
import subprocess
import sys
import time

from .blocks import rounds
from .companions import COMPANIONS

_LOOP = "while True: pass"
_AFTER = 100e-6  # seconds after a call from which on the process should use no CPU
_WATCHED = 0.02  # seconds for which that is watched


def convolution():
    """(the call, how to set its number of threads): 48x48x96, 3x3, bits in and out; it is right before it is timed."""
    import numpy as np

    import quantarray as qa

    rng = np.random.default_rng(0)
    shapes = (1, 48, 48, 96), (96, 3, 3, 96)
    x, w = (qa.encode(rng.integers(0, 2, shape) * 2 - 1, (-1, 1)) for shape in shapes)
    cut = qa.Thresholds([0])

    def call():
        return qa.conv2d(x, w, padding=1, requantize=cut)

    sums = qa.conv2d(x, w, padding=1)
    for _ in range(100):
        assert ((call().dequantize() > 0) == (sums > 0)).all()
    return call, qa.set_num_threads


def beside(busy, threads, **how):
    """Time the convolution with one thread and with `threads`, beside `busy` processes that compute without end.

    Each of these has a session of its own: the kernel schedules it in a group of its own, as another user's.
    """
    call, set_threads = convolution()
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP], start_new_session=True) for _ in range(busy)]
    try:
        return rounds({str(n): [call] for n in (1, threads)}, **how, begin=lambda name: set_threads(int(name)))
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def turns(companion, first, threads, **how):
    """Time our call and the companion's, separately and in turns.

    The library `first`, "ours" or "theirs", is imported and called before the other one.
    """
    if first == "theirs":
        theirs = COMPANIONS[companion]()
        theirs()
    ours, set_threads = convolution()
    if first == "ours":
        theirs = COMPANIONS[companion]()
    situations = {"theirs alone": [theirs]}
    for n in (1, threads):
        situations |= {f"{n} alone": [ours], f"{n} in turns": [ours, theirs]}

    def begin(situation):
        n = situation.split()[0]
        if n.isdigit():
            set_threads(int(n))

    return rounds(situations, **how, begin=begin)


def left(companion, threads, count, seconds):
    """{call: seconds of CPU that the process uses in `_WATCHED` seconds, from `_AFTER` seconds after a call on}.

    The process itself sleeps meanwhile. "nothing" is what that takes where nothing was called.
    """
    calls = {"nothing": lambda: None}
    if companion:
        calls["theirs"] = COMPANIONS[companion]()
    calls["ours"], set_threads = convolution()
    set_threads(threads)
    seconds_used = {name: [] for name in calls}
    for _ in range(count * 5):
        for name, call in calls.items():
            for _ in range(5):
                call()
            end = time.perf_counter() + _AFTER
            while time.perf_counter() < end:
                pass
            before = time.process_time()
            time.sleep(_WATCHED)
            seconds_used[name].append(time.process_time() - before)
    return seconds_used


def main(kind, **arguments):
    try:
        result = {"beside": beside, "turns": turns, "left": left}[kind](**arguments)
    except ImportError as error:
        result = {"absent": f"not installed ({error})"}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
