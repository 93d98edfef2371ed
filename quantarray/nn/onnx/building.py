"""Builder: collects the nodes and constants of a graph while a file is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .. import dense
from ..graph import Node
from ..inference import GROWTH, ROOM
from .folding import thresholds
from .laws import Constant, Link, NotPerSample, Operand, Shape, Source, Tensor
from .reading import Step
from .tensors import Refused

_FEW_LEVELS = 16  # of floats that are packed; more stay bytes, which convolutions and products take as they are
_PRODUCTS, _FEW_CHANNELS = ("linear", "conv2d"), 16


class Builder:
    """A graph under construction: its nodes, its constants and the names in use."""

    def __init__(self, nbytes: int, batched: bool, outputs: Sequence[str] = ()) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.batched = batched
        self.step: Step | None = None
        self._taken = set(outputs)  # that no other value may be called
        self._makers: dict[str, str] = {}
        self._dense: dict[int, tuple[Any, str]] = {}
        self._most = ROOM + GROWTH * nbytes
        self._fold_left = (1 << 16) + 16 * nbytes

    # Names and nodes

    def name(self, hint: str) -> str:
        """Return a name that no value has yet: `hint`, or `hint` with a number."""
        name, i = hint, 1
        while name in self._taken or not name:
            name, i = f"{hint}.{i}", i + 1
        self._taken.add(name)
        return name

    def constant(self, a: Any, hint: str = "constant") -> str:
        """Add a constant and return its name."""
        name = self.name(hint)
        self.constants[name] = a
        return name

    def emit(self, op: str, inputs: Sequence[str], hint: str, source: str = "", **attributes: Any) -> str:
        """Add a node of one result; the name of that. `source` is the file's node, by default the current one."""
        return self.emit_all(op, inputs, [hint], source, **attributes)[0]

    def emit_all(
        self, op: str, inputs: Sequence[str], hints: Sequence[str], source: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; the names of its results."""
        names = [self.name(hint) for hint in hints]
        source = source or (self.step.label if self.step else "")
        self.nodes.append(Node(op, tuple(inputs), tuple(names), attributes, source))
        self._makers.update(dict.fromkeys(names, op))
        return names

    def maker(self, name: str) -> str:
        """Return the operation that computes a value; an empty string if no node does."""
        return self._makers.get(name, "")

    @property
    def hint(self) -> str:
        """Return the name of the current node's first result."""
        assert self.step is not None
        return self.step.outputs[0]

    # Limits

    def check_size(self, shapes: Sequence[Shape]) -> None:
        """Raise Refused if a value has more elements than the file and its inputs allow."""
        for shape in shapes:
            if len(shape) > 32 or math.prod(shape) > self._most:
                raise Refused(f"a result of shape {shape} is larger than a file of this size may ask for")

    def grow(self, elements: int) -> None:
        """Let values have room for an input of so many elements."""
        self._most += GROWTH * elements

    def check_fold(self, shapes: Sequence[Shape]) -> None:
        """Raise Refused if constants computed from constants take more than the file's size allows."""
        self._fold_left -= sum(math.prod(s) for s in shapes)
        if self._fold_left < 0:
            raise Refused("constants computed from constants are larger than a file of this size may ask for")

    def per_sample(self, holds: bool) -> None:
        """Raise NotPerSample if `holds` is False and the graph's first axis is a batch of any length."""
        if self.batched and not holds:
            raise NotPerSample

    # Values

    def dense(self, x: Operand) -> str:
        """Return the name of a dense array with the values of x, as the file defines them."""
        assert x is not None
        if isinstance(x, Constant):
            if x.of_shape:
                self.per_sample(False)
            return self._once(x, lambda: self.constant(x.value))
        return self._once(x, lambda: self._computed(x))

    def _once(self, x: Any, make: Any) -> str:
        if id(x) not in self._dense:
            self._dense[id(x)] = (x, make())  # x is held: its id stays its own
        return self._dense[id(x)][1]

    def _computed(self, x: Tensor) -> str:
        if x.chain:
            before = Tensor(x.shape, x.source.dtype if not x.chain[:-1] else x.dtype, x.source, x.chain[:-1])
            name = self.integers(before) if not before.chain else self._computed(before)
            link = x.chain[-1]
            operands = [name if a is None else self.constant(a) for a in link.operands]
            return self.emit(link.op, operands, f"{x.source.name}.{link.op}", link.source, **link.attributes)
        name = self.integers(x)
        held = np.dtype(np.int32) if x.source.levels is not None else x.source.dtype
        return name if held == x.dtype else self.emit("Cast", [name], f"{x.source.name}.cast", to=str(x.dtype))

    def integers(self, x: Tensor) -> str:
        """Return the name of the dense array that x's chain is applied to."""
        if x.source.levels is None:
            return x.source.name
        return self._once(x.source, lambda: self.emit("unpack", [x.source.name], f"{x.source.name}.integers"))

    def numpy(self, step: Step, operands: Sequence[Operand], shapes: Sequence[Shape], dtypes: Any) -> list[Tensor]:
        """Add the operator as a NumPy node on the operands' values."""
        names = [self.dense(x) if x is not None else "" for x in operands]
        outputs = [o for o in step.outputs if o] or [step.op]
        results = self.emit_all(step.op, names, outputs[: len(shapes)], **step.attributes)
        kinds = [np.dtype(dtypes)] * len(shapes) if not isinstance(dtypes, (list, tuple)) else dtypes
        return [self.value(name, s, d) for name, s, d in zip(results, shapes, kinds, strict=True)]

    def value(self, name: str, shape: Shape, dtype: Any) -> Tensor:
        """Return a dense value of the graph as a tensor with an empty chain."""
        d = np.dtype(dtype)
        whole = d.kind in "iu"
        low, high = (int(np.iinfo(d).min), int(np.iinfo(d).max)) if whole else (None, None)
        return Tensor(shape, d, Source(name, shape, d, None, low, high))

    def quantised(
        self, x: Operand, last: Link, levels: Sequence[int], moved: int, tail: tuple[Link, ...], dtype: Any
    ) -> Operand:
        """Quantise x by `last` to `levels`, subtract `moved`, apply `tail`; by thresholds where x is monotone."""
        low, high = levels[0] - moved, levels[-1] - moved
        if isinstance(x, Constant):
            return self._constant(last(x.value).astype(np.int64) - moved, tail, dtype)
        assert x is not None
        ready = self._thresholds(x, last, levels)
        if ready is not None:
            T, axis = ready
            new = tuple(n - moved for n in levels)
            T = type(T)(T.values, per_channel=False if T.values.ndim == 1 else None, greater=T.greater,
                        strict=T.strict, into=_dtype(new))  # fmt: skip
            # codes are taken of sums; a pool of the chain then takes the largest of codes
            name = self.emit(
                "threshold",
                [x.source.name, self.constant(T, "thresholds")],
                self.hint,
                axis=axis,
                last=axis == len(x.shape) - 1,
            )
            source = Source(name, x.source.shape, np.dtype(np.int32), new, low, high)
            for link in x.chain:
                if link.op == "MaxPool":
                    source = self.pooled(source, link.attributes)
        else:
            kind = _smallest(levels[0], levels[-1])
            whole = (
                Link(last.op, {**last.attributes, "to": str(kind)}, last.operands) if "to" in last.attributes else last
            )
            operands = [self.dense(x) if a is None else self.constant(a) for a in whole.operands]
            name = self.emit(whole.op, operands, self.hint, **whole.attributes)
            if moved:
                wide = _smallest(min(low, levels[0]), max(high, levels[-1]))
                name = self.emit("Cast", [name], f"{self.hint}.wide", to=str(wide))
                name = self.emit("Sub", [name, self.constant(np.array(moved, wide))], f"{self.hint}.moved")
                kind = wide
            source = Source(name, x.shape, kind, None, low, high)
        return Tensor(x.shape, np.dtype(dtype), source, tail)

    def _thresholds(self, x: Tensor, last: Link, levels: Sequence[int]) -> Any:
        few = len(levels) <= _FEW_LEVELS
        if not x.source.whole and (x.source.dtype != np.float32 or not few):
            return None
        if not few and (self.maker(x.source.name) not in _PRODUCTS or x.source.shape[1] < _FEW_CHANNELS):
            return None  # what compares beside a product, or for few channels, tries one threshold after the other
        return thresholds(x, last, levels)

    def _constant(self, integers: Array, tail: tuple[Link, ...], dtype: Any) -> Constant:
        value = integers.astype(dtype) if not tail else integers
        for link in tail:
            value = link(value)
        scale = None
        if not tail:
            scale = np.ones(())
        elif len(tail) == 1 and tail[0].op == "scale":
            scale = tail[0].operands[1]
        return Constant(value, integers, scale) if scale is not None else Constant(value)

    def pooled(self, source: Source, attributes: dict[str, Any]) -> Source:
        """Take the largest integer of each window: as codes if `max_pool2d` has the window, else as a dense array."""
        shape = dense.SHAPE["MaxPool"](attributes, [source.shape], [])[0]
        packed = packed_pool(attributes, source.shape)
        if packed is not None:
            name = self.emit("max_pool2d", [source.name], f"{self.hint}.pool", **packed)
            return Source(name, shape, source.dtype, source.levels, source.low, source.high)
        name = source.name
        if source.levels is not None:
            name = self.emit("unpack", [name], f"{name}.integers")
        kind = np.dtype(np.int32) if source.levels is not None else source.dtype
        name = self.emit("MaxPool", [name], f"{self.hint}.pool", **attributes)
        return Source(name, shape, kind, None, source.low, source.high)


def packed_pool(a: dict[str, Any], shape: Shape) -> dict[str, Any] | None:
    """Return the arguments of `max_pool2d` that compute a MaxPool; None if there are none."""
    from ..dense.windows import grid

    if len(shape) != 4 or a.get("outputs", 1) != 1 or a.get("ceil_mode"):
        return None
    windows = grid(a, shape[2:], tuple(a["kernel_shape"]))
    if windows.dilations != (1, 1):
        return None
    return {"size": windows.kernel, "stride": windows.strides, "padding": windows.counted}


def _smallest(low: int, high: int) -> np.dtype[Any]:
    """Return the smallest integer dtype that holds low to high."""
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        info = np.iinfo(name)
        if info.min <= low and high <= info.max:
            return np.dtype(name)
    raise Refused(f"integers from {low} to {high} are more than 64 bits")


def _dtype(levels: tuple[int, ...]) -> Any:
    from ...core.dtypes import integers

    return integers(levels)
