"""Compile functions. None checks what it divides by.

Numba writes each function two wrappers, by which Python and C call it, and compiles them too: a sixth of the time that
the first convolution on a machine takes, for functions that only compiled ones call.

Compiled functions are kept on disk by the text of what they are made of (`on_disk`).

Forks wait while a function is compiled, for Numba's and LLVM's locks are held then (`quantarray.core.forks`).
"""

from functools import partial

import llvmlite.binding as llvm
from numba import njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock

from ...core.forks import no_fork, wait_for
from .on_disk import KernelCache


def stored(function):
    """Let a function that Numba compiles be kept on disk by the text of the files that it is made of."""
    if hasattr(function, "_cache"):  # not where Numba compiles nothing
        function._cache = KernelCache(function.py_func)
    return function


class _Part(JITCodeLibrary):
    """A library of code that is always a part of other functions: it is neither optimised nor assembled by itself.

    All that is left to assemble is the variable that Numba keeps for each function.
    """

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        part, empty = self._final_module, self._codegen._create_empty_module(self.name)
        for function in part.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = llvm.Linkage.linkonce_odr
        variables = [str(one) for one in part.global_variables if "NumbaEnv" in one.name]
        self._shared_module = part
        self._final_module = llvm.parse_assembly("\n".join([str(empty), *variables]))
        super()._finalize_final_module()


class _PartCompiler(Compiler):
    def __init__(self, typingctx, targetctx, library, *rest):
        library = _Part(targetctx.codegen(), "part")
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *rest)


def entry(function, _nrt=True, **options):
    """Compile a function that Python calls."""
    options |= {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": _nrt}
    return _with_forks_waiting(_without_literals(stored(njit(function, **options))))


def _without_literals(function):
    """Compile one version for integers, whether a caller writes a number or a variable: all are inlined in any case."""
    template = getattr(function, "get_call_template", None)  # none where Numba compiles nothing
    if template is not None:

        def template_of(args, kws):
            return template(tuple(map(types.unliteral, args)), {name: types.unliteral(of) for name, of in kws.items()})

        function.get_call_template = template_of  # which Numba looks up by name
    return function


def _with_forks_waiting(function):
    """Wrap a function: a first call with arguments of new types holds `no_fork` while it is compiled."""
    compile_for = getattr(function, "_compile_for_args", None)  # none where Numba compiles nothing
    if compile_for is not None:

        def compile_alone(*args, **kwargs):
            with no_fork:
                return compile_for(*args, **kwargs)

        function._compile_for_args = compile_alone  # which Numba's C code looks up by name
    return function


for _owner in (global_compiler_lock, getattr(llvm.ffi.lib, "_lock", None)):  # finalizers hold the second, in any thread
    if _lock := getattr(_owner, "_lock", None):  # not public: where a later version has none of that name, none waits
        wait_for(_lock)
kernel = partial(entry, no_cpython_wrapper=True)  # for functions that are called by their address
inner = partial(kernel, pipeline_class=_PartCompiler)  # what only compiled functions call: from Python, it crashes
# Without reference counts, so that tuples and slices cost nothing: for functions that allocate nothing and return no
# arrays (docs/decisions/0016), called or compiled into their callers
borrowing = partial(inner, _nrt=False)
inline = partial(borrowing, forceinline=True)
