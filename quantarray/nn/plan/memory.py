"""Plan the memory of recorded launches: which results need some, for how long, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators.movement import order_in_memory
from .recording import Launched, address, replaced, root

_LINE = 128  # bytes to which the places of blocks are rounded


@dataclass
class Block:
    """A piece of memory that launches `first` to `last` use, from byte `at` of the plan's on.

    `owner` is the array that had it when recorded. `cleared`: it has to be all zero before the first of them.
    """

    owner: Array
    first: int
    last: int
    cleared: bool
    at: int = -1

    @property
    def size(self) -> int:
        """Return the bytes of whole lines that it needs wherever its owner begins in a line."""
        return (-(-self.owner.nbytes // _LINE) + 1) * _LINE


def blocks_of(launches: list[Launched], others: list[Launched], read_after: Sequence[Array]) -> dict[int, Block]:
    """Find the memory that launches write, by the id of its owner; `read_after` is read after the last of them.

    `others` is a recording of the same launches on other elements, whose memory is still held: arrays that both have
    are no results of a launch. Arrays that no launch changed stay where they are, such as constants that are made for
    each call. Memory that was zero before both is cleared before each call; memory that was zero before only one of
    them is not.
    """
    last, blocks = len(launches), dict[int, Block]()
    for i, (launch, other) in enumerate(zip(launches, others, strict=True)):
        for a, b, writable in zip(launch.arrays, other.arrays, launch.writable, strict=True):
            owner = root(a)
            if id(owner) in blocks:
                blocks[id(owner)].last = i
            elif writable and owner is not root(b):
                cleared = not launch.begins[id(owner)].any() and not other.begins[id(root(b))].any()
                # One may have got the memory of an earlier call with the same results
                if cleared or launch.changed(owner) or other.changed(root(b)):
                    blocks[id(owner)] = Block(owner, i, i, cleared)
    for a in read_after:
        if id(root(a)) in blocks:
            blocks[id(root(a))].last = last
    return blocks


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
    """A plan's bytes, and the arrays in it that replace those of a recording."""

    def __init__(self, blocks: dict[int, Block], inputs: Sequence[Array]) -> None:
        """Plan memory for blocks, and for arrays that replace `inputs`."""
        self._blocks, self.inputs = blocks, [np.empty_like(a, order="K") for a in inputs]
        self._taken = {id(root(a)): memory for a, memory in zip(inputs, self.inputs, strict=True)}
        size = place(list(blocks.values()))
        self.bytes = _lines(size)

    def array(self, a: Array, writable: bool | None = None) -> Array:
        """Return the array that replaces `a`: in the plan's memory, or `a` itself if it is a constant."""
        owner = root(a)
        if id(owner) in self._taken:
            moved = _at(self._taken[id(owner)], address(a) - address(owner), a)
        elif id(owner) in self._blocks:
            block = self._blocks[id(owner)]
            moved = _at(self.bytes, block.at + address(owner) % _LINE + address(a) - address(owner), a)
        elif writable and not a.flags.writeable:
            moved = a.copy("K")  # locked since
        else:
            moved = a if writable is None else a.view()
        if writable is not None and moved.flags.writeable != writable:
            moved.flags.writeable = writable
        return moved

    def arguments(self, launch: Launched) -> Any:
        """Return a launch's arguments with their arrays replaced, by writable ones where theirs were."""
        writable = iter(launch.writable)
        return replaced(launch.arguments, lambda a: self.array(a, next(writable)))

    def clears(self, i: int) -> list[Array]:
        """Return the memory to clear before launch i."""
        blocks = [block for block in self._blocks.values() if block.cleared and block.first == i]
        return [self.array(block.owner.reshape(-1).view(np.uint8)) for block in blocks if block.owner.nbytes]


def _lines(size: int) -> Array:
    """Allocate bytes that begin on two cache lines."""
    raw = np.empty(size + _LINE, np.uint8)
    first = -address(raw) % _LINE
    return raw[first : first + size]


def _at(memory: Array, offset: int, like: Array) -> Array:
    """Return an array like another, from some byte of a memory on."""
    flat = memory.transpose(order_in_memory(memory)).reshape(-1).view(np.uint8)
    moved: Array = np.ndarray(like.shape, like.dtype, flat, offset, like.strides)
    return moved
