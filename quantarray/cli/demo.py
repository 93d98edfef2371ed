"""`quantarray demo`: classify handwritten digits with a 1-bit network, and draw what it saw."""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path
from typing import Any

from ..arrays.size_text import ratio
from ..nn import Network
from . import output, picture
from .run import accuracy, agreement, stored, timed


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("demo", help="classify digits with a packed network", description=__doc__)
    parser.add_argument(
        "network", type=Path, nargs="?", metavar="NET", help="a network with images and labels of its own"
    )
    parser.add_argument("--out", type=Path, default=Path("quantarray-demo.png"), metavar="PICTURE.png")
    parser.add_argument("--limit", type=output.count, metavar="N", help="the first N images only")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(command=demo)


def demo(args: argparse.Namespace) -> int:
    """Run `quantarray demo`. Without matplotlib it draws no picture, which is no error."""
    if args.out.suffix.lower() not in picture.ENDINGS:
        raise ValueError(f"demo: --out must end in {', '.join(picture.ENDINGS)}, got {str(args.out)!r}")
    network = _network(args.network)
    plain = network.plain
    assert plain.labels is not None
    x, labels, expected = (a[: args.limit] for a in (plain.input, plain.labels, plain.expected))
    result = timed(network, x)
    facts: dict[str, Any] = {
        "network": plain.name,
        "images": len(x),
        "accuracy": accuracy(result.values, labels),
        "agreement": agreement(result.values, expected),
        "seconds_per_image": result.seconds / len(x),
        "memory": memory(network),
        "picture": None,
    }
    if picture.available():
        picture.draw(args.out, network, x, labels, result.values)
        facts["picture"] = str(args.out)
    if args.json:
        output.print_json(facts)
    else:
        _print(network, facts)
    return 0


def _network(path: Path | None) -> Network:
    """Load a file's network, which must have what the demo shows; without a file, the package's."""
    if path is None:
        with resources.as_file(resources.files("quantarray") / "data" / "digits.qa") as packaged:
            return stored("demo", packaged)
    network = stored("demo", path)
    plain = network.plain
    if plain.labels is None or plain.input.ndim != 4 or len(plain.layers[-1].shape) != 1 or not len(plain.input):
        raise ValueError(f"demo: {path} must hold images, their labels, and layers that return a score for each class")
    return network


def memory(network: Network) -> dict[str, Any]:
    """Count the bytes of all weights and of all layers' results for one image: packed, and as float32."""
    layers, records = network.plain.layers, network.layers.trace(network.encode_input(network.plain.input[:1]))
    weights = sum(layer.weight.size for layer in layers if layer.weight is not None)
    thresholds = sum(layer.thresholds.nbytes for layer in layers if layer.thresholds is not None)
    packed = network.layers.weights
    return {
        "weights": {"packed": network.layers.nbytes, "float32": 4 * weights},
        "activations": {
            "packed": sum(r.nbytes for r in records),
            "float32": sum(4 * r.output.size for r in records),
        },
        "thresholds": thresholds,
        "kernel_layouts": sum(w.nbytes_cached for w in packed),
    }


def _print(network: Network, facts: dict[str, Any]) -> None:
    right, met, used = facts["accuracy"], facts["agreement"], facts["memory"]
    print(f"{facts['images']} held-out images for {network.plain.name}, {network.layers!r}")
    print(f"accuracy:     {right['right']} of {right['total']} right, {right['percent']:.2f} %")
    print(f"exactness:    {met['equal']:,} of {met['total']:,} integer scores equal the training framework's")
    for name in ("weights", "activations"):
        packed, full = used[name]["packed"], used[name]["float32"]
        packed_text, full_text = output.amount(packed), output.amount(full)
        print(f"{name + ':':13} {packed_text} packed, {full_text} as float32: {ratio(packed, full)}")
    print(
        f"              Besides, thresholds take {output.amount(used['thresholds'])}, "
        f"and copies of the weights in the order of kernels {output.amount(used['kernel_layouts'])}"
    )
    print(f"time:         {1e6 * facts['seconds_per_image']:.3g} microseconds an image, compilation not counted")
    if facts["picture"]:
        print(f"picture:      {facts['picture']}")
    else:
        print("picture:      none, matplotlib is missing: pip install 'quantarray[plot]'")
