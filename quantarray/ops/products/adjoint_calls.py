"""Adjoints of convolutions, by the calls that compute them.

Of y[n, i, o] = sum_{a, c} x[n, i*s + a*d - before, c] * w[o, a, c] and a gradient g of y (one axis for all):

    data:    dx[n, u, c] = sum_{o, a} g[n, (u + before - a*d) / s, o] * w[o, a, c]
             a transposed convolution by w with its channels exchanged
    filter:  dw[o, a, c] = sum_{n, i} g[n, i, o] * x[n, i*s + a*d - before, c]
             a convolution of x by g, over n as channels, with the stride d and the dilation s

Floats are multiplied by a BLAS, tap by tap.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import contiguous
from ...core.dtypes import Array, int8, uint1, uint8
from ...core.errors import DeviceError
from ..creation.creation import encode
from ..manipulation.repacking import repack
from ..manipulation.reshaping import reshape
from . import geometry
from .conv_job import Options
from .conv_transpose_prepare import Transposed, convolve_transposed
from .convolution import convolve

_CODES = {np.dtype(np.int8): int8, np.dtype(np.uint8): uint8, np.dtype(np.bool_): uint1}


class Geometry(NamedTuple):
    """A set of the arguments of the convolution whose adjoint is computed."""

    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    data_format: Any
    flip_kernel: Any
    pad_value: Any = 0


class _Checked(NamedTuple):
    """A checked geometry, channels last: for each axis of the image."""

    image: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int
    first: bool  # channels are the second axis of the arguments


def data_adjoint(axes: int, g: Any, w: Any, size: Any, how: Geometry) -> Array:
    """Return the gradient of x, [n .. c], or [n c ..]."""
    op = f"conv{axes}d_data_adjoint"
    first = geometry.data_format(op, how.data_format, axes)
    g = _channels_last(_operand(op, "g", g, axes), first)
    w = _channels_last(checks.packed(op, "w", w), first)
    _ndim(op, axes, g=g, w=w)
    groups = checks.integer(op, "groups", how.groups, 1)
    if g.shape[-1] != w.shape[0] or w.shape[0] % groups:
        raise ValueError(
            f"{op}: g must have the {w.shape[0]} outputs of w as channels, a multiple of groups {groups}, got g "
            f"{g.shape} and w {w.shape} (channels last)"
        )
    image = _image(op, g.shape[1:-1], w.shape[1:-1], size, how)
    known = _checked(op, image, tuple(w.shape[1:-1]), how, first)
    _same_outputs(op, known, g)
    flip = checks.flag(op, "flip_kernel", how.flip_kernel)
    if _are_floats(g):
        taps = w.dequantize()
        result = _scattered(g, taps[(slice(None), *(slice(None, None, -1),) * axes)] if flip else taps, known)
    else:
        spans = ((k - 1) * d + 1 for k, d in zip(known.size, known.dilation, strict=True))
        more = tuple(
            (n + sum(pads) - span) % s
            for n, pads, span, s in zip(known.image, known.pads, spans, known.stride, strict=True)
        )
        last = geometry.LAYOUTS[axes].last
        options = Transposed(known.stride, known.pads, more, known.dilation, groups, None, None, last, flip)
        result = convolve_transposed(axes, g, _exchanged(w, groups), None, options, None)
    return result.transpose(*geometry.to_first(axes)) if first else result


def filter_adjoint(axes: int, x: Any, g: Any, size: Any, how: Geometry) -> Array:
    """Return the gradient of w, [o .. c/groups], or [o c/groups ..]."""
    op = f"conv{axes}d_filter_adjoint"
    first = geometry.data_format(op, how.data_format, axes)
    x, g = (_channels_last(_operand(op, name, a, axes), first) for name, a in (("x", x), ("g", g)))
    if not (isinstance(x, QuantArray) or isinstance(g, QuantArray)):
        raise TypeError(f"{op}: x or g must be a QuantArray, got {checks.kind(x)} and {checks.kind(g)}")
    _ndim(op, axes, x=x, g=g)
    groups = checks.integer(op, "groups", how.groups, 1)
    if len(x) != len(g) or x.shape[-1] % groups or g.shape[-1] % groups:
        raise ValueError(
            f"{op}: x and g must have one batch, and channels that are multiples of groups {groups}, got {x.shape} and "
            f"{g.shape} (channels last)"
        )
    taps = geometry.numbers(op, "size", size, 1, axes)
    known = _checked(op, tuple(x.shape[1:-1]), taps, how, first)
    _same_outputs(op, known, g)
    if _are_floats(x) or _are_floats(g):
        result = _gathered(_values(x), _values(g), known)
    else:
        result = _filter_of_integers(axes, _packed(x), _packed(g), known, how.pad_value)
    if checks.flag(op, "flip_kernel", how.flip_kernel):
        result = result[(slice(None), *(slice(None, None, -1),) * axes)]
    return result.transpose(*geometry.to_first(axes)) if first else result


def _filter_of_integers(axes: int, x: QuantArray, g: QuantArray, known: _Checked, pad_value: Any) -> Array:
    """Convolve x, whose batch becomes channels, by g: the outputs are the taps of w."""
    images, filters = (_batch_last(a, known.groups, leads) for a, leads in ((x, True), (g, False)))
    options = Options(known.dilation, known.pads, known.stride, known.groups, pad_value, None, None,
                      geometry.LAYOUTS[axes].last, False)  # fmt: skip
    result = convolve(axes, images, filters, None, options, None)
    # [c/groups taps o]; windows that end in the padding may leave more taps
    taps = result[(slice(None), *(slice(k) for k in known.size))]
    return contiguous(taps.transpose(axes + 1, *range(1, axes + 1), 0))


def _batch_last(a: QuantArray, groups: int, leads: bool) -> QuantArray:
    """[n .. (g c)] as [c .. (g n)] if `leads`, else as [(g c) .. n], packed on the last axis."""
    axes = range(1, a.ndim - 1)
    if not leads or groups == 1:
        return repack(a.transpose(a.ndim - 1, *axes, 0), -1)
    # The packed axis is cut last: the batch is packed first, which the groups are then put before
    batch = repack(a, 0)
    parts = reshape(batch, (*batch.shape[:-1], groups, batch.shape[-1] // groups))
    moved = parts.transpose(parts.ndim - 1, *axes, parts.ndim - 2, 0)
    return reshape(moved, (*moved.shape[:-2], groups * moved.shape[-1]))


def _exchanged(w: QuantArray, groups: int) -> QuantArray:
    """[(g o) .. c] as [(g c) .. o], packed on the last axis."""
    if groups == 1:
        return repack(w.transpose(w.ndim - 1, *range(1, w.ndim - 1), 0), -1)
    inner = repack(w, -1)
    parts = reshape(inner, (groups, len(w) // groups, *w.shape[1:]))
    moved = repack(parts.transpose(0, parts.ndim - 1, *range(2, parts.ndim - 1), 1), -1)
    return reshape(moved, (groups * moved.shape[1], *moved.shape[2:]))


# Arguments


def _operand(op: str, name: str, value: Any, axes: int) -> Any:
    """Check for a packed array, or a dense one of int8, uint8, bool or floats."""
    if isinstance(value, QuantArray):
        return value
    a = checks.dense(op, name, value)
    if not isinstance(a, np.ndarray) and a.dtype.kind == "f":
        raise DeviceError(f"{op}: {name} is of floats and on a GPU, where no kernel reads them; pack it, or move it")
    if a.dtype not in _CODES and a.dtype.kind != "f":
        raise TypeError(f"{op}: {name} must be packed, or dense int8, uint8, bool or floats, got {a.dtype}")
    return a


def _are_floats(a: Any) -> bool:
    return not isinstance(a, QuantArray) and a.dtype.kind == "f"


def _packed(a: Any) -> QuantArray:
    return a if isinstance(a, QuantArray) else encode(a, _CODES[a.dtype])


def _values(a: Any) -> Array:
    values = a.dequantize() if isinstance(a, QuantArray) else a
    return values.astype(np.float64 if values.dtype == np.float64 else np.float32, copy=False)


def _channels_last(a: Any, first: bool) -> Any:
    return a.transpose(*geometry.to_last(a.ndim - 2)) if first and a.ndim > 2 else a


def _ndim(op: str, axes: int, **operands: Any) -> None:
    for name, a in operands.items():
        if a.ndim != axes + 2:
            raise ValueError(f"{op}: {name} must have {axes + 2} axes, got {a.shape}")


def _image(op: str, outputs: Any, size: Any, image: Any, how: Geometry) -> tuple[int, ...]:
    """Return the lengths of x: as passed, or the least that give the outputs."""
    axes = len(outputs)
    if image is not None:
        return geometry.numbers(op, "size", image, 0, axes)
    stride = geometry.numbers(op, "stride", how.stride, 1, axes)
    dilation = geometry.numbers(op, "dilation", how.dilation, 1, axes)
    if how.padding == "same":
        return tuple(n * s for n, s in zip(outputs, stride, strict=True))
    pads = geometry.pads(op, tuple(outputs), tuple(size), stride, how.padding, dilation)
    windows = zip(outputs, size, stride, dilation, pads, strict=True)
    return tuple((n - 1) * s + (k - 1) * d + 1 - sum(p) if n else 0 for n, k, s, d, p in windows)


def _checked(op: str, image: tuple[int, ...], size: tuple[int, ...], how: Geometry, first: bool) -> _Checked:
    window = geometry.window(op, image, size, how.stride, how.padding, how.dilation)
    return _Checked(image, size, window.stride, window.dilation, window.pads, int(how.groups), first)


def _same_outputs(op: str, known: _Checked, g: Any) -> None:
    spans = ((k - 1) * d + 1 for k, d in zip(known.size, known.dilation, strict=True))
    axes = zip(known.image, known.pads, spans, known.stride, strict=True)
    outputs = tuple((n + sum(pads) - span) // s + 1 for n, pads, span, s in axes)
    if g.shape[1:-1] != outputs:
        raise ValueError(
            f"{op}: g must have the outputs {outputs} of images {known.image} by windows of {known.size}, got "
            f"{g.shape[1:-1]}; size= names the lengths that stride, padding and dilation leave open"
        )


# Floats


def _scattered(g: Array, w: Array, known: _Checked) -> Array:
    """Add g times w of each tap, in order, to where the tap was read."""
    g = _values(g)
    lengths = [n + sum(pads) for n, pads in zip(known.image, known.pads, strict=True)]
    groups, per_group = known.groups, w.shape[-1]
    out = np.zeros((len(g), *lengths, groups, per_group), g.dtype)
    parts = g.reshape(*g.shape[:-1], groups, -1)
    weights = w.astype(g.dtype).reshape(groups, -1, *w.shape[1:])
    for tap, place in _taps(known, g.shape[1:-1]):
        out[(slice(None), *place)] += np.einsum("...go,goc->...gc", parts, weights[(slice(None), slice(None), *tap)])
    inside = (slice(before, before + n) for n, (before, _) in zip(known.image, known.pads, strict=True))
    return out[(slice(None), *inside)].reshape(len(g), *known.image, groups * per_group)


def _gathered(x: Array, g: Array, known: _Checked) -> Array:
    """Multiply g by what each tap read."""
    kind = np.result_type(x, g)
    padded = np.pad(x.astype(kind, copy=False), ((0, 0), *known.pads, (0, 0)))
    parts = g.astype(kind, copy=False).reshape(-1, known.groups, g.shape[-1] // known.groups)
    per_group = x.shape[-1] // known.groups
    out = np.empty((known.groups, parts.shape[-1], *known.size, per_group), kind)
    for tap, place in _taps(known, g.shape[1:-1]):
        seen = padded[(slice(None), *place)].reshape(-1, known.groups, per_group)
        out[(slice(None), slice(None), *tap)] = np.matmul(parts.transpose(1, 2, 0), seen.transpose(1, 0, 2))
    return out.reshape(-1, *known.size, per_group)


def _taps(known: _Checked, outputs: Any) -> Any:
    """Yield the index of each tap, and the places of the padded image that it reads."""
    for tap in product(*map(range, known.size)):
        steps = zip(tap, known.dilation, known.stride, outputs, strict=True)
        yield tap, tuple(slice(a * d, a * d + (n - 1) * s + 1 if n else 0, s) for a, d, s, n in steps)
