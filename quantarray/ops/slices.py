"""Convolution of one bit by one bit to one bit, in groups of few channels, made ready for whole words.

With weights of +-c and x = base + step * a, a result is E + step * c * (|b| - |a ^ b|) over the taps inside: it rises
or falls with the number of differing bits, so a threshold on it is one on that number, a small integer.

A group has as many outputs as channels, n. Output i of a group meets channel (i + r) % n in turn r: with the bits of
each group turned by r places every output's next channel lies where the output does, and a turn of a tap is a tap. With
n = 1, which is depthwise, there is one turn, and x is taken as it lies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import QuantArray
from ..device import contiguous, empty, has_kernel, kernel
from ..dtypes import Array
from ..format import WORD_BITS, empty_lines
from ..kernels import Finish, Slices
from ..thresholds import Thresholds
from ..window import Window, classes, tap_offsets
from . import products, thresholding
from .contraction import Job
from .lanes import CopyLanes
from .operand import Operand

_PLANES = (4, 6, 8)  # of a count that kernels know
_AHEAD = 8  # words of a vector, and of a cache line
_MOST = 32  # channels of a group: with more, counting ones in whole words is as fast
_RUN = 256  # words of pixels that are done at once


class Sliced(NamedTuple):
    """The call that is left, called as a `Channelwise` is."""

    device: str
    turns: int
    terms: Array  # of x
    slices: Slices
    packed: thresholding.Packed
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def call(self) -> Sliced:
        """What says the dtype and shape of the result, as of other products."""
        return self

    def __call__(self, x: QuantArray, a: Operand, out: Array | None = None) -> QuantArray:
        """x [n h w c] and its lowered form in, a QuantArray of codes out; there are no dense results for `out`."""
        words = self.packed.empty()
        if words.size:
            left = products.left(self._turned(a.words, len(x)), self.terms, len(x), False)
            kernel(self.device, "sliced")(left, self.slices, words.reshape(self.packed.rows))
        return self.packed(words)

    def _turned(self, words: Array, images: int) -> Array:
        if self.turns == 1:
            return words
        plane = contiguous(words[self.terms[0, 0]]).reshape(images, -1)
        made = empty(self.device, (1, images, self.turns, plane.shape[1]))
        kernel(self.device, "turn")(plane, self.turns, made[0])
        return made


def possible(
    device: str, terms: Array, values: Array, channels: int, real: bool, requantize: Thresholds | None
) -> bool:
    """True for exact results of single bits by +-c, an output a channel, one threshold; values [terms taps outputs]."""
    if not _bits_to_bits(device, terms, real, requantize) or len(values) > 1 or values.shape[2] != channels:
        return False
    return bool(values.size and _fit(values.shape[1]) and (np.abs(values) == abs(values.flat[0])).all())


def possible_in_groups(job: Job) -> bool:
    """The same for a convolution of groups that have an output a channel."""
    n = job.w.shape[3]
    if job.of_bytes or job.groups == 1 or not _bits_to_bits(job.device, job.terms, job.real, job.requantize):
        return False
    return job.shape[3] == job.groups * n and n in (1, 2, 4, 8, 16, _MOST) and _fit(job.window.taps * n) and _two(job.b)


def _bits_to_bits(device: str, terms: Array, real: bool, requantize: Thresholds | None) -> bool:
    one_bit = requantize is not None and requantize.into.bits == 1 and len(terms) == 1 and terms[0, 1] == 1
    return one_bit and not real and has_kernel(device, "sliced")


def _fit(taps: int) -> bool:
    return taps + 2 <= 1 << _PLANES[-1]


def _two(w: Operand) -> bool:
    """Weights are +-c."""
    _, planes, base, step = w.terms[0].tolist()
    return len(w.terms) == 1 and planes == 1 and 2 * base + step == 0


def prepare_in_groups(job: Job) -> Sliced:
    """A convolution for which it is possible."""
    assert job.requantize is not None
    n, channels = job.w.shape[3], job.shape[3]
    _, _, base, step = job.b.terms[0].tolist()
    own = job.w.codes().reshape(channels, -1, n).transpose(1, 2, 0)
    turned = (np.arange(channels) + np.arange(n)[:, None]) % n
    codes = np.take_along_axis(own, turned[None], axis=1).reshape(-1, channels)
    values = base + step * codes.astype(np.int64)
    return prepare(
        job.device, job.terms, values, n, job.window, int(job.pad), job.bias, job.requantize, job.dtype, job.shape
    )


def prepare(
    device: str, terms: Array, values: Array, turns: int, window: Window, pad_value: int, bias: Array | None,
    requantize: Thresholds, dtype: np.dtype[Any], shape: tuple[int, ...],
) -> Sliced:  # fmt: skip
    """values int64[taps * turns, channels] are the weights; the rest as in `channelwise.prepare`."""
    taps, channels = values.shape
    found = classes(window)
    inside = np.repeat(found.inside, turns, axis=1).astype(np.int64)
    sums, total = (inside @ values)[:, None], values.sum(axis=0)
    extra = products.integer_extra(terms, sums, pad_value, bias, total - sums, np.dtype(np.int64))
    lanes = CopyLanes(channels, 1)
    finish = thresholding.finish(requantize, channels, False, extra, lanes=lanes)
    period, pixels = lanes.width // WORD_BITS, int(np.prod(window.image))
    ones, step = values > 0, int(terms[0, 3]) * int(abs(values.flat[0]))
    falls = step > 0  # with the number of differing bits. Behind the channels 0 > 0 is false, so bits there are 0
    planes = next(planes for planes in _PLANES if taps + 2 <= 1 << planes)
    bits = _limits(finish, lanes(inside @ ones), step, taps)[:, None] >> np.arange(planes)[:, None] & 1
    flip = finish.flip.view(np.uint64)
    at = (tap_offsets(window)[:, None] + np.arange(turns) * pixels).reshape(-1) * period
    seen = np.nonzero(inside)[1]
    slices = Slices(
        taps=_words(ones, period),
        limits=_words(bits, period),
        flip=_ahead(flip if falls else ~flip),
        seen=np.stack([at[seen], seen * _length(period)], axis=1),
        first_seen=np.concatenate([[0], inside.sum(axis=1).cumsum()]),
        runs=_runs(window, period),
        image_words=turns * pixels * period,
        result_words=window.pixels * period,
        period=period,
    )
    kept = terms if turns == 1 else np.array([[0, *terms[0, 1:]]])
    return Sliced(device, turns, kept, slices, thresholding.packed(device, requantize, shape), dtype, shape)


def _limits(finish: Finish, inside: Array, step: int, taps: int) -> Array:
    """Of how many differing bits a result has fewer than it has at its threshold, or where it rises, not fewer."""
    reach = np.clip(finish.thresholds[0], -(2**62), 2**62) - finish.extra  # of step * (|b| - |a ^ b|)
    limits: Array = inside - reach // step if step > 0 else inside + reach // -step + 1
    return limits.clip(0, taps + 1)


def _runs(window: Window, period: int) -> Array:
    """Neighbours of one class, whose words lie side by side in an image and in the result, as `Slices` has them."""
    found = classes(window)
    kinds, origin = found.of_pixel, found.origin
    begin = np.flatnonzero(np.diff(kinds, prepend=-1) | (np.diff(origin, prepend=-2) != 1))
    size, most = np.diff(begin, append=len(kinds)), max(1, _RUN // period)
    parts = -(-size // most)
    first = np.repeat(begin, parts) + most * (np.arange(parts.sum()) - np.repeat(parts.cumsum() - parts, parts))
    count = np.minimum(most, np.repeat(begin + size, parts) - first)
    return np.stack([origin[first] * period, first * period, count * period, kinds[first]], axis=1)


def _words(bits: Array, period: int) -> Array:
    """Bits [.., channels] as words."""
    packed = np.packbits(bits.astype(bool), axis=-1, bitorder="little")
    words = np.zeros((*bits.shape[:-1], period * 8), np.uint8)
    words[..., : packed.shape[-1]] = packed
    return _ahead(words.view("<u8"))


def _ahead(words: Array) -> Array:
    """Words [.., period] that go on from the first behind the last, rows and all from a cache line on."""
    made = empty_lines((*words.shape[:-1], _length(words.shape[-1])), words.dtype)
    made[...] = words[..., np.arange(made.shape[-1]) % words.shape[-1]]
    return made


def _length(period: int) -> int:
    """Words of such a row: 8 from each of a period's words on."""
    return -(-(period + _AHEAD - 1) // _AHEAD) * _AHEAD
