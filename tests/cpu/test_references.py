"""Functions compiled without reference counts release nothing: they allocate nothing, themselves or by what they call."""

import ast
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher
from paths import ROOT

import quantarray.cpu
from quantarray.cpu.popcount import in_registers
from quantarray.cpu.runtime.aligned import empty_lines
from quantarray.cpu.runtime.jit import borrowing, inline, inner

_COPIES = {"copy", "astype", "flatten", "repeat", "tolist"}  # methods of arrays that allocate
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type(np.concatenate))


def functions():
    """Return all functions of `quantarray.cpu` that Numba compiles, of every instruction set."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(quantarray.cpu.__path__, "quantarray.cpu.")]
    return {one for module in modules for one in vars(module).values() if isinstance(one, CPUDispatcher)}


def tree(function):
    return ast.parse(textwrap.dedent(inspect.getsource(function.py_func)))


def called(function):
    """Yield what each call in a function's text calls: an object, or the name of a method."""
    names = function.py_func.__globals__ | inspect.getclosurevars(function.py_func).nonlocals
    for node in ast.walk(tree(function)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield names.get(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = names.get(getattr(node.func.value, "id", None))
            yield getattr(np, node.func.attr) if of is np else node.func.attr


def gives_memory(function):
    """True if a function returns something and allocates, itself or by what it calls."""
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(tree(function)))
    return returns and any(map(allocates, called(function)))


def allocates(one):
    """True for what gives its caller memory to release: of NumPy, of arrays, or of the package."""
    if isinstance(one, CPUDispatcher):
        return gives_memory(one)
    return one in _COPIES if isinstance(one, str) else isinstance(one, _FUNCTIONS) and not isinstance(one, np.ufunc)


def without_counts(functions):
    return [one for one in functions if not one.targetoptions.get("_nrt", True)]


def wrong(functions):
    return {one.py_func.__name__ for one in without_counts(functions) if any(map(allocates, called(one)))}


@inline
def _by_numpy(x):
    return np.zeros(len(x)).sum()


@borrowing
def _by_a_method(x):
    return x.copy().sum()


@inline
def _by_a_function(x):
    return empty_lines(1, x.dtype).size


@inner
def _two_lines(x):
    both = empty_lines(2, x.dtype)
    return both[0], both[1]


@inline
def _by_what_that_calls(x):
    return _two_lines(x)[0].size


@inner
def _released(x):
    empty_lines(1, x.dtype)[0] = x[0]


@inline
def _right(x):
    _released(x)
    return np.uint64(x[0]) + np.minimum(x[0], x[1])


def test_what_allocates_is_seen():
    assert wrong([_by_numpy, _by_a_method, _by_a_function, _by_what_that_calls, _right]) == {
        "_by_numpy", "_by_a_method", "_by_a_function", "_by_what_that_calls",
    }  # fmt: skip


def test_no_function_without_counts_allocates():
    """`value_blocks` of AVX-512 did, once a task: 21 KB a call of linear, 3000x256 by 128x256."""
    every = functions()
    assert {in_registers.value_blocks, in_registers.mask_blocks} <= every
    assert len(without_counts(every)) > 80
    assert wrong(every) == set()
