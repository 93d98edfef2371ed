"""Arrays made longer at their ends."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import device_of, empty, namespace
from ...core.dtypes import Array
from ...core.format import WORD, tail_mask, word_count
from ...core.hints import Values
from ..words.bit_rows import Run, derived, lay, run_constants
from ..words.membership import first_codes, levels_of_code
from .taking import taken_constants

_Width = tuple[int, int]  # elements before and after


def pad(
    q: QuantArray, pad_width: Values, mode: Literal["constant", "edge"] = "constant", constant_values: Values = 0
) -> QuantArray:
    """Add elements before and after each axis: of the value `constant_values`, or with mode "edge" copies of the ends.

    pad_width: an integer, (before, after), or one pair an axis. The law stays: the value must be a level of all codes'
    constants, and these may not vary along an axis that grows by it. Raises ValueError where that is not so.

    >>> import quantarray as qa
    >>> q = qa.encode([1, -1, -1], values=(-1, 0, 1))
    >>> qa.pad(q, 1).dequantize().tolist(), qa.pad(q, (0, 2), "edge").dequantize().tolist()
    ([0, 1, -1, -1, 0], [1, -1, -1, -1, -1])
    """
    op = "pad"
    q = checks.packed(op, "q", q)
    checks.choice(op, "mode", mode, ("constant", "edge"))
    value = checks.number(op, "constant_values", constant_values)
    widths = _widths(op, pad_width, q.ndim)
    if not any(map(any, widths)):
        return q
    checks.array_room(op, q, _padded(q.shape, widths))
    return _edge(op, q, widths) if mode == "edge" else _constant(op, q, widths, value)


def _widths(op: str, pad_width: Any, ndim: int) -> list[_Width]:
    a = checks.numbers(op, "pad_width", pad_width)
    try:
        each = np.broadcast_to(a, (ndim, 2))
    except ValueError:
        raise ValueError(
            f"{op}: pad_width must be an integer, (before, after), or {ndim} pairs, one an axis, got {pad_width!r}"
        ) from None
    return [(checks.integer(op, "pad_width", b, 0), checks.integer(op, "pad_width", a, 0)) for b, a in each.tolist()]


def _edge(op: str, q: QuantArray, widths: list[_Width]) -> QuantArray:
    for d, n in enumerate(q.shape):
        if any(widths[d]) and not n:
            raise ValueError(f"{op}: axis {d} has no elements, so it has no edge to repeat")
    before, after = widths[q.axis]
    n = q.shape[q.axis]
    runs = [Run(0, 0, before), Run(0, 1, n), Run(n - 1, 0, after)]
    constants = run_constants(op, q, runs) if before or after else q.constants
    words = lay(q.device, [(q.words, run) for run in runs]) if before or after else q.words
    outer = [width for d, width in enumerate(widths) if d != q.axis]
    if any(map(any, outer)):
        words = namespace(q.device).pad(words, [(0, 0), *outer, (0, 0)], mode="edge")
    padded = derived(q, words, _padded(q.shape, widths), q.axis, constants)
    for d, (b, a) in enumerate(widths):
        if d != q.axis and (b or a):
            constants = taken_constants(padded, np.clip(np.arange(-b, q.shape[d] + a), 0, q.shape[d] - 1), d)
            padded = derived(padded, words, padded.shape, q.axis, constants)
    return padded


def _constant(op: str, q: QuantArray, widths: list[_Width], value: float) -> QuantArray:
    for d, width in enumerate(widths):
        if any(width) and q.constants.varies(d):
            raise ValueError(
                f"{op}: constants vary along axis {d}, so elements beyond its ends have none; use mode 'edge'"
            )
    codes = _codes_of(op, q, value)
    before, after = widths[q.axis]
    words = q.words
    if before or after:
        parts = [_filled(q, codes, (*q.shape[: q.axis], n, *q.shape[q.axis + 1 :])) for n in (before, after)]
        runs = [Run(0, 1, n) for n in (before, q.shape[q.axis], after)]
        words = lay(q.device, list(zip((parts[0], words, parts[1]), runs, strict=True)))
    shape = _padded(q.shape, widths)
    outer = [width for d, width in enumerate(widths) if d != q.axis]
    if any(map(any, outer)):
        words = _framed(words, outer, _filled(q, codes, shape))
    return derived(q, words, shape, q.axis, q.constants)


def _padded(shape: tuple[int, ...], widths: list[_Width]) -> tuple[int, ...]:
    return tuple(n + before + after for n, (before, after) in zip(shape, widths, strict=True))


def _framed(words: Array, outer: list[_Width], fill: Array) -> Array:
    """Put words [bits *outer word] amid those of `fill`: each is written once, but for the frame's corners."""
    out = empty(device_of(words), fill.shape)
    out[(slice(None), *(slice(b, n + b) for n, (b, _) in zip(words.shape[1:-1], outer, strict=True)))] = words
    for d, (before, after) in enumerate(outer):
        for ends in (slice(0, before), slice(fill.shape[1 + d] - after, None)):
            key = (slice(None),) * (1 + d) + (ends,)
            out[key] = fill[key]
    return out


def _codes_of(op: str, q: QuantArray, value: float) -> Array:
    """Return the first code of a value, with the axes of the constants, 1 where they don't vary."""
    codes, has = first_codes(q, value)
    if not has.all():
        at = int(np.flatnonzero(~has)[0])
        shown = range(min(8, q.dtype.n_levels))
        few = ", ".join(f"{np.broadcast_to(levels_of_code(q, code), has.shape).flat[at]:.4g}" for code in shown)
        raise ValueError(
            f"{op}: {value!r} is not a level of {q.dtype}{' everywhere' if has.any() else ''}; levels are {few}"
            f"{', ..' if q.dtype.n_levels > 8 else ''}"
        )
    if codes.shape[q.axis] > 1:
        if (codes != codes.take([0], q.axis)).any():
            raise ValueError(f"{op}: {value!r} has different codes in the groups of the packed axis")
        codes = codes.take([0], q.axis)
    return codes


def _filled(q: QuantArray, codes: Array, shape: tuple[int, ...]) -> Array:
    """Fill words of another shape than q's, each element with the code of its place; a view by strides of 0."""
    xp = namespace(q.device)
    ones = np.full(word_count(shape[q.axis]), 2**64 - 1, WORD)
    ones[-1:] = tail_mask(shape[q.axis])
    planes = np.arange(q.bits).reshape(-1, *(1,) * codes.ndim)
    bits = np.moveaxis(codes[None] >> planes & 1, 1 + q.axis, -1).astype(WORD)
    filled: Array = xp.broadcast_to(
        xp.asarray(bits * ones), (q.bits, *shape[: q.axis], *shape[q.axis + 1 :], len(ones))
    )
    return filled
