"""Stochastic rounding with a range a group: ActNN's compressed activations (Chen et al., arXiv 2104.14129)."""

from __future__ import annotations

import math

import numpy as np

from ..backends.registry import contiguous, device_of, empty, kernel, moveaxis
from ..core.dtypes import Array, Constants, DType, uniform
from ..core.format import MAX_BITS, word_count
from .base import Quantizer, float32, ones_like_reduced
from .extremes import extremes

ROUNDING, DROPOUT = 0, 1  # what random numbers are for: each use has a stream of its own
DIGITS = {"bfloat16": 8, "float32": 24}


class Grouped(Quantizer):
    """code = floor((x - min) / step + u), u uniform in [0, 1); value = min + step * code.

    Each group of `group` elements of the packed axis, at every index of the other axes, has a min and a
    step = (max - min) / (2**bits - 1) of its own. ActNN's groups run along a flattened sample: x.reshape(n, -1).

    **Random numbers** are Philox4x32-10 of the seed, an integer of up to 64 bits, and of the element's index in the
    flattened x. The same seed gives the same numbers on every device and thread and for every shape of the same
    elements: use another seed for each step and tensor. `stochastic=False` has u = 1/2: the nearest level, ties up.

    **Unbiased**: the mean of an element's value over seeds is x, its variance p * (1 - p) * step**2 with p the
    fractional part of (x - min) / step. It needs every x between the first and the last level, so min is rounded down
    and step up (ActNN rounds both to nearest, and clamps values outside). Exact up to the 2**-32 steps of u, and
    one rounding of a level to float32.

    **Constants** are bfloat16, 4 bytes a group, or float32, 8 bytes. A group of one value decodes to exactly that if
    the constants' type holds it; another value is rounded stochastically between neighbours that do. The step is 1
    where none is needed, so nothing is divided by zero.

    >>> import quantarray as qa, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 4096)).astype(np.float32)
    >>> q = qa.quantize(x, qa.Grouped(2, seed=1))
    >>> q.group, q.scale.shape, f"{x.nbytes / q.nbytes:.2f}"
    (256, (4, 16), '15.06')
    """

    pointwise = anywhere = True

    def __init__(
        self, bits: int, group: int = 256, seed: int = 0, stochastic: bool = True, constants: str = "bfloat16"
    ) -> None:
        limits = {"bits": (bits, 1, MAX_BITS), "group": (group, 1, 2**62), "seed": (seed, 0, 2**64 - 1)}
        for name, (value, least, most) in limits.items():
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or not least <= value <= most:
                raise ValueError(f"Grouped: {name} must be an integer from {least} to {most}, got {value!r}")
        if not isinstance(stochastic, (bool, np.bool_)):
            raise ValueError(f"Grouped: stochastic must be True or False, got {stochastic!r}")
        if not isinstance(constants, str) or constants not in DIGITS:
            raise ValueError(f"Grouped: constants must be 'bfloat16' or 'float32', got {constants!r}")
        self.bits, self.group, self.seed = int(bits), int(group), int(seed)
        self.stochastic, self.constants = bool(stochastic), constants
        self.nearest = self.idempotent = self.monotone = not self.stochastic

    @property
    def dtype(self) -> DType:
        return uniform(self.bits)

    @property
    def fixed(self) -> bool:
        return False

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        if not x.size:
            return self.fit_range(np.zeros((2, *ones_like_reduced(x, axes))))
        return self.fit_range(extremes(x, axes))

    def fit_range(self, ends: Array) -> Constants:
        out = empty("cpu", (3, *ends.shape[1:]), np.float64)
        kernel("cpu", "group_constants")(
            ends.reshape(2, -1), 2**self.bits - 1, DIGITS[self.constants], out.reshape(3, -1)
        )
        step, start, _ = float32("Grouped", "level or step", out)
        if self.constants == "float32":
            return Constants(step, start)
        return Constants(upper_half(step), upper_half(start))

    def encode(self, x: Array, constants: Constants) -> Array:
        each = Constants(constants.scale, constants.offset, group=1)
        words, codes = self.encode_words(x, each, x.ndim - 1), empty("cpu", x.shape, np.uint8)
        if codes.size:
            flat = words.reshape(self.bits, -1, words.shape[-1])
            kernel("cpu", "unpack")(flat, codes.reshape(-1, x.shape[-1]))
        return codes

    def encode_words(self, x: Array, constants: Constants, axis: int, first: int = 0) -> Array:
        moved = moveaxis(x, axis, -1)
        last = contiguous(moved.astype(np.float32 if x.dtype == np.float32 else np.float64, copy=False))
        values = last.reshape(-1, last.shape[-1]) if last.size else last
        return rounded_words(values, x.shape, axis, constants, self.bits, kernel_key(self), first)

    def __repr__(self) -> str:
        usual = {"group": 256, "seed": 0, "stochastic": True, "constants": "bfloat16"}
        extra = "".join(f", {n}={getattr(self, n)!r}" for n, value in usual.items() if getattr(self, n) != value)
        return f"Grouped({self.bits}{extra})"


def kernel_key(quantizer: Grouped) -> Array:
    """Return the kernel's key, empty where nothing is random."""
    return philox_key(quantizer.seed, ROUNDING) if quantizer.stochastic else np.zeros(0, np.uint32)


def upper_half(x: Array) -> Array:
    """Return the bits of bfloat16 numbers in a float32 array, as `Constants` store them."""
    return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def philox_key(seed: int, use: int) -> Array:
    """Return the kernel's key: the seed's two halves, and the use."""
    return np.array([seed & 0xFFFFFFFF, seed >> 32, use], np.uint32)


def rounded_words(
    values: Array, shape: tuple[int, ...], axis: int, constants: Constants, bits: int, key: Array, first: int = 0
) -> Array:
    """Return words [bits, *outer, word] of an array of `shape`, whose values[rows length] have the packed axis last.

    Its elements are numbered from `first` on.
    """
    outer, length, device = shape[:axis] + shape[axis + 1 :], shape[axis], device_of(values)
    out = empty(device, (bits, *outer, word_count(length)))
    if out.size:
        low, step = (_by_row(c, outer, axis) for c in (constants.offset, constants.scale))
        start, stride = _numbers(shape, axis) if key.size else (np.zeros(1, np.int64), 1)
        group = constants.group if low.shape[1] > 1 and constants.group else length
        flat = out.reshape(bits, -1, out.shape[-1])
        kernel(device, "encode_grouped")(values, low, step, first + start, stride, group, key, flat)
    return out


def _by_row(constant: Array | None, outer: tuple[int, ...], axis: int) -> Array:
    """Return a constant as [rows groups]."""
    assert constant is not None
    last = moveaxis(constant, axis, -1)
    if last.shape[:-1] != outer:
        last = np.broadcast_to(last, (*outer, last.shape[-1]))
    return np.ascontiguousarray(last).reshape(-1, last.shape[-1])


def _numbers(shape: tuple[int, ...], axis: int) -> tuple[Array, int]:
    """(index in the flattened array of each row's first element, step of the index along the packed axis)."""
    steps = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    start = np.zeros(1, np.int64)
    for d, n in enumerate(shape):
        if d != axis:
            start = np.add.outer(start, np.arange(n) * steps[d]).reshape(-1)
    return start, steps[axis]
