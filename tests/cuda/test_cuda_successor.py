"""The successor of numba-cuda compiles one kernel of each kind. docs/decisions/0034-numbas-successor.md has figures.

It has no simulator, so nothing here runs a kernel.
"""

from importlib.util import find_spec

import pytest
from cuda_compile import needs_toolkit
from paths import DOCS

from tools.successor import COMPILERS, KERNELS, compared, table

LOCAL = {"bmma": 448}  # bytes of stack and spills at most; none where a kernel is not named


@needs_toolkit
@pytest.mark.full
@pytest.mark.skipif(find_spec("numba_cuda_mlir") is None, reason="needs numba-cuda-mlir")
def test_the_successor_compiles_one_kernel_of_each_kind(monkeypatch):
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    figures = compared()
    print(table(figures))
    before, after = (figures[compiler] for compiler in COMPILERS)
    for kernel in KERNELS:
        assert "error" not in after[kernel], after[kernel]
        assert after[kernel]["without"] == before[kernel]["without"] == []
        assert after[kernel]["shared bytes"] == before[kernel]["shared bytes"]
        assert after[kernel]["registers"] <= before[kernel]["registers"] + 8
        assert after[kernel]["local bytes"] <= LOCAL.get(kernel, 0)


def test_the_page_has_a_row_for_each_kernel():
    page = (DOCS / "decisions" / "0034-numbas-successor.md").read_text()
    assert all(f"| {kernel} |" in page for kernel in KERNELS)
