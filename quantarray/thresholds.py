"""Thresholds: the activation of a packed network, and how batch norm folds into it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import Array, Constants, DType, bipolar, integers, level_values
from .ops import checks, encoding
from .quantizers.base import Quantizer, is_number

if TYPE_CHECKING:
    from .array import QuantArray

_ALWAYS, _NEVER = -(2**62), 2**62  # beyond every accumulator


class Thresholds:
    """Turns a result into codes by counting: code = number of thresholds that the value passes.

        code[.., o] = sum_t (value[.., o] > values[o, t])

    per channel o of the last axis. A channel may count >= (`strict=False`), or downwards, < or <=
    (`greater=False`). The law of every operation that takes `requantize=T` is

        conv2d(x, w, ..., requantize=T) == T(conv2d(x, w, ...))

    values: [T] for all channels or [channels, T], integers or floats, no NaN, 1 to 255 a channel, in any order.
    greater, strict: a bool for all channels or one a channel.
    into: the dtype of the result, with T + 1 levels in ascending order, bipolar for one threshold and uint codes
    otherwise; scale, offset, table: its constants, one for the whole array. A dtype whose levels are not in
    ascending order gets its codes by rank: more thresholds passed is a larger value. With `by_rank=False` the
    count is the code, whatever that stands for.

    Thresholds never change, and those made of the same arguments are equal: what a call prepares for one of them
    serves all.

    Raises TypeError or ValueError for values that are not numbers, for counts that don't fit, and when called with
    another number of channels.

    >>> import quantarray as qa, numpy as np
    >>> T = qa.Thresholds([[0], [5]], strict=[True, False])
    >>> T(np.array([[0, 5], [1, 4]])).dequantize()
    array([[-1,  1],
           [ 1, -1]], dtype=int32)
    """

    def __init__(
        self,
        values: Any,
        *,
        greater: Any = True,
        strict: Any = True,
        into: DType | None = None,
        scale: float | Array | None = None,
        offset: float | Array | None = None,
        table: Array | None = None,
        by_rank: bool = True,
    ) -> None:
        v = checks.numbers("Thresholds", "values", values)
        if v.dtype.kind not in "iuf" or v.ndim not in (1, 2) or not v.size:
            raise TypeError(
                f"Thresholds: values must be numbers [T] or [channels, T], got {v.dtype} of shape {v.shape}"
            )
        if v.dtype.kind == "f" and np.isnan(v).any():
            raise ValueError("Thresholds: values must not be NaN; a threshold that nothing passes is inf")
        if v.shape[-1] > 255:
            raise ValueError(f"Thresholds: at most 255 thresholds a channel, got {v.shape[-1]}")
        self.values = _frozen(np.sort(v.astype(np.float64) if v.dtype == np.float16 else v, axis=-1))
        self.greater, self.strict = (self._flags(n, f) for n, f in (("greater", greater), ("strict", strict)))
        count = v.shape[-1]
        if into is not None and not isinstance(into, DType):
            raise TypeError(f"Thresholds: into must be a dtype such as bipolar or uint2, got {into!r}")
        self.into = into if into is not None else bipolar if count == 1 else integers(range(count + 1))
        if self.into.n_levels != count + 1:
            raise ValueError(
                f"Thresholds: {count} thresholds give {count + 1} codes, but {self.into} has {self.into.n_levels} "
                f"levels"
            )
        given = {"scale": scale, "offset": offset, "table": table}
        self._plain = all(a is None for a in given.values())
        self.constants: dict[str, Any] = given if self._plain else deepcopy(given)
        self._cache: dict[Any, Any] = {}
        ranked = checks.flag("Thresholds", "by_rank", by_rank)
        self.codes = self._codes() if ranked else _frozen(np.arange(count + 1, dtype=np.uint8))
        named = {"values": self.values, "greater": self.greater, "strict": self.strict, "codes": self.codes}
        named |= {name: a for name, a, _ in self.law(1).items()}
        self._made_of = (self.into, *((name, a.dtype, a.shape, a.tobytes()) for name, a in named.items()))

    def _flags(self, name: str, value: Any) -> Array:
        flags = checks.numbers("Thresholds", name, value)
        channels = self.values.shape[:-1]
        if flags.dtype != np.bool_ or flags.ndim > 1 or (flags.ndim == 1 and channels not in ((), flags.shape)):
            raise ValueError(
                f"Thresholds: {name} must be a bool or one for each of the channels {channels}, "
                f"got {flags.dtype} {flags.shape}"
            )
        return _frozen(flags.copy())

    def _codes(self) -> Array:
        """The code of each count: codes in ascending order of their levels."""
        return _plain_codes(self.into) if self._plain else _ranked(level_values(self.into, self.law(1)))

    @property
    def channels(self) -> int | None:
        """The number of channels, or None where all share the same thresholds."""
        for a, lead in ((self.values, 2), (self.greater, 1), (self.strict, 1)):
            if a.ndim == lead:
                return int(a.shape[0])
        return None

    def of_channels(self, channels: slice) -> Thresholds:
        """The thresholds of some channels; themselves where all share the same."""
        if self.channels is None:
            return self
        part = copy(self)
        part._cache = {}
        for name, axes in (("values", 2), ("greater", 1), ("strict", 1)):
            a = getattr(self, name)
            setattr(part, name, a[channels] if a.ndim == axes else a)
        part._made_of = (*self._made_of, ("channels", channels.start, channels.stop))
        return part

    def law(self, ndim: int) -> Constants:
        """The result's constants for an array of `ndim` axes."""
        law: Constants = self._cached(
            ("law", ndim),
            lambda: _plain_law(self.into, ndim) if self._plain else _law(self.into, ndim, **self.constants),
        )
        return law

    def counted(self, channels: int, real: bool) -> tuple[Array, Array]:
        """(thresholds [T, channels], flip [channels]): the code's rank is #(value > t), or T minus that if flipped.

        Exact for integers because v >= t is v > t - 1, for float32 results because v >= t is v > the float before.
        """
        shape = (channels, self.values.shape[-1])
        values = np.broadcast_to(self.values, shape)
        greater = np.broadcast_to(self.greater, channels)
        strict = np.broadcast_to(self.strict, channels)
        step_back = (greater != strict)[:, None]  # ">=" counts above, and T - #(v >= t) is #(v < t)
        counted = _below_float32(values, step_back) if real else _below_int(values, step_back)
        return np.ascontiguousarray(counted.T), ~greater

    def _cached(self, key: Any, build: Callable[[], Any]) -> Any:
        """What `build` made of these thresholds for a kernel, built once a key and kept."""
        if key not in self._cache:
            self._cache[key] = build()
        return self._cache[key]

    def __call__(self, values: Any, axis: int = -1) -> QuantArray:
        """Codes of a dense result, packed along its channel axis."""
        from .ops.thresholding import apply

        return apply(self, values, axis)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thresholds) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._made_of)

    def __repr__(self) -> str:
        channels = "all" if self.channels is None else self.channels
        return f"Thresholds({self.values.shape[-1]} for {channels} channels, into={self.into})"


def _law(into: DType, ndim: int, **constants: Any) -> Constants:
    from .ops.creation import make_constants

    return make_constants("Thresholds", into, (1,) * ndim, ndim - 1, **constants)


@lru_cache(maxsize=256)
def _plain_law(into: DType, ndim: int) -> Constants:
    """Of thresholds without constants, which are often made in the call that they are for."""
    return _law(into, ndim)


@lru_cache(maxsize=256)
def _plain_codes(into: DType) -> Array:
    return _ranked(level_values(into, _plain_law(into, 1)))


def _ranked(levels: Array) -> Array:
    return _frozen(np.argsort(levels.reshape(len(levels), -1)[:, 0], kind="stable").astype(np.uint8))


def _frozen(a: Array) -> Array:
    a.flags.writeable = False
    return a


def _below_int(values: Array, step_back: Array) -> Array:
    """The largest integer t' with v > t' wherever v > t (or v >= t where `step_back`), for every integer v."""
    if values.dtype.kind != "f":
        clipped = np.clip(values, _ALWAYS, _NEVER).astype(np.int64)
        return clipped - step_back
    whole = np.where(step_back, np.ceil(values) - 1, np.floor(values))
    return np.clip(whole, float(_ALWAYS), float(_NEVER)).astype(np.int64)


def _below_float32(values: Array, step_back: Array) -> Array:
    """The same for every float32 v, as float64; NaN where every v passes, even -inf, below which there is nothing."""
    exact = values.astype(np.float64)
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
        before = np.nextafter(nearest, np.float32(-np.inf))
    at_least = np.where(nearest >= exact, before, nearest).astype(np.float64)
    return np.where(step_back, np.where(exact == -np.inf, np.nan, at_least), exact)


def fold_batchnorm(
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    *,
    into: Quantizer,
    eps: float = 1e-5,
    of: type = np.int32,
    precision: type = np.float64,
) -> Thresholds:
    """Thresholds that equal batch norm followed by a quantiser, for every possible result.

        y = gamma * ((v - mean) / sqrt(var + eps)) + beta;  code = into.encode(y)

    evaluated in `precision` for the values v of a result of type `of` (np.int32, np.int64 within +-2**53, or
    np.float32), by a search over v that uses only that each step is monotone. So the thresholds are exact for the
    arithmetic named, with gamma negative (they count downwards), zero (they always or never count) or huge.

    gamma, beta, mean, var: one finite number a channel, var >= 0. into: a quantiser whose constants are fixed, such
    as Sign() or Uniform(2, signed=False, step=0.5).

    >>> import quantarray as qa, numpy as np
    >>> T = qa.fold_batchnorm([2.0, -1.0], [0.0, 0.5], [3.2, 0.0], [1.0, 1.0], into=qa.Sign(), eps=0.0)
    >>> T(np.array([[3, 0], [4, 1]])).dequantize()
    array([[-1,  1],
           [ 1, -1]], dtype=int32)
    """
    op = "fold_batchnorm"
    of = checks.dtype(op, "of", of, (np.int32, np.int64, np.float32)).type
    precision = checks.dtype(op, "precision", precision, (np.float32, np.float64)).type
    if not isinstance(into, Quantizer) or not into.fixed:
        raise ValueError(
            f"{op}: into must be a quantiser with fixed constants, such as Sign() or Uniform(2, step=0.5), got {into!r}"
        )
    given = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    with np.errstate(over="ignore"):
        params: dict[str, Array] = {n: checks.numbers(op, n, a).astype(precision) for n, a in given.items()}
    shapes = {a.shape for a in params.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1 or (0,) in shapes:
        listed = ", ".join(f"{name} {a.shape}" for name, a in params.items())
        raise ValueError(f"{op}: gamma, beta, mean and var must be [channels] alike, got {listed}")
    for name, a in params.items():
        if not np.isfinite(a).all():
            raise ValueError(f"{op}: {name} must be finite, got {a[~np.isfinite(a)][0]} as {np.dtype(precision)}")
    if (params["var"] < 0).any() or not is_number(eps) or eps < 0 or not (params["var"] + precision(eps) > 0).all():
        raise ValueError(
            f"{op}: var and eps must not be negative, and var + eps must be positive in every channel, got eps={eps!r} "
            f"and var from {params['var'].min()}"
        )
    deviation = np.sqrt(params["var"] + precision(eps))

    if not into.monotone:
        raise ValueError(f"{op}: codes of {into} do not rise with the value, so no thresholds are equal to them")
    law = encoding.fit(op, into, np.zeros(1), (0,))
    levels = level_values(into.dtype, law).reshape(-1)
    ranks = np.argsort(np.argsort(levels))

    def code(v: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            normal = params["gamma"] * ((v.astype(precision) - params["mean"]) / deviation)
        y = np.where(params["gamma"] == 0, precision(0), normal) + params["beta"]
        return np.asarray(ranks[encoding.codes(op, into, y, law)])

    scale, offset, table = (None if c is None else c[..., 0] for c in (law.scale, law.offset, law.table))
    values, greater = _search(code, into.dtype.n_levels - 1, params["gamma"] >= 0, of)
    return Thresholds(values, greater=greater, strict=greater, into=into.dtype, scale=scale, offset=offset, table=table)


def _search(code: Callable[[Array], Array], count: int, rising: Array, of: type) -> tuple[Array, Array]:
    """The last value before each code, [channels, count], by bisection over all values of type `of`.

    Falling channels are searched as rising ones over the negated values. Returns thresholds for `value > t` where
    rising and `value <= t` where not, which is `Thresholds` with greater = strict = rising.
    """
    keys, value = _ordered_keys(of)
    low = np.full((rising.size, count), keys[0] - 1)  # code below j, or nothing is
    high = np.full((rising.size, count), keys[1] + 1)  # code at least j, or nothing is
    wanted = np.arange(1, count + 1)
    flip = np.where(rising, 1, -1)[:, None]
    while (high - low > 1).any():
        middle = (low + high) // 2
        passed = code(value(flip * middle).T).T >= wanted
        high, low = np.where(passed, middle, high), np.where(passed, low, middle)
    # Rising: passes where key > low. Falling: the negated key passes from `high` on, so key <= -high.
    at = np.where(rising[:, None], low, -high)
    return _threshold_values(at, keys, value, of), rising


def _ordered_keys(of: type) -> tuple[tuple[int, int], Callable[[Array], Array]]:
    """A symmetric range of integers in the order of the type's values, and the value of an integer."""
    if of is np.int32:
        return (-(2**31), 2**31), lambda k: np.clip(k, -(2**31), 2**31 - 1)
    if of is np.int64:
        return (-(2**53), 2**53), lambda k: k
    top = int(np.float32(np.finfo(np.float32).max).view(np.int32))

    def value(k: Array) -> Array:
        magnitude = np.abs(k).astype(np.int32).view(np.float32)
        return np.where(k < 0, -magnitude, magnitude)

    return (-top, top), value


def _threshold_values(at: Array, keys: tuple[int, int], value: Callable[[Array], Array], of: type) -> Array:
    below, above = at < keys[0], at > keys[1]
    inside = value(np.clip(at, *keys))
    if of is np.float32:
        return np.where(below, -np.inf, np.where(above | (at == keys[1]), np.inf, inside)).astype(np.float32)
    return np.where(below, _ALWAYS, np.where(above | (at == keys[1]), _NEVER, inside)).astype(np.int64)
