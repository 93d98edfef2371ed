"""The rules of docs/format.md, checked on a file's content without the package."""

from __future__ import annotations

from typing import Any

import numpy as np

from .stored import HEADER, Array, digest, entries

CONSTANTS = {"uniform": {"scale", "offset"}, "basis": {"scale", "offset"}, "table": {"table"}}


def lawful(meta: dict[str, Any], arrays: dict[str, Array]) -> bool:
    """True where a file of this content is to be read, and False where it is to be refused."""
    arrays = {name: a for name, a in arrays.items() if name in entries(meta)}
    if not {*HEADER, "format", "version", "digest"} <= meta.keys() or "words" not in arrays or "layers" in meta:
        return False
    if meta["format"] != "quantarray" or not _whole(meta["version"], *[1 + ("super_blocks" in meta)] * 2):
        return False
    if not isinstance(meta.get("scheme", ""), str) or not _header(meta):
        return False
    if not _words(meta, arrays["words"]) or meta["digest"] != digest(meta, arrays):
        return False
    numbers = multiplied(meta, arrays)
    return numbers is not None and _numbers(meta, numbers)


def multiplied(meta: dict[str, Any], arrays: dict[str, Array]) -> dict[str, Array] | None:
    """Return the arrays with float32 in place of integers and halves, or None where these break a rule."""
    blocks, arrays = meta.get("super_blocks", {}), {**arrays}
    if not isinstance(blocks, dict) or ("super_blocks" in meta and not blocks) or not {"scale", "offset"} >= {*blocks}:
        return None
    n, group = meta["shape"][-1], meta["group"]
    groups = -(-n // group) if group else 1
    for name, bits in blocks.items():
        integers, halves = arrays.get(name), arrays.pop(f"{name}_halves", None)
        if type(bits) is not int or bits not in (4, 8) or integers is None or halves is None or halves.ndim < 1:
            return None
        if meta["axis"] != len(meta["shape"]) - 1 or integers.dtype.str not in ("|u1", "|i1")[: 1 + (bits == 8)]:
            return None
        if integers.shape != (*halves.shape[:-1], -(-groups * bits // 8)) or halves.dtype.str != "<f2":
            return None
        runs = halves.shape[-1]
        if (
            (groups % runs if runs else groups)
            or not np.isfinite(halves).all()
            or (halves.view(np.uint16) == 1 << 15).any()
        ):
            return None
        if bits == 4:
            both = np.stack([integers & 15, integers >> 4], -1).reshape(*halves.shape[:-1], 2 * integers.shape[-1])
            if both[..., groups:].any():
                return None
            integers = both[..., :groups]
        each = np.repeat(halves, groups // max(1, runs), axis=-1)
        arrays[name] = integers.astype(np.float32) * each.astype(np.float32) + np.float32(0)
    return arrays


def _whole(value: Any, least: int, most: float) -> bool:
    return type(value) is int and least <= value <= most


def _header(meta: dict[str, Any]) -> bool:
    shape, levels, bits, kind = meta["shape"], meta["levels"], meta["bits"], meta["kind"]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 63 or not all(_whole(n, 0, np.inf) for n in shape):
        return False
    if not _whole(meta["axis"], 0, len(shape) - 1) or not _whole(bits, 1, 8):
        return False
    if not _whole(meta["n_levels"], 2**bits if kind == "basis" else 1, 2**bits):
        return False
    if meta["group"] is not None and not _whole(meta["group"], 1, np.inf):
        return False
    if kind != "integer":
        return isinstance(kind, str) and kind in CONSTANTS and levels is None
    if not isinstance(levels, list) or not all(_whole(v, 1 - 2**31, 2**31 - 1) for v in levels):
        return False
    return len(levels) == len(set(levels)) == meta["n_levels"]


def _words(meta: dict[str, Any], words: Array) -> bool:
    """True if the words have the right shape, zeros in the tails, and no code beyond the last level."""
    shape, axis, bits = meta["shape"], meta["axis"], meta["bits"]
    n = shape[axis]
    if words.dtype != np.uint64 or words.shape != (bits, *shape[:axis], *shape[axis + 1 :], -(-n // 64)):
        return False
    planes = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little") if words.size else []
    if not len(planes):
        return True
    codes = sum(plane.astype(np.int64) << k for k, plane in enumerate(planes))
    return not codes[..., n:].any() and int(codes.max()) < meta["n_levels"]


def _numbers(meta: dict[str, Any], arrays: dict[str, Array]) -> bool:
    """True if these are the constants of the kind: finite, of one format, with finite levels.

    Each has one entry along an axis or all.
    """
    kind, shape, group = meta["kind"], meta["shape"], meta["group"]
    stored = {name: a for name, a in arrays.items() if name != "words"}
    if set(stored) != CONSTANTS.get(kind, set()) and not (kind == "integer" and set(stored) == {"scale"}):
        return False
    if len({a.dtype for a in stored.values()}) > 1 or not {a.dtype.str for a in stored.values()} <= {"<f4", "<u2"}:
        return False
    allowed = [{1, n} for n in shape]
    allowed[meta["axis"]] = {1, -(-shape[meta["axis"]] // group)} if group else {1}
    varies = False
    for name, a in stored.items():
        lead = {"table": (meta["n_levels"],), "scale": (meta["bits"],) if kind == "basis" else ()}.get(name, ())
        if a.ndim != len(lead) + len(shape) or a.shape[: len(lead)] != lead:
            return False
        if not all(n in some for n, some in zip(a.shape[len(lead) :], allowed, strict=True)):
            return False
        varies |= a.shape[len(lead) + meta["axis"]] != 1
    values = {name: _float(a) for name, a in stored.items()}
    if not all(np.isfinite(a).all() and not (np.signbit(a) & (a == 0)).any() for a in values.values()):
        return False
    return varies == (group is not None) and _levels_are_finite(meta, values)


def _float(a: Array) -> Array:
    return (a.astype(np.uint32) << 16).view(np.float32) if a.dtype == np.uint16 else a


def _levels_are_finite(meta: dict[str, Any], values: dict[str, Array]) -> bool:
    """True where float32 holds the values of all codes."""
    if all(np.abs(a).max(initial=0) < 1e25 for a in values.values()):
        return True
    if meta["kind"] == "table":
        return True
    scale, offset = values["scale"].astype(np.float64), values.get("offset", np.float32(0)).astype(np.float64)
    for code in range(meta["n_levels"]):
        if meta["kind"] == "basis":
            value = offset + sum(scale[k] * (code >> k & 1) for k in range(meta["bits"]))
        else:
            value = offset + scale * (meta["levels"][code] if meta["levels"] else code)
        with np.errstate(over="ignore"):
            if not np.isfinite(np.float32(value)).all():
                return False
    return True
