"""Values while a file is read: a constant, or a value of the graph and the functions that are still to be applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators import OPERATORS, Operator
from .tensors import Refused

Shape = tuple[int, ...]


class NotPerSample(Exception):
    """An operation mixes the samples of a batch, or depends on how many there are."""


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant; `integers` and `scale` where it is `integers * scale` exactly but for the rounding of the product."""

    value: Array
    integers: Array | None = None
    scale: Array | None = None
    of_shape: bool = False  # computed from the length of the batch

    @property
    def shape(self) -> Shape:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.value.dtype)


@dataclass(frozen=True, eq=False)
class Source:
    """A value that the graph computes: codes of integer `levels`, or a dense array of `dtype`.

    low and high bound integers; floats have none.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    levels: tuple[int, ...] | None = None
    low: int | None = None
    high: int | None = None

    @property
    def whole(self) -> bool:
        """Return True if the source holds integers."""
        return self.low is not None

    @property
    def bounds(self) -> tuple[int, int]:
        assert self.low is not None and self.high is not None
        return self.low, self.high


@dataclass(frozen=True, eq=False)
class Link:
    """A function of a chain: an operator with its constant operands, None instead of the value.

    An operand of one element that broadcasts has no axes, so that the function keeps the shape of values of any rank.
    """

    op: str
    attributes: dict[str, Any]
    operands: tuple[Array | None, ...]
    source: str = ""  # the node of the file that it comes from

    def __post_init__(self) -> None:
        if self.operator.broadcasts:
            plain = tuple(a.reshape(()) if a is not None and a.size == 1 else a for a in self.operands)
            object.__setattr__(self, "operands", plain)

    @property
    def operator(self) -> Operator:
        """Return the record of its operator."""
        return OPERATORS[self.op]

    def __call__(self, v: Array) -> Array:
        return np.asarray(self.operator.run(self.attributes, *(v if a is None else a for a in self.operands)))


def scaling(scale: Any, to: np.dtype[Any]) -> Link:
    """Return the first function of a chain on integers: their float64 product with a scale, rounded once."""
    return Link("scale", {"to": str(to)}, (None, np.asarray(scale, np.float64)))


def lookup(table: Array) -> Link:
    """Return the first function of a chain on integers from 0 on: the entries of a table that they count."""
    return Link("Gather", {"axis": 0}, (np.ascontiguousarray(table), None))


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of the file: `chain`, applied to `source`."""

    shape: Shape
    dtype: np.dtype[Any]
    source: Source
    chain: tuple[Link, ...] = ()

    @property
    def pure(self) -> Array | None:
        """Return the scale if the value is integers times a scale, else None."""
        if not self.source.whole:
            return None
        if not self.chain:
            return np.ones(())
        scale = self.chain[0].operands[1] if self.chain[0].op == "scale" else None
        return scale if len(self.chain) == 1 else None

    @property
    def table(self) -> Array | None:
        """Return the value of each integer from 0 on if the value is a table of packed codes, else None."""
        one = len(self.chain) == 1 and self.source.levels is not None and self.chain[0].op == "Gather"
        return self.chain[0].operands[0] if one else None

    @property
    def uniform(self) -> bool:
        """Return True if all elements go through the same functions, one by one."""
        each = (a for link in self.chain for a in link.operands if a is not None and link.op != "Gather")
        return not any(link.operator.of_images for link in self.chain) and all(a.ndim == 0 for a in each)

    def then(self, link: Link, shape: Shape | None = None, dtype: Any = None) -> Tensor:
        """Return the value with one more function in its chain."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        return replace(self, shape=self.shape if shape is None else shape, dtype=dtype, chain=(*self.chain, link))


Operand = Constant | Tensor | None


def check_dtypes(operands: Sequence[Operand]) -> None:
    """Raise Refused if operands that must have one dtype differ."""
    kinds = {x.dtype for x in operands if x is not None}
    if len(kinds) > 1:
        raise Refused(f"its operands have different dtypes, {', '.join(sorted(map(str, kinds)))}")
