"""Pools: the largest values as they are, means as exact sums and a division."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.dtypes import Array
from ....ops.products import geometry
from ...operators.pooling import counts
from ...operators.windows import grid
from ..tensors import Refused
from .products import ends
from .writer import DOUBLE, SINGLE, Held, Writer


def pool_attributes(
    image: tuple[int, ...], size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> dict[str, Any]:
    """Return the attributes of ONNX's pools for the arguments of the package's."""
    axes = len(image)
    size = geometry.numbers("save", "size", size, 1, axes)
    stride = size if stride is None else geometry.numbers("save", "stride", stride, 1, axes)
    dilation = geometry.numbers("save", "dilation", dilation, 1, axes)
    around = geometry.pads("save", image, size, stride, padding, dilation)
    attributes = {"kernel_shape": list(size), "strides": list(stride), "pads": ends(around)}
    more = {"dilations": list(dilation)} if max(dilation) > 1 else {}
    return {**attributes, **more, **({"ceil_mode": 1} if ceil_mode else {})}


def max_pool(w: Writer, x: Held, **attributes: Any) -> Held:
    """Take the largest value of each window of images [n c h w]."""
    windows = grid(attributes, x.shape[2:], tuple(attributes["kernel_shape"]))
    shape = (*x.shape[:2], *windows.output)
    if x.scaled is not None and x.scaled[1] > 0:
        return w.scaled(max_pool(w, x.scaled[0], **attributes), x.scaled[1], x.dtype)
    if x.kind.kind == "b":
        raise Refused("a MaxPool of bools")
    name = w.emit("MaxPool", [w.real(x)], **attributes)
    return Held(shape, x.dtype, name, w.is_wide(x), low=x.low, high=x.high, rough=x.rough)


def extreme_pool(w: Writer, x: Held, falling: Array, **attributes: Any) -> Held:
    """Take the largest value of each window, and of channels where `falling` the smallest: by the values' negatives."""
    if not falling.any():
        return max_pool(w, x, **attributes)
    sign = np.where(falling, -1, 1).reshape(1, -1, *(1,) * (len(x.shape) - 2))
    wide = w.is_wide(x)
    factor = w.constant(sign.astype(np.float64 if wide else np.float32))
    low, high = (None, None) if x.low is None or x.high is None else (min(x.low, -x.high), max(x.high, -x.low))
    turned = Held(x.shape, x.dtype, w.emit("Mul", [w.real(x, wide), factor]), wide, low=low, high=high)
    y = max_pool(w, turned, **attributes)
    return Held(y.shape, x.dtype, w.emit("Mul", [w.real(y, wide), factor]), wide, low=x.low, high=x.high)


def sum_pool(w: Writer, x: Held, **attributes: Any) -> Held:
    """Sum each window, with padding as 0, by a convolution with ones of each channel.

    An AveragePool would round its quotients.
    """
    windows = grid(attributes, x.shape[2:], tuple(attributes["kernel_shape"]))
    channels, taps = x.shape[1], int(np.prod(windows.kernel))
    reach = x.reach * taps if x.whole else 0
    if reach >= DOUBLE:
        raise Refused(f"its sums may reach {reach}, more than float64 holds exactly")
    wide = reach > SINGLE or not x.whole or x.reach > SINGLE
    ones = w.constant(np.ones((channels, 1, *windows.kernel), np.float64 if wide else np.float32), f"{w.label}.ones")
    pads = [before for before, _ in windows.pads] + [after for _, after in windows.pads]
    name = w.emit("Conv", [w.real(x, wide), ones], kernel_shape=list(windows.kernel), strides=list(windows.strides),
                  dilations=list(windows.dilations), pads=pads, group=channels)  # fmt: skip
    shape = (*x.shape[:2], *windows.output)
    if not x.whole:
        return Held(shape, np.dtype(np.float64), name, True, rough=True)
    assert x.low is not None and x.high is not None
    low, high = min(x.low * taps, 0), max(x.high * taps, 0)
    return Held(shape, np.dtype(np.int64), name, wide, low=low, high=high)


def mean_pool(w: Writer, x: Held, **attributes: Any) -> Held:
    """Divide the exact sum of each window by the number of its elements that are no padding; rounded once to x's dtype
    of floats, float32 for integers."""
    kind = np.dtype(np.float64 if x.kind == np.float64 else np.float32)
    inside = counts(attributes, x.shape[2:])
    if (inside == inside.reshape(-1)[0]).all():
        inside = inside.reshape(-1)[0]
    if x.scaled is not None:
        sums = sum_pool(w, x.scaled[0], **attributes)
        total = w.emit("Mul", [w.real(sums, True), w.constant(np.float64(x.scaled[1]))])
        wide = True
    else:
        sums = sum_pool(w, x, **attributes)
        total, wide = w.real(sums), w.is_wide(sums)
    divisor: Array = np.asarray(inside, np.float64 if wide else np.float32)
    name = w.emit("Div", [total, w.constant(divisor)])
    result = np.dtype(np.float64 if wide else np.float32)
    return Held(sums.shape, kind, name if result == kind else w.cast(name, kind), kind == np.float64, rough=sums.rough)
