"""Dense layers, and what layers of packed weights have in common."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from ..arrays import checks, likely_fix
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType
from ..core.format import locked
from ..core.hints import Bytes, OutType, Values
from ..ops.products import epilogue
from ..ops.products.matrix_product import linear
from ..ops.products.operand import bias_values, operand
from .named import named


@dataclass(frozen=True, eq=False)
class Dense:
    """`linear(x, weight, ...)` as a layer: x is flattened, channels last, to [n k] and multiplied by weight [o k].

    Arguments as in `quantarray.linear`; errors of a call name the layer.

    >>> import quantarray as qa, numpy as np
    >>> layer = qa.nn.Dense(qa.encode([[1, 1, -1, -1]], values=(-1, 1)), bias=[5])
    >>> layer(qa.encode(np.array([[[[1, 1], [-1, 1]]]]), values=(-1, 1)))
    array([[7]], dtype=int32)
    """

    weight: QuantArray
    requantize: Thresholds | None = None
    _: KW_ONLY
    bias: Values | None = None
    out_dtype: OutType = None

    def __post_init__(self) -> None:
        check_weight("Dense", self.weight, 2, (1,), "[o k]")
        check_result(self, "Dense", self.weight.shape[0])

    @named
    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        rows, k = operand("Dense", "x", x), self.weight.shape[1]
        if rows.ndim > 2:
            if math.prod(rows.shape[1:]) != k:
                raise ValueError(f"Dense: x {rows.shape} must have the {k} elements a sample that weight takes")
            rows = rows.reshape(len(rows), k)
        return linear(rows, self.weight, bias=self.bias, requantize=self.requantize, out_dtype=self.out_dtype)

    def compact(self) -> Dense:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self, device: str) -> Dense:
        """Return the layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))

    @property
    def name(self) -> str:
        outputs, inputs = self.weight.shape
        return f"dense {inputs} -> {outputs}"

    @property
    def takes(self) -> str:
        return f"[n {self.weight.shape[1]}]"

    def __repr__(self) -> str:
        others = "bias, " * (self.bias is not None)
        return f"Dense({self.takes} -> [n {self.weight.shape[0]}], {others}{laws(self)})"


def laws(layer: Any) -> str:
    """Describe the laws of a layer's weight and result."""
    q, T = layer.weight, layer.requantize
    scaled = " with a scale" if q.dtype.is_integer and q.constants.has_scale else ""
    return f"weight={_law(q.dtype)}{scaled}, out={'dense' if T is None else _law(T.into)}"


def _law(dtype: DType) -> str:
    return f"{dtype.bits}-bit {dtype}"


def check_weight(layer: str, weight: Any, ndim: int, axes: tuple[int, ...], shape: str) -> None:
    """Raise TypeError for a weight that is not packed, of `ndim` axes, on one of `axes`."""
    if not isinstance(weight, QuantArray) or weight.ndim != ndim or weight.axis not in axes:
        packed = isinstance(weight, QuantArray)
        got = f"{weight.shape} packed on axis {weight.axis}" if packed else type(weight).__name__
        hint = likely_fix.layer_weight(weight, ndim) if axes[0] == ndim - 1 else ""
        where = "its last axis" if axes[0] == ndim - 1 else f"axis {axes[0]}"
        raise TypeError(
            f"{layer}: weight must be a QuantArray {shape or '[o kh kw c]'} packed on {where}, got {got}{hint}"
        )


def check_result(layer: Any, op: str, outputs: int) -> None:
    """Check what is made of the sums, and keep the bias as int64 or float32 [outputs] that cannot change."""
    epilogue.check(op, layer.requantize, outputs)
    if layer.out_dtype is not None:
        checks.dtype(op, "out_dtype", layer.out_dtype, (np.int32, np.int64, np.float32))
    if layer.bias is not None:
        bias = bias_values(op, layer.bias, outputs)
        object.__setattr__(layer, "bias", locked(np.array(bias)))
