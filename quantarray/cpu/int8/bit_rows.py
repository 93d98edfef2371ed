"""Products of a row of int8 and weights of one bit, which are looked up.

A table has the sums of all subsets of some elements of the row. The weights of 32 outputs are transposed: a vector has
the same elements of each, which are indices of tables. No product and no sum across lanes is left. For 256 elements
of one bit that is 4 cycles an output where bytes of single bits, and VNNI, take 7 (Zen 4).
"""

from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import const, pointer
from ..runtime.isa import COUNTING, FEATURES
from ..runtime.schedule import Kernel

# An instruction set that is asked for has no features
if COUNTING == "avx2" or ("avx2" in FEATURES and "avx512bw" not in FEATURES):
    from . import bit_tables_avx2 as _tables
else:
    from . import bit_tables_avx512bw as _tables

HAS_TABLES = COUNTING in ("avx2", "avx512bw") or not FEATURES.isdisjoint(("avx2", "avx512bw"))
OUTPUTS, WORDS, LONGEST, MOST_QUERIES = _tables.OUTPUTS, _tables.WORDS, _tables.LONGEST, _tables.MOST_QUERIES
ROOM, ENTRIES, ENTRY = _tables.ROOM, _tables.ENTRIES, _tables.ENTRY
laid_out, tables_of_row = _tables.laid_out, _tables.tables_of_row


@Kernel
def make_tables(codes, totals, out, first, last):
    """Make the tables of the first of codes int8[1 k]; totals[0] = its sum. One task."""
    totals[0] = tables_of_row(codes, 0, out)


@intrinsic
def look_up_rows(typingctx, tables, rows, length, count, out):
    """out[o] = sum of the codes of a row where output o has ones, 0 <= o < count, int32.

    The tables of the row are those of `tables_of_row`; rows are what `laid_out` returns. There are a multiple of
    OUTPUTS, and of WORDS words of each.
    """
    i64 = types.int64
    signature = types.void(tables, rows, i64, i64, out)

    def codegen(context, builder, signature, args):
        _, _, length, count, _ = args
        row, words, target = (pointer(context, builder, signature, args, i) for i in (0, 1, 4))
        for shortest in (True, False):
            with builder.if_then(builder.icmp_signed("==" if shortest else "!=", length, const(WORDS))):
                builder.call(_tables.look_up(builder.module, shortest), [row, words, length, count, target])
        return context.get_dummy_value()

    return signature, codegen
