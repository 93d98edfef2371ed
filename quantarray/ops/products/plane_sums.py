"""Real products of several terms a side: planes are stacked, as more images of x and more outputs of w.

One product of integers gives the exact sums of all pairs of terms, and one pass adds them up with their constants, in
the order of docs/decisions/0001. `conv_real` counts pair by pair; kernels of integers can choose faster techniques.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import empty, has_kernel, kernel
from ...core.dtypes import Array, integers, uint1
from ...core.format import MAX_BITS, WORD, WORD_BITS, word_count
from ...kernels.operands import Finish
from . import calls
from .operand import Operand, lower, reach

_AT_ONCE = 1 << 22  # bytes of sums that are added up at a time


def refusal(device: str, terms: Array, b: Operand, k: int) -> str:
    """Say why a real product of `k` elements is not added up from sums of planes; "" where it can be."""
    if not has_kernel(device, "add_planes"):
        return f"there is no kernel for it on {device}"
    if len(terms) * len(b.terms) == 1:
        return "both operands are one term"
    if (len(terms) > 1 and not _bits(terms)) or (b.source.dtype.step is None and not _bits(b.terms)):
        return "an operand has terms of several planes that are no even integers"
    if max(terms[:, 1]) > MAX_BITS:
        return f"x has {max(terms[:, 1])} planes, more than an array has"
    return "" if k * reach(terms) * b.reach < 2**31 else "sums of codes may pass 2**31"


def _bits(terms: Array) -> bool:
    """True where each term is a bit."""
    return bool((terms[:, 1:] == (1, 0, 1)).all())


def images_at_once(terms: Array, b: Operand, images: int, results: int) -> int:
    """Count the images, of so many results each, whose sums are added up at a time, if possible a part of all."""
    most = max(1, _AT_ONCE // (4 * max(1, len(terms) * len(b.terms) * results)))
    return next((n for n in range(min(most, images), most // 2, -1) if images % n == 0), most)


def stacked_weights(w: QuantArray, b: Operand) -> QuantArray:
    """Return the planes of weights [o kh kw c] as outputs of one bit, followed by an output of ones if w has an
    offset; even integers without their constants.
    """
    if w.dtype.step is not None:
        return QuantArray(b.words, w.dtype, w.shape, w.axis)
    words = np.ascontiguousarray(b.words)
    words = words.reshape(1, -1, *words.shape[2:])
    if has_offset(b):
        ones = np.zeros((1, 1, *words.shape[2:]), WORD)
        length = w.shape[w.axis]
        for i in range(word_count(length)):
            ones[..., i] = np.uint64((1 << min(WORD_BITS, length - i * WORD_BITS)) - 1)
        words = np.concatenate([words, ones], axis=1)
    words.setflags(write=False)
    return QuantArray(words, uint1, (words.shape[1], *w.shape[1:]), w.axis)


def has_offset(b: Operand) -> bool:
    """True where weights have an offset, which asks for the sums of x."""
    return b.offset is not None and bool(b.offset.any())


def stacked(a: Operand) -> QuantArray:
    """Return the planes of images [n ..] as more images of one bit; x of one term without its constants."""
    q = a.source
    if len(a.terms) > 1:
        words = np.ascontiguousarray(a.words)
        shape = (len(words) * q.shape[0], *q.shape[1:])
        return QuantArray(words.reshape(1, shape[0], *words.shape[2:]), uint1, shape, q.axis)
    even = q.dtype.step is not None
    return QuantArray(a.words, q.dtype if even else integers(range(2**a.planes)), q.shape, q.axis)


class Weights(NamedTuple):
    """A set of constants of w, and what results add besides sums."""

    scale: Array  # float64[terms channels]
    offset: Array  # float64[channels], or [0] where there is none
    ones: Array  # int64[classes terms channels]: sums of w's terms over the taps inside
    inside: Array  # int64[classes]: elements inside
    pad: Array  # float64[classes channels]
    bias: Array  # float64[channels]

    def fixed(self, x_offset: float) -> Array:
        """Return what is added to each result besides, in its order: float64[.., classes channels] without zeros."""
        rows = [(x_offset * self.scale[s]) * self.ones[:, s] for s in range(len(self.scale))]
        if self.offset.size:
            rows.append((x_offset * self.offset) * self.inside[:, None])
        rows += [self.pad, np.broadcast_to(self.bias, self.pad.shape)]
        rows = [row for row in rows if row.any()]
        return np.ascontiguousarray(np.array(rows).reshape(len(rows), *self.pad.shape))


class PlaneSums(NamedTuple):
    """A product of stacked planes, and the pass that adds its sums up; called with x as a `Contraction` is."""

    sums: Any  # a contraction to int32 [terms * n i j terms * channels]
    kinds: Array  # int64[pixels]: border classes
    weights: Weights
    finish: Finish
    call: calls.Output

    def __call__(self, x: QuantArray, out: Array | None = None) -> Any:
        """x [n h w c] in, float32 or codes [n i j channels] out."""
        a, device = lower("conv2d", "x", x), x.device
        scale, offset = a.constants(4)
        if math.prod(scale.shape) != len(a.terms) or offset.size != 1:
            raise AssertionError("constants of x vary")
        along, w = scale.reshape(-1), self.weights
        exact = self.sums(stacked(a))
        factor = along[:, None, None] * w.scale
        ones = along[:, None] * w.offset if w.offset.size else np.empty((0, 0))
        rows = math.prod(self.call.shape[:-1])
        packed = self.call.packed
        if packed is None:
            result = empty(device, self.call.shape, self.call.dtype) if out is None else out
            to = result.reshape(rows, self.call.shape[-1])
        else:
            result = packed.empty()
            to = result.reshape(packed.rows)
        by_term = exact.reshape(len(along), rows, exact.shape[-1])
        fixed = w.fixed(float(offset.reshape(())))
        kernel(device, "add_planes")(by_term, factor, ones, self.kinds, fixed, self.finish, to)
        return result if packed is None else packed(result)
