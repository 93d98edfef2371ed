"""The table of a network's operations or layers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays.size_text import beside_float32
from ..core.dtypes import DType
from .operators import OPERATORS

if TYPE_CHECKING:
    from .graph import Node


class Row(NamedTuple):
    """An operation or layer in a summary: its result, its weights, and its time in seconds if it was measured."""

    op: str
    runs: str  # "packed", "float result" (of packed operands) or "NumPy"
    source: str
    shape: tuple[int, ...]
    dtype: str
    bits: int
    weights: int
    macs: int
    nbytes: int
    seconds: float | None

    @classmethod
    def of(cls, node: Node, results: list[Any], weight: Any, thresholds: bool, seconds: float | None) -> Row:
        """Return the row of a node with its results; shape and bits are those of the first."""
        result = results[0]
        bits = result.dtype.bits if isinstance(result.dtype, DType) else 8 * result.dtype.itemsize
        outputs = OPERATORS[node.op].weights or 0  # the axis of them
        per_output = math.prod(weight.shape) // (weight.shape[outputs] or 1) if weight is not None else 0
        op = node.op + (" + thresholds" if thresholds and node.op != "threshold" else "")
        return cls(
            op,
            runs(node.packed, [one.dtype for one in results]),
            node.source,
            tuple(result.shape),
            " + ".join(str(one.dtype) for one in results),
            bits,
            math.prod(weight.shape) if weight is not None else 0,
            per_output * math.prod(result.shape),
            int(weight.nbytes) if weight is not None else 0,
            seconds,
        )


def runs(packed: bool, dtypes: Iterable[Any]) -> str:
    """Name where an operation runs; one that is packed has a float result where all of its results are floats.

    >>> import numpy as np
    >>> runs(True, [np.dtype("int32")]), runs(True, [np.dtype("float32")]), runs(False, [np.dtype("float32")])
    ('packed', 'float result', 'NumPy')
    """
    kinds = ["" if isinstance(dtype, DType) else np.dtype(dtype).kind for dtype in dtypes]
    return "NumPy" if not packed else "float result" if kinds and set(kinds) == {"f"} else "packed"


class Summary:
    """A summary of operations or layers, from `summary` and `profile`: as `rows`, or as a table by `str`."""

    def __init__(self, name: str, rows: list[Row], constants: int = 0) -> None:
        self.name, self.rows, self._constants = name, rows, constants  # bytes of weights, thresholds and all else

    @property
    def numpy(self) -> list[Row]:
        """Return the rows of those that run in NumPy."""
        return [row for row in self.rows if row.runs == "NumPy"]

    @property
    def total(self) -> str:
        """Return the sums as a line."""
        weights, macs, nbytes = (sum(getattr(row, n) for row in self.rows) for n in ("weights", "macs", "nbytes"))
        ran = f", {macs:,} MACs" if macs or not weights else ""
        size = f", {beside_float32(nbytes, weights)}" if weights else ""
        if weights and self._constants > 2 * nbytes:
            size += f" ({beside_float32(self._constants, weights)} with thresholds and all else)"
        floats = sum(row.runs == "float result" for row in self.rows)
        ends = f", {floats} with a float result" if floats else ""
        return (
            f"{weights:,} weights in {nbytes:,} bytes{size}{ran}; {len(self.numpy)} of {len(self.rows)} in NumPy{ends}"
        )

    def __str__(self) -> str:
        head = ("operation", "runs", "from", "output", "dtype", "bits", "weights", "MACs", "bytes")
        timed = any(row.seconds is not None for row in self.rows)
        total = sum(row.seconds or 0.0 for row in self.rows) or 1.0
        table: list[tuple[str, ...]] = [(*head, "us", "share") if timed else head]
        for row in self.rows:
            cells: tuple[str, ...] = (
                row.op,
                row.runs,
                row.source,
                "x".join(map(str, row.shape)),
                row.dtype,
                str(row.bits or ""),
            )
            cells += tuple(f"{n:,}" if n else "" for n in (row.weights, row.macs, row.nbytes))
            seconds = row.seconds or 0.0
            table.append((*cells, f"{1e6 * seconds:.1f}", f"{100 * seconds / total:.0f} %") if timed else cells)
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        right = range(5, len(widths))
        lines = [
            "  ".join(
                c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        ]
        return "\n".join([self.name, *(line.rstrip() for line in lines), self.total])

    __repr__ = __str__
