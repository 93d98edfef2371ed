"""Writer: the nodes and constants of an ONNX file while a network is written, and the tensors that hold its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....core.dtypes import Array, DType
from ..tensors import Refused

DOMAIN = "qonnx.custom_op.general"
QUANTISERS = ("Quant", "BipolarQuant", "MultiThreshold")
SINGLE, DOUBLE = 2**24, 2**53  # integers up to these are exact in float32 and in float64
OPSETS = {21: 21, 22: 21, 25: 25, 26: 25}  # first opsets that have the 2 and 4-bit element types
_SHARED = 64  # elements up to which equal constants are written once

Shape = tuple[int, ...]


class Written(NamedTuple):
    """A node of the file."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    label: str


@dataclass(eq=False)
class Held:
    """A value of the network, and the tensors of the file that hold it.

    real: the tensor of its values as floats, float64 if `wide`. typed: the tensor of its own dtype. One of them is
    there, or the value is a constant. low and high bound integers; values of real numbers have none.
    scaled: (integers, scale) if the values are their float64 product, rounded to float32. shifted: (integers, a
    number) if the values are their sum. rough: the values are sums of real numbers, whose last bit depends on the order
    of summation.
    """

    shape: Shape
    dtype: Any  # a DType, or the dtype of a dense array
    real: str = ""
    wide: bool = False
    typed: str = ""
    low: int | None = None
    high: int | None = None
    value: Array | None = None
    scaled: tuple[Held, float] | None = None
    shifted: tuple[Held, int] | None = None
    rough: bool = False

    @property
    def whole(self) -> bool:
        """Return True for integers."""
        return self.low is not None

    @property
    def reach(self) -> int:
        """Return the largest magnitude of integers."""
        assert self.low is not None and self.high is not None
        return max(-self.low, self.high)

    @property
    def kind(self) -> np.dtype[Any]:
        """Return the dtype of the dense array that holds the values."""
        if isinstance(self.dtype, DType):
            return np.dtype(np.int32) if self.whole else np.dtype(np.float32)
        kind: np.dtype[Any] = np.dtype(self.dtype)
        return kind


class Writer:
    """A file under construction."""

    def __init__(self, taken: tuple[str, ...] = ()) -> None:
        self.nodes: list[Written] = []
        self.tensors: dict[str, Array] = {}
        self.elements: dict[str, int] = {}  # ONNX's numbers of constants whose type is narrower than a NumPy dtype
        self.refused: list[str] = []
        self.opset = 20
        self.label = ""
        self._names: dict[str, int] = dict.fromkeys(taken, 0)
        self._shared: dict[Any, str] = {}
        self._casts: dict[tuple[str, str], str] = {}
        self._transposed: dict[str, tuple[str, tuple[int, ...]]] = {}

    def name(self, hint: str) -> str:
        """Return a name that no tensor has yet: `hint`, or `hint` with a number."""
        name = hint or "value"
        while name in self._names:
            self._names[hint] = self._names.get(hint, 0) + 1
            name = f"{hint}.{self._names[hint]}"
        self._names[name] = 0
        return name

    def constant(self, a: Any, hint: str = "constant") -> str:
        """Add a constant and return its name; equal small ones are added once."""
        a = np.ascontiguousarray(a) if np.ndim(a) else np.asarray(a)
        key = (a.dtype.str, a.shape, a.tobytes()) if a.size <= _SHARED else None
        if key is None or key not in self._shared:
            name = self.name(hint)
            self.tensors[name] = a
            if key is None:
                return name
            self._shared[key] = name
        return self._shared[key]

    def copy(self, name: str, output: str) -> None:
        """Add the node that gives an output of the file."""
        self.nodes.append(Written("Identity", (name,), (output,), {}, self.label))

    def emit(self, op: str, inputs: list[str], hint: str = "", /, **attributes: Any) -> str:
        """Add a node of one result; return the name of that."""
        return self.emit_all(op, inputs, [hint or f"{self.label}.{op}"], **attributes)[0]

    def emit_all(self, op: str, inputs: list[str], hints: list[str], /, **attributes: Any) -> list[str]:
        """Add a node; return the names of its results."""
        names = [self.name(hint) for hint in hints]
        self.nodes.append(Written(op, tuple(inputs), tuple(names), attributes, self.label))
        return names

    def schema(self, op: str, attributes: dict[str, Any]) -> dict[str, Any]:
        """Return those of the attributes that the operator has in ONNX, of the newest version if it needs that."""
        from onnx import defs

        newest, known = defs.get_schema(op), defs.get_schema(op, self.opset).attributes
        if any(name in newest.attributes and name not in known for name in attributes):
            self.opset, known = max(self.opset, newest.since_version), newest.attributes
        return {name: value for name, value in attributes.items() if name in known}

    def narrow(self, a: Array, element: int) -> str:
        """Add a constant of a 2 or 4-bit type, which ONNX has the number `element` for."""
        self.opset = max(self.opset, OPSETS[element])
        name = self.name("constant")
        self.tensors[name], self.elements[name] = a, element
        return name

    def cast(self, name: str, to: Any) -> str:
        """Convert a tensor to a dtype; once, however often it is asked for."""
        key = (name, str(np.dtype(to)))
        if key not in self._casts:
            self._casts[key] = self.emit("Cast", [name], f"{name}.{key[1]}", to=np.dtype(to))
        return self._casts[key]

    def transpose(self, name: str, perm: tuple[int, ...]) -> str:
        """Permute the axes of a tensor; a permutation that undoes the one before it gives the tensor before both."""
        source, first = self._transposed.get(name, (name, tuple(range(len(perm)))))
        both = tuple(first[i] for i in perm)
        if both == tuple(range(len(perm))):
            return source
        result = self.emit("Transpose", [source], f"{source}.transposed", perm=both)
        self._transposed[result] = (source, both)
        return result

    # values

    def real(self, x: Held, wide: bool | None = None) -> str:
        """Return the tensor of x's values as floats: float64 if `wide`, by default as narrow as is exact."""
        if wide is None:
            wide = self.is_wide(x)
        if x.whole and x.reach > (DOUBLE if wide else SINGLE):
            raise Refused(f"integers up to {x.reach} are not exact in float{64 if wide else 32}")
        kind = np.dtype(np.float64 if wide else np.float32)
        if x.value is not None:
            return self.constant(x.value.astype(kind))
        if x.real:
            return x.real if x.wide == wide else self.cast(x.real, kind)
        return x.typed if x.kind == kind else self.cast(x.typed, kind)

    def is_wide(self, x: Held) -> bool:
        """Return True if `real` gives x as float64."""
        return x.wide if x.real else (x.reach > SINGLE if x.whole else x.kind.itemsize > 4)

    def typed(self, x: Held) -> str:
        """Return the tensor of x's values in their own dtype."""
        if x.value is not None:
            return self.constant(x.value)
        if x.typed:
            return x.typed
        if x.kind == (np.float64 if x.wide else np.float32):
            return x.real
        return self.cast(x.real, x.kind)

    def of_dtype(self, x: Held, dtype: Any) -> str:
        """Return the tensor of x's values, converted to a dtype."""
        kind = np.dtype(dtype)
        if x.value is not None:
            return self.constant(x.value.astype(kind))
        if x.whole and kind in (np.float32, np.float64):
            return self.real(x, kind == np.float64)
        if x.kind == kind:
            return self.typed(x)
        return self.cast(x.real if x.whole and x.real else self.typed(x), kind)

    def scaled(self, x: Held, scale: Any, dtype: Any) -> Held:
        """Multiply integers by a scale, one or one that broadcasts, in float64, and round the products to float32."""
        factor = np.asarray(scale, np.float64)
        narrow = factor.astype(np.float32)
        exact = bool((narrow == factor).all()) and x.reach <= SINGLE and not (x.real and x.wide)
        a = self.real(x, wide=not exact)
        name = self.emit("Mul", [a, self.constant(narrow if exact else factor)])
        name = name if exact else self.cast(name, np.float32)
        parts = (x, float(factor.reshape(()))) if factor.size == 1 else None
        return Held(x.shape, dtype, name, scaled=parts)

    def permuted(self, x: Held, perm: tuple[int, ...]) -> Held:
        """Return x with its axes in another order."""
        shape = tuple(x.shape[i] for i in perm)
        real, typed = (self.transpose(n, perm) if n else "" for n in (x.real, x.typed))
        value = None if x.value is None else x.value.transpose(perm)
        parts = None if x.scaled is None else (self.permuted(x.scaled[0], perm), x.scaled[1])
        return Held(shape, x.dtype, real, x.wide, typed, x.low, x.high, value, parts, rough=x.rough)


def constant_of(a: Array) -> Held:
    """Return a constant array as a value."""
    low, high = (int(a.min(initial=0)), int(a.max(initial=0))) if a.dtype.kind in "iu" else (None, None)
    return Held(a.shape, a.dtype, low=low, high=high, value=a)


def range_of(dtype: Any) -> tuple[int | None, int | None]:
    """Return the lowest and highest integer of a dtype; None for real numbers and bools."""
    if isinstance(dtype, DType):
        return (min(dtype.levels), max(dtype.levels)) if dtype.levels is not None else (None, None)
    d = np.dtype(dtype)
    return (int(np.iinfo(d).min), int(np.iinfo(d).max)) if d.kind in "iu" else (None, None)


def even(values: Any) -> int:
    """Return the greatest common divisor of the steps between integers, at least 1."""
    steps = np.diff(np.asarray(values, np.int64))
    return max(int(np.gcd.reduce(np.abs(steps))), 1) if steps.size else 1
