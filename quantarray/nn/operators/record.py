"""A record of an operation of graphs, in which all passes, readers and writers look it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...core.dtypes import Array

Attributes = dict[str, Any]
Shape = tuple[int, ...]
Shapes = list[Shape]
Constants = list[Array | None]
Operands = Sequence[Array | None]  # None stands for the value that a function of one value is of
Step = tuple[str, Any]  # of a chain: its name, and a constant
Interval = tuple[int, int]
OperandShapes = Sequence[Shape | None]  # None for an operand that is left out, or has none


def broadcast(a: Attributes, shapes: Any, constants: Constants) -> Shapes:
    """Return the shape to which all operands broadcast."""
    return [np.broadcast_shapes(*(s for s in shapes if s is not None))]


def same(a: Attributes, dtypes: list[Any]) -> Any:
    """Return the dtype of the first operand."""
    return dtypes[0]


def mixed(a: Attributes, shapes: OperandShapes) -> Sequence[int]:
    """Return no operand: the rows of a result may depend on all rows of each."""
    return ()


def of_first(a: Attributes, shapes: OperandShapes) -> Sequence[int]:
    """Return the first operand, which each row of a result depends on by the same row; the others have no rows."""
    return (0,)


def of_broadcast(a: Attributes, shapes: OperandShapes) -> Sequence[int]:
    """Return the first operand where the others are the same for all of its rows."""
    ndim = len(shapes[0] or ())
    same = all(not s or len(s) < ndim or (len(s) == ndim and s[0] == 1) for s in shapes[1:])
    return (0,) if same else ()


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operation of graphs: how it is run, and what is known of it without running it.

    A function of one value is an operation whose other operands are constants.
    """

    run: Callable[..., Any]  # of the attributes and the operands (None where one is left out): an array or a tuple
    packed: bool = False  # it runs on packed arrays, not in NumPy
    needs: tuple[str, ...] = ()  # attributes that it cannot run without

    # Kinds of results; a packed operation is run on operands without a sample instead
    shape: Callable[[Attributes, Any, Constants], Shapes] = broadcast  # of attributes, shapes, constant operands
    dtype: Callable[[Attributes, list[Any]], Any] = same  # of the first result; of attributes and dtypes
    others: tuple[str, ...] = ()  # dtypes of results after the first; all others have that of the first

    # As a function of one value
    direction: Callable[[Attributes, Operands], Array | None] | None = None  # 1 or -1: it rises or falls; None: neither
    steps: Callable[[Attributes, bool, list[Any]], list[Step] | None] | None = None  # of a chain, the same to the bit
    of_images: bool = False  # the value has its channels on axis 1, along which constants without other axes vary
    broadcasts: bool = True  # constants of one element may have any number of axes

    bounds: Callable[[list[Interval]], Interval] | None = None  # of integers, by those of its operands
    weights: int | None = None  # the axis of outputs of a constant matrix or kernel
    requantizes: bool = False  # a product that takes thresholds as its third operand

    # In memory
    order: Literal["any", "rows", "kept", "seen"] = "seen"
    """How a result depends on the order of its operands' elements in memory: not at all; not for rows [n c]; it is
    computed element by element, in that order; or NumPy may sum floats in that order."""
    launches: bool = False  # it may be part of a compiled call, where it only launches kernels or gives views
    images: int = 0  # operands that kernels take with their channels last
    rows: Callable[[Attributes, OperandShapes], Sequence[int]] = mixed
    """Operands that row i of a result depends on by row i alone, if it has as many rows. Others must be constants."""
    gpu: bool = True  # it runs on arrays of a GPU, by kernels or by CuPy
    host: tuple[int, ...] = ()  # operands that Python reads, such as axes; of packed operations all but `other`s
    holds: bool = False  # it may hold what it takes, or return it in an object: a function of a user's


def array(x: Any) -> Array:
    """Return an array, of a GPU too; a number of NumPy's as an array without axes."""
    a: Array = np.asarray(x) if isinstance(x, np.generic) else x
    return a


# Directions


def rises(a: Attributes, operands: Operands) -> Array:
    """Return 1, of a function that rises or stays for any constants."""
    return np.ones((), int)


def falls(a: Attributes, operands: Operands) -> Array:
    """Return -1."""
    return -np.ones((), int)


def sign(factors: Array) -> Array:
    """Return 1 or -1 for each factor, 1 for 0."""
    return np.where(factors < 0, -1, 1)


def by_factor(divides: bool = False, either: bool = False) -> Callable[[Attributes, Operands], Array | None]:
    """Return the direction of a product, or of a quotient, of the value and a constant.

    either: the value may be the second operand too.
    """

    def direction(a: Attributes, operands: Operands) -> Array | None:
        factor = next(k for k in operands if k is not None)
        known = (operands[0] is None or either) and not (divides and (factor == 0).any())
        return sign(factor) if known and np.isfinite(factor).all() else None

    return direction


def named(name: str, default: Any = None) -> Callable[[Attributes, list[Any]], Any]:
    """Return the rule of the dtype that an attribute names, by default another or that of x."""
    return lambda a, dtypes: a.get(name, dtypes[0] if default is None else default)


def always(dtype: str) -> Callable[[Attributes, list[Any]], Any]:
    """Return the rule of one dtype."""
    return lambda a, dtypes: dtype


def common(a: Attributes, dtypes: list[Any]) -> Any:
    """Return the dtype to which NumPy promotes those of the operands."""
    return np.result_type(*dtypes)
