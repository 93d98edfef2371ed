"""Transposed convolutions of one to three axes, as convolutions at stride 1 of each phase of the result.

Output u = y*s + a*d sees input y through tap a. Outputs of one phase, u % s, see only the taps with a*d % s of that
phase: a convolution at stride 1 by these taps, in reverse. The phases are interleaved in the result. No zero is put
between pixels, and none is multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import common_device, empty
from ...core.dtypes import Array
from . import calls, epilogue, geometry
from .conv_job import Options
from .conv_prepare import check_channels, check_constants, dtype_of
from .convolution import convolve
from .operand import bias_values, from_dense, is_dense, operand


class Transposed(NamedTuple):
    """A set of the arguments of a transposed convolution besides x, w, bias and out."""

    stride: Any
    padding: Any
    output_padding: Any
    dilation: Any
    groups: Any
    requantize: Thresholds | None
    out_dtype: Any
    data_format: Any
    flip_kernel: Any = False


class Phase(NamedTuple):
    """A phase of one axis of the result: every s-th output from the first."""

    first: int
    outputs: int
    taps: slice  # of w, in reverse
    dilation: int
    begin: int  # of the input that is seen
    end: int
    pads: tuple[int, int]


def convolve_transposed(axes: int, x: Any, w: Any, bias: Any, options: Transposed, out: Any) -> Any:
    """Convolve x by w as `conv_transpose1d`, `conv_transpose2d` and `conv_transpose3d` do."""
    op = f"conv_transpose{axes}d"
    if not isinstance(x, QuantArray):
        x = operand(op, "x", x)
    if not isinstance(w, QuantArray):
        checks.packed(op, "w", w, likely_fix.swapped(op, x, w))
    device = common_device(op, x=x, w=w)
    first = geometry.data_format(op, options.data_format, axes)
    groups = checks.integer(op, "groups", options.groups, 1)
    depthwise = check_channels(op, x, w, groups, options.data_format, axes)
    if first:
        x, to_last = x.transpose(*geometry.to_last(axes)), geometry.to_last(axes)
        w = w._cached(("channels last", True, False), w.transpose, *to_last)
    if checks.flag(op, "flip_kernel", options.flip_kernel):
        w = w._cached(("flipped",), lambda q: q[(slice(None), *(slice(None, None, -1),) * axes)], w)
    channels, size = w.shape[0], w.shape[1:-1]
    if 0 in size:
        raise ValueError(f"{op}: w must have at least one tap, got {w.shape} (channels last)")
    bias = None if bias is None else bias_values(op, bias, channels)
    into = epilogue.check(op, options.requantize, channels)
    stride, phases = _phases(op, tuple(x.shape[1:-1]), tuple(size), options)
    shape = (x.shape[0], *(sum(p.outputs for p in axis) for axis in phases), channels)
    checks.room(op, f"a result of shape {shape}", epilogue.nbytes(into, shape))
    check_constants(op, x, w, depthwise)
    packed = from_dense(x[:0], axes + 1) if is_dense(x) else x
    dtype, _ = dtype_of(op, packed, w, bias, options.out_dtype)
    run = _Run(device, x, w, bias, options, stride, phases, shape, dtype)

    def ordered(rows: Array | None) -> Any:
        result = run(rows)
        return result.transpose(*geometry.to_first(axes)) if first else result

    if out is None:
        return ordered(None)
    outer = (shape[0], channels, *shape[1:-1]) if first else shape
    return calls.write_to(op, device, out, options.requantize, dtype, outer, 1 if first else axes + 1, ordered)


class _Run(NamedTuple):
    """A transposed convolution of checked arguments, channels last."""

    device: str
    x: Any
    w: QuantArray
    bias: Array | None
    options: Transposed
    stride: tuple[int, ...]
    phases: tuple[tuple[Phase, ...], ...]  # of each axis
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, out: Array | None) -> Any:
        """Fill the result phase by phase, `out` if it is passed."""
        law = self.options.requantize
        if law is None:
            result = empty(self.device, self.shape, self.dtype) if out is None else out
            for index, phase in self._each():
                result[(slice(None), *index)] = phase
            return result
        packed = calls.packed(self.device, law, self.shape)
        words = packed.empty()
        for index, phase in self._each():
            words[(slice(None), slice(None), *index)] = phase.words
        return packed(words)

    def _each(self) -> Iterator[tuple[tuple[slice, ...], Any]]:
        """Yield the places of each phase in the result, and its values or codes."""
        for phases in product(*self.phases):
            if all(p.outputs for p in phases):
                index = tuple(slice(p.first, None, s) for p, s in zip(phases, self.stride, strict=True))
                yield index, self._phase(phases)

    def _phase(self, phases: tuple[Phase, ...]) -> Any:
        law, axes = self.options.requantize, len(phases)
        if any(p.begin >= p.end or not len(range(*p.taps.indices(1 << 62))) for p in phases):
            shape = (self.shape[0], *(p.outputs for p in phases), self.shape[-1])
            return calls.OfNothing(self.device, self.bias, law, self.dtype, shape)()
        x = self.x
        if any(p.end - p.begin < n for p, n in zip(phases, x.shape[1:-1], strict=True)):
            x = x[(slice(None), *(slice(p.begin, p.end) for p in phases))]
        taps = tuple((p.taps.start, p.taps.stop, p.taps.step) for p in phases)
        w = self.w._cached(("taps", taps), self._taps, phases)
        last = geometry.LAYOUTS[axes].last
        dilation, pads = tuple(p.dilation for p in phases), tuple(p.pads for p in phases)
        how = Options(1, pads, dilation, self.options.groups, 0, law, self.dtype, last, False)
        return convolve(axes, x, w, self.bias, how, None)

    def _taps(self, phases: tuple[Phase, ...]) -> QuantArray:
        return self.w[(slice(None), *(p.taps for p in phases))]


def _phases(
    op: str, image: tuple[int, ...], size: tuple[int, ...], options: Transposed
) -> tuple[tuple[int, ...], tuple[tuple[Phase, ...], ...]]:
    """Check the geometry: (stride, phases of each axis)."""
    axes = len(image)
    stride = geometry.numbers(op, "stride", options.stride, 1, axes)
    dilation = geometry.numbers(op, "dilation", options.dilation, 1, axes)
    more = geometry.numbers(op, "output_padding", options.output_padding, 0, axes)
    pads = _pads(op, image, size, stride, options.padding, dilation)
    phases, lengths = [], []
    for n, k, s, d, extra, (before, after) in zip(image, size, stride, dilation, more, pads, strict=True):
        if extra >= max(s, d):
            raise ValueError(
                f"{op}: output_padding {more} must be less than the stride {stride} or the dilation {dilation}"
            )
        length = (n - 1) * s + (k - 1) * d + 1 - before - after + extra if n else 0
        lengths.append(length)
        phases.append(_of_axis(n, k, s, d, before, max(0, length)))
    if min(lengths) < 1 and 0 not in image:
        raise ValueError(f"{op}: padding {pads} leaves no outputs of the image {image} by windows of {size}")
    if math.prod(lengths) >= 2**31:
        raise ValueError(f"{op}: the image {image} at stride {stride} would give {lengths} outputs, 2**31 or more")
    return stride, tuple(phases)


def _pads(
    op: str,
    image: tuple[int, ...],
    size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: Any,
    dilation: tuple[int, ...],
) -> tuple[tuple[int, int], ...]:
    """Check what is cut off: "same" leaves n * stride outputs of n pixels, if windows reach that far."""
    if padding == "same":
        cut = [max(0, (k - 1) * d + 1 - s) for k, s, d in zip(size, stride, dilation, strict=True)]
        return tuple((n // 2, n - n // 2) for n in cut)
    return geometry.pads(op, image, size, stride, padding, dilation)


@lru_cache(maxsize=256)
def _of_axis(n: int, k: int, s: int, d: int, before: int, length: int) -> tuple[Phase, ...]:
    """Return the phases of an axis of `length` outputs, of n pixels and k taps.

    >>> _of_axis(3, 3, 2, 1, 1, 5)[0].taps, _of_axis(3, 3, 2, 1, 1, 5)[1].taps
    (slice(1, None, -2), slice(2, None, -2))
    """
    every, apart = s // math.gcd(s, d), d // math.gcd(s, d)
    phases = []
    for first in range(min(s, length)):
        count, phase = -(-(length - first) // s), (first + before) % s
        tap = next((a for a in range(min(k, every)) if a * d % s == phase), None)
        if tap is None:
            phases.append(Phase(first, count, slice(0, 0), 1, 0, 0, (0, 0)))
            continue
        taps = (k - 1 - tap) // every + 1
        seen = (first + before - phase) // s - (tap * d - phase) // s  # by the first tap of the first output
        begin, end = seen - (taps - 1) * apart, seen + count
        inner = min(max(begin, 0), n), max(min(end, n), 0)
        last = tap + (taps - 1) * every
        stop = tap - every if tap >= every else None
        pads = max(0, inner[0] - begin), max(0, end - inner[1])
        phases.append(Phase(first, count, slice(last, stop, -every), apart, *inner, pads))
    return tuple(phases)
