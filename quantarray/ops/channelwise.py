"""Windows over each channel by itself: depthwise convolution and average pooling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import QuantArray
from ..device import asnumpy
from ..dtypes import Array
from ..format import WORD_BITS
from ..kernels import Right
from ..thresholds import Thresholds
from ..window import Window, classes, plan
from . import products, slices, thresholding
from .lanes import CopyLanes
from .operand import Operand


class Weights(NamedTuple):
    """values int64[terms taps channels], scale float64[terms channels], offset float64[channels]."""

    values: Array
    scale: Array
    offset: Array


def term_values(w: Operand, channels: int) -> Array:
    """The integers of weights packed on their outputs, int64[terms taps channels]."""
    words = np.ascontiguousarray(asnumpy(w.words)).reshape(len(w.words), -1, w.words.shape[-1])
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")[..., :channels]
    values = []
    for first, planes, base, step in w.terms.tolist():
        codes = sum(bits[first + i].astype(np.int64) << i for i in range(planes))
        values.append(base + step * codes)
    return np.array(values)


def weights(w: QuantArray, b: Operand) -> Weights:
    """Depthwise weights [o kh kw 1] packed on their outputs, as channels."""
    channels = w.shape[0]
    scale, offset = b.constants(4)
    scale, offset = scale[:, :, 0, 0, 0], offset[:, 0, 0, 0]
    if w.group is not None:
        index = np.arange(channels) // w.group
        scale, offset = (c if c.shape[-1] == 1 else c[..., index] for c in (scale, offset))
    values = w.cached("depthwise", lambda: term_values(b, channels))
    return Weights(values, products.full_lane(scale, channels), products.full_lane(offset, channels))


class Channelwise(NamedTuple):
    """The call that is left."""

    call: products.Call
    mean: bool

    def __call__(self, x: QuantArray, a: Operand, out: Array | None = None) -> Any:
        """x [n h w c] and its lowered form in, the result out."""
        scale, offset = a.constants(4)
        scale, offset = by_channel(x, scale[:, :, 0, 0])[None], by_channel(x, offset[:, 0, 0])[None]
        left = products.left(a.words, a.terms, len(x), False, scale, offset)
        return self.call(left, out, self.mean)


def prepare(
    device: str,
    channels: int,
    terms: Array,
    w: Weights,
    window: Window,
    dtype: np.dtype[Any],
    pad_value: float,
    bias: Array | None,
    requantize: Thresholds | None,
    shape: tuple[int, ...],
    mean: bool,
) -> Channelwise | slices.Sliced:
    """Lay everything out as [copy, input channel] lanes; what is left takes x.

    `terms` are those of x, `channels` its channels, `shape` the result's.
    """
    outputs, real = shape[3], dtype == np.float32
    if requantize is not None and slices.possible(device, terms, w.values, channels, real or mean, requantize):
        fixed = int(pad_value), bias, requantize
        return slices.prepare(device, terms, w.values[0], 1, window, *fixed, dtype, shape)
    lanes = CopyLanes(channels, outputs // max(channels, 1))
    width, copies = lanes.width, lanes.copies
    found = classes(window)
    sums = np.einsum("kt,stc->ksc", found.inside.astype(np.int64), w.values)
    by_lane = lanes(w.values).reshape(*w.values.shape[:2], copies, width)
    right = Right(
        words=np.ascontiguousarray(by_lane.transpose(0, 2, 1, 3)),
        terms=np.array([(s, 1, 0, 1) for s in range(len(w.values))], np.int64),
        scale=lanes(w.scale)[None],
        offset=lanes(w.offset)[None],
        sums=lanes(sums),
        inside=found.inside.sum(axis=1),
        groups=1,
        group_words=width // WORD_BITS,
        group_lanes=channels,
    )
    outside = w.values.sum(axis=1) - sums
    extra = pad = shift = None
    if real:
        n_outside = (~found.inside).sum(axis=1)
        pad, shift = products.real_extras(pad_value, bias, outside, n_outside, w.scale, w.offset)
    else:
        extra = products.integer_extra(terms, sums, int(pad_value), bias, outside, np.dtype(np.int64))
    finish = thresholding.finish(requantize, outputs, real, extra, pad, shift, lanes=lanes)
    where, packed = plan(window, width // WORD_BITS, 1, 1), thresholding.packed(device, requantize, shape)
    return Channelwise(products.Call(device, "depthwise", right, where, finish, packed, dtype, shape), mean)


def by_channel(x: QuantArray, constant: Array) -> Array:
    """A constant [.., channels or groups or 1] with groups repeated."""
    if x.group is None or constant.shape[-1] == 1:
        return constant
    return np.asarray(constant[..., np.arange(x.shape[3]) // x.group])
