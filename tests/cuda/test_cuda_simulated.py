"""Runs the files of CUDA tests in Numba's simulator, which has to be chosen before Numba is imported."""

import os
from importlib.util import find_spec

import pytest
from paths import TESTS
from processors import pytest_of

THERE = find_spec("numba_cuda") is not None and "NUMBA_ENABLE_CUDASIM" not in os.environ
FILES = [f for f in TESTS.rglob("test_cuda_*.py") if "\nfrom cuda_backend import " in f.read_text()]
FILES = {f.name: f for f in sorted(FILES, key=lambda f: (-f.stat().st_size, f.name))}  # about the longest first
SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1", "QUANTARRAY_EXAMPLES": "10", "QUANTARRAY_CASES": "16"}


@pytest.mark.full
@pytest.mark.skipif(not THERE, reason="needs numba-cuda, and a process that is not in the simulator")
@pytest.mark.parametrize("name", FILES)
def test_in_the_simulator(name):
    done = pytest_of([str(FILES[name])], SIMULATOR)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-500:]
