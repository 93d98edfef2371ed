"""Time functions of several arrays beside NumPy's, and beside reading the operands once.

python -m benchmarks.operations [--rounds N] [--elements N]
"""

import argparse
import time
from functools import partial

import numpy as np

import quantarray as qa
from quantarray.core.text import table
from quantarray.cpu.runtime import threads
from quantarray.cpu.runtime.schedule import Kernel

_PIECES = 64
LAYOUTS = {  # shape of n x 64 channels, packed axis, axes but channels
    "[n, c, hw], packed along hw": (lambda n: (n, 64, 9800), 2, (0, 2)),
    "[n, c, h, w], packed along w": (lambda n: (n, 64, 98, 100), 3, (0, 2, 3)),
    "[n, c, h, w], packed along c": (lambda n: (n, 64, 98, 100), 1, (0, 2, 3)),
    "[n, h, w, c], packed along c": (lambda n: (n, 98, 100, 64), 3, (0, 1, 2)),
}


@Kernel
def _read(words, out, first, last):
    total = 0
    for i in range(words.size * first // _PIECES, words.size * last // _PIECES):
        total ^= words[i]
    out[first] = total


def read(*arrays):
    """Read arrays once, by all threads."""
    for a in arrays:
        threads.run(_read, (a.reshape(-1).view(np.int64), np.zeros(_PIECES, np.int64)), _PIECES, threads.count())


def compared(ours, other, rounds):
    """Return the fastest time of each in ms, taken in turns, and their ratio."""
    times = [], []
    for _ in range(rounds + 1):  # the first compiles
        for function, listed in zip((ours, other), times, strict=True):
            start = time.perf_counter()
            function()
            listed.append(time.perf_counter() - start)
    least = [1e3 * min(listed[1:]) for listed in times]
    return [f"{least[0]:.2f}", f"{least[1]:.2f}", f"{least[0] / least[1]:.2f}"]


def _backward(dy, x):
    return dy, dy * x


def _moments(x):
    return x, x * x


def reductions(elements, rounds):
    """Yield rows of batch norm's sums."""
    rng = np.random.default_rng(0)
    for name, (shape_of, axis, over) in LAYOUTS.items():
        shape = shape_of(max(1, round(elements / (64 * 9800))))
        q = qa.from_codes(rng.integers(0, 4, shape, np.uint8), qa.uint2, axis)
        dy, x = rng.standard_normal(shape, np.float32), q.dequantize().astype(np.float32)
        ours = partial(qa.map_reduce, _backward, dy, q, axis=over)
        yield [f"sums of dy and dy * x, {name}", *compared(ours, partial(read, q.words, dy), rounds)]
        ours = partial(qa.map_reduce, _moments, q, axis=over, reduce="mean")
        yield [f"mean and variance, {name}", *compared(ours, partial(_numpy_moments, x, over), rounds)]


def _numpy_moments(x, over):
    return x.mean(over), x.var(over)


def elementwise(elements, rounds):
    """Yield rows of sums, extremes and comparisons of two arrays, beside NumPy on int8."""
    rng = np.random.default_rng(0)
    for dtype in (qa.uint4, qa.uint7):
        a, b = (rng.integers(0, dtype.n_levels, elements, np.uint8).view(np.int8) for _ in range(2))
        p, q = (qa.from_codes(codes.view(np.uint8), dtype) for codes in (a, b))
        for name in ("add", "subtract", "maximum", "less"):
            ours, other = partial(getattr(qa, name), p, q), partial(getattr(np, name), a, b)
            yield [f"{name} of two {dtype.name}", *compared(ours, other, rounds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--elements", type=int, default=10**7)
    args = parser.parse_args()
    print(f"{threads.count()} threads; ms, fastest of {args.rounds}")
    header = ["call", "quantarray", "reading, or NumPy", "ratio"]
    rows = [*reductions(args.elements, args.rounds), *elementwise(args.elements, args.rounds)]
    print(table(header, rows, indent=""))


if __name__ == "__main__":
    main()
