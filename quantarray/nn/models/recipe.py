"""Recipe: the operators of a model in order, as an ONNX file has them, and the graph that they become."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...core.dtypes import Array
from ..graph import Graph, Node, with_nodes
from ..onnx.draft import Draft
from .parameters import Parameters, gammas, normal, variances

_BYTE_LEVELS = 127  # of int8 weights on each side of 0


class Tensor(NamedTuple):
    """A value of a model: its name, its shape without the batch, and about its standard deviation."""

    name: str
    shape: tuple[int, ...]
    spread: float = 1.0


class Recipe(Draft):
    """A list of operators and parameters, from which a graph is built: thresholds folded, products on packed integers.

    An input is uint8 [n ..], and its values are bytes / 255.
    """

    def __init__(self, model: str, parameters: Parameters) -> None:
        super().__init__()
        self.model, self.parameters = model, parameters
        self._bytes: dict[str, tuple[Array, Array]] = {}  # int8 weights of float products, and their scales

    def input(self, shape: tuple[int, ...], name: str = "images") -> Tensor:
        """Add an input of bytes; its values are a 255th of them."""
        return Tensor(self.input_of(name, shape, "uint8"), shape, 0.5)

    def centred(self, x: Tensor) -> Tensor:
        """2 x - 1, from -1 to 1."""
        doubled = self.step("Mul", f"{x.name}.doubled", x.name, np.float32(2))
        return Tensor(self.step("Sub", f"{x.name}.centred", doubled, np.float32(1)), x.shape)

    # Products

    def conv(
        self, x: Tensor, name: str, outputs: int, kernel: int, stride: int = 1, padding: int | None = None,
        groups: int = 1, weights: int | str = 1, bias: bool = False,
    ) -> Tensor:  # fmt: skip
        """Convolve x by the parameter `name`.weight [o c/groups k k]; pad by half a window if `padding` is None.

        bias: add the parameter `name`.bias [o], in float32.

        weights: "sign", signs; 1, signs times the mean magnitude of each output; 2 to 7, DoReFa's levels; "int8" or 8,
        255 levels with a scale for each output; "bytes", the same where x are floats; "float".
        """
        channels, height, width = x.shape
        padding = kernel // 2 if padding is None else padding
        shape = (outputs, channels // groups, kernel, kernel)
        w, rms = self._weights(name, shape, weights)
        a = {"kernel_shape": (kernel, kernel), "strides": (stride, stride), "pads": (padding,) * 4, "group": groups}
        size = tuple((n + 2 * padding - kernel) // stride + 1 for n in (height, width))
        spread = x.spread * rms * math.sqrt(math.prod(shape[1:]))
        out = self.step("Conv", name, x.name, w, **a)
        return Tensor(self._biased(out, name, (outputs, 1, 1)) if bias else out, (outputs, *size), spread)

    def _biased(self, out: str, name: str, shape: tuple[int, ...]) -> str:
        b = self.parameters(f"{name}.bias", shape[:1], normal(0.1)).reshape(shape)
        return self.step("Add", f"{name}.sum", out, b)

    def linear(self, x: Tensor, name: str, outputs: int, weights: int | str = 1, bias: bool = False) -> Tensor:
        """x @ weight.T, of the parameter `name`.weight [o k], plus `name`.bias; x is flattened."""
        if len(x.shape) > 1:
            x = self.flatten(x)
        w, rms = self._weights(name, (outputs, x.shape[0]), weights)
        floats = weights in ("bytes", "float")
        out = self.step("MatMul", name, x.name, w) if floats else self.step("Gemm", name, x.name, w, transB=1)
        out = self._biased(out, name, (outputs,)) if bias else out
        return Tensor(out, (outputs,), x.spread * rms * math.sqrt(x.shape[0]))

    def _weights(self, name: str, shape: tuple[int, ...], kind: int | str) -> tuple[str, float]:
        """Return (name of the weights as values, about their standard deviation); float matrices are [k o]."""
        w = self.parameters(f"{name}.weight", shape, normal(1 / math.sqrt(math.prod(shape[1:]))))
        if kind == "float":
            return self.constant(np.ascontiguousarray(w.T) if w.ndim == 2 else w), float(w.std())
        whole, scale = integers_of(w, kind)
        each = scale.reshape(-1, *(1,) * (w.ndim - 1))
        values = (whole * each).astype(np.float32)
        if kind == "bytes":
            bytes_of = (whole, each) if w.ndim > 2 else (np.ascontiguousarray(whole.T), each.T)
            constant = self.constant(np.ascontiguousarray(values.T) if w.ndim == 2 else values)
            self._bytes[constant] = bytes_of
            return constant, float(values.std())
        return self.step("DequantizeLinear", f"{name}.values", whole, scale, axis=0), float(values.std())

    # Functions of elements

    def norm(self, x: Tensor, name: str, epsilon: float = 1e-5) -> Tensor:
        """Apply the batch norm of the parameters `name`.weight, .bias, .running_mean and .running_var."""
        c, p = x.shape[0], self.parameters
        spread = max(x.spread, 1e-6)
        operands = [
            p(f"{name}.weight", (c,), gammas),
            p(f"{name}.bias", (c,), normal(0.2)),
            p(f"{name}.running_mean", (c,), normal(0.2 * spread)),
            p(f"{name}.running_var", (c,), variances(spread)),
        ]
        if (operands[3] < 0).any():
            raise ValueError(f"{self.model}: {name}.running_var has a negative variance")
        out = self.step("BatchNormalization", name, x.name, *operands, epsilon=epsilon)
        return Tensor(out, x.shape)

    def sign(self, x: Tensor) -> Tensor:
        """x >= 0 ? 1 : -1, packed as one bit."""
        return Tensor(self.step("BipolarQuant", f"{x.name}.sign", x.name, np.float32(1)), x.shape)

    def codes(self, x: Tensor, bits: int) -> Tensor:
        """Clip x to 0 .. 1 and round it to 2**bits levels, as DoReFa-Net's activations are; 1 bit is its sign."""
        if bits == 1:
            return self.sign(x)
        clipped = self.step("Clip", f"{x.name}.clipped", x.name, np.float32(0), np.float32(1))
        return Tensor(self._quant(clipped, 1 / (2**bits - 1), bits, False), x.shape, 0.35)

    def narrow(self, x: Tensor, bits: int) -> Tensor:
        """Round x, clipped to -1 .. 1, to 2**bits - 1 levels about 0, as FINN's networks do; 1 bit is its sign."""
        if bits == 1:
            return self.sign(x)
        return Tensor(self._quant(x.name, 1 / (2 ** (bits - 1) - 1), bits, True), x.shape, 0.7)

    def _quant(self, name: str, scale: float, bits: int, signed: bool) -> str:
        operands = [np.float32(v) for v in (scale, 0, bits)]
        a = {"signed": int(signed), "narrow": int(signed), "rounding_mode": "ROUND"}
        return self.step("Quant", f"{name}.codes", name, *operands, **a)

    def relu(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return Tensor(self.step("Relu", f"{x.name}.relu", x.name), x.shape, 0.6 * x.spread)

    # Pools and joins

    def max_pool(self, x: Tensor, size: int, stride: int, padding: int | tuple[int, int] = 0) -> Tensor:
        """Take the largest of each window; padding on each side, or (before, after)."""
        return self._pool("MaxPool", x, size, stride, padding)

    def avg_pool(self, x: Tensor, size: int, stride: int) -> Tensor:
        """Take the mean of each window, smaller ones at the right and lower edge included."""
        return self._pool("AveragePool", x, size, stride, 0, ceil_mode=1)

    def _pool(self, op: str, x: Tensor, size: int, stride: int, padding: int | tuple[int, int], **more: Any) -> Tensor:
        before, after = padding if isinstance(padding, tuple) else (padding, padding)
        pads = (before, before, after, after)
        a = {"kernel_shape": (size, size), "strides": (stride, stride), "pads": pads, **more}
        up = stride - 1 if more else 0
        shape = tuple((n + before + after - size + up) // stride + 1 for n in x.shape[1:])
        return Tensor(self.step(op, f"{x.name}.pool", x.name, **a), (x.shape[0], *shape), x.spread)

    def global_pool(self, x: Tensor) -> Tensor:
        """Take the mean of each channel."""
        return self.flatten(Tensor(self.step("GlobalAveragePool", f"{x.name}.mean", x.name), (x.shape[0], 1, 1)))

    def flatten(self, x: Tensor) -> Tensor:
        """Reshape to [n k]."""
        return Tensor(self.step("Flatten", f"{x.name}.flat", x.name, axis=1), (math.prod(x.shape),), x.spread)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y in float32, a shortcut's sum."""
        return Tensor(self.step("Add", f"{x.name}.sum", x.name, y.name), x.shape, math.hypot(x.spread, y.spread))

    def concat(self, *x: Tensor) -> Tensor:
        """Join channels."""
        shape = (sum(t.shape[0] for t in x), *x[0].shape[1:])
        return Tensor(self.step("Concat", f"{x[0].name}.joined", *[t.name for t in x], axis=1), shape, x[0].spread)

    def pad(self, x: Tensor, width: int, value: float) -> Tensor:
        """Extend images by `width` pixels of a value."""
        c, h, w = x.shape
        out = self.step("Pad", f"{x.name}.padded", x.name, np.array([0, 0, width, width] * 2), np.float32(value))
        return Tensor(out, (c, h + 2 * width, w + 2 * width), x.spread)

    # The graph

    def graph(self, output: Tensor, name: str = "scores") -> Graph:
        """Build the graph with one output, `name`."""
        self.parameters.check()
        return self._with_bytes(self.graph_of(output.name, name, self.model))

    def _with_bytes(self, graph: Graph) -> Graph:
        """Return the graph with int8 weights of float products as bytes, which a node of each call dequantises."""
        constants, nodes = dict(graph.constants), []
        for name, a in graph.constants.items():
            for held, (whole, scale) in self._bytes.items():
                if self.constants[held] is a:
                    constants[f"{name}.int8"], constants[f"{name}.scale"] = whole, scale
                    del constants[name]
                    operands = (f"{name}.int8", f"{name}.scale")
                    nodes.append(Node("scale", operands, (name,), {"to": "float32"}))
        return with_nodes(graph, [*nodes, *graph.nodes], constants)


def integers_of(w: Array, kind: int | str) -> tuple[Array, Array]:
    """Return weights as integers, int8, and float32 scales of each output: values are their products.

    kind: "sign", signs; 1, signs and the mean magnitude; 2 to 7, DoReFa-Net's levels, odd numbers; "int8", "bytes" or
    8, from -127 to 127.
    """
    rows = w.reshape(len(w), -1)
    if kind in ("sign", 1):
        magnitude = np.abs(rows).mean(axis=1) if kind == 1 else np.ones(len(w), np.float32)
        return np.where(w >= 0, 1, -1).astype(np.int8), magnitude
    if kind in ("int8", "bytes", 8):
        scale = np.maximum(np.abs(rows).max(axis=1) / np.float32(_BYTE_LEVELS), np.float32(1e-30))
        return np.rint(w / scale.reshape(-1, *(1,) * (w.ndim - 1))).astype(np.int8), scale
    bits = checks.integer("models", "weights", kind, 1)
    steps = np.float32(2**bits - 1)
    t = np.tanh(w)
    code = np.rint((t / (2 * max(float(np.abs(t).max()), 1e-30)) + np.float32(0.5)) * steps)
    return (2 * code - steps).astype(np.int8), np.full(len(w), 1 / steps, np.float32)
