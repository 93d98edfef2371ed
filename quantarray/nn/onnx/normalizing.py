"""Nodes of any opset as those of the newest: attributes that became operands, names that changed, defaults."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators import OPERATORS
from ..operators.reducing import LAYER_NORM
from .laws import Constant, Operand
from .reading import Step
from .tensors import Refused, dtype_of, range_of

_RESULTS = {"TopK": 2, "DynamicQuantizeLinear": 3}
_RENAMED = {"Upsample": "Resize", "Dropout": "Identity", "IntQuant": "Quant"}


def normalized(step: Step, operands: list[Operand], elements: list[int | None]) -> tuple[Step, list[Operand]]:
    """Convert a step and its operands to the newest opset; `elements` are ONNX's numbers of the operands' types."""
    a = dict(step.attributes)
    op = _RENAMED.get(step.op, step.op)
    if step.op == "Upsample":
        a = {"mode": a.get("mode", "nearest"), "scales": a.get("scales"), **_ASYMMETRIC}
        scales = operands[1] if len(operands) > 1 else Constant(np.array(a["scales"], np.float32))
        operands = [operands[0], None, scales]
    elif op == "Resize" and step.opset < 11:
        a |= _ASYMMETRIC
        operands = [operands[0], None, operands[1]]
    elif op == "Clip" and step.opset < 11:
        x = operands[0]
        assert x is not None
        bounds = [Constant(np.array(a[n], x.dtype)) if n in a else None for n in ("min", "max")]
        operands = [x, *bounds]
        a = {}
    elif step.op == "Dropout":
        if len([o for o in step.outputs if o]) > 1:
            raise Refused("its mask is an output; only inference is taken")
        operands, a = operands[:1], {}
    elif op in ("Softmax",) and step.opset < 13:
        a = {"axis": a.get("axis", 1), "flat": 1}
    elif op in ("Add", "Sub", "Mul", "Div", "Pow", "PRelu") and "broadcast" in a:
        if "axis" in a:
            raise Refused("broadcasting along an axis, of opsets before 7, is not taken")
        a = {}
    elif op in ("ConvInteger", "MatMulInteger") and len(operands) < 2:
        raise Refused("it has too few operands")
    elif op in ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"):
        a |= _range(op, step, operands, elements)
    elif op == "TopK" and step.opset < 10:
        operands = [*operands, Constant(np.array([a.pop("k")], np.int64))]
    elif op == "Tile" and step.opset < 6:
        raise Refused("copies along one axis, of opsets before 6, are not taken")
    outputs = len([o for o in step.outputs if o])
    if op in ("MaxPool", "Split"):
        a["outputs"] = len(step.outputs) if op == "Split" else outputs
    elif op == "LayerNormalization":
        a |= _statistics(step)
    elif outputs != 1 and op != "BatchNormalization" and len(step.outputs) > _RESULTS.get(op, 0):
        raise Refused(f"it has {outputs} outputs, one is taken")
    return step._replace(op=op, attributes={k: v for k, v in a.items() if v is not None}), operands


def _statistics(step: Step) -> dict[str, Any]:
    """Return `gives`, the names of a layer norm's results that the file has; stash_type must be float32."""
    stash = step.attributes.get("stash_type", 1)
    if stash != 1:
        raise Refused(f"its stash_type is {stash}, 1 (float32) is taken")
    if not step.outputs[0] or len(step.outputs) > len(LAYER_NORM):
        raise Refused("its outputs must be Y, and optionally Mean and InvStdDev")
    gives = tuple(name for name, output in zip(LAYER_NORM, step.outputs, strict=False) if output)
    return {"gives": gives, "stash_type": None}


_ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _range(op: str, step: Step, operands: list[Operand], elements: list[int | None]) -> dict[str, Any]:
    """low, high and `held`, the dtype of the result."""
    a = step.attributes
    if op == "DequantizeLinear":
        scale = operands[1]
        _narrow(elements[0])
        to = int(a.get("output_dtype", 0))
        return {"held": str(dtype_of(to) if to else scale.dtype if scale is not None else np.float32)}
    at = {"QuantizeLinear": 2, "QLinearConv": 7, "QLinearMatMul": 7}[op]
    element = elements[at] if len(elements) > at and elements[at] is not None else int(a.get("output_dtype", 0)) or 2
    assert element is not None
    _narrow(element)
    if int(a.get("precision", 0)) not in (0, 1):
        raise Refused("its precision must be float32")
    bounds = range_of(element)
    if bounds is None:
        raise Refused(f"its result is {dtype_of(element)}, no integers")
    return {"held": str(dtype_of(element)), "low": bounds[0], "high": bounds[1]}


def _narrow(element: int | None) -> None:
    """Raise Refused if an element type has 16 bits or is no integer type."""
    if element in (4, 5):
        raise Refused(f"{dtype_of(element)} has 16 bits (2, 4 and 8 are taken)")
    if element is not None and dtype_of(element).kind not in "iu":
        raise Refused(f"{dtype_of(element)} is no integer type")


_OPERANDS = {
    "Quant": (4, 4),
    "BipolarQuant": (2, 2),
    "MultiThreshold": (2, 2),
    "Trunc": (5, 6),
    "ConstantOfShape": (1, 1),
    "com.microsoft.MatMulNBits": (3, 6),
}


_ANY = 1 << 16  # operands that an operator of any number may have


def check_operands(op: str, operands: list[Operand]) -> None:
    """Raise Refused if an operator has too few operands, too many, or lacks one that it needs."""
    least, most = _OPERANDS[op] if op in _OPERANDS else _counted(op)
    if most == _ANY and op != "Resize" and any(x is None for x in operands):
        raise Refused("one of its operands is left out")
    count = len(operands)
    while operands and operands[-1] is None:
        operands = operands[:-1]
    if not least <= len(operands) or count > most or any(x is None for x in operands[:least]):
        wanted = str(least) if least == most else f"{least} to {most}" if most < _ANY else f"at least {least}"
        raise Refused(f"it has {sum(x is not None for x in operands)} operands, {wanted} are needed")


def _counted(op: str) -> tuple[int, int]:
    """Return the least and most operands of an operator, from the signature of its function on arrays."""
    named = list(inspect.signature(OPERATORS[op].run).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in named):
        return 1, _ANY
    return sum(p.default is p.empty for p in named), len(named)


def shape_constant(shape: tuple[int, ...], a: dict[str, Any]) -> Array:
    """Return the result of Shape: the lengths from `start` to `end`, int64."""
    return np.array(shape[slice(a.get("start"), a.get("end"))], np.int64)
