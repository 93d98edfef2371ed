"""A random ONNX graph that grows: its nodes and constants, and of each value what its floats hold exactly."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.append(str(Path(__file__).parents[1] / "support"))

from onnx_models import DOMAIN, QONNX

Generator = np.random.Generator
EXACT = {"float16": 2**10, "float32": 2**22, "float64": 2**50}  # integers up to these, and their sums, are exact
ELEMENTS = {"int4": onnx.TensorProto.INT4, "uint4": onnx.TensorProto.UINT4, "int2": onnx.TensorProto.INT2,
            "uint2": onnx.TensorProto.UINT2}  # fmt: skip
# Names that the package itself might choose for values beside those of a file
_NAMES = (
    "v v.0 v.1 v.2 v.3 v.chain.constants v.falling v.sums v.integers v.pool v.constant3 v.moved v.cast thresholds"
).split()


@dataclass
class Value:
    """A value of the file: floats are multiples of `grid`, a power of two, up to `most`; rough ones have no grid.

    narrow: the 2 or 4-bit type of integers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grid: float | None = 1.0
    most: float = 1.0
    narrow: str = ""
    law: Any = None  # of integers: what a DequantizeLinear of them takes

    @property
    def floats(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def exact(self) -> bool:
        return self.grid is not None and self.most / self.grid <= EXACT.get(self.dtype.name, 2**62)


class Net:
    """A graph under construction."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.inputs: list[Any] = []
        self.values: list[Value] = []
        self.edges: list[Any] = []  # nodes whose results jump, and that take rough values
        self.opset = self.pick((14, 19, 20, 21, 25))
        self.clash = rng.random() < 0.3
        self.rough = rng.random() < 0.25  # scales and weights of any number, whose sums round
        self.batched = rng.random() < 0.9  # else operators may mix the samples of a batch
        self.general = True  # no node has the length of the batch
        self._taken: set[str] = set()

    # draws

    def pick(self, options: Any) -> Any:
        options = list(options)
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    # names, constants, nodes

    def name(self, hint: str = "v") -> str:
        name = self.pick(_NAMES) if self.clash else hint
        while name in self._taken:
            name = f"{name}{self.number(0, 9)}" if self.clash and self.chance(0.5) else f"{hint}{len(self._taken)}"
        self._taken.add(name)
        return name

    def constant(self, a: Any, narrow: str = "") -> str:
        """Add a constant: an initializer, or a node of its own."""
        name, a = self.name("c"), np.asarray(a)
        tensor = (
            onnx.helper.make_tensor(name, ELEMENTS[narrow], a.shape, a.reshape(-1).tolist())
            if narrow
            else onnx.numpy_helper.from_array(a, name)
        )
        if self.chance(0.1):
            self.nodes.append(onnx.helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.tensors.append(tensor)
        return name

    def node(self, op: str, inputs: list[str], results: int = 1, **attributes: Any) -> list[str]:
        names = [self.name() for _ in range(results)]
        domain = DOMAIN if op in QONNX else ""
        label = self.pick(("", f"{op}_{names[0]}"))
        self.nodes.append(onnx.helper.make_node(op, inputs, names, name=label, domain=domain, **attributes))
        return names

    def add(self, op: str, x: Value, inputs: list[str], shape: Any, grid: float | None, most: float,
            dtype: Any = None, jumps: bool = False, **attributes: Any) -> Value:  # fmt: skip
        """Add a node of one result and its value."""
        (name,) = self.node(op, inputs, **attributes)
        if jumps and not x.exact:
            self.edges.append(self.nodes[-1])
        v = Value(name, tuple(int(n) for n in shape), np.dtype(x.dtype if dtype is None else dtype), grid, most)
        if not jumps and not x.exact and v.floats:
            v.grid = None
        if v.floats and not v.exact:
            v.grid = None
        if v.dtype == x.dtype and v.dtype.kind in "iu":
            v.narrow = x.narrow
        self.values.append(v)
        return v

    # constants of forms that broadcast

    def one(self, a: Any, ndim: int, more: float = 0.05) -> Any:
        """Return a number as an array of one element and any rank up to `ndim`, seldom one above it."""
        rank = self.number(0, ndim + self.chance(more))
        return np.asarray(a).reshape((1,) * rank)

    def form(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Draw a shape that broadcasts to another one, the same for all samples."""
        kind = self.pick(("one", "one", "channel", "last", "some", "full"))
        ndim = len(shape)
        if kind == "one" or ndim < 2:
            return (1,) * self.number(0, ndim)
        if kind == "channel":
            whole = (1, shape[1], *(1,) * (ndim - 2))
        elif kind == "last":
            return (shape[-1],) if ndim > 1 else ()
        elif kind == "full":
            whole = (1, *shape[1:])
        else:
            whole = (1, *(n if self.chance(0.5) else 1 for n in shape[1:]))
        return whole[1:] if self.chance(0.4) else whole

    def dyadic(self, shape: Any, low: int, high: int) -> Any:
        """Draw powers of two."""
        return 2.0 ** self.rng.integers(low, high + 1, shape)
