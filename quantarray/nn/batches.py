"""Data of `predict`, divided into batches: arrays, memory maps, iterables of arrays, image files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..io.files import load_npy, path_of
from . import images


class Batch(NamedTuple):
    """A batch of inputs: an array, or a dict of arrays by name; the first row's number, and the rows' files."""

    x: Any
    start: int
    files: Sequence[Path] = ()

    def __len__(self) -> int:
        first = next(iter(self.x.values())) if isinstance(self.x, dict) else self.x
        return int(first.shape[0])

    def row(self, i: int) -> Batch:
        """Return the batch of one of its rows."""
        x = {n: a[i : i + 1] for n, a in self.x.items()} if isinstance(self.x, dict) else self.x[i : i + 1]
        return Batch(x, self.start + i, self.files[i : i + 1])

    @property
    def name(self) -> str:
        """Name the batch for errors, by its files or rows."""
        last = len(self) - 1
        if self.files:
            return str(self.files[0]) if not last else f"{self.files[0]} to {self.files[last]}"
        return f"row {self.start}" if not last else f"rows {self.start} to {self.start + last}"


class Feed(NamedTuple):
    """A sequence of batches, the number of their rows where it is known, and the files that they come from."""

    batches: Iterator[Batch]
    total: int | None
    files: Sequence[Path] = ()


def feed(op: str, data: Any, size: int, ndim: int | None, layout: Callable[[], images.Layout]) -> Feed:
    """Divide data into batches of `size` rows.

    ndim: the number of axes of a batch, where the network knows it; items of an iterable with one less are rows.
    layout: gives the images that the network takes, or raises.
    """
    if isinstance(data, (str, os.PathLike)):
        path = path_of(op, data)
        if path.suffix != ".npy":
            return _of_files(images.files_of(op, path), size, layout())
        data = load_npy(op, path, mapped=True)
    if isinstance(data, Mapping):
        return _of_arrays(op, {str(name): _rows(op, a) for name, a in data.items()}, size)
    if isinstance(data, (list, tuple)) and data:
        if all(isinstance(item, (str, os.PathLike)) for item in data):
            return _of_files([path_of(op, item) for item in data], size, layout())
        if any(isinstance(item, (str, os.PathLike)) for item in data):
            raise TypeError(f"{op}: a list of files must have paths alone, got arrays beside them")
        if not hasattr(data[0], "shape"):
            data = checks.anywhere(op, "data", data)
    if hasattr(data, "shape"):
        return _of_array(op, _rows(op, data), size)
    if not isinstance(data, Iterable) or isinstance(data, (bytes, bytearray)):
        raise TypeError(f"{op}: data must be an array, an iterable of arrays or a path, got {checks.kind(data)}")
    return Feed(_of_items(op, data, size, ndim), None)


def _rows(op: str, data: Any) -> Any:
    """Return data that has rows."""
    a = data if hasattr(data, "shape") and hasattr(data, "__getitem__") else np.asarray(data)
    if not len(a.shape):
        raise TypeError(f"{op}: data must be arrays whose first axis is the batch, got {checks.kind(data)}")
    return a


def _of_array(op: str, a: Any, size: int) -> Feed:
    total = int(a.shape[0])
    if not total:
        raise ValueError(f"{op}: data has an empty batch, {tuple(a.shape)}")
    return Feed((Batch(a[at : at + size], at) for at in range(0, total, size)), total)


def _of_arrays(op: str, arrays: dict[str, Any], size: int) -> Feed:
    if not arrays:
        raise ValueError(f"{op}: data has no arrays, got an empty dict")
    lengths = {name: int(a.shape[0]) for name, a in arrays.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ValueError(f"{op}: inputs must have as many rows as each other and at least one, got {lengths}")
    total = next(iter(lengths.values()))
    starts = range(0, total, size)
    return Feed((Batch({n: a[at : at + size] for n, a in arrays.items()}, at) for at in starts), total)


def _of_files(files: list[Path], size: int, layout: images.Layout) -> Feed:
    def batches() -> Iterator[Batch]:
        for at in range(0, len(files), size):
            some = files[at : at + size]
            yield Batch(layout.convert(images.read(some, layout)), at, some)

    return Feed(batches(), len(files), files)


def _of_items(op: str, items: Iterable[Any], size: int, ndim: int | None) -> Iterator[Batch]:
    """Yield batches of items, which are batches or rows; rows are joined, and longer batches divided."""
    pending: list[Array] = []
    start = 0
    for item in items:
        a = _rows(op, item)
        if ndim is not None and len(a.shape) == ndim - 1 and not isinstance(a, QuantArray):
            pending.append(np.asarray(a))
            if pending[0].shape != a.shape or pending[0].dtype != a.dtype:
                raise ValueError(
                    f"{op}: row {start + len(pending) - 1} is {a.dtype} {tuple(a.shape)}, "
                    f"row {start} {pending[0].dtype} {pending[0].shape}"
                )
            if len(pending) < size:
                continue
            a, joined = np.stack(pending), True
        else:
            joined = False
        if pending and not joined:
            yield Batch(np.stack(pending), start)
            start += len(pending)
        pending = []
        for at in range(0, int(a.shape[0]), size):
            batch = Batch(a[at : at + size], start)
            yield batch
            start += len(batch)
    if pending:
        yield Batch(np.stack(pending), start)
