"""Runs the files of CUDA tests in Numba's simulator, which has to be chosen before Numba is imported."""

import os
from importlib.util import find_spec

import beside
import pytest
from paths import TESTS

THERE = find_spec("numba_cuda") is not None and "NUMBA_ENABLE_CUDASIM" not in os.environ
FILES = {f.name: f for f in sorted(TESTS.rglob("test_cuda_*.py")) if "\nfrom cuda_backend import " in f.read_text()}
SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1", "QUANTARRAY_EXAMPLES": "20"}
BESIDE = {f"test_in_the_simulator[{name}]": ([str(FILES[name])], SIMULATOR) for name in FILES if THERE}


@pytest.mark.skipif(not THERE, reason="needs numba-cuda, and a process that is not in the simulator")
@pytest.mark.parametrize("name", FILES)
def test_in_the_simulator(name, request):
    made = beside.result(request)
    assert made.returncode == 0, made.stdout[-5000:]
    assert " passed" in made.stdout and "skipped" not in made.stdout, made.stdout[-500:]
