"""The tests that need a GPU, and some of them under compute-sanitizer, each in a process of its own."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).resolve().parents[2]
# Kernels with shared memory, races and atomics; products of many blocks, in the largest tile of bmma and of wgmma
SANITIZED = "conv2d or linear or quantize or top_k or argsort or many_blocks"
_MARKED = re.compile(r"^@(pytest\.mark\.gpu|GPUS)$", re.MULTILINE)
# Without the driver's errors: Numba asks for functions that a driver may lack, and goes on
SANITIZER = "compute-sanitizer", "--error-exitcode", "99", "--report-api-errors", "no"
_SHORT = ("--tb=short", "--maxfail=5", "-p", "no:cacheprovider", "-o", "addopts=")


def files():
    """List the test files that have tests for a GPU: others may import packages that no GPU test needs."""
    marked = sorted(f for f in (ROOT / "tests").rglob("test_*.py") if _MARKED.search(f.read_text()))
    return [f.relative_to(ROOT).as_posix() for f in marked]


def tests(only, seconds):
    """Run the tests for a GPU and return a line for each failure."""
    return _run(_pytest(only), seconds)


def sanitized(only, seconds):
    """Run some GPU tests under compute-sanitizer and return a line for each failure.

    Returns no lines if the sanitizer is not installed or does not support the device.
    """
    if not shutil.which("compute-sanitizer"):
        print("without compute-sanitizer: it is not installed")
        return []
    return _run((*SANITIZER, *_pytest(only or SANITIZED)), seconds)


def pytest_of(only, names):
    """Return the command that runs the GPU tests in the files `names`; `only` selects tests by name."""
    return (sys.executable, "-m", "pytest", "-q", "-m", "gpu", *_SHORT, *names, *(("-k", only) if only else ()))


def _pytest(only):
    return pytest_of(only, files())


def _run(command, seconds):
    shown = " ".join(command[:4])
    print(f"{shown} ..", flush=True)
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        stop = Timer(seconds, process.kill)
        stop.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        stop.cancel()
    if any("Device not supported" in line for line in lines):
        print(f"without {command[0]}: it does not support this device")
        return []
    if process.returncode < 0:
        return [f"gpu: {shown} .. was ended after {seconds:.0f} s; --budget gives it more, --only takes fewer"]
    return [f"gpu: {shown} .. failed with exit code {process.returncode}"] if process.returncode else []
