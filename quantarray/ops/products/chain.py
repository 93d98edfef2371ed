"""Functions of elements in one pass: what follows a product in a network, with a shortcut's sum and thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import device_of, empty, kernel, zeros
from ...core.dtypes import Array
from ...core.format import WORD, WORD_BITS, word_count
from ...core.recordings import is_set
from ...kernels.operands import ADD_OTHER, AFFINE, OFFSET, Chain
from . import calls, epilogue
from .channels import channels_last

PIECES = 8  # ranges of rows, one after the other taken by threads
_NONE, _NO_WORDS, _NO_FLIP = np.empty((0, 0), np.float32), np.empty((0, 0, 0), WORD), np.empty((2, 0), WORD)


def chain_of(steps: tuple[int, ...], constants: Any, scale: Any, other_scale: Any, shape: tuple[int, ...]) -> Chain:
    """Return steps with their constants [steps channels] as the kernel takes them, for x of a shape [n c ..].

    Raises ValueError or TypeError where they do not go together.
    """
    channels = shape[1] if len(shape) > 1 else 0
    if not isinstance(constants, np.ndarray) or constants.shape != (len(steps), channels):
        raise ValueError(f"its constants must be float32 ({len(steps)}, {channels}), got {np.shape(constants)}")
    wide = np.zeros((max(len(steps), 1), word_count(channels) * WORD_BITS), np.float32)
    if constants.dtype != wide.dtype or np.isnan(constants).any():
        raise ValueError(f"its constants must be float32 without NaN, got {constants.dtype}")
    if any((one == AFFINE) != (two == OFFSET) for one, two in zip((0, *steps), (*steps, 0), strict=True)):
        raise ValueError("each of its affine steps must be followed by its offset")
    wide[: len(steps), :channels] = constants
    return Chain(_scale(scale, channels), _scale(other_scale, channels), np.array(steps, np.int64), wide)


def _scale(scale: Any, channels: int) -> Array:
    if scale is None:
        return np.empty(0)
    if not isinstance(scale, np.ndarray) or scale.dtype != np.float64 or scale.shape != (channels,):
        raise ValueError(f"its scale must be float64 ({channels},), got {np.shape(scale)}")
    return np.ascontiguousarray(scale)


def apply_chain(
    x: Array, other: Array | None, chain: Chain, thresholds: Thresholds | None, dense: bool
) -> tuple[Array | None, QuantArray | None]:
    """Apply a chain to x [n c ..]; return (the float32 result if `dense`, its codes if there are thresholds).

    x and other: integers or float32, of one shape. Results have the channels last in memory. Raises ValueError if a
    value that is encoded is NaN.
    """
    if (other is not None) != (ADD_OTHER in chain.steps) or (other is not None and other.shape != x.shape):
        raise ValueError(
            f"the other operand of a chain must be {x.shape}, got {None if other is None else other.shape}"
        )
    order = (0, *range(2, x.ndim), 1)
    for a in (x, other):
        if a is not None and a.dtype.kind not in "iu" and a.dtype != np.float32:
            raise TypeError(f"a chain takes integers or float32, got {a.dtype}")
    last = x.transpose(order)
    shape, channels = last.shape, x.shape[1]
    device = device_of(x)
    out = empty(device, shape, np.float32) if dense else _NONE
    if thresholds is not None:
        epilogue.check("Thresholds", thresholds, channels)
    result = None if thresholds is None else calls.packed(device, thresholds, shape)
    words = _NO_WORDS if result is None else result.empty("elementwise")
    limits, flip = _limits(thresholds, channels)
    if x.size:
        nan = (zeros if device == "cpu" else empty)(device, (PIECES,), np.bool_)  # a GPU is not waited for
        kernel(device, "elementwise")(
            _rows(last), _NONE if other is None else _rows(other.transpose(order)), chain, limits, flip, nan,
            out.reshape(-1, channels) if dense else out, words if result is None else words.reshape(result.rows),
        )  # fmt: skip
        if device == "cpu" and is_set(nan):
            checks.no_nan("Thresholds", "values", apply_chain(x, other, chain, None, True)[0])
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    codes = None if result is None else result(words).transpose(back)
    return (out.transpose(back) if dense else None), codes


def _rows(last: Array) -> Array:
    return (last if last.flags.c_contiguous else channels_last(last)).reshape(-1, last.shape[-1])


def _limits(thresholds: Thresholds | None, channels: int) -> tuple[Array, Array]:
    """Return (limits float32 [T channels], flip uint64 [2 words]) of the kernel."""
    if thresholds is None:
        return _NONE, _NO_FLIP
    limits: tuple[Array, Array] = thresholds._cached(("chain", channels), lambda: _build_limits(thresholds, channels))
    return limits


def _build_limits(thresholds: Thresholds, channels: int) -> tuple[Array, Array]:
    counted, flipped = thresholds._counted(channels, True)
    wide = word_count(channels) * WORD_BITS
    limits = np.zeros((len(counted), wide), np.float32)
    limits[:, :channels] = _below(counted)
    flip = np.zeros((2, wide), np.uint8)
    flip[0, :channels], flip[1, :channels] = flipped, 1
    return limits, np.packbits(flip, axis=1, bitorder="little").view(WORD)


def _below(t: Array) -> Array:
    """Return the largest float32 that is not above each float64: the same float32 values are over both."""
    with np.errstate(over="ignore"):
        near = t.astype(np.float32)
    return np.where(near > t, np.nextafter(near, np.float32(-np.inf)), near)


def takes(thresholds: Thresholds) -> bool:
    """Return True if the codes of thresholds are their counts."""
    return bool((thresholds._codes == np.arange(len(thresholds._codes))).all())
