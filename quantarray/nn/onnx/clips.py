"""Clips of integers: widths that no dtype has, as Brevitas writes a quantiser of 2 bits in int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import elementwise
from .building import Builder
from .laws import Constant, Operand, Shape, Tensor, check_dtypes
from .reading import Step


def _ends(dtype: Any, bounds: Sequence[Operand]) -> tuple[int, int] | None:
    """Return the lowest and highest integer that a Clip gives; None where its bounds are not two such constants."""
    constants = [c for c in bounds if c is not None]
    if np.dtype(dtype).kind not in "iu" or not all(isinstance(c, Constant) and c.value.size == 1 for c in constants):
        return None
    lower, upper = [*bounds, None, None][:2]
    low = int(lower.value.reshape(())) if isinstance(lower, Constant) else int(np.iinfo(dtype).min)
    high = int(upper.value.reshape(())) if isinstance(upper, Constant) else int(np.iinfo(dtype).max)
    return (low, high) if low <= high else None


def narrowed(step: Step, takers: Sequence[Step], environment: Mapping[str, Operand]) -> Step:
    """Return a QuantizeLinear that gives no more than the Clips keep that alone take its result.

    So its values have few levels, which are packed, and the Clips have nothing left to do. It stays as it is beside a
    taker of another kind, and where its scales are computed, with which it runs in NumPy.
    """
    constants = [name for each in (step, *takers) for name in each.inputs[1:] if name]
    if not takers or any(t.op != "Clip" or t.inputs[0] != step.outputs[0] for t in takers):
        return step
    if not all(isinstance(environment.get(name), Constant) for name in constants):
        return step
    a = step.attributes
    ends_of = [_ends(a["held"], [environment.get(name) for name in t.inputs[1:]]) for t in takers]
    low = max(a["low"], min(ends[0] if ends else a["low"] for ends in ends_of))
    high = min(a["high"], max(ends[1] if ends else a["high"] for ends in ends_of))
    return step._replace(attributes={**a, "low": low, "high": high}) if low < high else step


def _clip(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert a Clip of integers by constants: to nothing where they are within the bounds; others as functions."""
    x = operands[0]
    ends = _ends(x.dtype, operands[1:]) if x is not None else None
    if not isinstance(x, Tensor) or ends is None or x.chain or not x.source.whole or x.shape != shapes[0]:
        lower: Any = elementwise.LOWER["Clip"]
        result: list[Operand] = lower(b, step, operands, shapes)
        return result
    check_dtypes(operands)
    least, most = x.source.bounds
    if ends[0] <= least and most <= ends[1]:
        return [x]
    y = b.numpy(step, operands, shapes, x.dtype)[0]
    low, high = (int(np.clip(n, *ends)) for n in (least, most))
    return [replace(y, source=replace(y.source, low=low, high=high))]


LOWER = {"Clip": _clip}
