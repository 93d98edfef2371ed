"""The tile registers of AMX, by LLVM's intrinsics with literal numbers: eight of 16 rows by 64 bytes.

`amx_emulated.py` has the same five instructions for machines without them.
"""

from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import I8

ROWS, BYTES = 16, 64
REGISTERS = 8
CONFIG_BYTES = 64
# A palette, a row to start at, 14 bytes that must be 0, 16 lengths of rows of 16 bits, 16 numbers of rows of 8 bits
CONFIG = bytes([1, *[0] * 15, *[BYTES, 0] * REGISTERS, *[0] * 16, *[ROWS] * REGISTERS, *[0] * 8])


def config_of(builder):
    """Return a pointer to the configuration of all eight tiles."""
    kind = ir.ArrayType(I8, CONFIG_BYTES)
    config = cgutils.global_constant(builder, "quantarray.tiles", ir.Constant(kind, bytearray(CONFIG)))
    return builder.bitcast(config, I8.as_pointer())


class Amx:
    """A set of AMX instructions on a thread's tiles; the code that configures the tiles also releases them."""

    def __init__(self, context, builder):
        self.builder = builder

    def configure(self):
        self._call("ldtilecfg", config_of(self.builder))

    def release(self):
        self._call("tilerelease")

    def zero(self, tile):
        self._call("tilezero", _literal(tile))

    def load(self, tile, data, stride):
        """Load 16 rows of 64 bytes, `stride` bytes apart."""
        self._call("tileloadd64", _literal(tile), data, stride)

    def store(self, tile, data, stride):
        self._call("tilestored64", _literal(tile), data, stride)

    def dot(self, total, codes, weights):
        """total[m, n] += sum over q and 4 bytes b of codes[m, q, b] * weights[q, n, b]: uint8 by int8 to int32."""
        self._call("tdpbusd", *map(_literal, (total, codes, weights)))

    def _call(self, name, *args):
        kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
        self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.x86.{name}"), args)


def _literal(tile):
    return ir.Constant(I8, tile)
