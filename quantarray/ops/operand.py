"""Operands of products, brought to one form: planes of bits, terms, float64 constants.

    x = offset + sum over terms t of scale[t] * u_t,   u_t = base_t + step_t * (planes of t read as an integer)

Integer levels are one term and no offset, so their products are exact; a uniform law is one term; a basis has a term a
plane; a table of real values becomes a term for each product of planes, a table of integers the integers' own bits.
"""

from __future__ import annotations

import operator
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from ..array import QuantArray
from ..device import asnumpy, namespace
from ..dtypes import Array, arithmetic, level_values
from ..format import bits_for
from . import checks, hints
from .conversion import recode
from .counting import coefficients
from .exchange import as_cupy, is_cupy, lies_on_gpu

MAX_TABLE_BITS = 4  # 15 products of planes; 5 bits would be 31 passes over the words


class Operand(NamedTuple):
    """`words` uint64[planes *outer word], `terms` int64[terms 4]; scale [terms ..] and offset [..] float64 with the
    array's axes, or None for integer levels without a scale."""

    words: Array
    terms: Array
    scale: Array | None
    offset: Array | None

    @property
    def exact(self) -> bool:
        return self.scale is None

    @property
    def reach(self) -> int:
        """The largest magnitude that a term could have."""
        return reach(self.terms)

    def constants(self, ndim: int) -> tuple[Array, Array]:
        """Scale and offset with 1 and 0 where there is none."""
        one, zero = _neutral(len(self.terms), ndim)
        return one if self.scale is None else self.scale, zero if self.offset is None else self.offset


def reach(terms: Array) -> int:
    """The largest magnitude that a term of int64[terms 4] could have."""
    _, planes, base, step = terms.T
    return int(np.abs([base, base + step * (2**planes - 1)]).max())


def exact_inside(terms: Array, b: Operand, k: int) -> bool:
    """True where sums of `k` products of x's terms and of w, which is b lowered, are one exact int32 before constants:
    one term a side, and no offset of w, which asks for the sums of x."""
    single = len(terms) == 1 and len(b.terms) == 1
    return single and (b.offset is None or not b.offset.any()) and k * reach(terms) * b.reach < 2**31


def term_values(w: Operand, length: int) -> Array:
    """The integers of weights, int64[terms rows length], of rows of so many elements along the packed axis."""
    words = np.ascontiguousarray(asnumpy(w.words)).reshape(len(w.words), -1, w.words.shape[-1])
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")[..., :length]
    values = []
    for first, planes, base, step in w.terms.tolist():
        codes = sum(bits[first + i].astype(np.int64) << i for i in range(planes))
        values.append(base + step * codes)
    return np.array(values)


def plain_terms(q: QuantArray) -> Array | None:
    """The terms of an array of evenly spaced integer levels without a scale, whose words `lower` leaves as they are."""
    return q.dtype.term_rows if q.dtype.step is not None and not q.constants.shapes else None


def lower(op: str, name: str, q: QuantArray) -> Operand:
    """The operand form of an array; see above."""
    plain, dtype, c = plain_terms(q), q.dtype, q.constants
    if plain is not None:
        return Operand(q.words, plain, None, None)
    scale, offset = (None if a is None else a.astype(np.float64) for a in (c.scale, c.offset))
    if dtype.kind == "table":
        return _lower_table(op, name, q)
    if dtype.kind in ("uniform", "basis"):
        assert scale is not None
        return Operand(q.words, dtype.term_rows, scale[None] if dtype.kind == "uniform" else scale, offset)
    words, rows = q.words, None
    if dtype.step is None:
        words, rows = _integer_grid(q)
    return Operand(words, dtype.term_rows if rows is None else rows, None if scale is None else scale[None], None)


@lru_cache(maxsize=256)
def _neutral(terms: int, ndim: int) -> tuple[Array, Array]:
    """The scales and the offset of an array that has none; shared, as `DType.term_rows` are."""
    return np.ones((terms, *(1,) * ndim)), np.zeros((1,) * ndim)


def _integer_grid(q: QuantArray) -> tuple[Array, Array]:
    """Codes of uneven integer levels become numbers on the coarsest grid that holds all levels."""
    assert q.dtype.levels is not None
    low, step = arithmetic(q.dtype.levels)
    grid = (np.array(q.dtype.levels) - low) // step
    bits = bits_for(int(grid.max()) + 1)
    words = recode(q, grid.reshape(-1, *(1,) * q.ndim), bits)
    return words, np.array([(0, bits, low, step)], np.int64)


def _lower_table(op: str, name: str, q: QuantArray) -> Operand:
    if q.bits > MAX_TABLE_BITS:
        raise TypeError(
            f"{op}: {name} is a table of {q.bits} bits; products take tables of at most {MAX_TABLE_BITS} bits: "
            f"quantise to a uniform or basis law instead"
        )
    levels = level_values(q.dtype, q.constants).astype(np.float64)
    value = np.zeros((2**q.bits, *levels.shape[1:]))
    value[: len(levels)] = levels
    value = coefficients(value)  # value[S] becomes what the product of the planes in S adds
    sets = range(1, len(value))
    both = [reduce(operator.and_, [q.words[k] for k in range(q.bits) if s >> k & 1]) for s in sets]
    words = namespace(q.device).stack(both)
    rows = np.array([(i, 1, 0, 1) for i in range(len(sets))], np.int64)
    return Operand(words, rows, value[1:], value[0])


def from_dense(x: Array, axis: int) -> QuantArray:
    """An int8 or uint8 array as 8 packed planes; exact, and the same integers."""
    from ..dtypes import int8, uint8
    from .conversion import pack_codes

    unsigned = x.dtype == np.uint8
    codes = x if unsigned else x.view(np.uint8) ^ np.uint8(128)
    return QuantArray(pack_codes(codes, axis, 8), uint8 if unsigned else int8, x.shape, axis)


def is_dense(x: Any) -> bool:
    """True for an int8 or uint8 array, CuPy's too."""
    array = isinstance(x, np.ndarray) and not checks.is_masked(x)
    return (array or is_cupy(x)) and x.dtype in (np.uint8, np.int8)


def operand(op: str, name: str, x: Any) -> Any:
    """A QuantArray, or an int8/uint8 array, of a GPU as CuPy's; others are refused with the way to get there."""
    if isinstance(x, QuantArray) or is_dense(x):
        return x
    if lies_on_gpu(x):
        if is_dense(dense := as_cupy(op, name, x)):
            return dense
    elif hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) and is_dense(dense := checks.shared(op, name, x)):
        return dense
    raise TypeError(
        f"{op}: {name} must be a QuantArray or an int8/uint8 array, got {checks.kind(x)}; "
        f"quantize(x, quantizer) or encode(x, values) make a QuantArray{hints.integers(x)}"
    )


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
            raise OverflowError(f"{op}: sums of levels may reach {bound}, beyond 2**63; contract fewer elements")
        return chosen
    reach = bound + (int(np.abs(bias).max()) if bias is not None and bias.size else 0)
    if reach >= 2**53:
        raise OverflowError(f"{op}: the exact result may reach {reach}, beyond 2**53; contract fewer elements")
    if chosen == np.int32 and reach >= 2**31:
        raise OverflowError(
            f"{op}: the exact result may reach {reach}, which int32 cannot hold; pass out_dtype=np.int64"
        )
    return chosen


def bias_values(op: str, bias: Any, channels: int) -> Array | None:
    """A bias as int64 or float32 [channels]."""
    if bias is None:
        return None
    b = checks.numbers(op, "bias", bias)
    if b.shape != (channels,) or b.dtype == np.bool_:
        raise ValueError(f"{op}: bias must be numbers [{channels}], one an output channel, got {b.dtype} {b.shape}")
    if b.dtype.kind == "f":
        return checks.float32(op, "bias", b)
    if b.size and max(-int(b.min()), int(b.max())) >= 2**53:
        raise OverflowError(f"{op}: bias must lie within +-2**53, got {b.min()} to {b.max()}")
    return b.astype(np.int64)
