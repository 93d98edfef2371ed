"""`quantize` by schemes whose constants are given, made ready once for arrays of one form.

What it checks and looks up is the same for all images of a network, and takes twice as long as encoding a small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array import QuantArray
from ..dtypes import Array, Constants, DType
from ..quantizers.base import Quantizer
from . import encoding
from .kept import Kept

_kept = Kept(256)


class Ready(NamedTuple):
    """A quantisation of arrays of one form: what a call has left to do."""

    encoder: encoding.Encoder
    dtype: DType
    shape: tuple[int, ...]
    axis: int
    law: Constants
    scheme: str

    def __call__(self, x: Array) -> QuantArray | None:
        """None where x holds a NaN."""
        words = self.encoder(x)
        return None if words is None else QuantArray(words, self.dtype, self.shape, self.axis, self.law, self.scheme)


def form(x: Any, quantizer: Any, axis: Any) -> tuple[Any, ...] | None:
    """By what a call is known again; None where it is not to be."""
    plain = type(x) is np.ndarray and type(axis) is int and isinstance(quantizer, Quantizer)
    settings = encoding.settings(quantizer) if plain else None
    return None if settings is None else (settings, x.dtype, x.shape, axis)


def found(key: tuple[Any, ...]) -> Ready | None:
    """What `keep` has kept."""
    ready: Ready | None = _kept.found(key)
    return ready


def keep(op: str, key: tuple[Any, ...], x: Array, quantizer: Quantizer, axis: int, law: Constants) -> None:
    """Keep what is ready of a call that has been made, if one pass of a kernel is all of it."""
    own_words = type(quantizer).encode_words is not Quantizer.encode_words
    if own_words or not quantizer.fixed or not encoding.pays(x, quantizer, law, axis):
        return
    encoder = encoding.encoder(op, x, quantizer, law, axis)
    _kept.keep(key, Ready(encoder, quantizer.dtype, x.shape, axis, law, repr(quantizer)))
