"""`quantarray tune NET`: time the kernels that can make each layer of a network, and keep the fastest in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..nn import Graph, Network
from ..tuning.autotune import VARIABLE, autotune
from . import output
from .run import network_of

SEED = 0

BATCHES = [1, 64]  # of the second, `quantarray run` makes its batches


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("tune", help="choose the kernels of a network by timing them", description=__doc__)
    parser.add_argument("network", type=Path, metavar="NET", help="a .qa or ONNX file, or an .npz of plain integers")
    parser.add_argument(
        "--batch", type=output.count, nargs="+", default=BATCHES, metavar="N", help="inputs at once (1 64)"
    )
    parser.add_argument(
        "--save",
        type=Path,
        nargs="?",
        const=True,
        metavar="FILE",
        help="add to FILE, or to the one in the user's cache",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.set_defaults(command=tune)


def tune(args: argparse.Namespace) -> int:
    """Run `quantarray tune`."""
    network = network_of("tune", args.network)
    batches = [batch_of("tune", args.network, network, size) for size in args.batch]
    with autotune(args.save, again=True) as tuned:
        for batch in batches:
            network(*batch)
    if args.json:
        name = network.plain.name if isinstance(network, Network) else network.name
        output.print_json({"network": name, **tuned.to_json()})
        return 0
    print(output.heading(network.plain) if isinstance(network, Network) else f"{args.network}: {network!r}")
    print(tuned)
    if tuned.file is None:
        print("not saved; --save keeps it for later processes")
    else:
        print(f"saved:   {tuned.file}\nto use:  {VARIABLE}={tuned.file}, or qa.autotune({str(tuned.file)!r})")
    return 0


def batch_of(op: str, path: Path, network: Network | Graph, size: int) -> list[Array]:
    """Return inputs for a batch: a network's own samples, again from the first where they are few, or drawn ones."""
    if isinstance(network, Graph):
        return drawn(network, size)
    x = network.plain.input
    if not len(x):
        raise ValueError(f"{op}: there are no inputs in {path}")
    return [x[[i % len(x) for i in range(size)]]]


def drawn(graph: Graph, batch: int) -> list[Array]:
    """Draw inputs of a graph, as many as a batch has; kernels take as long on any values."""
    rng = np.random.default_rng(SEED)
    arrays = []
    for value in graph.inputs:
        shape, dtype = ((batch, *value.shape[1:]) if value.batched else value.shape), np.dtype(value.dtype)
        if dtype.kind == "f":
            arrays.append(rng.random(shape).astype(dtype))
        else:
            low, high = (0, 1) if value.low is None or value.high is None else (value.low, value.high)
            arrays.append(rng.integers(low, high, shape, endpoint=True).astype(dtype))
    return arrays
