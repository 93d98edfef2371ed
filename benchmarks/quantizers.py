"""How fast values become packed codes, and LQ-Nets constants are fitted.

    python -m benchmarks.quantizers [--json OUT]

Encoding 100 MB of float32 with given constants against a read-only pass (a maximum over the same array on as many
threads); fitting LQ at 3 bits on 10 M values against `np.sort` of them. Contenders take turns; times are medians.
"""

import argparse
import json
import statistics
import time

import numpy as np
from numba import njit, prange

import quantarray as qa

_PIECES = 8


@njit(parallel=True, nogil=True)
def read(x, largest):
    """The maximum of each piece of x: every value is read once and nothing is written."""
    for piece in prange(largest.size):
        top = np.uint32(0)
        for i in range(np.uint64(x.size * piece // largest.size), np.uint64(x.size * (piece + 1) // largest.size)):
            top = max(top, x[i])
        largest[piece] = top


def in_turns(calls, rounds):
    """Median milliseconds of each call."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(t) for name, t in times.items()}


def encoding():
    x = np.random.default_rng(0).standard_normal((1000, 25_000)).astype(np.float32)
    whole, largest = x.reshape(-1).view(np.uint32), np.zeros(_PIECES, np.uint32)
    schemes = {"Sign()": qa.Sign(), "LQ(2)": qa.LQ(2, basis=[0.5288, 0.9816]), "Uniform(4)": qa.Uniform(4, step=0.3)}
    calls = {"read": lambda: read(whole, largest)}
    calls |= {name: lambda scheme=scheme: qa.quantize(x, scheme) for name, scheme in schemes.items()}
    return in_turns(calls, 15)


def fitting():
    x = np.random.default_rng(0).standard_normal(10_000_000).astype(np.float32)
    return in_turns({"np.sort": lambda: np.sort(x), "LQ(3).fit": lambda: qa.LQ(3).fit(x, (0,))}, 7)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    encoded, fitted = encoding(), fitting()
    for name, ms in encoded.items():
        print(
            f"{name:>12} {ms:>8.2f} ms  {0.1 / ms * 1e3:>6.1f} GB/s  {encoded['read'] / ms:>6.0%} of the read-only pass"
        )
    for name, ms in fitted.items():
        print(f"{name:>12} {ms:>8.2f} ms  {ms / fitted['np.sort']:>6.2f} sorts")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"encoding_ms": encoded, "fitting_ms": fitted}, f, indent=1)


if __name__ == "__main__":
    main()
