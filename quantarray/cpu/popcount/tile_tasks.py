"""How a product is shared out to threads: stretches of tiles by chunks of blocks of 32 output channels, cut by cost."""

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
_LATE = 0.15  # of a piece is what threads wait for the last one
# Units that a pixel's words take by each chunk besides, where other threads write words beside them: one is stored, of
# several each is read, too
_SHARED = (0.3, 5) if _LONG else (1, 16)


class Effort(NamedTuple):
    """What the parts of a product cost, for 4 pixels by 32 channels by a word in units of `costs.py`."""

    word: float
    tile: float = 0  # besides its words
    weight: float = 0  # a word of a plane of weights is made ready, by each piece and for each band anew
    pixel: float = 0  # a word of a plane of x is, by each piece
    band: int = 1 << 62  # tiles
    together: int = 2  # blocks of 32 channels that a task has at least


class Task(NamedTuple):
    """What a kernel has to do."""

    plan: NamedTuple
    words: np.ndarray  # that each tile of an image takes for a block: those under its pixels' windows
    images: int
    no_values: np.ndarray  # of the type that values of the result would have
    effort: Effort
    more: tuple = ()  # arguments of the kernel's own


class _Ready(NamedTuple):
    """All of a call but its left operand and its result."""

    pieces: int
    workers: int
    kind: tuple
    held: Held | None  # None where there is nothing to do
    no_values: np.ndarray | None  # None where the result has values


_NO_WORK = _Ready(0, 0, (), None, None)


def workers_for(units):
    """How many threads a product of so many units is for."""
    return threads.workers(units, _LEAST)


def tiles_of(fixed):
    """(plan, words) of a `Task`.

    Where each tile is counted for itself its tiles are put in the order of their first pixels, so that a stretch of
    them reads and writes memory of its own. Bands of tiles stay as they are: counting by tables took 5 to 8 % longer.
    """
    if "tiles" not in fixed.plan_cache:
        plan = by_place(fixed.plan) if IN_REGISTERS else fixed.plan
        fixed.plan_cache["tiles"] = plan, tile_words(plan)
    return fixed.plan_cache["tiles"]


def by_place(plan):
    """The plan with its tiles in the order of their first pixels and not of their classes."""
    order = np.argsort(plan.pixels[:, 0], kind="stable")
    return plan._replace(pixels=plan.pixels[order], counts=plan.counts[order], classes=plan.classes[order])


def tile_words(plan):
    """int64[tiles]: the words under the window of a pixel of each tile."""
    before = np.append(0, np.cumsum(plan.runs[:, 2]))[plan.first_run]
    return np.diff(before[:: plan.parts])[plan.classes]


def drive(kernel, x, fixed, out, task):
    """Deal stretches of tiles and chunks of blocks out to threads, or do all as one piece.

    Kernels take the weights, the plan, the last step, `more` and where stretches of tiles begin; x, values and words;
    and then, as `deal` has it, their tasks. All before x is kept ready: `task(x, fixed)` is asked once for a
    number of threads. The contract fixes the types of arguments but those of x's words, which may be bytes, and of
    results; `more` keeps its own.
    """
    count = threads.count()
    ready = fixed.cache.get(count)
    if ready is None:
        ready = fixed.cache[count] = _make_ready(x, fixed, out, *task(x, fixed))
    pieces, workers, kind, held, no_values = ready
    if held is not None:
        arguments = (x, out, _NO_WORDS) if no_values is None else (x, no_values, out)
        threads.run(kernel, arguments, pieces, workers, pieces, kind, held)


def _make_ready(x, fixed, out, plan, words, images, no_values, effort, more):
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
        shared = _shared(*out.shape[:2]) if packed else 0  # values of a chunk are whole cache lines
        chunks, parts = cut(workers, split, tiles, work, *ready, -(-tiles // effort.band), shared)
    held = Held((w, plan, fixed.finish, *more, starts(costs, images, chunks, parts)))
    kind = x.words.dtype, (no_values if packed else out).dtype
    return _Ready(chunks * parts, workers, kind, held, no_values if packed else None)


def _shared(planes, rows):
    """What a chunk costs where pixels' words lie beside other threads'."""
    return planes * rows * _SHARED[planes > 1]


def starts(costs, images, chunks, parts):
    """int64[chunks parts + 1]: stretches of tiles, which cost so much in each image, and in all about as much as each
    other.

    Stretch i of chunk c is tiles starts[c, i] .. starts[c, i + 1]; of few tiles it may have none. What a stretch of one
    chunk has too much, as tiles are whole, those of the next chunks have less: 7x7 pixels are 19 tiles, of which two
    halves differ by a seventh.
    """
    found = np.zeros((chunks, parts + 1), np.int64)
    found[:, -1] = len(costs) * images
    if parts > 1:
        costs = np.tile(costs, images)
        ends = np.cumsum(costs)
        shares, given = ends[-1] * np.arange(1, parts) / parts, np.zeros(parts - 1)
        for chunk in range(chunks):
            begin = np.searchsorted(ends - costs / 2, (chunk + 1) * shares - given)
            found[chunk, 1:-1] = np.maximum.accumulate(begin)
            given += np.append(0, ends)[found[chunk, 1:-1]]
    return found


def cut(workers, split, tiles, work, weights, pixels, bands, shared):
    """(chunks of channels, parts of tiles) for which threads are done first, one piece being dealt after the other.

    `weights` is what it costs to make all weights ready, `pixels` all pixels; where tiles are not split, weights are
    made ready `bands` times. `shared` is what a chunk costs where threads do not have tiles of their own.
    """
    best = math.inf, 1, 1
    for pieces in (workers * rounds for rounds in (1, 2, 4, 8)):
        for chunks in range(1, min(split, pieces) + 1):
            if split % chunks:  # pieces would be of two sizes: 3 chunks of 4 pairs of blocks took 9 % longer
                continue
            parts = min(tiles, -(-pieces // chunks))
            dealt = chunks * parts
            total = work + max(parts, bands) * weights + chunks * pixels + dealt * _PIECE
            if chunks > 1 and parts % workers:
                total += chunks * shared
            cost = total * -(-dealt // workers) / dealt + _LATE * work / dealt
            best = min(best, (cost, chunks, parts))
    return best[1:]
