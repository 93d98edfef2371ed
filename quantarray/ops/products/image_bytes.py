"""Images of int8 or uint8, packed before they are convolved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import device_of, namespace
from ...core.dtypes import Array
from ...core.format import word_count
from ...kernels.windows import Window
from . import unrolling
from .channels import channels_last
from .conv_job import Job
from .conv_plan import side_by_side
from .operand import from_dense, lower


def pack(x: Array) -> QuantArray:
    """Pack images [n h w c] along their channels."""
    return from_dense(channels_last(x), 3)


def packed(job: Job) -> tuple[Job, Callable[[Array], QuantArray]]:
    """Return (the job for packed images, what packs them), with windows unrolled where that saves words."""
    window, c, of_bits = job.window, job.w.shape[3], replace(job, of_bytes=False)
    saves = word_count(window.taps * c) < window.taps * word_count(c)
    if not saves or job.groups != 1 or job.pad != 0 or len(window.size) != 2:
        return of_bits, pack
    if of_bits.few_channels and not unrolling.refusal(of_bits, 2):
        return replace(of_bits, unrolled=2), pack
    unroll, w = UnrolledBytes(window), side_by_side(job.w)
    b = lower("conv2d", "w", w)
    return replace(job, w=w, b=b, window=unroll.windows, of_bytes=False), unroll


@dataclass(frozen=True)
class UnrolledBytes:
    """Pack images of few channels as rows of whole windows, where no kernel makes such rows of packed pixels.

    With 3 channels, 9 taps would be 9 words of 3 bits each; unrolled they are 27 bits of one.
    """

    window: Window

    @property
    def windows(self) -> Window:
        """Return the window over unrolled images: one tap."""
        return Window(self.window.output, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))

    def __call__(self, x: Array) -> QuantArray:
        """Unroll images [n h w c] to [n i j taps*c], packed, zeros where a window leaves the image."""
        window = self.window
        image = [n + sum(p) for n, p in zip(window.image, window.pads, strict=True)]
        nbytes = len(x) * x.shape[3] * (math.prod(image) + window.pixels * window.taps)
        checks.room("conv2d", "x padded and unrolled", nbytes)
        xp = namespace(device_of(x))
        padded = xp.pad(x, ((0, 0), *window.pads, (0, 0)))
        n, rows, columns, c = padded.strides
        (sh, sw), (dh, dw) = window.stride, window.dilation
        strides = n, sh * rows, sw * columns, dh * rows, dw * columns, c
        views = xp.lib.stride_tricks.as_strided(padded, (len(x), *window.output, *window.size, x.shape[3]), strides)
        return pack(views.reshape(*views.shape[:3], window.taps * x.shape[3]))
