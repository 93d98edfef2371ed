"""Prepare `quantize` by schemes of the package once for arrays of one form.

Checks and look-ups are the same for all images of a network, and take ten times as long as encoding a small one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.exchange import is_cupy
from ...arrays.launched import Launched
from ...backends.registry import contiguous, device_of, empty, kernel, zeros
from ...core.bounded_cache import Kept
from ...core.dtypes import Array, Constants, DType
from ...core.format import word_count
from ...kernels.operands import RangeRule, Search
from ...quantizers.base import Quantizer
from ...quantizers.extremes import extremes
from ...quantizers.grouped import DIGITS, Grouped, kernel_key, upper_half
from ...quantizers.uniform import Uniform, range_rule
from . import encoding, grids

_ORDINARY = 1e30  # magnitudes up to which no constant and no level is beyond float32
_FEW = 1 << 16  # elements from which on a kernel takes another thread
_MANY = 16  # ranges that are enough tasks for several threads
_kept = Kept(256)


class Ready(NamedTuple):
    """Quantise arrays of one form in the steps that depend on values: fit, and encode."""

    encoder: encoding.Encoder | grids.Encoder | None  # None of a scheme with words of its own
    quantizer: Quantizer
    dtype: DType
    shape: tuple[int, ...]
    axis: int
    law: Constants | None  # None where each array's are fitted to it
    reduced: tuple[int, ...]  # the axes over which they are, of x with groups as an axis
    grouped: tuple[int, ...]  # x's shape then
    stored: tuple[int, ...]  # that of the constants
    group: int | None
    scheme: str

    def __call__(self, x: Array) -> QuantArray | None:
        """Return None where the unprepared call has to look at x: a NaN, infinities to fit to, huge numbers."""
        law = self._fitted(x) if self.law is None else self.law
        words = None if law is None else self._words(x, law)
        return None if words is None else QuantArray(words, self.dtype, self.shape, self.axis, law, self.scheme)

    def _words(self, x: Array, law: Constants) -> Array | None:
        encoder, quantizer = self.encoder, self.quantizer
        if isinstance(encoder, grids.Encoder):
            grid = quantizer.grid(law)
            assert grid is not None
            return encoder(x, grid)
        if encoder is None:
            return quantizer.encode_words(x, law, self.axis)
        cuts = quantizer.cuts(law) if self.law is None else None
        return (encoder if cuts is None else encoder.recut(cuts))(x)

    def _fitted(self, x: Array) -> Constants | None:
        x = x if self.grouped is self.shape else x.reshape(self.grouped)
        ends = extremes(x, self.reduced)
        low, high = ends.ravel().tolist() if ends.size == 2 else (ends[0].min(), ends[1].max())
        if not (-_ORDINARY < low and high < _ORDINARY):
            return None
        constants = encoding.fitted(self.quantizer, ends)
        if constants is None:
            constants = self.quantizer.fit(x, self.reduced)
        if constants.table is not None:
            constants = constants.map(lambda a, lead: a + np.float32(0))  # no -0: equal constants, equal digests
        if self.grouped is self.shape:
            return constants
        return constants.map(lambda a, lead: a.reshape(*a.shape[:lead], *self.stored), self.group)


class Direct:
    """Quantise arrays of one form by one kernel, which a subclass calls, with little of Python around it."""

    def __init__(self, x: Array, quantizer: Quantizer, axis: int) -> None:
        self.dtype, self.shape, self.axis, self.scheme = quantizer.dtype, x.shape, axis, repr(quantizer)
        length = x.shape[axis]
        self.rows, self.by_row = (x.size // length, length), x.ndim == 2
        self.out = (quantizer.dtype.bits, x.size // length, word_count(length))
        self.reshaped = (self.out[0], *x.shape[:axis], self.out[2])

    def __call__(self, x: Array) -> QuantArray | None:
        x = contiguous(x)
        out = empty("cpu", self.out)
        law = self.encode(x if self.by_row else x.reshape(self.rows), out)
        if law is None:
            return None
        words = out if self.by_row else out.reshape(self.reshaped)
        return QuantArray(words, self.dtype, self.shape, self.axis, law, self.scheme)

    def encode(self, x: Array, out: Array) -> Constants | None:
        """Write the words of x[rows length]; None where the unprepared call has to look at x."""
        raise NotImplementedError


class Given(Direct):
    """Encode by constants that are known before x is."""

    def __init__(
        self, x: Array, quantizer: Quantizer, axis: int, law: Constants, encoder: encoding.Encoder | grids.Encoder
    ) -> None:
        super().__init__(x, quantizer, axis)
        self.law, self.fixed = law, encoder.fixed(quantizer, law)
        self.kernel = kernel("cpu", "encode_small" if isinstance(self.fixed, Search) else "encode_grid_small")

    def encode(self, x: Array, out: Array) -> Constants | None:
        nan = zeros("cpu", (1,), np.bool_)
        self.kernel(x, self.fixed, nan, out)
        return None if nan.item() else self.law


class Ranged(Direct):
    """Fit evenly spaced levels to ranges of x, and encode."""

    def __init__(self, x: Array, quantizer: Quantizer, axis: int, law: Constants, rule: RangeRule) -> None:
        super().__init__(x, quantizer, axis)
        entries = math.prod(law.shapes[0])
        self.rule, self.run, self.group = rule, x.size // entries, law.group
        self.stored, self.flat = (len(law.shapes), *law.shapes[0]), (len(law.shapes), entries)
        self.kernel = kernel("cpu", "encode_range")

    def encode(self, x: Array, out: Array) -> Constants | None:
        constants, wrong = empty("cpu", self.stored, np.float32), zeros("cpu", (1,), np.bool_)
        self.kernel(x, self.run, self.rule, wrong, constants.reshape(self.flat), out)
        if wrong.item():
            return None
        constants.setflags(False)  # type: ignore[call-arg]  # by name it takes 0.3 us more
        return Constants(constants[0], None if self.rule.symmetric else constants[1], None, self.group)


class Groups(Direct):
    """Fit `Grouped` to each group, and round with random numbers or without."""

    def __init__(self, x: Array, quantizer: Grouped, axis: int, law: Constants) -> None:
        super().__init__(x, quantizer, axis)
        self.run, self.group = x.size // math.prod(law.shapes[0]), law.group
        self.stored, self.flat = (2, *law.shapes[0]), (2, math.prod(law.shapes[0]))
        self.key, self.half = kernel_key(quantizer), quantizer.constants == "bfloat16"
        self.digits, self.kernel = DIGITS[quantizer.constants], kernel("cpu", "encode_groups")

    def encode(self, x: Array, out: Array) -> Constants | None:
        constants, wrong = empty("cpu", self.stored, np.float32), zeros("cpu", (1,), np.bool_)
        self.kernel(x, self.run, self.digits, self.key, wrong, constants.reshape(self.flat), out)
        if wrong.item():
            return None
        stored = upper_half(constants) if self.half else constants
        stored.setflags(False)  # type: ignore[call-arg]
        return Constants(stored[0], stored[1], None, self.group)


def form(x: Any, quantizer: Any, axis: Any, scale_axis: Any, group: Any) -> tuple[Any, ...] | None:
    """Return the key of a call; None for a call that is not prepared."""
    scheme: Any = type(quantizer)
    device = "cpu" if type(x) is np.ndarray else device_of(x) if is_cupy(x) else None
    if device is None or not encoding.of_package(scheme):
        return None
    if type(axis) is not int or not (scale_axis is None or type(scale_axis) is int):
        return None
    if not (group is None or type(group) is int):
        return None
    values = tuple(quantizer.__dict__.values())  # with their types: True is not 1.0, though the two are equal
    return scheme, values, tuple(map(type, values)), x.dtype, x.shape, device, axis, scale_axis, group


def find(key: tuple[Any, ...]) -> Ready | Direct | Launched | None:
    """Return the call that `keep` prepared, or None."""
    ready: Ready | Direct | Launched | None = _kept.get(key)
    return ready


def keep(
    op: str,
    key: tuple[Any, ...],
    x: Array,
    quantizer: Quantizer,
    axis: int,
    varying: tuple[int, ...],
    group: int | None,
    law: Constants,
) -> None:
    """Prepare calls like one that was made, if its fit and one pass of a kernel are all of it.

    `varying` are the axes along which constants vary, with `group` in groups of the packed one too.
    """
    if group is not None and x.shape[axis] % group:
        return
    encoder: encoding.Encoder | grids.Encoder | None = None
    if type(quantizer).encode_words is Quantizer.encode_words:
        if grids.grid_of(x, quantizer, law, axis) is not None:
            encoder = grids.encoder(x.shape, quantizer.dtype.bits, law, axis)
        elif encoding.pays(x, quantizer, law, axis) and (quantizer.fixed or encoding.has_cuts(quantizer)):
            encoder = encoding.encoder(op, x, quantizer, law, axis)
        else:
            return
    direct = _direct(x, quantizer, axis, law, encoder)
    if direct is not None:
        _kept.keep(key, direct)
        return
    reduced, grouped = tuple(d for d in range(x.ndim) if d not in varying), x.shape
    if group is not None:
        reduced = (*(d if d < axis else d + 1 for d in reduced if d != axis), axis + 1)
        grouped = (*x.shape[:axis], x.shape[axis] // group, group, *x.shape[axis + 1 :])
    stored = next((a.shape[lead:] for _, a, lead in law.items()), ())
    ready = Ready(
        encoder, copy(quantizer), quantizer.dtype, x.shape, axis, law if quantizer.fixed else None,
        reduced, grouped, stored, law.group, repr(quantizer),
    )  # fmt: skip
    _kept.keep(key, ready)


def launch(key: tuple[Any, ...], encode: Callable[[Array], QuantArray]) -> None:
    """Prepare calls on a GPU whose constants do not depend on x."""
    _kept.keep(key, Launched(encode))


def _direct(
    x: Array, quantizer: Quantizer, axis: int, law: Constants, encoder: encoding.Encoder | grids.Encoder | None
) -> Direct | None:
    """Prepare one kernel for a whole call, of a small array or of many ranges; None where no kernel does that."""
    if axis != x.ndim - 1 or not encoding.in_words(x, law, axis):
        return None
    if quantizer.fixed:
        return Given(x, quantizer, axis, law, encoder) if encoder is not None and x.size < _FEW else None
    if not isinstance(quantizer, (Grouped, Uniform)) or not _outer(law.shapes[0], x.shape, law.group):
        return None
    if x.size >= _FEW and math.prod(law.shapes[0]) < _MANY:
        return None
    if isinstance(quantizer, Grouped):
        return Groups(x, quantizer, axis, law) if x.dtype in (np.float32, np.float64) else None
    rule = range_rule(quantizer)
    return None if rule is None or x.dtype.kind != "f" else Ranged(x, quantizer, axis, law, rule)


def _outer(entries: tuple[int, ...], shape: tuple[int, ...], group: int | None) -> bool:
    """True where each of the constants' entries has one run of the flattened array, of whole words of a row or rows."""
    varies = [n > 1 for n in entries]
    if varies[-1] and group is None:
        return False
    leading = [yes or n == 1 for yes, n in zip(varies, shape, strict=True)]
    first = leading.index(False) if False in leading else len(leading)
    return not any(varies[first + 1 :])
