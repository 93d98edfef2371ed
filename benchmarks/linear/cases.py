"""Weights by kind, the same in each process, and the layers of a case."""

import math
import struct
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa
from quantarray.io.gguf.types import TYPES

NUMBERS = {kind.name: number for number, kind in TYPES.items()}  # the same in ggml
# Types of GGUF, and the bytes at which a block has its float16
FILES = {"Q1_0": [0], "Q2_0": [0], "TQ2_0": [64], "Q4_0": [0], "Q4_K": [0, 2], "Q6_K": [208], "Q8_0": [0]}
GROUPED = {"4 bits, groups of 32": (4, 32), "2 bits, groups of 64": (2, 64)}  # with offsets
TERNARY, ROW, MODEL = "ternary", "4 bits, row", "ternary 2B"
KINDS = (*FILES, TERNARY, ROW, *GROUPED)
SQUARE = 4096, 4096
_Q, _K, _GATE, _DOWN = (2560, 2560), (640, 2560), (6912, 2560), (2560, 6912)
MODEL_SHAPES = [_Q, _K, _K, _Q, _GATE, _GATE, _DOWN] * 30
RING = 4  # times the last cache
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class Case(NamedTuple):
    """A kind of weights, and the layers that a call visits: "layer", "ring" or "model"."""

    kind: str
    part: str
    rows: int

    @property
    def name(self):
        rows = f"{self.rows} row{'s' * (self.rows > 1)}"
        return f"{self.kind}, {rows if self.part == 'layer' else self.part}"


class Weights(NamedTuple):
    """A layer: our array [outputs k], its `quantize_x`; blocks uint8 [outputs bytes] of a type of GGUF, if any."""

    array: qa.QuantArray
    quantize_x: Any
    type: str = ""
    blocks: Any = None


def weights(kind, shape):
    rng = np.random.default_rng(0)
    if kind in FILES:
        blocks = _blocks(rng, kind, shape)
        array = _read(kind, blocks, shape)
        return Weights(array, min(32, array.group), kind, blocks)
    if kind in (TERNARY, MODEL):
        codes, scale = rng.integers(0, 3, shape, np.uint8), np.float16(1 / 16)
        return Weights(qa.from_codes(codes, qa.ternary, scale=scale), "row", "TQ2_0", _tq2_0(codes, scale))
    dense = rng.uniform(-1, 1, shape).astype(np.float32)
    if kind == ROW:
        return Weights(qa.quantize(dense, qa.Uniform(4)), "row")
    bits, group = GROUPED[kind]
    return Weights(qa.quantize(dense, qa.Uniform(bits, symmetric=False), group=group), group)


def layers(case, nbytes):
    """List the weights of a case's layers, the same ones repeatedly; `nbytes(weights)` are their bytes in a program."""
    if case.part == "model":
        each = {shape: weights(case.kind, shape) for shape in MODEL_SHAPES}
        return [each[shape] for shape in MODEL_SHAPES]
    one = weights(case.kind, SQUARE)
    return [one] * (math.ceil(RING * last_cache() / nbytes(one)) if case.part == "ring" else 1)


def inputs(layers, rows):
    """{k: float32 [rows k]}, evenly spread from -1 to 1: one scale for all rows, as PyTorch has it, then suffices."""
    rng = np.random.default_rng(1)
    return {k: rng.uniform(-1, 1, (rows, k)).astype(np.float32) for k in sorted({w.array.shape[1] for w in layers})}


def last_cache():
    """Return the bytes of the last level cache, 32 MiB where Linux does not say."""
    sizes = [(path / "size").read_text().strip() for path in _CACHES.glob("index*")]
    return max((int(size[:-1]) << {"K": 10, "M": 20}[size[-1]] for size in sizes), default=32 << 20)


def _blocks(rng, kind, shape):
    """Draw random blocks whose float16 are from 1/128 to 3/128."""
    of = TYPES[NUMBERS[kind]]
    blocks = rng.integers(0, 256, (shape[0] * shape[1] // of.block, of.nbytes), np.uint8)
    for at in FILES[kind]:
        blocks[:, at : at + 2] = rng.uniform(1 / 128, 3 / 128, (len(blocks), 1)).astype("<f2").view(np.uint8)
    return blocks.reshape(shape[0], -1)


def _read(kind, blocks, shape):
    """Write a GGUF file with one tensor, and read it."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + struct.pack("<Q1s", 1, b"w")
    head += struct.pack("<IQQIQ", 2, shape[1], shape[0], NUMBERS[kind], 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.gguf"
        path.write_bytes(head.ljust(96, b"\0") + blocks.tobytes())  # data begin at a multiple of 32
        return qa.load(path)["w"]


def _tq2_0(codes, scale):
    """Encode codes in blocks of 256: of 128 codes, bits 2 i and 2 i + 1 of 32 bytes have codes 32 i .. 32 i + 31."""
    parts = codes.reshape(len(codes), -1, 2, 4, 32) << np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    packed = np.bitwise_or.reduce(parts, axis=3).reshape(len(codes), -1, 64)
    scales = np.broadcast_to(np.frombuffer(scale.tobytes(), np.uint8), (*packed.shape[:2], 2))
    return np.concatenate([packed, scales], axis=2).reshape(len(codes), -1)
