"""Cut a product into tasks for threads: stretches of tiles by chunks of blocks of 32 output channels, by cost."""

import math
from typing import NamedTuple

import numpy as np

from ..runtime import threads
from ..runtime.isa import NAME
from ..runtime.schedule import Held
from .tiles import IN_REGISTERS

_NO_WORDS = np.empty((0, 0, 0), np.uint64)
_LONG = NAME in ("portable", "neon", "avx2")  # units are three times as long as with AVX-512
_LEAST = 3 << (8 if _LONG else 10)  # units that are worth a parallel region, some 11 us
_PIECE = 40  # units that a piece takes besides, 0.15 us
_LATE = 0.15  # of a piece: how long threads wait for the last one
# Units that each chunk takes for a pixel's words besides, where other threads write words beside them: for one plane,
# whose words are stored, and for several, whose words are read too
_SHARED = (0.3, 5) if _LONG else (1, 16)


class Effort(NamedTuple):
    """A kernel's costs for each part of a product: 4 pixels by 32 channels by a word, in units of `costs.py`."""

    word: float
    tile: float = 0  # besides its words
    weight: float = 0  # to prepare a word of a plane of weights, for each piece and each band
    pixel: float = 0  # to prepare a word of a plane of x, for each piece
    band: int = 1 << 62  # tiles
    together: int = 2  # blocks of 32 channels that a task has at least
    shared: float = 1  # of `_SHARED`: less where threads seldom write words of a pixel at the same time


class Task(NamedTuple):
    """A description of a kernel's work, which `cut` divides."""

    plan: NamedTuple
    words: np.ndarray  # that each tile of an image takes for a block: those under its pixels' windows
    images: int
    no_values: np.ndarray  # of the type that values of the result would have
    effort: Effort
    more: tuple = ()  # arguments of this kernel alone


class Prepared(NamedTuple):
    """A tuple of what kernels take of a product besides x and the result."""

    w: NamedTuple
    plan: NamedTuple
    finish: NamedTuple


class _Ready(NamedTuple):
    """A call without its left operand and its result."""

    pieces: int
    workers: int
    kind: tuple
    held: Held | None  # None where there is nothing to do
    no_values: np.ndarray | None  # None where the result has values


_NO_WORK = _Ready(0, 0, (), None, None)


def workers_for(units):
    """Return the number of threads for a product of so many units."""
    return threads.workers(units, _LEAST)


def tiles_of(fixed):
    """Return (plan, words) of a `Task`.

    Where tiles are counted one by one, they are put in the order of their first pixels, so that stretches of them read
    and write different memory. Bands of tiles stay as they are: counting by tables took 5 to 8 % longer.
    """
    if "tiles" not in fixed.plan_cache:
        plan = by_place(fixed.plan) if IN_REGISTERS else fixed.plan
        fixed.plan_cache["tiles"] = plan, tile_words(plan)
    return fixed.plan_cache["tiles"]


def by_place(plan):
    """Reorder the tiles of a plan, which come in order of class, by their first pixels."""
    order = np.argsort(plan.pixels[:, 0], kind="stable")
    return plan._replace(pixels=plan.pixels[order], counts=plan.counts[order], classes=plan.classes[order])


def tile_words(plan):
    """Count the words under the window of a pixel of each tile: int64[tiles]."""
    before = np.append(0, np.cumsum(plan.runs[:, 2]))[plan.first_run]
    return np.diff(before[:: plan.parts])[plan.classes]


def drive(kernel, x, fixed, out, task):
    """Schedule stretches of tiles by chunks of blocks on threads, or run all as one piece.

    Kernels take a `Prepared`, `more` and where stretches of tiles begin; x, values and words; then what `next_task`
    needs. The arguments before x are prepared once for a number of threads, by `task(x, fixed)`. The contract fixes all
    types but those of x's words, which may be bytes, of results, and of `more`.
    """
    count = threads.count()
    ready = fixed.cache.get(count)
    if ready is None:
        ready = fixed.cache[count] = _prepare(x, fixed, out, task(x, fixed))
    pieces, workers, kind, held, no_values = ready
    if held is not None:
        arguments = (x, out, _NO_WORDS) if no_values is None else (x, no_values, out)
        threads.run(kernel, arguments, pieces, workers, pieces, kind, held)


def _prepare(x, fixed, out, task):
    plan, words, images, no_values, effort, more = task
    w, packed, tiles = fixed.w, out.ndim == 3, len(words) * images
    blocks = w.words.shape[1]
    if not tiles or not blocks:
        return _NO_WORK
    costs = words * effort.word + effort.tile
    work = costs.sum() * images * blocks
    workers, chunks, parts = threads.workers(work, _LEAST), 1, 1
    if workers > 1:
        # Output words belong to one task: channels are split at whole words, and not at all where groups share a word
        split = max(1, blocks // effort.together if w.groups == 1 else 1)
        ready = effort.weight * w.words.size, effort.pixel * x.words.size
        shared = effort.shared * _shared(*out.shape[:2]) if packed else 0  # values of a chunk are whole cache lines
        chunks, parts = cut(workers, split, tiles, work, *ready, -(-tiles // effort.band), shared)
    held = Held((Prepared(w, plan, fixed.finish), *more, starts(costs, images, chunks, parts)))
    kind = x.words.dtype, (no_values if packed else out).dtype, *map(type, more)
    return _Ready(chunks * parts, workers, kind, held, no_values if packed else None)


def _shared(planes, rows):
    """Return the cost of a chunk whose words are next to words of other threads."""
    return planes * rows * _SHARED[planes > 1]


def starts(costs, images, chunks, parts):
    """Cut tiles into stretches of about equal cost: int64[chunks parts + 1]; costs are those of an image's tiles.

    Stretch i of chunk c is tiles starts[c, i] .. starts[c, i + 1]; with few tiles it may be empty. As tiles are whole,
    stretches of one chunk differ, and those of the next chunks make up for it: 7x7 pixels are 19 tiles, of which two
    halves differ by a seventh.
    """
    cuts = np.zeros((chunks, parts + 1), np.int64)
    cuts[:, -1] = len(costs) * images
    if parts > 1:
        costs = np.tile(costs, images)
        ends = np.cumsum(costs)
        shares, passed = ends[-1] * np.arange(1, parts) / parts, np.zeros(parts - 1)
        for chunk in range(chunks):
            begin = np.searchsorted(ends - costs / 2, (chunk + 1) * shares - passed)
            cuts[chunk, 1:-1] = np.maximum.accumulate(begin)
            passed += np.append(0, ends)[cuts[chunk, 1:-1]]
    return cuts


def cut(workers, split, tiles, work, weights, pixels, bands, shared):
    """Choose (chunks of channels, parts of tiles) for which threads are done first, taking piece after piece.

    `weights` and `pixels` are the costs of preparing all weights and all pixels; where tiles are not split, weights are
    prepared `bands` times. `shared` is the cost of a chunk where two threads work on the same tiles.
    """
    best = math.inf, 1, 1
    for pieces in (workers * rounds for rounds in (1, 2, 4, 8)):
        for chunks in range(1, min(split, pieces) + 1):
            if split % chunks:  # pieces would be of two sizes: 3 chunks of 4 pairs of blocks took 9 % longer
                continue
            parts = min(tiles, -(-pieces // chunks))
            tasks = chunks * parts
            total = work + max(parts, bands) * weights + chunks * pixels + tasks * _PIECE
            if chunks > 1 and parts % workers:
                total += chunks * shared
            cost = total * -(-tasks // workers) / tasks + _LATE * work / tasks
            best = min(best, (cost, chunks, parts))
    return best[1:]
