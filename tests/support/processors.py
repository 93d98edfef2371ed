"""Features of this CPU, and programs and tests in processes that compile for another."""

import os
import platform
import subprocess
import sys

import llvmlite.binding
from paths import ROOT

from quantarray.cpu.runtime import isa

FEATURES = llvmlite.binding.get_host_cpu_features()
AVX2 = FEATURES.get("avx2", False)
AVX512BW = isa.NAME == "avx512bw" or set(isa.SETS["avx512bw"][0]) <= isa.FEATURES
# Tile instructions trap here, and `tile_processor.py` can carry them out
PLAYED = (sys.platform, platform.machine()) == ("linux", "x86_64") and {
    feature for feature in isa.SETS["amx"][0] if not FEATURES.get(feature, False)
} == {"amx-tile", "amx-int8"}


def run(code, **environment):
    """Run a program in a process whose choice of a CPU is `environment`'s alone."""
    unset = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_CPU", "QUANTARRAY_CPU"))}
    return subprocess.run([sys.executable, "-c", code], env=unset | environment, capture_output=True, text=True)


def pytest_of(arguments, environment):
    """Run tests in a process whose environment has more, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *arguments]
    unset = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}  # of this run's process
    return subprocess.run(command, env=unset | environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
