"""`quantize` by schemes of the package, made ready once for arrays of one form.

What it checks and looks up is the same for all images of a network, and takes twice as long as encoding a small one.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...core.bounded_cache import Kept
from ...core.dtypes import Array, Constants, DType
from ...quantizers.base import Quantizer
from ...quantizers.extremes import extremes
from . import encoding, grids

_ORDINARY = 1e30  # magnitudes up to which no constant and no level is beyond float32
_kept = Kept(256)


class Ready(NamedTuple):
    """A quantisation of arrays of one form: what a call has left to do."""

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
        """None where x holds what the unprepared call has to look at: a NaN, infinities to fit to, huge numbers."""
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


def form(x: Any, quantizer: Any, *where: Any) -> tuple[Any, ...] | None:
    """By what a call is known again, of an axis, a scale_axis and a group; None where it is not to be."""
    if type(x) is not np.ndarray or not isinstance(quantizer, Quantizer) or where[0] is None:
        return None
    for one in where:
        if one is not None and type(one) is not int:
            return None
    settings = encoding.settings(quantizer)
    return None if settings is None else (settings, x.dtype, x.shape, where)


def found(key: tuple[Any, ...]) -> Ready | None:
    """What `keep` has kept."""
    ready: Ready | None = _kept.found(key)
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
    """Keep what is ready of a call that has been made, if its fit and one pass of a kernel are all of it.

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
