"""Convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.layouts import room
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.format import WORD
from ...core.hints import Bytes, DataFormat, OutType, Padding, Pair, Values
from ...kernels.windows import classes
from . import (
    calls,
    conv_plan,
    depthwise_plan,
    epilogue,
    folded_thresholds,
    geometry,
    image_bytes,
    merged_groups,
    parts,
    select,
)
from .conv_job import Job
from .depthwise_job import DepthwiseJob, weights
from .lanes import layout_bytes
from .operand import (
    Operand,
    bias_values,
    from_dense,
    inexact,
    is_dense,
    lower,
    operand,
    plain_terms,
    result_type,
    row_step,
    summed,
)

OP = "conv2d"


@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: None = None,
    out_dtype: OutType = None,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
    out: Array | None = None,
) -> Array: ...
@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds,
    out_dtype: OutType = None,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
    out: Array | None = None,
) -> QuantArray: ...
@overload
def conv2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds | None,
    out_dtype: OutType = None,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
    out: Array | None = None,
) -> Array | QuantArray: ...
def conv2d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
    out: Array | None = None,
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
    docs/kernels/conv_real.md and rounded once. With `requantize`, a `Thresholds`, the packed codes of exactly that
    result.
    `out`: an array of the result's dtype and shape to write to, which is returned.

    Raises TypeError, ValueError, OverflowError or DeviceError with what was needed, what came, and the fix.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1))
    >>> w = qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1))
    >>> qa.conv2d(x, w, padding=1)[0, :, :, 0]
    array([[256, 384, 256],
           [384, 576, 384],
           [256, 384, 256]], dtype=int32)
    """
    if not isinstance(x, QuantArray):
        x = operand(OP, "x", x)
    if not isinstance(w, QuantArray):
        checks.packed(OP, "w", w, likely_fix.swapped(OP, x, w))
    if bias is not None:
        bias = bias_values(OP, bias, w.shape[0])
    options = (stride, padding, dilation, groups, pad_value, requantize, out_dtype, data_format, flip_kernel)
    prepared: Prepared = calls.prepared(OP, x, w, options, bias, _prepare)
    if out is None:
        return prepared(x)
    dtype, shape = prepared.run.call.dtype, prepared.run.call.shape
    if prepared.channels_first:
        shape = (shape[0], shape[3], *shape[1:3])
    last = 1 if prepared.channels_first else 3
    return calls.write_to(OP, w.device, out, requantize, dtype, shape, last, lambda rows: prepared(x, rows))


class Options(NamedTuple):
    """A set of the arguments of `conv2d` besides x, w, bias and out, by which prepared calls are looked up."""

    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    pad_value: Any
    requantize: Thresholds | None
    out_dtype: Any
    data_format: Any
    flip_kernel: Any


class Prepared(NamedTuple):
    """A checked convolution, ready to run for any x of one form; w's cache holds it."""

    channels_first: bool
    pack: Callable[[Array], QuantArray] | None  # an image of bytes, if it is not taken as it is
    run: (
        depthwise_plan.Channelwise
        | conv_plan.Contraction
        | conv_plan.InTurns
        | parts.ByOutputs
        | parts.ByRows
        | calls.OfNothing
    )

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        """Compute the result, in `out` [n i j o] if it is passed."""
        if self.channels_first:
            x = x.transpose(0, 2, 3, 1)
        if self.pack is not None and not isinstance(x, QuantArray):  # bytes, as `operand` has it
            x = self.pack(x)
        if isinstance(self.run, (depthwise_plan.Channelwise, calls.OfNothing)):
            result = self.run(x, lower(OP, "x", x), out=out)
        else:
            result = self.run(x, out)
        return result.transpose(0, 3, 1, 2) if self.channels_first else result


def _prepare(
    device: str,
    x: Any,
    w: QuantArray,
    bias: Array | None,
    *options: Any,
) -> Prepared:
    """Check the arguments, and make ready all that does not depend on the words of x."""
    stride, padding, dilation, groups, pad_value, requantize, out_dtype, data_format, flip_kernel = Options(*options)
    checks.choice(OP, "data_format", data_format, ("NHWC", "NCHW"))
    groups, flip_kernel = checks.integer(OP, "groups", groups, 1), checks.flag(OP, "flip_kernel", flip_kernel)
    depthwise = _check_channels(x, w, groups, data_format)
    if data_format == "NCHW":
        x = x.transpose(0, 2, 3, 1)
    w = _channels_last(w, data_format, flip_kernel)
    (_, *image, _), (channels, *taps, _) = x.shape, w.shape
    if 0 in taps:
        raise ValueError(f"{OP}: w must have at least one tap, got {w.shape} (channels last)")
    window = geometry.window(OP, (image[0], image[1]), (taps[0], taps[1]), stride, padding, dilation, likely_fix.window)
    into = epilogue.check(OP, requantize, channels)
    pad = _pad_value(pad_value)
    shape = (x.shape[0], *window.output, channels)
    geometry.room(OP, window, shape, into)
    packed = from_dense(x[:0], 3) if is_dense(x) else x
    _check_constants(packed, w, depthwise)
    a, b = lower(OP, "x", packed), lower(OP, "w", w)
    exact = a.exact and b.exact and (bias is None or bias.dtype == np.int64)
    if exact and not isinstance(pad, int):
        raise ValueError(f"{OP}: pad_value must be an integer where the result is an integer, got {pad_value!r}")
    x_most = max(packed.dtype.max_abs, abs(int(pad))) if exact else summed(packed, a)
    largest = x_most * summed(w, b)
    dtype = result_type(OP, exact, window.taps * w.shape[3] * largest, bias, out_dtype)
    if 0 in w.shape:  # padding adds no elements to pixels of no channels
        nothing = calls.OfNothing(device, bias, requantize, dtype, shape)
        return Prepared(data_format == "NCHW", image_bytes.pack, nothing)
    if depthwise:
        one_by_one = weights(w, b)
        depth = DepthwiseJob(
            device, x.shape[3], a.terms, one_by_one, window, dtype, pad, bias, requantize, shape,
            inexact(a.terms, b, window.taps),
        )  # fmt: skip
        run = depthwise_plan.prepare(depth)
        return Prepared(data_format == "NCHW", image_bytes.pack, run)
    job = Job(
        device, w, a.terms, plain_terms(packed) is not None, b, window, groups, dtype, pad, bias, requantize, shape,
        is_dense(x), folds=exact or folded_thresholds.folds(a, b),
    )  # fmt: skip
    return _by_images(job, x, a)._replace(channels_first=data_format == "NCHW")


def _by_images(job: Job, x: Any, a: Operand) -> Prepared:
    """Prepare the product of channels last, over some images at a time where planes of x that are not its own ask for
    it."""
    step = row_step(x, a) if len(x) else 0
    if select.pick(select.ROWS, (step, len(x))) == select.AT_ONCE:
        return _by_outputs(job, x)
    result = parts.Result(job.device, job.requantize, job.dtype, job.shape)
    return Prepared(
        False, None, parts.ByRows.of(result, partial(_part, conv_plan.apart(job)), x, job.w, job.bias, step)
    )


def _part(job: Job, x: Any, w: QuantArray, bias: Array | None, requantize: Thresholds | None) -> Prepared:
    """Prepare the product of some images."""
    return _by_outputs(replace(job, w=w, b=lower(OP, "w", w), shape=(len(x), *job.shape[1:])), x)


def _by_outputs(job: Job, x: Any) -> Prepared:
    """Prepare the product by all outputs if the layout of w may be cached, or else by parts."""
    turned, way = _way(job)
    layout = 0 if turned is not None else _layout(way)
    if select.pick(select.OUTPUTS, (layout, job.w.nbytes + room(job.w.nbytes))) == select.AT_ONCE:
        return Prepared(False, *_run(job, turned, way))
    result = parts.Result(job.device, job.requantize, job.dtype, job.shape)
    output = job.b.planes * way.words * WORD.itemsize
    cached, together = output + 24 * len(classes(job.window).inside), 1 if job.groups == 1 else job.shape[3]
    whole = partial(_whole, conv_plan.apart(job))
    return Prepared(False, None, parts.by_outputs(result, whole, x, job.w, job.bias, output, cached, together))


def _layout(job: Job) -> int:
    return layout_bytes(job.b.planes, job.shape[3], job.words, job.groups)


def _whole(job: Job, x: Any, w: QuantArray, bias: Array | None, requantize: Thresholds | None) -> Prepared:
    """Prepare the product by some outputs."""
    shape = (*job.shape[:3], len(w))
    job = replace(job, w=w, b=lower(OP, "w", w), bias=bias, requantize=requantize, shape=shape)
    return Prepared(False, *_run(job, *_way(job)))


def _way(job: Job) -> tuple[Array | None, Job]:
    """(weights in turns if groups are bit-sliced, the job in the form in which it is multiplied else)."""
    turned, stage = None, select.GROUPS
    if job.groups > 1:
        groups = select.Groups(job)
        form = select.pick(stage, groups)
        if form == select.BIT_SLICED:
            turned = groups.turned
            if not job.real:
                return turned, job
            form = select.pick(select.OTHERWISE, groups)
        if form == select.MERGED:
            job = merged_groups.merged(job, groups.times)
    axes = select.AXES[select.pick(select.TAPS, job)] if job.few_channels else 0
    return turned, replace(job, unrolled=axes)


def _run(
    whole: Job, turned: Array | None, job: Job
) -> tuple[Callable[[Array], QuantArray] | None, conv_plan.Contraction | conv_plan.InTurns]:
    """(what packs an image of bytes first, the product)."""
    if turned is not None:
        return None, conv_plan.in_turns(whole, turned, job)
    pack = None
    if job.of_bytes and select.pick(select.BYTES, job) == select.PACKED:
        job, pack = image_bytes.packed(job)
    return pack, conv_plan.prepare(job)


# checks


def _check_channels(x: Any, w: QuantArray, groups: int, data_format: str) -> bool:
    """True for depthwise weights; an error where axes, channels or groups do not fit."""
    needed = {"NHWC": ("n h w c", "o kh kw c/groups", 3), "NCHW": ("n c h w", "o c/groups kh kw", 1)}[data_format]
    if x.ndim != 4 or w.ndim != 4:
        hint = likely_fix.axes_of_convolution(x, w)
        raise ValueError(f"{OP}: needs x [{needed[0]}] and w [{needed[1]}], got {x.shape} and {w.shape}{hint}")
    at = needed[2]
    if isinstance(x, QuantArray) and x.axis != at:
        raise ValueError(
            f"{OP}: {data_format} needs x packed on its channel axis {at}, got {x.shape} packed on axis {x.axis}"
            f"{likely_fix.packed_axis(x, data_format)}"
        )
    channels, per_group, outputs = x.shape[at], w.shape[at], w.shape[0]
    if channels != per_group * groups or outputs % groups:
        raise ValueError(
            f"{OP}: x has {channels} channels (axis {at} of {x.shape}), w takes {per_group} in each of {groups} groups "
            f"and gives {outputs} (w {w.shape}, {data_format}): needs channels = {per_group} * groups and outputs a "
            f"multiple of groups{likely_fix.channels(x, w, groups, data_format)}"
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
    """Refuse constants that vary along what is contracted: they may along the batch of x and the outputs of w."""
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
    """Return weights as [o kh kw c], cached on the array so that kernel layouts are made once."""
    if data_format == "NHWC" and not flip:
        return w

    def build() -> QuantArray:
        moved = w.transpose(0, 2, 3, 1) if data_format == "NCHW" else w
        return moved[:, ::-1, ::-1] if flip else moved

    channels_last: QuantArray = w._cached(("channels last", data_format, flip), build)
    return channels_last
