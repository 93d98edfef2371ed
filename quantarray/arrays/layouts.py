"""The cache of an array: layouts of its words, prepared calls, and where they find their pixels.

    bytes of layouts <= bytes of the array + the larger of 256 KiB and a sixteenth of these
    bytes of plans and thresholds <= 4 MiB

Plans and thresholds may be more where the latest call alone has more: nothing could be done without them. What has not
been used for the longest time is dropped first; a thread that computes with it holds it until it has done.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ..backends.registry import empty, kernel
from ..core.forks import Uninterrupted, wait_for
from ..core.format import WORD, locked

_ROOM, _SHARE = 1 << 18, 16  # for sums and constants of outputs, and layouts of small arrays: bytes, or a part
_PLANS = 1 << 22  # bytes of what goes with pixels and thresholds, most of which other layers share
_MOST = 128  # entries: images of ever new sizes have a prepared call each
_GEOMETRY = ("Plan", "Squares", "Frame", "PairedRows")  # of `kernels/operands.py`, whose length is that of an image
_BY_PIXEL = {"Rescale": ("kinds",), "Finish": ("thresholds", "flip", "toggles", "lines")}
_LEAVES = ("DType", "Window", "Thresholds", "Layouts", "Recorded")  # of the last, arrays are the calls' and tables

_lock = Uninterrupted()  # of all arrays, for microseconds
wait_for(_lock)


class Buffers:
    """A table of the memory under an entry by its address: {id of a buffer: bytes}, of layouts and of all else."""

    def __init__(self, values: Iterable[Any], but: Iterable[Any] = ()) -> None:
        self.layouts: dict[int, int] = {}
        self.others: dict[int, int] = {}
        self._seen = {id(_root(a)) for a in but}
        for value in values:
            self._add(value, self.layouts)

    @property
    def nbytes(self) -> int:
        return sum((self.others | self.layouts).values())

    def _add(self, value: Any, to: dict[int, int]) -> None:
        if isinstance(value, type):  # out_dtype=np.int64 among a call's arguments: the class has an `nbytes`, too
            return
        if hasattr(value, "nbytes") and hasattr(value, "strides"):
            value = _root(value)
            if id(value) not in self._seen:
                to.setdefault(id(value), value.nbytes)
            return
        if isinstance(value, partial):
            value = value.args, value.keywords
        name, of_package = type(value).__name__, type(value).__module__.startswith("quantarray.")
        plain = isinstance(value, tuple | list | dict)
        if not (plain or of_package) or name in _LEAVES or id(value) in self._seen:
            return
        self._seen.add(id(value))
        to = self.others if name in _GEOMETRY else to
        for key, part in _parts(value, plain and not of_package):
            aside = key in _BY_PIXEL.get(name, ()) or key == "tiles"
            self._add(part, self.others if aside else to)


def _root(a: Any) -> Any:
    """Return the array whose memory an array is a view of."""
    while type(a.base) is type(a):
        a = a.base
    return a


def _parts(value: Any, plain: bool) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from list(value.items())
    elif isinstance(value, tuple | list):
        yield from zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    else:
        names = [name for of in type(value).__mro__ for name in getattr(of, "__slots__", ())]
        for name in [*getattr(value, "__dict__", ()), *names]:
            part = getattr(value, name, None)
            yield name, part.values() if isinstance(part, Layouts) else part


def room(nbytes: int) -> int:
    """Return how many more bytes than an array of `nbytes` its layouts may have."""
    return max(_ROOM, nbytes // _SHARE)


class LaidOut(NamedTuple):
    """An array's words that are held by a layout alone: the kernel `name` undoes it."""

    device: str
    name: str
    words: Any
    groups: int
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return WORD.itemsize * math.prod(self.shape)

    def restored(self) -> Any:
        """Restore the words, read-only."""
        out = empty(self.device, self.shape)
        channels = self.shape[1]
        kernel(self.device, self.name)(self.words, self.groups, out.reshape(self.shape[0], channels, -1))
        return locked(out)


class Layouts:
    """A cache of entries by a key. Reading needs no lock; `array` is the words and the constants whose layouts they
    are."""

    __slots__ = (
        "__weakref__", "_array", "_held", "_latest", "_more", "_outer", "_room", "_ticks", "_used", "entries",
    )  # fmt: skip

    def __init__(self, array: list[Any]) -> None:
        self.entries: dict[Any, Any] = {}
        self._array = array
        nbytes = sum(a.nbytes for a in array)
        self._room, self._more = nbytes + room(nbytes), 0
        self._held: dict[Any, Buffers] = {}
        self._used: dict[Any, int] = {}  # when each entry was used last
        self._ticks, self._latest = 0, None
        self._outer: Any = None  # the layouts of an array that has a view with these among its own

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def values(self) -> list[Any]:
        return list(self.entries.values())

    @property
    def nbytes(self) -> int:
        """Count the bytes of all entries, each buffer once, without the array's."""
        return Buffers(self.values(), self._array).nbytes + self._more

    def use(self, key: Any) -> None:
        """Note that an entry was used now."""
        self._ticks += 1
        self._used[key] = self._ticks

    def put(self, key: Any, entry: Any, *, again: bool = False) -> Any:
        """Keep an entry, or the one that another thread has put meanwhile unless it comes `again`; returns it."""
        with _lock:
            if not again:
                entry = self.entries.setdefault(key, entry)
            self.entries[key] = entry
            if hasattr(entry, "_cache"):
                layouts_of(entry)._outer = weakref.ref(self)
            self._changed(key)
        return entry

    def alias(self, key: Any, entry: Any, of: Any) -> None:
        """Replace an entry by one that holds the same memory as the entry of the key `of`."""
        with _lock:
            self.entries[key] = entry
            self._held[key] = self._held.get(of) or Buffers([entry], self._array)
            self.use(of)
            self.use(key)

    def keep_once(self, words: Any, nbytes: int) -> None:
        """Take a layout for the array's words, of so many bytes: there is room for no other besides."""
        with _lock:
            self._array = [words, *self._array[1:]]
            self._room, self._more = room(nbytes), max(0, words.nbytes - nbytes)
            self._held = {key: Buffers([entry], self._array) for key, entry in self.entries.items()}
            self._drop(None)

    def clear(self) -> None:
        with _lock:
            for a in (self.entries, self._held, self._used):
                a.clear()

    def _changed(self, key: Any) -> None:
        """Look at an entry, and at the latest one, which calls may have added to; drop what is too much."""
        for k in {key, self._latest} & self.entries.keys():
            self._held[k] = Buffers([self.entries[k]], self._array)
        self._latest = key
        self.use(key)
        self._drop(key)
        outer = None if self._outer is None else self._outer()
        if outer is not None:
            outer.inner_changed(self)

    def inner_changed(self, inner: Layouts) -> None:
        """Measure an array among the entries again, as it has other layouts now."""
        with _lock:
            for key, entry in list(self.entries.items()):
                if getattr(entry, "_cache", None) is inner:
                    self._changed(key)

    def _drop(self, newest: Any) -> None:
        # With a quarter left for what the first call of the newest adds to it
        holders = Counter(i for held in self._held.values() for i in (*held.layouts, *held.others))
        sizes = {i: n for held in self._held.values() for i, n in held.layouts.items()}
        plans = {i: n for held in self._held.values() for i, n in held.others.items() if i not in sizes}
        layouts, others = sum(sizes.values()), sum(plans.values())
        for key in sorted(self._held, key=self._used.__getitem__):
            if layouts <= self._room - _ROOM // 4 and others <= _PLANS and len(self.entries) <= _MOST:
                return
            if key == newest:
                continue
            for i in {*self._held[key].layouts, *self._held[key].others}:
                holders[i] -= 1
                if not holders[i]:
                    layouts, others = layouts - sizes.get(i, 0), others - plans.get(i, 0)
            for a in (self.entries, self._held, self._used):
                a.pop(key, None)


def layouts_of(array: Any) -> Layouts:
    """Return the cache of a `QuantArray`, created with its first entry."""
    with _lock:
        if array._cache is None:
            words = array._words.words if type(array._words) is LaidOut else array._words
            array._cache = Layouts([words, *array._constants.buffers()])
        layouts: Layouts = array._cache
    return layouts
