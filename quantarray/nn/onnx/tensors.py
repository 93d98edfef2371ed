"""Tensors of a file as NumPy arrays, with their sizes checked before anything is allocated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ...core.dtypes import Array

# ONNX's numbers of element types: the NumPy dtype that holds them here, bits in a file, and the range of narrow ones
_TYPES: dict[int, tuple[str, int]] = {
    1: ("float32", 32),
    2: ("uint8", 8),
    3: ("int8", 8),
    4: ("uint16", 16),
    5: ("int16", 16),
    6: ("int32", 32),
    7: ("int64", 64),
    9: ("bool", 8),
    10: ("float16", 16),
    11: ("float64", 64),
    12: ("uint32", 32),
    13: ("uint64", 64),
    21: ("uint8", 4),
    22: ("int8", 4),
    25: ("uint8", 2),
    26: ("int8", 2),
}
_NAMES = {
    0: "no type", 8: "string", 14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3fn",
    18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 23: "float4e2m1", 24: "float8e8m0",
}  # fmt: skip
RANGES = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}


class Refused(ValueError):
    """An error that says why a node or a tensor is not taken."""


def dtype_of(number: int) -> np.dtype[Any]:
    """Return the NumPy dtype that holds an element type of ONNX; raise Refused if there is none."""
    if number not in _TYPES:
        raise Refused(f"elements of {_NAMES.get(number, f'type {number}')} are not taken")
    return np.dtype(_TYPES[number][0])


def range_of(number: int) -> tuple[int, int] | None:
    """Return the lowest and highest integer of an element type; None for floats and bools."""
    if number in RANGES:
        return RANGES[number]
    dtype = dtype_of(number)
    if dtype.kind not in "iu":
        return None
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def element_of(low: int | None, high: int | None) -> int | None:
    """Return ONNX's number of the 2 or 4-bit type with a range; None if there is none."""
    return next((number for number, ends in RANGES.items() if ends == (low, high)), None)


def is_external(proto: Any) -> bool:
    """Return True for a tensor whose data is in another file."""
    return bool(proto.data_location == 1 or proto.external_data)


def array_of(proto: Any, folder: Path | None = None) -> Array:
    """Return the tensor as an array; raise Refused if its bytes are not those of its shape.

    folder: that of the model, in which other files may hold data.
    """
    from onnx import numpy_helper

    shape, dtype = tuple(proto.dims), dtype_of(proto.data_type)
    if min(shape, default=0) < 0 or len(shape) > 16:
        raise Refused(f"a tensor of shape {shape}")
    count, bits = math.prod(shape), _TYPES[proto.data_type][1]
    if is_external(proto):
        proto = _brought_in(proto, folder, -(-count * bits // 8))
    if proto.HasField("raw_data"):
        held, needed = len(proto.raw_data), -(-count * bits // 8)
        if held != needed:
            raise Refused(f"{held} bytes for a tensor {shape} of {needed}")
    else:
        fields = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data)
        held = max(len(f) for f in fields)
        needed = -(-count * bits // 8) if bits < 8 else count
        if held != needed:
            raise Refused(f"{held} elements for a tensor {shape} of {needed}")
    try:
        a = np.asarray(numpy_helper.to_array(proto))
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise Refused(f"a tensor that cannot be read: {error}") from error
    if a.shape != shape:
        raise Refused(f"a tensor of shape {a.shape} for {shape}")
    return a.astype(dtype)


def _brought_in(proto: Any, folder: Path | None, needed: int) -> Any:
    """Return a tensor with the data that it has in another file, of so many bytes.

    A model must not be able to read any file of the system, so that the file has to be in the model's folder or below
    it, also where links lead.
    """
    where = {entry.key: entry.value for entry in proto.external_data}
    name = where.get("location", "")
    if folder is None:
        raise Refused(f"its data is in the file {name!r:.80}; pass the path of the model, in whose folder that is")
    root, path = folder.resolve(), (folder / name).resolve()
    if not name or Path(name).is_absolute() or not path.is_relative_to(root) or not path.is_file():
        raise Refused(f"its data is in {name!r:.80}, which must be a file in the model's folder, and is not")
    try:
        offset, length = int(where.get("offset", 0)), int(where.get("length", needed))
    except ValueError:
        raise Refused(f"its data has no place in {name!r:.80}") from None
    if length != needed or offset < 0:
        raise Refused(f"{length} bytes from {offset} of {name!r:.80} for a tensor of {needed}")
    if path.stat().st_size < offset + needed:
        raise Refused(f"{name!r:.80} ends before byte {offset + needed} of the tensor's data")
    with path.open("rb") as file:
        file.seek(offset)
        return type(proto)(dims=proto.dims, data_type=proto.data_type, name=proto.name, raw_data=file.read(needed))
