"""Instructions of binary tensor cores and of asynchronous copies, one PTX instruction a function.

Numba has no words for them, so each is written out as PTX. The simulator cannot run that: tests put models of what the
PTX manual says in their places, so kernels must call them through this module.
"""

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core.errors import RequireLiteralValue
from numba.cuda.extending import intrinsic

_BIT32, _VOID = ir.IntType(32), ir.VoidType()
_SHARED = 3  # the address space
_MMA = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"


@intrinsic
def mma(typing, c0, c1, c2, c3, upper, lower, weight):
    """16 pixels by 8 channels by 4 words: sums + |pixel & channel|, by all lanes of a warp together.

    Lane 4 * g + t gives word t of pixel g, of pixel g + 8 and of channel g; it gives and gets the sums of pixel g with
    channels 2t and 2t + 1, then of pixel g + 8 with both. The instruction takes half-words: which bits of the
    contraction it takes these for does not matter, as both sides name the same.
    """

    def generate(context, builder, signature, args):
        sums, (upper, lower, weight) = args[:4], args[4:]
        low = [builder.trunc(word, _BIT32) for word in (upper, lower, weight)]
        shift = ir.Constant(upper.type, 32)
        high = [builder.trunc(builder.lshr(word, shift), _BIT32) for word in (upper, lower, weight)]
        operands = [low[0], low[1], high[0], high[1], low[2], high[2], *sums]
        made = ir.LiteralStructType([_BIT32] * 4)
        code = f"{_MMA} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
        asm = ir.InlineAsm(ir.FunctionType(made, [_BIT32] * 10), code, "=r,=r,=r,=r,r,r,r,r,r,r,0,1,2,3")
        found = builder.call(asm, operands)
        return cgutils.pack_array(builder, [builder.extract_value(found, i) for i in range(4)])

    return types.UniTuple(types.int32, 4)(*[types.int32] * 4, *[types.uint64] * 3), generate


def _copy(words, cached):
    """cp.async of so many words: `ca` keeps them in L1 too, which is the only way for less than 16 bytes."""

    @intrinsic
    def copy(typing, into, at, source, start, inside):
        def generate(context, builder, signature, args):
            into, at, source, start, inside = args
            to = builder.ptrtoint(
                builder.addrspacecast(_pointer(context, builder, signature.args[0], into, at), _word(_SHARED)), _BIT32
            )
            of = _pointer(context, builder, signature.args[2], source, start)
            size = builder.select(inside, ir.Constant(_BIT32, 8 * words), ir.Constant(_BIT32, 0))
            code = f"cp.async.{cached}.shared.global [$0], [$1], {8 * words}, $2;"
            kind = ir.FunctionType(_VOID, [_BIT32, of.type, _BIT32])
            builder.call(ir.InlineAsm(kind, code, "r,l,r,~{memory}", side_effect=True), [to, of, size])
            return context.get_dummy_value()

        return types.void(into, types.int64, source, types.int64, types.boolean), generate

    return copy


copy_word, copy_pair = _copy(1, "ca"), _copy(2, "cg")
for _name, _function, _length in (("copy_word", copy_word, "a word"), ("copy_pair", copy_pair, "two words")):
    _function.__doc__ = f"""Begin to copy {_length} of 1-D source[start ..] of global memory to into[at ..] of shared."""


def _word(space):
    return ir.PointerType(ir.IntType(64), space)


def _pointer(context, builder, kind, array, at):
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [at])


@intrinsic
def commit(typing):
    """Copies begun since the last commit are a group, which may have none."""

    def generate(context, builder, signature, args):
        _plain(builder, "cp.async.commit_group;")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def wait(typing, groups):
    """Until all but so many of this thread's latest groups have arrived; other threads' are waited for by a barrier."""
    if not isinstance(groups, types.IntegerLiteral):
        raise RequireLiteralValue(groups)  # Numba then names the number
    count = groups.literal_value

    def generate(context, builder, signature, args):
        _plain(builder, f"cp.async.wait_group {count};")
        return context.get_dummy_value()

    return types.void(groups), generate


def _plain(builder, code):
    builder.call(ir.InlineAsm(ir.FunctionType(_VOID, []), code, "~{memory}", side_effect=True), [])
