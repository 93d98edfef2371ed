"""Headers of GGUF files: metadata, and where each tensor is. Nothing that they say is believed before it is checked.

All numbers are little endian: `GGUF`, version uint32, tensors uint64, keys uint64; for each key its text, a type uint32
and a value; for each tensor its text, axes uint32, lengths uint64 from the last axis to the first, a type uint32 and an
offset uint64. A text is a length uint64 and UTF-8; an array is a type uint32, a count uint64 and its values. The data
begins at the next multiple of the alignment, which `general.alignment` says and else is 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array
from ...core.errors import FormatError
from .types import Q2_0, Q2_0_OF_128, TYPES, Type

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
_MOST_AXES = 4  # of ggml
_U32, _U64 = Struct("<I"), Struct("<Q")
_BOOL, _TEXT, _ARRAY = 7, 8, 9
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip


class Tensor(NamedTuple):
    """A tensor of a file: its type, its shape, and its bytes from `begin` to `begin + nbytes`, None if not known."""

    type: Type
    shape: tuple[int, ...]
    begin: int
    nbytes: int | None


class Header(NamedTuple):
    """A file's metadata and its tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, Tensor]


def read_header(data: Array) -> Header:
    """Read the header of a file's bytes; FormatError, or what decoding a text raises, if it is wrong."""
    cursor = _Cursor(data)
    if cursor.take(4) != MAGIC:
        raise FormatError(f"it does not begin with {MAGIC.decode()}")
    version = cursor.number(_U32)
    if version not in VERSIONS:
        big = version & 0xFFFF == 0 and version >> 24 in VERSIONS
        raise FormatError("it is big endian" if big else f"it has version {version}, this library reads 2 and 3")
    tensors, keys = cursor.number(_U64), cursor.number(_U64)
    metadata = _named("keys", 13, keys, cursor, lambda: _value(cursor, cursor.number(_U32)))
    entries = _named("tensors", 24, tensors, cursor, lambda: _entry(cursor))
    alignment = metadata.get(ALIGNMENT, 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise FormatError(f"its {ALIGNMENT} must be a power of two, got {alignment!r:.40}")
    start = -(-cursor.at // alignment) * alignment
    return Header(metadata, _placed(entries, start, alignment, len(data)))


class _Cursor:
    """A place in a file's bytes, which moves on with what is read, and never past their end."""

    def __init__(self, data: Array) -> None:
        self.data, self.at, self.end = data.data, 0, len(data)

    def _pass(self, count: int) -> int:
        """Move on by some bytes, and return where they begin."""
        at = self.at
        if count > self.end - at:
            raise FormatError(
                f"its header has {count} bytes from byte {at} on, and the file {self.end} bytes: it is truncated"
            )
        self.at = at + count
        return at

    def check(self, what: str, count: int, least: int) -> None:
        """Raise FormatError for a count of things that do not fit in the rest of the file."""
        if count > (self.end - self.at) // least:
            raise FormatError(f"it says that it has {count} {what}, more than fit in its {self.end} bytes")

    def take(self, count: int) -> bytes:
        at = self._pass(count)
        return self.data[at : at + count].tobytes()

    def number(self, of: Struct) -> int:
        return int(of.unpack_from(self.data, self._pass(of.size))[0])

    def numbers(self, code: str, count: int) -> Array:
        """Copy numbers of a NumPy type."""
        dtype = np.dtype(code)
        at = self._pass(count * dtype.itemsize)
        if dtype.kind == "b":  # of which NumPy knows 0 and 1 only
            return np.asarray(np.frombuffer(self.data, np.uint8, count, at) != 0)
        return np.frombuffer(self.data, dtype, count, at).copy()

    def name(self) -> str:
        return str(self.take(self.number(_U64)), "utf-8")

    def texts(self, count: int) -> list[str]:
        """Read texts, in one loop: a vocabulary has 100,000 and more. Tokens may be parts of characters."""
        self.check("texts", count, _U64.size)
        data, at, end, length, texts = self.data, self.at, self.end, _U64.unpack_from, []
        for _ in range(count):
            if at + _U64.size > end:
                break
            stop = at + _U64.size + length(data, at)[0]
            texts.append(str(data[at + _U64.size : stop], "utf-8", "replace"))
            at = stop
        if len(texts) < count or at > end:
            raise FormatError("its header ends in a text: it is truncated")
        self.at = at
        return texts


def _named(what: str, least: int, count: int, cursor: _Cursor, read: Callable[[], Any]) -> dict[str, Any]:
    """Read names and what belongs to them, which has at least some bytes."""
    cursor.check(what, count, least)
    named: dict[str, Any] = {}
    for _ in range(count):
        name = cursor.name()
        if name in named:
            raise FormatError(f"two of its {what} have the name {name!r:.80}")
        named[name] = read()
    return named


def _value(cursor: _Cursor, kind: int) -> Any:
    """Read a value: a number, a bool, a text, an array of numbers or a list of texts."""
    if kind in _NUMBERS:
        return cursor.numbers(_NUMBERS[kind], 1)[0].item()
    if kind == _TEXT:
        return cursor.texts(1)[0]
    if kind != _ARRAY:
        raise FormatError(f"its metadata has a value of the type {kind}, which is none of GGUF's")
    inner, count = cursor.number(_U32), cursor.number(_U64)
    if inner in _NUMBERS:
        return cursor.numbers(_NUMBERS[inner], count)
    if inner != _TEXT:
        raise FormatError(f"its metadata has an array of the type {inner}, which no array has")
    return cursor.texts(count)


def _entry(cursor: _Cursor) -> tuple[int, tuple[int, ...], int]:
    """Read (number of the type, shape, offset) of a tensor."""
    axes = cursor.number(_U32)
    if axes > _MOST_AXES:
        raise FormatError(f"a tensor has {axes} axes, at most {_MOST_AXES} are allowed")
    shape = tuple([cursor.number(_U64) for _ in range(axes)][::-1])
    return cursor.number(_U32), shape, cursor.number(_U64)


def _placed(
    entries: dict[str, tuple[int, tuple[int, ...], int]], start: int, alignment: int, end: int
) -> dict[str, Tensor]:
    """Check that each tensor is in the file and that no two overlap."""
    order = sorted(entries, key=lambda name: entries[name][2])
    begins = [start + entries[name][2] for name in order]
    room = {name: after - begin for name, (begin, after) in zip(order, pairwise([*begins, end]), strict=True)}
    types = {name: TYPES.get(kind) or Type(f"type {kind}") for name, (kind, _, _) in entries.items()}
    older = any(
        types[name] is Q2_0 and _older(room[name], math.prod(shape), alignment)
        for name, (_, shape, _) in entries.items()
    )
    tensors = {}
    for name, (_, shape, offset) in entries.items():
        of = Q2_0_OF_128 if older and types[name] is Q2_0 else types[name]
        if offset % alignment:
            raise FormatError(f"its tensor {name!r:.80} has the offset {offset}, no multiple of {alignment}")
        if 0 in shape:
            raise FormatError(f"its tensor {name!r:.80} has no elements, {shape}")
        if of.block > 1 and (not shape or shape[-1] % of.block):
            raise FormatError(f"its tensor {name!r:.80} {shape} must have rows of whole {of.name} blocks of {of.block}")
        nbytes = None if of.nbytes is None else math.prod(shape) // of.block * of.nbytes + of.tail
        if room[name] < (nbytes or 0):
            what, stop = f"its tensor {name!r:.80} {shape} of {nbytes} bytes", start + offset + (nbytes or 0)
            if name == order[-1]:
                raise FormatError(f"{what} ends at byte {stop} of a file of {end} bytes: it is truncated")
            raise FormatError(f"{what} has {max(0, room[name])} bytes up to the next tensor")
        tensors[name] = Tensor(of, shape, start + offset, nbytes)
    return tensors


def _older(room: int, size: int, alignment: int) -> bool:
    """True where a tensor has the place of Q2_0's earlier layout, of 128 weights, too small for the present one."""
    now, before = (size // of.block * (of.nbytes or 0) for of in (Q2_0, Q2_0_OF_128))
    return before <= room < min(now, before + alignment)
