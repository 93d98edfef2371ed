"""`quantarray search DATABASE QUERIES`: the nearest rows of a packed array in a file."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..core.text import table
from ..io.container import load
from ..io.files import load_npy
from ..ops.creation.bit_packing import pack_bits
from ..ops.search.metrics import ALIASES, METRICS
from ..ops.search.nearest import top_k
from ..ops.search.rabitq import RotatedRows
from . import output


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("search", help="find the nearest rows of a packed array", description=__doc__)
    parser.add_argument(
        "database", type=Path, help="a .qa file of an array [rows elements] or of RaBitQ rows, or a .npy file of bools"
    )
    parser.add_argument(
        "queries", type=Path, help="a .qa file, or a .npy file of bools, of floats, or of int8 or uint8 values"
    )
    parser.add_argument("-k", type=int, default=10, help="rows for each query (10), at most all")
    parser.add_argument("--metric", choices=(*METRICS, *ALIASES), default="hamming", help="what is compared (hamming)")
    parser.add_argument("--candidates", type=int, help="rows for each query whose scores are computed (all)")
    parser.add_argument("--planes", type=int, help="highest planes of rows by which candidates are found (their signs)")
    parser.add_argument("--signs", action="store_true", help="search for the signs of queries of floats, x > 0")
    parser.add_argument("--json", action="store_true", help="print ids and distances as JSON")
    parser.set_defaults(command=search)


def search(args: argparse.Namespace) -> int:
    """Run `quantarray search`."""
    database, queries = (_array(path) for path in (args.database, args.queries))
    if args.signs and not isinstance(queries, QuantArray):
        checks.finite("search", "queries", queries)
        queries = pack_bits(queries > 0)
    try:
        how = {"candidates": args.candidates, "planes": args.planes}
        nearest = top_k(queries, database, min(args.k, len(database)), args.metric, **how)
    except TypeError as error:  # of what the files have
        raise ValueError(str(error)) from None
    ids, distances = np.atleast_2d(nearest.indices), np.atleast_2d(nearest.distances)
    if args.json:
        output.print_json({"metric": args.metric, "ids": ids.tolist(), "distances": distances.tolist()})
        return 0
    lines = [
        [str(query), str(place + 1), str(row), f"{distance:.6g}"]
        for query, rows in enumerate(zip(ids.tolist(), distances.tolist(), strict=True))
        for place, (row, distance) in enumerate(zip(*rows, strict=True))
    ]
    print(table(["query", "place", "row", args.metric], lines))
    return 0


def _array(path: Path) -> Any:
    """Return the one array of a file; bools are packed."""
    if path.suffix != ".npy":
        value = load(path)
        if isinstance(value, dict) and value.keys() == {field.name for field in fields(RotatedRows)}:
            return RotatedRows(**value)
        if not isinstance(value, QuantArray):
            raise ValueError(f"{path}: search needs a file of one packed array, got {type(value).__name__}")
        return value
    values = load_npy("search", path, mapped=True)
    return pack_bits(values) if values.dtype == np.bool_ else values
