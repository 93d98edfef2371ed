"""`quantarray run NET`: classify images, or run a network on an array or on the samples of its file; say how fast."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..io.files import load_npy, whole
from ..io.plain import PlainNetwork
from ..nn import Graph, Network, load
from . import output
from .classify import by_class, classify

BATCH = 64
FEW = 20  # predictions that are shown


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("run", help="run a network", description=__doc__)
    parser.add_argument("network", type=Path, metavar="NET", help="a .qa or ONNX file, or an .npz of plain integers")
    parser.add_argument(
        "images", type=Path, nargs="*", default=[], metavar="IMAGE", help="classify these images or folders"
    )
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where to run it, such as cuda (cpu)")
    parser.add_argument("--top", type=output.count, metavar="N", help="the N best classes of each image, with scores")
    parser.add_argument("--classes", type=Path, metavar="NAMES.txt", help="the name of each class, one a line")
    parser.add_argument("--input", type=Path, metavar="X.npy", help="inputs instead of the stored ones")
    parser.add_argument("--output", type=Path, metavar="Y.npy", help="write the results there")
    parser.add_argument("--labels", type=Path, metavar="Y.npy", help="the true classes, one integer an input")
    parser.add_argument("--check", action="store_true", help="exit 1 unless every stored expected integer is met")
    parser.add_argument("--limit", type=output.count, metavar="N", help="the first N inputs only")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(command=run)


@dataclass(frozen=True)
class Timed:
    """An array of results, and the seconds that they took after a warm-up."""

    values: Array
    seconds: float

    @property
    def per_second(self) -> float:
        return len(self.values) / self.seconds if self.seconds else math.inf


def network_of(op: str, path: Path) -> Network | Graph:
    """Load a network that describes its inputs."""
    network = load(path)
    if not isinstance(network, (Network, Graph)):
        raise ValueError(
            f"{op}: {path} holds layers without a description of their inputs; quantarray.nn.load(file)(x) runs them"
        )
    return network


def stored(op: str, path: Path) -> Network:
    """Load a network whose file holds samples and their results."""
    network = network_of(op, path)
    if not isinstance(network, Network):
        raise ValueError(f"{op}: {path} is a graph, which stores no samples")
    return network


def timed(network: Any, x: Any, batch: int = BATCH) -> Timed:
    """Run a network on inputs in batches and time it. The first batch runs twice: compilation is not timed."""
    network.predict(x[:batch], batch=batch)
    began = time.perf_counter()
    values = network.predict(x, batch=batch, progress=True)
    seconds = time.perf_counter() - began
    return Timed(values.dequantize() if isinstance(values, QuantArray) else values, seconds)


def run(args: argparse.Namespace) -> int:
    """Run `quantarray run`. Return 1 if `--check` finds a difference, else 0."""
    if args.check and args.input is not None:
        raise ValueError("run: --check compares with the stored results of the stored input, so it takes no --input")
    if args.output is not None and args.output.suffix != ".npy":
        raise ValueError(f"run: --output must end in .npy, got {str(args.output)!r}")
    network = network_of("run", args.network)
    if args.images:
        return classify(args, network.to_device(args.device), BATCH)
    for name, value in (("--top", args.top), ("--classes", args.classes)):
        if value:
            raise ValueError(f"run: {name} is for image files")
    x, expected, labels = _data(args, network)
    result = timed(network.to_device(args.device), x)
    if isinstance(result.values, dict):
        raise ValueError(f"run: {args.network} has the outputs {', '.join(result.values)}; run one of one output")
    if args.output is not None:
        whole("run", args.output, lambda path: np.save(path, result.values))
    facts = _facts(args, network, result, expected, labels)
    if args.json:
        output.print_json(facts)
    elif isinstance(network, Graph):
        print(f"{args.network}: {network!r}")
        print_figures(facts)
    else:
        print(output.heading(network.plain))
        print(output.layer_table(facts["layers"]))
        print_figures(facts)
    met = facts["agreement"]
    return int(args.check and met["equal"] != met["total"])


def _data(args: argparse.Namespace, network: Network | Graph) -> tuple[Array, Array | None, Array | None]:
    """Return inputs, the results that are stored for them, and their true classes; None where there are none."""
    plain = network.plain if isinstance(network, Network) else None
    if args.input is not None:
        x = _inputs(args.input, network)
    elif plain is None:
        raise ValueError(f"run: {args.network} stores no samples; pass image files, or --input X.npy")
    else:
        x = plain.input
    labels = None if plain is None or args.input is not None else plain.labels
    if args.labels is not None:
        labels = _labels(args, plain, len(x))
    x = x[: args.limit]
    if not len(x):
        raise ValueError(f"run: there are no inputs in {args.input or args.network}")
    expected = None if plain is None or args.input is not None else plain.expected[: args.limit]
    return x, expected, None if labels is None else labels[: args.limit]


def _facts(
    args: argparse.Namespace, network: Network | Graph, result: Timed, expected: Array | None, labels: Array | None
) -> dict[str, Any]:
    """Return the figures of a run."""
    facts: dict[str, Any] = {
        "network": network.plain.name if isinstance(network, Network) else network.name,
        "images": len(result.values),
        "seconds": result.seconds,
        "images_per_second": result.per_second,
        "agreement": None if expected is None else agreement(result.values, expected),
        "accuracy": None if labels is None else accuracy(by_class(args.network, result.values), labels),
        "predictions": None,
    }
    if args.input is not None and result.values.ndim <= 2:
        scores = by_class(args.network, result.values[:FEW])
        facts["predictions"] = (scores if scores.ndim == 1 else scores.argmax(axis=1)).tolist()
    if isinstance(network, Network):
        facts["layers"] = output.layer_rows(network)
    return facts


def agreement(values: Array, expected: Array) -> dict[str, int]:
    return {"equal": int((values == expected).sum()), "total": values.size}


def accuracy(values: Array, labels: Array) -> dict[str, Any]:
    classes = values if values.ndim == 1 else values.argmax(axis=1)
    right = int((classes == labels).sum())
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


def _inputs(path: Path, network: Network | Graph) -> Array:
    """Load inputs, mapped, from a file and reshape them as the network needs: (N, 28, 28) becomes (N, 784)."""
    x = load_npy("run", path, mapped=True)
    if isinstance(network, Graph):
        return x  # the graph says what it takes
    shape = network.plain.input.shape[1:]
    if x.dtype != np.uint8:
        raise ValueError(f"run: --input must be uint8, the bytes of the network's input table, got {x.dtype}")
    if x.ndim < 2 or (x.shape[1:] != shape and math.prod(x.shape[1:]) != math.prod(shape)):
        raise ValueError(f"run: --input must be {('N', *shape)}, got {x.shape}")
    return x.reshape(len(x), *shape)


def _labels(args: argparse.Namespace, plain: PlainNetwork | None, samples: int) -> Array:
    """Return the labels of `--labels`."""
    labels = load_npy("run", args.labels)
    if labels.dtype.kind not in "iu" or labels.shape != (samples,):
        raise ValueError(f"run: --labels must be integers ({samples},), got {labels.dtype} {labels.shape}")
    if plain is not None and len(plain.layers[-1].shape) != 1:
        raise ValueError(f"run: {args.network} returns no class scores, so labels have no use")
    return labels
