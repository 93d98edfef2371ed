"""Store results that no cache would hold: whole lines go past it, so that memory is not read to be overwritten."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...core.format import LINE
from .vectors import F32, F64, I32, I64, LANES, const, full, place_of, pointer

STREAMED = 1 << 24  # bytes of results that are worth it: no cache of two cores holds them till they are read


@intrinsic
def stream_lanes(typingctx, lanes, start, out, at):
    """out[at + l] = lanes[start + l] of 32 lanes and True, where out[at] begins a cache line; False elsewhere.

    Both are C-contiguous, int32, int64 or float64, out also float32, and indexed flat.
    """
    signature = types.boolean(lanes, types.int64, out, types.int64)

    def codegen(context, builder, signature, args):
        lanes, out = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2))
        kind, vector = out.type.pointee, full(lanes.type.pointee)
        past = builder.module.add_metadata([I32(1)])
        begins = builder.icmp_signed("==", builder.and_(builder.ptrtoint(out, I64), const(LINE - 1)), const(0))
        with builder.if_then(begins):
            for lane in range(0, LANES, vector.count):
                value = builder.load(place_of(builder, lanes, lane, vector), align=4)
                if vector.element != kind:
                    narrow = builder.fptrunc if vector.element == F64 else builder.trunc
                    value = narrow(value, ir.VectorType(kind, vector.count))
                size = vector.count * (4 if kind in (F32, I32) else 8)
                stored = builder.store(value, place_of(builder, out, lane, value.type), align=size)
                stored.set_metadata("nontemporal", past)
        return begins

    return signature, codegen
