"""Arrays of a GGUF file's tensors: views of its bytes, or packed codes and their constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.constants import make_constants
from ...core.bfloat16 import bfloat16_values
from ...core.dtypes import Array
from ...core.errors import FormatError
from ...core.format import WORD_BITS, empty_lines, locked, word_count
from ...core.super_blocks import NIBBLE, SuperBlocks, pairs
from ...ops.words.conversion import pack_codes
from ...ops.words.placement import created
from .header import Tensor
from .types import BFLOAT16, Law

_AT_ONCE = 1 << 18  # weights that are decoded together: what is computed of them stays in the cache


def array_of(tensor: Tensor, data: Array) -> Array | QuantArray:
    """Return a tensor's array; ValueError that goes on after its name if it cannot be read."""
    kind = tensor.type
    if tensor.nbytes is None or (kind.law is None and kind.dense is None):
        raise FormatError(f"is {kind.name}, which is not read")
    stored = data[tensor.begin : tensor.begin + tensor.nbytes]
    if kind.law is not None:
        return _packed(tensor, kind.law, stored)
    if kind.dense == BFLOAT16:
        return bfloat16_values(np.ndarray(tensor.shape, "<u2", stored))
    a: Array = np.ndarray(tensor.shape, kind.dense, stored)
    return a if a.flags.aligned else locked(a.copy())


@created
def _packed(tensor: Tensor, law: Law, stored: Array) -> QuantArray:
    """Decode blocks, some at a time."""
    kind, shape, dtype, axis = tensor.type, tensor.shape, law.dtype, len(tensor.shape) - 1
    rows, n = math.prod(shape[:-1]), shape[-1]
    blocks = stored[: len(stored) - kind.tail].reshape(rows, n // kind.block, -1)
    words = empty_lines((dtype.bits, rows, word_count(n)))
    numbers: dict[str, tuple[Array, ...]] = {}
    for some, first, last in _pieces(rows, n):
        piece = np.ascontiguousarray(blocks[some, first // kind.block : last // kind.block])
        with np.errstate(invalid="ignore"):  # of scales that are not finite, which are refused below
            codes, *constants = law.decode(piece.reshape(-1, piece.shape[-1]))
            forms = [[a.reshape(len(piece), -1) for a in _form(constant, law.bits)] for constant in constants]
        packed = pack_codes(codes.reshape(len(piece), -1), 1, dtype.bits)
        words[:, some, first // WORD_BITS : word_count(last)] = packed
        for name, parts in zip(("scale", "offset"), forms, strict=False):
            if name not in numbers:
                widths = [n // ((last - first) // a.shape[1]) for a in parts]
                numbers[name] = tuple(np.empty((rows, w), a.dtype) for w, a in zip(widths, parts, strict=True))
            for a, part in zip(numbers[name], parts, strict=True):
                each = n // a.shape[1]
                a[some, first // each : last // each] = part
    laid_out = {name: [locked(a.reshape(*shape[:-1], -1)) for a in parts] for name, parts in numbers.items()}
    try:
        values: dict[str, Any]
        if law.bits is not None:
            groups = (*shape[:-1], n // (law.group or n))
            values = {name: SuperBlocks.of_stored(a, b, groups, law.bits) for name, (a, b) in laid_out.items()}
        elif law.group is None:  # one number for all, after the last block
            values = {"scale": stored[len(stored) - kind.tail :][:4].view("<f4")[0]}
        else:
            values = {name: a for name, (a,) in laid_out.items()}
        constants_of = make_constants("", dtype, shape, axis, group=law.group, **values)
    except ValueError:
        raise FormatError("has a scale or an offset that is not finite, or too large") from None
    return QuantArray(words.reshape(dtype.bits, *shape[:-1], -1), dtype, shape, axis, constants_of, kind.name)


def _form(constant: Any, bits: int | None) -> tuple[Array, ...]:
    """Return the arrays as which a decoded constant is stored; -0 becomes 0."""
    if bits is None:
        return (constant + np.float32(0),)
    integers, halves = constant
    return (pairs(integers) if bits == NIBBLE else integers), halves + np.float16(0)


def _pieces(rows: int, n: int) -> Iterator[tuple[slice, int, int]]:
    """Yield (rows, first column, column after the last) of some whole rows, or of a part of a long one that begins on a
    block and on a word."""
    some, wide = max(1, _AT_ONCE // n), min(n, _AT_ONCE)
    for row in range(0, rows, some):
        for first in range(0, n, wide):
            yield slice(row, row + some), first, min(first + wide, n)
