"""Batch norm folded into thresholds, or behind the last layer into an affine map of its integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, overload

import numpy as np

from ...arrays import checks
from ...arrays.affine import Affine
from ...arrays.exact_limits import ALWAYS, NEVER
from ...arrays.thresholds import Thresholds
from ...core.code_values import level_values
from ...core.dtypes import Array, Constants, DType, integers
from ...quantizers.base import Quantizer, is_number
from ..quantize import encoding

_MOST_LEVEL = 2**24  # float32 holds every integer of less


@overload
def fold_batchnorm(
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    *,
    into: Quantizer,
    eps: float = 1e-5,
    input_scale: Any = 1.0,
    of: type = np.int32,
    precision: type = np.float64,
) -> Thresholds: ...
@overload
def fold_batchnorm(
    gamma: Any, beta: Any, mean: Any, var: Any, *, into: None, eps: float = 1e-5, input_scale: Any = 1.0
) -> Affine: ...
def fold_batchnorm(
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    *,
    into: Quantizer | None,
    eps: float = 1e-5,
    input_scale: Any = 1.0,
    of: type = np.int32,
    precision: type = np.float64,
) -> Thresholds | Affine:
    """Fold batch norm and the quantiser behind it into thresholds, or a last batch norm into an affine map.

        y = gamma * ((input_scale * v - mean) / sqrt(var + eps)) + beta;  code = into.encode(y)

    v are the integers of `conv2d` or `linear`. gamma, beta, mean, var: one finite number a channel, var >= 0.
    input_scale: a number, or one a channel: what an integer v stands for in the trained network, such as the step of x
    times the scale of w.

    With `into`, a quantiser whose constants are fixed, such as Sign() or Uniform(2, signed=False, step=0.5), returns
    `Thresholds` for `requantize=`. y is evaluated in `precision` for the values v of a result of type `of` (np.int32,
    np.int64 within +-2**53, or np.float32), by a search over v that uses only that each step is monotone. So the
    thresholds are exact for the arithmetic named, with gamma negative (they count downwards), zero (they always or
    never count) or huge. Where all levels of `into` are integers, such as those of Uniform(2, step=1.0), the codes have
    integer levels without a scale, and products of them are exact integers.

    With `into=None` returns an `Affine`, y without rounding to codes: the scores of the last layer.

    >>> import quantarray as qa, numpy as np
    >>> T = qa.fold_batchnorm([2.0, -1.0], [0.0, 0.5], [3.2, 0.0], [1.0, 1.0], into=qa.Sign(), eps=0.0)
    >>> T(np.array([[3, 0], [4, 1]])).dequantize()
    array([[-1,  1],
           [ 1, -1]], dtype=int32)
    >>> scores = qa.fold_batchnorm([2.0, -1.0], [0.0, 0.5], [3.0, 0.0], [1.0, 1.0], into=None, eps=0.0, input_scale=0.5)
    >>> scores(np.array([[3, 0], [4, 1]]))  # 2 * (0.5 * v - 3) and 0.5 - 0.5 * v
    array([[-3. ,  0.5],
           [-2. ,  0. ]])
    """
    op = "fold_batchnorm"
    of = checks.dtype(op, "of", of, (np.int32, np.int64, np.float32)).type
    precision = checks.dtype(op, "precision", precision, (np.float32, np.float64)).type
    if into is not None and (not isinstance(into, Quantizer) or not into.fixed):
        raise ValueError(
            f"{op}: into must be a quantiser with fixed constants, such as Sign() or Uniform(2, step=0.5), or None for "
            f"the scores themselves, got {into!r}"
        )
    params = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    norm = _norm(op, params, eps, input_scale, np.float64 if into is None else precision)
    return norm.affine if into is None else _thresholds(op, norm, into, of)


class _Norm(NamedTuple):
    """Batch norm of integers; arrays [channels] of the dtype in which it is evaluated."""

    gamma: Array
    beta: Array
    mean: Array
    deviation: Array
    input_scale: Array

    def __call__(self, v: Array) -> Array:
        """y for v [.., channels]."""
        with np.errstate(over="ignore", invalid="ignore"):
            x = self.input_scale * v.astype(self.mean.dtype)
            normal = self.gamma * ((x - self.mean) / self.deviation)
        return np.asarray(np.where(self.gamma == 0, self.gamma.dtype.type(0), normal) + self.beta)

    @property
    def rising(self) -> Array:
        """bool[channels]: y does not fall where v rises."""
        return np.asarray(np.sign(self.gamma) * np.sign(self.input_scale) >= 0)

    @property
    def affine(self) -> Affine:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            scale, shift = self.gamma * self.input_scale / self.deviation, self.gamma * self.mean / self.deviation
            return Affine(scale, self.beta - shift)


def _norm(op: str, params: dict[str, Any], eps: Any, input_scale: Any, precision: type) -> _Norm:
    """The checked parameters in `precision`."""
    with np.errstate(over="ignore"):
        a: dict[str, Array] = {
            name: checks.numbers(op, name, value).astype(precision) for name, value in params.items()
        }
        scale: Array = checks.numbers(op, "input_scale", input_scale).astype(precision)
    shape = a["gamma"].shape
    if any(b.shape != shape for b in a.values()) or len(shape) != 1 or shape == (0,):
        listed = ", ".join(f"{name} {b.shape}" for name, b in a.items())
        raise ValueError(f"{op}: gamma, beta, mean and var must be [channels] alike, got {listed}")
    if scale.shape not in ((), shape):
        raise ValueError(f"{op}: input_scale must be a number or {shape[0]}, one a channel, got {scale.shape}")
    for name, b in (*a.items(), ("input_scale", scale)):
        if not np.isfinite(b).all():
            raise ValueError(f"{op}: {name} must be finite, got {b[~np.isfinite(b)][0]} as {np.dtype(precision)}")
    var = a.pop("var")
    if (var < 0).any() or not is_number(eps) or eps < 0 or not (var + precision(eps) > 0).all():
        raise ValueError(
            f"{op}: var and eps must not be negative, and var + eps must be positive in every channel, got eps={eps!r} "
            f"and var from {var.min()}"
        )
    return _Norm(**a, deviation=np.sqrt(var + precision(eps)), input_scale=np.broadcast_to(scale, shape))


def _thresholds(op: str, norm: _Norm, into: Quantizer, of: type) -> Thresholds:
    """Thresholds that equal `norm` followed by `into` for every value of type `of`."""
    if not into.monotone:
        raise ValueError(f"{op}: codes of {into} do not rise with the value, so no thresholds are equal to them")
    law = encoding.fit(op, into, np.zeros(1), (0,))
    levels = level_values(into.dtype, law).reshape(-1)
    ranks = np.argsort(np.argsort(levels))

    def code(v: Array) -> Array:
        return np.asarray(ranks[encoding.codes(op, into, norm(v), law)])

    values, greater = _search(code, into.dtype.n_levels - 1, norm.rising, of)
    dtype, law = _in_integers(into.dtype, law, levels)
    scale, offset, table = (None if c is None else c[..., 0] for c in (law.scale, law.offset, law.table))
    return Thresholds(values, greater=greater, strict=greater, into=dtype, scale=scale, offset=offset, table=table)


def _in_integers(dtype: DType, law: Constants, levels: Array) -> tuple[DType, Constants]:
    """The same levels without constants where all are integers: products of them are exact."""
    whole = (levels == np.rint(levels)).all() and np.abs(levels).max() < _MOST_LEVEL
    if law.shapes and whole and len(np.unique(levels)) == len(levels):
        return integers(levels.tolist()), Constants()
    return dtype, law


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
    return np.where(below, ALWAYS, np.where(above | (at == keys[1]), NEVER, inside)).astype(np.int64)
