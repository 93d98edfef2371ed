"""Embeddings as sentence-transformers writes them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import int8, uint8, uniform
from ...core.hints import Vector
from ..creation.bit_packing import from_packbits
from ..creation.creation import from_codes
from ..words.placement import created

_BYTES = {"ubinary": np.uint8, "binary": np.int8, "int8": np.int8, "uint8": np.uint8}


@created
def from_embeddings(
    x: Vector, precision: Literal["ubinary", "binary", "int8", "uint8"], ranges: Vector | None = None
) -> QuantArray:
    """Pack embeddings that `quantize_embeddings` of sentence-transformers wrote with a precision, [n bytes] or [bytes].

    - "ubinary", uint8, and "binary", int8: eight signs a byte, the first in the highest bit; "binary" is less 128. They
      become uint1 [n, 8 * bytes], 1 for numbers above 0.
    - "int8" and "uint8": a byte a dimension, the step above the least value of its dimension, for "int8" less 128. With
      `ranges` [2 d], the least and the largest value of each dimension, as that function takes or computes them, they
      become 8 bits uniform: value = ranges[0] + step * (ranges[1] - ranges[0]) / 255. Without, their integers.

    Values of `ranges` are searched with queries of floats; `candidates` of `top_k` need bytes without ranges.

    Raises TypeError for other bytes, ValueError for ranges of another shape, not finite, or in the wrong order.

    >>> import numpy as np, quantarray as qa
    >>> qa.from_embeddings(np.array([[0b11000001 - 128]], np.int8), "binary").dequantize()
    array([[1, 1, 0, 0, 0, 0, 0, 1]], dtype=int32)
    >>> qa.from_embeddings(np.array([[-128, 127]], np.int8), "int8", ranges=[[-1.0, 0.0], [1.0, 5.1]]).dequantize()
    array([[-1. ,  5.1]], dtype=float32)
    """
    op = "from_embeddings"
    kind = checks.choice(op, "precision", precision, tuple(_BYTES))
    a = checks.real_array(op, "x", x)
    if a.dtype != _BYTES[kind]:
        raise TypeError(f"{op}: {kind} embeddings are {np.dtype(_BYTES[kind])}, got {a.dtype}")
    steps = a if a.dtype == np.uint8 else a.view(np.uint8) ^ np.uint8(128)
    if kind in ("binary", "ubinary"):
        if ranges is not None:
            raise ValueError(f"{op}: ranges are for int8 and uint8, got {kind}")
        return from_packbits(steps, (*a.shape[:-1], 8 * a.shape[-1]))
    if ranges is None:
        return from_codes(steps, int8 if kind == "int8" else uint8)
    ends = checks.numbers(op, "ranges", ranges).astype(np.float64)
    if ends.shape != (2, a.shape[-1]):
        raise ValueError(f"{op}: ranges must be [2, {a.shape[-1]}], the ends of each dimension, got {ends.shape}")
    checks.finite(op, "ranges", ends)
    if (ends[0] > ends[1]).any():
        at = int(np.argmax(ends[0] > ends[1]))
        raise ValueError(f"{op}: ranges are [least, largest], got {ends[0, at]} and {ends[1, at]} of dimension {at}")
    along: Any = (None,) * (a.ndim - 1)
    scale, offset = (ends[1] - ends[0]) / 255, ends[0]
    return from_codes(steps, uniform(8), scale=scale[along], offset=offset[along], group=1)
