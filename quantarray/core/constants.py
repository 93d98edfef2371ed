"""The numbers that turn a dtype's codes into values: a scale, an offset, a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bfloat16 import bfloat16_bits, bfloat16_values
from .format import is_locked, locked
from .super_blocks import Array, SuperBlocks

_MOST_BYTES = 1 << 12  # of constants, as a key


class Constants:
    """A law's numbers. They broadcast against the logical shape, and read as float32 however they are stored.

    `scale` and `offset` have the array's number of axes, 1 where they don't vary (a basis' scale has its planes
    before that, a `table` its levels). With `group`, element i of the packed axis uses entry i // group there.

    Those that a quantiser fits have 1 for the axes that it was told to reduce. `from_codes` takes scale, offset and
    table by name and needs none.

    They are read-only for good: an array that its maker could still write to is copied.

    They are stored as they were given: all as float32, or all as bfloat16, which NumPy lacks: as its bits in uint16. A
    scale or an offset beside float32 may be `SuperBlocks`, integers times float16, which `scale` and `offset` multiply
    at each read. `shapes`, `nbytes` and `stored` are about what is stored; `items` and `map` have float32 of
    super-blocks, so that what changes constants returns float32, unless it moves whole rows only.
    """

    __slots__ = ("_form", "_stored", "_values")

    def __init__(
        self,
        scale: Array | SuperBlocks | None = None,
        offset: Array | SuperBlocks | None = None,
        table: Array | None = None,
        group: int | None = None,
    ) -> None:
        arrays = {"scale": scale, "offset": offset, "table": table}
        self._stored = {name: _read_only(a) for name, a in arrays.items() if a is not None}
        self._form = group, tuple([a.shape for a in self._stored.values()])  # what is there, but for its values

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Return the numbers as what has a hash; None for so many that they will not be met again."""
        if not self._stored:
            return ()
        values: tuple[Any, ...] | None = getattr(self, "_values", None)
        if values is None and self.nbytes <= _MOST_BYTES:
            arrays = [(name, a.dtype.char, a.tobytes()) for name, a, _ in self.items()]
            values = self._values = *self._form, *arrays
        return values

    @property
    def scale(self) -> Array | None:
        return self._read("scale")

    @property
    def offset(self) -> Array | None:
        return self._read("offset")

    @property
    def table(self) -> Array | None:
        return self._read("table")

    @property
    def has_scale(self) -> bool:
        """True where there is a scale, which is not read: that would multiply super-blocks."""
        return "scale" in self._stored

    @property
    def group(self) -> int | None:
        return self._form[0]

    def _read(self, name: str) -> Array | None:
        a = self._stored.get(name)
        if isinstance(a, SuperBlocks):
            return a.values()
        if a is None or a.dtype != np.uint16:
            return None if a is None else a.view()
        values = bfloat16_values(a)
        values.flags.writeable = False
        return values

    @property
    def bfloat16(self) -> bool:
        """True where the numbers are stored as bfloat16, all of them."""
        return {a.dtype for a in self._stored.values()} == {np.dtype(np.uint16)}

    @property
    def super_blocks(self) -> dict[str, SuperBlocks]:
        """Return those that are stored as integers times float16, by name."""
        return {name: a for name, a in self._stored.items() if isinstance(a, SuperBlocks)}

    def to_bfloat16(self) -> Constants:
        """Round these constants to bfloat16 and store them so; -0 becomes 0."""
        rounded = {name: bfloat16_bits(getattr(self, name)) for name in self._stored}
        for bits in rounded.values():
            bits[bits == 0x8000] = 0
        return Constants(**rounded, group=self.group)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each constant."""
        return self._form[1]

    def stored(self) -> list[tuple[str, Array | SuperBlocks, int]]:
        """(name, array or super-blocks, leading axes that are not the logical shape's) of each constant."""
        scale, offset = self._stored.get("scale"), self._stored.get("offset")
        lead = 0 if scale is None or offset is None else scale.ndim - offset.ndim
        leads = {"scale": lead, "offset": 0, "table": 1}
        return [(name, a, leads[name]) for name, a in self._stored.items()]

    def items(self) -> list[tuple[str, Array, int]]:
        """(name, array as stored, leading axes that are not the logical shape's) of each constant that is there.

        Super-blocks are read as float32.
        """
        if not self._stored:
            return []
        return [(name, a.values() if isinstance(a, SuperBlocks) else a, lead) for name, a, lead in self.stored()]

    def varies(self, axis: int) -> bool:
        """True where a number is not one for all of an axis of the logical shape."""
        return any(a.shape[lead + axis] != 1 for _, a, lead in self.stored())

    def map(self, change: Callable[[Array, int], Array], group: int | None = None, rows: bool = False) -> Constants:
        """Replace each array, as stored, by change(array, leading axes).

        `change` returns views of what it gets, or new arrays, which become the constants' without a copy: constants
        of single elements can be larger than the words. With `rows` it leaves the last axis as it is: super-blocks
        then stay super-blocks.
        """
        changed: dict[str, Any] = {}
        for name, a, lead in self.stored():
            if rows and isinstance(a, SuperBlocks):
                changed[name] = a.map(lambda part, lead=lead: change(part, lead))
                continue
            b = change(a.values() if isinstance(a, SuperBlocks) else a, lead)
            changed[name] = b if is_locked(b) else locked(b)
        return Constants(**changed, group=group)

    def with_group(self, group: int | None) -> Constants:
        """Return the same numbers, stored as they are, with another length of groups."""
        return self.map(lambda a, lead: a, group, rows=True)

    def buffers(self) -> list[Array]:
        """Return the arrays in whose memory all is stored."""
        parts = ([a.stored, a.halves] if isinstance(a, SuperBlocks) else [a] for a in self._stored.values())
        return [a for some in parts for a in some]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._stored.values())

    def __repr__(self) -> str:
        """List shapes and ranges.

        >>> Constants(scale=np.float32([[0.5], [2]]), offset=np.float32([[-1]]), group=64)
        Constants(scale (2, 1) 0.5 to 2, offset (1, 1) -1, group 64)
        """
        listed = [f"{name} {a.shape} {_range(getattr(self, name))}" for name, a in self._stored.items()]
        group = [] if self.group is None else [f"group {self.group}"]
        form = [*["in bfloat16"] * self.bfloat16, *["in super-blocks"] * bool(self.super_blocks)]
        return f"Constants({', '.join([*listed, *group, *form])})"


def _range(a: Array) -> str:
    if not a.size:
        return "empty"
    low, high = f"{a.min():.4g}", f"{a.max():.4g}"
    return low if low == high else f"{low} to {high}"


def _read_only(a: Any) -> Any:
    if isinstance(a, SuperBlocks):
        return a
    a = np.asarray(a)
    return a if is_locked(a) else locked(a.copy())
