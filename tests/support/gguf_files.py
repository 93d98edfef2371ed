"""GGUF files for tests: a writer, a reader and values of blocks that share no code with quantarray."""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# number, weights of a block, its bytes, bytes of a scale or offset in float16
BLOCKS = {
    "Q4_0": (2, 32, 18, (0,)),
    "Q4_1": (3, 32, 20, (0, 2)),
    "Q5_0": (6, 32, 22, (0,)),
    "Q5_1": (7, 32, 24, (0, 2)),
    "Q8_0": (8, 32, 34, (0,)),
    "Q2_K": (10, 256, 84, (80, 82)),
    "Q3_K": (11, 256, 110, (108,)),
    "Q4_K": (12, 256, 144, (0, 2)),
    "Q5_K": (13, 256, 176, (0, 2)),
    "Q6_K": (14, 256, 210, (208,)),
    "IQ4_NL": (20, 32, 18, (0,)),
    "IQ4_XS": (23, 256, 136, (0,)),
    "TQ1_0": (34, 256, 54, (52,)),
    "TQ2_0": (35, 256, 66, (64,)),
    "I2_S": (36, 128, 32, ()),
    "MXFP4": (39, 32, 17, ()),
    "NVFP4": (40, 64, 36, ()),
    "Q1_0": (41, 128, 18, (0,)),
    "Q2_0": (42, 64, 18, (0,)),
    "PQ2_0": (142, 128, 34, (0,)),
}
DENSE = {"F32": (0, "<f4"), "F16": (1, "<f2"), "I8": (24, "i1"), "I16": (25, "<i2"), "I32": (26, "<i4"),
         "I64": (27, "<i8"), "F64": (28, "<f8"), "BF16": (30, "<u2")}  # fmt: skip
_KINDS = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "b1": 7, "u8": 10, "i8": 11, "f8": 12}
_NAMES = {number: name for name, (number, *_) in (BLOCKS | DENSE).items()}


class Stored(NamedTuple):
    """A tensor in a file: its type by number, its shape, its bytes."""

    number: int
    shape: tuple[int, ...]
    data: bytes


class Written(NamedTuple):
    """A file's bytes, and where the numbers of its header are: (first byte, bytes)."""

    data: bytes
    numbers: list[tuple[int, int]]


def write(
    tensors: dict[str, Stored], metadata: dict[str, Any] | None = None, alignment: int | None = None, version: int = 3
) -> Written:
    """Write a file. Values of metadata: texts, lists of texts, NumPy numbers and arrays."""
    out, numbers = io.BytesIO(b""), []
    metadata = {**(metadata or {})} | ({} if alignment is None else {"general.alignment": np.uint32(alignment)})

    def put(code: str, value: int) -> None:
        numbers.append((out.tell(), struct.calcsize(code)))
        out.write(struct.pack("<" + code, value))

    def text(value: str) -> None:
        put("Q", len(value.encode()))
        out.write(value.encode())

    out.write(b"GGUF")
    put("I", version)
    put("Q", len(tensors))
    put("Q", len(metadata))
    for key, value in metadata.items():
        text(key)
        if isinstance(value, str):
            put("I", 8)
            text(value)
        elif isinstance(value, list):
            for code, n in (("I", 9), ("I", 8), ("Q", len(value))):
                put(code, n)
            for item in value:
                text(item)
        else:
            kind = _KINDS[value.dtype.str[1:]]
            for code, n in (("I", 9), ("I", kind), ("Q", value.size)) if value.ndim else (("I", kind),):
                put(code, n)
            out.write(value.tobytes())
    step, offset = alignment or 32, 0
    for name, tensor in tensors.items():
        text(name)
        put("I", len(tensor.shape))
        for n in tensor.shape[::-1]:
            put("Q", n)
        put("I", tensor.number)
        put("Q", offset)
        offset += -(-len(tensor.data) // step) * step
    out.write(bytes(-out.tell() % step))
    for tensor in tensors.values():
        out.write(tensor.data)
        out.write(bytes(-len(tensor.data) % step))
    return Written(out.getvalue(), numbers)


def read(data: bytes) -> dict[str, Stored]:
    """Read the tensors of a file whose header is sound."""
    file = io.BytesIO(data)

    def take(code: str) -> int:
        return int(struct.unpack("<" + code, file.read(struct.calcsize(code)))[0])

    def text() -> bytes:
        return file.read(take("Q"))

    def skip(kind: int) -> bytes:
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return b"".join([skip(inner) for _ in range(count)])
        return file.read({0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4))

    file.seek(8)
    count, keys = take("Q"), take("Q")
    alignment = 32
    for _ in range(keys):
        key, kind = text(), take("I")
        value = skip(kind)
        alignment = int.from_bytes(value, "little") if key == b"general.alignment" else alignment
    entries = []
    for _ in range(count):
        name = text().decode()
        shape = tuple([take("Q") for _ in range(take("I"))][::-1])
        entries.append((name, take("I"), shape, take("Q")))
    start = file.tell() + -file.tell() % alignment
    stored = {}
    for name, number, shape, offset in entries:
        size = int(np.prod(shape, dtype=np.int64))
        kind = _NAMES.get(number)
        if kind in BLOCKS:
            _, block, nbytes, _ = BLOCKS[kind]
            nbytes = size // block * nbytes + 32 * (kind == "I2_S")
        else:
            nbytes = size * np.dtype(DENSE[kind][1]).itemsize if kind else 0
        stored[name] = Stored(number, shape, data[start + offset : start + offset + nbytes])
    return stored


def draw(rng: np.random.Generator, kind: str, rows: int, blocks: int) -> Stored:
    """Draw rows of random blocks of a packed type, with finite scales."""
    number, block, nbytes, halves = BLOCKS[kind]
    q = rng.integers(0, 256, (rows * blocks, nbytes), dtype=np.uint8)
    for at in halves:
        h = rng.integers(0, 1 << 16, len(q)).astype("<u2")
        h[h & 0x7C00 == 0x7C00] &= 0x83FF
        q[:, at : at + 2] = h.view(np.uint8).reshape(-1, 2)
    if kind == "MXFP4":
        q[:, 0] %= 253  # larger ones have levels beyond float32
    data = q.tobytes()
    if kind == "I2_S":
        data += np.float32(rng.standard_normal()).tobytes() + rng.bytes(28)
    return Stored(number, (rows, blocks * block), data)


def values(stored: Stored) -> Array | None:
    """float32 values of a tensor, or its numbers; None for a type that is not listed here."""
    kind = _NAMES.get(stored.number)
    if kind is None:
        return None
    if kind in DENSE:
        a = np.frombuffer(stored.data, DENSE[kind][1]).reshape(stored.shape)
        return (a.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else a
    _, block, nbytes, _ = BLOCKS[kind]
    count = int(np.prod(stored.shape, dtype=np.int64)) // block
    q = np.frombuffer(stored.data, np.uint8, count * nbytes).reshape(count, nbytes)
    if kind in _FORMULAS:
        with np.errstate(all="ignore"):
            return _FORMULAS[kind](q, stored.data).reshape(stored.shape)
    import gguf

    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(q, gguf.GGMLQuantizationType(stored.number)).reshape(stored.shape)


# What `gguf` does not decode, weight by weight


def _scale(q: Array) -> Array:
    return q[:, :2].copy().view("<f2").astype(np.float32)


def _one_bit(q: Array, data: bytes) -> Array:
    j = np.arange(128)
    bits = q[:, 2 + j // 8].astype(int) // 2 ** (j % 8) % 2
    return _scale(q) * np.where(bits == 1, np.float32(1), np.float32(-1))


def _two_bits(q: Array, data: bytes) -> Array:
    j = np.arange(4 * (q.shape[1] - 2))
    codes = q[:, 2 + j // 4].astype(int) // 4 ** (j % 4) % 4
    return _scale(q) * (codes - 1).astype(np.float32)


def _interleaved(q: Array, data: bytes) -> Array:
    j = np.arange(128)
    codes = q[:, j % 32].astype(int) // 4 ** (3 - j // 32) % 4
    return np.frombuffer(data, "<f4", 1, q.size) * (codes - 1).astype(np.float32)


_FORMULAS = {"Q1_0": _one_bit, "Q2_0": _two_bits, "PQ2_0": _two_bits, "I2_S": _interleaved}
