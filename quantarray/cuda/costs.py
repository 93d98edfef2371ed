"""Choose the kernel of a product of integers: `conv` always, since `dot`, `winograd` and `framed` have no twins."""

from __future__ import annotations

from ..core.dtypes import Array
from ..kernels.operands import Forms


def candidates(
    x_terms: Array, w_terms: Array, rows: int, channels: int, words: int, forms: Forms, of_bytes: bool = False
) -> tuple[str, ...]:
    """Name the kernels that can make a product."""
    return ("conv",)


def integer_kernel(
    x_terms: Array, w_terms: Array, rows: int, channels: int, words: int, forms: Forms, of_bytes: bool = False
) -> str:
    """Return "conv", whatever the operands of one term are."""
    return "conv"
