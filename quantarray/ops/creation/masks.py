"""Masks of one bit an element: what a training step keeps of ReLU and dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Constants, uint1
from ...core.format import WORD, word_count
from ...quantizers.base import is_number
from ...quantizers.grouped import DROPOUT, philox_key, rounded_words
from ..words.conversion import pack_codes
from ..words.placement import created


@created
def relu_mask(x: Any, axis: int = -1) -> QuantArray:
    """uint1 array of x > 0: where the gradient of ReLU passes, and for max(x, 0) itself. 0 has no gradient.

    Raises ValueError for NaN, which is neither.

    >>> import quantarray as qa
    >>> qa.relu_mask([-1.5, 0.0, 2.0]).dequantize()
    array([0, 0, 1], dtype=int32)
    """
    op = "relu_mask"
    a = checks.dense(op, "x", x)
    at = checks.axis(op, axis, a.ndim)
    checks.no_nan(op, "x", a)
    return QuantArray(pack_codes(a > 0, at, 1), uint1, a.shape, at)


@created
def dropout_mask(shape: int | tuple[int, ...], p: float, seed: int = 0, axis: int = -1) -> QuantArray:
    """uint1 array of independent bits: 0 with probability p (dropped), 1 with 1 - p (kept).

    It is 1 - p, stochastically rounded to a bit: floor(1 - p + u) with the random numbers u of `Grouped`, of a stream
    of their own. They depend on the seed and the element's index in the flattened array alone. Dropout divides what
    it keeps by 1 - p; the mask does not.

    >>> import quantarray as qa
    >>> mask = qa.dropout_mask((100, 1000), p=0.1, seed=3)
    >>> mask.nbytes, f"{mask.codes().mean():.2f}"
    (12800, '0.90')
    """
    op = "dropout_mask"
    lengths = checks.lengths(op, shape)
    at = checks.axis(op, axis, len(lengths))
    if not is_number(p) or not 0 <= p <= 1:
        raise ValueError(f"{op}: p must be a probability from 0 to 1, got {p!r}")
    key = philox_key(checks.integer(op, "seed", seed, 0, 2**64 - 1), DROPOUT)
    rows = math.prod(lengths[:at] + lengths[at + 1 :])
    checks.room(op, f"a mask of shape {lengths}", WORD.itemsize * rows * word_count(lengths[at]))
    keep = np.broadcast_to(np.float64(1 - float(p)), (rows, lengths[at]))
    one = np.ones((1,) * len(lengths), np.float32)
    words = rounded_words(keep, lengths, at, Constants(one, np.zeros_like(one)), 1, key)
    return QuantArray(words, uint1, lengths, at)
