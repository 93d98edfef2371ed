"""Runs the files of CUDA tests in Numba's simulator, which has to be chosen before Numba is imported."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = [f.name for f in sorted(HERE.glob("test_cuda_*.py")) if "\nfrom cuda_backend import " in f.read_text()]


@pytest.mark.skipif(find_spec("numba_cuda") is None, reason="needs numba-cuda")
@pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="this process runs in the simulator")
@pytest.mark.parametrize("name", FILES)
def test_in_the_simulator(name):
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", HERE / name]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "QUANTARRAY_EXAMPLES": "20"}
    made = subprocess.run(command, env=environment, cwd=HERE.parent, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-5000:]
    assert " passed" in made.stdout and "skipped" not in made.stdout, made.stdout[-500:]
