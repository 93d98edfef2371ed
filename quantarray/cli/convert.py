"""`quantarray convert NET MODEL.qa`: write a network, of an ONNX file too, or an array, as one `.qa` file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..core.errors import FormatError
from ..io.container import load as load_array
from ..io.container import save as save_array
from ..nn import load
from . import output

_ARRAYS = (".npz", ".safetensors", ".qa")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("convert", help="write a network or an array as a .qa file", description=__doc__)
    parser.add_argument("source", type=Path, metavar="NET", help="a network of plain integers or in ONNX, or an array")
    parser.add_argument("target", type=Path, metavar="MODEL.qa", help="the file to write")
    parser.set_defaults(command=convert)


def convert(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.target.suffix != ".qa":
        raise ValueError(f"convert: the file to write must end in .qa, got {str(args.target)!r}")
    what = _copy(args.source, args.target)
    before, after = (path.stat().st_size for path in (args.source, args.target))
    print(f"{args.source} ({output.amount(before)}) -> {args.target} ({output.amount(after)}): {what}")
    return 0


def _copy(source: Path, target: Path) -> str:
    """Load one file, save the other, and return a line on what they hold."""
    try:
        network = load(source)
    except FormatError as no_network:
        if source.suffix not in _ARRAYS:
            raise
        try:
            array = load_array(source)
        except FormatError as no_array:
            raise FormatError(f"convert: {output.neither(source, no_network, no_array)}") from no_array
        save_array(target, array)
        return f"{len(array)} arrays" if isinstance(array, dict) else repr(array)
    network.save(target)
    return repr(network)
