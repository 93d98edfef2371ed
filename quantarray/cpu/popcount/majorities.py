"""popcount(majority): inner loop of GEMM by half-words (`avx512_vpopcntdq.py`) and of search (`distance_pairs.py`)."""

import llvmlite.binding
from llvmlite import ir

from ..llvm.vectors import I32

MAJORITY = 0xE8  # of vpternlog: of three bits
# Here and not where code is written: this process assembles code that another one has cached on disk
llvmlite.binding.initialize_native_asmparser()


def add_majorities(builder, place, sums, column, ones=None):
    """Return each of the vectors `sums` plus the ones of majority(a ^ b, A, alike) in its lanes.

    a is at a place (pointer, index in 64 bits or none), followed by A, or for lanes of 32 bits by the half a' whose
    exclusive or with a is A; both go to all lanes. The column has b and alike of each sum, one after the other. `ones`
    is (a sum, either): |A | a & either| is added to that sum, which is returned last.

    This is assembly, as in LLVM's order these instructions need more than 32 registers, and moves and spills take a
    fifth of the time. LLVM would also compute an exclusive or of two splats in a general register and move it to a
    vector, and keep separate addresses for the halves that `ones` needs, for which there are too few registers.
    """
    row, count, numbers = sums[0].type, len(sums), 0 if ones is None else 3
    bits, outputs_before = row.element.width, count + 3 + numbers
    total, either = ([], []) if ones is None else ([ones[0]], [ones[1]])
    a, both, most = (f"${count + i}" for i in range(3))
    registers = [f"${outputs_before + i}" for i in range(len(place))]
    size, address = "d" if bits == 32 else "q", ", ".join([*registers, *["8"] * (len(place) - 1)])
    code = [f"vpbroadcast{size} ({address}), {a}"]
    if bits == 32:
        code.append(f"vpxord 4({address}){{1to16}}, {a}, {both}")
    else:
        code.append(f"vpbroadcast{size} {bits // 8}({address}), {both}")
    if numbers:
        low, high, counted = (f"${outputs_before - 3 + i}" for i in range(3))
        code += [f"movl ({address}), {low}", f"movl 4({address}), {high}", f"xorl {low}, {high}"]
        code += [f"andl ${outputs_before + len(place) + len(column)}, {low}", f"orl {high}, {low}"]
        code += [f"popcntl {low}, {low}", f"addl {low}, {counted}"]
    for v in range(count):
        b, alike = (f"${outputs_before + len(place) + 2 * v + i}" for i in range(2))
        code += [f"vpxor{size} {b}, {a}, {most}", f"vpternlog{size} $${MAJORITY}, {alike}, {both}, {most}"]
        code += [f"vpopcnt{size} {most}, {most}", f"vpadd{size} {most}, ${v}, ${v}"]
    results = [*range(count), *[outputs_before - 1] * len(total)]
    outputs = ["=&v"] * (count + 3) + ["=&r"] * numbers
    inputs = ["r"] * len(place) + ["v"] * len(column) + ["r"] * len(either) + [str(i) for i in results]
    operands = [*place, *column, *either, *sums, *total]
    kind = ir.FunctionType(ir.LiteralStructType([row] * (count + 3) + [I32] * numbers), [v.type for v in operands])
    spoilt = ["~{memory}", "~{flags}"]
    asm = ir.InlineAsm(kind, "\n".join(code), ",".join(outputs + inputs + spoilt), side_effect=False)
    values = builder.call(asm, operands)
    return [builder.extract_value(values, i) for i in results]
