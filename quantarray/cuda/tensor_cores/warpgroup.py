"""Instructions of a warpgroup's tensor cores (`wgmma`, compute capability 9.0 only), one PTX instruction a function.

A warpgroup is four warps whose first is a multiple of four. Its products run beside the threads, which must not touch
the sums until they have waited. They read shared memory through the async proxy, unlike threads. Tests replace these
functions, like those of `tensor`, by models of the PTX manual (9.7.15).
"""

from functools import cache

from llvmlite import ir

from ..runtime.target import RequireLiteralValue, intrinsic, types
from .ptx import plain

ROWS = 64  # pixels of a product
_BIT32, _BIT64 = ir.IntType(32), ir.IntType(64)


@cache
def mma(channels):
    """mma(sums, a, b) begins to add |row & column| of 256 bits of 64 pixels, by descriptor, and so many channels.

    `sums` are registers int32[columns sides 2] of each lane: of row 16 * warp + g and g + 8, see `stages`.
    """
    registers = ", ".join(f"${i}" for i in range(channels // 2))
    shape = f"wgmma.mma_async.sync.aligned.m64n{channels}k256.s32.b1.b1.and.popc"
    code = f"{shape} {{{registers}}}, ${channels // 2}, ${channels // 2 + 1}, 1;"

    @intrinsic
    def begin(typing, sums, a, b):
        def generate(context, builder, signature, args):
            _through_registers(context, builder, signature.args[0], channels // 2, code, *args)
            return context.get_dummy_value()

        return types.void(sums, types.uint64, types.uint64), generate

    return begin


def _on_sums(code):
    """Emit an instruction that no use of the sums moves across: to the compiler, it changes each of them."""

    @cache
    def of(channels):
        @intrinsic
        def order(typing, sums):
            def generate(context, builder, signature, args):
                _through_registers(context, builder, signature.args[0], channels // 2, code, *args)
                return context.get_dummy_value()

            return types.void(sums), generate

        return order

    return of


fence_sums = _on_sums("wgmma.fence.sync.aligned;")  # fence_sums(channels)(sums): what threads did with them comes first
collect = _on_sums("wgmma.wait_group.sync.aligned 0;")  # collect(channels)(sums): until they are the threads' again


def _through_registers(context, builder, kind, count, code, sums, *operands):
    """Run `code` on 32-bit elements of an array of registers, $0 and on, which it changes, and other operands."""
    data = context.make_array(kind)(context, builder, sums).data
    places = [builder.gep(data, [ir.Constant(_BIT64, i)]) for i in range(count)]
    held = [builder.load(place) for place in places]
    results = ir.LiteralStructType([_BIT32] * count)
    constraints = ["=r"] * count + ["l"] * len(operands) + [str(i) for i in range(count)] + ["~{memory}"]
    signature = ir.FunctionType(results, [operand.type for operand in operands] + [_BIT32] * count)
    asm = ir.InlineAsm(signature, code, ",".join(constraints), side_effect=True)
    changed = builder.call(asm, [*operands, *held])
    for i, place in enumerate(places):
        builder.store(builder.extract_value(changed, i), place)


def _alone(code):
    @intrinsic
    def run(typing):
        def generate(context, builder, signature, args):
            plain(builder, code)
            return context.get_dummy_value()

        return types.void(), generate

    return run


fence = _alone("wgmma.fence.sync.aligned;")  # before products, once more where the compiler has to be told
commit = _alone("wgmma.commit_group.sync.aligned;")  # products begun since the last commit are a group
fence_copies = _alone("fence.proxy.async.shared::cta;")  # this thread's writes come before later reads by products


@intrinsic
def wait(typing, groups):
    """Wait until all but so many of the warpgroup's latest groups have read shared memory; sums stay out of reach."""
    if not isinstance(groups, types.IntegerLiteral):
        raise RequireLiteralValue(groups)  # Numba then names the number
    count = groups.literal_value

    def generate(context, builder, signature, args):
        plain(builder, f"wgmma.wait_group.sync.aligned {count};")
        return context.get_dummy_value()

    return types.void(groups), generate
