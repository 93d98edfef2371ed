"""Operands of products, brought to one form: planes of bits, terms, float64 constants.

    x = offset + sum over terms t of scale[t] * u_t,   u_t = base_t + step_t * (planes of t read as an integer)

Integer levels are one term and no offset, so their products are exact; a uniform law is one term; a basis has a term a
plane; a table of real values becomes a term for each product of planes, a table of integers the integers' own bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.exchange import as_cupy, is_cupy, is_on_gpu
from ...backends.registry import namespace, to_host
from ...core.code_values import level_values
from ...core.dtypes import Array, DType, arithmetic, int8, uint1, uint8
from ...core.format import WORD, bits_for
from ..counting.histograms import coefficients
from ..words.conversion import pack_codes, pack_signed, recode

MAX_TABLE_BITS = 4  # 15 products of planes; 5 bits would be 31 passes over the words
_RECODED = 1 << 24  # bytes of x on planes that are not its own
_ROWS = 1 << 16  # of a matrix in one call


class Operand(NamedTuple):
    """A source's planes and `terms` int64[terms 4]; scale [terms ..] and offset [..] float64 with its axes, or None for
    integer levels without a scale."""

    source: QuantArray
    planes: int
    terms: Array
    scale: Array | None
    offset: Array | None
    recoded: Callable[[QuantArray], Array] | None = None  # planes of a source, where they are not its own

    @property
    def words(self) -> Array:
        """uint64[planes *outer word], made again each time if the array's own planes cannot be used.

        Uneven levels take up to 32 planes for 2, so products bring a block of rows at a time
        (`parts.py`, `few_outputs.py`).
        """
        return self.source.words if self.recoded is None else self.recoded(self.source)

    @property
    def exact(self) -> bool:
        return self.scale is None

    @property
    def reach(self) -> int:
        """Return the largest magnitude that a term could have."""
        return reach(self.terms)

    def constants(self, ndim: int) -> tuple[Array, Array]:
        """Return scale and offset, 1 and 0 where there is none."""
        one, zero = _neutral(len(self.terms), ndim)
        return one if self.scale is None else self.scale, zero if self.offset is None else self.offset


def shared(a: Operand, ndim: int) -> bool:
    """True where an operand's terms have one scale and it has one offset, for all its elements."""
    scale, offset = a.constants(ndim)
    return scale.size == len(a.terms) and offset.size == 1


def reach(terms: Array) -> int:
    """Compute the largest magnitude that a term of int64[terms 4] could have."""
    _, planes, base, step = terms.T
    return int(np.abs([base, base + step * (2**planes - 1)]).max())


def summed(q: QuantArray, a: Operand) -> int:
    """Compute the largest magnitude of the integers that a product of q, which is a lowered, sums up before constants.

    Of integer levels that is a level's; on their grid are others, which do not occur.
    """
    return q.dtype.max_abs if q.dtype.is_integer else a.reach


def inexact(terms: Array, b: Operand, k: int) -> str:
    """Say why sums of `k` products of x's terms and of w, lowered as b, are not one int32 before constants; else ""."""
    if len(terms) > 1 or len(b.terms) > 1:
        return "an operand is a sum of several terms"
    if b.offset is not None and b.offset.any():
        return "w has an offset, which asks for the sums of x"
    return "" if k * reach(terms) * b.reach < 2**31 else "sums of codes may pass 2**31"


def term_values(w: Operand, length: int) -> Array:
    """Unpack the integers of weights, int64[terms rows length], of rows of so many elements along the packed axis."""
    words = to_host(w.words)
    words = np.ascontiguousarray(words).reshape(len(words), -1, words.shape[-1])
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")[..., :length]
    values = []
    for first, planes, base, step in w.terms.tolist():
        codes = sum(bits[first + i].astype(np.int64) << i for i in range(planes))
        values.append(base + step * codes)
    return np.array(values)


def plain_terms(q: QuantArray) -> Array | None:
    """Return the terms of an array of evenly spaced integer levels without a scale, whose words `lower` leaves as they
    are."""
    return q.dtype._term_rows if q.dtype.step is not None and not q.constants.shapes else None


def lower(op: str, name: str, q: QuantArray) -> Operand:
    """Bring an array to the form of an `Operand`."""
    plain, dtype, c = plain_terms(q), q.dtype, q.constants
    if plain is not None:
        return Operand(q, q.bits, plain, None, None)
    scale, offset = (None if a is None else a.astype(np.float64) for a in (c.scale, c.offset))
    if dtype.kind == "table":
        return _lower_table(op, name, q)
    if dtype.kind in ("uniform", "basis"):
        assert scale is not None
        return Operand(q, q.bits, dtype._term_rows, scale[None] if dtype.kind == "uniform" else scale, offset)
    by_term = None if scale is None else scale[None]
    if dtype.step is not None:
        return Operand(q, q.bits, dtype._term_rows, by_term, None)
    planes, terms, recoded = _integer_grid(dtype)
    return Operand(q, planes, terms, by_term, None, recoded)


@lru_cache(maxsize=256)
def _neutral(terms: int, ndim: int) -> tuple[Array, Array]:
    """Return the scales and the offset of an array that has none; shared, as `DType._term_rows` are."""
    return np.ones((terms, *(1,) * ndim)), np.zeros((1,) * ndim)


def _integer_grid(dtype: DType) -> tuple[int, Array, Callable[[QuantArray], Array]]:
    """(planes, terms, what makes the planes): codes of uneven integer levels become numbers on the coarsest grid that
    holds all levels."""
    assert dtype.levels is not None
    low, step = arithmetic(dtype.levels)
    grid = (np.array(dtype.levels) - low) // step
    bits = bits_for(int(grid.max()) + 1)

    def recoded(q: QuantArray) -> Array:
        return recode(q, grid.reshape(-1, *(1,) * q.ndim), bits)

    return bits, np.array([(0, bits, low, step)], np.int64), recoded


def _lower_table(op: str, name: str, q: QuantArray) -> Operand:
    if q.bits > MAX_TABLE_BITS:
        raise TypeError(
            f"{op}: {name} is a table of {q.bits} bits; products take tables of at most {MAX_TABLE_BITS} bits: "
            f"quantise to a uniform or basis law instead"
        )
    levels = level_values(q.dtype, q.constants).astype(np.float64)
    value = np.zeros((2**q.bits, *levels.shape[1:]))
    value[: len(levels)] = levels
    value = coefficients(value)[: _sets(q)]  # value[S] becomes what the product of the planes in S adds
    terms = np.array([(i, 1, 0, 1) for i in range(len(value) - 1)], np.int64)
    return Operand(q, len(terms), terms, value[1:], value[0], _common_ones)


def _sets(q: QuantArray) -> int:
    """Count the sets of planes in which a code can have ones: no code is above the last level's."""
    return max(2, q.dtype.n_levels)


def _common_ones(q: QuantArray) -> Array:
    """Compute words [sets - 1 *outer word]: the elements with ones in all planes of each set but the empty one."""
    xp = namespace(q.device)
    out: Array = xp.empty((_sets(q) - 1, *q.words.shape[1:]), np.uint64)
    for s in range(1, len(out) + 1):
        rest = s & (s - 1)  # without its lowest plane
        plane = q.words[(s ^ rest).bit_length() - 1]
        out[s - 1] = plane if not rest else xp.bitwise_and(plane, out[rest - 1])
    return out


def row_step(x: Any, a: Operand, rows_of_a_plan: int = 0) -> int:
    """Count the elements of x's first axis, at least one, that are done at once; all where nothing asks for less."""
    n = len(x)
    words = a.planes * math.prod(a.source.words.shape[1:]) * WORD.itemsize
    step = n
    if a.recoded and words > max(2 * x.nbytes, _RECODED):
        step = min(step, max(1, n * max(2 * x.nbytes, _RECODED) // words // 2))
    if rows_of_a_plan > _ROWS:
        step = min(step, max(1, n * _ROWS // rows_of_a_plan))
    return step


def from_dense(x: Array, axis: int) -> QuantArray:
    """Pack an int8 or uint8 array to 8 planes; exact, and the same integers."""
    if x.dtype == np.uint8:
        return QuantArray(pack_codes(x, axis, 8), uint8, x.shape, axis)
    return QuantArray(pack_signed(x, axis), int8, x.shape, axis)


def is_dense(x: Any) -> bool:
    """True for an int8 or uint8 array, CuPy's too."""
    return _is_array(x) and x.dtype in (np.uint8, np.int8)


def _is_array(x: Any) -> bool:
    return (isinstance(x, np.ndarray) and not checks.is_masked(x)) or is_cupy(x)


def operand(op: str, name: str, x: Any, others: str = "") -> Any:
    """Check for a QuantArray or an int8/uint8 array, a GPU's as CuPy's; errors name a function that gives one, and
    `others` that are taken.

    A bool array is viewed as the bytes 0 and 1, which are its values.
    """
    if isinstance(x, QuantArray) or is_dense(x):
        return x
    dense = x
    if is_on_gpu(x):
        dense = as_cupy(op, name, x)
    elif hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray):
        dense = checks.shared(op, name, x)
    if _is_array(dense) and dense.dtype == np.bool_:
        dense = dense.view(np.uint8)
    if is_dense(dense):
        return dense
    raise TypeError(
        f"{op}: {name} must be a QuantArray or an int8/uint8 array, got {checks.kind(x)}{others}; "
        f"quantize(x, quantizer) or encode(x, values) make a QuantArray{likely_fix.integers(x)}"
    )


def bits(op: str, name: str, x: Any, hint: str = "") -> QuantArray:
    """Check for a QuantArray; a bool array is packed along its last axis as one bit an element, {0, 1}."""
    if isinstance(x, QuantArray) or not checks.is_bool(x):
        return checks.packed(op, name, x, hint)
    dense = checks.dense(op, name, x)
    return QuantArray(pack_codes(dense, dense.ndim - 1, 1), uint1, dense.shape, dense.ndim - 1)


def result_type(op: str, exact: bool, bound: int, bias: Array | None, out_dtype: Any) -> np.dtype[Any]:
    """int32 or int64 by the bound of the sum if exact, else float32; `out_dtype` overrides within reason.

    The bound comes from dtypes and shapes alone; a bias that could carry an int32 sum over is refused, not followed.
    Of a real result it is that of the integer counts, which the kernels keep in int64.
    """
    default = np.dtype(np.float32 if not exact else np.int32 if bound < 2**31 else np.int64)
    allowed = (np.int32, np.int64, np.float32)
    chosen = default if out_dtype is None else checks.dtype(op, "out_dtype", out_dtype, allowed)
    if not exact:
        if chosen != np.float32:
            raise TypeError(
                f"{op}: float constants give float32 results, out_dtype={chosen} needs integer levels without a scale "
                f"on both sides and an integer bias"
            )
        if bound >= 2**63:
            raise OverflowError(f"{op}: exact sums may reach {bound}, which int64 cannot hold; contract fewer elements")
        return chosen
    reach = bound + (int(np.abs(bias).max()) if bias is not None and bias.size else 0)
    if reach >= 2**63:
        raise OverflowError(
            f"{op}: the exact result may reach {reach}, which int64 cannot hold; contract fewer elements"
        )
    if chosen == np.int32 and reach >= 2**31:
        raise OverflowError(
            f"{op}: the exact result may reach {reach}, which int32 cannot hold; pass out_dtype=np.int64"
        )
    return chosen


def bias_values(op: str, bias: Any, channels: int) -> Array | None:
    """Convert a bias to int64 or float32 [channels]."""
    if bias is None:
        return None
    b = checks.numbers(op, "bias", bias)
    if b.shape != (channels,) or b.dtype == np.bool_:
        raise ValueError(f"{op}: bias must be numbers [{channels}], one an output channel, got {b.dtype} {b.shape}")
    if b.dtype.kind == "f":
        return checks.float32(op, "bias", b)
    if b.size and max(-int(b.min()), int(b.max())) >= 2**63:
        raise OverflowError(f"{op}: bias must fit in int64, got {b.min()} to {b.max()}")
    return b.astype(np.int64)
