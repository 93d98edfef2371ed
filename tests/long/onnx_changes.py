"""Small ONNX and QONNX models whose floats hold every sum, and changes of their parts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from . import damage

sys.path.append(str(Path(__file__).parents[1] / "support"))

from onnx_models import model, node

Generator = np.random.Generator
Model = Any
_OPERATORS = (
    "Conv MatMul Gemm BatchNormalization Relu LeakyRelu PRelu Clip Sign Sigmoid MaxPool AveragePool GlobalAveragePool "
    "Add Mul Sub Div Concat Split Flatten Reshape Transpose Pad Resize DepthToSpace ArgMax Softmax Quant BipolarQuant "
    "MultiThreshold Trunc QuantizeLinear DequantizeLinear ConvInteger MatMulInteger Identity Neg Abs Max Min Cast "
    "Shape Gather Unsqueeze Squeeze Slice ReduceMean HardTanh Nothing"
).split()


def _signs(rng: Generator, *shape: int) -> Any:
    return rng.choice([-1, 1], shape).astype(np.float32)


def _norm(rng: Generator, channels: int) -> list[tuple[str, Any]]:
    """Draw gammas of either sign and zero; deviations are powers of two."""
    arrays = {
        "gamma": rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], channels),
        "beta": rng.integers(-3, 4, channels),
        "mean": rng.integers(-5, 6, channels),
        "var": 4.0 ** rng.integers(-1, 2, channels),
    }
    return [(name, np.asarray(a, np.float32)) for name, a in arrays.items()]


_NUMBERS = [("one", np.float32(1)), ("zero", np.float32(0)), ("two", np.float32(2)), ("half", np.float32(0.5))]


def _convolutional(rng: Generator) -> Model:
    nodes = [
        node("BipolarQuant", ["x", "one"], ["a"]),
        node("BipolarQuant", ["w", "half"], ["b"]),
        node("Conv", ["a", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["d"], ["e"]),
        node("Quant", ["e", "one", "zero", "two"], ["f"], signed=0, narrow=0, rounding_mode="ROUND"),
        node("Flatten", ["f"], ["g"]),
        node("Softmax", ["g"], ["y"], axis=1),
    ]
    return model(nodes, [("x", (1, 3, 6, 6))], [("y", None)], [*_NUMBERS, ("w", _signs(rng, 4, 3, 3, 3))])


def _dense(rng: Generator) -> Model:
    nodes = [
        node("BipolarQuant", ["x", "one"], ["a"]),
        node("MatMul", ["a", "w"], ["b"]),
        node("BatchNormalization", ["b", "gamma", "beta", "mean", "var"], ["c"], epsilon=0.0),
        node("Quant", ["c", "half", "zero", "two"], ["d"], signed=1, narrow=1, rounding_mode="FLOOR"),
        node("Gemm", ["d", "v", "bias"], ["y"], transB=1),
    ]
    weights = [("w", _signs(rng, 12, 7)), ("v", _signs(rng, 5, 7)), ("bias", np.float32(rng.integers(-3, 4, 5)))]
    return model(nodes, [("x", (1, 12))], [("y", None)], [*_NUMBERS, *weights, *_norm(rng, 7)])


def _residual(rng: Generator) -> Model:
    nodes = [
        node("Quant", ["x", "half", "zero", "bits"], ["a"], signed=0, narrow=0, rounding_mode="ROUND"),
        node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["b", "gamma", "beta", "mean", "var"], ["c"], epsilon=0.0),
        node("Add", ["a", "c"], ["d"]),
        node("MultiThreshold", ["d", "T"], ["e"], out_scale=0.5, out_bias=-0.5),
        node("Concat", ["e", "a"], ["f"], axis=1),
        node("AveragePool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["g", "shape"], ["h"]),
        node("MatMul", ["h", "v"], ["i"]),
        node("ArgMax", ["i"], ["y"], axis=1, keepdims=0),
    ]
    T = np.sort(rng.integers(-6, 7, (4, 3)), axis=1).astype(np.float32)
    tensors = [*_NUMBERS, ("bits", np.float32(3)), ("w", _signs(rng, 4, 4, 3, 3)), ("T", T), *_norm(rng, 4)]
    tensors += [("shape", np.array([0, -1])), ("v", np.float32(rng.integers(-3, 4, (32, 6))))]
    return model(nodes, [("x", (1, 4, 4, 4))], [("y", None, 7)], tensors)


def _linear(rng: Generator) -> Model:
    nodes = [
        node("QuantizeLinear", ["x", "half", "point"], ["a"]),
        node("DequantizeLinear", ["a", "half", "point"], ["b"]),
        node("DequantizeLinear", ["w", "scale"], ["c"], axis=0),
        node("Conv", ["b", "c", "bias"], ["d"], group=2, strides=[2, 1]),
        node("Clip", ["d", "low", "high"], ["e"]),
        node("QuantizeLinear", ["e", "one", "point"], ["f"]),
        node("DequantizeLinear", ["f", "one", "point"], ["g"]),
        node("Resize", ["g", "", "scales"], ["h"], mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("Transpose", ["h"], ["y"], perm=[0, 2, 3, 1]),
    ]  # fmt: skip
    tensors = [*_NUMBERS, ("point", np.uint8(128)), ("w", rng.integers(-4, 4, (6, 2, 3, 3)).astype(np.int8))]
    tensors += [("scale", (2.0 ** rng.integers(-2, 2, 6)).astype(np.float32))]
    tensors += [("bias", np.float32(rng.integers(-3, 4, 6)))]
    tensors += [("low", np.float32(-9)), ("high", np.float32(20)), ("scales", np.float32([1, 1, 2, 2]))]
    return model(nodes, [("x", (1, 4, 7, 6))], [("y", None)], tensors)


def _moved(rng: Generator) -> Model:
    nodes = [
        node("Quant", ["x", "one", "zero", "bits"], ["a"], signed=1, narrow=0, rounding_mode="CEIL"),
        node("Split", ["a"], ["b", "c"], axis=1, num_outputs=2),
        node("PRelu", ["b", "slope"], ["d"]),
        node("Mul", ["c", "half"], ["e"]),
        node("Add", ["d", "e"], ["f"]),
        node("Pad", ["f", "pads"], ["g"], mode="constant"),
        node("DepthToSpace", ["g"], ["h"], blocksize=2, mode="CRD"),
        node("Trunc", ["h", "half", "zero", "bits", "two"], ["i"], rounding_mode="FLOOR"),
        node("GlobalAveragePool", ["i"], ["j"]),
        node("Flatten", ["j"], ["y"]),
    ]
    tensors = [*_NUMBERS, ("bits", np.float32(4)), ("slope", np.float32([[[0.5]], [[0.25]], [[1]], [[0]]]))]
    tensors += [("pads", np.array([0, 0, 1, 0, 0, 0, 0, 1]))]
    return model(nodes, [("x", (1, 8, 3, 3))], [("y", None)], tensors)


MODELS: tuple[Callable[[Generator], Model], ...] = (_convolutional, _dense, _residual, _linear, _moved)


def change(rng: Generator, m: Model) -> None:
    """Change one part of a model: a node, an attribute, an operand, a constant, the input or the opset."""
    graph = m.graph
    way, n = rng.random(), damage.pick(rng, list(graph.node))
    if way < 0.2:
        n.op_type = damage.pick(rng, _OPERATORS)
    elif way < 0.45 and n.attribute:
        _attribute(rng, n)
    elif way < 0.6 and n.input:
        names = ["", *(v for o in graph.node for v in o.output), *(t.name for t in graph.initializer), "nothing"]
        n.input[int(rng.integers(len(n.input)))] = damage.pick(rng, names)
    elif way < 0.65:
        n.output[int(rng.integers(len(n.output)))] = damage.pick(rng, ["", "x", "y", "a", "nothing"])
    elif way < 0.7:
        graph.node.remove(n)
    elif way < 0.75:
        graph.node.insert(int(rng.integers(len(graph.node) + 1)), damage.pick(rng, list(graph.node)))
    elif way < 0.9:
        _tensor(rng, damage.pick(rng, list(graph.initializer)))
    elif way < 0.97:
        dims = graph.input[0].type.tensor_type.shape.dim
        damage.pick(rng, list(dims)).dim_value = damage.pick(rng, (0, 1, 2, 3, 8, 2**31, 2**62, -1))
    else:
        m.opset_import[0].version = damage.pick(rng, (1, 7, 9, 11, 13, 18, 21, 25))


def _attribute(rng: Generator, n: Any) -> None:
    a = damage.pick(rng, list(n.attribute))
    numbers = (0, 1, 2, 3, -1, 7, 2**31, -(2**40))
    if rng.random() < 0.15:
        n.attribute.remove(a)
    elif a.ints:
        a.ints[int(rng.integers(len(a.ints)))] = damage.pick(rng, numbers)
        if rng.random() < 0.2:
            a.ints.append(damage.pick(rng, numbers))
    elif a.type == onnx.AttributeProto.INT:
        a.i = damage.pick(rng, numbers)
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = damage.pick(rng, (0.0, 1.0, -0.5, 4.0, float("nan"), float("inf")))
    elif a.type == onnx.AttributeProto.STRING:
        a.s = damage.pick(rng, (b"ROUND", b"FLOOR", b"HALF_UP", b"DCR", b"edge", b"reflect", b"linear", b"", b"\xff"))


def _tensor(rng: Generator, t: Any) -> None:
    way = rng.random()
    if way < 0.3:
        if t.dims:
            t.dims[int(rng.integers(len(t.dims)))] = damage.pick(rng, (0, 1, 2, 5, -1, 2**40))
        else:
            t.dims.append(damage.pick(rng, (0, 1, 2)))
    elif way < 0.5:
        t.data_type = int(rng.integers(0, 24))
    else:
        try:
            a = onnx.numpy_helper.to_array(t)
        except ValueError:
            return  # changed before, so that its bytes and its shape do not go together
        value = damage.pick(rng, (0, 1, 3, 0.5, -2, 64, 2.0**100, float("nan")))
        with np.errstate(all="ignore"):
            one = np.array(value).astype(a.dtype)
        a = np.where(rng.random(a.shape) < 0.3, one, a) if a.size > 1 else np.array(value)
        t.CopyFrom(onnx.numpy_helper.from_array(a.astype(np.float32 if t.data_type == 1 else a.dtype), t.name))
