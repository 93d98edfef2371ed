"""Calls whose launches were recorded: what a later one does is to write the pointers that change, and to launch.

A call of the same form launches the same kernels, on the same grids, with parameters that differ in a few addresses.
So it is recorded once, on arrays without elements (`blank.py`); what reads one is no part of such a call. The driver's
blocks of parameters are packed then, and a call allocates what the recorded one did.
"""

import math
from threading import get_ident
from typing import NamedTuple

import numpy as np

from ...backends.registry import cupy, current
from ...core.forks import no_fork
from ...core.recordings import RECORDINGS, is_set
from . import driver, launch
from .blank import Blank, ElementsAreRead


class Piece(NamedTuple):
    """A piece of memory that a call allocates, or `take`s and gives back."""

    shape: tuple
    dtype: np.dtype
    cleared: bool
    take: object = None
    give_back: object = None

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    def maker(self, xp):
        """Return a function that gives the memory, and its arguments."""
        if self.take is not None:
            return self.take, ()
        return xp.zeros if self.cleared else xp.empty, (self.shape, self.dtype)


class Start(NamedTuple):
    """A launch with all that does not change: the driver's kernel, its sizes, and blocks of its parameters."""

    kernel: object
    grid: tuple
    block: tuple
    shared: int
    changing: list  # (parameter, piece, byte in it) of each address that changes
    blocks: list  # one for each thread that launches at the same time
    args: tuple  # whose arrays have to stay


class Recorder:
    """A recording (`core/recordings.py`) of a call on the current GPU, whose first pieces of memory are operands."""

    backend = "cuda"

    def __init__(self, gpu, operands):
        self._gpu, self._device, self.starts, self.notes, self.pieces = gpu, operands[0].device, [], [], []
        self.operands = [self._add(Piece(a.shape, a.dtype, False)) for a in operands]

    def array(self, shape, dtype, cleared=False):
        return self._add(Piece(shape if isinstance(shape, tuple) else (shape,), np.dtype(dtype), cleared))

    def taken(self, shape, dtype, take, give_back=None):
        return self._add(Piece(shape, np.dtype(dtype), False, take, give_back))

    def _add(self, piece):
        self.pieces.append(piece)
        return Blank.of(len(self.pieces) - 1, self._device, piece.shape, piece.dtype)

    def launch(self, kernel, grid, block, args, shared, tiled):
        arrays = list(_arrays(args))
        if not any(isinstance(a, Blank) and a.place >= len(self.operands) for a in arrays):
            raise ElementsAreRead  # of what it writes, as nobody would run a kernel for nothing
        started = launch.specialized(kernel, self._gpu, args, shared, tiled)
        changing, at = [], 0
        for a in _parameters(args):
            if isinstance(a, Blank):
                changing.append((at + 4, a.place, a.offset))  # an address comes after four numbers
            at += 1 if isinstance(a, driver.NUMBERS) else 5 + 2 * a.ndim
        changing = [(at + word, place, offset) for word, place, offset in changing]  # the table of addresses is first
        blocks, sizes = [driver.parameters(args)], (driver.sizes(grid), driver.sizes(block))
        self.starts.append(Start(started.handle, *sizes, shared, changing, blocks, args))

    def note(self, notes):
        if not isinstance(notes, Blank):
            raise ElementsAreRead
        self.notes.append(notes.place)


def _parameters(args):
    """Yield arrays and numbers of a tuple of tuples, in order."""
    for a in args:
        if isinstance(a, tuple):
            yield from _parameters(a)
        else:
            yield a


def _arrays(args):
    return (a for a in _parameters(args) if not isinstance(a, driver.NUMBERS))


class Recorded:
    """A function of arrays on a GPU, recorded for those of one form, C-contiguous and at multiples of 16 bytes.

    Called with such arrays it returns the list of arrays that the function does. None where the function has to be
    called itself, as a kernel has noted what it raises an error for, or there is no room for a result.
    """

    def __init__(self, function, operands):
        self._gpu, self._xp, count = operands[0].device.id, cupy("record"), len(operands)
        recorder = Recorder(self._gpu, operands)
        with no_fork, np.errstate(all="ignore"):  # signal handlers wait: what they call would be recorded
            try:
                RECORDINGS[get_ident()] = recorder
                results = function(*recorder.operands)
            finally:
                RECORDINGS.pop(get_ident(), None)
        self._starts, self._notes = recorder.starts, recorder.notes
        pieces, launched = recorder.pieces, {place for one in self._starts for _, place, _ in one.changing}
        if not {a.place for a in results} <= {*range(count), *launched}:
            raise ElementsAreRead  # of a result that no kernel has written
        self._back = [(place, piece.give_back) for place, piece in enumerate(pieces) if piece.give_back]
        for a in results:  # of a piece that is allocated, with the shape of the result
            if a.place >= count and a.flags.c_contiguous and a.nbytes == pieces[a.place].nbytes:
                pieces[a.place] = pieces[a.place]._replace(shape=a.shape, dtype=a.dtype)
        self._makers = [piece.maker(self._xp) for piece in pieces[count:]]
        self._results = [(a.place, None if _is(a, pieces[a.place]) else a) for a in results]
        if any(a.offset for _, a in self._results if a is not None):
            raise ElementsAreRead  # of a part of a piece, which no call has needed yet

    def __call__(self, operands):
        if self._makers and driver.current_gpu() != self._gpu:
            with current(f"cuda:{self._gpu}"):
                return self(operands)
        arrays = [*operands]
        try:
            for make, form in self._makers:
                arrays.append(make(*form))
        except MemoryError:
            return None
        if self._starts:
            self._launch(arrays)
        for place in self._notes:
            if is_set(arrays[place]):
                return None
        for place, give_back in self._back:
            give_back(arrays[place])
        return [arrays[place] if view is None else self._view(arrays[place], view) for place, view in self._results]

    def _launch(self, arrays):
        driver.enter(self._gpu)
        on = driver.stream()
        if launch.holders:
            launch.hold(self)
        try:
            for kernel, grid, block, shared, changing, blocks, args in self._starts:
                try:
                    parameters = blocks.pop()
                except IndexError:  # another thread has it
                    parameters = driver.parameters(args)
                for at, place, offset in changing:
                    parameters[at] = arrays[place].data.ptr + offset
                driver.enqueue(kernel, grid, block, shared, on, parameters)
                blocks.append(parameters)
        except Exception as error:
            launch.raise_known(error)
            raise

    def _view(self, a, like):
        return self._xp.lib.stride_tricks.as_strided(a.view(like.dtype), like.shape, like.strides)


def _is(a, piece):
    """Return True if an array is a piece of memory as it is allocated."""
    return a.flags.c_contiguous and a.shape == piece.shape and a.dtype == piece.dtype
