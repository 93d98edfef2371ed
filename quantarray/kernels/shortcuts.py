"""The part of `contract.py` that adds shortcuts: kernels are described there."""

from __future__ import annotations

from ..core.dtypes import Array
from .operands import Finish, Fixed, Left, Shortcut


def add_shortcut(values: Array, shortcut: Shortcut, finish: Finish, sums: Array, over: Array, out: Array) -> None:
    """Add a shortcut to values[rows channels], int32, int64 or float32, and round the sums to the dtype of `sums`.

    Where a sum is NaN or beyond the bounds, over int64[1] becomes 1; over int64[0] if nobody asks. sums
    [rows channels], which may be the memory of values, and out uint64[planes rows words], zero on entry, get sums and
    codes of them; either may be empty."""


def conv_added(x: Left, fixed: Fixed, shortcut: Shortcut, finish: Finish, sums: Array, over: Array, out: Array) -> None:
    """Multiply as `conv` does to int32 and add a shortcut as `add_shortcut` does; on tensor cores in one launch.

    `fixed` has the last step of the product, and `finish` that of the sums: lanes of both are the channels in order.
    `over` may also become 1 where a sum is -2**31."""
