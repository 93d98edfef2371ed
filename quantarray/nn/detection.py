"""Boxes of detectors: photographs as their inputs, grids decoded as YOLOv2 does, and pictures with boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import checks
from ..core.dtypes import Array
from ..core.forks import no_fork
from ..io.files import path_of, whole

__all__ = ["ANCHORS", "VOC", "Boxes", "boxes", "draw", "letterbox"]

ANCHORS = ((1.08, 1.19), (3.42, 4.41), (6.63, 11.38), (9.42, 5.11), (16.62, 10.52))
"""Widths and heights in cells of Tiny YOLO's five anchors for PASCAL VOC."""

VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""The twenty classes of PASCAL VOC, in the order of YOLO's outputs."""

_GREY = 127  # of the borders of a letterbox
_COLOURS = ("#2f6f9f", "#b5563c", "#7a9e59", "#c9a227", "#6d5a8c")


class Boxes(NamedTuple):
    """A list of the boxes of one image, best first.

    corners: float64 [k 4], left, top, right and bottom. scores: float64 [k], probabilities. classes: int64 [k].
    """

    corners: Array
    scores: Array
    classes: Array


def letterbox(photo: Any, size: int = 416) -> Array:
    """Return uint8 [1 3 size size]: the photograph, uint8 [h w 3], scaled to fit with grey above and below, or beside.

    Pixels are interpolated linearly, so a photograph more than twice as large should be made smaller before.

    Raises TypeError and ValueError for anything but a photograph.

    >>> import numpy as np
    >>> letterbox(np.full((2, 4, 3), 255, np.uint8), 4)[0, 0]
    array([[127, 127, 127, 127],
           [255, 255, 255, 255],
           [255, 255, 255, 255],
           [127, 127, 127, 127]], dtype=uint8)
    """
    a, side = _photo("letterbox", photo), checks.integer("letterbox", "size", size, 1)
    height, width = _fitted(a.shape[:2], side)
    scaled = _interpolated(_interpolated(a.astype(np.float32), height, 0), width, 1)
    out = np.full((side, side, 3), _GREY, np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    out[top : top + height, left : left + width] = np.rint(scaled)
    return np.ascontiguousarray(out.transpose(2, 0, 1))[None]


def _photo(op: str, photo: Any) -> Array:
    a = np.asarray(photo)
    if a.dtype != np.uint8:
        raise TypeError(f"{op}: photo must be bytes, uint8 [h w 3], got {a.dtype}")
    if a.ndim != 3 or a.shape[2] != 3 or 0 in a.shape:
        raise ValueError(f"{op}: photo must have shape [h w 3], got {list(a.shape)}; it is made RGB before")
    return a


def _fitted(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Return height and width of a photograph whose longer side is scaled to `side`."""
    longest = max(shape)
    height, width = (max(1, n * side // longest) for n in shape)
    return height, width


def _interpolated(x: Array, length: int, axis: int) -> Array:
    """Expand or shrink an axis to a length, linearly between the centres of pixels."""
    n = x.shape[axis]
    at = np.clip((np.arange(length) + 0.5) * (n / length) - 0.5, 0, n - 1)
    low = np.minimum(at.astype(np.int64), max(n - 2, 0))
    share = (at - low).astype(np.float32).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    before, after = x.take(low, axis), x.take(np.minimum(low + 1, n - 1), axis)
    return np.asarray(before + (after - before) * share)


def boxes(
    grid: Any,
    *,
    anchors: Sequence[tuple[float, float]] = ANCHORS,
    threshold: float = 0.25,
    overlap: float = 0.45,
    photo: tuple[int, ...] | None = None,
) -> list[Boxes]:
    """Decode the output of a YOLOv2 detector, float [n a*(5+c) h w], to one `Boxes` for each image.

    Of anchor a of the cell in row i and column j, with outputs x y w h o and c classes::

        centre = ((j + sigmoid(x)) / w, (i + sigmoid(y)) / h)
        size = (anchors[a][0] * exp(w) / w, anchors[a][1] * exp(h) / h)
        score = sigmoid(o) * max(softmax(classes))

    Boxes whose score is above `threshold` stay, but for those that overlap a better one of their class by more than
    `overlap`, the area of their intersection over that of their union (non-maximum suppression).

    photo: shape of the photograph that was letterboxed, [h w ..]; corners then are its pixels, else from 0 to 1 of the
    input. They are clipped to the picture.

    Raises ValueError for a grid of another shape, or with a NaN.

    Redmon and Farhadi, YOLO9000, CVPR 2017, arXiv:1612.08242.

    >>> import numpy as np
    >>> grid = np.full((1, 2 * 7, 2, 2), -9.0, np.float32)  # two anchors, two classes, 2 x 2 cells
    >>> grid[0, :7, 0, 1] = 0, 0, 0, 0, 9, -9, 9  # the first anchor sees class 1 in the middle of the upper right cell
    >>> (one,) = boxes(grid, anchors=[(1, 1), (2, 1)])
    >>> one.corners.tolist(), one.scores.round(3).tolist(), one.classes.tolist()
    ([[0.5, 0.0, 1.0, 0.5]], [1.0], [1])
    """
    a = np.asarray(grid)
    count = len(anchors)
    if a.ndim != 4 or count == 0 or a.shape[1] % count or a.shape[1] // count < 6 or 0 in a.shape[2:]:
        raise ValueError(f"boxes: grid must be [n {count}*(5 + classes) h w] for {count} anchors, got {list(a.shape)}")
    if not np.isfinite(a).all():
        raise ValueError("boxes: grid has a NaN or an infinity")
    cut, most = checks.number("boxes", "threshold", threshold), checks.number("boxes", "overlap", overlap)
    return [_decoded(one.astype(np.float64), np.asarray(anchors, np.float64), cut, most, photo) for one in a]


def _decoded(grid: Array, anchors: Array, threshold: float, overlap: float, photo: tuple[int, ...] | None) -> Boxes:
    height, width = grid.shape[1:]
    x, y, w, h, objectness, *rest = np.moveaxis(grid.reshape(len(anchors), -1, height, width), 1, 0)
    scores = _softmax(np.stack(rest)) * _sigmoid(objectness)
    best = scores.max(axis=0)
    at = np.nonzero(best > threshold)
    anchor, row, column = at
    centre = np.stack([(column + _sigmoid(x[at])) / width, (row + _sigmoid(y[at])) / height], 1)
    sides = anchors[anchor] * np.exp(np.minimum(np.stack([w[at], h[at]], 1), 50.0)) / (width, height)
    corners = np.concatenate([centre - sides / 2, centre + sides / 2], 1)
    classes = scores.argmax(axis=0)[at]
    order = np.argsort(-best[at], kind="stable")
    chosen = order[_apart(corners[order], classes[order], overlap)]
    return Boxes(_placed(corners[chosen], photo), best[at][chosen], classes[chosen])


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=0))
    return np.asarray(e / e.sum(axis=0))


def _apart(corners: Array, classes: Array, overlap: float) -> Array:
    """Return the indices of boxes, best first, that overlap no better one of their class by more than `overlap`."""
    chosen: list[int] = []
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    for i in range(len(corners)):
        better = [k for k in chosen if classes[k] == classes[i]]
        low, high = np.maximum(corners[better, :2], corners[i, :2]), np.minimum(corners[better, 2:], corners[i, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        if not (shared > overlap * (areas[better] + areas[i] - shared)).any():
            chosen.append(i)
    return np.array(chosen, np.int64)


def _placed(corners: Array, photo: tuple[int, ...] | None) -> Array:
    """Clip corners to the picture: 0 .. 1 of the input, or pixels of the photograph that was letterboxed."""
    if photo is None:
        return np.asarray(np.clip(corners, 0, 1))
    size = np.array(photo[1::-1], np.float64)  # width, height
    share = size / size.max()
    pixels = (corners - np.tile((1 - share) / 2, 2)) / np.tile(share, 2) * np.tile(size, 2)
    return np.asarray(np.clip(pixels, 0, np.tile(size, 2)))


def draw(path: str | os.PathLike[str], photo: Any, seen: Boxes, names: Sequence[str] = VOC) -> None:
    """Write a picture of the photograph, uint8 [h w 3], with its boxes, names and scores, whole or not at all.

    The suffix of the path says the format; ValueError if matplotlib has none of that name. Raises ImportError without
    matplotlib: `pip install "quantarray[plot]"`.

    >>> import os, tempfile, numpy as np
    >>> one = Boxes(np.array([[10, 20, 50, 60]]), np.array([0.9]), np.array([7]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(f"{folder}/cat.png", np.zeros((80, 100, 3), np.uint8), one)
    ...     print(os.listdir(folder))
    ['cat.png']
    """
    a = _photo("draw", photo)
    try:
        with no_fork:
            from matplotlib.figure import Figure  # no pyplot: a library leaves the caller's backend alone
            from matplotlib.patches import Rectangle
    except ImportError:
        raise ImportError("draw: matplotlib is missing: pip install 'quantarray[plot]'") from None
    figure = Figure(figsize=(a.shape[1] / 100, a.shape[0] / 100), dpi=100)
    target = path_of("draw", path)
    if target.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():  # without one, matplotlib adds .png
        raise ValueError(f"draw: the path must end in a format of pictures, such as .png or .svg, got {str(target)!r}")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(a, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    for (left, top, right, bottom), score, c in zip(*seen, strict=True):
        colour = _COLOURS[int(c) % len(_COLOURS)]
        axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour, linewidth=2.5))
        axes.text(
            left + 3, top + 3, f"{names[int(c)]} {score:.2f}", va="top", size=9, color="white",
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 2},
        )  # fmt: skip
    whole("draw", target, figure.savefig)
