"""Compiled functions on disk, after what they were made of has changed."""

import subprocess
import sys

import pytest

from quantarray.cpu.runtime.jit import sources

TYPES = """
from typing import NamedTuple
class {name}(NamedTuple):
    value: int
made = {name}({value})
"""
USES = """
import sys
from quantarray.cpu.runtime import jit as compiled
compiled.SOURCES = sys.argv[1]
import types_of

@compiled.entry
def value_of(given):
    return given.value

print(value_of(types_of.made), *value_of.stats.cache_hits.values())
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """What the program prints, with types of a name and sources of another."""
    (tmp_path / "uses.py").write_text(USES)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))

    def run(name, told):
        (tmp_path / "types_of.py").write_text(TYPES.format(name=name, value=len(name)))
        return subprocess.run(
            [sys.executable, "-B", "uses.py", told], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def test_functions_are_kept_until_their_sources_change(run):
    assert run("First", "one").stdout.split() == ["5"]
    assert run("First", "one").stdout.split() == ["5", "1"]  # from disk
    assert run("Second", "two").stdout.split() == ["6"]
    assert run("Second", "two").stdout.split() == ["6", "1"]


def test_sources_are_all_files_that_kernels_are_made_of(tmp_path):
    made = tmp_path / "cpu" / "llvm" / "masks.py"
    made.parent.mkdir(parents=True)
    made.write_text("a")
    other = tmp_path / "kernels" / "contract.py"
    other.parent.mkdir()
    other.write_text("b")
    found = {sources(tmp_path)}
    assert sources(tmp_path) in found
    for file in (made, other):
        file.write_text("more")
        found.add(sources(tmp_path))
    assert len(found) == 3


ONE = """
import numpy as np
import quantarray as qa
from quantarray.cpu.popcount import tiles

rng = np.random.default_rng(0)
"""
NARROW = """
a = qa.encode(rng.integers(0, 2, (3, 70)), values=(0, 1))
print(int(qa.linear(a, a).sum()) == (a.codes().sum(0).astype(int) ** 2).sum())
"""
WIDE = """
a = qa.encode(rng.integers(0, 256, (2, 40000)), values=range(256))
found = qa.linear(a, a)
codes = a.codes().astype(np.int64)
print(found.dtype == np.int64 and (found == codes @ codes.T).all(), tiles.lanes_of.stats.cache_hits.total() > 0)
"""


def test_kernels_are_made_of_parts_from_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_OPT", "0")
    for program, told in ((NARROW, ["True"]), (WIDE, ["True", "True"])):
        done = subprocess.run([sys.executable, "-c", ONE + program], capture_output=True, text=True, check=True)
        assert done.stdout.split() == told


OWNERS = """
import importlib
import pkgutil

import numpy as np
from numba import types
from numba.core.registry import CPUDispatcher

import quantarray as qa
import quantarray.cpu


def arrays(of):
    return any(map(arrays, of.types)) if isinstance(of, types.BaseTuple) else isinstance(of, types.Array)


rng, some = np.random.default_rng(0), qa.Thresholds([0, 1, 3])
x = qa.encode(rng.integers(0, 4, (4, 14, 14, 64)), values=(0, 1, 2, 3), axis=-1)
w = qa.encode(rng.integers(0, 4, (64, 3, 3, 64)), values=(0, 1, 2, 3), axis=-1)
qa.conv2d(x > 1, w > 1, requantize=some)
qa.conv2d(x, w, stride=2, requantize=some)
qa.conv2d(x, w, requantize=some)
qa.conv2d(x, qa.quantize(rng.standard_normal((64, 3, 3, 64)), qa.LQ(2, basis=(0.3, 1)), axis=-1), requantize=some)
qa.conv2d(x, w[..., :1], groups=64, requantize=some)
found = {}
for module in pkgutil.walk_packages(quantarray.cpu.__path__, "quantarray.cpu."):
    for function in vars(importlib.import_module(module.name)).values():
        if isinstance(function, CPUDispatcher) and not function.targetoptions.get("_nrt", True):
            found[function.py_func] = [made.signature.return_type for made in function.overloads.values()]
print(len(list(filter(None, found.values()))), *(f.__name__ for f, given in found.items() if any(map(arrays, given))))
"""


def test_functions_that_count_no_references_return_no_arrays(tmp_path, monkeypatch):
    """Whose caller would take them for its own, and give their memory back once too often."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_OPT", "0")
    done = subprocess.run([sys.executable, "-c", OWNERS], capture_output=True, text=True, check=True)
    compiled, *wrong = done.stdout.split()
    assert int(compiled) > 20
    assert not wrong
