"""Thresholds: the activation of a packed network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy, deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.code_values import level_values
from ..core.dtypes import Array, Constants, DType, bipolar, integers
from ..core.format import locked
from ..core.recordings import RECORDINGS, unrecorded
from . import checks, exact_limits
from .constants import make_constants

if TYPE_CHECKING:
    from .array import QuantArray


class Thresholds:
    """A law that turns a result into codes by counting: code = number of thresholds that the value passes.

        code[.., o] = sum_t (value[.., o] > values[o, t])

    per channel o of the last axis. A channel may count >= (`strict=False`), or downwards, < or <=
    (`greater=False`). Integers and floats are compared by their exact values, whatever the dtypes of the thresholds
    and the result are. The law of every operation that takes `requantize=T` is

        conv2d(x, w, ..., requantize=T) == T(conv2d(x, w, ...))

    values: integers or floats in any order, no NaN, 1 to 255 a channel:

    | values        | spelling                              | thresholds of a channel   | codes of  |
    |---------------|---------------------------------------|---------------------------|-----------|
    | [T]           | Thresholds([0, 5, 9])                 | all T, in every channel   | T + 1     |
    | [channels]    | Thresholds(values, per_channel=True)  | values[o], one            | 2         |
    | [channels, T] | Thresholds(values)                    | values[o]                 | T + 1     |

    per_channel: how values of one axis are read, True as one a channel, False as [T]. By default they are [T]; if two
    of them are equal, or the result has T channels, an error asks which is meant.
    greater, strict: a bool for all channels or one a channel.
    into: the dtype of the result, with T + 1 levels in ascending order, bipolar for one threshold and uint codes
    otherwise; scale, offset, table: its constants, one for the whole array. A dtype whose levels are not in
    ascending order gets its codes by rank: more thresholds passed is a larger value. With `by_rank=False` the
    count is the code, whatever its value.

    Thresholds never change, and those made of the same arguments are equal: what a call prepares for one of them
    serves all.

    Raises TypeError or ValueError for values that are not numbers, for counts that don't fit, for values that have two
    readings, and when called with another number of channels.

    >>> import quantarray as qa, numpy as np
    >>> T = qa.Thresholds([[0], [5]], strict=[True, False])
    >>> T(np.array([[0, 5], [1, 4]])).dequantize()
    array([[-1,  1],
           [ 1, -1]], dtype=int32)
    >>> qa.Thresholds([0, 5], per_channel=True)(np.array([[0, 5], [1, 6]])).dequantize()  # one a channel
    array([[-1, -1],
           [ 1,  1]], dtype=int32)
    >>> qa.Thresholds([0, 5])(np.array([[-3], [3], [9]])).codes().ravel()  # two in every channel
    array([0, 1, 2], dtype=uint8)
    """

    def __init__(
        self,
        values: Any,
        *,
        per_channel: bool | None = None,
        greater: Any = True,
        strict: Any = True,
        into: DType | None = None,
        scale: float | Array | None = None,
        offset: float | Array | None = None,
        table: Array | None = None,
        by_rank: bool = True,
    ) -> None:
        v, self._two_readings = _read(values, per_channel)
        count = v.shape[-1]
        if count > 255:
            hint = "; for one a channel pass per_channel=True" if v.ndim == 1 else ""
            raise ValueError(f"Thresholds: at most 255 thresholds a channel, got {count}{hint}")
        self.values = _frozen(np.sort(v.astype(np.float64) if v.dtype == np.float16 else v, axis=-1))
        self.greater, self.strict = (self._flags(n, f) for n, f in (("greater", greater), ("strict", strict)))
        if self.channels is not None:
            self._check_reading("Thresholds", self.channels)
        if into is not None and not isinstance(into, DType):
            raise TypeError(f"Thresholds: into must be a dtype such as bipolar or uint2, got {into!r}")
        self.into = into if into is not None else bipolar if count == 1 else integers(range(count + 1))
        if self.into.n_levels != count + 1:
            raise ValueError(
                f"Thresholds: {count} thresholds give {count + 1} codes, but {self.into} has {self.into.n_levels} "
                f"levels"
            )
        constants = {"scale": scale, "offset": offset, "table": table}
        self._plain = all(a is None for a in constants.values())
        self._constants: dict[str, Any] = constants if self._plain else {n: _copied(c) for n, c in constants.items()}
        self._cache: dict[Any, Any] = {}
        ranked = checks.flag("Thresholds", "by_rank", by_rank)
        self._codes = self._ranked_codes() if ranked else _frozen(np.arange(count + 1, dtype=np.uint8))
        named = {"values": self.values, "greater": self.greater, "strict": self.strict, "codes": self._codes}
        named |= {name: a for name, a, _ in self._law(1).items()}
        arrays = ((name, a.dtype, a.shape, a.tobytes()) for name, a in named.items())
        self._made_of = (self.into, self._two_readings, *arrays)

    def _flags(self, name: str, value: Any) -> Array:
        flags = checks.numbers("Thresholds", name, value)
        channels = self.values.shape[:-1]
        if flags.dtype != np.bool_ or flags.ndim > 1 or (flags.ndim == 1 and channels not in ((), flags.shape)):
            raise ValueError(
                f"Thresholds: {name} must be a bool or one for each of the channels {channels}, "
                f"got {flags.dtype} {flags.shape}"
            )
        return _frozen(flags.copy())

    def _ranked_codes(self) -> Array:
        """Return the code of each count: codes in ascending order of their levels."""
        return _plain_codes(self.into) if self._plain else _ranked(level_values(self.into, self._law(1)))

    def _check_reading(self, op: str, channels: int) -> None:
        """Raise ValueError where the values of one axis are as many as a result has channels."""
        count = self.values.shape[-1]
        if self._two_readings and count == channels:
            raise ValueError(
                f"{op}: {count} thresholds in one axis for {channels} channels are one a channel, or {count} in every "
                f"channel: say which by Thresholds(values, per_channel=True) or Thresholds(values, per_channel=False)"
            )

    @property
    def channels(self) -> int | None:
        """Return the number of channels, or None where all share the same thresholds."""
        for a, lead in ((self.values, 2), (self.greater, 1), (self.strict, 1)):
            if a.ndim == lead:
                return int(a.shape[0])
        return None

    def of_channels(self, channels: slice) -> Thresholds:
        """Return the thresholds of some channels; themselves where all share the same."""
        if self.channels is None:
            return self
        part = copy(self)
        part._cache = {}
        for name, axes in (("values", 2), ("greater", 1), ("strict", 1)):
            a = getattr(self, name)
            setattr(part, name, a[channels] if a.ndim == axes else a)
        part._made_of = (*self._made_of, ("channels", channels.start, channels.stop))
        return part

    def _law(self, ndim: int) -> Constants:
        """Return the result's constants for an array of `ndim` axes."""
        law: Constants = self._cached(
            ("law", ndim),
            lambda: _plain_law(self.into, ndim) if self._plain else _law(self.into, ndim, **self._constants),
        )
        return law

    def _counted(self, channels: int, real: bool) -> tuple[Array, Array]:
        """(thresholds [T, channels], flip [channels]): the code's rank is #(value > t), or T minus that if flipped.

        Exact for integers because v >= t is v > t - 1, for float32 results because v >= t is v > the float before.
        """
        shape = (channels, self.values.shape[-1])
        values = np.broadcast_to(self.values, shape)
        greater = np.broadcast_to(self.greater, channels)
        strict = np.broadcast_to(self.strict, channels)
        step_back = (greater != strict)[:, None]  # ">=" counts above, and T - #(v >= t) is #(v < t)
        counted = exact_limits.below_float32(values, step_back) if real else exact_limits.below_int(values, step_back)
        return np.ascontiguousarray(counted.T), ~greater

    def _cached(self, key: Any, build: Callable[[], Any]) -> Any:
        """Return `build()`, from the cache of these thresholds if it has an entry with that key."""
        if key not in self._cache:
            with unrecorded() if RECORDINGS else nullcontext():
                self._cache[key] = build()
        return self._cache[key]

    if TYPE_CHECKING:  # `quantarray.methods` attaches it

        def __call__(self, values: Any, axis: int = -1) -> QuantArray: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thresholds) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._made_of)

    def __repr__(self) -> str:
        channels = "all" if self.channels is None else self.channels
        return f"Thresholds({self.values.shape[-1]} for {channels} channels, into={self.into})"


def _law(into: DType, ndim: int, **constants: Any) -> Constants:
    return make_constants("Thresholds", into, (1,) * ndim, ndim - 1, **constants)


@lru_cache(maxsize=256)
def _plain_law(into: DType, ndim: int) -> Constants:
    """Return the law of thresholds without constants, cached: they are often made in the call that they are for."""
    return Constants() if into.is_integer else _law(into, ndim)


@lru_cache(maxsize=256)
def _plain_codes(into: DType) -> Array:
    return _ranked(level_values(into, _plain_law(into, 1)))


def _ranked(levels: Array) -> Array:
    return _frozen(np.argsort(levels.reshape(len(levels), -1)[:, 0], kind="stable").astype(np.uint8))


def _copied(constant: Any) -> Any:
    return _frozen(constant.copy()) if isinstance(constant, np.ndarray) else deepcopy(constant)


def _frozen(a: Array) -> Array:
    return locked(a)


def _read(values: Any, per_channel: bool | None) -> tuple[Array, bool]:
    """(thresholds [T] or [channels, T], whether an axis of as many channels would be another reading of them)."""
    v = checks.numbers("Thresholds", "values", values)
    if v.dtype.kind not in "iuf" or v.ndim not in (1, 2) or not v.size:
        raise TypeError(f"Thresholds: values must be numbers [T] or [channels, T], got {v.dtype} of shape {v.shape}")
    if v.dtype.kind == "f":
        if np.isnan(v).any():
            raise ValueError("Thresholds: values must not be NaN; a threshold that nothing passes is inf")
        _check_integers(values, v)
    if per_channel is not None and not checks.flag("Thresholds", "per_channel", per_channel) and v.ndim == 2:
        raise ValueError(f"Thresholds: values [channels, T] are per channel, got {v.shape} and per_channel=False")
    if v.ndim == 2 or per_channel is not None or len(v) == 1:
        return v[:, None] if per_channel and v.ndim == 1 else v, False
    if len(np.unique(v)) < len(v):
        raise ValueError(
            f"Thresholds: {len(v)} thresholds in one axis, of which some are equal, are most likely one a channel, "
            f"Thresholds(values, per_channel=True); for {len(v)} in every channel pass per_channel=False"
        )
    return v, True


def _check_integers(values: Any, v: Array) -> None:
    """Raise ValueError where a list of integers and floats holds an integer that is rounded in the array that it
    becomes."""
    if hasattr(values, "dtype"):
        return
    for integer, number in zip(np.asarray(values, object).flat, v.flat, strict=True):
        if isinstance(integer, (int, np.integer)) and int(integer) != float(number):
            raise ValueError(
                f"Thresholds: values mixes floats with the integer {integer}, which float64 cannot hold; pass integers "
                f"alone"
            )
