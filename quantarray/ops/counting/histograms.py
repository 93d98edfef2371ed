"""Histograms of codes, or of pairs of codes, of which every reduction is made.

A reduction of a function of the codes needs no element by itself, only counts. Counts are taken of sets of planes (see
`quantarray/cpu/reduction/reduce.py`), exactly, in blocks of bounded size; a `Job` turns them into its result:

    sum over elements of f(code) = sum over sets S of coefficient[S] * count[S]     (integers, wherever they vanish
                                                                                      but for single planes: popcounts)
                                 = sum over codes c of f(c) * count of c            (floats, codes in ascending order)

Where constants vary along reduced axes, each run of elements with one law gives a part; parts are added in C order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.blocks import blocks
from ...backends.registry import common_device, contiguous, empty, kernel, namespace, to_host, zeros
from ...core.dtypes import Array
from ...core.forks import cached_property
from ...core.format import WORD_BITS, word_count
from ..words.level_tables import LevelTable

_COUNTS = 1 << 19  # counts of a block: 4 MiB
_WORDS = 1 << 17  # words of a block, of all planes, that may be joined or copied: 1 MiB
_GPU_WORDS = 1 << 24  # on a GPU, where each block is a launch and no cache has to hold it

Block = tuple[slice, ...]


@dataclass(frozen=True)
class Field:
    """A set of packed arrays that are counted together.

    `operands` are words uint64[planes *outer word] that broadcast to `shape` without `axis`; `join` makes one array of
    `planes` planes of a block of each.
    """

    device: str
    planes: int
    shape: tuple[int, ...]
    axis: int
    operands: tuple[Array, ...]
    join: Callable[[list[Array]], Array] = np.concatenate


class Counts:
    """A block's counts, int64 [kept runs]: of elements with ones in all planes of a set, and of codes."""

    def __init__(self, ones: Array, sets: list[int]) -> None:
        self._ones = ones
        self._place = {s: i for i, s in enumerate([0, *sets])}

    def __getitem__(self, s: int) -> Array:
        """Return the counts of the set s, a number with a bit a plane; 0 has all elements."""
        return np.asarray(self._ones[self._place[s]])

    @cached_property
    def codes(self) -> Array:
        """[codes kept runs], where all sets were counted: the elements with ones in S, less those with more ones."""
        counts = self._ones.copy()
        for k in range(len(counts).bit_length() - 1):
            upper = (np.arange(len(counts)) >> k) & 1 == 1
            counts[~upper] -= counts[upper]
        return counts


class Job(Protocol):
    """A result to be made of counts.

    `table` [2**planes, *shape] has 1 where it does not vary and groups along the packed axis; `sets` are those that
    must be counted, numbers with a bit a plane; `dtype` is the result's.
    """

    table: Array | LevelTable
    sets: set[int]
    dtype: np.dtype[Any]

    def start(self, shape: tuple[int, ...]) -> Array:
        """Return the result of no elements, [.. kept]."""
        ...

    def add(self, total: Array, counts: Counts, table: Array) -> Array:
        """`total` and a block together; table [codes kept runs]."""
        ...

    def finish(self, total: Array) -> Array:
        """Turn a total into the result."""
        ...


def field(q: QuantArray) -> Field:
    """Wrap one array."""
    return Field(q.device, q.bits, q.shape, q.axis, (q.words,))


def pair(op: str, a: QuantArray, b: QuantArray, join: Callable[[list[Array]], Array], planes: int) -> Field:
    """Broadcast two arrays against each other along their unpacked axes; both must be packed on the same axis."""
    device = common_device(op, a=a, b=b)
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"{op}: {a.shape} and {b.shape} do not broadcast") from None
    if a.axis - a.ndim != b.axis - b.ndim or a.shape[a.axis] != b.shape[b.axis]:
        raise ValueError(
            f"{op}: a and b must be packed on the same axis, of the same length, got {a.shape} packed on axis {a.axis} "
            f"and {b.shape} packed on axis {b.axis}; pass axis= to quantize or encode"
        )
    words = tuple(
        q.words.reshape(q.bits, *(1,) * (len(shape) - q.ndim), *q.words.shape[1:-1], q.words.shape[-1]) for q in (a, b)
    )
    return Field(device, planes, shape, a.axis + len(shape) - a.ndim, words, join)


def coefficients(table: Array) -> Array:
    """f(code) = sum over the sets S of planes within the code's ones of coefficients[S]: a Moebius transform."""
    result = table.copy()
    for k in range(len(table).bit_length() - 1):
        upper = (np.arange(len(table)) >> k) & 1 == 1
        result[upper] -= result[~upper]
    return result


def fold(f: Field, axes: tuple[int, ...], group: int | None, jobs: Sequence[Job]) -> list[Array]:
    """Return the results of jobs over some axes, [kept axes in order]; one pass over the words serves them all.

    Counts are made on the words' device; the rest, which is as small as the results, on the CPU.
    """
    if 0 in f.shape:
        left = tuple(n for d, n in enumerate(f.shape) if d not in axes)
        return [job.finish(job.start(left)) for job in jobs]
    plan = _Plan(f, axes, group, jobs)
    lead = [job.finish(job.start((0,))).shape[:-1] for job in jobs]
    results = [empty("cpu", (*n, *plan.shape), job.dtype) for n, job in zip(lead, jobs, strict=True)]
    for block in plan.kept_blocks():
        at = plan.elements(block)
        totals = [job.start(tuple(s.stop - s.start for s in at)) for job in jobs]
        for run in plan.run_blocks():
            counts = plan.count(block, run)
            for i, (job, table) in enumerate(zip(jobs, plan.tables, strict=True)):
                totals[i] = job.add(totals[i], counts, plan.part(table, block, run))
        key: Any = (..., *at)
        for job, total, result in zip(jobs, totals, results, strict=True):
            result[key] = job.finish(total)
    return [namespace(f.device).asarray(plan.in_order(result)) for result in results]


class _Plan:
    """An order of axes in which they are counted: kept, with the packed one last; then those along which constants
    vary, `apart`; then the rest. Blocks of kept axes count whole words where the packed axis is kept."""

    def __init__(self, f: Field, axes: tuple[int, ...], group: int | None, jobs: Sequence[Job]) -> None:
        self.field, self.jobs = f, jobs
        self.length = f.shape[f.axis]
        planes = sum(len(w) for w in f.operands)
        self.most = max(1, _WORDS // planes)  # decides where variances are joined: the same on all devices
        self.at_once = self.most if f.device == "cpu" else max(1, _GPU_WORDS // planes)
        self.lanes = f.axis not in axes
        varies = {d for job in jobs for d in range(len(f.shape)) if job.table.shape[1 + d] > 1}
        outer = [d for d in range(len(f.shape)) if d != f.axis]
        self.remaining = [d for d in outer if d not in axes]
        self.apart = [d for d in outer if d in axes and d in varies]
        self.pooled = [d for d in outer if d in axes and d not in varies]
        self.group = group if group and f.axis in varies else max(self.length, 1)
        self.groups = -(-self.length // self.group) if not self.lanes else 1
        self.order = self.remaining + [f.axis] * self.lanes + self.apart + [f.axis] * (not self.lanes)
        place = [1 + (d if d < f.axis else d - 1) for d in self.remaining + self.apart + self.pooled]
        full = tuple(f.shape[d] for d in outer)
        wide = [np.broadcast_to(w, (len(w), *full, w.shape[-1])) for w in f.operands]
        self.words = [w.transpose(0, *place, w.ndim - 1) for w in wide]
        self.tables = [self._ordered(job.table) for job in jobs]
        self.sets = self._sets()
        # Numbers that a block has for each element that is left, at most: its counts, or a part of a table
        self.numbers = max([1 + len(self.sets), *(len(t) for t in self.tables if isinstance(t, LevelTable))])
        self.shape = tuple(f.shape[d] for d in self.order[: len(self.remaining) + self.lanes])

    def _ordered(self, table: Array | LevelTable) -> Any:
        if isinstance(table, LevelTable):
            return table.ordered(self.order)
        rest = [d for d in range(table.ndim - 1) if d not in self.order]
        return table.transpose(0, *(1 + d for d in self.order + rest)).reshape(
            len(table), *(table.shape[1 + d] for d in self.order)
        )

    def _sets(self) -> list[int]:
        """List the sets to count, with all that they extend, in an order in which a set follows what it extends."""
        needed = {s for job in self.jobs for s in job.sets}
        closed = set()
        for s in needed:
            while s:
                closed.add(s)
                s ^= 1 << (s.bit_length() - 1)
        return sorted(closed)

    def _dims(self, axes: list[int]) -> tuple[int, ...]:
        return tuple(self.field.shape[d] for d in axes)

    def kept_blocks(self) -> Iterator[Block]:
        """Yield blocks of kept axes; the last slice is of words where the packed axis is kept, else of all."""
        each = self.numbers * (WORD_BITS if self.lanes else 1)
        each *= min(math.prod(self._dims(self.apart)) * self.groups, self._runs())
        most = _COUNTS // max(1, each)
        if self.lanes:
            yield from blocks((*self._dims(self.remaining), word_count(self.length)), most)
        else:
            row = min(word_count(self.length), self.at_once)
            yield from blocks((*self._dims(self.remaining), 1), min(most, self.at_once // row))

    def elements(self, block: Block) -> Block:
        """View a block of kept axes as a block of the result."""
        return (*block[:-1], self._lane_slice(block[-1])) if self.lanes else block[:-1]

    def _lane_slice(self, words: slice) -> slice:
        return slice(words.start * WORD_BITS, min(words.stop * WORD_BITS, self.length))

    def run_blocks(self) -> Iterator[Block]:
        """Yield blocks of the axes apart, and of groups along the packed axis: what has constants of its own."""
        yield from blocks((*self._dims(self.apart), self.groups), self._runs())

    def _runs(self) -> int:
        """Yield runs of a block, whose groups have bounded counts and words; each of a word's lanes has counts of its
        own."""
        counts = self.numbers * (WORD_BITS if self.lanes else 1)
        return max(1, min(_COUNTS // counts, self.most * WORD_BITS // self.group))

    def count(self, block: Block, run: Block) -> Counts:
        """Count a block."""
        rows = (*block[:-1], *run[:-1])
        sizes = tuple(s.stop - s.start for s in rows)
        elements = self._lane_slice(block[-1]) if self.lanes else slice(run[-1].start, run[-1].stop)
        segments = elements.stop - elements.start
        out = zeros("cpu", (1 + len(self.sets), math.prod(sizes), segments), np.int64)
        out[0] = math.prod(self._dims(self.pooled))
        if not self.lanes:
            starts = np.arange(run[-1].start, run[-1].stop) * self.group
            out[0] *= np.minimum(starts + self.group, self.length) - starts
        parents = np.array([[self._parent(s), s.bit_length() - 1] for s in self.sets], np.int64).reshape(-1, 2)
        if self.sets and out.size:
            counts = out[1:] if self.field.device == "cpu" else zeros(self.field.device, out[1:].shape, np.int64)
            for words, start, stop in self._cuts(block, run):
                self._call(rows, words, start, stop, parents, counts)
            out[1:] = to_host(counts)
        out = out.reshape(len(out), *sizes, segments)
        n = 1 + len(self.remaining)
        if self.lanes:
            out = np.moveaxis(out, -1, n)
            n += 1
        return Counts(out.reshape(*out.shape[:n], -1), self.sets)

    def _parent(self, s: int) -> int:
        rest = s ^ (1 << (s.bit_length() - 1))
        return self.sets.index(rest) if rest else -1

    def _cuts(self, block: Block, run: Block) -> Iterator[tuple[slice, int, int]]:
        """Yield words, and which of their bits count."""
        if self.lanes:
            yield block[-1], 0, 0
            return
        start, stop = run[-1].start * self.group, min(run[-1].stop * self.group, self.length)
        # Several groups are cut in one call, which finds where they begin; one may be as long as the array
        one = run[-1].stop - run[-1].start == 1
        while start < stop:
            first = start // WORD_BITS
            end = min((first + self.at_once) * WORD_BITS, stop) if one else stop
            yield slice(first, word_count(end)), start - first * WORD_BITS, end - first * WORD_BITS
            start = end

    def _call(self, rows: Block, words: slice, start: int, stop: int, parents: Array, out: Array) -> None:
        row_words = math.prod(out.shape[1:2]) * max(1, words.stop - words.start)
        for pooled in blocks(self._dims(self.pooled), self.at_once // max(1, row_words)):
            cut = self.field.join([w[(slice(None), *rows, *pooled, words)] for w in self.words])
            folds = math.prod(s.stop - s.start for s in pooled)
            flat = contiguous(cut).reshape(self.field.planes, out.shape[1], folds, cut.shape[-1])
            if self.lanes:
                kernel(self.field.device, "count_lanes")(flat, parents, out)
            else:
                kernel(self.field.device, "count")(flat, start, stop, self.group, parents, out)

    def part(self, table: Any, block: Block, run: Block) -> Array:
        """Cut a table [codes, *kept, runs] for a block, 1 where it does not vary."""
        at: list[Any] = [slice(None) if n == 1 else s for n, s in zip(table.shape[1:], block[:-1], strict=False)]
        n = len(self.remaining)
        if self.lanes:
            along = table.shape[1 + n]
            lane = self._lane_slice(block[-1])
            at.append(slice(None) if along == 1 else np.arange(lane.start, lane.stop) // self.group)
            n += 1
        runs = run[: table.ndim - 1 - n]
        at += [slice(None) if k == 1 else s for k, s in zip(table.shape[1 + n :], runs, strict=True)]
        cut = table[(slice(None), *at)]
        sizes = tuple(s.stop - s.start for s in runs)
        if math.prod(cut.shape[1 + n :]) > 1:
            cut = np.broadcast_to(cut, (*cut.shape[: 1 + n], *sizes))
        return np.asarray(cut.reshape(*cut.shape[: 1 + n], -1))

    def in_order(self, result: Array) -> Array:
        """Move the kept axes to the array's order."""
        if not self.lanes:
            return result
        lead = result.ndim - len(self.shape)
        return np.moveaxis(result, -1, lead + sum(d < self.field.axis for d in self.remaining))
