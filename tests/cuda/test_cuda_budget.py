"""Every kernel of `cuda_budget` stays within its bounds, on every target, and its page has the table."""

import os
from dataclasses import replace

import pytest
from cuda_budget import BLACKWELL, BUDGETS, all_rows, table
from cuda_compile import assemble, launches, needs_toolkit, opcodes
from paths import DOCS
from sass import Code
from test_cuda_compiled import dense

from quantarray.backends.diagnosis import version_of
from quantarray.cuda.runtime import isa, launch

pytestmark = [
    pytest.mark.full,
    needs_toolkit,
    pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="the simulator compiles nothing"),
]
PAGE = DOCS / "kernels" / "cuda.md"
LISTING = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   BMMA.168256.AND.POPC R4, R8.ROW, R12.COL, R4 ;
        /*0020*/              @!P0 BRA 0x10 ;
        /*0030*/                   STG.E [R2.64], R4 ;
        /*0040*/                   EXIT ;
        /*0050*/                   BRA 0x50 ;
        /*0060*/                   NOP ;
"""


@pytest.fixture(scope="module")
def found():
    return all_rows()


def test_bounds(found):
    assert len(found) == sum(len(budget.targets) for budget in BUDGETS)
    assert [line for row in found for line in row.wrong()] == []


def test_the_page_has_the_table(found):
    """With the compiler that the page names, all numbers are equal; `tests/support/cuda_budget.py` prints them."""
    text, version = PAGE.read_text(), version_of("nvidia-cuda-nvcc")
    if f"ptxas {version}," not in text:
        pytest.skip(f"the page's table is of another ptxas than {version}")
    assert table(found) in text


def test_more_than_the_bounds_is_seen(found):
    row = replace(found[0], loop=181, epilogue=1201)
    assert row.wrong() == [
        "bmma of bits to int32, dense, sm_80: main loop 181 > 180",
        "bmma of bits to int32, dense, sm_80: epilogue 1201 > 1200",
    ]


def test_loops_are_read_from_branches_backwards():
    code = Code.read(LISTING)
    loop = code.loop_of("BMMA")
    assert len(code) == 7 and [one.opcode for one in loop] == ["BMMA", "BRA"] and loop[1].predicate == "!P0"
    assert [one.opcode for one in code.after(loop)] == ["STG", "EXIT"]


@pytest.mark.parametrize(("rows", "kernel", "opcode"), [(30, "imma_tile", "IMMA"), (15, "few_rows", "POPC")])
def test_bits_on_blackwell(rows, kernel, opcode, monkeypatch):
    """The instruction on bits is made of products of bytes there, so bits become bytes, or few rows are counted."""
    monkeypatch.delenv(isa.VARIABLE, raising=False)
    monkeypatch.setattr(launch, "capability", lambda: BLACKWELL)
    with launches(monkeypatch) as found:
        dense((-1, 1), 128, rows=rows)()
    names = [one.kernel.py_func.__name__ for one in found]
    assert kernel in names and len(set(names) & {"few_rows", "bmma_tile", "imma_tile"}) == 1
    one = found[names.index(kernel)]
    (used,) = opcodes([assemble(one.kernel, one.signature, BLACKWELL).code], BLACKWELL)
    assert opcode in used and "BMMA" not in used and ("IMMA" in used) == (opcode == "IMMA")
