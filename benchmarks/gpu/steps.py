"""Steps of the plan, each a process: `python -m benchmarks.gpu.steps NAME OUT.json SECONDS`.

A step gives a dict, which is written to OUT.json; one that cannot run raises. Steps that need CuPy say so and are
skipped where it is missing: those before them use Numba's own device arrays.
"""

import json
import os
import shutil
import subprocess
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from . import checks
from .plan import FAILED, NO_DEVICE, OK, SKIPPED

FAIL = "QUANTARRAY_PLAN_FAIL"  # a step that is to fail, or "all": for trying the plan out
NEEDED = {  # what is looked for, and what is skipped without it
    "numba": "everything", "numba_cuda": "everything", "cupy": "arrays, tests and times of the package",
    "pytest": "tests", "hypothesis": "tests", "torch": "cuDNN and cuBLAS as contenders",
}  # fmt: skip
TOOLS = {"nvidia-smi": "clocks", "ncu": "counters", "compute-sanitizer": "memcheck and racecheck"}
SECTIONS = (
    "SpeedOfLight", "WarpStateStats", "Occupancy", "MemoryWorkloadAnalysis", "SchedulerStats", "SourceCounters",
    "LaunchStats",
)  # fmt: skip


def versions(seconds):
    """Report the versions of packages and tools, and print which are missing; later steps skip what needs those."""
    from quantarray.backends.diagnosis import version_of

    missing = {name: what for name, what in NEEDED.items() if not find_spec(name)}
    missing |= {name: what for name, what in TOOLS.items() if not shutil.which(name)}
    of_cuda = ("cuda-toolkit", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12", "cupy-cuda12x", "cupy-cuda13x")
    names = ("numpy", "numba", "numba-cuda", *of_cuda, "torch", "quantarray")
    for name, what in missing.items():
        print(f"without {name}: no {what}", flush=True)
    return {"python": sys.version.split()[0], "versions": {n: version_of(n) for n in names}, "missing": missing}


def one_kernel(seconds):
    """Compile and run a kernel of one line on Numba's arrays: a check of compiler, linker and driver together."""
    import numpy as np
    from numba import cuda

    from quantarray.cuda.runtime import launch

    @cuda.jit
    def add(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + np.float32(1)

    x, out = cuda.to_device(np.arange(1000, dtype=np.float32)), cuda.device_array(1000, np.float32)
    launch.run(add, 8, 128, x, out)
    assert (out.copy_to_host() == np.arange(1000) + 1).all(), "a wrong sum"
    major, minor = launch.capability()
    return {"compute_capability": f"{major}.{minor}", "device": str(cuda.get_current_device().name)}


def numba_arrays(seconds):
    """Run products and packing on Numba's arrays, compare them with the CPU, time them with and without transfers."""
    from .numba_arrays import compared

    return {"rows": compared(seconds)}


def tests_of_popc(seconds):
    return _tests("popc", "tests/cuda/test_gpu_products.py", seconds)


def tests_of_bmma(seconds):
    return _tests("(bmma or imma or bytes) and not wgmma", "tests/cuda/test_gpu_products.py", seconds)


def tests_of_wgmma(seconds):
    return _tests("wgmma", "tests/cuda/test_gpu_products.py", seconds)


def tests_of_arrays(seconds):
    """Run the tests of devices, of exchange with other libraries and of networks, without those of products."""
    files = [name for name in checks.files() if "gpu_products" not in name]
    return _tests("", *files, seconds)


def _tests(only, *files_and_seconds):
    *files, seconds = files_and_seconds
    _needs("cupy", "pytest", "hypothesis")
    return _ran(checks.pytest_of(only, files), seconds)


def first_product(seconds):
    return _times(seconds, "--suite", "product", "--only", "8192^3")


def first_convolution(seconds):
    return _times(seconds, "--suite", "conv", "--only", "batch 32")


def first_packing(seconds):
    return _times(seconds, "--suite", "pack")


def tables(seconds):
    """Time all cases, as far as the time allows."""
    return _times(seconds)


def _times(seconds, *how):
    """Run `python -m benchmarks gpu --part times` and return the times that it wrote."""
    from tempfile import TemporaryDirectory

    _needs("cupy")
    with TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        command = [sys.executable, "-m", "benchmarks", "gpu", "--part", "times", "--rounds", "5", *how]
        budget = max(1, int(seconds * 0.7))
        done = _ran([*command, "--budget", str(budget), "--json", str(out)], seconds, fails=False)
        return {**done, "times": json.loads(out.read_text()) if out.exists() else None}


def counters(seconds):
    """Collect Nsight Compute's sections of each kernel, on the calls that `profile` marks for it."""
    from .profile import CASES

    _needs("cupy")
    _needs_tool("ncu")
    sections = [word for name in SECTIONS for word in ("--section", name)]
    profiles = {}
    for name in CASES:
        if name == "wgmma" and os.environ.get("QUANTARRAY_PLAN_WGMMA") == "no":
            continue
        command = ["ncu", "--profile-from-start", "off", "--nvtx", *sections, sys.executable, "-m"]
        profiles[name] = _ran([*command, "benchmarks.gpu.profile", name], seconds / len(CASES), fails=False)
    return {"profiles": profiles}


def sweep_of_tiles(seconds):
    from .sweeps import tiles

    _needs("cupy")
    return {"rows": tiles(seconds)}


def sweep_of_stages(seconds):
    """Time tiles of three and more stages, and `wgmma` without its proxy fence, to see the fence's cost."""
    from .sweeps import stages

    _needs("cupy")
    return {"rows": stages(seconds)}


def layouts(seconds):
    """Compare two layouts of planes: outermost, as in the package, and beside each other within a pixel."""
    from .layouts import compared

    return {"rows": compared()}


def memcheck(seconds):
    return _sanitized("memcheck", seconds)


def racecheck(seconds):
    return _sanitized("racecheck", seconds)


def _sanitized(tool, seconds):
    _needs("cupy", "pytest", "hypothesis")
    _needs_tool("compute-sanitizer")
    return _ran((*checks.SANITIZER, "--tool", tool, *checks.pytest_of(checks.SANITIZED, checks.files())), seconds)


def _ran(command, seconds, fails=True):
    """Run a command and return its exit code and last output; raises RuntimeError if it fails and `fails` is True."""
    try:
        done = subprocess.run(command, cwd=checks.ROOT, timeout=seconds, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"ended after {seconds:.0f} s: {' '.join(map(str, command[:4]))}") from error
    text = (done.stdout + done.stderr)[-4000:]
    if done.returncode and fails:
        print(text)
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(map(str, command[:4]))}")
    return {"returncode": done.returncode, "tail": text}


class Missing(Exception):
    """A missing package or tool, which a step needs."""


def _needs(*packages):
    missing = [name for name in packages if not find_spec(name)]
    if missing:
        raise Missing(f"needs {', '.join(missing)}")


def _needs_tool(name):
    if not shutil.which(name):
        raise Missing(f"needs {name}")


def has_device():
    """Test if Numba finds a GPU."""
    try:
        import_module("quantarray.cuda.runtime.launch")
        from numba import cuda

        return bool(cuda.is_available())
    except Exception as error:
        print(f"no device: {error}")
        return False


def main(name, out, seconds):
    step = globals()[name]
    if os.environ.get(FAIL) in (name, "all"):
        report = {"status": FAILED, "error": "a fake failure"}
    else:
        report = _attempt(step, float(seconds))
    Path(out).write_text(json.dumps(report))
    return 1 if report["status"] == FAILED else 0


def _attempt(step, seconds):
    """Run a step and return its report with a status. `versions`, the first step, needs no device."""
    on_device = has_device()
    if not on_device and step is not versions:
        return {"status": NO_DEVICE}
    try:
        report = step(seconds)
    except Missing as error:
        return {"status": SKIPPED, "why": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"status": FAILED, "error": f"{type(error).__name__}: {error}"}
    return {"status": OK if on_device else NO_DEVICE, **report}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
