"""CUDA kernels without a GPU: compiled to PTX for several targets, assembled by ptxas, and disassembled.

The compiled kernel is the one that a twin would launch for its arguments: the same kernel, the same types. `link` does
what Numba does on a GPU, where nvJitLink optimises again and makes the machine code.
"""

import re
import struct
import subprocess
import sysconfig
import tempfile
from bisect import bisect_right
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

TARGETS = ((8, 0), (12, 0))  # through PTX; linked code is for (9, 0)
_TOOLS = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
_INSTRUCTION = 16  # bytes
_FOUND = find_spec("numba_cuda") is not None and all((_TOOLS / tool).exists() for tool in ("ptxas", "nvdisasm"))
needs_toolkit = pytest.mark.skipif(not _FOUND, reason="needs numba-cuda, and the wheels of ptxas and nvdisasm")


class Launch(NamedTuple):
    """A kernel launch that a twin asks for."""

    kernel: object
    signature: tuple
    threads: int  # of a block
    shared: int  # bytes of arrays without a size
    grid: tuple
    args: tuple  # as the twin gave them

    @property
    def blocks(self):
        return prod(np.atleast_1d(self.grid).tolist())


class Assembled(NamedTuple):
    """A kernel as it was compiled for one target."""

    ptx: str
    log: str  # of the assembler
    registers: int
    shared: int  # bytes
    local: int  # bytes of stack and spills a thread
    code: bytes  # of the machine


@contextmanager
def launches(monkeypatch):
    """Give the list of `Launch`es of twins inside; nothing runs, and no GPU is asked for."""
    from quantarray.cuda.runtime import launch

    listed = []

    def note(kernel, grid, block, *args, shared=0, tiled=False):
        threads = prod(np.atleast_1d(block).tolist())
        listed.append(Launch(kernel, tuple(_type_of(a) for a in args), threads, shared, grid, args))

    with monkeypatch.context() as patched:
        patched.setattr(launch, "run", note)
        patched.setattr(launch, "array", lambda a: a)
        patched.setattr(launch, "_move", lambda a: a)
        patched.setattr(launch, "scratch", np.empty)
        patched.setattr(launch, "arrivals", lambda count: np.zeros(count, np.uint32))
        yield listed


def typing_of_numba():
    """Import what gives arguments their types; `tools.successor` has another."""
    import numba

    return numba


def _type_of(a):
    numba = typing_of_numba()
    types = numba.types
    a = getattr(a, "held", a)  # of the stand-in for CuPy
    if isinstance(a, np.ndarray):
        return types.Array(numba.from_dtype(a.dtype), a.ndim, "C")
    if isinstance(a, tuple):
        members = [_type_of(member) for member in a]
        same = len(set(members)) == 1
        return types.NamedUniTuple(members[0], len(a), type(a)) if same else types.NamedTuple(members, type(a))
    return numba.typeof(a)


@cache
def assemble(kernel, signature, target):
    """Compile for compute capability (major, minor), or one and "a", its own instructions, and assemble."""
    (ptx,) = _lowered(kernel, signature).get_asm_strs(cc=(*target, "")[:3])
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        log = _run("ptxas", "-v", f"-arch={name_of(target)}", source, "-o", output).stderr
        return _read(ptx, log, output.read_bytes())


@cache
def link(kernel, signature, target):
    """Compile and link as Numba does for a GPU of compute capability (major, minor)."""
    cubin, log = _linked(kernel, signature, target)
    return _read("", log, cubin)


def linked(kernel, args, target):
    """(name, machine code) of a kernel for some arguments."""
    signature = tuple(map(_type_of, args))
    return _lowered(kernel, signature)._entry_name, _linked(kernel, signature, target)[0]


def _linked(kernel, signature, target):
    from cuda.core import Linker, LinkerOptions, ObjectCode

    arch = (*target, "a" if target >= (9, 0) else "")
    code = _lowered(kernel, signature).get_ltoir(cc=arch)
    options = LinkerOptions(arch=name_of(arch), link_time_optimization=True, verbose=True)
    linker = Linker(ObjectCode.from_ltoir(code), options=options)
    cubin = bytes(linker.link("cubin").code)
    return cubin, linker.get_info_log()


def opcodes(codes, target):
    """List the opcodes in the code of each kernel, such as "POPC", without modifiers.

    All code in one file: the disassembler takes 0.6 s to start, and 0.03 for a kernel.
    """
    text = disassemble(b"".join(codes), target)
    listed = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", text)
    assert len(listed) * _INSTRUCTION == sum(map(len, codes)), "code that is not understood"
    ends = list(accumulate(map(len, codes)))
    by_code = [set() for _ in codes]
    for at, opcode in listed:
        by_code[bisect_right(ends, int(at, 16))].add(opcode)
    return by_code


def disassemble(code, target):
    """Disassemble machine code for `target` by nvdisasm, and return the text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "code"
        file.write_bytes(code)
        return _run("nvdisasm", "-b", f"SM{''.join(map(str, target))}", file).stdout


def name_of(target):
    return f"sm_{''.join(map(str, target))}"


@cache
def _lowered(kernel, signature):
    """Lower a kernel to Numba's library: code of LLVM, the same for all targets."""
    from numba.cuda import compiler, dispatcher

    # Device functions ask for the current device, of which there need be none
    device = SimpleNamespace(compute_capability=TARGETS[0])
    dispatcher.get_current_device = lambda: device
    library, _ = compiler._compile_pyfunc_with_fixup(
        kernel.py_func, signature, device=False, abi="numba", cc=TARGETS[0],
        launch_bounds=kernel.targetoptions.get("launch_bounds"),
    )  # fmt: skip
    return library


def _read(ptx, log, cubin):
    """Read the assembler's log and the file that it wrote."""
    used = re.search(r"Used (\d+) registers", log)
    shared = re.search(r"(\d+) bytes smem", log)
    local = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    bytes_shared, bytes_local = int(shared[1]) if shared else 0, sum(map(int, local.groups()))
    return Assembled(ptx, log, int(used[1]), bytes_shared, bytes_local, _code(cubin))


def _code(cubin):
    """Join the sections .text of a 64-bit ELF file."""
    (table,), (size, count, names) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<I20xQQ", cubin, table + i * size) for i in range(count)]  # name, place, bytes
    text = [(at, n) for name, at, n in sections if cubin.startswith(b".text", sections[names][1] + name)]
    return b"".join(cubin[at : at + n] for at, n in text)


def _run(tool, *args):
    done = subprocess.run([_TOOLS / tool, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done
