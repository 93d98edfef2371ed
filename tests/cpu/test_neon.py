"""The counting micro-kernels for ARM: compiled and read everywhere, and run where an emulator is installed.

No ARM machine is needed: the kernels' LLVM code is compiled for one. With `qemu-user` and
`binutils-aarch64-linux-gnu` (Debian's names) a program of it runs that compares its counts with NumPy's.
"""

import re
import shutil
import subprocess

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from quantarray.cpu.llvm.vectors import I64, LANES, TILE, Windows
from quantarray.cpu.popcount import count_bytes, neon

TRIPLE = "aarch64-unknown-linux-gnu"
TOOLS = {name: shutil.which(name) for name in ("aarch64-linux-gnu-as", "aarch64-linux-gnu-ld", "qemu-aarch64")}
START = """
.globl _start
_start:
    bl wrong_counts
    mov x8, 93  // exit(x0)
    svc 0
"""


def constant(module, name, values):
    """A global array of int64 or uint64, as a pointer to its first element."""
    flat = np.asarray(values).astype(np.uint64).ravel().tolist()
    kind = ir.ArrayType(I64, len(flat))
    found = ir.GlobalVariable(module, kind, name)
    found.initializer = ir.Constant(kind, flat)
    return found.bitcast(I64.as_pointer())


def program(differ):
    """A module with `wrong_counts()`: how many of its counts are not NumPy's."""
    rng = np.random.default_rng(0)
    words, weights = rng.integers(0, 1 << 64, 60, np.uint64), rng.integers(0, 1 << 64, (30, LANES), np.uint64)
    origins, runs = np.array([0, 3, 3, 20]), np.array([(0, 9, 2), (4, 0, 9), (30, 11, 7), (1, 1, 0)])
    expected = np.zeros((TILE, LANES), np.int64)
    for at, weight, length in runs:
        for p, origin in enumerate(origins):
            a, b = words[origin + at :][:length, None], weights[weight : weight + length]
            expected[p] += np.bitwise_count(a ^ b if differ else a & b).sum(0, dtype=np.int64)

    module = ir.Module()
    module.triple = TRIPLE
    function = ir.Function(module, ir.FunctionType(I64, []), "wrong_counts")
    builder = ir.IRBuilder(function.append_basic_block())
    laid_out = count_bytes.lay_out(weights)
    data = {"words": words, "origins": origins, "weights": laid_out, "runs": runs, "expected": expected}
    at = {name: constant(module, name, values) for name, values in data.items()}
    counts = constant(module, "counts", np.full(expected.shape, -1))
    first, last = (ir.Constant(I64, n) for n in (0, len(runs)))
    windows = Windows(at["words"], at["origins"], at["runs"], first, last)
    ones = neon.Bytes(builder, ir.Constant(I64, -int(differ)))
    count_bytes.count(builder, ones, TILE, windows, at["weights"], counts)
    wrong = ir.Constant(I64, 0)
    for i in range(expected.size):
        got, right = (builder.load(builder.gep(p, [ir.Constant(I64, i)])) for p in (counts, at["expected"]))
        wrong = builder.add(wrong, builder.zext(builder.icmp_signed("!=", got, right), I64))
    builder.ret(wrong)
    return module


@pytest.fixture(params=[False, True])
def compiled(request):
    """(machine, module), optimised."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="generic", opt=3, reloc="static")
    module = llvm.parse_assembly(str(program(request.param)))
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(module, passes)
    return machine, module


def test_ones_are_counted_by_bytes(compiled):
    machine, module = compiled
    assembly = machine.emit_assembly(module)
    assert len(re.findall(r"\bcnt\s+v\d+\.16b", assembly)) >= TILE * LANES // 16
    assert "__popcount" not in assembly and "\tbl\t" not in assembly


@pytest.mark.skipif(not all(TOOLS.values()), reason="needs qemu-user and binutils-aarch64-linux-gnu")
def test_counts_in_an_emulator(compiled, tmp_path):
    machine, module = compiled
    assembler, linker, emulator = TOOLS.values()
    count, start, made = (tmp_path / name for name in ("count.o", "start.o", "count"))
    count.write_bytes(machine.emit_object(module))
    subprocess.run([assembler, "-o", start, "-"], input=START, text=True, check=True)
    subprocess.run([linker, "-o", made, start, count], check=True)
    assert subprocess.run([emulator, made]).returncode == 0
