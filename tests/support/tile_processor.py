"""A processor with AMX where there is none: what imports this gets its tile instructions carried out one by one.

A CPU without AMX traps at each of them. The handler of that signal decodes the instruction, has the text of
`amx_emulated.py`, which follows Intel's manual, carry it out, and goes on after it. So kernels for AMX run as LLVM
made them for a machine that has it: configurations, encodings, addresses and registers are theirs. What a processor
would refuse ends the process.

    QUANTARRAY_CPU=amx PYTHONPATH=tests/support python -m pytest -p no:faulthandler -p tile_processor tests/cpu

For Linux on x86-64, on a CPU with the rest of what `amx` needs. A trap takes a microsecond: nothing can be timed.
"""

import ctypes
import signal

import llvmlite.binding
import numpy as np
from numba import carray, cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_host_features = llvmlite.binding.get_host_cpu_features
_granted = np.zeros(1, np.uint64)


def _features():
    features = _host_features()
    features.update({"amx-tile": True, "amx-int8": True})
    return features


class _Library(ctypes.CDLL):
    """A C library of a system that grants processes the registers of AMX."""

    def syscall(self, *args):
        if args == (158, 0x1023, 18):  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
            _granted[0] = True
            return 0
        return super().__getattr__("syscall")(*args)


llvmlite.binding.get_host_cpu_features = _features
ctypes.CDLL = _Library

from quantarray.cpu.int8 import amx_emulated  # noqa: E402  it asks for the features when it is imported
from quantarray.cpu.llvm.vectors import words_at  # noqa: E402

THREADS, FREE = 256, 0
owners, states = np.zeros(THREADS, np.uint64), np.zeros((THREADS, amx_emulated._SIZE), np.uint8)
OWNERS, STATES, GRANTED = (array.ctypes.data for array in (owners, states, _granted))
configure, release, zero, load, store, dot = (
    njit(getattr(amx_emulated, f"_{name}")) for name in ("configure", "release", "zero", "load", "store", "dot")
)

# A ucontext_t, in words: five that are something else, then registers, in which those that instructions number 0 .. 15
# (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 ..) have these places
REGISTERS, RIP = 5, 16
PLACES = np.array([13, 14, 12, 11, 15, 10, 9, 8, *range(8)])
NO_INDEX = 4

# Bytes of an instruction: 0xC4, R X B and the map 0F38, W register L prefix, opcode
CONFIGURE, MOVE, DOT = 0x49, 0x4B, 0x5E
PLAIN, X66, XF3, XF2 = range(4)

thread = types.ExternalFunction("pthread_self", types.uint64())
default = types.ExternalFunction("signal", types.intp(types.int32, types.intp))


@intrinsic
def at(typingctx, address):
    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.CPointer(types.uint8)(types.int64), codegen


@intrinsic
def claimed(typingctx, address, owner):
    """Return True if the word at an address was free; it is the owner's then."""

    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], args[1].type.as_pointer())
        pair = builder.cmpxchg(place, args[1].type(FREE), args[1], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.uint64), codegen


@njit
def state_of(owner):
    """Return the index of a thread's tiles, configured or to be configured."""
    words = carray(words_at(OWNERS), THREADS)
    for i in range(THREADS):
        if words[i] == owner:
            return i
    for i in range(THREADS):
        if claimed(OWNERS + 8 * i, owner):
            return i
    raise RuntimeError("too many threads have tiles")


@njit
def number(code, at, length):
    """Read a signed number of so many bytes."""
    value = np.int64(0)
    for i in range(length):
        value |= np.int64(code[at + i]) << (8 * i)
    return (value << (64 - 8 * length)) >> (64 - 8 * length)


@njit
def operand(code, registers):
    """Return (address, stride, bytes of the instruction) of the operand in memory."""
    form, base = code[4] >> 6, code[4] & 7
    behind, stride, index = 5, np.int64(0), np.int64(NO_INDEX)
    if base == 4:
        scaled, index = code[5], np.int64(code[5] >> 3 & 7) | (~code[1] >> 6 & 1) << 3
        base, behind = scaled & 7, 6
        if index != NO_INDEX:
            stride = registers[PLACES[index]] << (scaled >> 6)
    length = 1 if form == 1 else 4 if form == 2 or (base == 5 and form == 0) else 0
    address = number(code, behind, length) if length else np.int64(0)
    end = behind + length
    if form or base != 5:
        address += registers[PLACES[np.int64(base) | (~code[1] >> 5 & 1) << 3]]
    elif behind == 5:
        address += registers[RIP] + end
    return address, stride, end


@njit
def carry_out(code, registers):
    """Run an instruction of tiles and return its length in bytes."""
    if not carray(words_at(GRANTED), 1)[0]:
        raise RuntimeError("the system was not asked for tiles")
    if code[0] != 0xC4 or code[1] & 31 != 2 or code[2] & 0x84:
        raise RuntimeError("not a tile instruction")
    mine = state_of(thread())
    state = at(STATES + mine * amx_emulated._SIZE)
    opcode, prefix, in_memory = code[3], code[2] & 3, code[4] >> 6 != 3
    first, second, third = np.int64(code[4] >> 3 & 7), np.int64(code[4] & 7), np.int64(~code[2] >> 3 & 15)
    if opcode == DOT and prefix == X66 and not in_memory:
        dot(state, first, second, third)
        return 5
    if third:
        raise RuntimeError("a register that is none")
    if opcode == CONFIGURE and not in_memory:
        if prefix == XF2 and not second:
            zero(state, first)
        elif prefix == PLAIN and not first and not second:
            release(state)
            carray(words_at(OWNERS), THREADS)[mine] = FREE
        else:
            raise RuntimeError("not an instruction")
        return 5
    address, stride, end = operand(code, registers)
    if opcode == CONFIGURE and prefix == PLAIN and not first:
        configure(state, at(address))
    elif opcode == MOVE and prefix == XF2:
        load(state, first, at(address), stride)
    elif opcode == MOVE and prefix == XF3:
        store(state, first, at(address), stride)
    else:
        raise RuntimeError("not an instruction")
    return end


@cfunc(types.void(types.int32, types.voidptr, types.CPointer(types.int64)))
def trapped(signal_number, information, context):
    registers = carray(context, REGISTERS + RIP + 1)[REGISTERS:]
    code = carray(at(registers[RIP]), 16)
    try:
        registers[RIP] += carry_out(code, registers)
    except Exception:
        default(signal_number, 0)  # so that the same instruction, met again, ends the process


class _Action(ctypes.Structure):
    """sigaction: what is called with a context, and on what terms."""

    _fields_ = (
        ("call", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restore", ctypes.c_void_p),
    )


WITH_CONTEXT = 4
_action = _Action(call=trapped.address, flags=WITH_CONTEXT)
if _Library(None).sigaction(int(signal.SIGILL), ctypes.byref(_action), None):
    raise OSError("no handler of SIGILL")
