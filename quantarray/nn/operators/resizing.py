"""Resize to the nearest element, or by linear or cubic interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array
from .movement import axes_of, axis_of
from .record import Attributes, Constants, Operator, Shapes, named


def _targets(a: Attributes, shape: tuple[int, ...], scales: Any, sizes: Any) -> tuple[list[int], list[float]]:
    """(length, scale) of each axis of the result."""
    axes = axes_of(a["axes"], len(shape)) if a.get("axes") is not None else tuple(range(len(shape)))
    lengths, factors = list(shape), [1.0] * len(shape)
    if sizes is not None and np.asarray(sizes).size:
        wanted = [int(n) for n in np.asarray(sizes).reshape(-1)]
        if len(wanted) != len(axes) or min(wanted) < 1 or any(shape[i] < 1 for i in axes):
            raise ValueError(f"sizes {wanted} do not fit axes {axes} of {shape}")
        each = [n / shape[i] for n, i in zip(wanted, axes, strict=True)]
        policy = a.get("keep_aspect_ratio_policy", "stretch")
        if policy not in ("stretch", "not_larger", "not_smaller"):
            raise ValueError(f"keep_aspect_ratio_policy {policy!r} is none")
        if policy != "stretch":
            one = min(each) if policy == "not_larger" else max(each)
            each = [one] * len(each)
            wanted = [math.floor(one * shape[i] + 0.5) for i in axes]
        for i, n, f in zip(axes, wanted, each, strict=True):
            lengths[i], factors[i] = n, f
        return lengths, factors
    each = [float(f) for f in np.asarray(() if scales is None else scales).reshape(-1)]
    if len(each) != len(axes) or not all(0 < f < 2**31 for f in each):
        raise ValueError(f"scales {each} do not fit axes {axes} of {shape}")
    for i, f in zip(axes, each, strict=True):
        lengths[i], factors[i] = math.floor(shape[i] * f), f
    return lengths, factors


def _coordinates(mode: str, n: int, length: int, scale: float, roi: tuple[float, float]) -> Array:
    at = np.arange(length, dtype=np.float64)
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        whole = n * scale  # which ONNX does not round down here
        whole = round(whole) if abs(whole - round(whole)) < 1e-6 else whole
        return at * ((n - 1) / (whole - 1)) if length > 1 else at * 0
    if mode == "half_pixel_symmetric":
        centre = n / 2 * (1 - length / (scale * n))
        return centre + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel" and length == 1:
        return at * 0
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        first, last = roi
        if length > 1:
            return first * (n - 1) + at * (last - first) * (n - 1) / (length - 1)
        return at * 0 + 0.5 * (first + last) * (n - 1)
    return (at + 0.5) / scale - 0.5


_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


class Taps(NamedTuple):
    """A set of places along an axis of n elements, and their weights, for each element of the result."""

    places: Array  # int64[taps length], from 0 to n - 1
    weights: Array  # float64[taps length]


def taps(a: Attributes, n: int, at: Array) -> Taps:
    """Return what a linear or cubic interpolation at some coordinates of an axis of n elements adds up."""
    first = np.floor(at)
    t = at - first
    if a.get("mode") == "linear":
        offsets, weights = np.arange(2)[:, None], np.stack([1 - t, t])
    else:  # Keys's kernel
        k = float(a.get("cubic_coeff_a", -0.75))
        offsets = np.arange(-1, 3)[:, None]
        weights = np.stack([_outer(k, t + 1), _inner(k, t), _inner(k, 1 - t), _outer(k, 2 - t)])
    places = first.astype(np.int64) + offsets
    if a.get("exclude_outside"):
        weights = np.where((places < 0) | (places >= n), 0, weights)
        weights = weights / weights.sum(axis=0)
    return Taps(np.clip(places, 0, n - 1), weights)


def _inner(k: float, t: Array) -> Array:
    return ((k + 2) * t - (k + 3)) * t * t + 1


def _outer(k: float, t: Array) -> Array:
    return ((k * t - 5 * k) * t + 8 * k) * t - 4 * k


def _interpolate(a: Attributes, x: Array, places: Array, weights: Array) -> Array:
    """Add up the elements of x at places along an axis, each times its weight, in the dtype `to`."""
    kind, column = np.dtype(a["to"]), (-1, *(1,) * (x.ndim - axis_of(a["axis"], x.ndim) - 1))
    total: Any = 0
    for at, weight in zip(places, weights, strict=True):
        part = np.take(x, at, axis=a["axis"]).astype(kind)
        part *= weight.astype(kind).reshape(column)
        total = total + part
    return np.asarray(total)


def _interpolate_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x, places, weights = shapes
    axis = axis_of(a["axis"], len(x))
    if len(places) != 2 or places != weights or not places[0] or constants[1] is None or constants[2] is None:
        raise ValueError(f"its places {places} and weights {weights} must be constants of one shape, [taps length]")
    if constants[1].dtype.kind not in "iu" or constants[1].min(initial=0) < 0 or constants[1].max(initial=0) >= x[axis]:
        raise ValueError(f"its places must be integers from 0 to {x[axis] - 1}")
    return [(*x[:axis], places[1], *x[axis + 1 :])]


def _resize(a: Attributes, x: Array, roi: Any = None, scales: Any = None, sizes: Any = None) -> Array:
    lengths, factors = _targets(a, x.shape, scales, sizes)
    mode, nearest = a.get("coordinate_transformation_mode", "half_pixel"), a.get("nearest_mode", "round_prefer_floor")
    interpolates, dtype = a.get("mode", "nearest") != "nearest", x.dtype
    wide = "float32" if dtype in (np.float16, np.float32) else "float64"
    outside = np.zeros((), bool)
    crop = mode == "tf_crop_and_resize"
    for axis, (n, length, scale) in enumerate(zip(x.shape, lengths, factors, strict=True)):
        if length == n and scale == 1 and not crop:
            continue
        at = _coordinates(mode, n, length, scale, _region(a, roi, axis, x.ndim))
        beyond = ((at < 0) | (at > n - 1)) if crop else np.zeros(length, bool)
        outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - axis - 1))
        if interpolates:
            x = _interpolate({"axis": axis, "to": wide}, x, *taps(a, n, at))
        else:
            x = np.take(x, np.clip(_NEAREST[nearest](at), 0, n - 1).astype(np.int64), axis=axis)
    x = x.astype(dtype, copy=False)
    return np.where(outside, dtype.type(a.get("extrapolation_value", 0.0)), x) if crop else x


def coordinates(a: Attributes, shape: tuple[int, ...], scales: Any, sizes: Any) -> list[Array | None]:
    """Return the coordinates in x of the elements along each axis; None for axes that stay as they are."""
    mode, (lengths, factors) = a.get("coordinate_transformation_mode", "half_pixel"), _targets(a, shape, scales, sizes)
    axes = zip(shape, lengths, factors, strict=True)
    return [None if m == n and f == 1 else _coordinates(mode, n, m, f, (0.0, 1.0)) for n, m, f in axes]


def _region(a: Attributes, roi: Any, axis: int, ndim: int) -> tuple[float, float]:
    """Return the part of an axis that is resized, as start and end from 0 to 1."""
    if roi is None or not np.asarray(roi).size:
        return 0.0, 1.0
    axes = axes_of(a["axes"], ndim) if a.get("axes") is not None else tuple(range(ndim))
    if axis not in axes:
        return 0.0, 1.0
    flat = np.asarray(roi, np.float64).reshape(2, -1)
    return float(flat[0, axes.index(axis)]), float(flat[1, axes.index(axis)])


def _resize_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    if a.get("mode", "nearest") not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode {a['mode']!r} is none")
    if a.get("antialias"):
        raise ValueError("antialias averages more elements when it makes an image smaller (0 is taken)")
    if a.get("nearest_mode", "round_prefer_floor") not in _NEAREST:
        raise ValueError(f"nearest_mode {a['nearest_mode']!r} is none")
    if a.get("coordinate_transformation_mode", "half_pixel") not in MODES:
        raise ValueError(f"coordinate_transformation_mode {a['coordinate_transformation_mode']!r} is none")
    rest = [*constants[1:], None, None, None]
    if rest[0] is not None and rest[0].size:
        axes = a["axes"] if a.get("axes") is not None else range(len(shapes[0]))
        if rest[0].size != 2 * len(axes):
            raise ValueError(f"roi has {rest[0].size} numbers, {2 * len(axes)} are needed")
    if 0 in shapes[0]:
        raise ValueError(f"x {shapes[0]} has no element")
    lengths = _targets(a, shapes[0], rest[1], rest[2])[0]
    return [tuple(lengths)]


OPERATORS = {
    "Resize": Operator(run=_resize, shape=_resize_shape, gpu=False),
    "interpolate": Operator(
        run=_interpolate, shape=_interpolate_shape, dtype=named("to"), needs=("axis", "to"), gpu=False
    ),
}
