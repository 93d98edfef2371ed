"""einsum, where it is a contraction of what is packed."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...core.hints import Bytes
from ..products.operand import operand
from ..statistical.reductions import sum as sum_over
from .contractions import contract


@overload
def einsum(subscripts: str, a: QuantArray, /) -> Array | QuantArray: ...
@overload
def einsum(subscripts: str, a: QuantArray | Bytes, b: QuantArray | Bytes, /) -> Array: ...
def einsum(subscripts: str, *operands: QuantArray | Bytes) -> Array | QuantArray:
    """Compute Einstein's sums of one array or of products of two, as NumPy writes them: "ik,jk->ij".

    Of one array: a sum over the axes that the result lacks (`sum`), or a transposed view where it has all. Of two:
    both must be packed on an axis that the result lacks. An axis of one array that neither the other nor the result
    has, repeated letters within an operand, and "..." are refused with what to do instead. Results as in `tensordot`.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    >>> qa.einsum("ik,jk->ji", a, a).tolist(), qa.einsum("ik->k", a).tolist()
    ([[3, 1], [1, 3]], [2, 0, 2])
    """
    op = "einsum"
    inputs, out = _parsed(op, subscripts, len(operands))
    arrays = [operand(op, name, x) for name, x in zip("ab", operands, strict=False)]
    for name, letters, x in zip("ab", inputs, arrays, strict=False):
        if x.ndim != len(letters):
            raise ValueError(f"{op}: {letters!r} names {len(letters)} axes, operand {name} has the shape {x.shape}")
    if len(arrays) == 1:
        return _of_one(checks.packed(op, "a", arrays[0]), inputs[0], out)
    return _of_two(op, arrays[0], arrays[1], inputs[0], inputs[1], out)


def _parsed(op: str, subscripts: Any, count: int) -> tuple[list[str], str]:
    """Parse the letters of the operands and of the result."""
    if not isinstance(subscripts, str):
        raise TypeError(f"{op}: subscripts must be text like 'ik,jk->ij', got {checks.kind(subscripts)}")
    text = subscripts.replace(" ", "")
    left, arrow, out = text.partition("->")
    inputs = left.split(",")
    if "." in text:
        raise ValueError(f"{op}: '...' is not taken; write a letter for each axis, got {subscripts!r}")
    if not all(c.isascii() and c.isalpha() for c in left.replace(",", "") + out):
        raise ValueError(f"{op}: axes are letters, got {subscripts!r}")
    if not 1 <= len(inputs) <= 2 or len(inputs) != count:
        raise ValueError(f"{op}: takes one array or two, with subscripts for each, got {subscripts!r} for {count}")
    for letters in inputs:
        if len(set(letters)) < len(letters):
            raise ValueError(f"{op}: {letters!r} repeats a letter: diagonals of packed arrays need .dequantize()")
    once = sorted(c for c in set(left) - {","} if left.count(c) == 1)
    out = out if arrow else "".join(once)
    if len(set(out)) < len(out) or not set(out) <= set(left):
        raise ValueError(f"{op}: the result {out!r} must have letters of the operands, each once, got {subscripts!r}")
    return inputs, out


def _of_one(q: QuantArray, letters: str, out: str) -> Array | QuantArray:
    remaining = [c for c in letters if c in out]
    if len(remaining) == len(letters):
        return q.transpose([letters.index(c) for c in out])
    summed = sum_over(q, tuple(letters.index(c) for c in letters if c not in out))
    return np.transpose(summed, [remaining.index(c) for c in out]) if out else summed


def _of_two(op: str, a: Any, b: Any, ours: str, theirs: str, out: str) -> Array:
    for name, mine, other in (("a", ours, theirs), ("b", theirs, ours)):
        alone = [c for c in mine if c not in other and c not in out]
        if alone:
            raise ValueError(
                f"{op}: {alone[0]!r} is an axis of {name} alone and not of the result; sum the result over it instead: "
                f"write it into the result and sum there"
            )
    shared = [c for c in ours if c in theirs]
    batch = [c for c in shared if c in out]
    free = [[c for c in mine if c not in other] for mine, other in ((ours, theirs), (theirs, ours))]
    product = contract(
        op,
        a,
        b,
        [(ours.index(c), theirs.index(c)) for c in shared if c not in out],
        [(ours.index(c), theirs.index(c)) for c in batch],
        [ours.index(c) for c in free[0]],
        [theirs.index(c) for c in free[1]],
    )
    order = [*batch, *free[0], *free[1]]
    return np.transpose(product, [order.index(c) for c in out]) if out else product
