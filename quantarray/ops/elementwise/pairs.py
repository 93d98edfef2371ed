"""Two or more arrays side by side: one shape, one packed axis, and the codes of pairs."""

from __future__ import annotations

import math

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import common_device
from ...core.dtypes import Array
from ..manipulation.views import broadcast_to


def aligned(op: str, **arrays: QuantArray) -> tuple[QuantArray, ...]:
    """Broadcast the arrays to one shape, as NumPy does; they must have one device and one packed axis.

    Axes are counted from the last, as broadcasting does. No word of an unpacked axis is copied.
    """
    common_device(op, **arrays)
    named = " and ".join(arrays)
    packed = {q.ndim - q.axis for q in arrays.values()}
    try:
        shape = np.broadcast_shapes(*(q.shape for q in arrays.values()))
    except ValueError:
        shapes = " and ".join(str(q.shape) for q in arrays.values())
        raise ValueError(f"{op}: {named} must have shapes that broadcast to one, got {shapes}") from None
    if len(packed) > 1:
        axes = " and ".join(f"axis {q.axis} of {q.shape}" for q in arrays.values())
        raise ValueError(f"{op}: {named} must be packed on the same axis, got {axes}; repack(q, axis) changes it")
    return tuple(q if q.shape == shape else broadcast_to(q, shape) for q in arrays.values())


def common_group(p: QuantArray, q: QuantArray) -> int | None:
    """Count the elements of the packed axis that share constants of both arrays."""
    if p.group is None or q.group is None:
        return p.group or q.group
    return math.gcd(p.group, q.group)


def pair_codes(p: QuantArray, q: QuantArray) -> tuple[Array, Array]:
    """Return the codes of p and q in each of the 2**bits codes of `Pair`; codes that don't occur repeat the last."""
    code = np.arange(2 ** (p.bits + q.bits))
    return np.minimum(code % 2**p.bits, p.dtype.n_levels - 1), np.minimum(code >> p.bits, q.dtype.n_levels - 1)
