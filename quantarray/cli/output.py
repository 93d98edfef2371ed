"""Output of the commands: tables, amounts of bytes, JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from ..arrays.array import QuantArray
from ..core.text import table
from ..io.plain import PlainNetwork
from ..nn import Network


def amount(nbytes: int) -> str:
    """Return a number of bytes as text, from 10,000 on also in a rounded unit.

    >>> amount(640), amount(49152), amount(3500000)
    ('640 bytes', '49,152 bytes (48.0 KiB)', '3,500,000 bytes (3.3 MiB)')
    """
    if nbytes < 10_000:
        return f"{nbytes:,} bytes"
    unit, name = (2**10, "KiB") if nbytes < 2**20 else (2**20, "MiB")
    return f"{nbytes:,} bytes ({nbytes / unit:.1f} {name})"


def print_json(value: Any) -> None:
    """Print a value as JSON, which has no NaN and no infinity: they become null."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str) -> None:
    """Print a line on stderr, unless stderr is closed or fails."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


def finish() -> None:
    """Write what is left to stdout and stderr; where that fails, drop it.

    Python would try again at exit, say so, and leave with 120 whatever the command returned.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):  # a stream without a file
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def layer_rows(network: Network) -> list[dict[str, Any]]:
    """Name, output shape of one sample, bits and bytes of it, bytes of weights; known without running anything."""
    rows: list[dict[str, Any]] = []
    bits = 32
    for i, (layer, spec) in enumerate(zip(network.layers, network.plain.layers, strict=True)):
        thresholds = getattr(layer, "requantize", None)
        if spec.op != "max_pool2d":
            bits = 32 if thresholds is None else thresholds.into.bits
        elif i == 0:
            encoded = network.encode_input(network.plain.input[:1])
            assert isinstance(encoded, QuantArray)  # pooling takes no other
            bits = encoded.bits
        weight = getattr(layer, "weight", None)
        rows.append(
            {
                "name": getattr(layer, "name", spec.op),
                "shape": list(spec.shape),
                "bits": bits,
                "bytes": _nbytes(spec.shape, bits),
                "weight_bytes": weight.nbytes if isinstance(weight, QuantArray) else 0,
            }
        )
    return rows


def _nbytes(shape: tuple[int, ...], bits: int) -> int:
    if bits == 32:
        return 4 * math.prod(shape)
    return 8 * bits * math.prod(shape[:-1]) * -(-shape[-1] // 64)


def layer_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows of `layer_rows` as a table, with the sum of their weight bytes."""
    lines = []
    for i, row in enumerate(rows):
        shape = " x ".join(map(str, row["shape"]))
        lines.append([f"{i} {row['name']}", shape, row["bits"], f"{row['bytes']:,}", f"{row['weight_bytes']:,}"])
    total = sum(row["weight_bytes"] for row in rows)
    lines.append(["all", "", "", "", f"{total:,}"])
    return table(["layer", "output", "bits", "bytes", "weight bytes"], lines)


def heading(plain: PlainNetwork) -> str:
    """Describe a network in one line: name, number of layers, input shape and file."""
    shape = " x ".join(map(str, plain.input.shape[1:]))
    return f"{plain.name}: {len(plain.layers)} layers, input {shape}, {plain.path}"


def neither(path: Path, *reasons: Exception) -> str:
    """Name the file once, then give the reason of each error: its text after the file's last mention."""
    return f"{path} " + "; and it ".join(str(e).partition(f"{path} ")[2] or str(e) for e in reasons)


def count(text: str) -> int:
    """Parse an argument that must be a positive integer."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"needs a positive integer, got {text!r}")
    return number


def lines(facts: dict[str, Any]) -> str:
    """Write facts as lines; a dictionary inside becomes one line."""
    width = max(map(len, facts))
    return "\n".join(f"{name.ljust(width)}  {_value(value)}" for name, value in facts.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return " x ".join(map(str, value)) if all(isinstance(v, int) for v in value) else " ".join(value) or "none"
    return str(value)
