"""A part of the contract: kernels that multiply float32 values."""

from __future__ import annotations

from ..core.dtypes import Array


def float_product(x: Array, form: Array, grid: Array, w: Array, bias: Array, out: Array) -> None:
    """Convolve float32 values: out[pixels o] = bias[o] + sum over taps, then channels, of x * w[taps*channels o].

    x is flat. form int64[3 5]: images, depth, height, width, channels; how far apart they are in x; the output's.
    grid as of `pool_values`; a tap outside is 0. Fewer rows of w: channels of an output's group."""


def row_product(x: Array, values: Array, out: Array) -> None:
    """Multiply rows: out[r, o] = sum over k of x[r, k] values[o, k], float32, in 16 sums side by side.

    Sum i has the products at k = i, i + 16, ..; then sums i and i + 8 are added, and 4, 2 and 1 apart."""


def row_product_spaced(
    x: Array, words: Array, low: Array, step: Array, first: int, apart: int, group: int, out: Array
) -> None:  # fmt: skip
    """`row_product` with the values of `decode_spaced`. On the CPU only."""


def row_product_levels(x: Array, words: Array, levels: Array, row: Array, group: int, out: Array) -> None:
    """`row_product` with the values of `decode_levels`, float32. On the CPU only."""
