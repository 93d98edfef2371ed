"""Time each launch of a prepared network's compiled calls on this CPU.

    python -m tools.launches dorefa_mobilenet_v2 [--batch 8] [--threads 2] [--seconds 2]

Each launch runs by itself, in order, on the memory that those before it left, so that the next one finds in the cache
what it finds in a call. Printed are times that one turn of ten is faster than, with the shapes of some arrays that a
launch reads and writes. Of a batch that is computed some images at a time, these are the launches for so many.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.nn.plan import part
from quantarray.nn.plan.recording import parts_of


def steps_of(net: Any, x: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """Return a prepared network, whose memory is used, and the steps of its plan for x, each with a label."""
    real = part.runtime()

    class Launch(real.Launch):  # type: ignore[misc, name-defined]
        def __init__(self, kernel: Any, arguments: Any, held: Any) -> None:
            super().__init__(kernel, arguments, held)
            function = kernel.compiled.py_func
            shapes = [f"{a.dtype.str[1:]}{list(a.shape)}" for a in parts_of(arguments) if isinstance(a, np.ndarray)]
            name = f"{function.__module__.removeprefix('quantarray.cpu.')}.{function.__name__}"
            self.label = f"{name:42} {' '.join(shapes[:8])}"

    part.runtime = lambda: type(real)(**{**vars(real), "Launch": Launch})
    try:
        prepared = net.prepared()
        prepared(x), prepared(x)
    finally:
        part.runtime = lambda: real
    (plan,) = prepared._of_thread.plans.values()
    steps = [step for one in plan.segments if one.call for step in one.call._driver._holds]
    return prepared, [(f"clear {s.nbytes}" if isinstance(s, np.ndarray) else s[0].label, s) for s in steps]


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
    prepared, steps = steps_of(net, x)
    drivers = [part.runtime().Driver([step]) for _, step in steps]
    turns, end = [], time.perf_counter() + chosen.seconds
    while time.perf_counter() < end:
        times = []
        for driver in drivers:
            start = time.perf_counter()
            driver.run()
            times.append(time.perf_counter() - start)
        turns.append(times)
    fast = np.percentile(turns, 10, axis=0) * 1e6
    for (label, _), microseconds in zip(steps, fast, strict=True):
        print(f"{microseconds:8.1f}  {label}")
    print(f"{fast.sum():8.1f}  us in all, of {len(turns)} turns of {prepared}")


if __name__ == "__main__":
    main()
