"""Image files as inputs of a network: its size, its layout, and the range of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.dtypes import Array
from ..core.forks import no_fork
from ..io.foreign import reason

if TYPE_CHECKING:
    from .graph import Value

_MODES = {1: "L", 3: "RGB"}  # Pillow's, by channels
_NCHW = (0, 3, 1, 2)
_OPAQUE = {"1", "L", "RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_EIGHT_BITS = _OPAQUE | {"LA", "La", "RGBA", "RGBa", "P", "PA"}
_SIXTEEN_BITS = {"PNG", "TIFF", "JPEG2000", "PPM"}  # formats whose 16 bits are unsigned and all used
_KINDS = {"F": "floats", "I": "32-bit integers"}
_FIRST_OF_SEVERAL = {"MPO", "PSD"}  # whose first image is the photograph, or what all layers show
_BITS, _INTERPRETATION, _SAMPLE_FORMAT = 258, 262, 339  # tags of TIFF


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
    """Read images as uint8 [n h w c]: turned upright, in the layout's mode, resized if they have another size.

    The byte of a value v of b > 8 bits is v >> (b - 8). Raises ValueError with the file's name where the image is
    damaged, or where its bytes would be a guess: `_unclear` lists when.
    """
    return np.stack([_pixels(path, layout) for path in files])


def _pixels(path: Path, layout: Layout) -> Array:
    """Read an image file as uint8 [height width channels]."""
    pillow = _pillow()
    with open(path, "rb") as file:  # what is missing is the system's error, not a damaged image
        try:
            with pillow.Image.open(file) as opened:
                unclear = _unclear(opened)
                image = None if unclear else _in_bytes(pillow, opened).convert(layout.mode)
        except Exception as error:  # of damaged files Pillow raises anything: SyntaxError, struct.error, bombs
            raise ValueError(f"predict: {path} is no image that Pillow reads: {reason(error)}") from error
    if image is None:
        raise ValueError(f"predict: {path} {unclear}")
    if image.size != (layout.width, layout.height):
        image = image.resize((layout.width, layout.height), pillow.Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(layout.height, layout.width, -1)


def _unclear(image: Any) -> str | None:
    """Say why an image has no clear bytes, and what to do; None if it has.

    There are several images; a range that the file does not say; transparent pixels, of which each viewer shows another
    colour.
    """
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format not in _FIRST_OF_SEVERAL:
        return f"holds {frames} images; save the one to be read to a file of its own"
    tags = _tags(image)
    sixteen = _is_wide(image) and image.format in _SIXTEEN_BITS and tags.get(_BITS, (16,))[0] <= 16
    if not (sixteen or image.mode in _EIGHT_BITS) or set(tags.get(_SAMPLE_FORMAT, (1,))) != {1}:
        kind = f"{image.mode!r}, {_KINDS.get(image.mode, 'signed numbers')}"
        return (
            f"has pixels of the mode {kind} of no range that a {image.format} file says; save it with bytes, 0 to 255"
        )
    if _is_transparent(image):
        return "is transparent in places; paste it on the background that the network's images have, and save it as RGB"
    return None


def _tags(image: Any) -> Mapping[int, Any]:
    return image.tag_v2 if image.format == "TIFF" else {}


def _is_wide(image: Any) -> bool:
    """Return True for integers of more than 8 bits; older versions of Pillow read 16 bits as I, not I;16."""
    return str(image.mode)[0] == "I"


def _is_transparent(image: Any) -> bool:
    """Return True if an image has a pixel that is not opaque."""
    colour = image.info.get("transparency")
    if image.mode in _OPAQUE and colour is None:
        return False
    if _is_wide(image):
        return colour is not None and bool((np.asarray(image) == colour).any())
    if isinstance(colour, tuple) and max(colour) > 255:
        return True  # a colour of 16 bits, of which Pillow reads 8: any pixel may have it
    return bool(image.convert("RGBA").getchannel("A").getextrema()[0] < 255)


def _in_bytes(pillow: Any, opened: Any) -> Any:
    """Return an image upright, in a mode of 8 bits that Pillow converts to grey and to RGB."""
    image = pillow.ImageOps.exif_transpose(opened)
    if image.mode in ("LAB", "HSV", "P"):
        return image.convert("RGBA" if image.mode == "P" else "RGB")  # of a palette of opaque colours RGB warns
    if not _is_wide(image):
        return image
    a = (np.asarray(image) >> (_tags(opened).get(_BITS, (16,))[0] - 8)).astype(np.uint8)
    zero_is_white = opened.format == "TIFF" and _tags(opened).get(_INTERPRETATION, 0) == 0  # which Pillow ignores here
    return pillow.Image.fromarray(255 - a if zero_is_white else a)


def files_of(op: str, path: Path) -> list[Path]:
    """Return a file itself, or the images of a folder by name: files whose ending Pillow reads, no hidden ones."""
    if not path.is_dir():
        return [path]
    pillow = _pillow()
    endings = {e for e, name in pillow.Image.registered_extensions().items() if name in pillow.Image.OPEN}
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
