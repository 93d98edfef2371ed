"""`quantarray profile NET`: the time of each layer, its bits, bytes and where it runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..nn import Graph, Network
from . import output
from .run import network_of

_SEED = 0


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("profile", help="time each layer of a network", description=__doc__)
    parser.add_argument("network", type=Path, metavar="NET", help="a .qa or ONNX file, or an .npz of plain integers")
    parser.add_argument("--batch", type=output.count, default=1, metavar="N", help="inputs at once (1)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.set_defaults(command=profile)


def profile(args: argparse.Namespace) -> int:
    """Run `quantarray profile`."""
    network = network_of("profile", args.network)
    summary = network.profile(*batch_of("profile", args.network, network, args.batch))
    seconds = sum(row.seconds or 0.0 for row in summary.rows)
    if args.json:
        rows = [row._asdict() for row in summary.rows]
        output.print_json({"network": summary.name, "batch": args.batch, "seconds": seconds, "layers": rows})
        return 0
    print(output.heading(network.plain) if isinstance(network, Network) else f"{args.network}: {network!r}")
    print(summary)
    print(f"sum:       {1e6 * seconds:,.1f} us for a batch of {args.batch}, each layer the fastest of five runs")
    return 0


def batch_of(op: str, path: Path, network: Network | Graph, size: int) -> list[Array]:
    """Return inputs for a batch: a network's own samples, again from the first where they are few, or drawn ones."""
    if isinstance(network, Graph):
        return _drawn(network, size)
    x = network.plain.input
    if not len(x):
        raise ValueError(f"{op}: there are no inputs in {path}")
    return [x[[i % len(x) for i in range(size)]]]


def _drawn(graph: Graph, batch: int) -> list[Array]:
    """Draw inputs of a graph, as many as a batch has; kernels take as long on any values."""
    rng = np.random.default_rng(_SEED)
    arrays = []
    for value in graph.inputs:
        shape, dtype = ((batch, *value.shape[1:]) if value.batched else value.shape), np.dtype(value.dtype)
        if dtype.kind == "f":
            arrays.append(rng.random(shape).astype(dtype))
        else:
            low, high = (0, 1) if value.low is None or value.high is None else (value.low, value.high)
            arrays.append(rng.integers(low, high, shape, endpoint=True).astype(dtype))
    return arrays
