"""Convolution of one bit by one bit to one bit, in groups of few channels, made ready for whole words.

With weights of +-c and x = base + step * a, a result is E + step * c * (|b| - |a ^ b|) over the taps inside: it rises
or falls with the number of differing bits, so a threshold on it is one on that number, a small integer.

A group has n channels and n outputs. In turn r, output i of a group meets channel (i + r) % n: rotating the bits of
each group by r places brings that channel to the output's bit, so each turn of a tap is counted like a tap of its own.
With n = 1, which is depthwise, there is one turn, and x is read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends.registry import empty, has_kernel, kernel
from ...core.dtypes import Array
from ...core.forks import cached_property
from ...core.format import WORD_BITS, empty_lines
from ...kernels.operands import Finish, Left, Slices
from ...kernels.windows import Window, classes, stretches, tap_offsets
from . import calls
from .lanes import CopyLanes
from .operand import reach

_PLANES = (4, 6, 8)  # of a count that kernels know
_AHEAD = 8  # words of a vector, and of a cache line
_RUN = 256  # words of pixels that are done at once


@dataclass(frozen=True)
class Sliced:
    """A convolution counted bit by bit, called as a `Call` is. It has no dense results: `finished` gives it thresholds,
    if it has none yet."""

    device: str
    turns: int
    step: int  # of x, times c
    inside: Array  # int64[classes lanes]: |b|
    weights: Slices  # but for limits and flips
    finish: Finish  # whose lanes are channels
    packed: calls.Packed | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def finished(self, finish: Finish, packed: calls.Packed | None) -> Sliced:
        """Return the same sums with another last step."""
        return replace(self, finish=finish, packed=packed)

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """Return a QuantArray of codes."""
        assert self.packed is not None
        words = self.packed.empty()
        if words.size:
            kernel(self.device, "sliced")(self._turned(x), self.slices, words.reshape(self.packed.rows))
        return self.packed(words)

    def _turned(self, x: Left) -> Left:
        if self.turns == 1:
            return x
        plane = x.words[x.terms[0, 0]].reshape(x.images, -1)
        turned = empty(self.device, (x.images, self.turns, plane.shape[1]))
        kernel(self.device, "turn")(plane, self.turns, turned)
        return x._replace(words=turned.reshape(1, -1), terms=np.array([[0, *x.terms[0, 1:]]]))

    @cached_property
    def slices(self) -> Slices:
        """Return kernel operands other than x: thresholds on popcount(x ^ w)."""
        falls = self.step > 0  # with the number of differing bits. After the channels 0 > 0 is false: bits there are 0
        reach = np.clip(self.finish.thresholds[0], -(2**62), 2**62) - self.finish.extra  # of step * (|b| - |a ^ b|)
        limits = self.inside - reach // self.step if falls else self.inside + reach // -self.step + 1
        taps = len(self.weights.taps)
        planes = next(planes for planes in _PLANES if taps + 2 <= 1 << planes)
        bits = limits.clip(0, taps + 1)[:, None] >> np.arange(planes)[:, None] & 1
        flip = self.finish.flip.view(np.uint64)
        return self.weights._replace(limits=_words(bits), flip=_ahead(flip if falls else ~flip))


def refusal(device: str, terms: Array, values: Array) -> str:
    """Say why exact results of x by weights int64[taps * turns, channels] are not counted bit by bit; else "".

    Sums stay below 2**61, so that a threshold within +-2**62 less what is added to them is an int64.
    """
    if not has_kernel(device, "sliced"):
        return f"there is no kernel for it on {device}"
    if len(terms) > 1 or terms[0, 1] > 1:
        return "x has more than one bit"
    if len(values) + 2 > 1 << _PLANES[-1]:
        return f"a result sums more than {(1 << _PLANES[-1]) - 2} products"
    sizes = np.abs(values)
    if not sizes.any() or (sizes != sizes.flat[0]).any():
        return "weights are not plus and minus one number"
    return "" if len(values) * int(sizes.flat[0]) * reach(terms) < 2**61 else "sums may pass 2**61"


def prepare(
    device: str, terms: Array, values: Array, turns: int, window: Window, finish: Finish,
    output: calls.Output,
) -> Sliced:  # fmt: skip
    """Prepare the call for weights int64[taps * turns, channels] that are not refused. `finish` has its lanes as
    `CopyLanes` of one copy."""
    lanes, inside = CopyLanes(values.shape[1], 1), np.repeat(classes(window).inside, turns, axis=1).astype(np.int64)
    period, pixels = lanes.width // WORD_BITS, int(np.prod(window.image))
    at = (tap_offsets(window)[:, None] + np.arange(turns) * pixels).reshape(-1) * period
    (first, count, kind), origin = stretches(window, max(1, _RUN // period)).T, classes(window).origin
    seen, none = np.nonzero(inside)[1], np.empty(0, np.uint64)
    weights = Slices(
        taps=_words(lanes(values > 0)),
        limits=none,
        flip=none,
        seen=np.stack([at[seen], seen * _length(period)], axis=1),
        first_seen=np.concatenate([[0], inside.sum(axis=1).cumsum()]),
        runs=np.stack([origin[first] * period, first * period, count * period, kind], axis=1),
        image_words=turns * pixels * period,
        turned=turns > 1,
        result_words=window.pixels * period,
        period=period,
    )
    step = int(terms[0, 3]) * int(abs(values.flat[0]))
    return Sliced(device, turns, step, lanes(inside @ (values > 0)), weights, finish, *output)


def _words(bits: Array) -> Array:
    """Pack bits [.., lanes], whole words of them."""
    return _ahead(np.packbits(bits.astype(bool), axis=-1, bitorder="little").view("<u8"))


def _ahead(words: Array) -> Array:
    """Extend words [.., period] cyclically for loads of 8, rows and all from a cache line on."""
    extended = empty_lines((*words.shape[:-1], _length(words.shape[-1])), words.dtype)
    extended[...] = words[..., np.arange(extended.shape[-1]) % words.shape[-1]]
    return extended


def _length(period: int) -> int:
    """Count the words of a row for `_ahead`: 8 from each of a period's words on."""
    return -(-(period + _AHEAD - 1) // _AHEAD) * _AHEAD
