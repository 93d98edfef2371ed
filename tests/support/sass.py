"""Machine code read as loops of instructions, to count what a kernel issues.

A loop is the code between a branch backwards and its target: compilers place a loop's instructions together.
"""

import re
from bisect import bisect_left
from typing import NamedTuple

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);")


class Instruction(NamedTuple):
    """An instruction: its address in bytes, its predicate or "", opcode with modifiers, and operands."""

    at: int
    predicate: str
    name: str
    operands: str

    @property
    def opcode(self):
        return self.name.partition(".")[0]

    @property
    def target(self):
        """Return where a branch goes, or None."""
        match = re.search(r"0x([0-9a-f]+)", self.operands) if self.opcode == "BRA" else None
        return int(match[1], 16) if match else None


class Code(tuple):
    """A kernel's instructions in order."""

    @classmethod
    def read(cls, text):
        """Parse what the disassembler prints of one kernel, less what runs only where a warp has come apart.

        Compilers place that after all other code, and branch to it by BRA.DIV.
        """
        all_of = [Instruction(int(m[1], 16), m[2] or "", m[3], m[4]) for m in _LINE.finditer(text)]
        apart = min((one.target for one in all_of if one.name == "BRA.DIV"), default=all_of[-1].at + 1)
        return cls(one for one in all_of if one.at < apart)

    def count(self, *opcodes):
        return sum(one.opcode in opcodes for one in self)

    def loops(self):
        """List all loops, as `Code`, in the order of their ends."""
        loops, places = [], [one.at for one in self]
        for i, one in enumerate(self):
            if one.target is not None and one.target < one.at:
                loops.append(Code(self[bisect_left(places, one.target) : i + 1]))
        return loops

    def loop_of(self, *opcodes):
        """Return the smallest of the loops that have at least half of what any loop has of some opcodes."""
        most = max((loop.count(*opcodes) for loop in self.loops()), default=0)
        assert most, f"no loop has {opcodes}"
        return min((loop for loop in self.loops() if 2 * loop.count(*opcodes) >= most), key=len)

    def longest(self, opcode="", most=True):
        """Count the instructions of the longest path through a loop, of those with most of an opcode, or with least.

        Branches go forwards or are not taken: loops inside count once.
        """
        places, best = {one.at: i for i, one in enumerate(self)}, [(0, 0)] * (len(self) + 1)
        for i in range(len(self) - 1, -1, -1):
            one = self[i]
            to = places.get(one.target, len(self)) if one.target is not None else i
            nexts = [best[to]] if to > i else []
            if to <= i or one.predicate or "U.ANY" in one.name:
                nexts.append(best[i + 1])
            products, count = max(nexts)
            best[i] = products + (one.opcode == opcode) * (1 if most else -1), count + 1
        return best[0][1]

    def after(self, part):
        """Return the code after a part, to the end, without the padding."""
        rest = [one for one in self if one.at > part[-1].at]
        while rest and rest[-1].opcode in ("NOP", "BRA"):
            rest.pop()
        return Code(rest)
