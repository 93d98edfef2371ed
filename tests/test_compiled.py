"""Compiled functions on disk, after what they were made of has changed."""

import subprocess
import sys

import pytest

from quantarray.cpu.compiled import sources

TYPES = """
from typing import NamedTuple
class {name}(NamedTuple):
    value: int
made = {name}({value})
"""
USES = """
import sys
from quantarray.cpu import compiled
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
    made = tmp_path / "cpu" / "micro" / "bits.py"
    made.parent.mkdir(parents=True)
    made.write_text("a")
    other = tmp_path / "kernels.py"
    other.write_text("b")
    found = {sources(tmp_path)}
    assert sources(tmp_path) in found
    for file in (made, other):
        file.write_text("more")
        found.add(sources(tmp_path))
    assert len(found) == 3
