"""Emulate AMX's instructions in memory, after the pseudo-code of Intel's manual: for tests, slow, on any machine.

What the processor refuses is an error here too: a wrong configuration, a tile that is not configured, or tiles whose
shapes do not fit.
"""

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils

from ..llvm.vectors import I8, const
from .amx_tiles import BYTES, CONFIG_BYTES, REGISTERS, ROWS, config_of

_TILE = ROWS * BYTES
_SIZE = CONFIG_BYTES + REGISTERS * _TILE  # the configuration, then the tiles
_LENGTHS, _COUNTS = 16, 48  # where a configuration has bytes a row, and rows


class EmulatedAmx:
    """An emulation of `Amx`: the registers are on the stack of the function that uses them, not configured at first."""

    def __init__(self, context, builder):
        self.context, self.builder = context, builder
        state = cgutils.alloca_once(builder, ir.ArrayType(I8, _SIZE))
        self.state = builder.bitcast(state, I8.as_pointer())
        cgutils.memset(builder, self.state, const(_SIZE), 0)

    def configure(self):
        self._call(_configure, config_of(self.builder))

    def release(self):
        self._call(_release)

    def zero(self, tile):
        self._call(_zero, const(tile))

    def load(self, tile, data, stride):
        self._call(_load, const(tile), data, stride)

    def store(self, tile, data, stride):
        self._call(_store, const(tile), data, stride)

    def dot(self, total, codes, weights):
        self._call(_dot, *map(const, (total, codes, weights)))

    def _call(self, step, *args):
        values = [self.state, *args]
        kinds = [types.int64 if isinstance(value.type, ir.IntType) else types.CPointer(types.uint8) for value in values]
        self.context.compile_internal(self.builder, step, types.void(*kinds), values)


def _configure(state, config):
    new, old = carray(config, CONFIG_BYTES), carray(state, _SIZE)
    if new[0] != 1:
        raise RuntimeError("AMX: palettes are 0 and 1")
    for i in range(1, CONFIG_BYTES):
        length = _LENGTHS <= i < _LENGTHS + 2 * REGISTERS
        most = (BYTES if i % 2 == 0 else 0) if length else ROWS if _COUNTS <= i < _COUNTS + REGISTERS else 0
        if new[i] > most:
            raise RuntimeError("AMX: not a configuration")
    old[:] = 0
    for i in range(CONFIG_BYTES):
        old[i] = new[i]


def _release(state):
    carray(state, _SIZE)[:] = 0


@njit
def _shape(memory, tile):
    """Return (rows, bytes a row) of a tile."""
    rows, length = memory[_COUNTS + tile], memory[_LENGTHS + 2 * tile]
    if rows == 0 or length == 0:
        raise RuntimeError("AMX: the tile is not configured")
    return np.int64(rows), np.int64(length)


@njit
def _begin(tile):
    return CONFIG_BYTES + tile * _TILE


def _zero(state, tile):
    memory, begin = carray(state, _SIZE), _begin(tile)
    _shape(memory, tile)
    memory[begin : begin + _TILE] = 0


def _load(state, tile, data, stride):
    memory, begin = carray(state, _SIZE), _begin(tile)
    rows, length = _shape(memory, tile)
    source = carray(data, (rows - 1) * stride + length)
    memory[begin : begin + _TILE] = 0
    for row in range(rows):
        for i in range(length):
            memory[begin + row * BYTES + i] = source[row * stride + i]


def _store(state, tile, data, stride):
    memory, begin = carray(state, _SIZE), _begin(tile)
    rows, length = _shape(memory, tile)
    to = carray(data, (rows - 1) * stride + length)
    for row in range(rows):
        for i in range(length):
            to[row * stride + i] = memory[begin + row * BYTES + i]


def _dot(state, total, codes, weights):
    memory = carray(state, _SIZE)
    (rows, length), (pixels, inner), (quads, lanes) = (
        _shape(memory, total),
        _shape(memory, codes),
        _shape(memory, weights),
    )
    same = total == codes or total == weights or codes == weights
    if same or rows != pixels or length != lanes or inner != 4 * quads:
        raise RuntimeError("AMX: tiles that do not fit")
    sums = carray(state, _SIZE).view(np.int32)
    signed = carray(state, _SIZE).view(np.int8)
    for m in range(rows):
        for q in range(quads):
            for n in range(length // 4):
                part = np.int32(0)
                for b in range(4):
                    code = memory[_begin(codes) + m * BYTES + 4 * q + b]
                    weight = signed[_begin(weights) + q * BYTES + 4 * n + b]
                    part += np.int32(code) * np.int32(weight)
                sums[(_begin(total) + m * BYTES) // 4 + n] += part
