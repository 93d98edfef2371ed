"""The last step of a kernel: thresholds as kernels take them, and constants of each border class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import checks, exact_limits
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import contiguous, device_of, kernel, moveaxis, namespace, to_host
from ...core.dtypes import Array, DType
from ...core.format import WORD, word_count
from ...kernels.operands import Finish
from .calls import packed
from .lanes import GroupLanes, Lanes
from .rank_lines import NO_LINES, lines_of

_NO_EXTRA, _NO_PAD = np.zeros((1, 1), np.int64), np.zeros((1, 1))
_ALL = np.uint64(2**64 - 1)


def finish(
    requantize: Thresholds | None,
    channels: int,
    real: bool,
    extra: Array | None = None,
    pad: Array | None = None,
    bias: Array | None = None,
    *,
    lanes: Lanes,
) -> Finish:
    """Return the last step of a kernel; `lanes` lays [.., channels] out as the kernel wants it.

    Integer results read `extra`, whose dtype their thresholds have, real ones `pad` and `bias`; what is not read
    may be missing.
    """
    dtype = np.dtype(np.float64) if real else np.dtype(np.int64) if extra is None else extra.dtype
    laid_out = (np.zeros((0, 0), dtype), np.zeros(0, np.uint32), np.zeros((1, 1), np.uint64), NO_LINES)
    if requantize is not None:
        laid_out = requantize._cached((channels, dtype, lanes), lambda: _lay_out(requantize, channels, dtype, lanes))
    return Finish(
        _NO_EXTRA if extra is None else lanes(extra),
        _NO_PAD if pad is None else lanes(pad),
        _NO_PAD[0] if bias is None else lanes(bias),
        *laid_out,
    )


def _lay_out(requantize: Thresholds, channels: int, dtype: np.dtype[Any], lanes: Lanes) -> tuple[Array, ...]:
    """Lay out thresholds, flips, toggles and lines as kernels take them.

    Results of int32 are above -2**31, so the lowest int32 is below them all, like the threshold that it replaces.
    """
    counted, down = requantize._counted(channels, dtype.kind == "f")
    if dtype == np.int32:
        counted = np.clip(counted, -(2**31), 2**31 - 1)
    codes = requantize._codes
    if len(codes) == 2 and codes[0] == 1:  # one threshold is one compare: swapped codes are a flip
        down, codes = ~down, codes[::-1]
    changed = np.concatenate([codes[:1], codes[:-1] ^ codes[1:]])
    bits = (changed[:, None] >> np.arange(requantize.into.bits)) & 1
    thresholds = lanes(counted.astype(dtype))
    if dtype.kind == "i":  # lanes without a channel pass none, and so have a line
        thresholds[:, ~lanes(np.ones(channels, np.bool_))] = np.iinfo(dtype).max
    flip = np.packbits(lanes(down), bitorder="little").view("<u4")
    return thresholds, flip, np.where(bits == 1, _ALL, _ALL * 0), lines_of(thresholds)


def are_counts(toggles: Array) -> bool:
    """Return True where a code is the number of thresholds that a value passes, by the toggles of a `Finish`."""
    codes = np.arange(len(toggles))
    changed = codes ^ np.maximum(codes - 1, 0)
    return np.array_equal(toggles != 0, (changed[:, None] >> np.arange(toggles.shape[1])) & 1 == 1)


def check(op: str, requantize: Any, channels: int) -> DType | None:
    """Check thresholds for this many channels: return the dtype of their codes, or None without thresholds."""
    if requantize is None:
        return None
    if not isinstance(requantize, Thresholds):
        values = isinstance(requantize, (list, tuple, float, int, np.ndarray))
        hint = "; Thresholds(values) are one" if values else ""
        if callable(requantize):
            hint = "; call it on the dense result instead, or pass Thresholds([0]) for signs"
        raise TypeError(f"{op}: requantize must be a Thresholds object, got {type(requantize).__name__}{hint}")
    if requantize.channels not in (None, channels):
        turned = requantize.values.ndim == 2 and requantize.values.shape[1] == channels
        hint = "; values are [channels, T]: pass values.T, or one axis with per_channel=True" if turned else ""
        raise ValueError(
            f"{op}: requantize has thresholds for {requantize.channels} channels, the result has {channels}{hint}"
        )
    requantize._check_reading(op, channels)
    return requantize.into


def nbytes(into: DType | None, shape: tuple[int, ...]) -> int:
    """Count the bytes of a result [.. channels]: packed codes, or 4 an element."""
    if into is None:
        return 4 * math.prod(shape)
    return WORD.itemsize * into.bits * math.prod(shape[:-1]) * word_count(shape[-1])


def term_sums(terms: Array, elements: int, axis_words: Array) -> Array:
    """int64[terms channels taps]: the sum of each term over a tap; `axis_words` uint64[planes channels taps words]."""
    ones = to_host(namespace(device_of(axis_words)).bitwise_count(axis_words).sum(axis=-1, dtype=np.int64))
    sums = []
    for first, planes, base, step in terms.tolist():
        codes = sum(ones[first + i] << i for i in range(planes))
        sums.append(base * elements + step * codes)
    return np.array(sums)


def real_extras(
    pad_value: float, bias: Array | None, outside: Array, n_outside: Array, scale: Array, offset: Array
) -> tuple[Array, Array]:
    """(pad [classes channels], bias [channels]) of a real result, in the documented order.

    outside int64[classes terms channels], n_outside int64[classes], scale [terms channels], offset [channels].
    """
    pad = offset * n_outside[:, None]
    for s in range(outside.shape[1]):
        pad = pad + scale[s] * outside[:, s]
    shift = np.zeros(outside.shape[-1]) if bias is None else bias.astype(np.float64)
    return np.asarray(pad_value * pad), shift


def integer_extra(
    terms: Array, inside: Array, pad_value: int, bias: Array | None, outside: Array, dtype: np.dtype[Any]
) -> Array:
    """[classes channels] of the result's dtype: all of an exact result that does not depend on the pixel's codes.

    `terms` are x's; inside and outside are the sums of the weights' one term, int64[classes terms channels].
    """
    extra: Array = int(terms[0, 2]) * inside[:, 0] + pad_value * outside[:, 0]
    return (extra if bias is None else extra + bias).astype(dtype)


def _compared(dtype: np.dtype[Any], device: str) -> np.dtype[Any]:
    """Return the dtype in which values are compared; the CPU's kernel takes bytes, such as images, as they are."""
    real = dtype.kind == "f"
    if device != "cpu":
        return np.result_type(dtype, np.float64 if real else np.int64)
    return dtype if dtype in (np.int8, np.uint8) else np.result_type(dtype, np.float32 if real else np.int32)


def _fits_int32(requantize: Thresholds, channels: int) -> bool:
    """Return True if the lowest int32 is no threshold, so that it can stand for one that is below all values."""

    def fits() -> bool:
        return not (requantize._counted(channels, False)[0] == -(2**31)).any()

    return bool(requantize._cached(("int32", channels), fits))


def apply(requantize: Thresholds, values: Any, axis: int = -1) -> QuantArray:
    """Return the codes of a dense result, packed along its channel axis: `Thresholds.__call__`."""
    op = "Thresholds"
    if isinstance(values, QuantArray):
        raise TypeError(f"{op}: takes the dense result of an operation, got a QuantArray; pass requantize= to the op")
    v = checks.dense(op, "values", values)
    at = checks.axis(op, axis, v.ndim)
    real = v.dtype.kind == "f"
    if real and v.dtype != np.float32:
        raise TypeError(
            f"{op}: real results are float32, got {v.dtype}; convert with .astype(np.float32) if that is meant"
        )
    if v.dtype == np.uint64:
        raise TypeError(f"{op}: integer results are signed, got {v.dtype}")
    if v.dtype == np.int64 and v.size and int(v.min()) == exact_limits.ALWAYS:
        raise OverflowError(f"{op}: integer results must be above -2**63, got {v.min()}")
    checks.no_nan(op, "values", v)
    device = device_of(v)
    last = moveaxis(v, at, -1)
    channels = last.shape[-1]
    check(op, requantize, channels)
    rows = contiguous(last.astype(_compared(v.dtype, device), copy=False))
    result = packed(device, requantize, last.shape)
    words = result.empty()
    if words.size:
        narrow = device == "cpu" and not real and rows.dtype.itemsize <= 4 and _fits_int32(requantize, channels)
        extra = np.zeros((1, channels), np.int32) if narrow else None
        last_step = finish(requantize, channels, real, extra, lanes=GroupLanes(channels))
        kernel(device, "threshold")(rows.reshape(-1, channels), last_step, words.reshape(result.rows))
    return result(words).transpose([*range(at), v.ndim - 1, *range(at, v.ndim - 1)])
