"""Compile five kernels by numba-cuda and by its successor, numba-cuda-mlir, for sm_90a, and compare the machine code.

    pip install "numba-cuda-mlir[cu13]==0.6.0" ".[test]"
    python -m tools.successor

No GPU is needed, and no machine code is run. The successor gets another module as `quantarray/cuda/runtime/target.py`.
Its intrinsics emit MLIR. Those of `tensor_cores` emit LLVM IR by llvmlite: `_Builder` takes these calls and emits MLIR.
"""

import json
import re
import subprocess
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace

from llvmlite import ir

ROOT = Path(__file__).parents[1]
COMPILERS = "numba_cuda", "numba_cuda_mlir"
KERNELS = {  # the names of their cases in tests/cuda/test_cuda_compiled.py
    "popcount convolution": "conv to int32, 64 channels",
    "ballot packing": "encode float32 to 1 bits",
    "bmma": "bmma to codes, 128 x 64",
    "depthwise": "depthwise to codes",
    "reduction": "sums of float32, 0 cuts, power 0",
}
_CAPABILITY = 9, 0
_DYNAMIC = -(1 << 31)  # an index of getelementptr that is an operand
_FLOATS = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}
_OPCODE = r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)"


class _Value:
    """Keep a value of MLIR with its type in llvmlite."""

    def __init__(self, mlir, kind):
        self.mlir, self.type = mlir, kind


class _Builder:
    """Emit MLIR for the calls of llvmlite's builder that `quantarray.cuda.tensor_cores` uses."""

    def __init__(self, lowering):
        from numba_cuda_mlir import lowering_utilities, types
        from numba_cuda_mlir._mlir import ir as mlir
        from numba_cuda_mlir._mlir.dialects import arith, llvm

        self._lowering, self._types, self._utilities = lowering, types, lowering_utilities
        self._mlir, self._llvm, self._arith = mlir, llvm, arith

    def argument(self, variable, kind):
        """Read a variable as a value of one of Numba's types."""
        value = self._lowering.load_var(variable)
        if isinstance(kind, self._types.Array | self._types.Literal):
            return value
        number = self._number(kind)
        signed = getattr(kind, "signed", None)
        return _Value(self._utilities.convert(value, self._type(number), signed=signed), number)

    def result(self, value, kind):
        """Convert what a generator returned to one of Numba's types."""
        if isinstance(value, tuple):
            return tuple(self.result(element, kind.dtype) for element in value)
        if value is None:
            return None
        return self._lowering.mlir_convert(self._of(value), self._lowering.get_mlir_type(kind))

    def place_of(self, array, kind):
        """Return the address of an array's first element."""
        element, zeros = self._number(kind.dtype), [self._utilities.index_of(0)] * kind.ndim
        place = self._utilities.memref_to_llvm_ptr(array, zeros, self._type(element))
        return _Value(place, element.as_pointer())

    def _number(self, kind):
        if isinstance(kind, self._types.Float):
            return _FLOATS[kind.bitwidth]
        return ir.IntType(getattr(kind, "bitwidth", 1))

    def _type(self, kind):
        if isinstance(kind, ir.PointerType):
            return self._mlir.Type.parse(f"!llvm.ptr<{kind.addrspace}>" if kind.addrspace else "!llvm.ptr")
        if isinstance(kind, ir.VectorType):
            return self._mlir.VectorType.get([kind.count], self._type(kind.element))
        if isinstance(kind, ir.LiteralStructType):
            return self._llvm.StructType.get_literal([self._type(element) for element in kind.elements])
        return self._mlir.Type.parse({"half": "f16", "float": "f32", "double": "f64"}.get(str(kind), str(kind)))

    def _of(self, value):
        if not isinstance(value, ir.Constant):
            return value.mlir
        kind = self._type(value.type)
        if isinstance(value.type, ir.VectorType):
            return self._llvm.mlir_undef(kind)  # no other constant of this type is used
        return self._arith.constant(kind, value.constant)

    def call(self, asm, args):
        nothing = isinstance(asm.type, ir.VoidType)
        result = self._llvm.inline_asm(
            None if nothing else self._type(asm.type), [self._of(a) for a in args], asm.asm, asm.constraint,
            has_side_effects=asm.side_effect,
        )  # fmt: skip
        return None if nothing else _Value(result, asm.type)

    def extract_value(self, value, i):
        kind = value.type.elements[i]
        return _Value(self._llvm.extractvalue(self._type(kind), value.mlir, [i]), kind)

    def extract_element(self, vector, i):
        return _Value(self._llvm.extractelement(vector.mlir, self._of(i)), vector.type.element)

    def insert_element(self, vector, value, i):
        return _Value(self._llvm.insertelement(self._of(vector), self._of(value), self._of(i)), vector.type)

    def gep(self, place, indices):
        element, operands = self._type(place.type.pointee), [self._of(i) for i in indices]
        moved = self._llvm.getelementptr(place.mlir.type, place.mlir, operands, [_DYNAMIC], element, None)
        return _Value(moved, place.type)

    def load(self, place, align=None):
        kind = place.type.pointee
        return _Value(self._llvm.load(self._type(kind), place.mlir, alignment=align), kind)

    def store(self, value, place, align=None):
        self._llvm.store(self._of(value), place.mlir, alignment=align)

    def bitcast(self, place, kind):
        return _Value(place.mlir, kind)  # pointers of LLVM have no element type any more

    def addrspacecast(self, place, kind):
        wanted = self._type(kind)  # which arrays of shared memory have already
        return _Value(place.mlir if place.mlir.type == wanted else self._llvm.addrspacecast(wanted, place.mlir), kind)

    def ptrtoint(self, place, kind):
        return _Value(self._llvm.ptrtoint(self._type(kind), place.mlir), kind)

    def trunc(self, value, kind):
        return _Value(self._arith.trunci(self._type(kind), self._of(value)), kind)

    def zext(self, value, kind):
        return _Value(self._arith.extui(self._type(kind), self._of(value)), kind)

    def lshr(self, value, count):
        return _Value(self._arith.shrui(self._of(value), self._of(count)), value.type)

    def shl(self, value, count):
        return _Value(self._arith.shli(self._of(value), self._of(count)), value.type)

    def or_(self, one, other):
        return _Value(self._arith.ori(self._of(one), self._of(other)), one.type)

    def select(self, condition, one, other):
        return _Value(self._arith.select(condition.mlir, self._of(one), self._of(other)), one.type)

    def icmp_unsigned(self, operator, one, other):
        predicate = {"!=": self._arith.CmpIPredicate.ne}[operator]
        return _Value(self._arith.cmpi(predicate, self._of(one), self._of(other)), ir.IntType(1))


def _array_of(kind):
    """Return what `context.make_array` returns."""
    return lambda context, builder, array: SimpleNamespace(data=builder.place_of(array, kind))


_CONTEXT = SimpleNamespace(make_array=_array_of, get_dummy_value=lambda: None)


def _intrinsic(function):
    """Make an intrinsic of a function whose generator expects llvmlite's builder."""
    from numba_cuda_mlir.extending import intrinsic, refresh_registries

    @wraps(function)
    def typed(typing, *kinds):
        signature, generate = function(typing, *kinds)

        def lower(lowering, target, variables, named):
            builder = _Builder(lowering)
            args = [builder.argument(v, kind) for v, kind in zip(variables, signature.args, strict=True)]
            value = generate(_CONTEXT, builder, signature, args)
            lowering.store_var(target, builder.result(value, signature.return_type))

        return signature, lower

    registered = intrinsic(typed)
    refresh_registries(target=False)  # or one that is made after the first kernel is not known
    return registered


def _target():
    """Make the module that the kernels import as `quantarray.cuda.runtime.target`."""
    from numba_cuda_mlir import cuda, tools
    from numba_cuda_mlir.numba_cuda import types
    from numba_cuda_mlir.numba_cuda.core.errors import RequireLiteralValue

    tools._cached_cc = _CAPABILITY  # else it asks the driver, even where the target is named
    module = ModuleType("quantarray.cuda.runtime.target")
    vars(module).update(
        cuda=cuda, libdevice=cuda.libdevice, types=types, intrinsic=_intrinsic, RequireLiteralValue=RequireLiteralValue,
        config=SimpleNamespace(ENABLE_CUDASIM=False),
        cgutils=SimpleNamespace(pack_array=lambda builder, values: tuple(values)),
    )  # fmt: skip
    return module


def _lower_named_tuples():
    """Add to the successor how a kernel makes a named tuple: it has the type of such a call, and no lowering."""
    from numba_cuda_mlir.mlir_lowering import MLIRLower
    from numba_cuda_mlir.numba_cuda import types

    others = MLIRLower.lower_call_expr_assign

    def lower(lowering, target, function, variables, named, expr=None):
        if isinstance(lowering.get_numba_type(function.name), types.NamedTupleClass):
            lowering.store_var(target, tuple(lowering.load_vars(variables)))
        else:
            others(lowering, target, function, variables, named, expr)

    MLIRLower.lower_call_expr_assign = lower


class _Library:
    """Compile a kernel to LTO-IR, as Numba's library does."""

    def __init__(self, kernel, signature):
        self._kernel, self._signature = kernel, signature

    def get_ltoir(self, cc):
        from numba_cuda_mlir.compiler import _compile_and_optimize
        from numba_cuda_mlir.numba_cuda import types

        options = {"chip": "sm_" + "".join(map(str, cc)), "abi": "numba", "_compile_output": "ltoir", "lto": True}
        if bounds := self._kernel.targetoptions.get("launch_bounds"):
            options["launch_bounds"] = bounds
        return _compile_and_optimize(self._kernel.py_func, types.void(*self._signature), options).metadata["ltoir"]


def _use_successor(cuda_compile):
    from numba_cuda_mlir.numba_cuda import types
    from numba_cuda_mlir.numba_cuda.np.numpy_support import from_dtype
    from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

    import quantarray.cuda.runtime as runtime

    runtime.target = sys.modules["quantarray.cuda.runtime.target"] = _target()
    _lower_named_tuples()
    cuda_compile.typing_of_numba = lambda: SimpleNamespace(types=types, from_dtype=from_dtype, typeof=typeof)
    cuda_compile._lowered = _Library


def compiled_by(compiler):
    """{kernel: figures of its machine code, or the error} of one compiler, which the process did not use before."""
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("support", "cuda")]
    import cuda_compile
    import pytest

    if compiler == "numba_cuda_mlir":
        _use_successor(cuda_compile)
    from test_cuda_compiled import CASES, LINKED

    cases, figures = {case.name: case for case in CASES}, {}
    for kernel, name in KERNELS.items():
        try:
            with pytest.MonkeyPatch.context() as patch, cuda_compile.launches(patch) as launched:
                cases[name].call()
            last = launched[-1]  # others prepare its operands
            linked = cuda_compile.link(last.kernel, last.signature, LINKED)
        except Exception as error:  # one line of a compiler that failed: the point of this script
            figures[kernel] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            continue
        opcodes = re.findall(_OPCODE, cuda_compile.disassemble(linked.code, (9, 0, "a")))
        figures[kernel] = {
            "registers": linked.registers, "local bytes": linked.local, "shared bytes": linked.shared,
            "instructions": len(opcodes) - opcodes.count("NOP"),
            "without": [opcode for opcode in cases[name].needs if opcode not in opcodes],
        }  # fmt: skip
    return figures


def compared():
    """{compiler: figures of `compiled_by`}, each from a process of its own."""
    run = [sys.executable, "-m", "tools.successor"]
    done = {name: subprocess.run([*run, name], capture_output=True, text=True, cwd=ROOT) for name in COMPILERS}
    for name, process in done.items():
        if process.returncode:
            raise RuntimeError(f"{name}: {process.stderr}")
    return {name: json.loads(process.stdout) for name, process in done.items()}


def table(figures):
    """Return a table of Markdown, with the figures of both compilers in each cell."""
    columns = ["registers", "local bytes", "shared bytes", "instructions"]
    lines = [f"| kernel | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for kernel in KERNELS:
        both = [figures[compiler][kernel] for compiler in COMPILERS]
        cells = [", ".join(f"{one[column]:,}" if column in one else one["error"] for one in both) for column in columns]
        lines.append(f"| {kernel} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(compiled_by(sys.argv[1])) if sys.argv[1:] else table(compared()))
