"""Choose the kernel of a product of integers: `conv`, or `dot` for bytes where there are tensor cores for them.

Which units `conv` takes is decided when it is launched, by `runtime/isa.py`.
"""

from __future__ import annotations

from ..core.dtypes import Array
from ..core.format import WORD_BITS
from ..kernels.operands import Forms
from .runtime import isa

HALF = WORD_BITS // 2


def candidates(
    x_terms: Array, w_terms: Array, rows: int, channels: int, words: int, forms: Forms, of_bytes: bool = False
) -> tuple[str, ...]:
    """Name the kernels that can make a product."""
    if not of_bytes:
        return ("conv",)
    from .runtime import launch  # here, as only this needs the CUDA packages

    return ("conv", "dot") if isa.multiplies_bytes(launch.capability(), int(w_terms[0, 1])) else ("conv",)


def writes_words(name: str, rows: int, channels: int, groups: int) -> bool:
    """Return True if a kernel writes all words of codes; others set bits of zeros."""
    if channels % WORD_BITS:  # the last half of a word may be no kernel's
        return False
    alone = groups == 1 or channels // groups % HALF == 0  # no two groups have channels in half a word
    return name in ("add_shortcut", "elementwise") or (name in ("conv", "dot") and alone and rows > isa.FEW_ROWS)


def integer_kernel(
    x_terms: Array, w_terms: Array, rows: int, channels: int, words: int, forms: Forms, of_bytes: bool = False
) -> str:
    """Return the kernel of operands of one term: `dot` wherever it can make the product, since it packs nothing."""
    return candidates(x_terms, w_terms, rows, channels, words, forms, of_bytes)[-1]
