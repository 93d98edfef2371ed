"""The canonical form of an array: the bytes that are stored and that a digest is made of. See docs/format.md."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.registry import to_host
from ..core.dtypes import Array, Constants, DType, integers
from ..core.format import MAX_AXES, MAX_BITS, WORD, empty_lines
from ..core.super_blocks import BYTE, NIBBLE, SuperBlocks
from .array import QuantArray, validate

_NAMED = {"uint16": "bfloat16 ", "uint8": "uint8 ", "int8": "int8 ", "float16": "float16 "}  # types in a digest
VERSIONS = 1, 2  # of files: arrays without super-blocks, and with some
_PARTS = ("words", "scale", "offset", "table")
PARTS = (*_PARTS, "scale_halves", "offset_halves")  # the names that an array's entries may have


def header(q: QuantArray) -> dict[str, Any]:
    """Describe an array by everything but its numbers."""
    meta = {"shape": list(q.shape), "axis": q.axis, **dtype_header(q.dtype), "group": q.group}
    bits = {name: a.bits for name, a in q.constants.super_blocks.items()}
    return meta | ({"super_blocks": bits} if bits else {})


def dtype_header(dtype: DType) -> dict[str, Any]:
    """Return the keys of a header that describe a dtype."""
    levels = None if dtype.levels is None else list(dtype.levels)
    return {"kind": dtype.kind, "bits": dtype.bits, "n_levels": dtype.n_levels, "levels": levels}


def arrays(q: QuantArray) -> dict[str, Array]:
    """Return words and constants as they are stored, C-contiguous and little endian."""
    stored = {"words": np.ascontiguousarray(to_host(q.words), WORD)}
    for name, a, _ in q.constants.stored():
        if isinstance(a, SuperBlocks):
            stored[name] = np.ascontiguousarray(a.stored)
            stored[f"{name}_halves"] = np.ascontiguousarray(a.halves, "<f2")
        else:
            stored[name] = np.ascontiguousarray(a, "<u2" if q.constants.bfloat16 else "<f4")
    return stored


def version(*headers: dict[str, Any]) -> int:
    """Return the version of a file of arrays with these headers: 2 with super-blocks, which version 1 lacks."""
    return VERSIONS["super_blocks" in {key for header in headers for key in header}]


def digest(q: QuantArray) -> str:
    """blake2b of header and arrays, 16 bytes in hex."""
    h = hashlib.blake2b(digest_size=16)
    h.update(json.dumps(header(q), sort_keys=True).encode())
    for name, a in sorted(arrays(q).items()):
        h.update(f"{name} {_NAMED.get(a.dtype.name, '')}{a.shape}".encode())
        h.update(a.data if a.size else b"")
    return h.hexdigest()


def rebuild(meta: dict[str, Any], parts: dict[str, Array], mapped: bool = False) -> QuantArray:
    """Return the array of a header and its parts; ValueError or KeyError where they break a rule of docs/format.md.

    Words are copied to where a cache line begins, unless they are `mapped` and shall stay in their file.
    """
    _check_header(meta)
    bits = meta.get("super_blocks", {})
    for name in parts_of(meta) & parts.keys():
        a = parts[name]
        if a.dtype not in map(np.dtype, allowed := _allowed(name, bits)):
            raise ValueError(f"its entry {name!r} must be {' or '.join(allowed)}, got {a.dtype.str}")
    words = parts["words"] if mapped else empty_lines(parts["words"].shape)
    if not mapped:
        words[...] = parts["words"]
    numbers: dict[str, Any] = {name: parts[name] for name in ("scale", "offset", "table") if name in parts}
    for name in bits:
        numbers[name] = _super_blocks(meta, name, parts)
    constants = Constants(**numbers, group=meta["group"])
    q = QuantArray(words, _dtype(meta), tuple(meta["shape"]), meta["axis"], constants, meta.get("scheme"))
    validate(q)
    _check_canonical(q)
    return q


def parts_of(meta: dict[str, Any]) -> set[str]:
    """Return the names of the entries that an array with this header may have."""
    bits = meta.get("super_blocks")
    return {*_PARTS, *(f"{name}_halves" for name in bits)} if isinstance(bits, dict) else {*_PARTS}


def _allowed(name: str, bits: dict[str, int]) -> tuple[str, ...]:
    """Return the types that an entry may have."""
    if name in bits:
        return ("|u1",) if bits[name] == NIBBLE else ("|u1", "|i1")
    if name.endswith("_halves"):
        return ("<f2",)
    return ("<u8",) if name == "words" else ("<f4", "<u2")


def _super_blocks(meta: dict[str, Any], name: str, parts: dict[str, Array]) -> SuperBlocks:
    """Rebuild a constant of integers and halves; ValueError where they are none that `save` writes."""
    integers, halves = parts[name], parts[f"{name}_halves"]
    if (halves.view(np.uint16) == 0x8000).any():
        raise ValueError(f"its entry '{name}_halves' must not hold -0")
    groups = -(-meta["shape"][-1] // meta["group"]) if meta["group"] else 1
    return SuperBlocks.of_stored(integers, halves, (*integers.shape[:-1], groups), meta["super_blocks"][name])


def dtype_of_header(meta: dict[str, Any]) -> DType:
    """Return the dtype that `dtype_header` described; ValueError or KeyError where the keys describe none."""
    _check_keys(meta, {name: _HEADER[name] for name in ("kind", "bits", "n_levels", "levels")})
    return _dtype(meta)


def _check_header(meta: dict[str, Any]) -> None:
    """Check each key of a header by itself: ValueError where it has a wrong value, KeyError where it is missing."""
    _check_keys(meta, _HEADER | {n: rule for n, rule in _OPTIONAL.items() if n in meta})
    if meta["axis"] >= len(meta["shape"]):
        raise ValueError(f"its 'axis' must be one of the {len(meta['shape'])} axes of its shape, got {meta['axis']}")


def _check_keys(meta: dict[str, Any], rules: dict[str, tuple[Callable[[Any], bool], str]]) -> None:
    for name, (fits, need) in rules.items():
        if not fits(meta[name]):
            raise ValueError(f"its {name!r} must be {need}, got {meta[name]!r:.80}")


def _dtype(meta: dict[str, Any]) -> DType:
    """Return the dtype of a header; the named one, if there is one."""
    levels = None if meta["levels"] is None else tuple(meta["levels"])
    dtype = DType(meta["kind"], meta["bits"], meta["n_levels"], levels)
    named = dtype if levels is None else integers(levels)
    return named if named == dtype else dtype


def _check_canonical(q: QuantArray) -> None:
    """Raise ValueError if constants are written in a form that `save` never writes."""
    if q.group is not None and not q.constants.varies(q.axis):
        raise ValueError(f"its 'group' must be null where no constant varies along axis {q.axis}, got {q.group}")
    for name, stored, _ in q.constants.stored():
        if isinstance(stored, SuperBlocks):
            continue
        a = getattr(q.constants, name)
        if (np.signbit(a) & (a == 0)).any():
            raise ValueError(f"its entry {name!r} must not hold -0")


def _whole(value: Any, least: int, most: float = math.inf) -> bool:
    """True for an integer in JSON from `least` to `most`; true, 1.0 and null are none."""
    return type(value) is int and least <= value <= most


def _of_bits(value: Any) -> bool:
    return type(value) is int and value in (NIBBLE, BYTE)


def _list_of(value: Any, least: float) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= least for v in value)


# What each key of a header must be by itself, and how an error says so
_HEADER: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (lambda v: v in ("integer", "uniform", "basis", "table"), "integer, uniform, basis or table"),
    "shape": (lambda v: _list_of(v, 0) and 1 <= len(v) <= MAX_AXES, f"a list of 1 to {MAX_AXES} lengths"),
    "axis": (lambda v: _whole(v, 0), "an integer from 0"),
    "bits": (lambda v: _whole(v, 1, MAX_BITS), f"an integer from 1 to {MAX_BITS}"),
    "n_levels": (lambda v: _whole(v, 1, 2**MAX_BITS), f"an integer from 1 to {2**MAX_BITS}"),
    "levels": (lambda v: v is None or _list_of(v, -math.inf), "a list of integers, or null"),
    "group": (lambda v: v is None or _whole(v, 1), "an integer from 1, or null"),
}
_OPTIONAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "scheme": (lambda v: isinstance(v, str), "a text, or left out"),
    "super_blocks": (
        lambda v: (
            isinstance(v, dict) and bool(v) and v.keys() <= {"scale", "offset"} and all(map(_of_bits, v.values()))
        ),
        f"an object of {NIBBLE} or {BYTE} bits for scale, offset or both, or left out",
    ),
}
