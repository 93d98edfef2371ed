"""Batch norm folded into thresholds, or after the last layer into an affine map of its integers."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import numpy as np

from ...arrays import checks
from ...arrays.affine import Affine
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...quantizers.base import Quantizer, is_number
from .folding import Codes, check_quantizer, domain_of


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
    of: type | range = np.int32,
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
    of: type | range = np.int32,
    precision: type = np.float64,
) -> Thresholds | Affine:
    """Fold batch norm and the quantiser after it into thresholds, or a last batch norm into an affine map.

        y = gamma * ((input_scale * v - mean) / sqrt(var + eps)) + beta;  code = into.encode(y)

    v are the integers of `conv2d` or `linear`. gamma, beta, mean, var: one finite number a channel, var >= 0.
    input_scale: a number, or one a channel: the value of v = 1 in the trained network, such as the step of x
    times the scale of w.

    With `into`, a quantiser whose constants are fixed, such as Sign() or Uniform(2, signed=False, step=0.5), returns
    `Thresholds` for `requantize=`. y is evaluated in `precision` for the values v of a result of type `of` (np.int32,
    np.int64 within +-2**53, np.float32, or a range), by the search of `fold`, which uses only that y is monotone. So
    the thresholds are exact for the arithmetic named, with gamma negative (they count downwards), zero (they always or
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
    domain = domain_of(op, of)
    precision = checks.dtype(op, "precision", precision, (np.float32, np.float64)).type
    if into is not None:
        check_quantizer(op, into, ", or None for the scores themselves")
    params = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    norm = _norm(op, params, eps, input_scale, np.float64 if into is None else precision)
    if into is None:
        return norm.affine
    codes = Codes.of(op, norm.__call__, into)
    return codes.thresholds(codes.searched(norm.rising, domain), norm.rising, domain)


class _Norm(NamedTuple):
    """A batch norm of integers; arrays [channels] of the dtype in which it is evaluated."""

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
    """Check the parameters and return them in `precision`."""
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
