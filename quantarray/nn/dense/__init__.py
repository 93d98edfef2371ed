"""Operators of ONNX on dense NumPy arrays: one table of functions, and one of the shapes that they give.

A function takes the attributes, then the operands in the order of the operator (None where one is left out), and
returns an array or a tuple of arrays. Integers stay integers: nothing here turns them into floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import elementwise, integer_operators, movement, pooling, products, quantizing, reducing, resizing, transposed

Run = Callable[..., Any]
Shape = Callable[..., Any]

RUN: dict[str, Run] = {}
SHAPE: dict[str, Shape] = {}
for family in (elementwise, integer_operators, movement, pooling, products, quantizing, reducing, resizing, transposed):
    RUN.update(family.RUN)
    SHAPE.update(family.SHAPE)
