"""Ends of error messages: the likely fix of a call whose arguments do not fit, "" where none is likely."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtypes import DType
from ..core.format import MAX_BITS
from .array import QuantArray

# Other packages' words for an argument: TensorFlow's, Keras' and ONNX'
_WORDS = {"same_upper": "same", "channels_last": "NHWC", "channels_first": "NCHW"}
_FORMATS = {  # the axis of channels, and of the other
    "NHWC": (3, "NCHW", 1),
    "NCHW": (1, "NHWC", 3),
    "NWC": (2, "NCW", 1),
    "NCW": (1, "NWC", 2),
    "NDHWC": (4, "NCDHW", 1),
    "NCDHW": (1, "NDHWC", 4),
}
_TAPS = {1: "k", 2: "kh kw", 3: "kd kh kw"}


def word(value: Any, allowed: tuple[str, ...]) -> str:
    """Name the allowed word that is spelt like another.

    >>> word("SAME", ("same", "valid")), word("sideways", ("same", "valid"))
    ("; write 'same'", '')
    """
    if not isinstance(value, str):
        return ""
    plain = _WORDS.get(value.lower(), value)
    match = next((one for one in allowed if one.lower() == plain.lower()), None)
    return "" if match is None else f"; write {match!r}"


def swapped(op: str, x: Any, w: Any) -> str:
    """Say that weights came first, where x is packed and w an array of bytes."""
    likely = isinstance(x, QuantArray) and getattr(w, "dtype", None) in (np.int8, np.uint8)
    return f"; are they swapped? {op}(x, w) takes the packed weights second" if likely else ""


def window(image: tuple[int, ...], size: tuple[int, ...]) -> str:
    """Say, where a window is larger than the image along both axes, that the two may have changed places."""
    likely = all(n < k for n, k in zip(image, size, strict=True))
    return f"; are x and w swapped? conv{len(image)}d(x, w) takes the images first" if likely else ""


def axes_of_convolution(x: Any, w: Any, ndim: int) -> str:
    """Name an axis that x or w lacks."""
    if x.ndim == ndim - 1:
        return "; x[None] adds the batch axis"
    if w.ndim == ndim - 1 != 2:
        return "; w[None] adds the axis of output channels"
    return "; linear takes weights [o k]" if w.ndim == 2 else ""


def packed_axis(x: QuantArray, data_format: str) -> str:
    """Name the other data_format where x is packed on its channels, else the axis to pack."""
    at, other, other_at = _FORMATS[data_format]
    format = f'pass data_format="{other}", or ' if x.axis == other_at else ""
    return f"; {format}pack it with axis={at}"


def channels(x: Any, w: QuantArray, groups: int, data_format: str) -> str:
    """Name the order of axes in which the channels of x and w would fit."""
    at, other, other_at = _FORMATS[data_format]
    axes, c = w.ndim - 2, x.shape[at]
    to_last, to_first = (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))
    order = to_last if at > 1 else to_first
    if x.shape[other_at] == w.shape[other_at] * groups:
        return f'; they fit as {other}: pack both with axis={other_at} and pass data_format="{other}"'
    if c == w.shape[other_at] * groups:
        return f"; w has its input channels on axis {other_at}: pack w.transpose{order} with axis={at}"
    if c == w.shape[axes] * groups:
        taps, inputs_first = _TAPS[axes], (axes + 1, *range(axes), axes) if at > 1 else (axes + 1, axes, *range(axes))
        return f"; w looks like [{taps} c/groups o]: pack w.transpose{inputs_first} with axis={at}"
    if x.shape[other_at] == w.shape[at] * groups:
        return f"; x has its channels on axis {other_at}: pack x.transpose{order} with axis={at}"
    per_group = w.shape[at]
    return f"; pass groups={c // per_group}" if groups == 1 and per_group and c % per_group == 0 else ""


def weights(x: Any, w: QuantArray) -> str:
    """Say how weights of `linear` fit that are [k outputs], or have the axes of a convolution's."""
    if w.ndim == 2 and x.ndim and x.shape[-1] == w.shape[0]:
        if w.axis:
            return "; w looks like [k, outputs]: quantize or encode its transpose"
        by_matmul = "" if getattr(x, "dtype", None) in (np.float32, np.float16) else ", or call matmul(x, w)"
        return f"; w looks like [k, outputs]: pass w.T, packed on its last axis{by_matmul}"
    if w.ndim == 2:
        return "; pack it with axis=1"
    return "; conv2d takes weights [o kh kw c]" if w.ndim == 4 else ""


def layer_weight(weight: Any, ndim: int) -> str:
    """Say how to make the weight of a layer."""
    if not isinstance(weight, QuantArray):
        return "; quantize(weight, Sign(scale=True), scale_axis=0) makes one of floats"
    if weight.ndim != ndim:
        return ""
    last = ndim - 1
    if weight.axis == 1 and ndim == 4:
        return "; [o c kh kw] is weight.transpose(0, 2, 3, 1) here"
    return "; [k o] is weight.T here" if ndim == 2 else f"; pack it with axis={last}"


def integers(x: Any) -> str:
    """Name the bytes that would do for an array of wider integers."""
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype == np.float64:
        return "; x.astype(np.float32) where floats are taken"
    wide = isinstance(dtype, np.dtype) and dtype.kind in "iu"
    return "; x.astype(np.int8) or np.uint8 if its values are so small" if wide else ""


def of_saved(value: Any) -> str:
    """Say how to save an object that is no array: rotated rows have arrays, networks a method of their own."""
    if callable(getattr(value, "arrays", None)):
        return "save(file, value.arrays()) saves its arrays"
    return "it has a method save(file)" if callable(getattr(value, "save", None)) else "quantize or encode it first"


def quantizer(value: Any) -> str:
    """Say how to get a quantiser, or have one chosen, for an argument that is none."""
    if callable(getattr(value, "quantize", None)):
        return f"; call {value}.quantize(x)"
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        if value not in range(1, MAX_BITS + 1):
            return f"; bits= takes 1 to {MAX_BITS}"
        return f"; pass bits={int(value)} to have one chosen, or Uniform({int(value)})"
    if isinstance(value, DType):
        return f"; encode(x, values={value}) packs what has exactly its levels" if value.is_integer else (
            f"; {value.kind} is the law of a result, and Uniform({value.bits}) a quantiser"
        )  # fmt: skip
    if isinstance(value, str):
        return "; pass an object, such as quantarray.Sign(), not its name"
    return ""
