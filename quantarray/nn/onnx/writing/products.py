"""Convolutions and matrix products: exact on integers, followed by scales and biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ....arrays.array import QuantArray
from ....core.dtypes import Array
from ....ops.products import geometry
from ....ops.words.conversion import dequantize
from ..tensors import Refused
from .laws import weight
from .writer import DOUBLE, SINGLE, Held, Shape, Writer

Emit = Callable[[str, str], str]


class Product(NamedTuple):
    """A product of x with constant weights, outputs on axis 0 of the weights and on `axis` of the result.

    emit(x, w): the node, for tensors of one dtype. order: how the weights' axes are permuted for it.
    """

    emit: Emit
    order: tuple[int, ...]
    shape: Shape
    axis: int


def product(w: Writer, x: Held, q: QuantArray, p: Product, bias: Array | None = None, dtype: Any = None) -> Held:
    """Multiply x by packed weights and add a bias [outputs]; integers where all of them are, else float32.

    dtype: of the result, by default the one that the operation gives.
    """
    scale = _scale_of(q)
    parts = x.scaled if x.scaled is not None else (x, 1.0)
    if scale is None or not parts[0].whole:
        return _real(w, x, q, p, bias)
    assert q.dtype.levels is not None
    integers = np.asarray(dequantize(QuantArray(q.words, q.dtype, q.shape, q.axis)), np.int64)
    exact = x.scaled is None and not q.constants.shapes
    if exact and (bias is None or bias.dtype.kind in "iu"):
        return _whole(w, x, integers, p, bias, dtype)
    sums = _whole(w, parts[0], integers, p, None, None)
    factor = scale * parts[1]
    factor = factor.reshape(()) if factor.size == 1 else factor.reshape(-1, *(1,) * (len(p.shape) - p.axis - 1))
    if bias is None:
        return w.scaled(sums, factor, np.dtype(np.float32))
    product_of = w.emit("Mul", [w.real(sums, True), w.constant(factor)])
    total = w.emit("Add", [product_of, w.constant(_by_channel(bias.astype(np.float64), p))])
    return Held(p.shape, np.dtype(np.float32), w.cast(total, np.float32))


def _scale_of(q: QuantArray) -> Array | None:
    """Return the scale of integer weights, one or one an output, as float64; None if they have another law."""
    if q.dtype.levels is None or q.constants.group is not None:
        return None
    scale = q.constants.scale
    if scale is None:
        return np.ones(())
    return scale.astype(np.float64).reshape(-1) if scale.size in (1, scale.shape[0]) else None


def _whole(w: Writer, x: Held, integers: Array, p: Product, bias: Array | None, dtype: Any) -> Held:
    """Sum integers in float32 if that is exact, else in float64."""
    low, high = _bounds(x, integers)
    if bias is not None:
        low, high = low + min(int(bias.min(initial=0)), 0), high + max(int(bias.max(initial=0)), 0)
    reach = max(-low, high)
    if reach >= DOUBLE:
        raise Refused(f"its sums may reach {reach}, more than float64 holds exactly")
    wide = reach > SINGLE or x.reach > SINGLE
    names = w.real(x, wide), weight(w, integers.transpose(p.order), wide)
    name = p.emit(*names)
    if bias is not None:
        name = w.emit("Add", [name, w.constant(_by_channel(bias.astype(np.float64 if wide else np.float32), p))])
    kind = np.dtype(np.int32 if reach < 2**31 else np.int64) if dtype is None else np.dtype(dtype)
    if kind.kind == "f":  # rounded, where sums pass what float32 holds
        return Held(p.shape, kind, w.cast(name, kind) if wide else name)
    return Held(p.shape, kind, name, wide, low=low, high=high)


def _bounds(x: Held, integers: Array) -> tuple[int, int]:
    """Bound the sums of products of x, or 0, with a row of weights."""
    assert x.low is not None and x.high is not None
    flat = integers.reshape(len(integers), -1).astype(np.float64)
    up, down = np.maximum(flat, 0).sum(axis=1), np.minimum(flat, 0).sum(axis=1)
    top, bottom = max(x.high, 0), min(x.low, 0)
    high = float((top * up + bottom * down).max(initial=0))
    low = float((bottom * up + top * down).min(initial=0))
    return int(low), int(high)


def _real(w: Writer, x: Held, q: QuantArray, p: Product, bias: Array | None) -> Held:
    """Multiply real values in float64, and round once."""
    values = np.asarray(dequantize(q), np.float64).transpose(p.order)
    name = p.emit(w.real(x, True), w.constant(values, f"{w.label}.weight"))
    if bias is not None:
        name = w.emit("Add", [name, w.constant(_by_channel(bias.astype(np.float64), p))])
    return Held(p.shape, np.dtype(np.float32), w.cast(name, np.float32), rough=True)


def _by_channel(a: Array, p: Product) -> Array:
    return a.reshape(-1, *(1,) * (len(p.shape) - p.axis - 1))


def matrix(w: Writer, x: Held, q: QuantArray) -> Product:
    """Return the MatMul of x [.. k] with weights [o k]."""
    shape = (*x.shape[:-1], q.shape[0])
    return Product(lambda a, b: w.emit("MatMul", [a, b]), (1, 0), shape, len(shape) - 1)


def convolution(
    w: Writer, x: Held, outputs: int, kernel: Shape, order: tuple[int, ...], a: Mapping[str, Any]
) -> tuple[Held, Product]:
    """Return images [n c ..] with borders of a pad value, and the Conv of them by weights [o c ..].

    order: permutes the weights as they are to [o c ..]. a: the arguments `stride`, `padding`, `dilation`, `groups` and
    `pad_value` of the function.
    """
    axes = len(kernel)
    window = geometry.window("save", x.shape[2:], kernel, a["stride"], a["padding"], a["dilation"])
    strides, dilations = (list(geometry.numbers("save", name, a[name], 1, axes)) for name in ("stride", "dilation"))
    pads: Any = window.pads
    if a.get("pad_value") and any(map(any, pads)):
        x, pads = padded(w, x, pads, a["pad_value"]), ((0, 0),) * axes
    attributes = {"kernel_shape": list(kernel), "pads": ends(pads), "strides": strides, "dilations": dilations}

    def emit(image: str, weights: str) -> str:
        return w.emit("Conv", [image, weights], **attributes, group=a["groups"])

    return x, Product(emit, order, (x.shape[0], outputs, *window.output), 1)


def transposed_convolution(w: Writer, shape: Shape, kernel: Shape, a: dict[str, Any]) -> Product:
    """Return the ConvTranspose that gives images [n o ..] of `shape`, by weights [o c ..]; `a` are the arguments."""
    axes = len(kernel)
    around = a.get("padding", 0)
    pads = around if np.iterable(around) else ((around, around),) * axes
    numbers = {name: list(np.broadcast_to(a.get(name, usual), axes)) for name, usual in _TRANSPOSED.items()}
    attributes = {"kernel_shape": list(kernel), "strides": numbers["stride"], "dilations": numbers["dilation"],
                  "output_padding": numbers["output_padding"]}  # fmt: skip
    pairs = [pair if np.iterable(pair) else (pair, pair) for pair in pads]

    def emit(x: str, weights: str) -> str:
        whole = {name: [int(n) for n in values] for name, values in attributes.items()}
        return w.emit("ConvTranspose", [x, weights], **whole, pads=ends(pairs))

    return Product(emit, (1, 0, *range(2, axes + 2)), shape, 1)


_TRANSPOSED = {"stride": 1, "dilation": 1, "output_padding": 0}


def ends(padding: Any) -> list[int]:
    """Return ((top, bottom), (left, right)) as ONNX has pads: all that come before, then all that come after."""
    return [int(pair[side]) for side in (0, 1) for pair in padding]


def padded(w: Writer, x: Held, padding: Any, value: float) -> Held:
    """Return images [n c ..] with borders of a number."""
    pads = ends(padding)
    if not any(pads):
        return x
    axes = len(pads) // 2
    widths = np.array([0, 0, *pads[:axes], 0, 0, *pads[axes:]], np.int64)
    shape = (*x.shape[:2], *(n + a + b for n, a, b in zip(x.shape[2:], pads[:axes], pads[axes:], strict=True)))
    whole = x.whole and float(value).is_integer()
    wide = w.is_wide(x) or (whole and abs(value) > SINGLE) or not whole
    fill = w.constant(np.asarray(value, np.float64 if wide else np.float32))
    name = w.emit("Pad", [w.real(x, wide), w.constant(widths), fill], mode="constant")
    if not whole:
        return Held(shape, np.dtype(np.float64), name, True)
    assert x.low is not None and x.high is not None
    return Held(shape, np.dtype(np.int64), name, wide, low=min(x.low, int(value)), high=max(x.high, int(value)))
