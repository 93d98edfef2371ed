"""Compare two places of the planes of a multi-bit array: outermost, or beside the words of each pixel.

    python -m benchmarks.plane_order [--json OUT]

Both layouts are convolved (3x3, interior pixels, K x 1 bit, 64 output channels) by the package's own inner loop, in
alternating rounds on one thread; the times are medians. `docs/decisions/0002-plane-order.md` quotes the result.
"""

import argparse
import json
import statistics
import time

import numpy as np
from numba import njit

from quantarray.cpu.llvm.vectors import LANES, TILE
from quantarray.cpu.llvm.views import Counted, Planes, Rows, RunSpan, View
from quantarray.cpu.popcount.count_tile import count_tile, plane_counts
from quantarray.cpu.popcount.tiles import IN_REGISTERS

BLOCKS = 2  # 64 output channels


@njit(nogil=True, error_model="numpy")
def convolve(words, plane_step, pixel_step, height, width, planes, weights, runs, out):
    """Count every interior pixel; `runs` are the nine taps, merged where the layout allows."""
    origins, counts = np.empty(TILE, np.int64), np.empty((TILE, LANES), np.int64)
    size = weights.shape[1] * LANES
    for y in range(height - 2):
        for x in range(0, width - 2 - TILE, TILE):
            for p in range(TILE):
                origins[p] = (y * width + x + p) * pixel_step
            for block in range(BLOCKS):
                for plane in range(planes):
                    if IN_REGISTERS:
                        one, span = Planes(words, plane * plane_step, 1, 0), RunSpan(runs, 0, len(runs))
                        tile = Counted(one, View(origins, 0), Rows(weights, block * size, 0), span, 0)
                        plane_counts(tile, counts, LANES)
                    else:
                        tile, column = View(words, plane * plane_step), View(weights, block * size)
                        count_tile(tile, View(origins, 0), column, RunSpan(runs, 0, len(runs)), 0, counts)
                    out[y, x] += counts[0, 0]


def taps(width, words, pixel_step, merged):
    """Return the runs (word from the origin, word of the weight, length) of a 3x3 window."""
    if merged:
        return np.array([(a * width * pixel_step, a * 3 * words, 3 * words) for a in range(3)])
    return np.array([((a * width + b) * pixel_step, (a * 3 + b) * words, words) for a in range(3) for b in range(3)])


def measure(height, channels, planes, rounds):
    """Return the median microseconds of both layouts: (planes outermost, planes beside the words of each pixel)."""
    words = channels // 64
    rng = np.random.default_rng(0)
    image = rng.integers(0, 2**63, height * height * planes * words).astype(np.uint64)
    weights = rng.integers(0, 2**63, (BLOCKS, 9 * words, LANES)).astype(np.uint64)
    layouts = [
        (height * height * words, words, taps(height, words, words, True)),
        (words, planes * words, taps(height, words, planes * words, False)),
    ]
    out = np.zeros((height, height), np.int64)
    times = ([], [])
    for _ in range(rounds + 1):
        for mine, (plane_step, pixel_step, runs) in zip(times, layouts, strict=True):
            start = time.perf_counter()
            convolve(image, plane_step, pixel_step, height, height, planes, weights, runs, out)
            mine.append((time.perf_counter() - start) * 1e6)
    return [statistics.median(t[1:]) for t in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    rows = []
    print(f"{'image':>12} {'bits':>5} {'outermost us':>13} {'beside us':>10} {'beside/outermost':>17}")
    for height, channels in ((56, 64), (28, 128), (14, 256), (14, 512)):
        for planes in (2, 4, 8):
            outermost, beside = measure(height, channels, planes, args.rounds)
            rows.append({"height": height, "channels": channels, "bits": planes, "us": [outermost, beside]})
            shape = f"{height}x{height}x{channels}"
            print(f"{shape:>12} {planes:>5} {outermost:>13.1f} {beside:>10.1f} {beside / outermost:>17.2f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
