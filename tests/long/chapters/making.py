"""Making arrays, of one value, of codes, of bits; and out of them again."""

from __future__ import annotations

from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw, values

PACKED = 2**23


def _whole(name: str) -> Any:
    """Return the operation that creates an array of one value by the function `name`."""

    def operation(d: Draw) -> Any:
        shape, dtype = d.shape(d.among(1, 2, 3), PACKED), d.among(qa.uint1, qa.ternary, qa.uint4, qa.int8)
        axis = d.between(-len(shape), len(shape) - 1)
        if name == "full":
            return lambda: qa.full(shape, 1, dtype, axis), lambda: np.ones(shape)
        return lambda: getattr(qa, name)(shape, dtype, axis)

    return operation


def _like(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q = d.array(kinds=("ternary", "uint"))
        more = (q.dtype.levels[0],) if name == "full_like" else ()
        return lambda: getattr(qa, name)(q, *more)

    return operation


def _arange(d: Draw) -> Any:
    start, n, step = d.between(-60, 10), d.between(0, 60), d.among(1, 2)
    return lambda: qa.arange(start, start + n * step, step), lambda: np.arange(start, start + n * step, step)


def _eye(d: Draw) -> Any:
    n, m, k, axis = d.length(2**12), d.length(2**12), d.between(-70, 70), d.between(0, 1)
    return lambda: qa.eye(n, m, k, axis=axis), lambda: np.eye(n, m, k)


def _from_codes(d: Draw) -> Any:
    dtype, _ = d.dtype(kinds=("ternary", "uint", "uneven", "uniform", "basis", "table"))
    codes = d.dense(d.among(np.uint8, np.int16, np.int64), d.shape(d.among(1, 2, 3), PACKED), 0, dtype.n_levels - 1)
    axis = d.between(-codes.ndim, codes.ndim - 1)
    constants: dict[str, Any] = {"scale": 0.5} if dtype.kind == "uniform" else {}
    if dtype.kind == "basis":
        constants = {"scale": d.contents.random(dtype.bits)}
    if dtype.kind == "table":
        constants = {"table": d.contents.random(dtype.n_levels)}
    return lambda: qa.from_codes(codes, dtype, axis, **constants)


def _from_words(d: Draw) -> Any:
    q = d.array(groups=0.1)
    constants = {name: getattr(q, name) for name in ("scale", "offset")}
    if q.dtype.kind == "table":
        constants = {"table": q.constants.table}
    words = d.operand(np.array(q.words))
    return (
        lambda: qa.from_words(words, q.dtype, q.shape, q.axis, group=q.group, **constants),
        lambda: values(q),
    )


def _encode(d: Draw) -> Any:
    dtype = d.integers(d.between(1, 8), d.among("bipolar", "ternary", "uint", "int", "steps", "uneven"))
    kind, shape = d.among(np.int64, np.int16, np.float32), d.shape(d.among(1, 2, 3), PACKED)
    levels = np.array(dtype.levels, kind)
    x = d.operand(levels[d.contents.integers(0, len(levels), shape, np.uint8)])
    axis = d.between(-x.ndim, x.ndim - 1)
    return lambda: qa.encode(x, dtype, axis), lambda: x


def _from_dlpack(d: Draw) -> Any:
    x = d.dense(d.among(np.uint8, np.int8, bool), d.shape(d.among(1, 2, 3), PACKED), 0, 100)
    return lambda: qa.from_dlpack(x), lambda: x


def _pack_bits(d: Draw) -> Any:
    x = d.dense(d.among(np.uint8, np.int64, bool), d.shape(d.among(1, 2, 3), PACKED), 0, 1)
    axis = d.between(-x.ndim, x.ndim - 1)
    return lambda: qa.pack_bits(x, axis), lambda: x != 0


def _from_packbits(d: Draw) -> Any:
    rows, n, order = d.length(2**10), d.length(2**14), d.among("big", "little")
    data = d.dense(np.uint8, (rows, -(-n // 8)), 0, 255)
    return lambda: qa.from_packbits(data, (rows, n), bitorder=order)


class Bits(bytearray):
    """A stand-in for a bitarray: its bytes, its bit order and its length in bits."""

    endian = "big"
    bits = 0

    def __len__(self) -> int:
        return self.bits


def _from_bitarray(d: Draw) -> Any:
    n = d.length(2**26)
    bits = Bits(d.dense(np.uint8, (-(-n // 8),), 0, 255).tobytes())
    bits.bits = n
    return lambda: qa.from_bitarray(bits)


def _of_bits(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q = d.array(law=(qa.uint1, False), most=2**25)
        if name == "unpack_bits":
            return lambda: qa.unpack_bits(q), lambda: values(q)
        order = d.among("big", "little")
        return lambda: qa.to_packbits(q, order)

    return operation


def _from_embeddings(d: Draw) -> Any:
    precision, shape = d.among("binary", "ubinary", "int8", "uint8"), (d.length(2**10), d.length(2**9))
    unsigned = precision in ("ubinary", "uint8")
    data = d.dense(np.uint8 if unsigned else np.int8, shape, 0 if unsigned else -128, 255 if unsigned else 127)
    return lambda: qa.from_embeddings(data, precision)


def _planes(d: Draw) -> Any:
    q = d.array()
    return lambda: list(q.planes())


def _relu_mask(d: Draw) -> Any:
    x = d.dense(np.float32, d.shape(d.among(1, 2, 3), PACKED))
    return lambda: qa.relu_mask(x), lambda: x > 0


def _dropout_mask(d: Draw) -> Any:
    shape, seed = d.shape(d.among(1, 2), 2**21), d.between(0, 9)
    return lambda: qa.dropout_mask(shape, 0.3, seed)


def _asnumpy(d: Draw) -> Any:
    q = d.array()
    return lambda: qa.asnumpy(q), lambda: values(q)


def _dtypes(d: Draw) -> Any:
    bits, levels = d.between(1, 8), d.integers(d.between(1, 8)).levels
    return lambda: (qa.uniform(bits), qa.basis(bits), qa.table(bits), qa.integers(levels))


def _shapes(d: Draw) -> Any:
    shape = d.shape(3)
    return lambda: qa.broadcast_shapes(shape, (1, shape[-1]))


OPS = {
    **{name: _whole(name) for name in "full zeros ones empty".split()},
    **{name: _like(name) for name in "full_like zeros_like ones_like empty_like".split()},
    "arange": _arange, "eye": _eye, "from_codes": _from_codes, "from_words": _from_words, "encode": _encode,
    "from_dlpack": _from_dlpack, "pack_bits": _pack_bits, "from_packbits": _from_packbits,
    "from_bitarray": _from_bitarray, "unpack_bits": _of_bits("unpack_bits"), "to_packbits": _of_bits("to_packbits"),
    "from_embeddings": _from_embeddings, "planes": _planes,
    "relu_mask": _relu_mask, "dropout_mask": _dropout_mask, "asnumpy": _asnumpy, "uniform": _dtypes,
    "basis": _dtypes, "table": _dtypes, "integers": _dtypes, "broadcast_shapes": _shapes,
}  # fmt: skip
