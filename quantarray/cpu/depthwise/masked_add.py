"""Depthwise convolution by masked additions, and average pooling as one with weights of 1.

Lanes are the 64 input channels of a word; with a channel multiplier m, output channel c * m + r is lane c of copy r.
The bits of x select the weights' values, so a tap costs one shift, one mask and one addition a plane.
"""

import numpy as np

from ..epilogue.finish import Lanes, store, target
from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .taps import add_chosen, fix_lanes

_LANES = 64
_NO_VALUES = {t: np.empty((0, 0), t) for t in (np.int32, np.float32)}
_NO_WORDS = np.empty((0, 0, 0), np.uint64)
_LEAST = 1 << 14  # taps times words that are worth a parallel region


def depthwise(x, fixed, divisor, out):
    w, plan, finish = fixed[:3]
    real = finish.thresholds.dtype == np.float64
    words, values = (out, _NO_VALUES[np.float32 if real else np.int32]) if out.ndim == 3 else (_NO_WORDS, out)
    rows = x.images * plan.origin.size
    if not out.size:
        return
    work = rows * w.words.shape[1] * w.words.shape[2] * w.group_words * x.words.shape[0]
    arguments = x, w, plan, finish, divisor, values, words
    threads.run(_real_range if real else _integer_range, arguments, rows, threads.workers(work, _LEAST))


@inline
def _add_taps(x, w, plan, kind, t, values, at, stride, origin, lanes):
    """lanes[l] += sum over the taps inside of x's code of term t times values[at + tap * stride + l], flat."""
    first, last = plan.first_run[kind], plan.first_run[kind + 1]
    for j in range(x.terms[t, 1]):
        word = (x.terms[t, 0] + j) * x.words.shape[1] + origin
        add_chosen(x.words, word, plan.runs, first, last, w.group_words, values, at, stride, j, lanes)


@inline
def _add_weights(x, w, plan, kind, t, s, copy, word, origin, lanes):
    """lanes[l] += the codes of term t of x times the values of term s of the weights, for the channels of a word."""
    _, copies, taps, width = w.words.shape
    at = (s * copies + copy) * taps * width + word * _LANES
    _add_taps(x, w, plan, kind, t, w.words, at, width, origin + word, lanes)


@inner
def _dot(x, w, plan, kind, t, s, copy, word, origin, dot):
    """dot[l] = the exact sum of term t of x times term s of w, for the channels of a word."""
    dot[:] = 0
    _add_weights(x, w, plan, kind, t, s, copy, word, origin, dot)
    lane0 = (copy * w.group_words + word) * _LANES
    for lane in range(_LANES):
        dot[0, lane] = x.terms[t, 2] * w.sums[kind, s, lane0 + lane] + x.terms[t, 3] * dot[0, lane]


@inline
def _store(dots, w, copy, word, row, to):
    copies, at = w.words.shape[1], (copy * w.group_words + word) * _LANES
    for start in range(0, min(_LANES, w.group_lanes - word * _LANES), LANES):
        valid = min(LANES, w.group_lanes - word * _LANES - start)
        lanes = Lanes(at + start, (word * _LANES + start) * copies + copy, valid, copies)
        store(dots, 0, start, lanes, row, to)


@Kernel
def _integer_range(x, w, plan, finish, divisor, values, words, first, last):
    pixels = plan.origin.size
    dot, to = np.empty((1, _LANES), np.int64), target(finish, values, words)
    for task in range(first, last):
        image, tile = task // pixels, task % pixels
        pixel, kind = plan.pixels[tile, 0], plan.classes[tile]
        origin = image * plan.image_words + plan.origin[pixel]
        for word in range(w.group_words):
            for copy in range(w.words.shape[1]):
                at = (copy * w.group_words + word) * _LANES
                dot[:] = 0
                _add_weights(x, w, plan, kind, 0, 0, copy, word, origin, dot)
                fix_lanes(dot, finish.extra, kind * finish.extra.shape[1] + at, x.terms[0, 3])
                _store(dot, w, copy, word, image * pixels + pixel, to)


@inner
def _lane(constants, lane):
    return constants[0] if constants.size == 1 else constants[min(lane, constants.size - 1)]


@inner
def _real_lanes(x, w, plan, kind, copy, word, origin, row, dot, value):
    """Compute value[l] in float64, in the documented order: products, then A, B and n terms."""
    at, channel = (copy * w.group_words + word) * _LANES, word * _LANES
    n = w.inside[kind]
    ones = np.ones(_LANES, np.int64)  # of every tap
    value[:] = 0.0
    for t in range(x.terms.shape[0]):
        scale = x.scale[0, t, min(row, x.scale.shape[2] - 1)]
        for s in range(w.terms.shape[0]):
            _dot(x, w, plan, kind, t, s, copy, word, origin, dot)
            for lane in range(_LANES):
                value[0, lane] += (_lane(scale, channel + lane) * w.scale[0, s, at + lane]) * dot[0, lane]
    for t in range(x.terms.shape[0]):
        scale = x.scale[0, t, min(row, x.scale.shape[2] - 1)]
        dot[:] = 0
        _add_taps(x, w, plan, kind, t, ones, 0, 0, origin + word, dot)
        for lane in range(_LANES):
            total = x.terms[t, 2] * n + x.terms[t, 3] * dot[0, lane]
            value[0, lane] += (_lane(scale, channel + lane) * w.offset[0, at + lane]) * total
    offset = x.offset[0, min(row, x.offset.shape[1] - 1)]
    for s in range(w.terms.shape[0]):
        for lane in range(_LANES):
            scaled = _lane(offset, channel + lane) * w.scale[0, s, at + lane]
            value[0, lane] += scaled * w.sums[kind, s, at + lane]
    for lane in range(_LANES):
        value[0, lane] += (_lane(offset, channel + lane) * w.offset[0, at + lane]) * n


@Kernel
def _real_range(x, w, plan, finish, divisor, values, words, first, last):
    pixels = plan.origin.size
    dot, value = np.empty((1, _LANES), np.int64), np.empty((1, _LANES), np.float64)
    to = target(finish, values, words)
    for task in range(first, last):
        image, tile = task // pixels, task % pixels
        pixel, kind = plan.pixels[tile, 0], plan.classes[tile]
        origin = image * plan.image_words + plan.origin[pixel]
        for word in range(w.group_words):
            for copy in range(w.words.shape[1]):
                _real_lanes(x, w, plan, kind, copy, word, origin, image, dot, value)
                at = (copy * w.group_words + word) * _LANES
                for lane in range(_LANES):
                    total = (value[0, lane] + finish.pad[kind, at + lane]) + finish.bias[at + lane]
                    value[0, lane] = np.float32(total / divisor[kind] if divisor.size else total)
                _store(value, w, copy, word, image * pixels + pixel, to)
