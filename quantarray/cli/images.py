"""Read image files as the bytes that a network takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..core.forks import no_fork
from ..io.files import reason


def layout(shape: tuple[int, ...]) -> tuple[int, int, str] | None:
    """Return height, width and Pillow's mode of the images that inputs of this shape are; None if they are none.

    >>> layout((32, 32, 3)), layout((784,)), layout((208, 208, 16))
    ((32, 32, 'RGB'), (28, 28, 'L'), None)
    """
    modes = {1: "L", 3: "RGB"}
    if len(shape) == 3:
        return (shape[0], shape[1], modes[shape[2]]) if shape[2] in modes else None
    for channels, mode in modes.items():
        side = math.isqrt(shape[0] // channels)
        if side * side * channels == shape[0]:
            return side, side, mode
    return None


def read(files: list[Path], shape: tuple[int, ...], entries: int) -> Array:
    """Read images as uint8 [n *shape]: resized if they have another size, their bytes scaled to 0 .. entries - 1."""
    image = layout(shape)
    if image is None:
        raise ValueError(f"run: the network takes {('N', *shape)}, which no image files have; pass --input X.npy")
    x = np.stack([_pixels(path, *image) for path in files])
    if entries < 256:
        x = (x.astype(np.uint16) * entries // 256).astype(np.uint8)
    return x.reshape(len(files), *shape)


def _pixels(path: Path, height: int, width: int, mode: str) -> Array:
    """Read an image file as uint8 [height width channels]."""
    pillow = _pillow()
    with open(path, "rb") as file:  # what is missing is the system's error, not a damaged image
        try:
            with pillow.Image.open(file) as opened:
                image = pillow.ImageOps.exif_transpose(opened).convert(mode)
        except Exception as error:  # of damaged files Pillow raises anything: SyntaxError, struct.error, bombs
            raise ValueError(f"run: {path} is no image that Pillow reads: {reason(error)}") from error
    if image.size != (width, height):
        image = image.resize((width, height), pillow.Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(height, width, -1)


def _pillow() -> Any:
    try:
        with no_fork:
            import PIL.Image
            import PIL.ImageOps
    except ImportError:
        raise ImportError("Pillow is missing: pip install 'quantarray[images]', or pass --input X.npy") from None
    return PIL
