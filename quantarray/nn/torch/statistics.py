"""Variances, norms and softmax of masked rows, as steps of reductions in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..onnx.tensors import Refused
from .conversion import Conversion
from .emission import dtype_of
from .recording import Call, Var


class _Rows:
    """A value in floats, and the axes along which steps reduce it."""

    def __init__(self, c: Conversion, call: Call, axes: Any) -> None:
        self.c, x = c, call.args[0]
        self.kind, ndim = dtype_of(x), len(x.shape)
        listed = axes if isinstance(axes, (tuple, list)) else () if axes is None else (axes,)
        self.axes = tuple(int(i) % ndim for i in listed) or tuple(range(ndim))
        if self.kind.kind != "f":
            raise Refused(f"it takes {self.kind}, not floats")
        c.builder.step = c.step(call, call.op)
        c.builder.per_sample(0 not in self.axes)
        self.count = math.prod(x.shape[i] for i in self.axes)
        self.x = c.dense(x)

    def emit(self, op: str, *names: str, **a: Any) -> str:
        """Add a step."""
        return self.c.builder.emit(op, names, f"{self.c.builder.hint}.{op}", **a)

    def number(self, x: float) -> str:
        """Return the name of a constant."""
        return self.c.builder.constant(np.asarray(x, self.kind))

    def reduced(self, op: str, name: str, keep: bool = True) -> str:
        """Reduce a value along the axes."""
        return self.emit(op, name, self.c.builder.constant(np.array(self.axes)), keepdims=int(keep))

    def put(self, name: str, result: Var) -> None:
        """Set a result of the call."""
        if dtype_of(result) != self.kind:
            raise Refused(f"it turns {self.kind} into {dtype_of(result)}")
        self.c.put(result, self.c.value(name, result))


def _variance(c: Conversion, call: Call) -> None:
    """Convert var, std, var_mean or std_mean: the sum of squared distances from the mean, over n - correction."""
    axes, kwargs = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim"), call.kwargs
    if isinstance(axes, bool):  # unbiased, of all elements
        kwargs, axes = {**kwargs, "correction": int(axes)}, None
    correction = kwargs.get("correction", int(call.args[2]) if len(call.args) > 2 else kwargs.get("unbiased", 1))
    keep = bool(kwargs.get("keepdim", call.args[3] if len(call.args) > 3 else False))
    rows = _Rows(c, call, axes)
    mean = rows.reduced("ReduceMean", rows.x)
    apart = rows.emit("Sub", rows.x, mean)
    total = rows.reduced("ReduceSum", rows.emit("Mul", apart, apart), keep)
    divisor = max(rows.count - float(1 if correction is None else correction), 0.0)
    value = rows.emit("Div", total, rows.number(divisor))
    rows.put(rows.emit("Sqrt", value) if call.op.startswith("std") else value, call.results[0])
    if call.op.endswith("_mean"):
        rows.put(mean if keep else rows.reduced("ReduceMean", rows.x, keep), call.results[1])


def _norm(c: Conversion, call: Call) -> None:
    """Convert a norm along axes: of the absolute values, the largest, the smallest, or the root of a sum of powers."""
    power, axes, keep = (*call.args[1:], *(2, None, False)[len(call.args) - 1 :])[:3]
    p, axes = float(call.kwargs.get("ord", power)), call.kwargs.get("dim", axes)
    keep = bool(call.kwargs.get("keepdim", keep))
    rows = _Rows(c, call, axes)
    if p == 2:
        name = rows.emit("Sqrt", rows.reduced("ReduceSum", rows.emit("Mul", rows.x, rows.x), keep))
    elif p == 0:
        raise Refused("a norm of power 0 is not taken; sum x != 0")
    else:
        name = rows.emit("Abs", rows.x)
        if math.isinf(p):
            name = rows.reduced("ReduceMax" if p > 0 else "ReduceMin", name, keep)
        elif p == 1:
            name = rows.reduced("ReduceSum", name, keep)
        else:
            total = rows.reduced("ReduceSum", rows.emit("Pow", name, rows.number(p)), keep)
            name = rows.emit("Pow", total, rows.number(1 / p))
    rows.put(name, call.results[0])


def _safe_softmax(c: Conversion, call: Call) -> None:
    """Convert a softmax that is 0 for rows of -inf, as attention has it."""
    rows = _Rows(c, call, call.args[1])
    rises = rows.emit("Softmax", rows.x, axis=rows.axes[0])
    masked = rows.emit("Equal", rows.reduced("ReduceMax", rows.x), rows.number(-math.inf))
    rows.put(rows.emit("Where", masked, rows.number(0), rises), call.results[0])


LOWER: dict[str, Any] = {
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance),
    "linalg_vector_norm": _norm,
    "_safe_softmax": _safe_softmax,
}
