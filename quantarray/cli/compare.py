"""`quantarray compare X.npy`: what each published scheme makes of an array, as a table and a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..io.files import load_npy
from ..ops.quantize.scheme_choice import choose
from ..report.compare import compare
from . import output


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("compare", help="say what each scheme makes of an array", description=__doc__)
    parser.add_argument("array", type=Path, metavar="X.npy", help="an array of floats or integers")
    parser.add_argument("--bits", type=output.count, default=2, metavar="N", help="bits an element, 1 to 8 (2)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--plot", type=Path, metavar="OUT.png", help="draw levels, errors and decoded images")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Run `quantarray compare`."""
    x = load_npy("compare", args.array)
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise ValueError(f"compare: {args.array} must hold bool, integers or floats up to 64 bits, got {x.dtype}")
    comparison = compare(x, bits=args.bits, plot=args.plot)
    choice = repr(choose(x, args.bits))
    if args.json:
        output.print_json({**comparison.to_json(), "choice": choice, "picture": args.plot and str(args.plot)})
        return 0
    print(f"{args.array}: {x.dtype} {' x '.join(map(str, x.shape))}")
    print(comparison)
    print(f"quantize(x, bits={args.bits}) takes {choice}")
    if args.plot:
        print(f"picture: {args.plot}")
    return 0
