"""The demo's picture: images with predictions, and one image's outputs of the packed layers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.forks import no_fork
from ..io.files import whole
from ..nn import Network

INK, FAINT, WRONG, RIGHT = "#1f2933", "#7b8794", "#d64545", "#2f6f9f"
_ROWS, _COLUMNS = 8, 7
ENDINGS = (".png", ".svg", ".pdf")


def available() -> bool:
    """Return True if matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(path: Path, network: Network, images: Array, labels: Array, scores: Array) -> None:
    """Write the picture, whole or not at all; `scores` [n classes] are what the network made of `images`."""
    with no_fork:
        from matplotlib.figure import Figure  # no pyplot: a library leaves the caller's backend alone

    figure = Figure(figsize=(15, 8), facecolor="white")
    panels: Any = figure.subfigures(1, 2, width_ratios=(0.82, 1))
    left, right = panels
    _gallery(left, images, labels, scores)
    _pipeline(right, network, images[0], int(labels[0]))
    whole("demo", path, lambda temporary: figure.savefig(temporary, dpi=110))


def choose(wrong: Array, places: int) -> Array:
    """Choose images to show: wrong ones first, then others, up to `places`. Return their indices in order."""
    first = np.concatenate([np.flatnonzero(wrong), np.flatnonzero(~wrong)])[:places]
    return np.sort(first)


def _gallery(figure: Any, images: Array, labels: Array, scores: Array) -> None:
    guesses = scores.argmax(axis=1)
    wrong = guesses != labels
    chosen = choose(wrong, _ROWS * _COLUMNS)
    figure.subplots_adjust(left=0.05, right=0.97, bottom=0.035, top=0.86, wspace=0.35, hspace=0.55)
    text = f"{len(images) - wrong.sum()} of {len(images)} held-out digits right"
    figure.text(0.05, 0.945, text, size=15, weight="bold", color=INK)
    shown = f"{len(chosen)} of them; " if len(chosen) < len(images) else ""
    note = f"{shown}wrong ones in red: the answer, then the truth"
    figure.text(0.05, 0.912, note, size=10.5, color=FAINT)
    for axes, i in zip(figure.subplots(_ROWS, _COLUMNS).flat, _padded(chosen, _ROWS * _COLUMNS), strict=True):
        axes.axis("off")
        if i is None:
            continue
        color = WRONG if wrong[i] else INK
        axes.axis("on")
        _bare(axes, color if wrong[i] else "#d5dae0", 2.2 if wrong[i] else 0.8)
        axes.imshow(images[i, :, :, 0], cmap="gray_r", interpolation="nearest")
        label = f"{guesses[i]}, not {labels[i]}" if wrong[i] else str(guesses[i])
        axes.set_title(label, size=11, color=color, pad=3, weight="bold" if wrong[i] else "normal")


def _pipeline(figure: Any, network: Network, image: Array, label: int) -> None:
    records = network.layers.trace(network.encode_input(image[None]))
    packed = [r for r in records if isinstance(r.output, QuantArray)]
    conv = [r for r in packed if r.name.startswith("conv2d")][:3]
    figure.text(0.03, 0.945, "One digit in the 1-bit layers", size=15, weight="bold", color=INK)
    note = "each tile is one channel: black is +1, white is -1, one bit a pixel"
    figure.text(0.03, 0.912, note, size=10.5, color=FAINT)
    grid = figure.add_gridspec(
        2, 3, left=0.03, right=0.97, bottom=0.035, top=0.835, wspace=0.1, hspace=0.2, height_ratios=(1, 1.06)
    )
    axes = figure.add_subplot(grid[0, 0])
    _bare(axes, "#d5dae0", 0.8)
    axes.set_anchor("N")
    axes.imshow(image[:, :, 0], cmap="gray_r", interpolation="nearest")
    _caption(axes, "input", f"{image.shape[0]} x {image.shape[1]}, 8 bits, {image.nbytes} bytes")
    for place, record in zip((grid[0, 1], grid[0, 2], grid[1, 0:2]), conv, strict=False):
        axes = figure.add_subplot(place)
        _bare(axes, FAINT, 0.8)
        axes.set_anchor("N")
        columns = 8 if record.shape[3] <= 64 else 16
        axes.imshow(tiles(record.output.codes()[0], columns), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        _, height, width, channels = record.shape
        _caption(axes, record.name, f"{channels} x {height} x {width}, {record.bits} bit, {record.nbytes} bytes")
    _bars(figure.add_subplot(grid[1, 2]), records[-1].output[0], label, network)


def tiles(codes: Array, columns: int) -> Array:
    """Put maps [h w channels] of codes 0 and 1 side by side, with grey lines between them."""
    scale = -(-24 // codes.shape[0])  # lines an eighth of a map or thinner
    codes = codes.repeat(scale, axis=0).repeat(scale, axis=1)
    height, width, channels = codes.shape
    rows = -(-channels // columns)
    sheet = np.full((rows * (height + 3) + 3, columns * (width + 3) + 3), 0.35)
    for c in range(channels):
        y, x = 3 + (c // columns) * (height + 3), 3 + (c % columns) * (width + 3)
        sheet[y : y + height, x : x + width] = codes[:, :, c]
    return sheet


def _bars(axes: Any, scores: Array, label: int, network: Network) -> None:
    names = network.plain.classes or tuple(map(str, range(len(scores))))
    best = int(scores.argmax())
    colors = ["#c4ccd4"] * len(scores)
    colors[best] = RIGHT if best == label else WRONG
    axes.barh(range(len(scores)), scores, color=colors, height=0.72)
    axes.set_yticks(range(len(scores)), names, color=INK, size=10)
    axes.invert_yaxis()
    axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.tick_params(length=0, colors=FAINT, labelsize=9)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    _caption(axes, "integer scores", f"the answer is {names[best]}")


def _caption(axes: Any, name: str, detail: str) -> None:
    axes.set_title(name, size=11.5, color=INK, loc="left", pad=18, weight="bold")
    axes.text(0, 1.015, detail, transform=axes.transAxes, size=9.5, color=FAINT, va="bottom")


def _bare(axes: Any, color: str, width: float) -> None:
    """Remove the ticks of axes, and set the color and width of their frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(color)
        spine.set_linewidth(width)


def _padded(chosen: Array, places: int) -> list[int | None]:
    return [int(i) for i in chosen] + [None] * (places - len(chosen))
