"""Calls as operations in NumPy, for values of which no quantiser follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..onnx.building import Builder
from ..onnx.tensors import Refused
from .comparing import BITS, COMPARED
from .functions import ALIAS, FAKE, NORMS, POOL, RESHAPE, affine_of, decomposed
from .recording import Call, Var

Name = Callable[..., str]
_UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "abs": "Abs", "neg": "Neg", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "reciprocal": "Reciprocal", "sign": "Sign",
    "sgn": "Sign", "mish": "Mish", "erf": "Erf",
}  # fmt: skip
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min", "pow": "Pow"}
_BINARY |= {"_prelu_kernel": "PRelu", "prelu": "PRelu"}
_EXACT = ("add", "sub", "mul", "maximum", "minimum")  # of integers
_DTYPES = {
    torch.float32: "float32", torch.float64: "float64", torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8",
    torch.int16: "int16", torch.int32: "int32", torch.int64: "int64",
}  # fmt: skip


def dtype_of(var: Var) -> np.dtype[Any]:
    """Return the NumPy dtype of a variable; raise Refused if there is none."""
    if var.dtype not in _DTYPES:
        raise Refused(f"it computes in {str(var.dtype).split('.')[-1]}; convert the module with .float()")
    return np.dtype(_DTYPES[var.dtype])


def _kind(dtype: Any) -> np.dtype[Any]:
    return np.dtype(str(dtype).split(".")[-1])


def emitted(b: Builder, call: Call, name_of: Name, jumps: bool = False) -> str:
    """Add the nodes of a call; return the name of its result. `name_of` gives that of an operand.

    jumps: whether comparisons and functions of bools have a form, whose results jump where floats are rounded.
    """
    kind = _kind(call.results[0].dtype)

    def number(x: Any, to: Any = None) -> str:
        """Return the name of an operand in the result's dtype or another."""
        to = kind if to is None else np.dtype(to)
        if not isinstance(x, Var):
            return b.constant(np.asarray(x, to))
        return name_of(x) if _kind(x.dtype) == to else emit("Cast", name_of(x), to=str(to))

    def emit(op: str, *names: str, **attributes: Any) -> str:
        return b.emit(op, names, f"{b.hint}.{op}", **attributes)

    args = call.args
    if call.op == ALIAS:
        return name_of(args[0])
    if call.op == RESHAPE:
        shape = call.results[0].shape
        return emit("Reshape", name_of(args[0]), shape=(-1 if b.batched else shape[0], *shape[1:]), allowzero=1)
    if call.op == POOL:
        return emit("MaxPool", name_of(args[0]), **call.kwargs)
    if call.op in NORMS:
        factor, offset = affine_of(call)
        return emit("affine", name_of(args[0]), b.constant(factor), b.constant(offset))
    if call.op == "_to_copy":
        return emit("Cast", name_of(args[0]), to=str(kind))
    if kind.kind == "f" and call.op in _UNARY and len(args) == 1 and not call.kwargs:
        return emit(_UNARY[call.op], name_of(args[0]))
    takes = _BINARY if kind.kind == "f" else _EXACT if jumps and kind.kind in "iu" else ()
    if call.op in takes and not call.kwargs.get("rounding_mode"):
        left, right = args[:2]
        second = number(right)
        if call.kwargs.get("alpha", 1) != 1:
            second = emit("Mul", second, number(call.kwargs["alpha"]))
        return emit(_BINARY[call.op], number(left), second)
    if call.op in _OTHERS and kind.kind == "f":
        return _OTHERS[call.op](call, number, emit)
    if decomposed(call):
        return (_codes if call.op.startswith("q") else _values)(call, number, emit)
    plain = kind == np.bool_ or call.op not in BITS
    name = COMPARED[call.op](call, number, emit) if jumps and call.op in COMPARED and plain else None
    if name is not None:
        return name
    raise Refused(f"aten.{call.op} has no form in NumPy here, and no quantiser that it could be folded into follows it")


def _rsub(call: Call, number: Name, emit: Any) -> str:
    x, y, *alpha = call.args
    if (alpha or [call.kwargs.get("alpha", 1)])[0] != 1:
        raise Refused("aten.rsub with alpha is not taken")
    return str(emit("Sub", number(y), number(x)))


def _clamp(call: Call, number: Name, emit: Any) -> str:
    x, low, high = (*call.args, None, None)[:3]
    low, high = call.kwargs.get("min", low), call.kwargs.get("max", high)
    if call.op == "hardtanh":
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    if call.op == "relu6":
        low, high = 0.0, 6.0
    name = number(x)
    name = name if low is None else emit("Max", name, number(low))
    return name if high is None else str(emit("Min", name, number(high)))


def _clamp_max(call: Call, number: Name, emit: Any) -> str:
    return str(emit("Min", number(call.args[0]), number(call.args[1])))


def _six(x: str, number: Name, emit: Any) -> str:
    """min(max(x + 3, 0), 6)."""
    return str(emit("Min", emit("Max", emit("Add", x, number(3.0)), number(0.0)), number(6.0)))


def _hardswish(call: Call, number: Name, emit: Any) -> str:
    x = number(call.args[0])
    return str(emit("Div", emit("Mul", x, _six(x, number, emit)), number(6.0)))


def _hardsigmoid(call: Call, number: Name, emit: Any) -> str:
    return str(emit("Div", _six(number(call.args[0]), number, emit), number(6.0)))


def _silu(call: Call, number: Name, emit: Any) -> str:
    x = number(call.args[0])
    return str(emit("Mul", x, emit("Sigmoid", x)))


def _leaky(call: Call, number: Name, emit: Any) -> str:
    slope = call.args[1] if len(call.args) > 1 else 0.01
    return str(emit("LeakyRelu", number(call.args[0]), alpha=float(slope)))


def _elu(call: Call, number: Name, emit: Any) -> str:
    x, alpha, scale, inner = (*call.args, 1.0, 1.0, 1.0)[:4] if len(call.args) < 4 else call.args[:4]
    if inner != 1.0:
        raise Refused("aten.elu with a scale of its input is not taken")
    if scale != 1.0:
        return str(emit("Selu", number(x), alpha=float(alpha), gamma=float(scale)))
    return str(emit("Elu", number(x), alpha=float(alpha)))


def _gelu(call: Call, number: Name, emit: Any) -> str:
    return str(emit("Gelu", number(call.args[0]), approximate=call.kwargs.get("approximate", "none")))


def _softplus(call: Call, number: Name, emit: Any) -> str:
    if len(call.args) > 1 and call.args[1] != 1:
        raise Refused("aten.softplus with beta is not taken")
    return str(emit("Softplus", number(call.args[0])))


def _square(call: Call, number: Name, emit: Any) -> str:
    x = number(call.args[0])
    return str(emit("Mul", x, x))


def _rsqrt(call: Call, number: Name, emit: Any) -> str:
    return str(emit("Reciprocal", emit("Sqrt", number(call.args[0]))))


def _fake(call: Call, number: Name, emit: Any) -> str:
    """(clip(round(x / scale) + zero) - zero) * scale."""
    x, scale, zero, *rest = call.args
    axis, low, high = (rest[0], rest[-2], rest[-1]) if "channel" in call.op else (None, rest[-2], rest[-1])

    def of_axis(value: Any) -> Any:
        a = value.tensor.detach().numpy().astype(np.float32) if isinstance(value, Var) else np.float32(value)
        return a if axis is None else a.reshape([-1 if i == axis else 1 for i in range(len(x.shape))])

    step, offset = of_axis(scale), of_axis(zero)
    whole = emit("Add", emit("Round", emit("Mul", number(x), number(np.float32(1) / step))), number(offset))
    clipped = emit("Min", emit("Max", whole, number(float(low))), number(float(high)))
    return str(emit("Mul", emit("Sub", clipped, number(offset)), number(step)))


def _by_axis(call: Call, x: Any) -> Any:
    """Return a scale or zero point, those of channels along the axis of a call."""
    a = x.tensor.detach().numpy() if isinstance(x, Var) else np.asarray(x)
    if "channel" not in call.op:
        return a.reshape(())
    return a.reshape([-1 if i == int(call.args[3]) else 1 for i in range(len(call.args[0].shape))])


def _codes(call: Call, number: Name, emit: Any) -> str:
    """Quantise: clip(round(x * (1 / scale)) + zero), as integers."""
    x, scale, zero = call.args[:3]
    low, high = call.args[4:6] if "channel" in call.op else call.args[3:5]
    factor, kind = 1.0 / _by_axis(call, scale), np.float32
    whole = emit(
        "Add", emit("Round", emit("Mul", number(x, kind), number(factor, kind))), number(_by_axis(call, zero), kind)
    )
    clipped = emit("Min", emit("Max", whole, number(low, kind)), number(high, kind))
    return str(emit("Cast", clipped, to=str(_kind(call.results[0].dtype))))


def _values(call: Call, number: Name, emit: Any) -> str:
    """Compute the values of integers: (x - zero) * scale."""
    x, scale, zero = call.args[:3]
    name = number(x, np.float32)
    if zero is not None:
        name = emit("Sub", name, number(_by_axis(call, zero), np.float32))
    return str(emit("Mul", name, number(_by_axis(call, scale), np.float32)))


_OTHERS: dict[str, Callable[[Call, Name, Any], str]] = {
    **dict.fromkeys(("clamp", "hardtanh", "clamp_min", "relu6"), _clamp),
    "rsub": _rsub,
    "clamp_max": _clamp_max,
    "hardswish": _hardswish,
    "hardsigmoid": _hardsigmoid,
    "silu": _silu,
    "leaky_relu": _leaky,
    "elu": _elu,
    "softplus": _softplus,
    "gelu": _gelu,
    **dict.fromkeys(FAKE, _fake),
    "square": _square,
    "rsqrt": _rsqrt,
}
