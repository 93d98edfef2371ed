"""Ones of majorities: how halves of words (`count_halves.py`) and pairs of words (`distance_pairs.py`) are counted."""

import llvmlite.binding
from llvmlite import ir

from .vectors import I64

MAJORITY = 0xE8  # of vpternlog: of three bits
# Here and not where code is made: what another process kept on disk is assembled in this one
llvmlite.binding.initialize_native_asmparser()


def add_majorities(builder, place, sums, column):
    """Each of the vectors `sums` and the ones of majority(a ^ b, A, alike) in its lanes.

    a lies at a place (pointer, index in 64 bits or none), and behind it A, or for lanes of 32 bits the half whose
    exclusive or with a is A; both go to all lanes. The column has b and alike of each sum, one after the other.

    As LLVM orders these instructions they need more than 32 registers, and moves and spills take a fifth of the time;
    an exclusive or of two splats it would make in a register of numbers, and move to a vector.
    """
    row, count = sums[0].type, len(sums)
    bits, registers = row.element.width, [f"${count + i}" for i in range(3 + len(place))]
    a, both, most, *address = registers
    size, address = "d" if bits == 32 else "q", ", ".join([*address, *["8"] * (len(place) - 1)])
    code = [f"vpbroadcast{size} ({address}), {a}", f"vpbroadcast{size} {bits // 8}({address}), {both}"]
    if bits == 32:
        code.append(f"vpxord {a}, {both}, {both}")
    for v in range(count):
        b, alike = (f"${count + len(registers) + 2 * v + i}" for i in range(2))
        code += [f"vpxor{size} {b}, {a}, {most}", f"vpternlog{size} $${MAJORITY}, {alike}, {both}, {most}"]
        code += [f"vpopcnt{size} {most}, {most}", f"vpadd{size} {most}, ${v}, ${v}"]
    made = ["=&v"] * (count + 3)
    given = ["r"] * len(place) + ["v"] * len(column) + [str(v) for v in range(count)]
    takes = [place[0].type, *[I64] * (len(place) - 1), *[row] * (len(column) + count)]
    kind = ir.FunctionType(ir.LiteralStructType([row] * (count + 3)), takes)
    asm = ir.InlineAsm(kind, "\n".join(code), ",".join([*made, *given, "~{memory}"]), side_effect=False)
    found = builder.call(asm, [*place, *column, *sums])
    return [builder.extract_value(found, v) for v in range(count)]
