"""A comparison's picture: the values over each scheme's levels, errors and bits as bars, decoded images."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.forks import no_fork
from .measure import Row

INK, FAINT, LINE, BLUE, PALE = "#1f2933", "#7b8794", "#d5dae0", "#2f6f9f", "#b8c9d6"
WIDTH, ROW, TOP = 12.0, 0.32, 1.9  # inches: the picture, a scheme's line, the histogram
COLUMNS, CAPTION, TALLEST = 5, 0.5, 4.0  # images side by side; inches under and of an image
_MOST_LEVELS = 4096  # marks in a line: more would be one grey bar
_LEAST_SIDE = 16  # of what counts as an image


def available() -> bool:
    """Return True where matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def target(plot: str | os.PathLike[str]) -> Path:
    """Return the path of a picture that can be drawn, or raise the error that says why it cannot."""
    path = Path(os.fsdecode(plot))
    if path.suffix != ".png":
        raise ValueError(f"compare: plot must be a path that ends in .png, got {str(path)!r}")
    if not available():
        raise ImportError(
            "compare: a plot needs matplotlib, which is missing: pip install 'quantarray[plot]', or leave plot out"
        )
    return path


def is_image(x: Array) -> bool:
    """[h w] or [h w 3] of at least 16 pixels a side.

    >>> is_image(np.zeros((20, 30, 3))), is_image(np.zeros((20, 3)))
    (True, False)
    """
    return (x.ndim == 2 or (x.ndim == 3 and x.shape[2] == 3)) and min(x.shape[:2]) >= _LEAST_SIDE


def draw(path: Path, x: Array, drawn: list[tuple[Row, QuantArray]]) -> None:
    """Write the picture of what schemes made of x."""
    with no_fork:
        from matplotlib.figure import Figure  # no pyplot: a library leaves the caller's backend alone

    lines = max(len(drawn), 1) * ROW
    rows = -(-(len(drawn) + 1) // COLUMNS) if is_image(x) else 0
    image = min(TALLEST, WIDTH * 0.96 / COLUMNS * x.shape[0] / x.shape[1]) + CAPTION if rows else 0.0
    height = TOP + lines + rows * image + 1.1
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    below = (rows * image + 0.6) / height
    grid = figure.add_gridspec(
        2, 3, left=0.27, right=0.97, top=1 - 0.4 / height, bottom=below, hspace=0.02, wspace=0.06,
        height_ratios=(TOP, lines), width_ratios=(1.9, 1, 1),
    )  # fmt: skip
    top = figure.add_subplot(grid[0, 0])
    _histogram(top, x)
    _levels(figure.add_subplot(grid[1, 0], sharex=top), drawn)
    _errors(figure.add_subplot(grid[1, 1]), drawn)
    _bits(figure.add_subplot(grid[1, 2]), drawn)
    if rows:
        _images(figure, x, drawn, rows, rows * image / height)
    figure.savefig(path, dpi=110)


def _histogram(axes: Any, x: Array) -> None:
    values = x.astype(np.float64).reshape(-1)
    axes.hist(values, bins=min(200, max(10, int(values.size**0.5))), color=LINE)
    axes.set_title(f"{values.size:,} values, and the levels of each scheme", size=11, color=INK, loc="left")
    axes.set_yticks([])
    _bare(axes)
    axes.tick_params(labelbottom=False, length=0)


def _levels(axes: Any, drawn: list[tuple[Row, QuantArray]]) -> None:
    for i, (_, q) in enumerate(drawn):
        levels = np.unique(q.levels)
        levels = levels[:: -(-levels.size // _MOST_LEVELS)]
        crowd = levels.size > q.dtype.n_levels  # of many channels: where there are more, it is darker
        axes.axhline(i, color=LINE, linewidth=0.6, zorder=0)
        axes.plot(
            levels, np.full(levels.size, i), "|", color=BLUE, markersize=11, markeredgewidth=0.6 if crowd else 1.6,
            alpha=max(0.08, min(1, 64 / levels.size)) if crowd else 1,
        )  # fmt: skip
    axes.set_yticks(range(len(drawn)), [row.scheme for row, _ in drawn], size=9, color=INK)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    _bare(axes)
    axes.tick_params(length=0, colors=INK, labelsize=9)


def _errors(axes: Any, drawn: list[tuple[Row, QuantArray]]) -> None:
    errors = [row.error or 0.0 for row, _ in drawn]
    finite = [e for e in errors if np.isfinite(e)]
    most = max(finite, default=1.0) or 1.0
    longest = min(most, 4 * float(np.median(finite))) if finite and np.median(finite) > 0 else most
    for i, e in enumerate(errors):
        cut = e > longest  # one hopeless scheme would leave no length to the others
        axes.barh(i, min(e, longest), color=BLUE if e == min(errors) else PALE, height=0.62)
        at, side = (0.98, "right") if cut else (e / longest + 0.02, "left")
        axes.text(at * longest, i, f"{e:.3g}{'  (cut)' * cut}", va="center", ha=side, size=9, color=INK)
    _bar_axes(axes, len(drawn), longest, "error")


def _bits(axes: Any, drawn: list[tuple[Row, QuantArray]]) -> None:
    """Draw bits an element: of codes, then of padding, then of constants."""
    longest = 1.0
    for i, (row, q) in enumerate(drawn):
        parts = (q.bits, BLUE), (row.padding or 0.0, LINE), (row.constants or 0.0, FAINT)
        left = 0.0
        for bits, color in parts:
            axes.barh(i, bits, left=left, color=color, height=0.62)
            left += bits
        axes.text(left, i, f" {left:.2f}", va="center", size=9, color=INK)
        longest = max(longest, left)
    _bar_axes(axes, len(drawn), longest, "bits an element")
    axes.set_xlabel("code, padding (light), constants (grey)", size=8, color=INK)


def _bar_axes(axes: Any, count: int, longest: float, title: str) -> None:
    """Set the limits of bars, with room for their labels, and draw no ticks."""
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * longest)
    axes.set_xticks([])
    axes.set_yticks([])
    _bare(axes)
    axes.set_title(title, size=11, color=INK, loc="left")


def _images(figure: Any, x: Array, drawn: list[tuple[Row, QuantArray]], rows: int, height: float) -> None:
    inches = figure.get_size_inches()[1]
    grid = figure.add_gridspec(
        rows, COLUMNS, left=0.02, right=0.98, bottom=0.1 / inches, top=height - CAPTION / inches, wspace=0.05,
        hspace=CAPTION / (height * inches / rows - CAPTION),
    )  # fmt: skip
    low, high = float(x.min()), float(x.max())
    shown = [("as given", x), *((f"{row.scheme}\n{row.error:.3g}", q.dequantize()) for row, q in drawn)]
    for i, (caption, image) in enumerate(shown):
        axes = figure.add_subplot(grid[i // COLUMNS, i % COLUMNS])
        seen = np.clip((image.astype(np.float64) - low) / ((high - low) or 1.0), 0, 1)
        axes.imshow(seen, cmap="gray", vmin=0, vmax=1, interpolation="nearest" if min(x.shape[:2]) < 200 else "auto")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(caption, size=8.5 if len(caption) < 40 else 7.5, color=INK, pad=3)
        for spine in axes.spines.values():
            spine.set_color(LINE)


def _bare(axes: Any) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)
