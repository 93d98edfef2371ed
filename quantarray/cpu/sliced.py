"""Depthwise convolution of single bits to single bits, on whole words: `docs/kernels/depthwise.md`."""

from numba import njit, prange

from . import threads
from .deal import next_piece, none_dealt, share
from .micro import slice_run

_LEAST = 1 << 16  # taps times words that are worth a parallel region


def sliced(x, w, plan, out):
    pixels = plan.origin.size
    given = x.words, int(x.terms[0, 0]), w, plan.pixels, plan.classes, plan.origin, plan.image_words
    if threads.serial(x.images * pixels * len(w.taps) * w.period, _LEAST):
        _sliced_range(*given, 0, x.images * pixels, out)
    else:
        threads.run(_sliced_parallel, *given, x.images * pixels, threads.pieces(x.images * pixels), out)


@njit(cache=True, nogil=True, error_model="numpy")
def _sliced_range(words, plane, w, pixels, classes, origin, image_words, begin, end, out):
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


@njit(cache=True, parallel=True, nogil=True)
def _sliced_parallel(words, plane, w, pixels, classes, origin, image_words, rows, pieces, out, workers):
    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, rows)
            _sliced_range(words, plane, w, pixels, classes, origin, image_words, first, last, out)
            piece = next_piece(dealt)
