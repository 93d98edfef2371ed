"""Constants of arrays that are joined."""

from __future__ import annotations

import numpy as np

from ...arrays.array import QuantArray
from ...core.dtypes import Array, Constants


def joined_constants(op: str, arrays: list[QuantArray], axis: int) -> Constants:
    """Join the constants of arrays one after the other along `axis`, packed alike and equal in all other lengths.

    Equal ones stay as they are. Others vary along the axis then, an entry an element; along the packed axis only
    where groups of one length fit. An array of one constant there is one group.
    """
    names = [name for name, _, _ in arrays[0].constants.items()]
    if any([name for name, _, _ in q.constants.items()] != names for q in arrays):
        raise ValueError(
            f"{op}: some arrays of {arrays[0].dtype} have a scale and some have none; give all one, or compute on "
            f".dequantize()"
        )
    if not names:
        return Constants()
    group = _common_group(op, arrays)  # of the packed axis, should constants vary along it
    stored = [q.constants.items() for q in arrays]
    if len({q.constants.bfloat16 for q in arrays}) > 1:
        stored = [[(n, getattr(q.constants, n), lead) for n, _, lead in q.constants.items()] for q in arrays]
    joined = {}
    for i, name in enumerate(names):
        lead = stored[0][i][2]
        joined[name] = _joined(op, [s[i][1] for s in stored], lead, arrays, axis, group)
    constants = Constants(joined.get("scale"), joined.get("offset"), joined.get("table"), group)
    return constants if constants.varies(arrays[0].axis) else constants.map(lambda a, lead: a)


def _common_group(op: str, arrays: list[QuantArray]) -> int:
    groups = {q.group for q in arrays if q.group and q.constants.varies(q.axis)}
    if len(groups) > 1:
        raise ValueError(f"{op}: constants come in groups of {sorted(groups)} along the packed axis, which differ")
    return groups.pop() if groups else max(1, *(q.shape[q.axis] for q in arrays))


def _joined(op: str, parts: list[Array], lead: int, arrays: list[QuantArray], axis: int, group: int) -> Array:
    at = lead + axis
    same = all(a.shape == parts[0].shape and np.array_equal(a, parts[0]) for a in parts)
    if parts[0].shape[at] == 1 and same:
        return parts[0]
    lengths = [q.shape[axis] for q in arrays]
    if axis == arrays[0].axis:
        lengths = _group_counts(op, lengths, group)
    shape = np.broadcast_shapes(*(a.shape[:at] + (1,) + a.shape[at + 1 :] for a in parts))
    full = [(*shape[:at], n, *shape[at + 1 :]) for n in lengths]
    return np.concatenate([np.broadcast_to(a, s) for a, s in zip(parts, full, strict=True)], axis=at)


def _group_counts(op: str, lengths: list[int], group: int) -> list[int]:
    filled = [n for n in lengths if n]
    if any(n % group for n in filled[:-1]):
        raise ValueError(
            f"{op}: constants come in groups of {group} along the packed axis, which the lengths {lengths} cut; pack "
            f"another one with repack(q, axis) first, or compute on .dequantize()"
        )
    return [-(-n // group) for n in lengths]
