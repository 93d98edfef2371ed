"""Prepared graphs that were warmed up with special inputs equal the graph for every later one, to the bit.

A case is a graph of one to five operations, of any dtypes and layouts. It is called twice with zeros, equal elements,
the ends of a dtype or others that hide what depends on them, then with more, some of them in another order in memory.
Plans of half of the cases take as few rows at a time as they can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.nn import Graph, Node, Value
from quantarray.nn.operators import OPERATORS
from quantarray.nn.plan import micro_batches

from .proof import Proof

Rng = np.random.Generator
_DTYPES = ("float32", "int32", "uint8", "int8", "int16", "uint16", "int64", "bool", "float64")
_ERRORS = (ValueError, TypeError, ArithmeticError, IndexError, NotImplementedError)
_STEPS = ("add", "subtract", "subtract from", "multiply", "divide", "max", "min", "slope")
_SIZES = (1e-30, 1e-6, 1.0, 30.0, 1e5, 2e9)  # of numbers, thresholds and constants
_BYTES = micro_batches.BYTES
_TRIES = 12  # operations that are drawn for a graph; what does not fit its operand is drawn again


class _Drawn:
    """A graph as it is drawn, with the values that its operations give for a first input."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        channels, axes = int(rng.choice([1, 2, 3, 5, 17, 64, 65])), int(rng.choice([0, 1, 2, 2, 2, 3]))
        shape = (int(rng.choice([1, 2, 3, 5])), channels, *(int(n) for n in rng.choice([1, 2, 3, 4, 6], axes)))
        dtype = str(rng.choice(_DTYPES, p=[0.3, 0.2, 0.15, 0.1, 0.06, 0.06, 0.07, 0.03, 0.03]))
        self.input, self.nodes = Value("x", shape, dtype), list[Node]()
        self.constants: dict[str, Any] = {}
        self.values: dict[str, Any] = {"x": elements(rng, shape, dtype, "few")}

    def add(self, op: str, name: str, operands: tuple[Any, ...] = (), **attributes: Any) -> bool:
        """Add an operation on a value and constants, if it takes them."""
        if op not in OPERATORS:  # of so many axes
            return False
        inputs = [name]
        for a in operands:
            constant = a if isinstance(a, str) else f"k{len(self.constants)}"
            if not isinstance(a, str):
                self.constants[constant] = a
            inputs.append(constant)
        arrays = [None if n == "" else self.values.get(n, self.constants.get(n)) for n in inputs]
        try:
            result = OPERATORS[op].run(dict(attributes), *arrays)
        except _ERRORS:
            return False
        if isinstance(result, tuple) or 0 in result.shape:
            return False
        output = f"v{len(self.nodes)}"
        self.values[output] = result
        self.nodes.append(Node(op, tuple(inputs), (output,), attributes))
        return True

    def graph(self) -> Graph:
        """Build the graph; its outputs are the last value and some others."""
        names = [node.outputs[0] for node in self.nodes]
        some = [n for n in names[:-1] if self.rng.random() < 0.3] + names[-1:]
        outputs = [Value(n, self.values[n].shape, str(self.values[n].dtype), batched=False) for n in some]
        return Graph([self.input], outputs, self.nodes, self.constants)


def elements(rng: Rng, shape: tuple[int, ...], dtype: str, kind: str) -> np.ndarray:
    """Draw an input: "zeros", "ones", "ends", "few" numbers near 0, or "any"."""
    d = np.dtype(dtype)
    if kind == "zeros":
        return np.zeros(shape, d)
    if kind == "ones":
        return np.ones(shape, d)
    if d.kind == "b":
        return rng.integers(0, 2, shape).astype(d)
    if d.kind == "f":
        if kind == "ends":
            return np.full(shape, rng.choice([1e30, -1e30, -0.0]), d)
        size = 1.0 if kind == "few" else rng.choice(_SIZES)
        return (rng.standard_normal(shape) * size).astype(d)
    ends = np.iinfo(d)
    if kind == "ends":
        return rng.choice(np.array([ends.min, ends.max], d), shape)
    if kind == "few":
        return rng.integers(max(ends.min, -9), 10, shape).astype(d)
    return rng.integers(ends.min, ends.max, shape, d, endpoint=True) >> d.type(rng.integers(0, ends.bits))


def _thresholds(rng: Rng, channels: int) -> qa.Thresholds:
    count, size = int(rng.choice([1, 1, 2, 3, 7])), rng.choice(_SIZES[2:])
    each = bool(rng.random() < 0.5)
    values = np.sort(np.round(rng.standard_normal((channels, count) if each else count) * size).astype(np.int64), -1)
    law: dict[str, Any] = {} if rng.random() < 0.7 else {"greater": False}
    return qa.Thresholds(values, per_channel=None if each else False, strict=bool(rng.integers(2)), **law)


def _weights(rng: Rng, *shape: int) -> qa.QuantArray:
    levels = [(-1, 1), (-1, 0, 1), range(-3, 4), range(4)][int(rng.integers(4))]
    return qa.encode(rng.choice(list(levels), shape), levels, axis=1)


def _packed(d: _Drawn, name: str, x: Any) -> bool:
    """Add an operation on codes."""
    rng, c, image = d.rng, x.shape[1], x.shape[2:]
    op = rng.choice(["unpack", "transpose", "reshape", "conv", "linear", "max_pool", "add_residual", "concat"])
    if op == "transpose":
        return d.add("transpose", name, perm=tuple(int(i) for i in (0, *(1 + rng.permutation(x.ndim - 1)))))
    if op == "reshape":
        return d.add("reshape", name, shape=(-1, int(np.prod(x.shape[1:]))), allowzero=1)
    if op == "linear" and x.ndim == 2:
        law = (_thresholds(rng, 5),) if rng.random() < 0.5 else ()
        return d.add("linear", name, (_weights(rng, 5, c), *law))
    if op == "conv" and image:
        law = (_thresholds(rng, 7),) if rng.random() < 0.5 else ()
        kernel = (int(rng.integers(1, 3)),) * len(image)
        return d.add(f"conv{len(image)}d", name, (_weights(rng, 7, c, *kernel), *law), padding=int(rng.integers(2)))
    if op == "max_pool" and image:
        return d.add(f"max_pool{len(image)}d", name, size=(min(2, *image, 2),) * len(image), stride=(1,) * len(image))
    if op == "add_residual":
        return d.add("add_residual", name, (name, _thresholds(rng, c)), axis=1)
    if op == "concat":
        return d.add("concat", name, (name,), axis=int(rng.integers(1, x.ndim)))
    return d.add("unpack", name)


def _moved(d: _Drawn, name: str, x: Any) -> bool:
    """Add an operation that moves the elements of a dense array."""
    rng = d.rng
    op = rng.choice(["Reshape", "Flatten", "Transpose", "Unsqueeze", "Concat", "Slice"])
    if op == "Reshape":
        return d.add("Reshape", name, (np.array([-1, *x.shape[1:-1][::-1], x.shape[-1]]),))
    if op == "Transpose":
        return d.add("Transpose", name, perm=tuple(int(i) for i in (0, *(1 + rng.permutation(x.ndim - 1)))))
    if op == "Unsqueeze":
        return d.add("Unsqueeze", name, (np.array([int(rng.integers(2, x.ndim + 1))]),))
    if op == "Concat":
        return d.add("Concat", name, (name,), axis=int(rng.integers(1, x.ndim)))
    if op == "Slice":
        return d.add("Slice", name, (np.array([0]), np.array([max(1, x.shape[1] // 2)]), np.array([1])))
    return d.add("Flatten", name, axis=1)


def _dense(d: _Drawn, name: str, x: Any) -> bool:
    """Add an operation on numbers."""
    rng, c, image = d.rng, x.shape[1], x.shape[2:]
    each = (1, c, *(1,) * len(image))
    op = rng.choice(
        ["threshold", "threshold", "chain", "scale", "Relu", "Add", "Clip", "max_pool", "AveragePool", "Conv", "MatMul",
         "GlobalAveragePool", "ReduceSum", "conv", "add_residual", "self"]
    )  # fmt: skip
    if op == "threshold":
        return d.add("threshold", name, (_thresholds(rng, c),), axis=1)
    if op == "chain":
        steps = tuple(str(s) for s in rng.choice(_STEPS, rng.integers(1, 4)))
        table = (rng.standard_normal((len(steps), c)) * rng.choice(_SIZES[1:4])).astype(np.float32)
        scale = rng.standard_normal(c) * rng.choice(_SIZES[1:4]) if rng.random() < 0.5 else ""
        law = ("", _thresholds(rng, c)) if rng.random() < 0.4 else ()
        gives = ("codes",) if law else ("values",)
        return d.add("chain", name, ("", table, scale, *law), steps=steps, gives=gives, rank=x.ndim)
    if op == "scale":
        return d.add("scale", name, (rng.standard_normal(each) * rng.choice(_SIZES[1:4]),), to="float32")
    if op in ("Add", "Clip"):
        constants = np.sort(rng.standard_normal((2, *each)).astype(x.dtype if x.dtype.kind == "f" else np.float32), 0)
        return d.add("Add", name, (constants[0],)) if op == "Add" else d.add("Clip", name, tuple(constants.min((1, 2))))
    if op in ("max_pool", "AveragePool") and image:
        size = tuple(min(n, 2) for n in image)
        if op == "AveragePool":
            return d.add("AveragePool", name, kernel_shape=size)
        falling = (rng.random(c) < 0.5,) if rng.random() < 0.3 else ()
        return d.add(f"max_pool{len(image)}d", name, falling, size=size, stride=(1,) * len(image))
    if op == "Conv" and image and x.dtype == np.float32:
        groups = c if rng.random() < 0.3 else 1
        w = rng.standard_normal((groups * int(rng.integers(1, 4)), c // groups, *(1,) * len(image))).astype(np.float32)
        return d.add("Conv", name, (w,), group=groups, pads=(*(0,) * len(image), *(1,) * len(image)))
    if op == "conv" and image:
        return d.add(f"conv{len(image)}d", name, (_weights(rng, 7, c, *(1,) * len(image)),), padding=0)
    if op == "MatMul":
        w = rng.standard_normal((x.shape[-1], int(rng.integers(1, 6)))).astype(x.dtype if x.dtype.kind == "f" else "i4")
        return d.add("MatMul", name, (w,))
    if op == "ReduceSum":
        return d.add("ReduceSum", name, (np.array([int(rng.integers(1, x.ndim))]),), keepdims=1)
    if op == "add_residual":
        return d.add("add_residual", name, (name, _thresholds(rng, c)), axis=1)
    if op == "self":
        return d.add("Add", name, (name,))
    return d.add("Relu" if op == "Relu" else "GlobalAveragePool", name)


def graph(rng: Rng) -> Graph | None:
    """Draw a graph; None where nothing fits its input."""
    d, wanted = _Drawn(rng), int(rng.integers(1, 6))
    for _ in range(_TRIES):
        if len(d.nodes) == wanted:
            break
        name = list(d.values)[-1 - int(rng.integers(min(2, len(d.values))))]
        x = d.values[name]
        add: Callable[[_Drawn, str, Any], bool] = _packed
        if not isinstance(x, qa.QuantArray):
            add = _moved if rng.random() < 0.3 else _dense
        if x.ndim > 1:
            add(d, name, x)
    return d.graph() if d.nodes else None


def outcome(network: Any, x: np.ndarray) -> Any:
    """Return the results of a call by name, or the class of its error."""
    try:
        with np.errstate(all="ignore"):
            result = network(x)
    except _ERRORS as error:
        return type(error)
    return result if isinstance(result, dict) else {"": result}


def differ(one: Any, other: Any) -> str:
    """Name the result that is not the same in two outcomes, or ""."""
    if isinstance(one, type) or isinstance(other, type):
        return "" if one is other else f"{one} and {other}"
    for name, a in one.items():
        b = other[name]
        if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
            return f"{name}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        a, b = (v.codes() if isinstance(v, qa.QuantArray) else v for v in (a, b))
        same = (a == b) | ((a != a) & (b != b))
        if a.dtype.kind == "f":
            same &= np.signbit(a) == np.signbit(b) | (a != a)
        if not same.all():
            return f"{name}: {(~same).sum()} of {same.size} elements"
    return ""


def run(rng: Rng) -> str:
    """Draw a graph, warm its plan up, and compare later calls."""
    network = graph(rng)
    if network is None:
        return "nothing fits"
    value, prepared = network.inputs[0], network.prepared()
    micro_batches.BYTES = int(rng.choice([1, _BYTES]))
    warm = elements(rng, value.shape, value.dtype, str(rng.choice(["zeros", "zeros", "ones", "ends", "few", "any"])))
    later = [elements(rng, value.shape, value.dtype, str(rng.choice(["any", "any", "few", "ends"]))) for _ in range(6)]
    for turn, x in enumerate([warm, warm, *later]):
        x = np.asarray(x, order="F" if turn > 4 and rng.random() < 0.3 else "C")
        if wrong := differ(outcome(network, x), outcome(prepared, x)):
            ops = ", ".join(f"{node.op}{node.inputs}" for node in network.nodes)
            raise AssertionError(f"call {turn} of {value.text}: {wrong}\n{ops}\n{prepared.summary(warm)}")
    if micro_batches.BYTES > 1 or isinstance(outcome(network, warm), type):
        return "equal"
    return "equal, some rows at a time" if prepared.plan(warm)[0].rows else "equal"


PROOF = Proof(run, 20_000, stretch=500)
