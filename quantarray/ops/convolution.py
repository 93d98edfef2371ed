"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..array import QuantArray
from ..device import common_device, kernel
from ..dtypes import Array
from ..format import WORD, WORD_BITS, word_count
from ..kernels import Right
from ..thresholds import Thresholds
from ..window import Window, classes, plan
from . import channelwise, checks, geometry, products, thresholding
from .lanes import TILE, GroupLanes
from .operand import Operand, bias_values, from_dense, is_dense, lower, operand, result_type

OP = "conv2d"


def conv2d(
    x: Any,
    w: QuantArray,
    *,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds | None = None,
    out_dtype: Any = None,
    data_format: str = "NHWC",
    flip_kernel: bool = False,
) -> Any:
    """2-D convolution of packed arrays (cross-correlation, as every framework has it).

        out[n, i, j, o] = sum_{a, b, c} x[n, i*sh + a*dh - top, j*sw + b*dw - left, c] * w[o, a, b, c] + bias[o]

    x: QuantArray [n h w c] packed on c, or an int8/uint8 array (first layers). w: QuantArray [o kh kw c/groups]
    packed on its last axis; with groups = c (depthwise) packed on o. `data_format="NCHW"` has x [n c h w] and
    w [o c/groups kh kw], packed on the same axes. stride, dilation: an integer or (height, width). padding: an
    integer, (height, width), ((top, bottom), (left, right)), "same" or "valid". A padded tap has the value
    `pad_value`, 0 by default, whatever x's levels are. `flip_kernel=True` is the textbook convolution.

    Returns int32, exact, where both operands have integer levels without a scale and the bias is integer (int64
    where the sum could pass 2**31); otherwise float32, summed in float64 from exact counts in the order of
    docs/kernels/conv.md and rounded once. With `requantize`, a `Thresholds`, the packed codes of exactly that result.

    Raises TypeError, ValueError, OverflowError or DeviceError with what was needed, what came, and the fix.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1))
    >>> w = qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1))
    >>> qa.conv2d(x, w, padding=1)[0, :, :, 0]
    array([[256, 384, 256],
           [384, 576, 384],
           [256, 384, 256]], dtype=int32)
    """
    checks.choice(OP, "data_format", data_format, ("NHWC", "NCHW"))
    x, w = operand(OP, "x", x), checks.packed(OP, "w", w)
    device = common_device(OP, x=x, w=w)
    groups = checks.integer(OP, "groups", groups, 1)
    depthwise = _check_channels(x, w, groups, data_format)
    if data_format == "NCHW":
        x = x.transpose(0, 2, 3, 1)
    w = _channels_last(w, data_format, flip_kernel)
    (_, *image, _), (channels, *taps, _) = x.shape, w.shape
    window = geometry.window(OP, (image[0], image[1]), (taps[0], taps[1]), stride, padding, dilation)
    thresholding.check(OP, requantize, channels)
    shift = bias_values(OP, bias, channels)
    pad = _pad_value(pad_value)
    shape = (x.shape[0], *window.output, channels)
    if is_dense(x):
        x, w, window = _pack_dense(x, w, window, 0 if depthwise else groups, pad)
    _check_constants(x, w, depthwise)
    a, b = lower(OP, "x", x), w.cached("operand", lambda: lower(OP, "w", w))
    exact = a.exact and b.exact and (shift is None or shift.dtype == np.int64)
    if exact and not isinstance(pad, int):
        raise ValueError(f"{OP}: pad_value must be an integer where the result is an integer, got {pad_value!r}")
    largest = max(x.dtype.max_abs, abs(int(pad))) * w.dtype.max_abs if exact else a.reach * b.reach
    bound = window.taps * w.shape[3] * largest
    dtype = result_type(OP, exact, bound, shift, out_dtype)
    job = Job(device, x, w, a, b, window, groups, dtype, pad, shift, requantize, shape)
    made = _depthwise(job) if depthwise else _grouped(job)
    order = (0, 3, 1, 2)
    return made.transpose(*order) if data_format == "NCHW" else made


@dataclass(frozen=True)
class Job:
    """A checked convolution, channels last."""

    device: str
    x: QuantArray
    w: QuantArray
    a: Operand
    b: Operand
    window: Window
    groups: int
    dtype: np.dtype[Any]
    pad: float
    bias: Array | None
    requantize: Thresholds | None
    shape: tuple[int, ...]

    @property
    def real(self) -> bool:
        return self.dtype == np.float32


# checks


def _check_channels(x: Any, w: QuantArray, groups: int, data_format: str) -> bool:
    """True for depthwise weights; an error where axes, channels or groups do not fit."""
    needed = {"NHWC": ("n h w c", "o kh kw c/groups", 3), "NCHW": ("n c h w", "o c/groups kh kw", 1)}[data_format]
    if x.ndim != 4 or w.ndim != 4:
        hint = "; x[None] adds the batch axis" if x.ndim == 3 else ""
        raise ValueError(f"{OP}: needs x [{needed[0]}] and w [{needed[1]}], got {x.shape} and {w.shape}{hint}")
    at = needed[2]
    if isinstance(x, QuantArray) and x.axis != at:
        raise ValueError(
            f"{OP}: {data_format} needs x packed on its channel axis {at}, got {x.shape} packed on axis {x.axis}; "
            f"pack it with axis={at}, or pass the other data_format"
        )
    channels, per_group, outputs = x.shape[at], w.shape[at], w.shape[0]
    if 0 in w.shape or not channels:
        raise ValueError(f"{OP}: w must have at least one tap and channel, got x {x.shape} and w {w.shape}")
    if channels != per_group * groups or outputs % groups:
        raise ValueError(
            f"{OP}: x has {channels} channels (axis {at} of {x.shape}), w takes {per_group} in each of {groups} groups "
            f"and gives {outputs} (w {w.shape}, {data_format}): needs channels = {per_group} * groups and outputs a "
            f"multiple of groups"
        )
    depthwise = per_group == 1 and w.axis == 0
    if not depthwise and w.axis != at:
        raise ValueError(
            f"{OP}: {data_format} needs w packed on its input channel axis {at} (or on axis 0 if groups = channels), "
            f"got shape {w.shape} packed on axis {w.axis}; pack it with axis={at}"
        )
    return depthwise


def _pad_value(value: Any) -> float:
    number = checks.number(OP, "pad_value", value)
    if abs(number) >= 2**31:
        raise ValueError(f"{OP}: pad_value must lie within +-2**31, got {value!r}")
    return number if isinstance(number, int) else float(np.float32(number))


def _check_constants(x: QuantArray, w: QuantArray, depthwise: bool) -> None:
    """Constants may vary along the batch of x and the outputs of w, and along channels if they are not contracted."""
    for name, q, free in (("x", x, {0, 3} if depthwise else {0}), ("w", w, {0})):
        for constant, a, lead in q.constants.items():
            along = [d for d in range(4) if a.shape[lead + d] > 1 and d not in free]
            if along:
                raise ValueError(
                    f"{OP}: the {constant} of {name} {q.shape} varies along axis {along[0]} (channels last), which is "
                    f"contracted; quantise with scale_axis=0 or one constant for the array"
                )


# forms of the operands


def _channels_last(w: QuantArray, data_format: str, flip: bool) -> QuantArray:
    """Weights as [o kh kw c], kept on the array so that kernel layouts are made once."""
    if data_format == "NHWC" and not flip:
        return w

    def build() -> QuantArray:
        made = w.transpose(0, 2, 3, 1) if data_format == "NCHW" else w
        return made[:, ::-1, ::-1] if flip else made

    found: QuantArray = w.cached(("channels last", data_format, flip), build)
    return found


def _pack_dense(
    x: Array, w: QuantArray, window: Window, groups: int, pad: float
) -> tuple[QuantArray, QuantArray, Window]:
    """An 8-bit image as packed planes; images of few channels as rows of whole windows.

    With 3 channels, 9 taps would be 9 words of 3 bits each; unrolled they are 27 bits of one.
    """
    taps, channels = window.taps, x.shape[3]
    saves = word_count(taps * channels) < taps * word_count(channels)
    if groups != 1 or not saves or pad != 0:
        return from_dense(x, 3), w, window
    padded = np.pad(x, ((0, 0), *window.pads, (0, 0)))
    spans = tuple((k - 1) * d + 1 for k, d in zip(window.size, window.dilation, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(padded, spans, (1, 2))
    (sh, sw), (dh, dw) = window.stride, window.dilation
    views = views[:, ::sh, ::sw, :, ::dh, ::dw].transpose(0, 1, 2, 4, 5, 3)
    rows = views.reshape(*views.shape[:3], taps * channels)
    flat = w.cached("unrolled", lambda: w.reshape(w.shape[0], 1, 1, -1))
    return from_dense(rows, 3), flat, Window(window.output, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))


# contraction over channels


def _grouped(job: Job) -> Any:
    window, groups = job.window, job.groups
    per_group = job.x.shape[3] // groups
    words = _split_groups(job.device, job.a.words, job.x.shape[3], groups)
    where = plan(window, word_count(per_group), groups, TILE)
    found = classes(window)
    right, inside_sums, outside = _right(job, found.inside, per_group)
    scale, offset = job.a.constants(4)
    x_scale, x_offset = scale[None, :, :, 0, 0, :1], offset[None, :, 0, 0, :1]
    x = products.left(job.a._replace(words=words), job.x.shape[0], x_scale, x_offset, False)
    lanes = GroupLanes(job.shape[3], groups)
    extra = pad = shift = None
    if job.real:
        w_scale, w_offset = _weight_constants(job.b, job.shape[3])
        n_outside = (~found.inside).sum(axis=1) * per_group
        pad, shift = products.real_extras(job.pad, job.bias, outside, n_outside, w_scale, w_offset)
    else:
        extra = products.integer_extra(job.a, inside_sums, int(job.pad), job.bias, outside)
    finish = thresholding.finish(job.requantize, job.shape[3], job.real, extra, pad, shift, lanes=lanes)
    return products.run(job.device, x, right, where, finish, job.requantize, job.dtype, job.shape)


def _split_groups(device: str, words: Array, channels: int, groups: int) -> Array:
    """Words [planes n h w word] with each group's channels on words of their own."""
    per_group = channels // groups
    if groups == 1 or per_group % WORD_BITS == 0:
        return words
    source = np.ascontiguousarray(words)
    out = np.empty((*source.shape[:-1], groups, word_count(per_group)), WORD)
    if out.size:
        rows = out.reshape(-1, groups, out.shape[-1])
        kernel(device, "rebit")(source.reshape(-1, 1, source.shape[-1]), channels, 0, per_group, rows)
    return out


def _right(job: Job, inside: Array, per_group: int) -> tuple[Right, Array, Array]:
    """The weights as the kernel takes them, and the terms' sums over inner and padded taps [classes terms channels]."""

    def layout() -> tuple[Array, Array]:
        planes, channels = job.b.words.shape[0], job.shape[3]
        by_tap = job.b.words.reshape(planes, channels, job.window.taps, -1)
        return products.weight_words(job.device, by_tap, job.groups), products.term_sums(job.b, per_group, by_tap)

    def build() -> tuple[Right, Array, Array]:
        words, by_tap = job.w.cached(("conv", job.groups), layout)
        sums = np.moveaxis(by_tap @ inside.T.astype(np.int64), -1, 0)
        lanes = GroupLanes(job.shape[3], job.groups)
        scale, offset = _weight_constants(job.b, job.shape[3])
        right = Right(
            words=words,
            terms=job.b.terms,
            scale=lanes(scale)[None],
            offset=lanes(offset)[None],
            sums=lanes(sums),
            inside=inside.sum(axis=1) * per_group,
            groups=job.groups,
            group_words=word_count(per_group),
            group_lanes=job.shape[3] // job.groups,
        )
        return right, sums, by_tap.sum(axis=-1)[None] - sums

    found: tuple[Right, Array, Array] = job.w.cached(("right", job.groups, inside.tobytes()), build)
    return found


def _weight_constants(b: Operand, channels: int) -> tuple[Array, Array]:
    """Scale [terms channels] and offset [channels] of weights that vary along their outputs only."""
    scale, offset = b.constants(4)
    return products.full_lane(scale[:, :, 0, 0, 0], channels), products.full_lane(offset[:, 0, 0, 0], channels)


# one input channel an output


def _depthwise(job: Job) -> Any:
    def build() -> Array:
        return channelwise.term_values(job.b, job.shape[3])

    values = job.w.cached("depthwise", build)
    scale, offset = job.b.constants(4)
    scale, offset = scale[:, :, 0, 0, 0], offset[:, 0, 0, 0]
    if job.w.group is not None:
        index = np.arange(job.shape[3]) // job.w.group
        scale, offset = (c if c.shape[-1] == 1 else c[..., index] for c in (scale, offset))
    w = channelwise.Weights(values, products.full_lane(scale, job.shape[3]), products.full_lane(offset, job.shape[3]))
    return channelwise.run(
        job.device, job.x, job.a, w, job.window, job.dtype, job.pad, job.bias, job.requantize, job.shape, mean=False
    )
