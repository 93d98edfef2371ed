"""Time how fast values become packed codes, and how fast LQ-Nets constants are fitted.

    python -m benchmarks quantizers [--only TEXT] [--small | --large] [--alone] [--rounds N] [--json OUT]

Each scheme with given constants or with those of the least and the largest value: `quantize` against NumPy's own calls
for the same codes (uint8, unpacked, with no look for a NaN) on arrays of 10^3 to 10^6 elements, and from 10^7 on
against a copy of the float32 array by `np.copyto`, as a share of the copy's speed. Contenders take turns; times are
minima, since other processes share the machine. Fitted schemes get another array each call. Fitting LQ at 3 bits on
10 M values is compared with `np.sort` of them.
"""

import argparse
import json
import time
from itertools import cycle

import numba
import numpy as np

import quantarray as qa
from quantarray.quantizers.normal_float import normal_levels

SMALL, LARGE = (1024, 6912, 10_240, 102_400, 1_024_000), (10_240_000, 30_720_000)
ROWS, GROUP = 16, 256
ARRAYS = 300  # more than `quantize` keeps thresholds of


def sign(x):
    return (x >= 0).astype(np.uint8)


def mean_sign(x):
    return np.abs(x).mean(), sign(x)


def even(bits, step=None, signed=True, axis=None):
    """Return a function that rounds to evenly spaced levels, symmetric ones or from 0 on, and gives their codes."""
    top = max(1, 2 ** (bits - 1) - 1) if signed else 2**bits - 1
    low = -top if signed else 0

    def codes(x):
        scale = step or (np.abs(x).max(axis=axis, keepdims=axis is not None) if signed else x.max()) / top
        return (np.clip(np.rint(x / scale), low, top) - low).astype(np.uint8)

    return codes


def affine(bits, axis=None):
    top = 2**bits - 1

    def codes(x):
        low, high = x.min(axis=axis, keepdims=axis is not None), x.max(axis=axis, keepdims=axis is not None)
        step = (high - low) / top
        return np.clip(np.rint(x / step) + np.rint(-low / step), 0, top).astype(np.uint8)

    return codes


def midrise(bits):
    half = 2 ** (bits - 1)
    return lambda x: (np.clip(np.floor(x / (np.abs(x).max() / (half - 0.5))), -half, half - 1) + half).astype(np.uint8)


def dorefa(bits):
    def codes(x):
        t = np.tanh(x)
        return np.rint((2**bits - 1) * (t / (2 * np.abs(t).max()) + 0.5)).astype(np.uint8)

    return codes


def nearest(levels):
    """Return a function that gives the codes of the nearest of `levels` times max |x|."""
    middle = (levels[1:] + levels[:-1]) / 2
    return lambda x: np.searchsorted((middle * np.abs(x).max()).astype(x.dtype), x).astype(np.uint8)


def powers(bits):
    exponents = 2 ** (bits - 1) - 1
    middle = 0.75 * 2.0 ** -np.arange(exponents)[::-1]

    def codes(x):
        _, exponent = np.frexp(np.abs(x).max() / 0.75)
        place = np.searchsorted((np.ldexp(middle, exponent - 1)).astype(x.dtype), np.abs(x), side="right")
        return np.where(x < 0, exponents - place, exponents + place).astype(np.uint8)

    return codes


def steps(shifts):
    def codes(x):
        codes_of_x = np.zeros(x.shape, np.uint8)
        for n, shift in enumerate(shifts):
            codes_of_x |= (x >= 0.5 - shift).astype(np.uint8) << np.uint8(n)
        return codes_of_x

    return codes


def ternary(x):
    size = np.abs(x)
    above = size > 0.7 * size.mean()
    return size[above].mean(), np.where(above, np.where(x > 0, 2, 0), 1).astype(np.uint8)


def grouped(bits, stochastic):
    rng, top = np.random.default_rng(0), 2**bits - 1

    def codes(x):
        groups = x.reshape(-1, GROUP)
        low, high = groups.min(axis=1, keepdims=True), groups.max(axis=1, keepdims=True)
        u = rng.random(groups.shape, np.float32) if stochastic else np.float32(0.5)
        return np.clip((groups - low) / ((high - low) / top) + u, 0, top).astype(np.uint8)

    return codes


SHIFTS = [-1.0, -0.5, 0.0, 0.5, 1.0]
SCHEMES = [  # (quantiser, NumPy's calls, arguments)
    (qa.Sign(), sign, {}),
    (qa.Sign(scale=0.5), sign, {}),
    (qa.Sign(scale=True), mean_sign, {}),
    (qa.XNOR(), lambda x: (np.abs(x).mean(axis=1), sign(x)), {"scale_axis": 0}),
    (qa.Ternary(), ternary, {}),
    *((qa.Uniform(bits, step=0.1), sign if bits == 1 else even(bits, 0.1), {}) for bits in range(1, 9)),
    *((qa.Uniform(bits), even(bits), {}) for bits in range(1, 9)),
    *((qa.Uniform(bits), even(bits, axis=1), {"scale_axis": 0}) for bits in (4, 8)),
    *((qa.Uniform(bits, symmetric=False), affine(bits), {}) for bits in (2, 4, 8)),
    (qa.Uniform(8, symmetric=False), affine(8, axis=1), {"scale_axis": 0}),
    (qa.Uniform(8, signed=False), even(8, signed=False), {}),
    (qa.Uniform(4, midrise=True), midrise(4), {}),
    (qa.PACT(4, alpha=2.0), even(4, 2 / 15, signed=False), {}),
    (qa.PACT(8, alpha=2.0), even(8, 2 / 255, signed=False), {}),
    (qa.PACT(4), even(4, signed=False), {}),
    (qa.DoReFa(2, activations=True), even(2, 1 / 3, signed=False), {}),
    (qa.DoReFa(4), dorefa(4), {}),
    (qa.ABCActivations(SHIFTS, [1.0] * len(SHIFTS)), steps(SHIFTS), {}),
    (qa.NormalFloat(4), nearest(normal_levels(4)), {}),
    (qa.NormalFloat(8), nearest(normal_levels(8)), {}),
    (qa.PowerOfTwo(4), powers(4), {}),
    (qa.PowerOfTwo(8), powers(8), {}),
    (qa.Grouped(2), grouped(2, True), {}),
    (qa.Grouped(4, stochastic=False), grouped(4, False), {}),
]
DTYPES = [(qa.Uniform(8), even(8)), (qa.Uniform(4, step=0.1), even(4, 0.1))]  # of float64 and float16 too


def cases():
    """(name, quantiser, NumPy's calls, arguments, dtype)."""
    for quantizer, calls, arguments in SCHEMES:
        named = ", ".join(f"{name}={value}" for name, value in arguments.items())
        yield f"{quantizer!r} {named}".strip(), quantizer, calls, arguments, np.float32
    for dtype in (np.float64, np.float16):
        for quantizer, calls in DTYPES:
            yield f"{quantizer!r} of {dtype.__name__}", quantizer, calls, {}, dtype


def in_turns(calls, rounds, clock=time.perf_counter):
    """Time the calls in turns and return the least seconds of each."""
    least, counts = {}, {}
    for name, call in calls.items():
        for _ in range(2):  # the first compiles, or prepares
            start = clock()
            call()
            least[name] = clock() - start
        counts[name] = max(1, int(1e-3 / least[name]))
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            for _ in range(counts[name]):
                call()
            least[name] = min(least[name], (clock() - start) / counts[name])
    return least


def arrays(n, rows, fixed, dtype):
    """Return arrays for successive calls: several if the scheme is fitted and the arrays are small, otherwise one."""
    rng = np.random.default_rng(0)
    many = 1 if fixed or n > max(SMALL[:3]) else ARRAYS
    return [rng.standard_normal((rows, n // rows), np.float32).astype(dtype) for _ in range(many)]


def encoding(sizes, only, rounds, clock):
    """Yield rows {"scheme", "elements", "seconds", and "numpy" or "copy": seconds}."""
    for name, quantizer, calls, arguments, dtype in cases():
        for n in sizes if only in name else ():
            xs = arrays(n, 1 if quantizer.group else ROWS, quantizer.fixed, dtype)
            ours, theirs = cycle(xs), cycle(xs)
            source = np.ones(n, np.float32)
            target = np.empty_like(source)
            contenders = {
                "seconds": lambda q=quantizer, a=arguments, xs=ours: qa.quantize(next(xs), q, **a),
                **({"copy": lambda a=target, b=source: np.copyto(a, b)} if n in LARGE else {}),
                **({} if n in LARGE else {"numpy": lambda f=calls, xs=theirs: f(next(xs))}),
            }
            yield {"scheme": name, "elements": n} | in_turns(contenders, rounds, clock)


def fitting(rounds):
    x = np.random.default_rng(0).standard_normal(10_000_000).astype(np.float32)
    return in_turns({"np.sort": lambda: np.sort(x), "LQ(3).fit": lambda: qa.LQ(3).fit(x, (0,))}, rounds)


def table(rows):
    """Format rows as Markdown: microseconds, and the time over NumPy's or the share of a copy's speed."""
    sizes = sorted({row["elements"] for row in rows})
    lines = [f"| scheme | {' | '.join(f'{n:,}' for n in sizes)} |", "|---|" + "---|" * len(sizes)]
    for name in dict.fromkeys(row["scheme"] for row in rows):
        cells = {row["elements"]: cell(row) for row in rows if row["scheme"] == name}
        lines.append(f"| `{name}` | {' | '.join(cells.get(n, '') for n in sizes)} |")
    return "\n".join(lines)


def cell(row):
    against = f"{row['seconds'] / row['numpy']:.1f}x" if "numpy" in row else f"{row['copy'] / row['seconds']:.0%}"
    return f"{row['seconds'] * 1e6:,.0f} us, {against}"


def parser(add):
    subparser = add(
        "quantizers", help="quantisers against NumPy's calls and a copy", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    subparser.add_argument("--only", default="", help="schemes whose name has this in it")
    size = subparser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="up to 10^6 elements")
    size.add_argument("--large", action="store_true", help="from 10^7 elements on")
    subparser.add_argument("--rounds", type=int, default=15)
    subparser.add_argument(
        "--alone", action="store_true", help="one thread and its CPU time, where others use the machine"
    )
    subparser.add_argument("--json", help="write the rows to this file")
    subparser.set_defaults(run=main)


def main(args):
    sizes = LARGE if args.large else SMALL if args.small else SMALL + LARGE
    if args.alone:
        numba.set_num_threads(1)
    rows = list(encoding(sizes, args.only, args.rounds, time.thread_time if args.alone else time.perf_counter))
    print(table(rows))
    fitted = {} if args.only or args.small else fitting(max(1, args.rounds // 2))
    for name, seconds in fitted.items():
        print(f"\n{name}: {seconds * 1e3:.0f} ms, {seconds / fitted['np.sort']:.2f} sorts")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"encoding": rows, "fitting": fitted}, f, indent=1)
