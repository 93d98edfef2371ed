"""Rescale exact sums to real results: a multiplication and a few additions an element, rounded once."""

import numpy as np

from ..llvm.vectors import WIDTH
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .rescale_row import rescale_row

_LEAST = 1 << 14  # results that are worth a parallel region


def rescale(sums, x_scale, x_offset, kinds, scale, ones, pad, bias, inside, out):
    if not out.size:
        return
    arguments = sums, x_scale, x_offset, kinds, scale, ones, pad, bias, inside, out
    threads.run(_rescale_rows, arguments, len(out), threads.workers(out.size, _LEAST))


@Kernel
def _rescale_rows(sums, x_scale, x_offset, kinds, scale, ones, pad, bias, inside, out, first, last):
    channels, pixels = out.shape[1], kinds.size
    factor, before, shifted = np.empty(channels), -1, x_offset.any()
    plain = not shifted and not pad.size  # all that is added is the bias
    shift = np.zeros((1, 1) if plain else ones.shape)
    pads = pad if pad.size else np.zeros(shift.shape)
    for row in range(first, last):
        image, kind = row // pixels, kinds[row % pixels]
        if image != before:
            _scale_of_image(x_scale, x_offset, image, shifted, scale, ones, factor, shift)
            before = image
        n = inside[kind] if inside.size else 1.0
        rescale_row(sums, factor, shift, pads, kind * channels, bias, n, plain, out, row * channels, channels)
        for c in range(channels & -WIDTH, channels):
            value = 0.0 + factor[c] * sums[row, c]
            out[row, c] = ((value if plain else (value + shift[kind, c]) + pads[kind, c]) + bias[c]) / n


@inner
def _scale_of_image(x_scale, x_offset, image, shifted, scale, ones, factor, shift):
    """Fill factor[channels] and shift[classes channels]; shifts are 0 unless `shifted`: adding them then changes
    nothing.
    """
    along, offset = x_scale[min(image, x_scale.size - 1)], x_offset[min(image, x_offset.size - 1)]
    for c in range(scale.size):
        factor[c] = along * scale[c]
    if shifted:
        for kind in range(ones.shape[0]):
            for c in range(scale.size):
                shift[kind, c] = (offset * scale[c]) * ones[kind, c]
