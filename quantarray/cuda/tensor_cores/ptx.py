"""Instructions of tensor cores and of asynchronous copies, one PTX instruction a function.

Numba has no words for them, so each is written out as PTX. The simulator cannot run that: tests put models of what the
PTX manual says in their places, so kernels must call them through this module.
"""

from llvmlite import ir

from ..runtime.target import RequireLiteralValue, cgutils, intrinsic, types

_BIT32, _VOID = ir.IntType(32), ir.VoidType()
_SHARED = 3  # the address space


def _mma(form):
    """Make a product of 16 rows by 8 columns by 8 half-words of each, by all lanes of a warp together.

    Of lane 4 * g + t, a0 and a2 are half-words t and 4 + t of row g, a1 and a3 of row g + 8; b0 and b1 are half-words t
    and 4 + t of column g; c0 and c1 are the sums of row g with columns 2t and 2t + 1, c2 and c3 of row g + 8.
    """
    operands = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13}"

    @intrinsic
    def mma(typing, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
        def generate(context, builder, signature, args):
            kind = ir.FunctionType(ir.LiteralStructType([_BIT32] * 4), [_BIT32] * 10)
            code, places = f"mma.sync.aligned.{form} {operands};", "=r,=r,=r,=r,r,r,r,r,r,r,0,1,2,3"
            asm = ir.InlineAsm(kind, code, places, side_effect=True)  # or it might move where some lanes do not come by
            return _four(builder, builder.call(asm, [*args[4:], *args[:4]]))

        return types.UniTuple(types.int32, 4)(*[types.int32] * 4, *[types.uint32] * 6), generate

    return mma


mma = _mma("m16n8k256.row.col.s32.b1.b1.s32.and.popc")  # the sums + |row & column|
mma_bytes = _mma("m16n8k32.row.col.s32.u8.u8.s32")  # the sums + products of bytes without a sign, modulo 2^32
mma_signed = _mma("m16n8k32.row.col.s32.u8.s8.s32")  # the same, of bytes by bytes with a sign


@intrinsic
def add_bytes(typing, total, four):
    """Return an int32 plus the four bytes of a uint32, modulo 2^32."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(_BIT32, [_BIT32] * 2)
        return builder.call(ir.InlineAsm(kind, f"dp4a.u32.u32 $0, $1, {0x01010101}, $2;", "=r,r,r"), args[::-1])

    return types.int32(types.int32, types.uint32), generate


@intrinsic
def merge(typing, mask, one, other):
    """Return the bits of `one` where a constant mask of 32 bits has ones, in both halves of a word, else of `other`.

    Written out the compiler takes two instructions a half instead of one.
    """
    if not isinstance(mask, types.IntegerLiteral):
        raise RequireLiteralValue(mask)
    bits = mask.literal_value

    def generate(context, builder, signature, args):
        halves = []
        for shift in (0, 32):
            one, other = (builder.trunc(builder.lshr(word, ir.Constant(word.type, shift)), _BIT32) for word in args[1:])
            kind = ir.FunctionType(_BIT32, [_BIT32] * 2)
            asm = ir.InlineAsm(kind, f"lop3.b32 $0, $1, $2, {bits}, 0xE4;", "=r,r,r")
            halves.append(builder.zext(builder.call(asm, [one, other]), ir.IntType(64)))
        return builder.or_(halves[0], builder.shl(halves[1], ir.Constant(halves[1].type, 32)))

    return types.uint64(mask, types.uint64, types.uint64), generate


@intrinsic
def load_matrix(typing, array, at):
    """Load a0 to a3 of `mma`: lane 8 * m + i names where two words of a row begin in shared memory, an even place.

    These are row i of matrix m. Register m of lane 4 * g + t is half-word t of row g of matrix m.
    """

    def generate(context, builder, signature, args):
        place = shared_address(context, builder, signature.args[0], *args)
        four_words = ir.LiteralStructType([_BIT32] * 4)
        code = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];"
        asm = ir.InlineAsm(ir.FunctionType(four_words, [_BIT32]), code, "=r,=r,=r,=r,r,~{memory}", side_effect=True)
        return _four(builder, builder.call(asm, [place]))

    return types.UniTuple(types.uint32, 4)(array, types.int64), generate


load_rows = load_matrix  # of rows wherever they are, which may meet in banks


def _four(builder, four):
    return cgutils.pack_array(builder, [builder.extract_value(four, i) for i in range(4)])


@intrinsic
def read(typing, array, at):
    """Read element `at` of a C-contiguous array seen flat, `at` not negative.

    Of `array[at]` Numba first asks whether it counts from the end, which was half of a loop that reads fragments.
    """

    def generate(context, builder, signature, args):
        return builder.load(pointer(context, builder, signature.args[0], *args))

    return array.dtype(array, types.int64), generate


@intrinsic
def plus(typing, place, words):
    """Return a sum that is computed where it is written; the compiler would keep sums in registers for a whole loop."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 2)
        return builder.call(ir.InlineAsm(kind, "add.s64 $0, $1, $2;", "=l,l,l"), args)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def read_half(typing, array, at):
    """Read half-word `at` of an array of words seen flat; the low half of a word comes first."""

    def generate(context, builder, signature, args):
        array, at = args
        data = context.make_array(signature.args[0])(context, builder, array).data
        return builder.load(builder.gep(builder.bitcast(data, _BIT32.as_pointer()), [at]))

    return types.uint32(array, types.int64), generate


@intrinsic
def read_bytes4(typing, array, at):
    """Read elements `at` on of an array seen flat, 4 bytes of them at a place aligned to 4, by one load."""

    def generate(context, builder, signature, args):
        place = builder.bitcast(pointer(context, builder, signature.args[0], *args), _BIT32.as_pointer())
        return builder.load(place, align=4)

    return types.uint32(array, types.int64), generate


def _read_bytes(count):
    """Make a load of `count` words of 32 bits from a place that is aligned to as many."""

    def read_words(typing, array, at):
        def generate(context, builder, signature, args):
            kind = ir.VectorType(_BIT32, count)
            place = builder.bitcast(pointer(context, builder, signature.args[0], *args), kind.as_pointer())
            words = builder.load(place, align=4 * count)
            each = [builder.extract_element(words, ir.Constant(_BIT32, i)) for i in range(count)]
            return cgutils.pack_array(builder, each)

        return types.UniTuple(types.uint32, count)(array, types.int64), generate

    return intrinsic(read_words)


read_bytes8, read_bytes16 = _read_bytes(2), _read_bytes(4)  # elements `at` on of an array seen flat, as words


@intrinsic
def write_bytes16(typing, array, at, w0, w1, w2, w3):
    """Set elements `at` on of an array seen flat, 16 bytes of them at a place aligned to 16, to four 32-bit numbers."""

    def generate(context, builder, signature, args):
        kind = ir.VectorType(_BIT32, 4)
        words = ir.Constant(kind, ir.Undefined)
        for i, word in enumerate(args[2:]):
            words = builder.insert_element(words, word, ir.Constant(_BIT32, i))
        place = builder.bitcast(pointer(context, builder, signature.args[0], *args[:2]), kind.as_pointer())
        builder.store(words, place, align=16)
        return context.get_dummy_value()

    return types.void(array, types.int64, w0, w1, w2, w3), generate


def _read_two(kind, bits):
    @intrinsic
    def read_two(typing, array, at):
        """Read elements `at` and `at` + 1 of an array seen flat, aligned to both, by one load."""

        def generate(context, builder, signature, args):
            two = ir.VectorType(ir.IntType(bits), 2)
            place = builder.bitcast(pointer(context, builder, signature.args[0], *args), two.as_pointer())
            values = builder.load(place, align=bits // 4)
            return cgutils.pack_array(
                builder, [builder.extract_element(values, ir.Constant(_BIT32, i)) for i in (0, 1)]
            )

        return types.UniTuple(kind, 2)(array, types.int64), generate

    return read_two


def _write_two(kind, bits):
    @intrinsic
    def write_two(typing, array, at, first, second):
        """Set elements `at` and `at` + 1 of an array seen flat, aligned to both, by one store."""

        def generate(context, builder, signature, args):
            array, at, *values = args
            two = ir.VectorType(ir.IntType(bits), 2)
            place = builder.bitcast(pointer(context, builder, signature.args[0], array, at), two.as_pointer())
            pair = ir.Constant(two, ir.Undefined)
            for i, value in enumerate(values):
                pair = builder.insert_element(pair, value, ir.Constant(_BIT32, i))
            builder.store(pair, place, align=bits // 4)
            return context.get_dummy_value()

        return types.void(array, types.int64, kind, kind), generate

    return write_two


read_pair, read_words = _read_two(types.int32, 32), _read_two(types.uint64, 64)
write_pair, write_words = _write_two(types.int32, 32), _write_two(types.uint64, 64)


@intrinsic
def write(typing, array, at, value):
    """Set one element of an array seen flat."""

    def generate(context, builder, signature, args):
        array, at, value = args
        builder.store(value, pointer(context, builder, signature.args[0], array, at))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


def _copy(words, cached):
    """Make cp.async of so many words; `ca`, the only form for less than 16 bytes, keeps them in L1 too.

    copy(into, at, source, start, inside) begins to copy from `start` of global memory to element `at` of shared memory,
    both seen flat. Where it is not inside, zeros are written and nothing is read.
    """

    @intrinsic
    def copy(typing, into, at, source, start, inside):
        def generate(context, builder, signature, args):
            into, at, source, start, inside = args
            to = shared_address(context, builder, signature.args[0], into, at)
            of = pointer(context, builder, signature.args[2], source, start)
            size = builder.select(inside, ir.Constant(_BIT32, 8 * words), ir.Constant(_BIT32, 0))
            code = f"cp.async.{cached}.shared.global [$0], [$1], {8 * words}, $2;"
            kind = ir.FunctionType(_VOID, [_BIT32, of.type, _BIT32])
            builder.call(ir.InlineAsm(kind, code, "r,l,r,~{memory}", side_effect=True), [to, of, size])
            return context.get_dummy_value()

        return types.void(into, types.int64, source, types.int64, types.boolean), generate

    return copy


copy_word, copy_pair = _copy(1, "ca"), _copy(2, "cg")


def pointer(context, builder, kind, array, at):
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [at])


@intrinsic
def address(typing, array, at):
    """Return the place of element `at` of an array within shared memory, in bytes."""

    def generate(context, builder, signature, args):
        return builder.zext(shared_address(context, builder, signature.args[0], *args), ir.IntType(64))

    return types.int64(array, types.int64), generate


def shared_address(context, builder, kind, array, at):
    place = pointer(context, builder, kind, array, at)
    return builder.ptrtoint(builder.addrspacecast(place, ir.PointerType(ir.IntType(64), _SHARED)), _BIT32)


@intrinsic
def commit(typing):
    """Close the group of copies started since the last commit; it may be empty."""

    def generate(context, builder, signature, args):
        plain(builder, "cp.async.commit_group;")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def wait(typing, groups):
    """Wait until all but the latest `groups` groups of this thread have arrived; a barrier waits for other threads."""
    if not isinstance(groups, types.IntegerLiteral):
        raise RequireLiteralValue(groups)  # Numba then names the number
    count = groups.literal_value

    def generate(context, builder, signature, args):
        plain(builder, f"cp.async.wait_group {count};")
        return context.get_dummy_value()

    return types.void(groups), generate


def plain(builder, code):
    """Emit an instruction without operands; no memory access moves across it."""
    builder.call(ir.InlineAsm(ir.FunctionType(_VOID, []), code, "~{memory}", side_effect=True), [])
