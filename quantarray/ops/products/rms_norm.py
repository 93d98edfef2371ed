"""Rows divided by their root mean square, as language models have it before linear layers."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import checks
from ...backends.registry import device_of, empty, kernel
from ...core.dtypes import Array
from ...core.format import locked
from ...core.hints import Floats, Vector
from .float_rows import rows_of_floats


class RMSNorm:
    """A norm of rows of floats: each is divided by the root of its mean square, and multiplied by weights.

        y[.., k] = x[.., k] / sqrt(mean(x[..] ** 2) + eps) * weight[k]

    weight: finite numbers, one for each element of a row, 1 without; eps at least 0 (Zhang and Sennrich, 2019,
    arXiv:1910.07467).

    Called with float32, float16 or bfloat16 [.., k], it returns float32. Everything is float64 and rounded once at the
    end; squares are added in 16 sums, of every 16th each, which are added by halves: the same by any number of threads
    and on every CPU. Raises DeviceError for arrays of a GPU, TypeError or ValueError for other rows and weights.

    >>> import numpy as np, quantarray as qa
    >>> norm = qa.RMSNorm(weight=[1, 1, 2])
    >>> norm(np.float32([[3, 0, 4]])).round(4)
    array([[1.0392, 0.    , 2.7713]], dtype=float32)
    """

    def __init__(self, weight: Vector | None = None, *, eps: float = 1e-5) -> None:
        op = "RMSNorm"
        a = (
            np.ones(1, np.float32)
            if weight is None
            else checks.float32(op, "weight", checks.numbers(op, "weight", weight))
        )
        if a.ndim != 1 or not a.size:
            hint = "" if a.ndim else f"; RMSNorm(eps={weight})"
            raise ValueError(
                f"{op}: weight must be a vector, one number for each element of a row, got {a.shape}{hint}"
            )
        if not (isinstance(eps, (int, float)) and 0 <= eps < math.inf):
            raise ValueError(f"{op}: eps must be a finite number of at least 0, got {eps!r}")
        self.eps, self.weight = float(eps), None if weight is None else locked(a.copy())
        self._weight = a if self.weight is None else self.weight

    def __call__(self, x: Floats) -> Array:
        """float32 [.., k]: normalised rows."""
        op = "RMSNorm"
        a = rows_of_floats(op, x)
        if not a.ndim or (self.weight is not None and len(self.weight) != a.shape[-1]):
            needed = "at least one axis" if self.weight is None else f"rows of {len(self.weight)} elements, as weight"
            raise ValueError(f"{op}: x must have {needed}, got {a.shape}")
        device = device_of(a)
        y = empty(device, a.shape, np.float32)
        if y.size:
            rows = a.reshape(-1, a.shape[-1]), y.reshape(-1, a.shape[-1])
            kernel(device, "rms_norm")(rows[0], self._weight, self.eps, rows[1])
        return y

    def __repr__(self) -> str:
        weight = "" if self.weight is None else f"weight=[{len(self.weight)}], "
        return f"RMSNorm({weight}eps={self.eps})"
