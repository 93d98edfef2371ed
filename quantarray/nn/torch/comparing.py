"""Comparisons, functions of bools and choices by them as operations in NumPy, where no quantiser has them as a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .recording import Call, Var

Number = Callable[..., str]  # the name of an operand, in a dtype
_COMPARED = {"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal", "ne": "Equal"}
_LOGICAL = {"and": "And", "or": "Or", "xor": "Xor"}


def _compared(call: Call, number: Number, emit: Any) -> str:
    x, y = call.args[:2]
    kind = _common(x, y)
    name = str(emit(_COMPARED[call.op], number(x, kind), number(y, kind)))
    return str(emit("Not", name)) if call.op == "ne" else name


def _common(x: Any, y: Any) -> np.dtype[Any]:
    """Return the dtype in which PyTorch compares two values."""
    kind = torch.result_type(*(v.tensor if isinstance(v, Var) else v for v in (x, y)))
    return np.dtype(str(kind).split(".")[-1])


def _logical(call: Call, number: Number, emit: Any) -> str:
    op = call.op.strip("_").split("_")[-1]
    if op == "not":
        return str(emit("Not", number(call.args[0], np.bool_)))
    return str(emit(_LOGICAL[op], *(number(x, np.bool_) for x in call.args[:2])))


def _where(call: Call, number: Number, emit: Any) -> str:
    condition, x, y = call.args
    return str(emit("Where", number(condition, np.bool_), number(x), number(y)))


def _filled(call: Call, number: Number, emit: Any) -> str:
    x, mask, value = call.args
    return str(emit("Where", number(mask, np.bool_), number(value), number(x)))


def _written(call: Call, number: Number, emit: Any) -> str | None:
    """x with a number where a mask is True."""
    x, (mask,), value = call.args[:3]
    if value.tensor.numel() != 1 or (*call.args[3:], *call.kwargs.values(), False)[0]:
        return None
    return str(emit("Where", number(mask, np.bool_), number(value), number(x)))


def _step(call: Call, number: Number, emit: Any) -> str:
    """Compute 0 where x < 0, 1 where x > 0 and another value where x is 0."""
    x, zero = number(call.args[0]), number(0)
    above = emit("Cast", emit("Greater", x, zero), to=str(call.results[0].dtype).split(".")[-1])
    return str(emit("Where", emit("Equal", x, zero), number(call.args[1]), above))


def _threshold(call: Call, number: Number, emit: Any) -> str:
    x, limit, value = call.args
    return str(emit("Where", emit("LessOrEqual", number(x), number(limit)), number(value), number(x)))


def _bucketize(call: Call, number: Number, emit: Any) -> str:
    x, limits = call.args[:2]
    kind = _common(x, limits)
    right = int(bool(call.kwargs.get("right", False)))
    name = str(emit("bucketize", number(x, kind), number(limits, kind), right=right))
    return str(emit("Cast", name, to="int32")) if call.results[0].dtype == torch.int32 else name


BITS = frozenset(f"bitwise_{op}" for op in (*_LOGICAL, "not")) | {f"__{op}__" for op in _LOGICAL}  # but of bools
COMPARED: dict[str, Callable[[Call, Number, Any], str | None]] = {
    **dict.fromkeys(_COMPARED, _compared),
    **dict.fromkeys((*BITS, *(f"logical_{op}" for op in (*_LOGICAL, "not"))), _logical),
    "where": _where,
    "masked_fill": _filled,
    "index_put": _written,
    "heaviside": _step,
    "threshold": _threshold,
    "bucketize": _bucketize,
}
