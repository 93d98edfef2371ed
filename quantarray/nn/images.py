"""Image files as inputs of a network: its size, its layout, and the range of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.dtypes import Array
from ..core.forks import no_fork
from ..io.files import reason

if TYPE_CHECKING:
    from .graph import Value

_MODES = {1: "L", 3: "RGB"}  # Pillow's, by channels
_NCHW = (0, 3, 1, 2)


class Layout(NamedTuple):
    """A form of images that an input takes: height, width, Pillow's mode, and a function from bytes [n h w c] to it."""

    height: int
    width: int
    mode: str
    convert: Callable[[Array], Array]


def of_shape(shape: tuple[int, ...], entries: int) -> Layout | None:
    """Return the layout of inputs uint8 [n *shape], channels last, whose bytes are 0 .. entries - 1; None if no image.

    >>> of_shape((32, 32, 3), 256)[:3], of_shape((784,), 256)[:3], of_shape((208, 208, 16), 256)
    ((32, 32, 'RGB'), (28, 28, 'L'), None)
    """

    def convert(x: Array) -> Array:
        scaled = x if entries == 256 else (x.astype(np.uint16) * entries // 256).astype(np.uint8)
        return scaled.reshape(len(x), *shape)

    if len(shape) == 3 and shape[2] in _MODES:
        return Layout(shape[0], shape[1], _MODES[shape[2]], convert)
    if len(shape) == 1:
        for channels, mode in _MODES.items():
            side = math.isqrt(shape[0] // channels)
            if side * side * channels == shape[0]:
                return Layout(side, side, mode, convert)
    return None


def of_value(value: Value) -> Layout | None:
    """Return the layout of a graph's input: [n c h w], [n h w c], [n h w] or [n h*w]; None if it is no image.

    Floats are byte / 255, from 0 to 1; integers are scaled to their range where it is not that of bytes.
    """
    shape = value.shape[1:]
    channels_first = len(shape) == 3 and shape[0] in _MODES
    if channels_first:
        height, width, channels = shape[1], shape[2], shape[0]
    elif len(shape) == 3 and shape[2] in _MODES:
        height, width, channels = shape
    elif len(shape) == 2:
        (height, width), channels = shape, 1
    elif len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        height, width, channels = math.isqrt(shape[0]), math.isqrt(shape[0]), 1
    else:
        return None

    def convert(x: Array) -> Array:
        moved = _scaled(x, value).transpose(_NCHW) if channels_first else _scaled(x, value)
        return np.ascontiguousarray(moved).reshape(len(x), *shape)

    return Layout(height, width, _MODES[channels], convert)


def _scaled(x: Array, value: Value) -> Array:
    dtype = np.dtype(value.dtype)
    if dtype.kind == "f":
        return (x.astype(np.float32) / np.float32(255)).astype(dtype, copy=False)
    low, high = value.low, value.high
    if low is None or high is None:
        low, high = (-128, 127) if dtype == np.int8 else (0, 1) if dtype.kind == "b" else (0, 255)
    return (low + x.astype(np.int64) * (high - low + 1) // 256).astype(dtype)


def read(files: Sequence[Path], layout: Layout) -> Array:
    """Read images as uint8 [n h w c]: turned upright, in the layout's mode, resized if they have another size."""
    return np.stack([_pixels(path, layout) for path in files])


def _pixels(path: Path, layout: Layout) -> Array:
    """Read an image file as uint8 [height width channels]."""
    pillow = _pillow()
    with open(path, "rb") as file:  # what is missing is the system's error, not a damaged image
        try:
            with pillow.Image.open(file) as opened:
                image = pillow.ImageOps.exif_transpose(opened).convert(layout.mode)
        except Exception as error:  # of damaged files Pillow raises anything: SyntaxError, struct.error, bombs
            raise ValueError(f"predict: {path} is no image that Pillow reads: {reason(error)}") from error
    if image.size != (layout.width, layout.height):
        image = image.resize((layout.width, layout.height), pillow.Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(layout.height, layout.width, -1)


def files_of(op: str, path: Path) -> list[Path]:
    """Return a file itself, or the images of a folder by name: files whose ending Pillow knows, no hidden ones."""
    if not path.is_dir():
        return [path]
    endings = _pillow().Image.registered_extensions()
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in endings and p.name[0] != "." and p.is_file())
    if not files:
        raise ValueError(f"{op}: there are no images in {path}")
    return files


def _pillow() -> Any:
    try:
        with no_fork:
            import PIL.Image
            import PIL.ImageOps
    except ImportError:
        raise ImportError("Pillow is missing: pip install 'quantarray[images]', or pass an array") from None
    return PIL
