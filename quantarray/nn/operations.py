"""Operations of a graph: those on packed arrays, and those that run in NumPy.

An operation takes attributes, then its operands, and returns what it gives. Images are [n c h w], codes of them are
packed on c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType, integers
from ..ops.creation.creation import from_codes
from ..ops.manipulation.joining import concat
from ..ops.manipulation.repacking import repack
from ..ops.products.convolution import conv2d
from ..ops.products.matrix_product import linear
from ..ops.products.pooling import max_pool2d
from ..ops.words.conversion import codes, dequantize
from . import dense
from .dense.movement import reshaped

Attributes = dict[str, Any]
Operation = Callable[..., Any]


def _linear(a: Attributes, x: Any, w: QuantArray, requantize: Thresholds | None = None) -> Any:
    if type(x) is QuantArray and x.axis != x.ndim - 1:
        x = repack(x, -1)
    return linear(x, w, requantize=requantize)


def _conv2d(a: Attributes, x: Any, w: QuantArray, requantize: Thresholds | None = None) -> Any:
    return conv2d(
        repack(x, 1) if isinstance(x, QuantArray) and x.axis != 1 else x,
        w,
        stride=a["stride"],
        padding=a["padding"],
        dilation=a["dilation"],
        groups=a["groups"],
        requantize=requantize,
        data_format="NCHW",
    )


def _max_pool2d(a: Attributes, x: Any) -> Any:
    if isinstance(x, QuantArray) and x.axis != 1:
        x = repack(x, 1)
    return max_pool2d(x, a["size"], stride=a["stride"], padding=a["padding"], data_format="NCHW")


def _threshold(a: Attributes, x: Any, thresholds: Thresholds) -> QuantArray:
    """Convert values to codes by thresholds, packed on the channels.

    A single float threshold for all channels is compared by NumPy: packing the results takes a third of the time of
    packing by a threshold for each channel.
    """
    if isinstance(x, QuantArray):
        x = dequantize(x)
    values = thresholds.values
    if x.dtype == np.float32 and values.shape == (1,) and thresholds.greater and thresholds.into.ascending:
        over = x > values[0] if thresholds.strict else x >= values[0]
        return from_codes(over.view(np.uint8), thresholds.into, a["axis"])
    return thresholds(x, a["axis"])


def _pack(a: Attributes, x: Array) -> QuantArray:
    """Pack integers plus `shift` as codes of `levels`, whose steps are 1."""
    dtype = _dtype(a["levels"])
    return from_codes((x.astype(np.int64) + (a["shift"] - a["levels"][0])).astype(np.uint8), dtype, a["axis"])


def _relabel(a: Attributes, q: QuantArray) -> QuantArray:
    """Return the same codes with other levels."""
    return QuantArray(q.words, _dtype(a["levels"]), q.shape, q.axis)


@lru_cache(maxsize=256)
def _dtype(levels: tuple[int, ...]) -> DType:
    return integers(levels)


def _integers(a: Attributes, q: QuantArray) -> Array:
    """Return the levels of packed codes as a dense array, int32."""
    return dequantize(q)


def _reshape(a: Attributes, q: QuantArray) -> QuantArray:
    """Reshape codes; pack them anew on the last axis if axes behind the packed one merge with it."""
    new = reshaped(q.shape, a["shape"], 1)
    if q.axis != q.ndim - 1 and merged(q, new):
        q = repack(q, -1)
    return q.reshape(*new)


def merged(q: Any, new: tuple[int, ...]) -> bool:
    """Tell by the shape and axis of q whether axes behind the packed one merge with it in a new shape."""
    lead, length = math.prod(q.shape[: q.axis + 1]), 1
    for n in new:
        if length == lead:
            break
        length *= n
    return bool(length != lead)


def _moved(name: str) -> Operation:
    """Return an operation that moves the elements of dense arrays and of packed ones alike."""
    run = dense.RUN[name]

    def move(a: Attributes, x: Any, *rest: Any) -> Any:
        return run(a, x, *rest)

    return move


def _concat(a: Attributes, *x: Any) -> Any:
    if all(isinstance(q, QuantArray) for q in x):
        return concat([repack(q, x[0].axis) if q.axis != x[0].axis else q for q in x], axis=a["axis"])
    return dense.RUN["Concat"](a, *x)


PACKED: dict[str, Operation] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "threshold": _threshold,
    "pack": _pack,
    "relabel": _relabel,
    "unpack": _integers,
    "codes": lambda a, q: codes(q),
    "reshape": _reshape,
    "transpose": _moved("Transpose"),
    "concat": _concat,
}
OPERATIONS: dict[str, Operation] = {**dense.RUN, **PACKED}
