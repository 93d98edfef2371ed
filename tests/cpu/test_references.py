"""Functions compiled without reference counts release nothing, so they allocate nothing; and calls lose no memory."""

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
from paths import ROOT, SUPPORT

import quantarray.cpu
from quantarray.cpu.popcount import in_registers
from quantarray.cpu.runtime.aligned import empty_lines
from quantarray.cpu.runtime.jit import borrowing, inline, inner

_COPIES = {"copy", "astype", "flatten", "repeat", "tolist"}  # methods of arrays that allocate
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type(np.concatenate))


def functions():
    """Return all functions of `quantarray.cpu` that Numba compiles, of every instruction set."""
    modules = pkgutil.walk_packages(quantarray.cpu.__path__, "quantarray.cpu.")
    objects = (one for module in modules for one in vars(importlib.import_module(module.name)).values())
    return {one for one in objects if isinstance(one, CPUDispatcher)}


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


def counted(program, **environment):
    """Run a program in a process where Numba counts its blocks, and return {call: blocks lost}, which it prints."""
    paths = os.pathsep.join(map(str, (ROOT, SUPPORT)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=ROOT,
        env=os.environ | {"NUMBA_NRT_STATS": "1", "PYTHONPATH": paths} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


FAMILIES = """
from quantarray.cpu.runtime.schedule import Held
from tests.long import leaks

held = []
lost = {name: leaks.lost(call, 20) for name, call in leaks.FAMILIES.items()}
print(lost | {"a list that grows": leaks.lost(lambda: held.append(Held((1, 2))), 20)})
"""


@pytest.mark.full
def test_kernels_of_all_families_lose_no_memory():
    lost = counted(FAMILIES)
    assert len(lost) > 15 and {name: n for name, n in lost.items() if n} == {"a list that grows": 20}


EMULATED = """
import avx512_emulated
import numpy as np
import quantarray as qa
from quantarray.cpu.popcount.conv import IN_REGISTERS
from tests.long import leaks

assert IN_REGISTERS
rng, lost = np.random.default_rng(0), {}
for rows, columns, outputs in ((300, 256, 70), (1, 100, 33), (9, 640, 64)):
    a, b = (rng.choice([-1, 1], (n, columns)) for n in (rows, outputs))
    x, w = qa.encode(a, (-1, 1)), qa.encode(b, (-1, 1))
    assert (qa.linear(x, w) == a @ b.T).all()
    assert (qa.linear(x, w, requantize=qa.Thresholds([0])).codes() == (a @ b.T > 0)).all()
    lost[f"values {rows}"] = leaks.lost(lambda: qa.linear(x, w))
    lost[f"bits {rows}"] = leaks.lost(lambda: qa.linear(x, w, requantize=qa.Thresholds([0])))
print(lost)
"""


@pytest.mark.full
def test_counts_in_registers_lose_no_memory(tmp_path):
    """The kernels of AVX-512 with VPOPCNTDQ, on any CPU. `value_blocks` once lost a block a task, 100 here."""
    lost = counted(EMULATED, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_OPT="0")
    assert len(lost) == 6 and set(lost.values()) == {0}, lost
