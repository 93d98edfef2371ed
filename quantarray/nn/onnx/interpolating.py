"""Linear interpolation of integers times a scale: exact sums by integer weights, whose denominator the scale takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators.resizing import Taps, coordinates, taps
from .building import Builder
from .laws import Shape, Source, Tensor, scaling

_MOST = 256  # the largest denominator of weights along an axis: of an image enlarged up to 128 times
_NEAR = 1e-9


def interpolated(b: Builder, a: dict[str, Any], x: Tensor, constants: list[Any], shape: Shape) -> Tensor | None:
    """Return integers times a scale, interpolated linearly; None in another mode, or where weights are no fractions.

    Of an image that is made twice as large, weights along an axis are 1/4 and 3/4.
    """
    if a.get("mode") != "linear" or a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if x.pure is None or x.pure.size > 1 or x.dtype.kind != "f" or not x.chain:
        return None
    _, scales, sizes = [*constants, None, None, None][:3]
    axes: list[tuple[int, Array, Array]] = []
    whole = 1
    for axis, at in enumerate(coordinates(a, x.shape, scales, sizes)):
        if at is None:
            continue
        parts = _whole(taps(a, x.shape[axis], at))
        if parts is None:
            return None
        axes.append((axis, *parts[:2]))
        whole *= parts[2]
    low, high = (n * whole for n in x.source.bounds)
    if not axes or low < -(2**31) or high >= 2**31:
        return None
    name = b.integers(x)
    for axis, places, weights in axes:
        operands = [name, b.constant(places, f"{b.hint}.places"), b.constant(weights, f"{b.hint}.weights")]
        name = b.emit("interpolate", operands, b.hint, axis=axis, to="int32")
    source = Source(name, shape, np.dtype(np.int32), None, min(low, 0), max(high, 0))
    return Tensor(shape, x.dtype, source, (scaling(x.pure / whole, x.dtype),))


def _whole(of_axis: Taps) -> tuple[Array, Array, int] | None:
    """Return (places, integer weights, their sum); None where no integers have the proportion of the weights."""
    candidates = np.arange(1, _MOST + 1).reshape(-1, 1, 1)
    products = of_axis.weights * candidates
    fits = (np.abs(products - np.rint(products)) < _NEAR * _MOST).all(axis=(1, 2))
    if not fits.any():
        return None
    count = 1 + int(fits.argmax())
    weights = np.rint(of_axis.weights * count).astype(np.int32)
    divisor = math.gcd(*weights.reshape(-1).tolist())
    return of_axis.places, weights // divisor, count // divisor
