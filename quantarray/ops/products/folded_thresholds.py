"""Thresholded real products of one term a side, as products of integers: constants are folded into the thresholds.

A result is r(U) = float32(((sx * sw) * U + bias) / n), where n is 1 but for means. No factor is negative, so r does not
fall where the exact sum U grows: r(U) > t is U > u for the largest u with r(u) <= t, which bisection finds in the very
arithmetic of `conv_real`. What leaves the kernel of integers then is equal to the bit, and it takes fewer passes and no
floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...kernels.operands import Finish, Left
from . import calls
from .operand import Operand, inexact
from .rank_lines import lines_of

_MOST = 8  # scales of x whose thresholds are kept
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def refusal(requantize: Thresholds | None, terms: Array, b: Operand, k: int, pad: float) -> str:
    """Say why constants are not folded into thresholds on sums of `k` products; "" where they can be.

    As far as dtypes and weights tell: an x with an offset, or with scales that vary, is computed by `conv_real`.
    """
    if requantize is None:
        return "the result has no thresholds"
    return "padded taps have a value" if pad else inexact(terms, b, k)


_computed_real: ContextVar[list[str] | None] = ContextVar("quantarray_not_folded", default=None)


@contextmanager
def not_folded() -> Iterator[list[str]]:
    """Collect the kernels of real results that run inside because constants of x did not fold."""
    kernels: list[str] = []
    token = _computed_real.set(kernels)
    try:
        yield kernels
    finally:
        _computed_real.reset(token)


def note_not_folded(kernel: str) -> None:
    """Note that a kernel of real results ran instead of folded thresholds."""
    kernels = _computed_real.get()
    if kernels is not None:
        kernels.append(kernel)


class Exact(NamedTuple):
    """A call that makes sums of integers with thresholds equivalent to those of real results."""

    call: calls.Sums  # without thresholds
    scale: Array  # of w, float64 in the lanes of `call`
    last: Finish  # of real results, in the same lanes
    packed: calls.Packed | None
    calls_by_scale: dict[float, calls.Sums | None]
    inside: int = 1  # what results are divided by, if they are means

    def for_scale(self, x: Left) -> calls.Sums | None:
        """Return the call for the scale of x; None where no thresholds give what the real one does."""
        if x.scale.size != 1 or x.offset.any():
            return None
        scale = float(x.scale.item())
        if scale not in self.calls_by_scale:
            if len(self.calls_by_scale) >= _MOST:
                self.calls_by_scale.clear()
            finish = self._fold(scale)
            self.calls_by_scale[scale] = None if finish is None else self.call.finished(finish, self.packed)
        return self.calls_by_scale[scale]

    def _fold(self, x_scale: float) -> Finish | None:
        """Return the last step of integers that gives the codes of the real one; None where a factor is negative."""
        factor, last = x_scale * self.scale, self.last
        if (factor < 0).any():
            return None

        def value(sums: Array) -> Array:
            with np.errstate(over="ignore"):
                return np.asarray(((0.0 + factor * sums) + last.bias) / self.inside, np.float32)

        thresholds = _largest(lambda sums: value(sums) <= last.thresholds, last.thresholds.shape)
        exact = self.call.finish
        integers = thresholds.astype(exact.extra.dtype)
        lines = lines_of(integers)
        return exact._replace(thresholds=integers, flip=last.flip, toggles=last.toggles, lines=lines)


class Later(NamedTuple):
    """A call that is made ready when it is wanted, each time: its layout of the weights is not kept besides another."""

    name: str  # of its kernel
    ready: Callable[[], calls.Call]
    device: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __call__(self, x: Left) -> Any:
        """Prepare the call and run it."""
        return self.ready()(x)


class Folded(NamedTuple):
    """A pair of calls, on integers and on reals, called as the `Call` `real` is."""

    real: calls.Call | Later
    exact: Exact
    images: int  # as the plan of `exact` counts them

    @property
    def device(self) -> str:
        return self.real.device

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.real.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.real.shape

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """Compute a QuantArray of codes; `out` is for dense results, which there are none of."""
        exact = self.exact.for_scale(x)
        if exact is not None:
            return exact(x._replace(images=self.images))
        note_not_folded(self.real.name)
        return self.real(x)


def folds(a: Operand, b: Operand) -> bool:
    """True if the constants of x, lowered as `a`, have thresholds equivalent to those of real results."""
    scale, offset = a.constants(1)
    w_scale, _ = b.constants(1)
    return scale.size == 1 and not offset.any() and bool((scale * w_scale >= 0).all())


def fold(
    real: calls.Call, exact: calls.Sums, images: int, inside: int = 1, *,
    again: Callable[[], calls.Call] | None = None,
) -> Folded:  # fmt: skip
    """Join two calls of the same lanes. `again` prepares the real one for each call, and then it is not held."""
    sums = Exact(exact, real.fixed.w.scale[0, 0], real.finish, real.packed, {}, inside)
    return Folded(real if again is None else Later(real.name, again, real.device, real.dtype, real.shape), sums, images)


def _largest(holds: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """Find the largest int32 for which `holds` is true, as for all below; the lowest where it is for none."""
    low, high = np.full(shape, _LOWEST, np.int64), np.full(shape, _HIGHEST, np.int64)
    for _ in range(32):
        middle = (low + high + 1) >> 1
        below = holds(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle - 1)
    return low
