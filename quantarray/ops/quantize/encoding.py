"""Encode values to packed codes in one pass, for any quantiser whose codes' values rise with x.

`Quantizer.encode` is the definition, in NumPy. Where few sets of constants serve many values, the thresholds at which
its codes change are found by bisection over all floats, so that the kernel's compares give exactly its codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.bfloat16 import Bfloat16
from ...backends.registry import contiguous, device_of, empty, kernel, moveaxis, zeros
from ...core.bounded_cache import Kept
from ...core.code_values import level_ranks, level_values
from ...core.dtypes import Array, Constants
from ...core.format import WORD_BITS, word_count
from ...core.recordings import RECORDINGS, is_set, recording
from ...kernels.operands import Search
from ...quantizers.base import Quantizer, declares, ones_like_reduced
from ...quantizers.extremes import TAKEN

MAX_THRESHOLDS = 15  # that are looked for by bisection, unless they are kept
_PLACES, _EVALUATED = 255, 1 << 12  # at which a quantiser is looked at in one call: for a threshold, for all
_NEAR = 6  # floats about the middle of two levels, most often with the threshold among them
_ZERO = np.uint64(2**63)
PIECES = 8  # ranges of words in which a NaN is looked for
_MOST_BYTES = 1 << 12  # of constants that may be met again
_kept = Kept(256)
_flags: dict[str, Array] = {}  # of a GPU: one that is False, which a call takes away while it may be set


def fit(op: str, quantizer: Quantizer, x: Array, axes: tuple[int, ...]) -> Constants:
    """Fit a quantiser, which may be the caller's, to x, and check what it returns."""
    fitted_constants, shape = quantizer.fit(x, axes), ones_like_reduced(x, axes)
    if not isinstance(fitted_constants, Constants):
        raise TypeError(f"{op}: {quantizer} must fit a quantarray.Constants, got {checks.kind(fitted_constants)}")
    for name, a, lead in fitted_constants.items():
        if a.shape[lead:] != shape:
            raise ValueError(f"{op}: {quantizer} must fit a {name} of shape {(*a.shape[:lead], *shape)}, got {a.shape}")
    return fitted_constants


def codes(op: str, quantizer: Quantizer, x: Array, constants: Constants) -> Array:
    """Encode x by a quantiser, which may be the caller's, and check that codes are of its dtype and in x's shape."""
    encoded, count = np.asarray(quantizer.encode(x, constants)), quantizer.dtype.n_levels
    if encoded.shape != x.shape or encoded.dtype.kind not in "biu":
        raise TypeError(f"{op}: {quantizer} must give integer codes of shape {x.shape}, got {checks.kind(encoded)}")
    if encoded.size and not 0 <= encoded.min() <= encoded.max() < count:
        raise ValueError(f"{op}: {quantizer} must give codes 0 to {count - 1}, got {encoded.min()} to {encoded.max()}")
    return encoded


def fitted(quantizer: Quantizer, ends: Array) -> Constants | None:
    """Fit constants to a range of values; None for a scheme that fits them to more than that."""
    return quantizer.fit_range(ends) if declares(type(quantizer), "fit_range", "fit") else None


def has_grid(quantizer: Quantizer) -> bool:
    """True where a scheme's codes are one formula."""
    return declares(type(quantizer), "grid", "encode")


def has_cuts(quantizer: Quantizer) -> bool:
    """True where a scheme names its thresholds."""
    return declares(type(quantizer), "cuts", "encode")


def possible(x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> bool:
    """True where the one-pass kernel gives the quantiser's codes."""
    return quantizer.monotone and taken(x) and in_words(x, constants, axis)


def has_steps(quantizer: Quantizer) -> bool:
    """True where a scheme's codes are steps that the one-pass kernel takes, in another order than that of levels."""
    return declares(type(quantizer), "steps", "encode")


def taken(x: Array) -> bool:
    """True where the one-pass kernel takes values of x's dtype, and there are any."""
    return bool(x.size) and (isinstance(x, Bfloat16) or x.dtype in TAKEN)


def in_words(x: Array, constants: Constants, axis: int) -> bool:
    """True where constants change along the packed axis with a word, or not at all."""
    return constants.group is None or constants.group % WORD_BITS == 0 or constants.group >= x.shape[axis]


def pays(x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> bool:
    """True where that is so, and finding the thresholds and comparing with all of them is the smaller work."""
    if not possible(x, quantizer, constants, axis):
        return False
    levels = quantizer.dtype.n_levels
    sets = max((math.prod(a.shape[lead:]) for _, a, lead in constants.items()), default=1)
    if has_cuts(quantizer):
        return bool(sets == 1 or 4 * sets * levels <= x.size)  # so that thresholds are a quarter of x at most
    if levels > MAX_THRESHOLDS + 1:
        met_again = quantizer.fixed and settings(quantizer) is not None and not has_grid(quantizer)
        return bool(met_again and sets == 1 and 4 * levels <= x.size)
    return bool(sets * (levels - 1) * 8 * x.dtype.itemsize <= x.size)


class Encoder(NamedTuple):
    """Call the kernel with all operands that do not depend on the values of x."""

    device: str
    axis: int
    thresholds: Array
    codes: Array
    row: Array
    group: int
    words: tuple[int, ...]  # the shape of the result
    rows: tuple[int, int, int]  # the same as the kernel has it

    def __call__(self, x: Array) -> Array | None:
        """Return words [bits, *outer, word] of x packed along the axis; None where x holds a NaN."""
        out, runs = empty(self.device, self.words), in_runs(x.bits if isinstance(x, Bfloat16) else x, self.axis)
        nan = zeros("cpu", (PIECES,), np.bool_) if self.device == "cpu" else _flag(self.device)
        constants = self.thresholds, self.codes, self.row, self.group
        kernel(self.device, "encode")(runs, *constants, nan, out.reshape(self.rows))
        if is_set(nan):
            return None
        if self.device != "cpu":
            _give_back(self.device, nan)
        return out

    def fixed(self, quantizer: Quantizer, law: Constants) -> Search:
        """Return the kernel's operands but for x and its results."""
        return Search(self.thresholds, self.codes, self.row, self.group, {})

    def recut(self, cuts: Array) -> Encoder:
        """Replace the thresholds."""
        thresholds = _rounded_up(cuts, self.axis, self.thresholds.dtype)
        return self._replace(thresholds=thresholds.reshape(self.thresholds.shape))


def _flag(device: str) -> Array:
    """Return an element that is False on a GPU; a recorded call takes one each time."""
    if RECORDINGS and (one := recording("cuda")) is not None:
        return one.taken((1,), np.bool_, partial(_flag, device), partial(_give_back, device))
    flag = _flags.pop(device, None)
    return zeros(device, (1,), np.bool_) if flag is None else flag


def _give_back(device: str, flag: Array) -> None:
    if not (RECORDINGS and recording("cuda")):
        _flags[device] = flag


def encoder(op: str, x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> Encoder:
    """Return an encoder of arrays of x's form. See `pays`. Narrow floats and bytes are encoded as float32."""
    return by_tables(x, quantizer, tables(op, x, quantizer, constants, axis), constants, axis)


def tables(op: str, x: Array, quantizer: Quantizer, constants: Constants, axis: int) -> tuple[Array, Array]:
    """(thresholds [*outer, groups, T], codes uint8 [*outer, groups, T + 1]) of a monotone scheme for x's dtype."""
    return _kept_thresholds(op, quantizer, constants, axis, x.ndim, _compared(x))


def tables_of_steps(x: Array, steps: tuple[Array, Array], axis: int) -> tuple[Array, Array]:
    """Return `tables` made of the cuts and the codes of `Quantizer.steps`."""
    cuts, codes = steps
    thresholds = _rounded_up(cuts, axis, _compared(x))
    return thresholds, np.broadcast_to(codes, (*thresholds.shape[:-1], codes.size))


def _compared(x: Array) -> np.dtype[Any]:
    """Return the dtype in which values are compared with thresholds."""
    return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


def by_tables(x: Array, quantizer: Quantizer, tables: tuple[Array, Array], constants: Constants, axis: int) -> Encoder:
    """Return an encoder of arrays of x's form by thresholds and codes."""
    thresholds, by_rank = tables
    outer, length = x.shape[:axis] + x.shape[axis + 1 :], x.shape[axis]
    bits, words = quantizer.dtype.bits, word_count(length)
    return Encoder(
        device_of(x),
        axis,
        np.ascontiguousarray(thresholds.reshape(-1, *thresholds.shape[-2:])),
        np.ascontiguousarray(by_rank.reshape(-1, *by_rank.shape[-2:])),
        row_tables(thresholds.shape[:-2], outer),
        constants.group or max(length, 1),
        (bits, *outer, words),
        (bits, math.prod(outer), words),
    )


def row_tables(dims: tuple[int, ...], outer: tuple[int, ...]) -> Array:
    """int64[rows]: which of the tables of shape `dims`, which broadcasts to x's other axes, is a row's; one for all."""
    row = np.arange(math.prod(dims))
    if row.size > 1:  # of one table a GPU would be sent as many zeros as there are rows, each time
        row = np.array(np.broadcast_to(row.reshape(dims), outer)).reshape(-1)  # not read-only: another type to Numba
    return row


def in_runs(x: Array, axis: int) -> Array:
    """x as [before length after], C-contiguous; a view where its memory is in that order, or has the axis last."""
    if axis == x.ndim - 1 and x.flags.c_contiguous:  # `moveaxis` takes 2 us to find that nothing moves
        whole: Array = x.reshape(-1, x.shape[-1], 1)
        return whole
    last = moveaxis(x, axis, -1)
    if last.flags.c_contiguous:
        rows: Array = last.reshape(-1, last.shape[-1], 1)
        return rows
    return contiguous(x).reshape(math.prod(x.shape[:axis]), x.shape[axis], -1)


def _kept_thresholds(
    op: str, quantizer: Quantizer, constants: Constants, axis: int, ndim: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Return `_thresholds`, cached for schemes of the package: they take ten times as long as encoding a small image.

    Many constants would not be met again.
    """
    if has_cuts(quantizer):
        cuts = quantizer.cuts(constants)
        assert cuts is not None
        thresholds = _rounded_up(cuts, axis, dtype)
        every = np.arange(len(cuts) + 1, dtype=np.uint8)
        return thresholds, np.broadcast_to(every, (*thresholds.shape[:-1], every.size))
    known = settings(quantizer)
    if known is None or constants.nbytes > _MOST_BYTES:
        return _thresholds(op, quantizer, constants, axis, ndim, dtype)
    stored = tuple((name, a.shape, a.tobytes()) for name, a, _ in constants.items())
    key = (known, stored, constants.group, axis, ndim, dtype)
    known_thresholds: tuple[Array, Array] | None = _kept.get(key)
    if known_thresholds is None:
        known_thresholds = _thresholds(op, quantizer, constants, axis, ndim, dtype)
        _kept.keep(key, known_thresholds)
    return known_thresholds


def _rounded_up(cuts: Array, axis: int, dtype: np.dtype[Any]) -> Array:
    """Round cuts [T, ..] up to the least floats that are not below them, [*outer, groups, T]."""
    last = np.moveaxis(np.moveaxis(cuts, 0, -1), axis, -2)
    near = last.astype(dtype)
    return np.ascontiguousarray(np.where(near < last, np.nextafter(near, dtype.type(np.inf)), near))


@lru_cache(256)  # classes that a caller writes in a loop are not stored for ever
def of_package(scheme: type) -> bool:
    """True for a scheme of the package; one of the caller's may depend on more than its attributes."""
    return issubclass(scheme, Quantizer) and scheme.__module__.startswith("quantarray.")


def settings(quantizer: Quantizer) -> tuple[Any, ...] | None:
    """Return all that a scheme of the package depends on; None for one of the caller's."""
    if not of_package(type(quantizer)):
        return None
    values = tuple(vars(quantizer).values())
    return type(quantizer), values, tuple(map(type, values))  # True is not 1.0, though the two are equal


def _thresholds(
    op: str, quantizer: Quantizer, constants: Constants, axis: int, ndim: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """(thresholds [*outer, groups, T], codes uint8 [*outer, groups, T + 1]) of a quantiser.

    Threshold t is the smallest value whose code ranks above t. Axes of length 1 are those along which nothing varies.
    """
    count = quantizer.dtype.n_levels - 1
    shapes = [a.shape[lead:] for _, a, lead in constants.items()]
    dims = list(np.broadcast_shapes((1,) * ndim, *shapes))
    order = _order(quantizer, constants, dims)
    ranks = np.moveaxis(np.argsort(order, axis=0), axis + 1, -1)[..., None, None]  # [codes, *outer, groups, 1, 1]
    outer = (*_without(dims, axis), dims[axis])
    wanted = np.arange(1, count + 1)[:, None]
    places = max(_NEAR if quantizer.nearest else 1, min(_PLACES, _EVALUATED // (math.prod(dims) * count)))
    wide = _repeat(constants, axis, count * places)

    def passed(x: Array) -> Array:
        """True where the code of x [*outer, groups, T, places] ranks as high as the threshold wants."""
        with np.errstate(all="ignore"):
            laid_out = np.moveaxis(x.reshape(*outer[:-1], -1), -1, axis)
            reached = np.moveaxis(codes(op, quantizer, laid_out, wide), axis, -1).reshape(1, *x.shape)
        return np.asarray(np.take_along_axis(ranks, reached.astype(np.intp), 0)[0] >= wanted)

    near = _middles(quantizer, constants, dims, axis) if quantizer.nearest else None
    thresholds = np.ascontiguousarray(_least_float(passed, (*outer, count), places, dtype, near))
    by_group = np.ascontiguousarray(np.moveaxis(np.moveaxis(order, 0, -1), axis, -2), np.uint8)
    if thresholds.size > count:
        return thresholds, by_group
    last = np.append(thresholds[..., 1:] != thresholds[..., :-1], True) & ~np.isnan(thresholds).ravel()
    return thresholds[..., last], by_group[..., np.append(True, last)]  # without codes that no value has


def _middles(quantizer: Quantizer, constants: Constants, dims: list[int], axis: int) -> Array:
    """[*outer, groups, T]: halfway between neighbouring levels, where a scheme of nearest levels has its thresholds."""
    levels = np.sort(_in_full(level_values(quantizer.dtype, constants).astype(np.float64), dims), axis=0)
    return np.moveaxis(np.moveaxis((levels[:-1] + levels[1:]) / 2, 0, -1), axis, -2)


def _least_float(
    passed: Callable[[Array], Array], shape: tuple[int, ...], places: int, dtype: np.dtype[Any],
    near: Array | None = None,
) -> Array:  # fmt: skip
    """Bisect for the least float of each entry of `shape` that passes, NaN where none does; all above it pass too.

    `passed` takes floats [*shape, places]. Each round looks at so many places between the largest that is known to fail
    and the smallest that passes: one call of `encode` takes as long as its Python, whether for one value or a thousand.
    The first round looks at neighbouring floats about `near`, if that is given: it most often is the last one.
    """
    keys, key, value = _float_keys(dtype)
    low, high = np.full((*shape, 1), keys[0] - np.uint64(1)), np.full((*shape, 1), keys[1] + np.uint64(1))
    step = np.arange(1, places + 1, dtype=np.uint64)
    while (open := high - low > 1).any():
        if near is not None:
            at, near = np.clip(key(near)[..., None] + step - np.uint64(1 + places // 2), *keys), None
        else:
            gap = np.maximum((high - low) // np.uint64(places + 1), np.uint64(1))
            at = low + np.minimum(gap * step, np.maximum(high - low, np.uint64(2)) - np.uint64(1))
        failed = (~passed(value(np.minimum(at, keys[1])))).sum(axis=-1, keepdims=True)
        ends = np.concatenate([low, at, high], axis=-1)
        below, above = (np.take_along_axis(ends, failed + n, -1) for n in (0, 1))
        low, high = np.where(open, below, low), np.where(open, above, high)
    return np.where(high > keys[1], np.nan, value(np.minimum(high, keys[1])))[..., 0].astype(dtype)


def _without(shape: list[int], axis: int) -> list[int]:
    return shape[:axis] + shape[axis + 1 :]


def _order(quantizer: Quantizer, constants: Constants, dims: list[int]) -> Array:
    """Return the code of each rank, [codes, *dims]."""
    return np.argsort(_in_full(level_ranks(quantizer.dtype, constants), dims), axis=0, kind="stable")


def _in_full(values: Array, dims: list[int]) -> Array:
    """Broadcast a value of each code, [codes, *constants' shape], to [codes, *dims]."""
    values = values.reshape(len(values), *(values.shape[1:] or (1,) * len(dims)))
    return np.broadcast_to(values, (len(values), *dims))


def _repeat(constants: Constants, axis: int, count: int) -> Constants:
    repeated = {
        name: np.repeat(a, count, axis=lead + axis) if a.shape[lead + axis] > 1 else a
        for name, a, lead in constants.items()
    }
    return Constants(repeated.get("scale"), repeated.get("offset"), repeated.get("table"))


def _float_keys(
    dtype: np.dtype[Any],
) -> tuple[tuple[np.uint64, np.uint64], Callable[[Array], Array], Callable[[Array], Array]]:
    """uint64 numbers in the order of the floats from -inf to inf, the number of a float, and the float of a number."""
    whole = np.int32 if dtype == np.float32 else np.int64
    top = np.uint64(np.array(np.inf, dtype).view(whole))

    def key(x: Array) -> Array:
        magnitude = np.abs(x).astype(dtype).view(whole).astype(np.uint64)
        return np.where(x < 0, _ZERO - magnitude, _ZERO + magnitude)

    def value(k: Array) -> Array:
        negative = k < _ZERO
        magnitude = np.where(negative, _ZERO - k, k - _ZERO).astype(whole).view(dtype)
        return np.where(negative, -magnitude, magnitude)

    return (_ZERO - top, _ZERO + top), key, value
