"""Products by parts, where a whole one would keep or make more than its operands allow.

- By outputs, where a layout of the weights takes more than `layouts.room` beyond their words: those of the first
  outputs are kept as far as they may be, and the others are laid out in each call, at most 1 MiB or a sixteenth of the
  weights at a time.
- By images or rows of x, where planes of x that are not its own would take more than twice its words, or 16 MiB; and of
  a matrix of more than 65,536 rows, of whose plan each takes 32 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.layouts import room
from ...arrays.thresholds import Thresholds
from ...backends.registry import empty
from ...core.dtypes import Array
from ...core.format import WORD_BITS
from . import calls

_AT_ONCE = 1 << 20  # bytes of weights that are laid out in a call

Call = Callable[..., Any]
Prepare = Callable[..., Any]  # a call for x, w, bias and requantize


class Result(NamedTuple):
    """A result [.., channels] that is filled in part by part."""

    device: str
    requantize: Thresholds | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def start(self, out: Array | None) -> Any:
        """Allocate the result: a dense array, or words that are all zero."""
        if self.requantize is None:
            return empty(self.device, self.shape, self.dtype) if out is None else out
        return calls.packed(self.device, self.requantize, self.shape).empty()

    def fill(self, result: Any, rows: slice, channels: slice, part: Any) -> None:
        """Put a part in its place; channels begin on words."""
        if self.requantize is None:
            result[rows, ..., channels] = part
        else:
            words = slice(channels.start // WORD_BITS, -(-channels.stop // WORD_BITS))
            result[:, rows, ..., words] = part.words

    def end(self, result: Any) -> Any:
        if self.requantize is None:
            return result
        return calls.packed(self.device, self.requantize, self.shape)(result)


class ByOutputs(NamedTuple):
    """`prepare(x, w, bias, requantize)` makes the call of a part ready; `w` has no layouts of its own."""

    result: Result
    prepare: Prepare
    w: QuantArray
    bias: Array | None
    head: int  # outputs whose call is kept
    first: Call | None
    step: int

    @property
    def call(self) -> Result:
        """Return what has the dtype and shape of the result."""
        return self.result

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        result, channels = self.result.start(out), self.result.shape[-1]
        if self.first is not None:
            self.result.fill(result, slice(None), slice(0, self.head), self.first(x))
        for part in _cuts(self.head, channels, self.step):
            self.result.fill(result, slice(None), part, self._ready(x, part)(x))
        return self.result.end(result)

    def _ready(self, x: Any, part: slice) -> Call:
        bias, requantize = None if self.bias is None else self.bias[part], self.result.requantize
        call: Call = self.prepare(x, self.w[part], bias, None if requantize is None else requantize.of_channels(part))
        return call


def by_outputs(
    result: Result,
    prepare: Prepare,
    x: Any,
    w: QuantArray,
    bias: Array | None,
    output: int,
    cached: int,
    together: int = 1,
) -> ByOutputs:
    """Multiply by weights of which an output takes `output` bytes laid out, and `cached` if that is cached.

    Parts are multiples of `together` outputs, or all.
    """
    outputs, unit = w.shape[0], math.lcm(together, WORD_BITS)
    head = (w.nbytes + room(w.nbytes) // 2) // cached // unit * unit
    head = head if 2 * head >= outputs else 0  # or else the price is the same, and there is less to keep
    step = max(unit, max(_AT_ONCE, w.nbytes // 16) // output // unit * unit)
    whole = ByOutputs(result, prepare, w._view(), bias, head, None, step)
    if not head:
        return whole
    first: Call = whole._ready(x, slice(0, head))
    return whole._replace(first=first)


class ByRows(NamedTuple):
    """A product by parts of the first axis of x, all but the last of one form, whose call is held."""

    result: Result
    prepare: Prepare
    w: QuantArray  # a view, with layouts of its own
    bias: Array | None
    step: int
    first: Call

    @classmethod
    def of(
        cls, result: Result, prepare: Prepare, x: Any,
        w: QuantArray, bias: Array | None, step: int,
    ) -> ByRows:  # fmt: skip
        """Prepare a product for parts of x."""
        view = w._view()
        return cls(result, prepare, view, bias, step, prepare(x[:step], view, bias, result.requantize))

    @property
    def call(self) -> Result:
        return self.result

    def __call__(self, x: Any, out: Array | None = None) -> Any:
        result = self.result.start(out)
        for rows in _cuts(0, len(x), self.step):
            part, call = x[rows], self.first
            if len(part) < self.step:
                call = self.prepare(part, self.w, self.bias, self.result.requantize)
            if self.result.requantize is None:
                call(part, result[rows])
            else:
                self.result.fill(result, rows, slice(0, self.result.shape[-1]), call(part))
        return self.result.end(result)


def _cuts(start: int, stop: int, step: int) -> Iterator[slice]:
    """Yield slices of so many elements."""
    for at in range(start, stop, step):
        yield slice(at, min(at + step, stop))
