"""The safetensors layout: eight bytes of length, a JSON header, the bytes of all arrays; read by mapping the file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..core.errors import FormatError
from ..core.format import MAX_AXES

LABELS = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
    "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
_LABEL_OF = {np.dtype(code): label for label, code in LABELS.items()}
_LINE = 64  # the header is filled up with spaces so that arrays begin on a cache line of the mapped file
_LONGEST = 100_000_000  # bytes of a header that other readers take


def label(a: Array) -> str:
    """Return the layout's name for an array's dtype."""
    return _LABEL_OF[a.dtype.newbyteorder("<")]


def stored(a: Array) -> Array:
    """Return an array in the form that is written: C-contiguous and little endian."""
    return np.require(a, a.dtype.newbyteorder("<"), "C")


def nbytes_of(a: Array) -> Any:
    """Return the bytes of a stored array, without a copy."""
    return a.reshape(-1).view(np.uint8).data if a.size else b""


def write(path: Path, metadata: dict[str, str], arrays: dict[str, Array]) -> None:
    """Write stored arrays, widest elements first, so that each begins at a multiple of its element's bytes."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        a = arrays[name]
        header[name] = {"dtype": label(a), "shape": list(a.shape), "data_offsets": [end, end := end + a.nbytes]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _LINE)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(nbytes_of(arrays[name]))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return (metadata, arrays): read-only views of the mapped file. FormatError if it has another layout."""
    size = path.stat().st_size
    if size < 8:
        raise FormatError(f"it has {size} bytes, fewer than the 8 that it begins with")
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > min(size - 8, _LONGEST):
        raise FormatError(f"it says that its header has {length} bytes, and it has {size}")
    header = json.loads(data[8 : 8 + length].tobytes().decode(), object_pairs_hook=_without_doubles)
    if not isinstance(header, dict):
        raise FormatError("its header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise FormatError("its metadata is not a JSON object")
    spans = {name: _span(name, entry) for name, entry in header.items()}
    end = 0
    for name, (first, last) in sorted(spans.items(), key=lambda item: item[1]):
        if first != end:
            raise FormatError(f"its array {name!r:.80} begins at byte {first}, where {end} is the next")
        end = last
    if end != size - 8 - length:
        raise FormatError(f"its arrays have {end} bytes, and {size - 8 - length} follow its header")
    return metadata, {name: _view(name, header[name], data[8 + length :], spans[name]) for name in header}


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise FormatError("two of its entries have one name")
    return entries


def _span(name: str, entry: Any) -> tuple[int, int]:
    """Check an entry of the header, and return where the array begins and ends in the data."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"its entry {name!r:.80} must have a dtype, a shape and data_offsets")
    code, shape, span = LABELS.get(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
    if code is None:
        raise FormatError(f"its array {name!r:.80} has the dtype {entry['dtype']!r:.40}, which is none of {[*LABELS]}")
    for numbers in (shape, span):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise FormatError(f"its array {name!r:.80} has a shape or data_offsets that are no lists of integers")
    if len(shape) > MAX_AXES or len(span) != 2 or span[1] - span[0] != math.prod(shape) * np.dtype(code).itemsize:
        raise FormatError(f"its array {name!r:.80} has the bytes {span!r:.80}, too few or many for {shape!r:.80}")
    return span[0], span[1]


def _view(name: str, entry: dict[str, Any], data: Array, span: tuple[int, int]) -> Array:
    dtype = np.dtype(LABELS[entry["dtype"]])
    a: Array = np.ndarray(entry["shape"], dtype, data, span[0])
    if dtype.kind == "b" and (a.view(np.uint8) > 1).any():
        raise FormatError(f"its array {name!r:.80} has bools that are neither 0 nor 1")
    if not a.flags.aligned:  # of a file by another writer
        a = a.copy()
        a.flags.writeable = False
    return a
