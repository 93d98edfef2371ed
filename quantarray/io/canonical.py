"""The canonical form of an array: the bytes that are stored and that a digest is made of. See docs/format.md."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from ..array import QuantArray
from ..device import asnumpy
from ..dtypes import Array, Constants, DType, integers
from ..format import WORD


def header(q: QuantArray) -> dict[str, Any]:
    """Everything but the numbers."""
    levels = list(q.dtype.levels) if q.dtype.levels is not None else None
    return {
        "shape": list(q.shape),
        "axis": q.axis,
        "kind": q.dtype.kind,
        "bits": q.dtype.bits,
        "n_levels": q.dtype.n_levels,
        "levels": levels,
        "group": q.group,
    }


def arrays(q: QuantArray) -> dict[str, Array]:
    """Words and constants as they are stored, C-contiguous and little endian."""
    made = {"words": np.ascontiguousarray(asnumpy(q.words), WORD)}
    for name, a, _ in q.constants.items():
        made[name] = np.ascontiguousarray(a, "<u2" if q.constants.bfloat16 else "<f4")
    return made


def digest(q: QuantArray) -> str:
    """blake2b of header and arrays, 16 bytes in hex."""
    h = hashlib.blake2b(digest_size=16)
    h.update(json.dumps(header(q), sort_keys=True).encode())
    for name, a in sorted(arrays(q).items()):
        h.update(f"{name} {'bfloat16 ' if a.dtype == np.uint16 else ''}{a.shape}".encode())
        h.update(a.data if a.size else b"")
    return h.hexdigest()


def rebuild(meta: dict[str, Any], parts: dict[str, Array]) -> QuantArray:
    """The array of a header and its arrays; ValueError, TypeError or KeyError where they are not consistent."""
    from ..ops.creation import from_words

    if meta["kind"] == "integer":
        dtype = integers(*meta["levels"])
    else:
        dtype = DType(str(meta["kind"]), int(meta["bits"]), int(meta["n_levels"]))
    constants = Constants(parts.get("scale"), parts.get("offset"), parts.get("table"))
    values = {name: getattr(constants, name) for name, _, _ in constants.items()}
    q = from_words(parts["words"], dtype, tuple(meta["shape"]), int(meta["axis"]), group=meta["group"], **values)
    return QuantArray(q.words, dtype, q.shape, q.axis, q.constants.to_bfloat16()) if constants.bfloat16 else q
