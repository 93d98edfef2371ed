"""Count the Python files of the package that a `conv2d` of single bits passes, in a process of its own.

Counted are the files of functions that are called, as `sys.setprofile` sees them, with kernels compiled before and
found on disk. What runs while a module is imported does not count: it is no step of the call. Functions that the
package compiles to machine code are no Python frames.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from paths import ROOT

# Files of the first call outside `cpu/`, and of the second call. Which files of `cpu/` the first passes depends on the
# CPU: costs, threads and the kernel of its instruction set, 13 on those with counts in vectors (avx512vpopcntdq).
# The first call makes and reads `Constants`, which have a file of their own, core/constants.py, beside that of dtypes.
LIMITS = {"int32": (22, 9), "bits": (25, 10)}
MOST_OF_CPU = 15
CALLS = """
import json, sys
import numpy as np
import quantarray as qa

rng = np.random.default_rng(0)
x = qa.encode(rng.choice([-1, 1], (1, 14, 14, 64)), values=(-1, 1))
w = qa.encode(rng.choice([-1, 1], (64, 3, 3, 64)), values=(-1, 1))
requantize = qa.Thresholds(np.zeros((64, 1))) if sys.argv[1] == "bits" else None
qa.set_num_threads(1)  # several wait for work in cpu/thread_pool.py, a file more
conv2d, optimized = qa.conv2d, 1  # of a code object's flags: functions have it, modules and bodies of classes have not


def is_imported(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "quantarray/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def files_passed():
    files = {}

    def note(frame, event, argument):
        code = frame.f_code
        ours = event == "call" and "/quantarray/" in code.co_filename and code.co_flags & optimized
        if ours and not is_imported(frame):
            files.setdefault(code.co_filename.rpartition("/quantarray/")[2], set()).add(code.co_name)

    sys.setprofile(note)
    conv2d(x, w, padding=1, requantize=requantize)
    sys.setprofile(None)
    return {file: sorted(names) for file, names in files.items()}


print(json.dumps([files_passed(), files_passed()]))
"""


@pytest.fixture(scope="module", params=LIMITS)
def passed(request):
    """(limits, files of the first call, files of the second), after a process in which kernels were compiled."""
    command = [sys.executable, "-c", CALLS, request.param]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
    first, second = json.loads(done.stdout)
    return LIMITS[request.param], first, second


def listed(files):
    return "\n".join(f"  {file}: {', '.join(names)}" for file, names in files.items())


def test_the_first_call_passes_few_files(passed):
    (limit, _), first, _ = passed
    print(f"{len(first)} files of the first call\n{listed(first)}")
    of_cpu = [file for file in first if file.startswith("cpu/")]
    assert "ops/products/convolution.py" in first and 0 < len(of_cpu) <= MOST_OF_CPU, listed(first)
    assert len(first) - len(of_cpu) <= limit, listed(first)


def test_the_second_call_passes_few_files(passed):
    (_, limit), first, second = passed
    print(f"{len(second)} files of the second call\n{listed(second)}")
    assert second.keys() <= first.keys()
    assert len(second) <= limit, listed(second)
