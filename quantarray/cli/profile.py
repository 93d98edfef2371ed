"""`quantarray profile NET`: the time of each layer, its bits, bytes and where it runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..nn import Network
from . import output
from .run import network_of
from .tune import batch_of


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
