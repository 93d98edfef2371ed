"""Codes of PyTorch's quantised tensors: rounded from values in steps, their zero point included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..onnx.laws import Link, Tensor, scaling
from ..onnx.quantizers import minus
from ..onnx.tensors import Refused
from .conversion import Conversion
from .recording import Codes, Var

SINGLE = np.dtype(np.float32)


def codes_of(var: Var) -> Codes:
    if var.codes is None:
        raise Refused("it mixes quantised tensors and floats")
    return var.codes


def link(op: str, operand: Any) -> Link:
    """Return an operator with a constant."""
    return Link(op, {}, (None, np.asarray(operand)))


def affine(factor: Any, offset: Any) -> Link:
    """Return the rounding of x * factor + offset, a fused multiply-add of float32."""
    return Link("quantize_affine", {}, (None, np.asarray(factor, np.float32), np.asarray(offset, np.float32)))


_ROUNDED = affine(1, 0)


def store(
    c: Conversion,
    var: Var,
    steps: Tensor,
    relu: bool = False,
    last: Link = _ROUNDED,
    ends: tuple[int, int] | None = None,
) -> None:
    """Set a variable to the codes clip(rint(steps)), its zero point included; from it upwards after a ReLU."""
    codes = codes_of(var)
    low, high = ends or (max(codes.low, codes.zero) if relu else codes.low, codes.high)
    last = replace(last, attributes={"low": low, "high": high, "to": "int64"})
    stored = c.builder.quantised(steps, last, range(low, high + 1), 0, (), np.int64)
    assert isinstance(stored, Tensor)
    set_to(c, var, stored)


def set_to(c: Conversion, var: Var, stored: Tensor) -> None:
    """Set a variable to (codes - zero point) * scale."""
    codes = codes_of(var)
    whole = minus(c.builder, stored, codes.zero)
    if whole is None:
        raise Refused(f"values of {len(var.shape)} axes with a zero point are not taken")
    c.put(var, Tensor(var.shape, SINGLE, whole, (scaling(np.float32(codes.scale), SINGLE),)))
