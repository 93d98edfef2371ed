"""Counts of the instructions of kernels' machine code: the table of `docs/kernels/cuda.md`, and bounds of its rows.

python tests/support/cuda_budget.py        prints the table
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))  # where CASES are

import pytest
from cuda_compile import Assembled, assemble, disassemble, launches, name_of
from sass import Code

AMPERE, HOPPER, BLACKWELL = (8, 0), (9, 0, "a"), (12, 0)
LANES = 32


@dataclass(frozen=True)
class Budget:
    """A case of `test_cuda_compiled.CASES`, its kernel, and the most that it may issue.

    `loop` are instructions of the main loop for 32 `product`s or, of packing, for 128 bytes of values, or of a `stage`;
    `epilogue` those of a warp after it, which finishes `results`.
    """

    case: str
    kernel: str
    targets: tuple
    product: str  # opcode that the main loop is there for
    loop: int
    epilogue: int = 0
    results: int = 64 * 64  # of a warp
    values: int = 0  # bytes of values that a lane reads in the main loop
    stage: bool = False  # count the main loop as it is, a stage, instead of 32 products


BOTH, ALL = (AMPERE, HOPPER), (AMPERE, HOPPER, BLACKWELL)
BUDGETS = (
    Budget("bmma of bits to int32, dense", "bmma_tile", BOTH, "BMMA", 180, 1200),
    Budget("bmma of bits to int32", "bmma_tile", BOTH, "BMMA", 180, 1200),
    Budget("bmma of bits to 1 bit, dense", "bmma_tile", BOTH, "BMMA", 180, 3000),
    Budget("bmma to int32, 128 x 128, pairs of words", "bmma_tile", BOTH, "BMMA", 480, 1200),
    Budget("wgmma of bits to int32, dense", "wgmma_tile", (HOPPER,), "BGMMA", 270, 1200, stage=True),
    Budget("wgmma of bits to 1 bit, dense", "wgmma_tile", (HOPPER,), "BGMMA", 270, 3000, stage=True),
    Budget("imma of 2 by 8 bits to int32, dense", "imma_tile", ALL, "IMMA", 600, 1200, results=32 * 64, stage=True),
    Budget("imma of 4 by 4 bits to codes", "imma_tile", ALL, "IMMA", 600, 3000, results=32 * 64, stage=True),
    Budget("imma of 8 by 8 bits to int32", "imma_tile", ALL, "IMMA", 800, 1200, results=32 * 64, stage=True),
    Budget("imma of images of 4 channels to int32, 64 x 64", "imma_tile", ALL, "IMMA", 800, 1200, 32 * 32, stage=True),
    Budget("conv to int32, 128 channels", "integer_tile", ALL, "POPC", 150),
    Budget("few rows: 1 of bits to int32", "few_rows", BOTH, "POPC", 180),
    Budget("few rows: 1 of 8 bits by 4 to int32", "few_rows", BOTH, "POPC", 150),
    Budget("few rows: 8 of bits to 1 bit", "few_rows", ALL, "POPC", 170),
    Budget("few rows: 8 of 2 bits by 8 to codes", "few_rows", ALL, "POPC", 130),
    Budget("nearest by bmma", "bmma_tile", BOTH, "BMMA", 400, 2000, 32 * 32),
    Budget("depthwise of 1 bit to int32 by bytes", "depthwise_tile", ALL, "IMMA", 250, 400, 32 * 32),
    Budget("depthwise of 4 bits to int32 by bytes", "depthwise_tile", ALL, "IMMA", 250, 400, 32 * 32),
    Budget("depthwise of 1 bit to 1 bit by bytes", "depthwise_tile", ALL, "IMMA", 250, 800, 32 * 32),
    Budget("depthwise of 4 bits to 4 bits by bytes", "depthwise_tile", ALL, "IMMA", 250, 1400, 32 * 32),
    Budget("encode float32 to 1 bits", "encode_short", ALL, "VOTE", 40, values=32),
    Budget("encode float32 to 2 bits", "encode_short", ALL, "VOTE", 40, values=32),
    Budget("encode float32 to 4 bits, whole lines", "encode_along", ALL, "LDS", 700, values=16, stage=True),
    Budget("encode float32 to 8 bits, whole lines", "encode_along", ALL, "LDS", 850, values=16, stage=True),
    Budget("encode_groups float32", "encode_groups_of", ALL, "STS", 600, stage=True),
    Budget("decode_levels of 1 bits to float32", "unpack_codes", ALL, "LDS", 220, stage=True),
    Budget("decode_levels of 8 bits to float32", "unpack_codes", ALL, "LDS", 130, stage=True),
    Budget("decode_uniform to float32, in groups", "unpack_codes", ALL, "DMUL", 200, stage=True),
    Budget("unpack 8 bits, whole lines", "unpack_codes", ALL, "STG", 250, stage=True),
    Budget("pack to 1 bits", "pack_codes", ALL, "LDG", 40, values=32),
    Budget("pack to 1 bits, whole lines", "pack_codes", ALL, "LDG", 40, values=32),
)


@dataclass(frozen=True)
class Row:
    """A row of the table: what a kernel issues on a target, and what it takes of the multiprocessor."""

    budget: Budget
    target: tuple
    loop: float
    epilogue: int
    in_flight: int  # bytes of values that a lane waits for at once
    asm: Assembled
    dynamic: int  # bytes of shared memory that the launch asks for

    def wrong(self):
        """List what is over the budget."""
        limits = ("main loop", self.loop, self.budget.loop), ("epilogue", self.epilogue, self.budget.epilogue)
        over = [f"{what} {n:.0f} > {most}" for what, n, most in limits if most and n > most]
        over += [f"{self.in_flight} bytes in flight"] if self.in_flight < self.budget.values else []
        over += [f"{self.asm.local} bytes spill"] if self.asm.local else []
        return [f"{self.budget.case}, {name_of(self.target)}: {line}" for line in over]

    def cells(self):
        shared, b = self.asm.shared + self.dynamic, self.budget
        finish = f"{self.epilogue:,} ({self.epilogue * LANES / b.results:.1f})" if b.epilogue else ""
        flight = str(self.in_flight) if b.values else ""
        loop = f"{self.loop:.0f}"
        return b.case, name_of(self.target), loop, finish, flight, self.asm.registers, f"{shared:,}", self.asm.local


def rows(budget, case, monkeypatch):
    """Return a row for each target of a budget, from the case that it names."""
    with launches(monkeypatch) as launched_kernels:
        case.call()
    launched = next(one for one in launched_kernels if one.kernel.py_func.__name__ == budget.kernel)
    return [_row(budget, launched, target) for target in budget.targets]


def _row(budget, launched, target):
    assembled = assemble(launched.kernel, launched.signature, target)
    code = Code.read(disassemble(assembled.code, target))
    main = code.loop_of(budget.product)
    in_flight = _in_flight(main) if budget.values else 0
    if budget.stage:
        loop = len(main)
    elif budget.values:
        loop = len(main) * 128 / (budget.values * LANES)
    else:
        loop = len(main) * 32 / main.count(budget.product)
    epilogue = len(code.after(main)) if budget.epilogue else 0
    return Row(budget, target, loop, epilogue, in_flight, assembled, launched.shared)


def _in_flight(loop):
    """Count the bytes of values that a lane loads from one address before it uses any of them; tables do not count."""
    sizes, places, over = {"U8": 1, "S8": 1, "U16": 2, "64": 8, "128": 16}, {}, set()
    for one in loop:
        sources = one.operands if one.opcode == "STG" else one.operands.partition(",")[2]
        used = set(map(int, re.findall(r"\bR(\d+)", sources)))
        over |= {base for base, registers in places.items() if used & registers.keys()}
        if one.opcode == "LDG":
            first, base = int(re.match(r"R(\d+)", one.operands)[1]), re.search(r"\[(R\d+)[^\[]*$", one.operands)[1]
            size = next((sizes[part] for part in one.name.split(".") if part in sizes), 4)
            if base not in over:
                places.setdefault(base, {}).update({first + i: min(size, 4) for i in range(-(-size // 4))})
    return max((sum(registers.values()) for registers in places.values()), default=0)


HEAD = (
    "kernel", "target", "main loop", "epilogue (for 32 results)", "bytes in flight", "registers", "shared bytes",
    "spilled bytes",
)  # fmt: skip


def table(listed):
    """Format rows as Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in listed)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def all_rows():
    from test_cuda_compiled import CASES

    cases, listed = {case.name: case for case in CASES}, []
    with pytest.MonkeyPatch.context() as monkeypatch:
        for budget in BUDGETS:
            listed += rows(budget, cases[budget.case], monkeypatch)
    return listed


if __name__ == "__main__":
    print(table(all_rows()))
