"""Elements of an axis in another order, or repeated as a whole: flip, roll, tile; and axes split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import namespace
from ...core.dtypes import Array, Constants
from ...core.format import WORD
from ...core.hints import Axes
from ..words.bit_rows import Run, derived, lay, run_constants, words_axis
from .flattening import flattened, unflattened, without_constants
from .indexing import index
from .taking import taken_constants
from .views import broadcast_to, swapaxes


def flip(q: QuantArray, axis: Axes | None = None) -> QuantArray:
    """Reverse the elements of an axis, of several, or by default of all; a view along unpacked axes.

    >>> import quantarray as qa
    >>> qa.flip(qa.encode([1, -1, -1], values=(-1, 1))).dequantize().tolist()
    [-1, -1, 1]
    """
    op = "flip"
    q = checks.packed(op, "q", q)
    turned = checks.axes(op, range(q.ndim) if axis is None else axis, q.ndim)
    return index(q, tuple(slice(None, None, -1 if d in turned else 1) for d in range(q.ndim)), op)


def rot90(q: QuantArray, k: int = 1, axes: tuple[int, int] | list[int] = (0, 1)) -> QuantArray:
    """Turn the plane of two axes k times by 90 degrees, the first axis towards the second one's start.

    A view but where the packed axis is turned round.

    >>> import quantarray as qa
    >>> qa.rot90(qa.encode([[1, 0], [0, -1]], values=(-1, 0, 1))).dequantize().tolist()
    [[0, -1], [1, 0]]
    """
    op = "rot90"
    q = checks.packed(op, "q", q)
    turns = checks.integer(op, "k", k, -(2**63)) % 4
    plane = checks.axes(op, axes, q.ndim)
    if len(plane) != 2:
        raise ValueError(f"{op}: axes must be two, got {axes}")
    turned = ((), plane[1:], plane, plane[:1])[turns]
    steps = tuple(slice(None, None, -1 if d in turned else 1) for d in range(q.ndim))
    flipped = index(q, steps, op)
    return swapaxes(flipped, *plane) if turns % 2 else flipped


def roll(q: QuantArray, shift: Axes, axis: Axes | None = None) -> QuantArray:
    """Move element i to i + shift, modulo the length of the axis; without an axis of all elements in C order.

    `shift` and `axis` may be several. The packed axis stays the packed one. Along it constants in groups must stay
    whole groups; without an axis, they must not vary, but for runs of elements in C order that stay whole.

    >>> import quantarray as qa
    >>> qa.roll(qa.encode([1, -1, -1, 0], values=(-1, 0, 1)), 1).dequantize().tolist()
    [0, 1, -1, -1]
    """
    op = "roll"
    q = checks.packed(op, "q", q)
    if axis is None:
        periodic = not any(q.constants.varies(d) for d in range(q.axis + 1))
        bare = without_constants(q) if periodic else q
        rolled = unflattened(roll(flattened(bare), shift, 0), q.shape, q.axis)
        by = int(checks.numbers(op, "shift", shift).sum())
        constants = _rolled_constants(q, by) if periodic else rolled.constants
        return derived(q, rolled.words, q.shape, q.axis, constants)
    shifts, axes = np.broadcast_arrays(checks.numbers(op, "shift", shift), checks.numbers(op, "axis", axis))
    for by, d in zip(shifts.reshape(-1).tolist(), axes.reshape(-1).tolist(), strict=True):
        q = _rolled(op, q, checks.integer(op, "shift", by, -(2**63)), checks.axis(op, d, q.ndim))
    return q


def _rolled_constants(q: QuantArray, shift: int) -> Constants:
    """Return rolled constants that vary only along axes after the packed one: in C order they repeat."""
    after = q.shape[q.axis + 1 :]

    def change(a: Array, lead: int) -> Array:
        front = a.shape[: lead + q.axis + 1]
        if math.prod(a.shape[len(front) :]) == 1:
            return a
        flat = np.broadcast_to(a, (*front, *after)).reshape(*front, -1)
        return np.roll(flat, shift, -1).reshape(*front, *after)

    return q.constants.map(change)


def _rolled(op: str, q: QuantArray, shift: int, d: int) -> QuantArray:
    n = q.shape[d]
    cut = -shift % n if n else 0
    return _of_runs(op, q, [Run(cut, 1, n - cut), Run(0, 1, cut)], d) if cut else q


def tile(q: QuantArray, reps: Axes) -> QuantArray:
    """Repeat the whole array reps[d] times along axis d; fewer reps than axes are those of the last ones, more add
    axes.

    >>> import quantarray as qa
    >>> qa.tile(qa.encode([1, -1], values=(-1, 1)), (2, 2)).dequantize().tolist()
    [[1, -1, 1, -1], [1, -1, 1, -1]]
    """
    op = "tile"
    q = checks.packed(op, "q", q)
    times = [checks.integer(op, "a repeat", n, 0) for n in (reps if np.iterable(reps) else (reps,))]
    times = [1] * (q.ndim - len(times)) + times
    q = index(q, (None,) * (len(times) - q.ndim) + (...,), op)
    checks.array_room(op, q, tuple(n * t for n, t in zip(q.shape, times, strict=True)))
    checks.room(op, f"{max(times)} repeats", WORD.itemsize * max(times))  # of nothing, too
    # The packed axis first: bits move while the array is small
    for d in sorted(range(q.ndim), key=lambda d: d != q.axis):
        if times[d] != 1:
            q = _of_runs(op, q, [Run(0, 1, q.shape[d])] * times[d] or [Run(0, 1, 0)], d)
    return q


def _of_runs(op: str, q: QuantArray, runs: list[Run], d: int) -> QuantArray:
    """Rearrange an array so that its axis d is runs of the old one's."""
    shape = (*q.shape[:d], sum(run.size for run in runs), *q.shape[d + 1 :])
    if d == q.axis:
        constants = run_constants(op, q, runs)
        return derived(q, lay(q.device, [(q.words, run) for run in runs]), shape, d, constants)
    at = words_axis(q, d)
    parts = [q.words[(slice(None),) * at + (slice(r.start, r.start + r.size),)] for r in runs]
    words = namespace(q.device).concatenate(parts, axis=at)
    elements = np.concatenate([np.arange(r.start, r.start + r.size) for r in runs])
    return derived(q, words, shape, q.axis, taken_constants(q, elements, d))


def array_split(
    q: QuantArray, indices_or_sections: SupportsIndex | Sequence[SupportsIndex] | Array, axis: int = 0
) -> list[QuantArray]:
    """Cut an axis into so many parts, the first ones longer by one where lengths differ, or before each of the indices.

    Views along unpacked axes and where parts of the packed one begin and end on words.

    >>> import quantarray as qa
    >>> [part.shape for part in qa.array_split(qa.encode([1, -1, 1], values=(-1, 1)), 2)]
    [(2,), (1,)]
    """
    return _split("array_split", q, indices_or_sections, axis)


def split(
    q: QuantArray, indices_or_sections: SupportsIndex | Sequence[SupportsIndex] | Array, axis: int = 0
) -> list[QuantArray]:
    """`array_split` into parts of one length; ValueError where the length does not divide.

    >>> import quantarray as qa
    >>> [part.dequantize().tolist() for part in qa.split(qa.encode([1, -1, 1, 1], values=(-1, 1)), 2)]
    [[1, -1], [1, 1]]
    >>> [part.shape for part in qa.split(qa.encode([1, -1, 1, 1], values=(-1, 1)), [1])]
    [(1,), (3,)]
    """
    op = "split"
    q = checks.packed(op, "q", q)
    n = q.shape[checks.axis(op, axis, q.ndim)]
    if not np.iterable(indices_or_sections):
        parts = checks.integer(op, "indices_or_sections", indices_or_sections, 1)
        if n % parts:
            raise ValueError(f"{op}: {n} elements do not make {parts} parts of one length; array_split makes others")
    return _split(op, q, indices_or_sections, axis)


def _split(op: str, q: QuantArray, sections: Any, axis: int) -> list[QuantArray]:
    q = checks.packed(op, "q", q)
    d = checks.axis(op, axis, q.ndim)
    n = q.shape[d]
    if np.iterable(sections):
        ends = [checks.integer(op, "an index", i, -(2**63)) for i in sections]
    else:
        parts = checks.integer(op, "indices_or_sections", sections, 1)
        ends = [i * (n // parts) + min(i, n % parts) for i in range(1, parts)]
    bounds = zip([0, *ends], [*ends, n], strict=True)
    return [index(q, (slice(None),) * d + (slice(a, b),), op) for a, b in bounds]


def unstack(q: QuantArray, axis: int = 0) -> tuple[QuantArray, ...]:
    """Split the array along an axis, which the parts lack; views of all axes but the packed one.

    >>> import quantarray as qa
    >>> [row.dequantize().tolist() for row in qa.unstack(qa.encode([[1, -1], [1, 1]], values=(-1, 1)))]
    [[1, -1], [1, 1]]
    """
    op = "unstack"
    q = checks.packed(op, "q", q)
    d = checks.axis(op, axis, q.ndim)
    if q.ndim == 1:
        raise ValueError(
            f"{op}: a packed array needs an axis to pack, and none would be left; iterate over it for values"
        )
    return tuple(index(q, (slice(None),) * d + (i,), op) for i in range(q.shape[d]))


def meshgrid(*arrays: QuantArray, indexing: Literal["xy", "ij"] = "xy") -> tuple[QuantArray, ...]:
    """Broadcast arrays of one axis to coordinates of a grid: array i varies along axis i of the shape of all lengths.

    Each is packed on the axis along which it varies, and a view. With indexing="xy" the first two axes change places.

    >>> import quantarray as qa
    >>> x, y = qa.meshgrid(qa.arange(3), qa.arange(2))
    >>> x.dequantize().tolist(), y.dequantize().tolist()
    ([[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [1, 1, 1]])
    """
    op = "meshgrid"
    checks.choice(op, "indexing", indexing, ("xy", "ij"))
    lines = [checks.packed(op, "each array", q) for q in arrays]
    if any(q.ndim != 1 for q in lines):
        raise ValueError(f"{op}: needs arrays of one axis, got the shapes {', '.join(str(q.shape) for q in lines)}")
    shape = tuple(q.shape[0] for q in lines)
    keys = [tuple(slice(None) if d == i else None for d in range(len(lines))) for i in range(len(lines))]
    grids = [broadcast_to(index(q, key, op), shape) for q, key in zip(lines, keys, strict=True)]
    swapped = indexing == "xy" and len(lines) > 1
    return tuple(swapaxes(q, 0, 1) if swapped else q for q in grids)
