"""Convolutions of one to three axes: arguments checked, and all made ready that does not depend on the words of x.

Lines are images of one row. Volumes [n d h w c] are images of d * h rows to whatever does not ask for the window, which
alone has three axes: neither moves a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.layouts import room
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.format import WORD
from ...kernels.windows import classes, lifted
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
    plane_sums,
    select,
)
from .conv_job import Job, Options
from .conv_plan import Prepared, two_axes
from .depthwise_job import DepthwiseJob, weights
from .lanes import layout_bytes
from .operand import (
    Operand,
    from_dense,
    inexact,
    is_dense,
    lower,
    plain_terms,
    result_type,
    row_step,
    shared,
    summed,
)


def _prepare(
    axes: int,
    device: str,
    x: Any,
    w: QuantArray,
    bias: Array | None,
    *options: Any,
) -> Prepared:
    """Check the arguments, and make ready all that does not depend on the words of x."""
    stride, padding, dilation, groups, pad_value, requantize, out_dtype, data_format, flip_kernel = Options(*options)
    op = f"conv{axes}d"
    first = geometry.data_format(op, data_format, axes)
    groups, flip_kernel = checks.integer(op, "groups", groups, 1), checks.flag(op, "flip_kernel", flip_kernel)
    depthwise = check_channels(op, x, w, groups, data_format, axes)
    if first:
        x = x.transpose(*geometry.to_last(axes))
    w = _channels_last(w, first, flip_kernel)
    (_, *image, _), (channels, *taps, _) = x.shape, w.shape
    if 0 in taps:
        raise ValueError(f"{op}: w must have at least one tap, got {w.shape} (channels last)")
    window = geometry.window(op, tuple(image), tuple(taps), stride, padding, dilation, likely_fix.window)
    into = epilogue.check(op, requantize, channels)
    pad = _pad_value(op, pad_value)
    result = (x.shape[0], *window.output, channels)
    geometry.room(op, window, result, into)
    check_constants(op, x, w, depthwise)
    if axes != 2:
        x, w, window = two_axes(x), _two_axes_of(w), lifted(window)
    shape = (x.shape[0], math.prod(window.output[:-1]), window.output[-1], channels)
    packed = from_dense(x[:0], 3) if is_dense(x) else x
    a, b = lower(op, "x", packed), lower(op, "w", w)
    exact = a.exact and b.exact and (bias is None or bias.dtype == np.int64)
    dtype, reach = dtype_of(op, packed, w, bias, out_dtype, pad)
    if 0 in w.shape:  # padding adds no elements to pixels of no channels
        nothing = calls.OfNothing(device, bias, requantize, dtype, shape)
        return Prepared(result, first, image_bytes.pack, nothing, reach)
    if depthwise:
        one_by_one = weights(w, b)
        depth = DepthwiseJob(
            device, x.shape[3], a.terms, one_by_one, window, dtype, pad, bias, requantize, shape,
            inexact(a.terms, b, window.taps),
        )  # fmt: skip
        return Prepared(result, first, image_bytes.pack, depthwise_plan.prepare(depth), reach)
    job = Job(
        device, w, a.terms, plain_terms(packed) is not None, b, window, groups, dtype, pad, bias, requantize, shape,
        is_dense(x), folds=exact or folded_thresholds.folds(a, b), shared=shared(a, 4),
    )  # fmt: skip
    return _by_images(job, x, a)._replace(shape=result, channels_first=first, reach=reach)


def dtype_of(
    op: str, x: QuantArray, w: QuantArray, bias: Array | None, out_dtype: Any, pad: float = 0
) -> tuple[np.dtype[Any], int]:
    """Return the dtype of sums of all taps of w, and a bound of exact ones; raise an error where they do not fit."""
    a, b = lower(op, "x", x), lower(op, "w", w)
    exact = a.exact and b.exact and (bias is None or bias.dtype == np.int64)
    if exact and not isinstance(pad, int):
        raise ValueError(f"{op}: pad_value must be an integer where the result is an integer, got {pad!r}")
    largest = max(x.dtype.max_abs, abs(int(pad))) if exact else summed(x, a)
    bound = math.prod(w.shape[1:]) * largest * summed(w, b)
    shift = int(np.abs(bias).max(initial=0)) if exact and bias is not None else 0
    return result_type(op, exact, bound, bias, out_dtype), bound + shift


PREPARE = {axes: partial(_prepare, axes) for axes in (1, 2, 3)}


def _by_images(job: Job, x: Any, a: Operand) -> Prepared:
    """Prepare the product of channels last, over some images at a time where planes of x that are not its own ask for
    it."""
    step = row_step(x, a) if len(x) else 0
    if job.real and not select.not_planes(job):
        step = min(step, plane_sums.images_at_once(job.terms, job.b, len(x), math.prod(job.shape[1:])))
    if select.pick(select.ROWS, (step, len(x))) == select.AT_ONCE:
        return _by_outputs(job, x)
    result = parts.Result(job.device, job.requantize, job.dtype, job.shape)
    return Prepared(
        job.shape, False, None, parts.ByRows.of(result, partial(_part, conv_plan.apart(job)), x, job.w, job.bias, step)
    )


def _part(job: Job, x: Any, w: QuantArray, bias: Array | None, requantize: Thresholds | None) -> Prepared:
    """Prepare the product of some images."""
    return _by_outputs(replace(job, w=w, b=lower("conv2d", "w", w), shape=(len(x), *job.shape[1:])), x)


def _by_outputs(job: Job, x: Any) -> Prepared:
    """Prepare the product by all outputs if the layout of w may be cached, or else by parts."""
    turned, formed = _formed(job)
    layout = 0 if turned is not None else _layout(formed)
    if select.pick(select.OUTPUTS, (layout, job.w.nbytes + room(job.w.nbytes))) == select.AT_ONCE:
        return Prepared(job.shape, False, *_run(job, turned, formed))
    result = parts.Result(job.device, job.requantize, job.dtype, job.shape)
    output = job.b.planes * formed.words * WORD.itemsize
    cached, together = output + 24 * len(classes(job.window).inside), 1 if job.groups == 1 else job.shape[3]
    whole = partial(_whole, conv_plan.apart(job))
    return Prepared(
        job.shape, False, None, parts.by_outputs(result, whole, x, job.w, job.bias, output, cached, together)
    )


def _layout(job: Job) -> int:
    return layout_bytes(job.b.planes, job.shape[3], job.words, job.groups)


def _whole(job: Job, x: Any, w: QuantArray, bias: Array | None, requantize: Thresholds | None) -> Prepared:
    """Prepare the product by some outputs."""
    shape = (*job.shape[:3], len(w))
    job = replace(job, w=w, b=lower("conv2d", "w", w), bias=bias, requantize=requantize, shape=shape)
    return Prepared(job.shape, False, *_run(job, *_formed(job)))


def _formed(job: Job) -> tuple[Array | None, Job]:
    """(weights in turns if groups are bit-sliced, else None; the job in the form in which it is multiplied)."""
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
) -> tuple[Callable[[Array], QuantArray] | None, conv_plan.Contraction | plane_sums.PlaneSums | conv_plan.InTurns]:
    """(what packs an image of bytes first, the product)."""
    if turned is not None:
        return None, conv_plan.in_turns(whole, turned, job)
    pack = None
    if job.of_bytes and select.pick(select.BYTES, job) == select.PACKED:
        job, pack = image_bytes.packed(job)
    return pack, conv_plan.prepare(job)


# checks


def check_channels(op: str, x: Any, w: QuantArray, groups: int, data_format: str, axes: int) -> bool:
    """True for depthwise weights; an error where axes, channels or groups do not fit."""
    layout, ndim = geometry.LAYOUTS[axes], axes + 2
    at = 1 if data_format == layout.first else ndim - 1
    if x.ndim != ndim or w.ndim != ndim:
        taps = layout.taps
        needed = (
            (f"n c {layout.letters}", f"o c/groups {taps}")
            if at == 1
            else (f"n {layout.letters} c", f"o {taps} c/groups")
        )
        hint = likely_fix.axes_of_convolution(x, w, ndim)
        raise ValueError(f"{op}: needs x [{needed[0]}] and w [{needed[1]}], got {x.shape} and {w.shape}{hint}")
    if isinstance(x, QuantArray) and x.axis != at:
        raise ValueError(
            f"{op}: {data_format} needs x packed on its channel axis {at}, got {x.shape} packed on axis {x.axis}"
            f"{likely_fix.packed_axis(x, data_format)}"
        )
    channels, per_group, outputs = x.shape[at], w.shape[at], w.shape[0]
    if channels != per_group * groups or outputs % groups:
        raise ValueError(
            f"{op}: x has {channels} channels (axis {at} of {x.shape}), w takes {per_group} in each of {groups} groups "
            f"and gives {outputs} (w {w.shape}, {data_format}): needs channels = {per_group} * groups and outputs a "
            f"multiple of groups{likely_fix.channels(x, w, groups, data_format)}"
        )
    depthwise = per_group == 1 and w.axis == 0
    if not depthwise and w.axis != at:
        raise ValueError(
            f"{op}: {data_format} needs w packed on its input channel axis {at} (or on axis 0 if groups = channels), "
            f"got shape {w.shape} packed on axis {w.axis}; pack it with axis={at}"
        )
    return depthwise


def _pad_value(op: str, value: Any) -> float:
    number = checks.number(op, "pad_value", value)
    if abs(number) >= 2**31:
        raise ValueError(f"{op}: pad_value must be within +-2**31, got {value!r}")
    return number if isinstance(number, int) else float(np.float32(number))


def check_constants(op: str, x: Any, w: QuantArray, depthwise: bool) -> None:
    """Refuse constants that vary along what is contracted: they may along the batch of x and the outputs of w."""
    for name, q, free in (("x", x, {0, x.ndim - 1} if depthwise else {0}), ("w", w, {0})):
        if not isinstance(q, QuantArray):
            continue
        for constant, a, lead in q.constants.items():
            along = [d for d in range(q.ndim) if a.shape[lead + d] > 1 and d not in free]
            if along:
                raise ValueError(
                    f"{op}: the {constant} of {name} {q.shape} varies along axis {along[0]} (channels last), which is "
                    f"contracted; quantise with scale_axis=0 or one constant for the array"
                )


# forms of the operands


def _channels_last(w: QuantArray, channels_first: bool, flip: bool) -> QuantArray:
    """Return weights as [o .. c], cached on the array so that kernel layouts are made once."""
    if not channels_first and not flip:
        return w

    def build() -> QuantArray:
        moved = w.transpose(*geometry.to_last(w.ndim - 2)) if channels_first else w
        return moved[(slice(None), *(slice(None, None, -1),) * (w.ndim - 2))] if flip else moved

    channels_last: QuantArray = w._cached(("channels last", channels_first, flip), build)
    return channels_last


def _two_axes_of(w: QuantArray) -> QuantArray:
    """Return weights [o .. c] as those of windows of two axes, cached on the array."""
    flat: QuantArray = w._cached("two axes", two_axes, w)
    return flat
