"""Time each launch of a prepared network's compiled calls on this CPU.

    python -m tools.launches dorefa_mobilenet_v2 [--batch 8] [--threads 2] [--seconds 2]

Each launch runs by itself, in order, on the memory that those before it left, so that the next one finds in the cache
what it finds in a call; the median of all turns is printed, with the shapes of the arrays that it reads and writes.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.nn.plan import part
from quantarray.nn.plan.recording import parts_of


def timed_plan(net: Any, x: Any) -> list[tuple[str, list[Any]]]:
    """Return the launches of a prepared network's plan for x: a label, and its step as a list for a `Driver`."""
    real, labelled = part.runtime(), []

    class Launch(real.Launch):  # type: ignore[misc, name-defined]
        def __init__(self, kernel: Any, arguments: Any, held: Any) -> None:
            super().__init__(kernel, arguments, held)
            function = kernel.compiled.py_func
            shapes = [f"{a.dtype.str[1:]}{list(a.shape)}" for a in parts_of(arguments) if isinstance(a, np.ndarray)]
            name = f"{function.__module__.removeprefix('quantarray.cpu.')}.{function.__name__}"
            self.label = f"{name:42} {' '.join(shapes[:8])}"

    class Driver(real.Driver):  # type: ignore[misc, name-defined]
        def __init__(self, steps: Any) -> None:
            super().__init__(steps)
            for step in steps:
                label = f"clear {step.nbytes}" if isinstance(step, np.ndarray) else step[0].label
                labelled.append((label, [step]))

    part.runtime = lambda: type(real)(**{**vars(real), "Launch": Launch, "Driver": Driver})
    try:
        prepared = net.prepared()
        prepared(x), prepared(x)
    finally:
        part.runtime = lambda: real
    labelled.append(("", [prepared]))  # whose memory is used
    return labelled


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, help="of an image, for models that take one")
    parser.add_argument("--seconds", type=float, default=2)
    chosen = parser.parse_args()
    net = getattr(qa.nn.models, chosen.network)(**({"size": chosen.size} if chosen.size else {}))
    rng = np.random.default_rng(0)
    shape = (chosen.batch, *net.inputs[0].shape[1:])
    qa.set_num_threads(chosen.threads)
    x = rng.integers(0, 256, shape).astype(np.uint8)
    *launches, _ = timed_plan(net, x)
    drivers = [part.runtime().Driver(steps) for _, steps in launches]
    turns, end = [], time.perf_counter() + chosen.seconds
    while time.perf_counter() < end:
        times = []
        for driver in drivers:
            start = time.perf_counter()
            driver.run()
            times.append(time.perf_counter() - start)
        turns.append(times)
    medians = np.percentile(turns, 10, axis=0) * 1e6
    for (label, _), microseconds in zip(launches, medians, strict=True):
        print(f"{microseconds:8.1f}  {label}")
    print(f"{medians.sum():8.1f}  us in all, of {len(turns)} turns")


if __name__ == "__main__":
    main()
