"""Run a network on data of any length, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.progress import Progress
from ..ops.manipulation.joining import concat
from .batches import Batch, Feed
from .named import OF_INPUTS, say_first

OP = "predict"


class Predictions(NamedTuple):
    """A pair of files and results: `files[i]` gave `values[i]`; several outputs are a dict of values by name."""

    files: tuple[Path, ...]
    values: Any


def predict(run: Callable[[Any], Any], feed: Feed, out: Any, progress: bool) -> Any:
    """Run every batch, and return the results; in `out`, where it is passed."""
    results = _Results(feed.total, out)
    with Progress(feed.total or 0 if progress else 0) as bar:
        for batch in feed.batches:
            results.add(_result(run, batch), len(batch))
            bar.update(batch.start + len(batch))
    values = results.values()
    return Predictions(tuple(feed.files), values) if feed.files else values


def _result(run: Callable[[Any], Any], batch: Batch) -> Any:
    """Run a batch; an error names the first row or file that raises it, or the batch if all of its rows do."""
    try:
        return run(batch.x)
    except OF_INPUTS as error:
        errors = (_error(run, batch.row(i)) for i in range(len(batch)))
        i, first = next(((i, e) for i, e in enumerate(errors) if e is not None), (0, None))
        if first is None or (i == 0 and len(batch) > 1 and _error(run, batch.row(len(batch) - 1)) is not None):
            say_first(error, f"{OP}: {batch.name}: ")
            raise
        say_first(first, f"{OP}: {batch.row(i).name}: ")
        raise first from None


def _error(run: Callable[[Any], Any], batch: Batch) -> Exception | None:
    """Return the error that a batch raises, if any."""
    try:
        run(batch.x)
    except OF_INPUTS as error:
        return error
    return None


class _Results:
    """A collection of the results of all batches: one array where their number is known, else joined at the end."""

    def __init__(self, total: int | None, out: Any) -> None:
        self.total, self.out, self.count = total, out, 0
        self.parts: list[Any] = []
        self.arrays: dict[str, Any] = {}

    def add(self, result: Any, rows: int) -> None:
        """Add the results of as many rows."""
        if isinstance(result, QuantArray) and self.out is None:
            self.parts.append({"": result})
        else:
            named = result if isinstance(result, dict) else {"": result}
            for name, a in named.items():
                self._check(name, a, rows)
            if self.total is None and self.out is None:
                self.parts.append(named)
            else:
                for name, a in named.items():
                    target = self._target(name, a)
                    target[self.count : self.count + rows] = a.dequantize() if isinstance(a, QuantArray) else a
        self.count += rows

    def _check(self, name: str, a: Any, rows: int) -> None:
        if not a.shape or a.shape[0] != rows:
            which = f"the output {name}" if name else "the output"
            raise ValueError(f"{OP}: {which} has no batch: {rows} rows gave {tuple(a.shape)}; call the network itself")

    def _target(self, name: str, a: Any) -> Any:
        """Return the array for an output, checked or allocated for the first batch."""
        if name not in self.arrays:
            if self.out is None:
                self.arrays[name] = np.empty((self.total, *a.shape[1:]), a.dtype)
            else:
                self.arrays[name] = _checked_out(self.out, name, a, self.total)
        target = self.arrays[name]
        if self.count + len(a) > len(target):
            raise ValueError(f"{OP}: out has {len(target)} rows, data has more")
        return target

    def values(self) -> Any:
        """Return all results."""
        if not self.count:
            raise ValueError(f"{OP}: data has no rows")
        if self.parts:
            names = self.parts[0]
            joined = {name: _joined([part[name] for part in self.parts]) for name in names}
        else:
            joined = self.arrays
            if self.out is not None and any(len(a) != self.count for a in joined.values()):
                raise ValueError(f"{OP}: out has {len(next(iter(joined.values())))} rows, data {self.count}")
        if self.out is not None:
            return self.out
        return joined[""] if "" in joined else joined


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return concat(parts, axis=0) if isinstance(parts[0], QuantArray) else np.concatenate(parts)


def _checked_out(out: Any, name: str, a: Any, total: int | None) -> Array:
    """Return the array of `out` for an output, which must take its results."""
    which = f"out[{name!r}]" if name else "out"
    target = out.get(name) if name and isinstance(out, dict) else out
    rows = "n" if total is None else str(total)
    dtype = np.dtype(np.float32) if isinstance(a, QuantArray) else a.dtype
    wanted = f"an array {dtype} ({', '.join([rows, *map(str, a.shape[1:])])})"
    if not isinstance(target, np.ndarray):
        raise TypeError(f"{OP}: {which} must be {wanted}, got {checks.kind(target)}")
    if target.shape[1:] != a.shape[1:] or (total is not None and len(target) != total):
        raise ValueError(f"{OP}: {which} must be {wanted}, got {target.shape}")
    if not target.flags.writeable or not np.can_cast(dtype, target.dtype, "same_kind"):
        why = "it cannot be written to" if not target.flags.writeable else f"got {target.dtype}"
        raise TypeError(f"{OP}: {which} must be {wanted}; {why}")
    return target
