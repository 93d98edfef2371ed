"""`quantarray run NET`: run a network on its own samples, and say how fast and how right it is; or on image files."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..backends.registry import namespace
from ..core.dtypes import Array
from ..core.progress import Progress
from ..io.files import load_npy, whole
from ..nn import Network, load
from ..ops.words.placement import asnumpy
from . import images, output

BATCH = 64
FEW = 20  # predictions that are shown


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("run", help="run a network", description=__doc__)
    parser.add_argument("network", type=Path, metavar="NET", help="a .qa file, or an .npz of docs/plain-format.md")
    parser.add_argument("images", type=Path, nargs="*", default=[], metavar="IMAGE", help="classify these image files")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where to run it, such as cuda (cpu)")
    parser.add_argument("--input", type=Path, metavar="X.npy", help="uint8 inputs instead of the stored ones")
    parser.add_argument("--output", type=Path, metavar="Y.npy", help="write the integer results there")
    parser.add_argument("--labels", type=Path, metavar="Y.npy", help="the true classes, one integer an input")
    parser.add_argument("--check", action="store_true", help="exit 1 unless every stored expected integer is met")
    parser.add_argument("--limit", type=output.count, metavar="N", help="the first N inputs only")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(command=run)


@dataclass(frozen=True)
class Timed:
    """An array of integer results, and the seconds that they took after a warm-up."""

    values: Array
    seconds: float

    @property
    def per_second(self) -> float:
        return len(self.values) / self.seconds if self.seconds else math.inf


def network_of(op: str, path: Path) -> Network:
    """Load a network whose file describes its inputs."""
    network = load(path)
    if not isinstance(network, Network):
        raise ValueError(
            f"{op}: {path} holds layers without a description of their inputs; quantarray.nn.load(file)(x) runs them"
        )
    return network


def on_device(network: Network, device: str) -> Callable[[Array], Any]:
    """Return the network as a function from arrays to results on the CPU."""
    if device == "cpu":
        return network
    placed, xp = network.to_device(device), namespace(device)
    return lambda x: asnumpy(placed(xp.asarray(x)))


def timed(network: Callable[[Array], Any], x: Array, batch: int = BATCH) -> Timed:
    """Run a network on raw inputs in batches and time it. The first batch runs twice: compilation is not timed."""
    network(x[:batch])
    parts, seconds = [], 0.0
    with Progress(len(x)) as bar:
        for at in range(0, len(x), batch):
            began = time.perf_counter()
            result = network(x[at : at + batch])
            seconds += time.perf_counter() - began
            parts.append(result.dequantize() if isinstance(result, QuantArray) else result)
            bar.update(at + len(result))
    return Timed(np.concatenate(parts), seconds)


def run(args: argparse.Namespace) -> int:
    """Run `quantarray run`. Return 1 if `--check` found a difference, else 0."""
    if args.check and args.input is not None:
        raise ValueError("run: --check compares with the stored results of the stored input, so it takes no --input")
    if args.output is not None and args.output.suffix != ".npy":
        raise ValueError(f"run: --output must end in .npy, got {str(args.output)!r}")
    network = network_of("run", args.network)
    if args.images:
        return _classify(args, network)
    x = network.plain.input if args.input is None else _inputs(args.input, network.plain.input.shape[1:])
    labels = _labels(args, network, len(x))
    x = x[: args.limit]
    if not len(x):
        raise ValueError(f"run: there are no inputs in {args.input or args.network}")
    found = timed(on_device(network, args.device), x)
    if args.output is not None:
        whole("run", args.output, lambda path: np.save(path, found.values))
    facts: dict[str, Any] = {
        "network": network.plain.name,
        "images": len(x),
        "seconds": found.seconds,
        "images_per_second": found.per_second,
        "layers": output.layer_rows(network),
        "agreement": None if args.input else agreement(found.values, network.plain.expected[: args.limit]),
        "accuracy": None if labels is None else accuracy(found.values, labels[: args.limit]),
        "predictions": found.values[:FEW].argmax(axis=1).tolist() if args.input and found.values.ndim == 2 else None,
    }
    if args.json:
        output.print_json(facts)
    else:
        print(output.heading(network.plain))
        print(output.layer_table(facts["layers"]))
        print_figures(facts)
    met = facts["agreement"]
    return int(args.check and met["equal"] != met["total"])


def _classify(args: argparse.Namespace, network: Network) -> int:
    """Print file, class and label of each image."""
    others = {"--check": args.check, "--input": args.input, "--output": args.output, "--labels": args.labels}
    for name, value in others.items():
        if value:
            raise ValueError(f"run: image files are classified without {name}")
    plain, files = network.plain, args.images[: args.limit]
    if len(plain.layers[-1].shape) != 1:
        raise ValueError(f"run: {args.network} returns no class scores, {('N', *plain.layers[-1].shape)}")
    x = images.read(files, plain.input.shape[1:], len(plain.input_table))
    classes = timed(on_device(network, args.device), x).values.argmax(axis=1).tolist()
    labels = [None if plain.classes is None else plain.classes[c] for c in classes]
    if args.json:
        rows = zip(files, classes, labels, strict=True)
        output.print_json([{"file": str(file), "class": c, "label": label} for file, c, label in rows])
        return 0
    for file, c, label in zip(files, classes, labels, strict=True):
        print(f"{file}: class {c}{'' if label is None else f', {label}'}")
    return 0


def agreement(values: Array, expected: Array) -> dict[str, int]:
    return {"equal": int((values == expected).sum()), "total": values.size}


def accuracy(values: Array, labels: Array) -> dict[str, Any]:
    right = int((values.argmax(axis=1) == labels).sum())
    return {"right": right, "total": len(labels), "percent": 100 * right / len(labels)}


def print_figures(facts: dict[str, Any]) -> None:
    """Print agreement, accuracy, predictions and speed."""
    met, right = facts["agreement"], facts["accuracy"]
    if met is not None:
        verdict = "exact" if met["equal"] == met["total"] else "NOT exact"
        print(f"agreement: {met['equal']:,} of {met['total']:,} expected integers equal, {verdict}")
    if right is not None:
        print(f"accuracy:  {right['right']:,} of {right['total']:,} right, {right['percent']:.2f} %")
    if facts["predictions"] is not None:
        more = f" .., the first of {facts['images']:,}; --output writes all scores" if facts["images"] > FEW else ""
        print(f"predicted: {' '.join(map(str, facts['predictions']))}{more}")
    each = facts["seconds"] / facts["images"]
    print(
        f"speed:     {facts['images_per_second']:,.0f} images/s, {each * 1e3:.3g} ms each, in batches of {BATCH}, "
        f"bytes to results; the first batch ran once before, so compilation is not in it"
    )


def _inputs(path: Path, shape: tuple[int, ...]) -> Array:
    """Load inputs from a file and reshape them as the network needs: (N, 28, 28) becomes (N, 784)."""
    x = load_npy("run", path)
    if x.dtype != np.uint8:
        raise ValueError(f"run: --input must be uint8, the bytes of the network's input table, got {x.dtype}")
    if x.ndim < 2 or (x.shape[1:] != shape and math.prod(x.shape[1:]) != math.prod(shape)):
        raise ValueError(f"run: --input must be {('N', *shape)}, got {x.shape}")
    return x.reshape(len(x), *shape)


def _labels(args: argparse.Namespace, network: Network, samples: int) -> Array | None:
    """Return the labels of `--labels`, or those stored with the stored input; None if there are none."""
    if args.labels is None:
        return None if args.input else network.plain.labels
    labels = load_npy("run", args.labels)
    if labels.dtype.kind not in "iu" or labels.shape != (samples,):
        raise ValueError(f"run: --labels must be integers ({samples},), got {labels.dtype} {labels.shape}")
    if len(network.plain.layers[-1].shape) != 1:
        raise ValueError(f"run: {args.network} returns no class scores, so labels have no use")
    return labels
