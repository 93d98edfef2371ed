"""Convolution of groups of few channels, single bits to single bits, on whole words: `docs/kernels/sliced.md`."""

from ..runtime import threads
from ..runtime.schedule import Kernel
from .bit_counters import slice_run

_LEAST = 1 << 17  # taps times words that are worth a parallel region
_ROTATED = 4  # times as many, where one thread has just written x's bits: another has to fetch them from its cache


def sliced(x, w, out):
    arguments = x.words, int(x.terms[0, 0]), w, out
    tasks, work = x.images * len(w.runs), x.images * w.result_words * len(w.taps)
    threads.run(_sliced_range, arguments, tasks, threads.workers(work, _LEAST * (_ROTATED if w.turned else 1)))


@Kernel
def _sliced_range(words, plane, w, out, begin, end):
    for task in range(begin, end):
        image, run = task // len(w.runs), task % len(w.runs)
        at, to, count, kind = w.runs[run]
        at += plane * words.shape[1] + image * w.image_words
        slice_run(
            words, at, w.seen, w.first_seen[kind], w.first_seen[kind + 1], w.taps, w.limits, kind, w.flip, w.period,
            out, image * w.result_words + to, count,
        )  # fmt: skip
