"""Rows of a summary for layers in a row, which a run on an input measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..arrays.array import QuantArray
from ..core.progress import Progress
from .graph_summary import Row, runs
from .named import OF_INPUTS, say_first

_ROUNDS = 5  # of which a profile takes the fastest


def flat(layers: Iterable[Any]) -> Iterator[Any]:
    """Yield layers in order, those of a `Sequential` inside one by one."""
    for layer in layers:
        if hasattr(layer, "layers") and hasattr(layer, "trace"):
            yield from flat(layer.layers)
        else:
            yield layer


def measured(layers: Iterable[Any], x: Any, timed: bool = False) -> Iterator[Row]:
    """Run layers in turn, and yield the row of each; with its time, the fastest of five runs, if `timed`."""
    every = list(flat(layers))
    with Progress(len(every) if timed else 0, "layers timed") as bar:
        for i, layer in enumerate(every):
            bar.update(i)
            try:
                seconds = min(_seconds(layer, x) for _ in range(_ROUNDS)) if timed else None
                result = layer(x)
            except OF_INPUTS as error:
                say_first(error, f"layer {i}, ")
                raise
            yield row(i, layer, x, result, seconds)
            x = result


def _seconds(layer: Callable[[Any], Any], x: Any) -> float:
    start = time.perf_counter()
    layer(x)
    return time.perf_counter() - start


def name_of(layer: Any) -> str:
    """Return the name of a layer or of a function; without one, that of its class."""
    return str(getattr(layer, "name", getattr(layer, "__name__", type(layer).__name__)))


def row(i: int, layer: Any, x: Any, result: Any, seconds: float | None = None) -> Row:
    """Return the row of a layer; of a layer that has not run, x and result are None, and its row has no output."""
    weight = getattr(layer, "weight", None)
    weight = weight if isinstance(weight, QuantArray) else None
    cut = getattr(layer, "requantize", None)
    packed = weight is not None or cut is not None or isinstance(x, QuantArray) or isinstance(result, QuantArray)
    packed |= x is None and type(layer).__module__.startswith(__package__)
    outputs = 0 if weight is None or result is None else math.prod(result.shape)
    return Row(
        name_of(layer) + (" + thresholds" if cut is not None else ""),
        runs(packed, [] if result is None else [result.dtype]),
        f"layer {i}",
        () if result is None else tuple(result.shape),
        "" if result is None else str(result.dtype),
        0 if result is None else result.bits if isinstance(result, QuantArray) else 8 * result.dtype.itemsize,
        0 if weight is None else weight.size,
        0 if weight is None else outputs * math.prod(weight.shape[1:]),
        0 if weight is None else weight.nbytes,
        seconds,
    )
