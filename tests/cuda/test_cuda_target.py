"""Numba's CUDA target is imported in one file, and kernels compile under the newest NumPy.

That is a process without `np.row_stack`, which NumPy 2.5 removed.
"""

import re
import subprocess
import sys

from cuda_compile import needs_toolkit
from paths import ROOT, SUPPORT

# numba-cuda overloads the function when it compiles its first kernel; Numba's CPU target has done so by then
PROGRAM = """
import sys
sys.path.insert(0, {support!r})
import numba.np.arrayobj
import numpy as np
np.__dict__.pop("row_stack", None)
from cuda_compile import assemble
from numba import types
from quantarray.cuda.bits import gather
rows, places = types.Array(types.uint32, 2, "C"), types.Array(types.int64, 2, "C")
assemble(gather._gather, (rows, types.int64, places, rows), (8, 0))
print(hasattr(np, "row_stack"))
"""


def test_one_file_imports_the_target():
    """Its successor has other modules: a change of it is a change of this file."""
    imports = re.compile(r"^\s*(from|import)\s+numba(_cuda)?\b", re.MULTILINE)
    files = [f for f in (ROOT / "quantarray" / "cuda").rglob("*.py") if imports.search(f.read_text())]
    assert [f.name for f in files] == ["target.py"]


@needs_toolkit
def test_numpy_without_row_stack(monkeypatch):
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(support=str(SUPPORT))], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"], "NumPy is left as it was"
