"""Threads of GNU OpenMP, called as compiled loops of C are.

A `prange` is such a team too, but Numba makes tables for it, and threads wait for each other at the end of its loop and
once more at the end of the team: 1.7 us by two threads, where this takes 1.05 (docs/decisions/0015).
"""

import ctypes
from functools import cache

import llvmlite.binding
import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing import signature as signed
from numba.extending import intrinsic

from .compiled import kept
from .deal import address_of, work, workers_of
from .micro.vectors import I8, I32, I64

_SYMBOLS = {"GOMP_parallel": "quantarray_parallel", "omp_get_thread_num": "quantarray_thread"}
_ADDRESS, _VOID = I8.as_pointer(), ir.VoidType()
_BODY = ir.FunctionType(_VOID, [_ADDRESS])
_ARGUMENTS = 5


@cache
def team():
    """The address of what `deal.dealer` has as a loop, or None where threads are not GNU OpenMP's."""
    if not _found():
        return None
    return address_of(_start, (types.int64,) * _ARGUMENTS)


def _found():
    """True where Numba's threads are of a library that has the functions, which compiled code then finds by name."""
    if numba.threading_layer() != "omp":
        return False
    from numba.np.ufunc import omppool

    library = ctypes.CDLL(omppool.__file__)
    try:
        addresses = {ours: getattr(library, theirs) for theirs, ours in _SYMBOLS.items()}
    except AttributeError:  # another OpenMP
        return False
    for name, function in addresses.items():
        llvmlite.binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return True


@intrinsic
def _start_team(typingctx, function, held, dealt, tasks, takes, workers):
    """`work` by so many threads, each of which is told its number."""

    def codegen(context, builder, signature, args):
        *given, workers = args
        told = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, given))
        body = _body(context, builder.module, told.type)
        kind = ir.FunctionType(_VOID, [_BODY.as_pointer(), _ADDRESS, I32, I32])
        parallel = cgutils.get_or_insert_function(builder.module, kind, "quantarray_parallel")
        number = builder.trunc(workers, I32)
        builder.call(parallel, [body, builder.bitcast(told, _ADDRESS), number, ir.Constant(I32, 0)])
        return context.get_dummy_value()

    return types.void(function, held, dealt, tasks, takes, workers), codegen


def _body(context, module, told):
    """What each thread calls."""
    body = ir.Function(module, _BODY, module.get_unique_name("of_a_thread"))
    body.linkage = "internal"
    builder = ir.IRBuilder(body.append_basic_block())
    given = cgutils.unpack_tuple(builder, builder.load(builder.bitcast(body.args[0], told)))
    kind = ir.FunctionType(I32, [])
    number = builder.call(cgutils.get_or_insert_function(module, kind, "quantarray_thread"), [])
    takes = signed(types.none, *[types.int64] * (_ARGUMENTS + 1))
    compiled = context.compile_subroutine(builder, work.py_func, takes)
    context.call_internal_no_propagate(builder, compiled.fndesc, takes, [*given, builder.sext(number, I64)])
    builder.ret_void()
    return body


@kept
@njit(cache=True, nogil=True)
def _start(function, held, dealt, tasks, takes):
    _start_team(function, held, dealt, tasks, takes, workers_of(dealt))
