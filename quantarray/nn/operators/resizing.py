"""Resize to the nearest element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .movement import axes_of
from .record import Attributes, Constants, Operator, Shapes


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
        return at * ((n - 1) / (length - 1)) if length > 1 else at * 0
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


def _resize(a: Attributes, x: Array, roi: Any = None, scales: Any = None, sizes: Any = None) -> Array:
    lengths, factors = _targets(a, x.shape, scales, sizes)
    mode, nearest = a.get("coordinate_transformation_mode", "half_pixel"), a.get("nearest_mode", "round_prefer_floor")
    outside = np.zeros((), bool)
    crop = mode == "tf_crop_and_resize"
    for axis, (n, length, scale) in enumerate(zip(x.shape, lengths, factors, strict=True)):
        if length == n and scale == 1 and not crop:
            continue
        at = _coordinates(mode, n, length, scale, _region(a, roi, axis, x.ndim))
        beyond = ((at < 0) | (at > n - 1)) if crop else np.zeros(length, bool)
        outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - axis - 1))
        x = np.take(x, np.clip(_NEAREST[nearest](at), 0, n - 1).astype(np.int64), axis=axis)
    return np.where(outside, x.dtype.type(a.get("extrapolation_value", 0.0)), x) if crop else x


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
    if a.get("mode", "nearest") != "nearest":
        raise ValueError(f"mode {a['mode']!r} interpolates (nearest is taken)")
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
}
