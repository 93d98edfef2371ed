"""Count how often the cost model picks a kernel that is not the fastest, by timing every kernel twice.

    python -m benchmarks.cost_model [--cases common|drawn] [--threads N] [--json OUT]
    python -m benchmarks.cost_model --unit

A row of docs/measurements/cost-model.md, and the cases in which the model's kernel was the slowest compared with the
best one. A choice is wrong where it is slower in both rounds; the gain is that of kernels chosen in the first round, in
the second.
"""

import argparse
import json
import math
import statistics
import sys
import time
from itertools import product
from typing import NamedTuple

import numpy as np

import quantarray as qa
from quantarray.backends import kernel_choice
from quantarray.cpu.runtime import isa

BITS = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (3, 3), (4, 4), (8, 1), (8, 8)]
# images, size, channels, outputs, window, stride, groups
CONVS = [
    (1, 56, 64, 64, 3, 1, 1), (1, 28, 128, 128, 3, 1, 1), (1, 14, 256, 256, 3, 1, 1), (1, 7, 512, 512, 3, 1, 1),
    (16, 28, 128, 128, 3, 1, 1), (16, 14, 256, 256, 3, 1, 1), (1, 28, 256, 256, 1, 1, 1), (1, 56, 64, 128, 1, 2, 1),
    (1, 56, 64, 128, 3, 2, 1), (1, 28, 128, 128, 3, 1, 4), (1, 28, 128, 128, 5, 1, 1), (4, 14, 128, 256, 3, 2, 1),
]  # fmt: skip
DENSE = [(1, 4096, 4096), (8, 1024, 1024), (64, 1024, 1024), (256, 256, 256), (1, 512, 1000), (128, 4096, 512)]
DRAWN = 150
SAMPLE = 2e-4  # seconds of a sample: short calls are repeated, so that the clock and cold caches weigh little
BUDGET = 0.2  # seconds that the samples of a call may take, unless the least number of rounds takes longer
LEAST, MOST = 5, 25  # rounds
LEAST_GAIN, LEAST_WON = 1.02, 0.8


class Case(NamedTuple):
    """A call, as a function of its weights: a view of them prepares it again."""

    text: str
    w: qa.QuantArray
    call: object


class Row(NamedTuple):
    """A record of a call: microseconds by kernel, the fastest of them, and the one that the cost model takes."""

    case: str
    us: dict[str, float]
    kernel: str
    model: str


def levels(bits, signed):
    low = -(2 ** (bits - 1)) if signed else 0
    return (-1, 1) if bits == 1 else range(low, low + 2**bits)


def convolution(rng, bits, images, size, channels, outputs, window, stride, groups, threshold=False):
    x = qa.encode(rng.choice(levels(bits[0], False), (images, size, size, channels)), levels(bits[0], False))
    shape = outputs, window, window, channels // groups
    w = qa.encode(rng.choice(levels(bits[1], True), shape), levels(bits[1], True))
    options = {"padding": window // 2, "stride": stride, "groups": groups}
    options["requantize"] = qa.Thresholds([0]) if threshold else None
    return Case(f"conv2d {x.dtype} {x.shape} {w.dtype} {w.shape} {options}", w, lambda w: qa.conv2d(x, w, **options))


def dense(rng, bits, rows, k, outputs):
    x = qa.encode(rng.choice(levels(bits[0], False), (rows, k)), levels(bits[0], False))
    w = qa.encode(rng.choice(levels(bits[1], True), (outputs, k)), levels(bits[1], True))
    return Case(f"linear {x.dtype} {x.shape} {w.dtype} {w.shape}", w, lambda w: qa.linear(x, w))


def common(rng):
    """ResNet-18's shapes and other usual ones, with ten pairs of bits."""
    for bits, shape in product(BITS, CONVS):
        yield convolution(rng, bits, *shape)
    for bits, shape in product(BITS, DENSE):
        yield dense(rng, bits, *shape)


def drawn(rng):
    """Yield calls of random convolutions."""
    for _ in range(DRAWN):
        bits, window = rng.integers(1, 9, 2).tolist(), int(rng.choice([1, 3, 3, 3, 5]))
        size, groups = int(rng.integers(max(window, 4), 40)), int(rng.choice([1, 1, 1, 2, 4]))
        channels, outputs = (int(rng.integers(groups, 300)) // groups * groups for _ in range(2))
        images, stride, threshold = int(rng.choice([1, 1, 4, 8])), int(rng.choice([1, 1, 2])), rng.random() < 0.4
        yield convolution(rng, bits, images, size, channels, outputs, window, stride, groups, threshold)


def timed(cases):
    """Return the row of each case, or None if only one kernel is possible."""
    rows = []
    for n, case in enumerate(cases):
        if sys.stderr.isatty():
            print(f"\r{n + 1} calls timed", end="", file=sys.stderr)
        rows.append(row(case))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return rows


def row(case):
    """Time a call by each kernel, each with a view of the weights, whose layout is freed afterwards.

    The model's kernel stays unless another is surely faster: by 2 % at the median, and in more than four rounds of
    five. Beside other work medians alone are a lottery: samples are then as long as the scheduler's slices.
    """
    with kernel_choice.heard() as questions:
        case.call(case.w._view())
    names = list(dict.fromkeys(name for question in questions for name in question.candidates))
    if len(names) < 2:
        return None
    samples = in_turns({name: prepared(case, name) for name in names})
    us = {name: round(statistics.median(times), 2) for name, times in samples.items()}
    model, fastest = questions[-1].model, min(us, key=us.__getitem__)
    won = sum(a < b for a, b in zip(samples[fastest], samples[model], strict=True))
    faster = us[model] > LEAST_GAIN * us[fastest] and won > LEAST_WON * len(samples[model])
    return Row(case.text, us, fastest if faster else model, model)


def prepared(case, name):
    """Return a function that makes a call by one kernel."""
    w = case.w._view()
    with kernel_choice.forced(name):
        case.call(w)
    return lambda: case.call(w)


def in_turns(runs):
    """Time calls in turns, so that a change of the machine's speed affects all: microseconds of each by round."""
    calls = {name: (once := seconds(run, 1), max(1, int(SAMPLE / max(once, 1e-7)))) for name, run in runs.items()}
    rounds = min(MOST, max(LEAST, int(BUDGET / sum(once * n for once, n in calls.values()))))
    samples = {name: [] for name in runs}
    for done in range(rounds):
        for name in runs if done % 2 else reversed(runs):
            samples[name].append(1e6 * seconds(runs[name], calls[name][1]))
    return samples


def seconds(run, calls):
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls


def summary(first, second):
    """(numbers of both rounds, [(how much slower the model's kernel was, row)] from the worst on)."""
    both = [(a, b) for a, b in zip(first, second, strict=True) if a and b]
    slower = sorted(
        ((min(row.us[row.model] / min(row.us.values()) for row in pair), pair[0]) for pair in both),
        key=lambda pair: -pair[0],
    )
    gains = [math.log(b.us[a.model] / b.us[a.kernel]) for a, b in both]
    numbers = {
        "cases": len(both),
        "wrong by 5 %": sum(by > 1.05 for by, _ in slower),
        "wrong by 20 %": sum(by > 1.2 for by, _ in slower),
        "the worst": round(slower[0][0], 2),
        "mean gain, %": round(100 * (math.exp(sum(gains) / len(gains)) - 1), 1),
    }
    return numbers, slower


def unit():
    """Measure how many nanoseconds a unit of the cost model takes, on one thread.

    Returns a median for each of six 3x3 convolutions of ResNet-18 on bits.
    """
    rng, nanoseconds = np.random.default_rng(7), []
    qa.set_num_threads(1)
    for images, size, channels, outputs, window, stride, groups in CONVS[:6]:
        x = qa.encode(rng.choice((-1, 1), (images, size, size, channels)), (-1, 1))
        w = qa.encode(rng.choice((-1, 1), (outputs, window, window, channels // groups)), (-1, 1))
        how = qa.explain(qa.conv2d, x, w, padding=window // 2, stride=stride, groups=groups)
        times = []
        for _ in range(51):
            began = time.perf_counter()
            qa.conv2d(x, w, padding=window // 2, stride=stride, groups=groups)
            times.append(time.perf_counter() - began)
        nanoseconds.append(1e9 * statistics.median(times) / how.kernels[0].units)
    return nanoseconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", choices=("common", "drawn"), default="common")
    parser.add_argument("--threads", type=int, default=qa.get_num_threads())
    parser.add_argument("--unit", action="store_true", help="measure the unit of costs, for UNIT_NS of cpu/costs.py")
    parser.add_argument("--json", metavar="OUT", help="write all rows of both rounds to a file")
    args = parser.parse_args()
    if args.unit:
        nanoseconds = unit()
        least, most = min(nanoseconds), max(nanoseconds)
        print(f"{isa.NAME}: {statistics.median(nanoseconds):.2f} ns a unit ({least:.2f} to {most:.2f})")
        return
    qa.set_num_threads(args.threads)
    make = {"common": common, "drawn": drawn}[args.cases]
    rounds = [timed(make(np.random.default_rng(7))) for _ in range(2)]
    numbers, slower = summary(*rounds)
    print(f"{args.cases}, {args.threads} threads:", ", ".join(f"{name} {n}" for name, n in numbers.items()))
    for by, row in slower[:10]:
        times = ", ".join(f"{name} {us:.0f}" for name, us in row.us.items())
        print(f"  {by:.2f}x  {row.case}: {times} us, the model's is {row.model}")
    if args.json:
        rows = [[row and row._asdict() for row in timings] for timings in rounds]
        with open(args.json, "w") as file:
            json.dump({"numbers": numbers, "rounds": rows}, file, indent=1)


if __name__ == "__main__":
    main()
