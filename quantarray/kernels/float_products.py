"""A part of the contract: kernels that multiply rows of floats, and that round floats to bytes."""

from __future__ import annotations

from typing import Any

from ..core.dtypes import Array
from ..core.super_blocks import SuperBlocks

Numbers = Array | SuperBlocks  # constants of groups


def float_product(x: Array, form: Array, grid: Array, w: Array, bias: Array, out: Array) -> None:
    """Convolve float32 values: out[pixels o] = bias[o] + sum over taps, then channels, of x * w[taps*channels o].

    x is flat. form int64[3 5]: images, depth, height, width, channels; how far apart they are in x; the output's.
    grid as of `pool_values`; a tap outside is 0. Fewer rows of w: channels of an output's group."""


def scaled_product(x: Array, form: Array, grid: Array, w: Array, scale: Array, bias: Array, out: Array) -> None:
    """`float_product` of one group whose values of w are float32(w * scale): w int8, scale float32[o]. CPU only."""


def row_product(x: Array, values: Array, out: Array) -> None:
    """Multiply rows: out[r, o] = sum over k of x[r, k] values[o, k], float32, in 16 sums side by side.

    Sum i has the products at k = i, i + 16, ..; then sums i and i + 8 are added, and 4, 2 and 1 apart."""


def row_product_spaced(
    x: Array, words: Array, low: Numbers, step: Numbers, first: int, apart: int, group: int, out: Array
) -> None:  # fmt: skip
    """`row_product` with the values of `decode_spaced`. On the CPU only; low and step may be `SuperBlocks`."""


def row_product_levels(x: Array, words: Array, levels: Array, row: Array, group: int, out: Array) -> None:
    """`row_product` with the values of `decode_levels`, float32. On the CPU only."""


def row_product_scaled(x: Array, words: Array, levels: Array, scale: Numbers, group: int, out: Array) -> None:
    """`row_product` with the values scale[o, group of k] * levels[code], rounded once. On the CPU only.

    levels float64[codes], scale float32[o groups] or `SuperBlocks` of this shape."""


def encode_runs(
    x: Array, run: int, unit: int, first: int, wrong: Array, shares: Array, starts: Array, sums: Array, out: Array
) -> None:  # fmt: skip
    """Make int8 of each `run` elements of x float32[r k]: out int8[r n*unit], rint(x * (127 / end)), 0 from k on.

    end is the largest magnitude of the run, at least 1e-5. For each unit of elements, n of a row: shares float32[r n]
    are end / 127; starts float32[r n] first times the sum of codes; sums float32[r n] that sum times the share, if sums
    has elements. unit is 16 or 32; run a multiple of it, or at least k. wrong bool[1], False on entry, is set where an
    element is not finite: then nothing else counts. On the CPU only."""


def encode_rows(x: Array, least: float, wrong: Array, scales: Array, out: Array) -> None:
    """Make int8 of rows float32[r k]: out int8[r k], rint(x * s), s = 127 / max(the largest magnitude, least).

    scales float32[r] are s. wrong as of `encode_runs`. On the CPU only."""


def divide_rows(sums: Array, scales: Array, out: Array) -> None:
    """out float32[r o] = sums[r, o] / scales[r], rounded once, never -0; sums int32, int64 or float32. CPU only."""


def group_product(
    codes: Array, shares: Array, starts: Array, sums: Array, words: Array, low: Numbers, step: Numbers, apart: int,
    group: int, unit: int, out: Array,
) -> None:  # fmt: skip
    """Multiply rows of bytes: out[r, o] float32 from codes int8[r n*unit] and words [planes o ..], n units of a row.

    Sum i of 16 adds units i, i + 16, ..: starts[r, n] + apart * (the sum of codes[r, j] * code[o, j] in the unit),
    exact in float32, times (step[o, group of n] * shares[r, n]); then low[o, group of n] * sums[r, n], if low has
    elements. Products and their additions are rounded once together where the CPU can; the 16 sums are added as in
    `row_product`. unit is 16 or 32; apart * code at most 255; group a multiple of unit, or at least k; constants
    float32[o groups], on the CPU also `SuperBlocks` of this shape."""


def byte_row_product(
    codes: Array, scales: Array, words: Array, first: int, apart: int, by: Array, offset: Array, out: Array
) -> None:
    """out float32[r, o] = (sum over k of codes[r, k] * value[o, k]) / scales[r], rounded once more before the division.

    codes int8[r k], k up to 2**16, scales float32[r]; words [planes o ..], whose codes c are the values
    by[o] (first + apart c) + offset[o], in float64; by and offset float32[o]. If by is empty, the values are integers,
    whose sum is exact; if offset is empty, it is 0. On the CPU only."""


def round_values(
    x: Array, scale: Array, zero: Array, low: Any, high: Any, form: int, nan: Array, out: Array
) -> None:  # fmt: skip
    """Round float32 x[n] to int8 or uint8 out[n], to the even integer of two that are as near: form 0 is
    rint(clip(x / scale + zero, low, high)), 1 is clip(rint(x / scale) + zero, low, high), in float32; 2 is
    clip(rint(x * scale + zero), low, high), of which the sum is float64, rounded to float32.

    scale, zero float32[1]; low, high float32, integers of out's type. nan bool[pieces] are set where a value is NaN.
    On the CPU only."""


def rms_norm(x: Array, weight: Array, eps: float, out: Array) -> None:
    """Divide rows by their root mean square: out[r, k] = x[r, k] / sqrt(mean of x[r, k]**2 + eps) * weight[k].

    In float64, rounded once to float32; sum i of 16 adds squares i, i + 16, .., and the sums are added by halves.
    x and out float32[r k], weight float32[k] or [1]. On the CPU only."""


def hadamard(x: Array, factors: Array, block: int, out: Array) -> None:
    """Multiply each block of a row: out[.. i] = sum over j of x[.. j] * factors[.. j] * H[j, i], float32.

    H is -1 where j & i has an odd number of bits, and 1 elsewhere. factors float32 [row] or [block]; block a power of
    2, at least 32. Products are rounded, then sums and differences of elements 1, 2, 4, .. apart. On the CPU only."""
