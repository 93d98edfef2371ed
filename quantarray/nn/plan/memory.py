"""Plan the memory of recorded launches: which results need some, for how long, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .recording import Launched, Recorder, replaced
from .reserved import address

_LINE = 128  # bytes to which the places of blocks are rounded


@dataclass
class Block:
    """A piece of memory that launches `first` to `last` use, from byte `at` of the plan's on.

    `cleared`: it has to be all zero before the first of them.
    """

    size: int
    first: int
    last: int
    cleared: bool
    at: int = -1


def place(blocks: list[Block]) -> int:
    """Lay out blocks so that those in use at the same time do not overlap; return the bytes of all.

    The largest first, in order of their use, each at the first gap that is large enough.
    """
    placed: list[Block] = []
    for block in sorted(blocks, key=lambda one: (-one.size, one.first)):
        at = 0
        for other in sorted(placed, key=lambda one: one.at):
            together = other.first <= block.last and block.first <= other.last
            if together and at < other.at + other.size and other.at < at + block.size:
                at = other.at + other.size
        block.at = at
        placed.append(block)
    return max([0, *(block.at + block.size for block in placed)])


class Memory:
    """A plan's bytes, and the arrays in it that replace those of a recording, which have no elements."""

    def __init__(self, recorder: Recorder, inputs: Sequence[Array], read_after: Sequence[Array]) -> None:
        """Plan memory for what launches use and for what is read after the last of them, and arrays for `inputs`."""
        self._recorder = recorder
        self._taken = {recorder.place_of(a): _lines(a.nbytes) for a in inputs}
        self.inputs = [_at(memory, 0, a) for a, memory in zip(inputs, self._taken.values(), strict=True)]
        self._blocks: dict[int, Block] = {}
        for i, launch in enumerate(recorder.launches):
            self._use(i, launch.arrays)
        self._use(len(recorder.launches), read_after)
        size = place(list(self._blocks.values()))
        self.bytes = _lines(size)

    def _use(self, i: int, arrays: Sequence[Array]) -> None:
        """Note that launch i uses arrays."""
        for number in map(self._recorder.place_of, arrays):
            if number is not None and number not in self._taken:
                nbytes, cleared = self._recorder.places[number][1:]
                self._blocks.setdefault(number, Block(-(-nbytes // _LINE) * _LINE, i, i, cleared)).last = i

    def array(self, a: Array, writable: bool | None = None) -> Array:
        """Return the array that replaces `a`: in the plan's memory, or `a` itself if it is a constant."""
        number = self._recorder.place_of(a)
        if number is None:
            if writable and not a.flags.writeable:
                return a.copy("K")  # locked since
            moved = a if writable is None else a.view()
        else:
            offset = address(a) - self._recorder.places[number].address
            if number in self._taken:
                moved = _at(self._taken[number], offset, a)
            else:
                moved = _at(self.bytes, self._blocks[number].at + offset, a)
        if writable is not None and moved.flags.writeable != writable:
            moved.flags.writeable = writable
        return moved

    def arguments(self, launch: Launched) -> Any:
        """Return a launch's arguments with their arrays replaced, by writable ones where theirs were."""
        writable = iter(launch.writable)
        return replaced(launch.arguments, lambda a: self.array(a, next(writable)))

    def clears(self, i: int) -> list[Array]:
        """Return the memory to clear before launch i."""
        blocks = [block for block in self._blocks.values() if block.cleared and block.first == i and block.size]
        return [self.bytes[block.at : block.at + block.size] for block in blocks]


def _lines(size: int) -> Array:
    """Allocate bytes that begin on two cache lines."""
    raw = np.empty(size + _LINE, np.uint8)
    first = -address(raw) % _LINE
    return raw[first : first + size]


def _at(memory: Array, offset: int, like: Array) -> Array:
    """Return an array like another, from some byte of a memory on.

    It does not own it: packed results lock what they are views of.
    """
    moved: Array = np.ndarray(like.shape, like.dtype, memory, offset, like.strides)
    return moved
