"""`quantarray convert NET MODEL`: write a network as a `.qa` file or as QONNX, an array as a `.qa` file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..core.errors import FormatError
from ..io.container import load as load_array
from ..io.container import save as save_array
from ..nn import Graph, Sequential, load
from . import output
from .classify import class_names

_ARRAYS = (".npz", ".safetensors", ".qa")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("convert", help="write a network as a .qa or a QONNX file", description=__doc__)
    parser.add_argument("source", type=Path, metavar="NET", help="a network of plain integers or in ONNX, or an array")
    parser.add_argument("target", type=Path, metavar="MODEL", help="the file to write, .qa or .onnx")
    parser.add_argument("--classes", type=Path, metavar="NAMES.txt", help="add the name of each class, one a line")
    parser.set_defaults(command=convert)


def convert(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.target.suffix not in (".qa", ".onnx"):
        raise ValueError(f"convert: the file to write must end in .qa or .onnx, got {str(args.target)!r}")
    if args.classes is not None and args.target.suffix == ".onnx":
        raise ValueError("convert: --classes is for .qa files, a .onnx file holds no names of classes")
    what = _copy(args.source, args.target, args.classes)
    before, after = (path.stat().st_size for path in (args.source, args.target))
    print(f"{args.source} ({output.amount(before)}) -> {args.target} ({output.amount(after)}): {what}")
    return 0


def _copy(source: Path, target: Path, classes: Path | None) -> str:
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
        if classes is not None:
            raise ValueError(f"convert: --classes is for graphs, {source} holds arrays") from None
        if target.suffix == ".onnx":
            what = "holds an array, and a .onnx file a network; write a .qa file"
            raise ValueError(f"convert: {source} {what}") from None
        save_array(target, array)
        return f"{len(array)} arrays" if isinstance(array, dict) else repr(array)
    if classes is not None:
        if not isinstance(network, Graph):
            raise ValueError(f"convert: --classes is for graphs, as of ONNX files; {source} holds {network!r:.80}")
        network.classes = class_names("convert", classes)
    if target.suffix == ".onnx" and isinstance(network, Sequential):
        raise ValueError(
            f"convert: {source} holds layers in a row, which do not say what they take, as a .onnx file does; write it "
            f"in Python with an input of the first layer: qa.nn.load({str(source)!r}).save({str(target)!r}, x)"
        )
    network.save(target)
    return repr(network)
