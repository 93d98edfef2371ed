"""Convolutions of 1-bit arrays, and of 3-mask by 3-mask ABC-Net ones, against PyTorch's float32, whole public calls.

    python -m benchmarks.conv2d [--threads N] [--rounds N] [--json OUT]

Outputs are compared first. The libraries take turns in one process, and the row shows medians and their ratio; the
best of PyTorch's two memory formats counts. Needs torch (the `train` extra).
"""

import argparse
import json
import statistics
import time

import numba
import numpy as np
import torch

import quantarray as qa

SHAPES = [(1, 56, 64), (1, 28, 128), (1, 14, 256), (1, 7, 512), (16, 56, 64)]
BASES = [3, 5]  # kernel sizes of the multi-base convolution, 28x28x128 to 128


def cases(batch, size, channels):
    """(name, call) of each contender on the same values."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], (batch, size, size, channels))
    w = rng.choice([-1, 1], (channels, 3, 3, channels))
    a, b = qa.encode(x, values=(-1, 1)), qa.encode(w, values=(-1, 1))
    zero = qa.Thresholds([0])
    image = torch.tensor(x.transpose(0, 3, 1, 2).copy()).float()
    weight = torch.tensor(w.transpose(0, 3, 1, 2).copy()).float()
    last = [t.to(memory_format=torch.channels_last) for t in (image, weight)]
    expected = torch.nn.functional.conv2d(image, weight, padding=1).numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(qa.conv2d(a, b, padding=1), expected)
    assert np.array_equal(qa.conv2d(a, b, padding=1, requantize=zero).codes(), expected > 0)
    return {
        "bits": lambda: qa.conv2d(a, b, padding=1, requantize=zero),
        "int32": lambda: qa.conv2d(a, b, padding=1),
        "torch NCHW": lambda: torch.nn.functional.conv2d(image, weight, padding=1),
        "torch NHWC": lambda: torch.nn.functional.conv2d(*last, padding=1),
    }


def multi_base(size):
    """The same for weights of 3 masks, activations of 3 shifted steps, float32 or 3-bit codes out."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 28, 28, 128)), rng.standard_normal((128, size, size, 128))
    a = qa.quantize(x, qa.ABCActivations([-1, 0, 1], [0.5, 0.7, 0.4]))
    b = qa.quantize(w, qa.ABC(3), scale_axis=0)
    found = qa.conv2d(a, b, padding=size // 2)
    cuts = qa.Thresholds(np.quantile(found, np.arange(1, 8) / 8), into=qa.basis(3), scale=[1.0, 2.0, 4.0])
    image, weight = (torch.tensor(q.dequantize().transpose(0, 3, 1, 2).copy()) for q in (a, b))
    last = [t.to(memory_format=torch.channels_last) for t in (image, weight)]
    expected = torch.nn.functional.conv2d(image, weight, padding=size // 2).numpy().transpose(0, 2, 3, 1)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())
    assert qa.array_equal(qa.conv2d(a, b, padding=size // 2, requantize=cuts), cuts(found))
    return {
        "codes": lambda: qa.conv2d(a, b, padding=size // 2, requantize=cuts),
        "float32": lambda: qa.conv2d(a, b, padding=size // 2),
        "torch NCHW": lambda: torch.nn.functional.conv2d(image, weight, padding=size // 2),
        "torch NHWC": lambda: torch.nn.functional.conv2d(*last, padding=size // 2),
    }


def measure(calls, rounds):
    """Median microseconds of each call, in turns of five so that drift falls on all."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(5):
                start = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    numba.set_num_threads(args.threads)
    torch.set_num_threads(args.threads)
    rows = []
    print(f"{'3x3, bits':>16} {'bits us':>9} {'int32 us':>9} {'torch us':>9} {'torch/bits':>11} {'T products/s':>13}")
    with torch.no_grad():
        for batch, size, channels in SHAPES:
            us = measure(cases(batch, size, channels), args.rounds)
            torch_us = min(us["torch NCHW"], us["torch NHWC"])
            rate = batch * size * size * channels * channels * 9 / us["bits"] / 1e6
            rows.append({"batch": batch, "size": size, "channels": channels, "threads": args.threads, "us": us})
            name = f"{batch}x{size}x{size}x{channels}"
            print(
                f"{name:>16} {us['bits']:>9.0f} {us['int32']:>9.0f} {torch_us:>9.0f} {torch_us / us['bits']:>11.1f} "
                f"{rate:>13.2f}"
            )
        print(f"{'ABC 3 by 3':>16} {'codes us':>9} {'float us':>9} {'torch us':>9} {'torch/float':>11}")
        for size in BASES:
            us = measure(multi_base(size), args.rounds)
            torch_us = min(us["torch NCHW"], us["torch NHWC"])
            rows.append({"multi_base": [3, 3], "kernel": size, "threads": args.threads, "us": us})
            name = f"{size}x{size} 28x28x128"
            print(
                f"{name:>16} {us['codes']:>9.0f} {us['float32']:>9.0f} {torch_us:>9.0f} "
                f"{torch_us / us['float32']:>11.2f}"
            )
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
