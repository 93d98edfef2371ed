"""Between codes, values and words."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.bfloat16 import bits_of_cpu, is_bfloat16, of_gpu
from ...arrays.blocks import SIZE, blocks
from ...arrays.exchange import as_cupy, is_on_gpu
from ...backends.registry import contiguous, device_of, empty, kernel, moveaxis, namespace, zeros
from ...core.bfloat16 import narrowed
from ...core.code_values import constant_dims, level_values, values_of_codes
from ...core.dtypes import Array, DType
from ...core.format import word_count
from ...core.recordings import recording
from ...core.super_blocks import SuperBlocks

_SMALL = 1 << 10  # elements below which NumPy is as fast as a kernel
_FEW = 1 << 12  # levels that are few, whatever the size of an array
_LONG = 32  # elements of a row whose constants may take a quarter of its values


def pack_codes(codes: Array, axis: int, bits: int) -> Array:
    """Pack codes along an axis to words [bits, *outer, word]: integers below 256, or booleans."""
    rows, out = _rows_to_pack(codes, axis, bits)
    if out.size:
        kernel(device_of(codes), "pack")(rows, out.reshape(bits, -1, out.shape[-1]))
    return out


def pack_signed(values: Array, axis: int) -> Array:
    """Pack int8 values along an axis to 8 planes of the codes value + 128."""
    if device_of(values) != "cpu":
        return pack_codes(values.view(np.uint8) ^ np.uint8(128), axis, 8)
    rows, out = _rows_to_pack(values, axis, 8)
    if out.size:
        kernel("cpu", "pack_signed")(rows.view(np.int8), out.reshape(8, -1, out.shape[-1]))
    return out


def pack_seen(codes: Array, axis: int, bits: int) -> tuple[Array, int]:
    """Pack codes of uint8 as `pack_codes` does; return also all their bits together, which no code is above."""
    rows, out = _rows_to_pack(codes, axis, bits)
    seen = zeros(device_of(codes), (len(rows),), np.uint8)
    kernel(device_of(codes), "pack_seen")(rows, seen, out.reshape(bits, -1, out.shape[-1]))
    return out, int(np.bitwise_or.reduce(seen))


def _rows_to_pack(codes: Array, axis: int, bits: int) -> tuple[Array, Array]:
    """Return bytes [rows length], and where their words go."""
    bytes_of = codes.view(np.uint8) if codes.dtype.itemsize == 1 else codes.astype(np.uint8)
    last = contiguous(moveaxis(bytes_of, axis, -1))
    length = last.shape[-1]
    rows = last.reshape(math.prod(last.shape[:-1]), length)
    return rows, empty(device_of(codes), (bits, *last.shape[:-1], word_count(length)))


def codes(q: QuantArray) -> Array:
    """uint8 codes in the logical shape."""
    length = q.shape[q.axis]
    outer = q.shape[: q.axis] + q.shape[q.axis + 1 :]
    out = empty(q.device, (*outer, length), np.uint8)
    if out.size:
        words = contiguous(q.words)
        kernel(q.device, "unpack")(words.reshape(q.bits, -1, words.shape[-1]), out.reshape(-1, length))
    return moveaxis(out, -1, q.axis)


def dequantize(q: QuantArray, out: Any = None) -> Array:
    """int32 or float32 values in the logical shape, written to `out` if that is given, in its type of floats.

    One pass of a kernel on a GPU, and where the law is uniform and packed along its last axis, or all elements have the
    same levels: the result is then stored like the words, with the packed axis last. In blocks otherwise: NumPy looks
    codes up by indices of 8 bytes an element, which are twice the result, and levels that vary may be 2**bits times the
    constants.
    """
    kind: np.dtype[Any] = np.dtype(np.int32 if q.dtype.is_integer and not q.constants.has_scale else np.float32)
    if out is not None:
        values = destination("dequantize", out, q, kind)
    elif q.size <= SIZE and _decoder(q) is None:
        return _values(q)
    else:
        outer = q.shape[: q.axis] + q.shape[q.axis + 1 :]
        values = moveaxis(empty(q.device, (*outer, q.shape[q.axis]), kind), -1, q.axis)
    decode, rows = _decoder(q), moveaxis(values, q.axis, -1)
    if decode is not None and rows.flags.c_contiguous:
        decode(q, rows)
    elif q.device != "cpu":
        rows[...] = _decoded(q, values.dtype)
    else:
        for block in blocks(q.shape, arrays=(q,)):
            values[block] = _as(_values(q[block]), values.dtype)
    return values


def _decoder(q: QuantArray) -> Callable[[QuantArray, Array], None] | None:
    """Return what stores all values of q to rows [.. packed axis] by a kernel; None where no kernel does.

    `decode_uniform` takes rows that are long enough to have constants of their own.
    """
    if q.axis == q.ndim - 1 and q.shape[-1] >= _LONG:
        if q.dtype.kind == "uniform":
            return _decode_uniform
        if q.device == "cpu" and q.constants.has_scale and spacing(q.dtype) is not None:
            return _decode_spaced
    worth = q.size >= _SMALL or recording() is not None  # NumPy looks a few codes up faster, but is no launch
    few = _count(q) == 1 or q.dtype.n_levels * _count(q) <= q.size // 4
    return _decode_levels if q.device != "cpu" or (worth and few) else None


def _decoded(q: QuantArray, kind: np.dtype[Any]) -> Array:
    """Return the values as rows [.. packed axis] of a GPU."""
    outer, decode = q.shape[: q.axis] + q.shape[q.axis + 1 :], _decoder(q)
    rows = empty(q.device, (*outer, q.shape[q.axis]), kind)
    assert decode is not None
    decode(q, rows)
    return rows


def _as(values: Array, kind: np.dtype[Any]) -> Array:
    """Return int32 values as they are, and others rounded to float32 and then to a type of `narrowed`."""
    return values.astype(np.int32, copy=False) if kind == np.int32 else narrowed(values.astype(np.float32), kind)


def _decode_levels(q: QuantArray, rows: Array) -> None:
    """Store the values of q to rows [.. packed axis], by the levels of each row and group."""
    if rows.size:
        kernel(q.device, "decode_levels")(*level_operands(q, rows.dtype), rows.reshape(-1, rows.shape[-1]))


def level_operands(q: QuantArray, kind: np.dtype[Any]) -> tuple[Array, Array, Array, int]:
    """Return the words, tables of levels, table of each row, and group that `decode_levels` takes."""
    levels = level_values(q.dtype, q.constants)
    levels = levels.reshape(len(levels), *(levels.shape[1:] or (1,) * q.ndim))
    return _rows_of_words(q), *by_row(_as(levels, kind), q), q.group or q.shape[q.axis]


def _rows_of_words(q: QuantArray) -> Array:
    words = contiguous(q.words)
    return words.reshape(q.bits, -1, words.shape[-1])


def by_row(tables: Array, q: QuantArray | Pair) -> tuple[Array, Array]:
    """Return tables [codes, *q's axes] as [tables groups codes], and int64[rows]: which of them each row of q has.

    One entry for all rows if they have the same.
    """
    last = np.moveaxis(np.moveaxis(tables, 0, -1), q.axis, -2)
    row = np.arange(math.prod(last.shape[:-2]))
    if row.size > 1:
        outer = q.shape[: q.axis] + q.shape[q.axis + 1 :]
        row = np.array(np.broadcast_to(row.reshape(last.shape[:-2]), outer)).reshape(-1)
    return np.ascontiguousarray(last.reshape(-1, *last.shape[-2:])), row


def destination(op: str, out: Any, q: QuantArray, kind: np.dtype[Any]) -> Array:
    """View `out` as the array that values are written to: it shares memory, and has q's shape and device.

    It has q's own type, or float32, float16 or bfloat16, whose view is of its bits, uint16.
    """
    array, *types = memory_of(op, out, kind)
    fits = array is not None and device_of(array) == q.device and array.shape == q.shape and array.dtype in types
    if array is None or not fits or not getattr(array.flags, "writeable", True):  # all arrays of CuPy are writeable
        where, first = "the CPU" if q.device == "cpu" else q.device, "" if kind == np.float32 else "int32, "
        raise TypeError(
            f"{op}: out must be a writeable array on {where} of shape {q.shape} and type {first}float32, float16 or "
            f"bfloat16, got {checks.kind(out)}"
        )
    memory: Array = array
    return memory


def memory_of(op: str, out: Any, kind: np.dtype[Any]) -> tuple[Any, ...]:
    """View the memory of an array or tensor; return it, None if it has none, and types that it may be of."""
    if getattr(out, "requires_grad", False) is True:
        raise TypeError(f"{op}: out requires a gradient, which is not followed through codes; pass out.detach()")
    usual = kind, np.float32, np.float16
    if is_on_gpu(out):
        bfloat16 = of_gpu(op, out)
        return (as_cupy(op, "out", out), *usual) if bfloat16 is None else (bfloat16.bits, np.uint16)
    if not (isinstance(out, np.ndarray) or hasattr(out, "__dlpack__")):
        return (None,)
    try:
        return (bits_of_cpu(out), np.uint16) if is_bfloat16(out) else (np.asarray(out), *usual)
    except (TypeError, RuntimeError, BufferError):  # such as a tensor on PyTorch's meta device
        return (None,)


def _decode_uniform(q: QuantArray, rows: Array) -> None:
    if rows.size:
        kernel(q.device, "decode_uniform")(*uniform_operands(q), rows.reshape(-1, rows.shape[-1]))


def uniform_operands(q: QuantArray, stored: bool = False) -> tuple[Array, Any, Any, int]:
    """Return the words, first levels, steps and group that `decode_uniform` takes; `stored` as of `spaced_operands`."""
    offset, scale = _constants(q, stored)
    groups = max(offset.shape[-1], scale.shape[-1])  # one of them may have one for all
    low, step = (_rows_of(constant, q, groups) for constant in (offset, scale))
    return _rows_of_words(q), low, step, q.shape[-1] if groups == 1 else q.group or q.shape[-1]


def _decode_spaced(q: QuantArray, rows: Array) -> None:
    if rows.size:
        kernel(q.device, "decode_spaced")(*spaced_operands(q), rows.reshape(-1, rows.shape[-1]))


def spaced_operands(q: QuantArray, stored: bool = False) -> tuple[Array, Any, Any, int, int, int]:
    """Return the words, first levels, steps, first integer, difference of integers, and group of evenly spaced levels.

    Without an offset the first levels are [0 0]. Constants are float32, or where they are `stored` so `SuperBlocks`.
    """
    if q.dtype.kind == "uniform":
        words, low, step, group = uniform_operands(q, stored)
        return words, low, step, 0, 1, group
    spaced, (words, _, scale, group) = spacing(q.dtype), scaled_operands(q, stored)
    assert spaced is not None
    return words, np.empty((0, 0), np.float32), scale, *spaced, group


def scaled_operands(q: QuantArray, stored: bool = False) -> tuple[Array, Array, Any, int]:
    """Return the words, integer levels as float64, scales [rows groups] and group; `stored` as of `spaced_operands`."""
    _, scale = _constants(q, stored)
    groups = scale.shape[-1]
    group = q.shape[-1] if groups == 1 else q.group or q.shape[-1]
    return _rows_of_words(q), np.array(q.dtype.levels, np.float64), _rows_of(scale, q, groups), group


def _constants(q: QuantArray, stored: bool) -> tuple[Any, Any]:
    """Return the offset, or None, and the scale, or 1."""
    read = {
        name: a if stored and isinstance(a, SuperBlocks) else getattr(q, name) for name, a, _ in q.constants.stored()
    }
    return read.get("offset"), read.get("scale", np.ones(1, np.float32))


@lru_cache(maxsize=256)
def spacing(dtype: DType) -> tuple[int, int] | None:
    """Return (first, difference) of integer levels that are evenly spaced, in the order of codes, or None."""
    levels = dtype.levels
    if levels is None:
        return None
    apart = levels[1] - levels[0] if len(levels) > 1 else 1
    return (levels[0], apart) if levels == tuple(levels[0] + i * apart for i in range(len(levels))) else None


def _rows_of(constant: Any, q: QuantArray, groups: int) -> Any:
    """Return a constant as [rows groups]."""
    if isinstance(constant, SuperBlocks):
        if constant.shape == (*q.shape[:-1], groups):
            return constant.map(lambda a: a.reshape(-1, a.shape[-1]))
        constant = constant.values()
    return np.ascontiguousarray(np.broadcast_to(constant, (*q.shape[:-1], groups))).reshape(-1, groups)


def _values(q: QuantArray) -> Array:
    """Return all values at once: through a table of levels, or one by one where there are more levels than elements."""
    by_element = q.device == "cpu" and q.dtype.kind != "table" and q.dtype.n_levels * _count(q) > max(q.size, _FEW)
    if by_element:
        expanded = q.constants.map(lambda a, lead: expand(a, lead, q), 1)
        return values_of_codes(q.dtype, expanded, codes(q))
    levels = level_values(q.dtype, q.constants)
    return looked_up(levels.astype(np.int32) if levels.dtype == np.int64 else levels, q)


def _count(q: QuantArray) -> int:
    """Count the different constants that elements may have."""
    return math.prod(constant_dims(q.constants))


def looked_up(table: Array, q: QuantArray) -> Array:
    """Look up each element's code; table [codes, *q's axes], each 1, the axis' length, or its groups."""
    places, xp = codes(q), namespace(q.device)
    if table.size == table.shape[0]:
        return np.asarray(table.reshape(-1)[places]) if q.device == "cpu" else xp.asarray(table.reshape(-1))[places]
    steps = [np.arange(n) if m > 1 else np.zeros(1, np.int64) for n, m in zip(q.shape, table.shape[1:], strict=True)]
    if q.group is not None:
        steps[q.axis] //= q.group
    entries: Array = xp.asarray(table)[(places, *map(xp.asarray, np.ix_(*steps)))]
    return entries


def expand(constant: Array, lead: int, q: QuantArray) -> Array:
    """Repeat a constant's groups along the packed axis, so that it broadcasts against the shape."""
    at = lead + q.axis
    if q.group is None or constant.shape[at] == 1:
        return constant
    index = np.arange(q.shape[q.axis]) // q.group
    return np.asarray(np.take(constant, index, axis=at))


class Pair:
    """A pair of arrays of one shape and packed axis, as an array of pairs of codes, those of p in the low bits.

    It has no law of its own. Where the number of p's levels is no power of two, some of its codes don't occur.
    """

    def __init__(self, p: QuantArray, q: QuantArray, group: int | None) -> None:
        self.p, self.q, self.group = p, q, group
        self.bits, self.shape, self.axis, self.ndim, self.device = p.bits + q.bits, p.shape, p.axis, p.ndim, p.device

    @property
    def words(self) -> Array:
        """Return the planes of both, in one array."""
        if self.device != "cpu":  # where copies are launches
            return recode(self, np.arange(2**self.bits).reshape(-1, *(1,) * self.ndim), self.bits)
        joined: Array = np.concatenate([self.p.words, self.q.words])
        return joined


def recode(q: QuantArray | Pair, tables: Array, bits: int, group: int | None = None) -> Array:
    """Replace each code c of q by tables[c]; return words of `bits` planes.

    tables has the codes first, then q's axes, each 1, the axis' length, or along the packed axis its groups: those of
    q, or of the length `group`.
    """
    full = np.zeros((2**q.bits, *tables.shape[1:]), np.uint32)
    full[: len(tables)] = tables
    if isinstance(q, Pair) and q.device != "cpu":  # where copies are launches; on a CPU one copy takes less memory
        words, others = contiguous(q.p.words), contiguous(q.q.words)
    else:
        words = contiguous(q.words)
        others = words[:0]
    out = empty(q.device, (bits, *words.shape[1:]))
    if out.size:
        flat, row = by_row(full, q)
        length, rows = q.shape[q.axis], math.prod(words.shape[1:-1])
        read, above, result = (a.reshape(len(a), rows, a.shape[-1]) for a in (words, others, out))
        kernel(q.device, "recode")(read, above, flat, row, group or q.group or length, length, result)
    return out
