"""Learn what a function computes by its values: whether it quantises, to which levels, and at which thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..onnx.folding import searched
from ..onnx.laws import Tensor
from .functions import Function
from .grids import Grid, Uneven, clusters, grid_of, uneven_of

_WHOLE = 1 << 21  # integers times channels that are all tried
_PROBES = 2048  # integers that are tried where they are more
_EVEN = 2048  # values between the ends of what changes
_TOPS = (30, 16, 12, 8)  # floats below 2**top are tried: |x| - |x - 2| turns where x - 2 is x in float32


class Probe:
    """A sample of what a function gives for many values of its base: `x` and `y`, [values, channels]."""

    def __init__(self, function: Function, axis: int) -> None:
        base, ndim = function.base, len(function.base.shape)
        self._refined = False
        self.function, self.ndim = function, ndim
        self.axis = axis if axis >= 0 else (1 if ndim >= 4 else ndim - 1)
        self.channels = base.shape[axis] if axis >= 0 else 1
        self.most = float(np.finfo(np.float32).max)
        self.x = _values(base, self.channels, _TOPS[0])
        self.y = self.run(self.x)
        for top in () if base.source.whole else _TOPS[1:]:
            if self._quantises():
                break
            x = _values(base, self.channels, top)
            y = self.run(x)
            ends = _DENSITY[self.channels > 1]
            if (y[-ends:] == y[-1]).all() and (y[:ends] == y[0]).all():
                self.x, self.y, self.most = x, y, 2.0**top

    def _quantises(self) -> bool:
        grid = levels_of(self)
        return grid is not None and monotone(grid.integers(self.y)) is not None

    def shaped(self, x: Array) -> Array:
        """Give values [n] or [n channels] the axes of the base."""
        shape = [len(x)] + [1] * (self.ndim - 1)
        if x.ndim == 1:
            wide = [len(x)] + [1] * (self.ndim - 1)
            wide[self.axis] = self.channels
            return np.broadcast_to(x.reshape(shape), wide)
        shape[self.axis] = self.channels
        return x.reshape(shape)

    def run(self, x: Array, function: Function | None = None) -> Array:
        """Return the function (or another of the same base) of values [n] or [n channels]: [n channels]."""
        y = (function or self.function).evaluate(self.shaped(x))
        return np.asarray(np.broadcast_to(y, self.shaped(x).shape)).reshape(len(x), self.channels)

    def refine(self) -> None:
        """Add values at even distances between the ends of what changes, where levels are close."""
        x, y, source = self.x, self.y, self.function.base.source
        if self._refined or x.ndim > 1 or (source.whole and len(x) > source.bounds[1] - source.bounds[0]):
            return
        self._refined = True
        first = np.argmax(y != y[:1], axis=0)
        last = len(y) - np.argmax((y != y[-1:])[::-1], axis=0)
        low, high = (x[np.clip(at, 0, len(x) - 1)].astype(np.float64) for at in (first - 1, last))
        more = low + (high - low) * np.linspace(0, 1, _EVEN)[:, None]
        more = (np.rint(more) if source.whole else more).astype(x.dtype)
        self.x, self.y = _joined(self, more, self.run(more))

    def pools_codes(self) -> bool:
        """Tell if a pool of the function's codes gives the codes of the pooled values: what follows the pool rises."""
        if not self.function.pools:
            return True
        inner = self.run(self.x, self.function.before_pools)
        y = np.take_along_axis(self.y, np.argsort(inner, axis=0, kind="stable"), 0)
        return bool((y[1:] >= y[:-1]).all())


def monotone(y: Array) -> Array | None:
    """1 or -1 by column, where it rises (or stays) or falls; None if a column turns."""
    if y.dtype.kind == "b":
        y = y.astype(np.int8)
    if y.dtype.kind == "f" and np.isnan(y).any():
        return None
    up, down = (y[1:] >= y[:-1]).all(axis=0), (y[1:] <= y[:-1]).all(axis=0)
    return np.where(up, 1, -1) if (up | down).all() else None


_DENSITY = (128, 16)  # floats of an octave that are tried, for one channel and for several


def _values(base: Tensor, channels: int, top: int) -> Array:
    """Return values of the base in rising order: all integers that it may have if they are few, else some of them."""
    source = base.source
    if not source.whole:
        bottom = -40 if channels == 1 else -16
        steps = np.linspace(1, 2, _DENSITY[channels > 1], endpoint=False)
        positive = np.concatenate([steps * 2.0**e for e in range(bottom, top)])
        positive = np.concatenate([[1e-45, 1e-38], positive]).astype(source.dtype)
        return np.concatenate([-positive[::-1], [0], positive]).astype(source.dtype)
    low, high = source.bounds
    if source.levels is not None:
        return np.array(source.levels, np.int64)
    if (high - low + 1) * channels <= _WHOLE:
        return np.arange(low, high + 1)
    spread = np.rint(np.linspace(low, high, _PROBES)).astype(np.int64)
    near = np.arange(max(low, -256), min(high, 256) + 1)
    return np.union1d(spread, near)


def levels_of(probe: Probe) -> Grid | Uneven | None:
    """Return the levels of the function; None if it does not quantise."""
    if probe.y.dtype.kind != "f":
        return None
    grid = grid_of(probe.y)
    if grid is None and clusters(probe.y) is not None:
        probe.refine()
        return _levels(probe.y)
    return grid


def _levels(y: Array) -> Grid | Uneven | None:
    return grid_of(y) or uneven_of(y)


def thresholds(probe: Probe, grid: Grid | Uneven) -> Any:
    """Return (thresholds, levels, grid) that give the integers of the grid; None if the function turns."""
    source = probe.function.base.source
    for _ in range(3):
        got = grid.integers(probe.y)
        rising = monotone(got)
        if rising is None:
            return None
        present = np.unique(got)
        step = int(np.gcd.reduce(np.diff(present))) if present.size > 1 else 1
        levels = range(int(present[0]), int(max(present[-1], present[0] + step)) + 1, step)

        def rank(v: Array, first: int = levels[0], step: int = step, grid: Grid | Uneven = grid) -> Array:
            y = np.broadcast_to(probe.function.evaluate(v), v.shape)
            return (grid.integers(y) - first) // step

        shape = [1] * probe.ndim
        shape[probe.axis] = probe.channels
        with np.errstate(all="ignore"):
            T = searched(rank, levels, rising.reshape(shape), probe.axis, source, probe.most)
        more = _missed(probe, T, grid, got)
        if more is None:
            return T, levels, grid
        probe.x, probe.y = _joined(probe, _near(probe, T), more)
        wider = _levels(probe.y)
        if wider is None:
            return None
        grid = wider
    return None


def rounded(T: Any, levels: Any, grid: Grid | Uneven) -> Grid | None:
    """Return the grid to whose nearest level thresholds round, to 1e-5 steps and for all channels alike, or None."""
    if isinstance(grid, Uneven) or T.channels is not None or levels.step != 1 or not T.greater:
        return None
    n = np.rint(1 / grid.scale)
    near = grid._replace(scale=float(1 / n)) if n and abs(1 / grid.scale - n) < 1e-6 * n else grid
    halves, limits = (np.array(levels[:-1]) + 0.5) * near.scale, T.values.astype(np.float32)
    above, slack = np.nextafter(limits, np.float32(np.inf)), 1e-5 * near.scale
    return near if ((halves >= limits - slack) & (halves <= above + slack)).all() else None


def _near(probe: Probe, T: Any) -> Array:
    """Return the values at and next to each threshold, [n channels]."""
    limits = np.asarray(T.values).reshape(-1, np.asarray(T.values).shape[-1]).T
    source = probe.function.base.source
    if source.whole:
        low, high = source.bounds
        x = np.concatenate([limits + i for i in (-1, 0, 1, 2)])
        return np.asarray(np.clip(x, low, high).astype(np.int64))
    finite = np.where(np.isfinite(limits), limits, 0).astype(np.float32)
    return np.concatenate([np.nextafter(finite, np.float32(-np.inf)), finite, np.nextafter(finite, np.float32(np.inf))])


def _missed(probe: Probe, T: Any, grid: Grid | Uneven, got: Array) -> Array | None:
    """Return the function's values near the thresholds if one of them is no level yet, else None."""
    y = probe.run(np.broadcast_to(_near(probe, T), (len(_near(probe, T)), probe.channels)))
    return None if np.isin(grid.integers(y), np.unique(got)).all() and _on(grid, y) else y


def _on(grid: Grid | Uneven, y: Array) -> bool:
    if isinstance(grid, Uneven):
        return bool(np.abs(y - grid.values[grid.integers(y)]).max(initial=0) <= 2e-6 * np.abs(grid.values).max())
    top = max(abs(grid.low), abs(grid.high), 1) * grid.scale
    return bool(np.abs(y - grid.integers(y) * grid.scale).max(initial=0) <= 2e-6 * top)


def _joined(probe: Probe, near: Array, more: Array) -> tuple[Array, Array]:
    """Return the probe's values and other ones, in rising order by channel."""
    x = probe.x[:, None] if probe.x.ndim == 1 else probe.x
    x = np.concatenate([np.broadcast_to(x, (len(x), probe.channels)), np.broadcast_to(near, more.shape)])
    y = np.concatenate([probe.y, more])
    order = np.argsort(x, axis=0, kind="stable")
    return np.take_along_axis(x, order, 0), np.take_along_axis(y, order, 0)
