"""ONNX Runtime's operators on integers with scales (com.microsoft), as ONNX's operators.

They round as ONNX Runtime's kernels do: in float32, to the nearest integer, of two to the even one. Sums and products
have the zero point of the result added before that, all others after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...core.dtypes import Array
from .expanding import FLOAT32, Expansion
from .laws import Constant
from .tensors import Refused

_BYTES = {"uint8": 2, "int8": 3}  # ONNX's numbers of types


def _constant(e: Expansion, at: int, what: str) -> Array:
    """Return a scale, zero point or bias as float32."""
    x = e.operand(at)
    if x is None and what == "zero point":
        return np.zeros((), np.float32)
    if not isinstance(x, Constant):
        raise Refused(f"its {what} (operand {at}) must be a constant")
    if what == "scale" and not (np.isfinite(x.value).all() and (x.value > 0).all()):
        raise Refused(f"its scale (operand {at}) must be positive")
    return x.value.astype(np.float32)


def _number(e: Expansion, at: int, what: str) -> np.float32:
    a = _constant(e, at, what)
    if a.size != 1:
        raise Refused(f"its {what} (operand {at}) must be one number, not {a.shape}")
    return np.float32(a.reshape(()))


def _scale(e: Expansion, at: int) -> np.float32:
    return _number(e, at, "scale")


def _zero(e: Expansion, at: int) -> np.float32:
    return _number(e, at, "zero point")


def _whole(e: Expansion, at: int) -> str:
    """Add x minus its zero point; operands x, scale, zero point from `at` on."""
    x = e.add("Cast", e.name(at), to=FLOAT32)
    return e.add("Sub", x, _zero(e, at + 2)) if _zero(e, at + 2) else x


def _real(e: Expansion, at: int) -> str:
    """Add (x - zero point) * scale."""
    return e.add("Mul", _whole(e, at), _scale(e, at + 1))


def _rounded(e: Expansion, x: str, zero: int) -> None:
    """Add the nearest integers as the result, of the type of the zero point, which is in them already."""
    z = e.operand(zero)
    if not isinstance(z, Constant) or str(z.dtype) not in _BYTES:
        raise Refused(f"the zero point of its result (operand {zero}) must be a constant of 8 bits")
    e.add("QuantizeLinear", x, np.float32(1), output=e.result, output_dtype=_BYTES[str(z.dtype)])


def _quantised(e: Expansion, x: str, scale: np.float32, zero: int, output: str) -> str:
    """Add x / scale as integers with a zero point, the operand `zero`, whose type they have."""
    if e.operand(zero) is None:
        raise Refused(f"the zero point of its result (operand {zero}) is left out")
    _zero(e, zero)
    return e.add("QuantizeLinear", x, scale, e.name(zero), output=output)


def _sum(e: Expansion) -> None:
    """Add (a * left + offset) + b * right, where the offset has all zero points."""
    y_scale = _scale(e, 6)
    left, right = _scale(e, 1) / y_scale, _scale(e, 4) / y_scale
    offset = _zero(e, 7) - (left * _zero(e, 2) + right * _zero(e, 5))
    a, b = (e.add("DequantizeLinear", e.name(at), ratio) for at, ratio in ((0, left), (3, right)))
    _rounded(e, e.add("Add", e.add("Add", a, offset), b), 7)


def _product(e: Expansion) -> None:
    """Add a * b * ratio + zero point, of integers without their zero points."""
    ratio = _scale(e, 1) * _scale(e, 4) / _scale(e, 6)
    product = e.add("Mul", _whole(e, 0), _whole(e, 3))
    _rounded(e, e.add("Add", e.add("Mul", product, ratio), _zero(e, 7)), 7)


def _function(op: str, **defaults: float) -> Callable[[Expansion], None]:
    """Return the expansion of a function of reals."""

    def expand(e: Expansion) -> None:
        y = e.add(op, _real(e, 0), **{**defaults, **e.attributes})
        _quantised(e, y, _scale(e, 3), 4, e.result)

    return expand


def _concat(e: Expansion) -> None:
    """Add a Concat of integers, of which those of another scale or zero point are quantised again."""
    parts = []
    for at in range(2, len(e.step.inputs), 3):
        alike = (_scale(e, at + 1), _zero(e, at + 2)) == (_scale(e, 0), _zero(e, 1))
        parts.append(e.name(at) if alike else _quantised(e, _real(e, at), _scale(e, 0), 1, ""))
    e.add("Concat", *parts, output=e.result, **e.attributes)


def _average(e: Expansion) -> None:
    a = {name: v for name, v in e.attributes.items() if name != "channels_last"}
    x = e.to_channels_first(_real(e, 0)) if e.attributes.get("channels_last") else _real(e, 0)
    y = e.add("AveragePool", x, **a)
    y = e.to_channels_last(y) if e.attributes.get("channels_last") else y
    _rounded(e, e.add("Add", e.add("Div", y, _scale(e, 3)), _zero(e, 4)), 4)


def _global_average(e: Expansion) -> None:
    """Add sums times scale / (scale of the result * elements), by a pool of integers that are scaled by `elements`."""
    last, shape = e.attributes.get("channels_last", 0), e.shape(0)
    elements = math.prod(shape[1:-1] if last else shape[2:])
    ratio = _scale(e, 1) / (_scale(e, 3) * np.float32(elements))
    x = e.to_channels_first(e.name(0)) if last else e.name(0)
    _zero(e, 2)
    real = e.add("DequantizeLinear", x, np.float64(ratio) * elements, e.name(2), output_dtype=FLOAT32)
    y = e.add("GlobalAveragePool", real)
    _quantised(e, e.to_channels_last(y) if last else y, np.float32(1), 4, e.result)


def _gemm(e: Expansion) -> None:
    """Add a matrix product of integers and a bias, times the scales: as reals where the result has no scale."""
    if e.attributes.get("transA"):
        raise Refused("its first operand is transposed")
    w = e.add("Transpose", e.name(3), perm=(1, 0)) if e.attributes.get("transB") else e.name(3)
    ratio = np.float32(e.attributes.get("alpha", 1.0)) * _scale(e, 1) * _constant(e, 4, "scale")
    y = e.add("Cast", e.add("MatMulInteger", e.name(0), w, e.name(2), e.name(5)), to=FLOAT32)
    if e.operand(6) is not None:
        y = e.add("Add", y, _constant(e, 6, "bias"))
    if e.operand(7) is None:
        e.add("Mul", y, ratio, output=e.result)
    else:
        _quantised(e, e.add("Mul", y, ratio / _scale(e, 7)), np.float32(1), 8, e.result)


def _same(op: str) -> Callable[[Expansion], None]:
    """Return the expansion of an operator that ONNX has too."""
    return lambda e: e.copy(op)


EXPAND: dict[str, Callable[[Expansion], None]] = {
    f"com.microsoft.{op}": expand
    for op, expand in {
        "QuantizeLinear": _same("QuantizeLinear"),
        "DequantizeLinear": _same("DequantizeLinear"),
        "QLinearAdd": _sum,
        "QLinearMul": _product,
        "QLinearSigmoid": _function("Sigmoid"),
        "QLinearLeakyRelu": _function("LeakyRelu", alpha=0.01),
        "QLinearConcat": _concat,
        "QLinearAveragePool": _average,
        "QLinearGlobalAveragePool": _global_average,
        "QGemm": _gemm,
        "Gelu": _same("Gelu"),
    }.items()
}
