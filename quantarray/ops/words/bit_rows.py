"""Rows of bits, which the functions on shapes share: places of axes among the words, and rows put together again."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, kernel, zeros
from ...core.dtypes import Array, Constants
from ...core.format import WORD_BITS, word_count


class Run(NamedTuple):
    """A run of elements start, start + step, .. of the packed axis, `size` of them."""

    start: int
    step: int
    size: int

    @property
    def last(self) -> int:
        return self.start + (self.size - 1) * self.step


def derived(q: QuantArray, words: Array, shape: tuple[int, ...], axis: int, constants: Constants) -> QuantArray:
    """Return an array of the same law and scheme."""
    return QuantArray(words, q.dtype, shape, axis, constants, q.scheme)


def words_axis(q: QuantArray, d: int) -> int:
    """Return the axis of the words that is the unpacked axis d."""
    return 1 + d if d < q.axis else d


def flat(words: Array) -> Array:
    """View words as C-contiguous [rows words], a copy only where they are not."""
    rows = math.prod(words.shape[:-1])
    return contiguous(words).reshape(rows, words.shape[-1])


def lay(device: str, parts: list[tuple[Array, Run]]) -> Array:
    """Lay runs of bits of other rows one after the other; words [planes *outer word], equal outer axes."""
    out = zeros(device, (*parts[0][0].shape[:-1], word_count(sum(run.size for _, run in parts))))
    if out.size:
        near = [_near(words, run) for words, run in parts if run.size]
        # What fills a pad is one row a plane, which is read as often as it is wanted
        each = out[0].size > out.shape[-1] and any(_alike(words[:1]) for words, _ in near)
        for cut in [slice(k, k + 1) for k in range(len(out))] if each else [slice(None)]:
            kernel(device, "place")([(_rows(words[cut]), *run) for words, run in near], flat(out[cut]))
    return out


def _alike(words: Array) -> bool:
    """True where all rows are the same by their strides."""
    return all(n == 1 or not stride for n, stride in zip(words.shape[:-1], words.strides, strict=False))


def _rows(words: Array) -> Array:
    """`flat`, or one row where all are the same."""
    return flat(words[(slice(0, 1),) * (words.ndim - 1)] if _alike(words) else words)


def _near(words: Array, run: Run) -> tuple[Array, Run]:
    """Return the words that a run is in, where that is less to copy, and the run from the first of them on."""
    if words.flags.c_contiguous:
        return words, run
    first, last = sorted((run.start // WORD_BITS, run.last // WORD_BITS))
    return words[..., first : last + 1], run._replace(start=run.start - first * WORD_BITS)


def cut(q: QuantArray, words: Array, run: Run) -> Array:
    """Cut a run out of the packed axis: a view if it begins on a word and ends on one or at the end."""
    stop = run.start + run.size
    if run.step == 1 and run.start % WORD_BITS == 0 and (stop % WORD_BITS == 0 or stop == q.shape[q.axis]):
        first = run.start // WORD_BITS
        return words[..., first : first + word_count(run.size)]
    return lay(q.device, [(words, run)])


def run_constants(op: str, q: QuantArray, runs: list[Run]) -> Constants:
    """Return the constants of an array whose packed axis is runs of q's. Runs may not cut groups, or IndexError is
    raised."""
    if not q.constants.varies(q.axis) or runs == [Run(0, 1, q.shape[q.axis])]:
        return q.constants
    picks, size = _run_groups(op, q, runs)
    return _picked(q, picks, size)


def index_constants(op: str, q: QuantArray, indices: Array) -> Constants:
    """Return the constants of an array whose packed axis is any elements of q's."""
    if not q.constants.varies(q.axis):
        return q.constants
    assert q.group is not None
    which = indices // q.group
    for size in (max(1, len(which)), q.group):
        picks = which[::size]
        if np.array_equal(which, np.repeat(picks, size)[: len(which)]):
            return _picked(q, picks, size)
    raise _cuts(op, q, "these indices cut")


def _run_groups(op: str, q: QuantArray, runs: list[Run]) -> tuple[Array, int]:
    """(group of q for each group of the result, elements a group): all in one group, or as many as the step leaves.

    A run is monotone, so a stretch whose two ends are in one group is in it whole: indices of ends suffice.
    Smaller groups might fit where these don't, but their constants could outgrow the words.
    """
    assert q.group is not None
    runs = [run for run in runs if run.size]
    if not runs:  # nothing is left that could vary
        return np.arange(min(1, q.shape[q.axis])), q.group
    for each in (sum(run.size for run in runs), max(1, q.group // max(1, abs(runs[0].step)))):
        runs_of_groups = []
        for i, run in enumerate(runs):
            begin = np.arange(0, run.size, each)
            end = np.minimum(begin + each, run.size) - 1
            groups, ends = ((run.start + at * run.step) // q.group for at in (begin, end))
            if not np.array_equal(groups, ends) or (run.size % each and i < len(runs) - 1):
                break
            runs_of_groups.append(groups)
        else:
            return np.concatenate(runs_of_groups), each
    raise _cuts(op, q, " and ".join(_described(run) for run in runs[:3]) + " cuts")


def _described(run: Run) -> str:
    stop = run.last + (1 if run.step >= 0 else -1)
    return f"{run.start}:{stop}" + (f":{run.step}" if run.step != 1 else "")


def _cuts(op: str, q: QuantArray, what: str) -> IndexError:
    return IndexError(
        f"{op}: constants come in groups of {q.group} along the packed axis; {what} through a group; take "
        f"whole groups, or compute on .dequantize()"
    )


def _picked(q: QuantArray, picks: Array, size: int) -> Constants:
    def change(a: Array, lead: int) -> Array:
        at = lead + q.axis
        return a if a.shape[at] == 1 else np.take(a, picks, axis=at)

    return q.constants.map(change, size if len(picks) != 1 else None)
