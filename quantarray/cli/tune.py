"""`quantarray tune NET`: time the kernels that can make each layer of a network, and keep the fastest in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..tuning.autotune import VARIABLE, autotune
from . import output
from .run import network_of

BATCHES = [1, 64]  # of the second, `quantarray run` makes its batches


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("tune", help="choose the kernels of a network by timing them", description=__doc__)
    parser.add_argument("network", type=Path, metavar="NET", help="a .qa file, or an .npz of docs/plain-format.md")
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
    x = network.plain.input
    if not len(x):
        raise ValueError(f"tune: there are no inputs in {args.network}")
    with autotune(args.save, again=True) as tuned:
        for batch in args.batch:
            network(x[[i % len(x) for i in range(batch)]])
    if args.json:
        output.print_json({"network": network.plain.name, **tuned.to_json()})
        return 0
    print(output.heading(network.plain))
    print(tuned)
    if tuned.file is None:
        print("not saved; --save keeps it for later processes")
    else:
        print(f"saved:   {tuned.file}\nto use:  {VARIABLE}={tuned.file}, or qa.autotune({str(tuned.file)!r})")
    return 0
