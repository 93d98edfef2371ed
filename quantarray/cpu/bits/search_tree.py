"""Count the thresholds, of up to 255 ascending ones, that a value reaches: by a tree, 64 values at a time."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, I8, I32, const, lanes_of, place_of, pointer, splat
from ..llvm.widening import float_of, load_64
from ..runtime.isa import COUNTING

IN_REGISTERS = COUNTING not in ("portable", "neon", "avx2")  # float32 only
NODES = 19 * 16  # of a tree: levels of fewer than 16 nodes are laid out as 16, which fill a register
_FIRST = [0, 16, 32, 48, 64, 80, 112, 176]  # node of each level
_LANES = 16
_FLOATS, _NUMBERS, _BYTES = (ir.VectorType(kind, _LANES) for kind in (F32, I32, I8))


def order(levels):
    """Return the threshold at each node of a tree of 2 ** levels - 1: node j of a level is in the middle of its j-th
    part.
    """
    nodes = [np.arange(max(_LANES, 2**level)) % 2**level for level in range(levels)]
    return np.concatenate([((2 * j + 1) << (levels - level - 1)) - 1 for level, j in enumerate(nodes)])


def _searcher(levels):
    @intrinsic
    def search(typingctx, values, at, trees, first, places):
        """places[i] = number of thresholds that values[at + i] reaches, uint8, for 64 of a flat array.

        trees[first :] begin with the thresholds in the `order` of nodes; NaN, at the end, means no
        threshold. Values are those that `widen` takes, thresholds floats as it makes them.
        """
        signature = types.void(values, types.int64, trees, types.int64, places)
        each = _plain(levels)

        def codegen(context, builder, signature, args):
            x = load_64(context, builder, signature, args)
            tree = pointer(context, builder, signature, args, 2, args[3])
            to = pointer(context, builder, signature, args, 4, const(0))
            if IN_REGISTERS and x.type.element == F32:
                _search_lanes(builder, x, tree, to, levels)
                return
            number = x.type.element
            wide = builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(number, 64)), number.as_pointer())
            builder.store(x, place_of(builder, wide, 0, x.type), align=4)
            kinds = [types.CPointer(kind) for kind in (float_of(values), float_of(values), types.uint8)]
            context.compile_internal(builder, each, types.void(*kinds), [wide, tree, to])

        return signature, codegen

    return search


def _plain(levels):
    begins = tuple(_FIRST[:levels])

    def search_each(wide, tree, places):
        for i in range(64):
            at = 0
            for first in begins:
                at = 2 * at + (1 if wide[i] >= tree[first + at] else 0)
            places[i] = at

    return search_each


search_15, search_255 = _searcher(4), _searcher(8)


def _search_lanes(builder, x, tree, to, levels):
    """Search 64 lanes; nodes are looked up in registers: 16 in one, 32 in two by one instruction, 64 and 128 in pairs
    of these.

    Four vectors take a level together, so that none waits for its own last step.
    """
    parts = [lanes_of(builder, x, lane, _LANES) for lane in range(0, 64, _LANES)]
    at = [_NUMBERS(None)] * len(parts)
    for level, first in enumerate(_FIRST[:levels]):
        count = max(1, 2**level // _LANES)
        nodes = [builder.load(place_of(builder, tree, first + n * _LANES, _FLOATS), align=4) for n in range(count)]
        for n, part in enumerate(parts):
            passed = builder.fcmp_ordered(">=", part, _looked_up(builder, nodes, at[n]))
            at[n] = builder.sub(builder.add(at[n], at[n]), builder.sext(passed, _NUMBERS))
    for n, places in enumerate(at):
        builder.store(builder.trunc(places, _BYTES), place_of(builder, to, n * _LANES, _BYTES), align=1)


def _looked_up(builder, registers, at):
    """Look up, for each lane, element `at` of the concatenated vectors."""
    if len(registers) == 1:
        kind = ir.FunctionType(_FLOATS, [_FLOATS, _NUMBERS])
        permute = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.permvar.sf.512")
        return builder.call(permute, [registers[0], at])
    if len(registers) == 2:
        kind = ir.FunctionType(_FLOATS, [_FLOATS, _NUMBERS, _FLOATS])
        permute = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
        return builder.call(permute, [registers[0], at, registers[1]])
    half = len(registers) // 2
    low, high = (_looked_up(builder, side, at) for side in (registers[:half], registers[half:]))
    bit = builder.and_(at, splat(builder, ir.Constant(I32, half * _LANES), _LANES))
    return builder.select(builder.icmp_unsigned("!=", bit, _NUMBERS(None)), high, low)
