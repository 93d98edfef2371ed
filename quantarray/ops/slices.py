"""Depthwise convolution of one bit by one bit to one bit, made ready for whole words.

With weights of +-c and x = base + step * a, a result is E + step * c * (|b| - |a ^ b|) over the taps inside: it rises
or falls with the number of differing bits, so a threshold on it is one on that number, a small integer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import QuantArray
from ..device import has_kernel, kernel
from ..dtypes import Array
from ..format import WORD_BITS
from ..kernels import Finish, Plan, Slices
from ..thresholds import Thresholds
from ..window import Window, classes, plan, tap_offsets
from . import products, thresholding
from .operand import Operand

_PLANES = (4, 6)  # of a count that kernels know
_AHEAD = 8  # words that vectors read behind the last channel's


class Sliced(NamedTuple):
    """The call that is left, called as a `Channelwise` is."""

    device: str
    slices: Slices
    plan: Plan
    packed: thresholding.Packed
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def call(self) -> Sliced:
        """What says the dtype and shape of the result, as of other products."""
        return self

    def __call__(self, x: QuantArray, a: Operand, out: Array | None = None) -> QuantArray:
        """x [n h w c] and its lowered form in, a QuantArray of codes out; there are no dense results for `out`."""
        left = products.left(a.words, a.terms, len(x), False)
        words = self.packed.empty()
        if words.size:
            kernel(self.device, "sliced")(left, self.slices, self.plan, words.reshape(self.packed.rows))
        return self.packed(words)


def possible(
    device: str, terms: Array, values: Array, channels: int, real: bool, requantize: Thresholds | None
) -> bool:
    """True for exact results of single bits by +-c, an output a channel, one threshold; values [terms taps outputs]."""
    one_bit = requantize is not None and requantize.into.bits == 1 and len(terms) == 1 and terms[0, 1] == 1
    if not one_bit or real or len(values) > 1 or values.shape[2] != channels or not values.size:
        return False
    counts = values.shape[1] + 2 <= 1 << _PLANES[-1]
    return counts and bool((np.abs(values) == abs(values.flat[0])).all()) and has_kernel(device, "sliced")


def prepare(
    device: str, terms: Array, values: Array, window: Window, finish: Finish, requantize: Thresholds,
    dtype: np.dtype[Any], shape: tuple[int, ...],
) -> Sliced:  # fmt: skip
    """`finish` has its lanes in the order of the channels."""
    taps, channels = values.shape[1:]
    found, period = classes(window), finish.extra.shape[1] // WORD_BITS
    ones = values[0] > 0
    step = int(terms[0, 3]) * int(abs(values.flat[0]))
    reach = np.clip(finish.thresholds[0], -(2**62), 2**62) - finish.extra  # of step * (|b| - |a ^ b|)
    inside = np.zeros_like(finish.extra)
    inside[:, :channels] = found.inside.astype(np.int64) @ ones
    falls = step > 0  # with the number of differing bits. Behind the channels 0 > 0 is false, so bits there are 0
    limits = inside - reach // step if falls else inside + reach // -step + 1
    planes = next(planes for planes in _PLANES if taps + 2 <= 1 << planes)
    bits = np.clip(limits, 0, taps + 1)[:, None] >> np.arange(planes)[:, None] & 1
    flip = finish.flip.view(np.uint64)
    seen = [(tap, at) for row in found.inside for tap, at in enumerate(tap_offsets(window) * period) if row[tap]]
    slices = Slices(
        taps=_words(ones, period),
        limits=_words(bits, period),
        flip=_ahead(flip if falls else ~flip),
        seen=np.array(seen, np.int64).reshape(-1, 2)[:, ::-1].copy(),
        first_seen=np.concatenate([[0], found.inside.sum(axis=1).cumsum()]),
        period=period,
    )
    packed = thresholding.packed(device, requantize, shape)
    return Sliced(device, slices, plan(window, period, 1, 1), packed, dtype, shape)


def _words(bits: Array, period: int) -> Array:
    """Bits [.., channels] as words."""
    packed = np.packbits(bits.astype(bool), axis=-1, bitorder="little")
    words = np.zeros((*bits.shape[:-1], period * 8), np.uint8)
    words[..., : packed.shape[-1]] = packed
    return _ahead(words.view("<u8"))


def _ahead(words: Array) -> Array:
    """Words [.., period] that go on from the first behind the last."""
    return np.ascontiguousarray(words[..., np.arange(words.shape[-1] + _AHEAD) % words.shape[-1]])
