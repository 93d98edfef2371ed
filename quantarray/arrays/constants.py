"""Constants as an array stores them, from what a caller gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtypes import Array, Constants, DType
from ..core.format import is_locked
from ..core.super_blocks import SuperBlocks
from . import checks
from .array import validate_constants

_RUN = 1 << 16  # numbers that are looked at together


def make_constants(
    op: str,
    dtype: DType,
    shape: tuple[int, ...],
    axis: int,
    scale: Any = None,
    offset: Any = None,
    table: Any = None,
    group: int | None = None,
) -> Constants:
    """Return constants in their stored form: float32, read-only, one axis for each of the array's."""
    if group is not None:
        group = checks.integer(op, "group", group, 1)
    if dtype.is_integer and scale is None and offset is None and table is None:
        return Constants()
    lead = {"table": 1, "scale": int(dtype.kind == "basis"), "offset": 0}
    stored: dict[str, Any] = {}
    for name, value in (("scale", scale), ("offset", offset), ("table", table)):
        if value is None:
            continue
        if isinstance(value, SuperBlocks) and name != "table":
            stored[name] = value
            continue
        a = checks.numbers(op, name, value)
        if a.ndim == lead[name]:  # one value for the whole array
            a = a.reshape(a.shape + (1,) * len(shape))
        stored[name] = np.atleast_1d(_stored(op, name, a))
    if dtype.kind in ("uniform", "basis"):
        if "scale" not in stored:
            raise ValueError(f"{op}: {dtype} needs a scale; its offset is 0 if none is given")
        if "offset" not in stored:
            stored["offset"] = np.zeros((1,) * len(shape), np.float32)
    constants = Constants(stored.get("scale"), stored.get("offset"), stored.get("table"), group)
    try:
        validate_constants(dtype, shape, axis, constants)
    except ValueError as error:
        raise ValueError(f"{op}: {error}") from None
    return constants if constants.varies(axis) or group is None else constants.with_group(None)


def _stored(op: str, name: str, a: Array) -> Array:
    """Return the numbers as float32 without -0, so that equal constants have equal digests; or itself.

    A table for each of a million groups takes more than all else in a call, so it is not copied once more.
    """
    if a.dtype == np.float32 and is_locked(a) and a.flags.c_contiguous:
        flat = a.reshape(-1)
        runs = (flat[i : i + _RUN] for i in range(0, flat.size, _RUN))
        if not any((np.signbit(run) & (run == 0)).any() for run in runs):
            checks.finite(op, name, a)
            return a
    return checks.float32(op, name, a) + np.float32(0)
