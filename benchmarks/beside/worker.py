"""A process that measures one companion, or busy processes: `python -m benchmarks.beside.worker '{"busy": 1, ..}'`.

It writes one line of JSON: {situation: [[Block of each call] of each round]}, or why it cannot.
"""

import json
import subprocess
import sys

from .blocks import rounds
from .companions import COMPANIONS

_LOOP = "while True: pass"


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
    """One thread and more, alone or beside processes of other sessions, which are scheduling groups of their own."""
    call, set_threads = convolution()
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP], start_new_session=True) for _ in range(busy)]
    try:
        situations = {f"{n}": [call] for n in (1, threads)}
        return rounds(situations, **how, begin=lambda name: set_threads(int(name)))
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def companion(name, first, threads, **how):
    """Ours and the companion's, alone and turn by turn; the `first` to be imported and called is "ours" or "theirs"."""
    if first == "theirs":
        theirs = COMPANIONS[name]()
        theirs()
    ours, set_threads = convolution()
    ours()
    if first == "ours":
        theirs = COMPANIONS[name]()
    situations = {f"{name} alone": [theirs]}
    for n in (1, threads):
        situations |= {f"{n} alone": [ours], f"{n} in turns": [ours, theirs]}

    def begin(situation):
        n = situation.split()[0]
        if n.isdigit():
            set_threads(int(n))

    return rounds(situations, **how, begin=begin)


def main(told):
    try:
        found = beside(**told) if "busy" in told else companion(**told)
    except ImportError as error:
        found = {"absent": f"not installed ({error})"}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
