"""Builder: collects the nodes and constants of a graph while a file is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...kernels.windows import Window
from ..graph import Graph, Node, Value
from ..inference import GROWTH, ROOM
from ..operators import OPERATORS
from ..operators.windows import grid
from ..passes import finished
from ..passes.tidying import in_order
from .folding import direction, falling, thresholds
from .laws import Constant, Link, NotPerSample, Operand, Shape, Source, Tensor
from .reading import Step
from .tensors import Refused

_FEW_LEVELS = 16  # of floats that are packed; more stay bytes, which convolutions and products take as they are
_FEW_CHANNELS = 16


class _Encoded(NamedTuple):
    """A record of codes of x after a chain with a pool in it, and the quantiser that they are of."""

    names: tuple[str, ...]  # results of the nodes: codes, then pooled codes
    x: Tensor
    last: Link
    levels: tuple[int, ...]
    moved: int


class Moved(NamedTuple):
    """A record of codes before a reshape or a transposition, whose permutation `perm` is."""

    name: str
    shape: Shape
    perm: tuple[int, ...] = ()


class Builder:
    """A graph under construction: its nodes, its constants and the names in use."""

    def __init__(self, nbytes: int, batched: bool, outputs: Sequence[str] = ()) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.batched = batched
        self.step: Step | None = None
        self._taken = set(outputs)  # that no other value may be called
        self._makers: dict[str, str] = {}
        self.shapes: dict[str, tuple[Shape, np.dtype[Any]]] = {}  # of dense values
        self.moved: dict[str, Moved] = {}  # codes that were reshaped or transposed
        self.packed: dict[str, tuple[Source, int]] = {}  # dense integers that were packed, less a zero point
        self._dense: dict[int, tuple[Any, str]] = {}
        self._most = ROOM + GROWTH * nbytes
        self._fold_left = (1 << 16) + 16 * nbytes
        self._encoded: list[_Encoded] = []

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
            link = x.chain[-1]
            shape = _before_pools(x) if link.op == "MaxPool" else x.shape
            before = Tensor(shape, x.source.dtype if not x.chain[:-1] else x.dtype, x.source, x.chain[:-1])
            name = self.integers(before) if not before.chain else self._computed(before)
            return self._emit_link(link, name, shape, x)
        name = self.integers(x)
        held = np.dtype(np.int32) if x.source.levels is not None else x.source.dtype
        return name if held == x.dtype else self.emit("Cast", [name], f"{x.source.name}.cast", to=str(x.dtype))

    def _emit_link(self, link: Link, name: str, shape: Shape, x: Tensor) -> str:
        """Add the last function of x's chain, on a value of a name and shape."""
        packed = packed_pool(link.attributes, shape) if link.op == "MaxPool" else None
        if packed is not None:
            result = self.emit(f"max_pool{len(shape) - 2}d", [name], f"{x.source.name}.pool", link.source, **packed)
        else:
            operands = [name if a is None else self.constant(a) for a in link.operands]
            result = self.emit(link.op, operands, f"{x.source.name}.{link.op}", link.source, **link.attributes)
        self.shapes[result] = x.shape, x.dtype
        return result

    def integers(self, x: Tensor) -> str:
        """Return the name of the dense array that x's chain is applied to."""
        source = x.source
        packed = source.levels is not None
        unpack = lambda: self.emit("unpack", [source.name], f"{source.name}.integers")  # noqa: E731
        name = self._once(source, unpack) if packed else source.name
        self.shapes.setdefault(name, (source.shape, np.dtype(np.int32) if packed else source.dtype))
        return name

    def integer_value(self, x: Tensor, to: np.dtype[Any]) -> Tensor:
        """Return the integers that x's chain is applied to as a value of an integer dtype."""
        name = self.integers(x)
        has = np.dtype(np.int32) if x.source.levels is not None else x.source.dtype
        name = name if has == to else self.emit("Cast", [name], f"{name}.{to}", to=str(to))
        return Tensor(x.shape, to, Source(name, x.shape, to, None, x.source.low, x.source.high))

    def numpy(self, step: Step, operands: Sequence[Operand], shapes: Sequence[Shape], dtypes: Any) -> list[Tensor]:
        """Add the operator as a NumPy node on the operands' values."""
        names = [self.dense(x) if x is not None else "" for x in operands]
        outputs = [o or step.op for o in step.outputs] + [step.op] * len(shapes)  # names of results that are left out
        results = self.emit_all(step.op, names, outputs[: len(shapes)], **step.attributes)
        kinds = [np.dtype(dtypes)] * len(shapes) if not isinstance(dtypes, (list, tuple)) else dtypes
        return [self.value(name, s, d) for name, s, d in zip(results, shapes, kinds, strict=True)]

    def value(self, name: str, shape: Shape, dtype: Any) -> Tensor:
        """Return a dense value of the graph as a tensor with an empty chain."""
        d = np.dtype(dtype)
        self.shapes[name] = shape, d
        whole = d.kind in "iu"
        low, high = (int(np.iinfo(d).min), int(np.iinfo(d).max)) if whole else (None, None)
        return Tensor(shape, d, Source(name, shape, d, None, low, high))

    def quantised(
        self, x: Operand, last: Link, levels: Sequence[int], moved: Any, tail: tuple[Link, ...], dtype: Any
    ) -> Operand:
        """Quantise x by `last` to `levels`, subtract `moved`, apply `tail`; by thresholds where x is monotone.

        moved: an integer; for a constant x, it may be an array that broadcasts to x.
        """
        if isinstance(x, Constant):
            return self._constant(last(x.value).astype(np.int64) - moved, tail, dtype)
        low, high = levels[0] - moved, levels[-1] - moved
        assert x is not None
        ready = self._thresholds(x, last, levels)
        if ready is not None:
            T, axis = ready
            new = tuple(n - moved for n in levels)
            T = into(T, new)
            # codes are taken of sums; a pool of the chain then takes the largest of codes
            name = self.emit(
                "threshold",
                [x.source.name, self.constant(T, "thresholds")],
                self.hint,
                axis=axis,
                last=axis == len(x.shape) - 1,
            )
            source = Source(name, x.source.shape, np.dtype(np.int32), new, low, high)
            names = [name]
            for i, link in enumerate(x.chain):
                if link.op == "MaxPool":
                    down = falling((*x.chain[i + 1 :], last), x.source.shape[1])
                    source = self.pooled(source, link.attributes, down)
                    names.append(source.name)
            if len(names) > 1:
                self._encoded.append(_Encoded(tuple(names), x, last, tuple(levels), moved))
        elif (table := _table(x, last, moved, dtype, *self._bytes(x.source))) is not None:
            name = self.emit(
                "Gather", [self.constant(table, "codes"), self._bytes(x.source)[0].name], self.hint, axis=0
            )
            source = Source(name, x.shape, table.dtype, None, low, high)
        else:
            kind = _smallest(levels[0], levels[-1])
            whole = (
                Link(last.op, {**last.attributes, "to": str(kind)}, last.operands) if "to" in last.attributes else last
            )
            operands = [self.dense(x) if a is None else self.constant(a) for a in whole.operands]
            name = self.emit(whole.op, operands, self.hint, **whole.attributes)
            if moved:
                wide = _smallest(min(low, levels[0], moved), max(high, levels[-1], moved))
                name = self.emit("Cast", [name], f"{self.hint}.wide", to=str(wide))
                name = self.emit("Sub", [name, self.constant(np.array(moved, wide))], f"{self.hint}.moved")
                kind = wide
            source = Source(name, x.shape, kind, None, low, high)
        return Tensor(x.shape, np.dtype(dtype), source, tail)

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value], name: str) -> Graph:
        """Return the graph of all nodes, after the passes of importers."""
        self._encode_pooled()
        return finished(Graph(inputs, outputs, self.nodes, self.constants, name), self.shapes)

    def _encode_pooled(self) -> None:
        """Encode values after a pool instead of all before it, where they are computed anyway, as for a shortcut."""
        for names, x, last, levels, moved in self._encoded:
            if id(x) not in self._dense or x.dtype != np.float32:
                continue
            value = self._dense[id(x)][1]
            ready = thresholds(Tensor(x.shape, x.dtype, Source(value, x.shape, x.dtype)), last, levels)
            if ready is None:
                continue
            T, axis = into(ready[0], tuple(n - moved for n in levels)), ready[1]
            old = next(n for n in self.nodes if n.outputs == names[:1])
            attributes = {"axis": axis, "last": axis == len(x.shape) - 1}
            node = Node("threshold", (value, self.constant(T, "thresholds")), names[-1:], attributes, old.source)
            self.nodes = in_order([n for n in self.nodes if n.outputs[0] not in names] + [node])

    def _bytes(self, source: Source) -> tuple[Source, int]:
        """Return the bytes, and the zero point, of which the source is the difference that was packed; else (it, 0)."""
        return self.packed.get(source.name, (source, 0))

    def _thresholds(self, x: Tensor, last: Link, levels: Sequence[int]) -> Any:
        few, shape = len(levels) <= _FEW_LEVELS, x.source.shape
        if len(shape) < 2:
            return None  # no axis beside the batch to pack
        for i, link in enumerate(x.chain):
            if link.op == "MaxPool":
                after = (*x.chain[i + 1 :], last)
                plain = packed_pool(link.attributes, shape) is None
                if plain and any(sign is None or (sign < 0).any() for sign in map(direction, after)):
                    return None  # the smallest codes of a window that packed pools do not have
                shape = OPERATORS["MaxPool"].shape(link.attributes, [shape], [])[0]
        if not x.source.whole and (x.source.dtype != np.float32 or not few):
            return None
        maker = OPERATORS.get(self.maker(x.source.name))
        if not few and (maker is None or not maker.requantizes or x.source.shape[1] < _FEW_CHANNELS):
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

    def pooled(self, source: Source, attributes: dict[str, Any], falling: Array | None = None) -> Source:
        """Take the largest integer of each window: as codes if `max_pool2d` or another has the window, else dense.

        `falling`: channels of which the smallest is taken, by a packed pool.
        """
        shape = OPERATORS["MaxPool"].shape(attributes, [source.shape], [])[0]
        packed = packed_pool(attributes, source.shape)
        if packed is not None:
            names = [source.name]
            names += [] if falling is None else [self.constant(falling, f"{self.hint}.falling")]
            name = self.emit(f"max_pool{len(shape) - 2}d", names, f"{self.hint}.pool", **packed)
            return Source(name, shape, source.dtype, source.levels, source.low, source.high)
        name = source.name
        if source.levels is not None:
            name = self.emit("unpack", [name], f"{name}.integers")
        kind = np.dtype(np.int32) if source.levels is not None else source.dtype
        name = self.emit("MaxPool", [name], f"{self.hint}.pool", **attributes)
        return Source(name, shape, kind, None, source.low, source.high)


def _table(x: Tensor, last: Link, moved: int, dtype: Any, source: Source, zero: int) -> Array | None:
    """Return the integers of each byte, in the order in which Gather counts bytes, negative ones from the end.

    None where x is no function of bytes less `zero`, or one that differs between elements, or that has no integer for
    some of them.
    """
    functions = replace(x, chain=(*x.chain, last))
    if source.levels is not None or source.dtype not in (np.int8, np.uint8) or not functions.uniform:
        return None
    values = np.clip(np.arange(256, dtype=np.uint8).view(source.dtype), *source.bounds)
    values = values.astype(np.int32) - zero if zero else values
    try:
        with np.errstate(all="ignore"):
            for link in functions.chain:
                values = link(values)
    except ValueError:  # for a NaN, which raises once the byte comes
        return None
    whole: Array = values.astype(np.int64) - moved
    low, high = int(whole.min()), int(whole.max())
    held = np.dtype(dtype)
    fits = held.kind in "iu" and np.iinfo(held).min <= low and high <= np.iinfo(held).max
    return np.asarray(whole.astype(held if fits else _smallest(low, high)))


def _before_pools(x: Tensor) -> Shape:
    """Return the shape of what the last pool of a chain takes."""
    shape = x.source.shape
    for link in x.chain[:-1]:
        if link.op == "MaxPool":
            shape = OPERATORS["MaxPool"].shape(link.attributes, [shape], [])[0]
    return shape


def into(T: Thresholds, levels: tuple[int, ...]) -> Thresholds:
    """Return thresholds with other levels of their codes."""
    one_axis = False if T.values.ndim == 1 else None
    return Thresholds(T.values, per_channel=one_axis, greater=T.greater, strict=T.strict, into=_dtype(levels))


def packed_pool(a: dict[str, Any], shape: Shape) -> dict[str, Any] | None:
    """Return the arguments of a packed pool that compute a MaxPool; None if there are none."""
    if not 3 <= len(shape) <= 5 or a.get("outputs", 1) != 1:
        return None
    windows = grid(a, shape[2:], tuple(a["kernel_shape"]))
    if Window(shape[2:], windows.kernel, windows.strides, windows.pads, windows.dilations).padding_only:
        return None
    ceil = {"ceil_mode": True} if a.get("ceil_mode") else {}
    spread = {"dilation": windows.dilations} if max(windows.dilations) > 1 else {}
    return {"size": windows.kernel, "stride": windows.strides, "padding": windows.counted, **spread, **ceil}


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
