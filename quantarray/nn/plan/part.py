"""A function of arrays as one compiled call, for inputs of one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...core.notes import listing
from ...ops.products.channels import put
from ...ops.words.conversion import pack_codes
from ..operators.movement import order_in_memory
from .memory import Memory, blocks_of
from .recording import Launched, alike, recording, root, runtime

Function = Callable[..., tuple[Any, ...]]
_TRIES = 3  # of a recording: another thread's first call may put weights of its layout in a cache meanwhile
_POISONS = 0xA5, 0x3C  # bytes that fill a plan's memory before it is tried
_seeds = count(1)  # the same elements again would be written to memory of an earlier recording, and change none of it


def form(x: Any) -> tuple[Any, ...] | None:
    """Return all that launches for x depend on but its elements; None for what no compiled call takes."""
    if isinstance(x, QuantArray):
        if not isinstance(x.words, np.ndarray):
            return None
        return x._form, x._scheme, tuple([(name, a.tobytes()) for name, a, _ in x.constants.items()])
    return (x.dtype, x.shape) if type(x) is np.ndarray else None


def elements(x: Any) -> Array:
    """Return the memory of x: its words, or itself."""
    a: Array = x.words if isinstance(x, QuantArray) else x
    return a


def like(x: Any, memory: Array) -> Any:
    """Return an array like x of other elements."""
    if not isinstance(x, QuantArray):
        return memory
    return QuantArray(memory, x.dtype, x.shape, x.axis, x.constants, x._scheme)


def others(x: Any, wide: bool = False) -> Any:
    """Return x with random elements: any codes or bytes, numbers up to a few times its largest, or `wide` of any size.

    Comparisons with a constant have one result for all numbers that are too small.
    """
    random = np.random.default_rng(next(_seeds))
    if isinstance(x, QuantArray):
        outer = x.shape[: x.axis] + x.shape[x.axis + 1 :]
        codes = random.integers(x.dtype.n_levels, size=(*outer, x.shape[x.axis]), dtype=np.uint8)
        words = pack_codes(codes, -1, x.bits)
        if np.array_equal(words, x.words):  # a few codes
            words = pack_codes(np.uint8(x.dtype.n_levels - 1) - codes, -1, x.bits)
        order = order_in_memory(x.words)
        return like(x, np.ascontiguousarray(words.transpose(order)).transpose(np.argsort(order)))
    if x.dtype in (np.int8, np.uint8):
        return _unequal(random.integers(0, 256, x.shape, np.uint8).view(x.dtype), x)
    if wide and x.dtype.kind in "iuf":
        return _of_any_size(x, random)
    if x.dtype.kind in "iu":
        most = max(8, int(x.max(initial=0)), -int(x.min(initial=0)))
        return _unequal(random.integers(-most if x.dtype.kind == "i" else 0, most, x.shape, x.dtype), x)
    if x.dtype.kind == "f":
        most = np.abs(x).max(initial=0, where=np.isfinite(x))
        return (random.standard_normal(x.shape) * (1 + 4 * min(float(most), 1e30))).astype(x.dtype)
    flipped: Array = x ^ (random.random(x.shape) < 0.5)  # bool
    return ~x if np.array_equal(flipped, x) else flipped


def _unequal(one: Array, other: Array) -> Array:
    """Return integers without any that are the same in both."""
    return np.where(one == other, one ^ one.dtype.type(1), one)


def _of_any_size(x: Array, random: np.random.Generator) -> Array:
    """Return random numbers of as many magnitudes as there are bits, or from 1e-4 to 1e6."""
    if x.dtype.kind == "f":
        values = random.standard_normal(x.shape) * 10.0 ** random.integers(-4, 7, x.shape)
        return np.asarray(np.clip(values, np.finfo(x.dtype).min, np.finfo(x.dtype).max), x.dtype)
    ends = np.iinfo(x.dtype)
    bits = random.integers(ends.min, ends.max, x.shape, x.dtype, endpoint=True)
    shifted: Array = bits >> random.integers(0, ends.bits, x.shape).astype(x.dtype)
    return shifted.astype(x.dtype, copy=False)


class _Run(NamedTuple):
    """A recorded run of a function: what it launched, its results, and the notes of kernels that it read."""

    inputs: tuple[Any, ...]
    launches: list[Launched]
    results: tuple[Any, ...]
    notes: list[Array]


def _recorded(function: Function, inputs: tuple[Any, ...]) -> _Run:
    with recording() as launches, listing() as notes:
        results = function(*inputs)
    return _Run(inputs, launches, results, notes)


class Compiled:
    """A compiled call of a function of arrays. Calls must not overlap.

    `forms` are those of its inputs; `nbytes` counts the bytes of all results, which share memory.
    """

    def __init__(self, run: _Run, memory: Memory) -> None:
        self.forms, self.nbytes = tuple(map(form, run.inputs)), memory.bytes.nbytes
        self._inputs = memory.inputs
        self.memories = memory.bytes, *memory.inputs
        self._like = [(one, memory.array(elements(one))) for one in run.results]
        self._notes = [memory.array(a) for a in run.notes]
        steps: list[Any] = []
        for i, one in enumerate(run.launches):
            steps += memory.clears(i)
            launch = runtime().Launch(one.kernel, memory.arguments(one), one.held)
            steps.append((launch, *one.cut, one.kernel.takes))
        self.launches = len(run.launches)
        self._driver = runtime().Driver(steps)

    def __call__(self, inputs: Sequence[Any], reuse: bool = False) -> tuple[Any, ...] | None:
        """Return the results for inputs of the forms.

        None where this thread's calls are run by Numba's loop, or a kernel has noted what the function raises an error
        for: the function itself then does.
        """
        for memory, x in zip(self._inputs, inputs, strict=True):
            put(elements(x), memory)
        if not self._driver.run() or any(notes.any() for notes in self._notes):
            return None
        return tuple([like(one, memory if reuse else memory.copy("K")) for one, memory in self._like])


def _copy(x: Any) -> Any:
    """Return a copy of an input as a plan takes it: in C order, of packed words in their own order."""
    return like(x, np.array(elements(x), order="K" if isinstance(x, QuantArray) else "C"))


def _alike_runs(function: Function, inputs: Sequence[Any]) -> tuple[_Run, _Run] | None:
    """Run a function on inputs and on other elements; None where it launches different kernels, or none."""
    copies = [tuple(map(_copy, some)) for some in (inputs, map(others, inputs))]
    for _ in range(_TRIES):
        first = _recorded(function, copies[0])
        try:
            with np.errstate(all="ignore"):  # of numbers that no user passed
                second = _recorded(function, copies[1])
        except (ValueError, ArithmeticError):  # of these elements
            return None
        forms = [tuple(map(form, run.results)) for run in (first, second)]
        if not first.launches or None in forms[0] or forms[0] != forms[1] or len(first.notes) != len(second.notes):
            return None
        if alike(first.launches, second.launches):
            return first, second
    return None


def compiled(function: Function, inputs: Sequence[Any]) -> Compiled | None:
    """Compile a function of arrays for inputs like these, or return None where it does more than launch kernels.

    It runs on the inputs and on other elements, and what it launched is tried on both, in memory full of other bytes:
    results that are not the same have been through NumPy. So has what kernels read that no kernel wrote, and differs.
    Of a packed result that is a view of an input there is none either: nobody may write to its memory.
    """
    runs = _alike_runs(function, inputs)
    if runs is None:
        return None
    first, second = runs
    read_after = [*map(elements, first.results), *first.notes]
    blocks = blocks_of(first.launches, second.launches, read_after)
    taken = [elements(x) for x in first.inputs]
    for a in taken:  # not cleared before each launch, though one may be all zero, as an image to warm up with is
        blocks.pop(id(root(a)), None)
    owners = {id(root(a)) for a in taken}
    if _copied(first, second, owners.union(blocks)) or any(
        isinstance(x, QuantArray) and id(root(x.words)) in owners for x in first.results
    ):
        return None
    memory = Memory(blocks, taken)
    call = Compiled(first, memory)
    for run, poison in zip(runs, _POISONS, strict=True):
        memory.bytes[...] = poison
        results = call(run.inputs)
        if results is None or any(map(_differ, results, run.results)):
            return None
    return call


def _copied(first: _Run, second: _Run, known: set[int]) -> bool:
    """Return True if launches read what NumPy made of the inputs: other memory, not `known`, of other bytes."""
    for one, two in zip(first.launches, second.launches, strict=True):
        for a, b in zip(one.arrays, two.arrays, strict=True):
            if id(root(a)) not in known and root(a) is not root(b) and a.tobytes() != b.tobytes():
                return True
    return False


def _differ(one: Any, other: Any) -> bool:
    return elements(one).tobytes() != elements(other).tobytes()
