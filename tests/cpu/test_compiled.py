"""Compiled functions on disk, after what they are made of has changed, and in parts."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from quantarray.cpu.runtime.on_disk import PACKAGE, closure

ENCODE = """
import json
import numpy as np
from numba.core import event

compiled = set()

class Listener(event.Listener):
    def on_start(self, started):
        compiled.add(started.data["dispatcher"].py_func.__code__.co_filename)

    def on_end(self, ended):
        pass

event.register("numba:compile", Listener())
import quantarray as qa

assert qa.encode(np.array([0, 1, 1, 0, 1]), (0, 1)).sum() == 3
print(json.dumps(sorted(compiled)))
"""


@pytest.fixture
def copy_of_package(tmp_path, monkeypatch):
    """Return a function that copies the package to a folder of a name; kernels of all copies are kept in one folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("NUMBA_OPT", "0")

    def copy(name):
        shutil.copytree(PACKAGE, tmp_path / name / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        return tmp_path / name

    return copy


def compiled_in(folder):
    """Return the files of a copy of the package whose functions a first call compiles, in a new process."""
    command = [sys.executable, "-B", "-c", ENCODE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return {Path(file).relative_to(folder) for file in json.loads(done.stdout) if file.startswith(str(folder))}


@pytest.mark.full
def test_kernels_on_disk_belong_to_the_texts_they_are_made_of(copy_of_package):
    one = copy_of_package("one")
    first = compiled_in(one)
    assert len(first) > 2
    assert compiled_in(one) == set()
    for file in one.rglob("*.py"):
        os.utime(file, (1e9, 1e9))
    assert compiled_in(one) == set()
    assert compiled_in(copy_of_package("other")) == set()
    changed = Path("quantarray/cpu/llvm/masks.py")
    with (one / changed).open("a") as file:
        file.write("# a comment\n")
    users = {file for file in first if str(ROOT / changed) in closure(str(ROOT / file))}
    assert 0 < len(users) < len(first)
    assert compiled_in(one) == users


@pytest.mark.full
def test_old_kernels_are_removed(copy_of_package):
    one = copy_of_package("one")
    compiled_in(one)
    kept = sorted((one.parent / "kernels").rglob("*.nbc"))
    for file in (one / "quantarray/cpu").rglob("*.py"):
        file.write_text(file.read_text() + "# a comment\n")
    compiled_in(one)
    left = sorted((one.parent / "kernels").rglob("*.nbc"))
    assert len(left) == len(kept)
    assert not set(left) & set(kept)


def imports(file):
    """Return the files of kernels that a file imports, by Python's own parser."""
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = Path(file).relative_to(PACKAGE.parent).parts[: -node.level] if node.level else ()
            module = [*package, *(node.module or "").split(".")]
            yield from ([*filter(None, module), *name] for name in ([], *([alias.name] for alias in node.names)))


def test_import_closures_are_those_of_the_parser():
    folders = [PACKAGE / name for name in ("core", "kernels", "cpu", "cuda")]
    files = {str(file) for folder in folders for file in folder.rglob("*.py")}
    for file in files:
        reached, left = set(), {file}
        while left:
            reached |= left
            paths = [PACKAGE.parent.joinpath(*parts) for one in left for parts in imports(one)]
            ends = {str(end) for path in paths for end in (path.with_suffix(".py"), path / "__init__.py")}
            left = ends & files - reached
        assert closure(file) == sorted(reached), file
    assert len(files) > 100


TYPES = """
from typing import NamedTuple
class {name}(NamedTuple):
    value: int
value = {name}({value})
"""
USES = """
from quantarray.cpu.runtime import jit
import types_of

@jit.entry
def value_of(one):
    return one.value

print(value_of(types_of.value), *value_of.stats.cache_hits.values())
"""


def test_kernels_of_a_class_that_is_gone_are_passed_over(tmp_path, monkeypatch):
    """Numba's own list of versions raises AttributeError where a class that it names is gone."""
    (tmp_path / "uses.py").write_text(USES)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name, printed in (("First", ["5"]), ("First", ["5", "1"]), ("Second", ["6"]), ("Second", ["6", "1"])):
        (tmp_path / "types_of.py").write_text(TYPES.format(name=name, value=len(name)))
        command = [sys.executable, "-B", "uses.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.split() == printed


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


@pytest.mark.full
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


@pytest.mark.full
def test_functions_that_count_no_references_return_no_arrays(tmp_path, monkeypatch):
    """A caller would take a returned array for its own, and release its memory once too often."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_OPT", "0")
    done = subprocess.run([sys.executable, "-c", OWNERS], capture_output=True, text=True, check=True)
    compiled, *wrong = done.stdout.split()
    assert int(compiled) > 20
    assert not wrong
