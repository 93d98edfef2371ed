"""The processor with AMX that tests play: where it finds operands, and what it refuses.

Products of whole networks run on it in `test_micro.py`, `test_other_cpus`.
"""

import signal

import pytest
from paths import SUPPORT
from processors import PLAYED, run

FIRST = """
from quantarray.cpu.int8 import amx_unit
from quantarray.cpu.runtime import isa
print(isa.NAME, amx_unit.wrong(amx_unit.UNIT))
"""
OPERANDS = {  # of registers 100, 101 .. as an encoding numbers them, and an instruction at 1000: address, stride, bytes
    "c4 e2 7b 4b 24 08": (100, 101, 6),  # tileloadd (%rax,%rcx), %tmm4
    "c4 e2 7a 4b 44 9e 40": (106 + 64, 4 * 103, 7),  # tilestored %tmm0, 64(%rsi,%rbx,4)
    "c4 82 7b 4b 74 6d 80": (113 - 128, 2 * 113, 7),  # tileloadd -128(%r13,%r13,2), %tmm6
    "c4 a2 7b 4b 84 22 00 10 00 00": (102 + 4096, 112, 10),  # tileloadd 4096(%rdx,%r12), %tmm0
    "c4 e2 7b 4b 2c 23": (103, 0, 6),  # tileloadd (%rbx), %tmm5
    "c4 a2 7b 4b 2c d5 f8 ff ff ff": (-8, 8 * 110, 10),  # tileloadd -8(,%r10,8), %tmm5
    "c4 e2 78 49 05 10 00 00 00": (1000 + 9 + 16, 0, 9),  # ldtilecfg 16(%rip)
    "c4 c2 78 49 00": (108, 0, 5),  # ldtilecfg (%r8)
    "c4 e2 78 49 44 24 c0": (104 - 64, 0, 7),  # ldtilecfg -64(%rsp)
}


TRAPS = pytest.mark.skipif(not PLAYED, reason="tiles do not trap, or the rest of what AMX needs is not there")


def play(code, **environment):
    """Run code in a process on the emulated processor with AMX, and return the finished process."""
    return run(f"import tile_processor as played\n{code}", PYTHONPATH=str(SUPPORT), **environment)


@TRAPS
def test_a_processor_is_played():
    assert play(FIRST, QUANTARRAY_CPU="amx").stdout.split() == ["amx", "0"]


@TRAPS
def test_operands_of_instructions():
    show = f"""
import numpy as np
registers = np.zeros(17, np.int64)
registers[played.PLACES], registers[played.RIP] = 100 + np.arange(16), 1000
for code in {list(OPERANDS)}:
    print(*played.operand(np.array([*bytes.fromhex(code), *[0xCC] * 6], np.uint8), registers))
"""
    operands = [tuple(map(int, line.split())) for line in play(show).stdout.splitlines()]
    assert operands == list(OPERANDS.values())


@TRAPS
@pytest.mark.parametrize(
    ("before", "asked"),
    [
        ("", False),  # the system, for tiles
        ("amx_tiles.CONFIG = bytes([2, *amx_tiles.CONFIG[1:]])", True),
        ("amx_tiles.CONFIG = amx_tiles.CONFIG[:-9] + bytes(9)", True),  # tile 7 has no rows
        ("amx_tiles.Amx.configure = lambda tiles: None", True),
        ("amx_tiles.Amx.dot = lambda tiles, *given: tiles._call('tdpbusd', *map(amx_tiles._literal, (0, 0, 6)))", True),
    ],
)
def test_a_processor_refuses(before, asked):
    code = f"""
from numba import njit
from quantarray.cpu.int8 import amx_tiles, amx_unit, dot_amx
{before}
amx_unit.wrong(dot_amx.Tiles(), njit(amx_unit._multiply.py_func))
"""
    done = play(code, QUANTARRAY_CPU="amx" if asked else "avx512")
    assert done.returncode == -signal.SIGILL, done.stderr
