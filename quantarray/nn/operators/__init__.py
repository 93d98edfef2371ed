"""Operations of a graph, a record each: what it computes, and all that is known of it without running it.

An operation takes attributes, then its operands (None where one is left out), and returns an array or a tuple of
arrays. Names that begin with a capital are ONNX's operators on dense NumPy arrays; integers stay integers there. Images
are [n c ..], and codes of them are packed on c.
"""

from __future__ import annotations

from . import (
    comparing,
    elementwise,
    integer_operators,
    movement,
    packed,
    pooling,
    products,
    quantizing,
    reducing,
    resizing,
    transposed,
)
from .record import Operator as Operator

_DENSE = (
    comparing, elementwise, integer_operators, movement, pooling, products, quantizing, reducing, resizing, transposed
)  # fmt: skip
OPERATORS: dict[str, Operator] = {
    name: operator for family in (*_DENSE, packed) for name, operator in family.OPERATORS.items()
}
