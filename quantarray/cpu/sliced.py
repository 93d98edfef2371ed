"""Depthwise convolution of single bits to single bits, on whole words: `docs/kernels/depthwise.md`."""

from . import threads
from .deal import Kernel
from .micro import slice_run

_LEAST = 1 << 16  # taps times words that are worth a parallel region


def sliced(x, w, plan, out):
    rows = x.images * plan.origin.size
    arguments = x.words, int(x.terms[0, 0]), w, plan.pixels, plan.classes, plan.origin, plan.image_words, out
    threads.run(_sliced_range, arguments, rows, threads.workers(rows * len(w.taps) * w.period, _LEAST))


@Kernel
def _sliced_range(words, plane, w, pixels, classes, origin, image_words, out, begin, end):
    row, period = begin, w.period
    while row < end:
        image, tile = row // origin.size, row % origin.size
        pixel, kind, count = pixels[tile, 0], classes[tile], 1
        # Neighbours of one class, whose words lie side by side in x and in the result
        while row + count < end and tile + count < origin.size and classes[tile + count] == kind:
            after = pixels[tile + count, 0]
            if after != pixel + count or origin[after] != origin[pixel] + count * period:
                break
            count += 1
        at = plane * words.shape[1] + image * image_words + origin[pixel]
        to = (image * origin.size + pixel) * period
        slice_run(
            words, at, w.seen, w.first_seen[kind], w.first_seen[kind + 1], w.taps, w.limits, kind, w.flip,
            period, out, to, count * period,
        )  # fmt: skip
        row += count
