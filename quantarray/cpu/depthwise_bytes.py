"""Depthwise convolution of integers whose codes become bytes first: `docs/kernels/depthwise.md`."""

import numpy as np

from . import threads
from .compiled import inner
from .deal import Kernel
from .finish import codes_are_ranks, flips_and_lanes, store_codes, store_ranks, store_values
from .lines import first_line
from .micro import CHANNELS, LANES, PIXELS, expand, lane_masks, lane_products

_NO_VALUES, _NO_WORDS = np.empty((0, 0), np.int32), np.empty((0, 0, 0), np.uint64)
_LEAST = 1 << 14  # taps times words that are worth a parallel region
_AHEAD = 1 << 12  # words that are expanded at a time, 256 KiB of bytes, unless a run spans more


def depthwise_bytes(x, w, plan, finish, out):
    words, values = (out, _NO_VALUES) if out.ndim == 3 else (_NO_WORDS, out)
    if not out.size:
        return
    work = x.images * plan.image_rows * w.values.shape[0] * w.values.shape[1] * w.period
    tasks = x.images * len(plan.runs)
    threads.run(_bytes_range, (x, w, plan, finish, values, words), tasks, threads.workers(work, _LEAST))


@Kernel
def _bytes_range(x, w, plan, finish, values, words, begin, end):
    # Taken out of their tuples once: see `finish.py` for what passing tuples costs, and for why no function does all
    # that comes after the sums: 40 ns a word and pixel, twice what it took to add them up
    thresholds, flip, toggles, extra = finish.thresholds, finish.flip, finish.toggles, finish.extra
    seen, first_seen, plain, step = plan.seen, plan.first_seen, codes_are_ranks(thresholds, toggles), x.terms[0, 3]
    copies, taps, width = w.values.shape
    one_bit, dense = copies == 1 and thresholds.shape[0] == 1, copies == 1 and words.size == 0
    codes, code, low, high = np.empty(0, np.uint8), 0, 0, 0  # words low .. high are bytes from `code` on
    places, rows, made = np.empty(PIXELS, np.int64), np.empty(PIXELS, np.int64), np.empty(8, np.uint64)
    lanes, own = np.empty((PIXELS, CHANNELS), np.int32), np.arange(PIXELS) * CHANNELS
    masks = np.empty(PIXELS, np.uint64)
    for task in range(begin, end):
        image, run = task // len(plan.runs), task % len(plan.runs)
        at, row, pixels, kind = plan.runs[run]
        at, row = at + image * plan.image_words, row + image * plan.image_rows
        some = plan.reach[kind, 1] > plan.reach[kind, 0]  # a window may see padding only
        start, stop = at + plan.reach[kind, 0], at + (pixels - 1) * plan.step + plan.reach[kind, 1]
        if some and (start < low or stop > high):
            codes, code, high = _bring(x, plan, image, start, stop, end, codes)
            low = start
        for done in range(0, pixels, PIXELS):
            near = max(0, min(done, pixels - PIXELS))  # the last pixels again where fewer are left
            count = min(PIXELS, pixels - near)
            for p in range(PIXELS):
                places[p] = code + (at + (near + min(p, count - 1)) * plan.step - low) * CHANNELS
            for word in range(w.period):
                channels = min(CHANNELS, w.channels - word * CHANNELS)
                for copy in range(copies):
                    lane, weight = (copy * w.period + word) * CHANNELS, copy * taps * width + word * CHANNELS
                    fixed = kind * extra.shape[1] + lane
                    if dense and channels == CHANNELS:
                        for p in range(PIXELS):
                            rows[p] = (row + near + min(p, count - 1)) * values.shape[1] + lane
                        lane_products(
                            codes, places, word * CHANNELS, seen, first_seen[kind], first_seen[kind + 1], w.values,
                            weight, w.narrow, extra, fixed, step, values, rows,
                        )  # fmt: skip
                        continue
                    if one_bit:
                        lane_masks(
                            codes, places, word * CHANNELS, seen, first_seen[kind], first_seen[kind + 1], w.values,
                            weight, w.narrow, extra, fixed, step, thresholds, lane, masks,
                        )  # fmt: skip
                        flips, used = flips_and_lanes(flip, lane, min(LANES, channels))
                        others, more = flips_and_lanes(flip, lane + LANES, max(0, channels - LANES))
                        flips, used = flips | others << np.uint64(LANES), used | more << np.uint64(LANES)
                        for p in range(count):
                            words[np.uint64(0), np.uint64(row + near + p), np.uint64(word)] = (masks[p] ^ flips) & used
                        continue
                    lane_products(
                        codes, places, word * CHANNELS, seen, first_seen[kind], first_seen[kind + 1], w.values, weight,
                        w.narrow, extra, fixed, step, lanes, own,
                    )  # fmt: skip
                    for part in range(0, channels, LANES):
                        channel, valid = (word * CHANNELS + part) * copies + copy, min(LANES, channels - part)
                        for p in range(count):
                            if words.size == 0:
                                store_values(lanes, p, part, channel, valid, copies, values, row + near + p)
                            elif plain and copies == 1:
                                store_ranks(
                                    lanes, p, part, thresholds, flip, lane + part, channel, valid, words,
                                    row + near + p,
                                )  # fmt: skip
                            else:
                                store_codes(
                                    lanes, p, part, thresholds, flip, toggles, lane + part, channel, valid, copies,
                                    made, words, row + near + p,
                                )  # fmt: skip


@inner
def _bring(x, plan, image, start, stop, end, codes):
    """(codes, code, high): words start .. high as bytes from codes[code] on, in a larger buffer if they have to be.

    Up to `stop`, and as far ahead as tasks before `end` see, as their last one in the image tells.
    """
    left, first, planes = x.words, x.terms[0, 0], x.terms[0, 1]
    at, _, pixels, kind = plan.runs[min(end - image * len(plan.runs), len(plan.runs)) - 1]
    most = min(plan.image_words, at + (pixels - 1) * plan.step + plan.reach[kind, 1])
    high = max(stop, min(start + _AHEAD, image * plan.image_words + most))
    if codes.size < (high - start + 1) * CHANNELS:
        codes = np.empty((high - start + 1) * CHANNELS, np.uint8)
    code = first_line(codes)
    expand(left, first * left.shape[1] + start, left.shape[1], planes, high - start, 0, 1, codes, code)
    return codes, code, high
