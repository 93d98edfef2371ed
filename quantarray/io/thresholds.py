"""Thresholds as part of a document: a JSON object and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.canonical import dtype_header, dtype_of_header
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array
from ..core.errors import FormatError

_CONSTANTS = ("scale", "offset", "table")


def thresholds_document(T: Thresholds, name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object of thresholds, and add their arrays as `name.values` and so on."""
    parts = {"values": T.values, "greater": T.greater, "strict": T.strict}
    parts |= {n: np.asarray(a) for n in _CONSTANTS if (a := T._constants[n]) is not None}
    arrays.update({f"{name}.{part}": a for part, a in parts.items()})
    ranked = not np.array_equal(T._codes, np.arange(len(T._codes)))
    return {
        "into": dtype_header(T.into),
        "by_rank": ranked,  # of codes that are their ranks, either is the same
        "two_readings": T._two_readings,
        "arrays": {part: f"{name}.{part}" for part in parts},
    }


def thresholds_of(document: Any, arrays: dict[str, Any]) -> Thresholds:
    """Rebuild thresholds; FormatError, or what `Thresholds` raises, if the object describes none."""
    keys = {"into", "by_rank", "two_readings", "arrays"}
    if not isinstance(document, dict) or document.keys() != keys or not isinstance(document["arrays"], dict):
        raise FormatError(f"thresholds must have the keys {sorted(keys)}, got {document!r:.80}")
    parts: dict[str, Array] = {part: dense(name, arrays) for part, name in document["arrays"].items()}
    if not {"values", "greater", "strict"} <= parts.keys() <= {"values", "greater", "strict", *_CONSTANTS}:
        raise FormatError(f"thresholds need the arrays values, greater and strict, got {sorted(parts)!r:.80}")
    values = parts.pop("values")
    per_channel = None if values.ndim == 2 or document["two_readings"] is True else False
    into = dtype_of_header(document["into"])
    return Thresholds(values, per_channel=per_channel, into=into, by_rank=document["by_rank"], **parts)


def dense(name: Any, arrays: dict[str, Any]) -> Array:
    """Return a dense array of a document by its name; FormatError if there is none."""
    a = arrays.get(name) if isinstance(name, str) else None
    if not isinstance(a, np.ndarray):
        raise FormatError(f"there is no dense array {name!r:.80}")
    return a
