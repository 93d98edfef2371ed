"""Any function that is monotone in each channel, folded into the thresholds that give its codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.exact_limits import ALWAYS, NEVER
from ...arrays.thresholds import Thresholds
from ...core.code_values import level_values
from ...core.dtypes import Array, Constants, DType, integers
from ...quantizers.base import Quantizer
from ..quantize import encoding

_MOST_LEVEL = 2**24  # float32 holds every integer of less
_ALL = 2**16  # values of a range that are all looked at
_NEAR, _SPREAD = 2**10, 2**11  # of a larger one: integers on each side of 0, and places over all of it
_AT_ONCE = 2**18  # values that f takes in one call


def fold(
    f: Callable[[Array], Any], *, into: Quantizer, of: type | range = np.int32, channels: int | None = None
) -> Thresholds:
    """Fold a function that is monotone in each channel, and the quantiser after it, into thresholds.

        fold(f, into=Q)(v) == quantize(f(v), Q)        for every v [.. channels] of type `of`

    f: takes values [n, channels] and returns as many, element by element, in any arithmetic: a PReLU of slope >= 0,
    Hardtanh, sigmoid, one batch norm after another, a sum of these. In each channel it must rise or fall.
    into: a quantiser whose constants are fixed, such as Sign() or Uniform(2, signed=False, step=0.5).
    of: np.int32, np.int64 (within +-2**53), np.float32, or a `range` of the integers that occur, such as
    range(-576, 577) for sums of 576 products of signs. f gets integers as int64, so that its own do not overflow.
    channels: by default what f broadcasts values [n, 1] to.

    The thresholds are found by bisection over all values of `of`, and are exact if the codes of f never change
    direction. Up to 2**16 values are all checked; of more, the 1,024 nearest to 0 on each side, powers of 2, 2,048
    places between the ends and both sides of each threshold. A channel whose codes change direction is refused with two
    values that show it. Levels that are all integers have no scale, as in `fold_batchnorm`.

    >>> import quantarray as qa, numpy as np
    >>> slope = np.array([0.25, 0.0])  # of a PReLU, one a channel
    >>> T = qa.fold(lambda v: np.where(v < 0, slope * v, v), into=qa.Uniform(2, step=1.0), of=range(-100, 101))
    >>> T(np.array([[-3, -3], [0, 0], [7, 7]])).dequantize()
    array([[-1,  0],
           [ 0,  0],
           [ 1,  1]], dtype=int32)
    >>> qa.fold(np.abs, into=qa.Uniform(2, step=1.0), of=range(-100, 101))
    Traceback (most recent call last):
    ValueError: fold: f must rise or fall in each channel, but in channel 0 it gives the levels 1 for -100, 0 for 0 ...
    """
    op = "fold"
    domain = domain_of(op, of)
    check_quantizer(op, into)
    codes = Codes.of(op, checks.function(op, "f", f), into)
    places = _Places(domain, _channels(op, f, domain, channels))
    rising = _rising(codes, places)
    keys = codes.searched(rising, domain)
    _check_monotone(op, codes, places, keys, rising)
    return codes.thresholds(keys, rising, domain)


class Domain(NamedTuple):
    """A domain of values that thresholds are for, numbered in their order by integers `first` to `last`."""

    first: int
    last: int
    dtype: np.dtype[Any]

    def value(self, key: Array) -> Array:
        """Return the values with these numbers, in the dtype that f takes."""
        if self.dtype != np.float32:
            return key.astype(self.dtype)
        magnitude = np.abs(key).astype(np.int32).view(np.float32)
        return np.where(key < 0, -magnitude, magnitude)

    def key(self, integer: Array) -> Array:
        """Return the numbers of integers."""
        if self.dtype != np.float32:
            return integer
        return np.abs(integer).astype(np.float32).view(np.int32) * np.sign(integer).astype(np.int64)

    def mirrored(self, key: Array, rising: Array) -> Array:
        """Count numbers from the last one in channels that fall."""
        return np.where(rising, key, self.first + self.last - key)

    def limit(self, key: Array) -> Array:
        """Return thresholds for `value > t`; outside the domain, all values pass or none does."""
        below, above = key < self.first, key >= self.last
        inside = self.value(np.clip(key, self.first, self.last))
        if self.dtype == np.float32:
            return np.where(below, -np.inf, np.where(above, np.inf, inside)).astype(np.float32)
        return np.where(below, ALWAYS, np.where(above, NEVER, inside.astype(np.int64)))


def last_before(rank: Callable[[Array], Array], count: int, rising: Array, domain: Domain) -> Array:
    """Find the last key before each rank 1 .. count, [count, *channels], by bisection; falling channels from the end.

    rank: returns the ranks of values [count, *channels]. rising: bool [*channels]. The key k is for `value > k` where
    rising and `value <= k` where not, which is `Thresholds` with greater = strict = rising.
    """
    up = np.broadcast_to(rising, (count, *rising.shape))
    low = np.full(up.shape, domain.first - 1)  # rank below, or no value is
    high = np.full(up.shape, domain.last + 1)  # rank at least, or no value is
    wanted = np.arange(1, count + 1).reshape(-1, *(1,) * rising.ndim)
    while (still := high - low > 1).any():
        middle = np.clip((low + high) // 2, domain.first, domain.last)  # where it is not still looked for
        passed = rank(domain.value(domain.mirrored(middle, up))) >= wanted
        high, low = np.where(still & passed, middle, high), np.where(still & ~passed, middle, low)
    # Rising: passes where key > low. Falling: a mirrored key passes from `high` on
    return np.where(up, low, domain.mirrored(high, up))


def domain_of(op: str, of: Any) -> Domain:
    """Return the domain of a dtype or a range."""
    if isinstance(of, range):
        if not of or of.step != 1 or max(abs(of[0]), abs(of[-1])) > 2**53:
            raise ValueError(f"{op}: of must be a range of step 1 within +-2**53 that is not empty, got {of}")
        return Domain(of[0], of[-1], np.dtype(np.int64))
    dtype = checks.dtype(op, "of", of, (np.int32, np.int64, np.float32))
    if dtype == np.float32:
        top = int(np.float32(np.finfo(np.float32).max).view(np.int32))
        return Domain(-top, top, dtype)
    small = dtype == np.int32
    return Domain(-(2**31), 2**31 - 1, np.dtype(np.int64)) if small else Domain(-(2**53), 2**53, dtype)


def check_quantizer(op: str, into: Any, hint: str = "") -> None:
    """Raise ValueError for a quantiser whose codes cannot come from thresholds."""
    if not isinstance(into, Quantizer) or not into.fixed:
        raise ValueError(
            f"{op}: into must be a quantiser with fixed constants, such as Sign() or Uniform(2, step=0.5){hint}, got "
            f"{into!r}"
        )
    if not into.monotone:
        raise ValueError(f"{op}: codes of {into} do not rise with the value, so no thresholds are equal to them")


class Codes(NamedTuple):
    """A quantiser's codes of f(v), by rank of their levels."""

    op: str
    f: Callable[[Array], Any]
    into: Quantizer
    law: Constants
    levels: Array  # of each code
    ranks: Array  # of each code

    @classmethod
    def of(cls, op: str, f: Callable[[Array], Any], into: Quantizer) -> Codes:
        law = encoding.fit(op, into, np.zeros(1), (0,))
        levels = level_values(into.dtype, law).reshape(-1)
        return cls(op, f, into, law, levels, np.argsort(np.argsort(levels)))

    def __call__(self, v: Array) -> Array:
        """Return the ranks of the codes of f(v), in the shape of v."""
        return np.asarray(self.ranks[encoding.codes(self.op, self.into, _evaluated(self.op, self.f, v), self.law)])

    def searched(self, rising: Array, domain: Domain) -> Array:
        """Find the last key before each code, [channels, count]; `last_before` says for which comparisons."""
        return last_before(self.__call__, self.into.dtype.n_levels - 1, rising, domain).T

    def thresholds(self, keys: Array, rising: Array, domain: Domain) -> Thresholds:
        """Return thresholds at the keys that `searched` gives."""
        dtype, law = _in_integers(self.into.dtype, self.law, self.levels)
        scale, offset, table = (None if c is None else c[..., 0] for c in (law.scale, law.offset, law.table))
        limits = domain.limit(keys)
        return Thresholds(limits, greater=rising, strict=rising, into=dtype, scale=scale, offset=offset, table=table)


def _in_integers(dtype: DType, law: Constants, levels: Array) -> tuple[DType, Constants]:
    """Drop the constants of levels that are all integers: products of them are exact."""
    whole = (levels == np.rint(levels)).all() and np.abs(levels).max() < _MOST_LEVEL
    if law.shapes and whole and len(np.unique(levels)) == len(levels):
        return integers(levels.tolist()), Constants()
    return dtype, law


def _evaluated(op: str, f: Callable[[Array], Any], v: Array) -> Array:
    """Compute f(v) as floats; ValueError if it has another shape than v or holds a NaN."""
    with np.errstate(all="ignore"):
        y = checks.numbers(op, "the result of f", f(v))
    if y.shape != v.shape:
        raise ValueError(f"{op}: f must give one number for each of the values {v.shape}, got {y.shape}")
    if y.dtype not in (np.float32, np.float64):
        y = y.astype(np.float32 if y.dtype == np.float16 else np.float64)
    if np.isnan(y).any():
        at = tuple(np.argwhere(np.isnan(y))[0])
        raise ValueError(f"{op}: f must give numbers, got NaN for {v[at]} in channel {at[-1]}")
    return y


def _channels(op: str, f: Callable[[Array], Any], domain: Domain, channels: int | None) -> int:
    if channels is not None:
        return checks.integer(op, "channels", channels, 1)
    with np.errstate(all="ignore"):
        try:
            y = checks.numbers(op, "the result of f", f(domain.value(np.array([[domain.last]]))))
        except (ValueError, IndexError) as error:
            raise ValueError(f"{op}: f takes no values of one channel ({error}); pass channels=") from error
    if y.ndim != 2 or len(y) != 1 or not y.size:
        raise ValueError(f"{op}: f must give [n, channels] for values [n, channels], got {y.shape} for (1, 1)")
    return int(y.shape[1])


class _Places(NamedTuple):
    """A set of keys at which a function is evaluated to find where it turns."""

    domain: Domain
    channels: int

    @property
    def every(self) -> bool:
        return self.domain.last - self.domain.first < _ALL

    def keys(self) -> Array:
        """Return sorted keys: all of a small domain, else some near 0, at powers of 2 and in between."""
        first, last, _ = self.domain
        if self.every:
            return np.arange(first, last + 1)
        near, powers = np.arange(-_NEAR, _NEAR + 1), 2 ** np.arange(10, 63)
        beside = (powers[:, None] + [-1, 0, 1]).ravel()
        integers = np.concatenate([near, beside, -beside])
        integers = integers[np.abs(integers) <= 2**53]
        spread = first + (last - first) * np.arange(_SPREAD) // (_SPREAD - 1)
        keys = np.concatenate([self.domain.key(integers), spread])
        return np.unique(keys[(keys >= first) & (keys <= last)])

    def blocks(self, around: Array) -> Iterator[Array]:
        """Yield blocks of sorted keys [n, channels], among them those beside thresholds `around` [channels, T]."""
        keys = np.broadcast_to(self.keys()[:, None], (len(self.keys()), self.channels))
        if not self.every:
            both = np.concatenate([around - 1, around, around + 1], axis=1).T
            keys = np.sort(np.concatenate([keys, np.clip(both, self.domain.first, self.domain.last)]), axis=0)
        rows = max(1, _AT_ONCE // self.channels)
        for at in range(0, len(keys), rows):
            yield keys[at : at + rows]


def _rising(codes: Codes, places: _Places) -> Array:
    """Return bool[channels]: the code at the last value is not below that at the first."""
    ends = np.array([[places.domain.first], [places.domain.last]]).repeat(places.channels, 1)
    first, last = codes(places.domain.value(ends))
    return np.asarray(last >= first)


def _check_monotone(op: str, codes: Codes, places: _Places, around: Array, rising: Array) -> None:
    """Raise ValueError if the codes of a channel turn, with values that show it."""
    every, sign = np.arange(places.channels), np.where(rising, 1, -1)
    best, at = np.full(places.channels, -(2**15)), np.zeros(places.channels, np.int64)
    for keys in places.blocks(around):
        ranks = sign * codes(places.domain.value(keys))
        highest = np.maximum(np.maximum.accumulate(ranks), best)
        if (ranks < highest).any():
            row, channel = (int(i) for i in np.argwhere(ranks < highest)[0])
            before = np.flatnonzero(ranks[:row, channel] == highest[row, channel])
            turn = keys[before[0], channel] if before.size else at[channel]
            _refuse(op, codes, places, channel, int(turn), int(keys[row, channel]))
        at = np.where(highest[-1] > best, keys[ranks.argmax(axis=0), every], at)
        best = highest[-1]


def _refuse(op: str, codes: Codes, places: _Places, channel: int, turn: int, after: int) -> None:
    """Raise ValueError with three values whose codes rise and fall: `turn`, `after`, and an end that differs."""
    keys = np.array([places.domain.first, turn, after, places.domain.last])
    v = places.domain.value(keys)
    ranks = codes(v[:, None].repeat(places.channels, 1))[:, channel]
    shown = [1, 2, 3] if (ranks[3] - ranks[2]) * (ranks[2] - ranks[1]) < 0 else [0, 1, 2]
    levels = np.sort(codes.levels)[ranks]
    a, b, c = (f"{levels[i]:g} for {v[i]}" for i in shown)
    raise ValueError(
        f"{op}: f must rise or fall in each channel, but in channel {channel} it gives the levels {a}, {b} and {c}; no "
        f"thresholds have such codes"
    )
