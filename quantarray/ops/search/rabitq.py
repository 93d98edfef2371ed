"""RaBitQ: vectors as rotated codes of 1 to 8 bits, with two constants a row by which estimates are unbiased."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...core.format import WORD_BITS, word_count
from ...core.hints import Vector
from ...quantizers.base import bits_of
from ...quantizers.uniform import Uniform
from ..creation.creation import from_codes
from ..manipulation.joining import joined
from ..manipulation.taking import take
from .scores import ESTIMATE, Product, Scores

METRICS = ("dot", "l2")
_ROUNDS = 4  # of signs and Hadamard matrices
_ROWS = 64  # of a rotation that are computed at a time, in a cache
_VALUES = 1 << 22  # that are quantised at a time
_IN_CACHE = 1 << 16  # of which as many are looked at together
_GAUSSIAN = 1.0, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308  # steps of least error for a variance of 1
_COARSE, _FINE = tuple(np.linspace(-1, 1, 13)), tuple(np.linspace(-1 / 12, 1 / 12, 7))  # powers of 2
_MOST_SEED = 2**63 - 1


class RaBitQ:
    """Quantise vectors for search: rotate x - center by random signs and Hadamard matrices, code each row with a scale.

    The levels of a row are odd integers, -(2**bits - 1) .. 2**bits - 1, times a factor, which are searched for the
    largest cosine with the rotated row r. Then the scale is |r|**2 / <levels, r>, with which <scale * levels, q> is an
    unbiased estimate of <r, q> over rotations; |x - center| is stored beside it, for distances. A rotation spreads what
    a few elements of x have over all, so any x is coded as well as Gaussian values. Memory: `bits` an element, of rows
    filled up to a multiple of 64, and 8 bytes a row.

    center: [d], such as the mean of the rows, 0 by default; what is far from it is coded less well. seed: the same one
    gives the same rotation on every machine.

    Gao and Long, RaBitQ, arXiv 2405.12497; Gao et al., of several bits, arXiv 2409.09913.

    >>> import numpy as np, quantarray as qa
    >>> x = np.random.default_rng(0).normal(size=(1000, 128)).astype(np.float32)
    >>> rows = qa.RaBitQ(4, center=x.mean(axis=0)).quantize(x)
    >>> rows, rows.nbytes
    (RotatedRows(1000, 128, bits=4), 72512)
    >>> qa.top_k(x[7], rows, 1, "l2").indices, int(x[7] @ x[7]), qa.top_k(x[7], rows, 1, "dot").distances.round()
    (array([7]), 118, array([118.]))
    """

    def __init__(self, bits: int, center: Vector | None = None, seed: int = 0) -> None:
        self.bits = bits_of("RaBitQ", bits)
        self.seed = checks.integer("RaBitQ", "seed", seed, 0, _MOST_SEED)
        if isinstance(center, (int, float, np.generic)):
            got = f"{center!r}; x.mean(axis=0) is such a vector"
            raise ValueError(f"RaBitQ: center must have a number for each element of a vector, got {got}")
        self.center = None if center is None else _floats("RaBitQ", "center", center, 1)

    def quantize(self, x: Vector) -> RotatedRows:
        """Return the codes and constants of the rows of x [n d]; ValueError for what is not finite."""
        op = "RaBitQ.quantize"
        a = checks.real_array(op, "x", x)
        if a.ndim != 2 or not a.shape[1]:
            raise ValueError(f"{op}: x must be [rows elements], got {a.shape}")
        center = np.zeros(a.shape[1], np.float32) if self.center is None else self.center
        if center.shape != a.shape[1:]:
            raise ValueError(f"{op}: center {center.shape} and x {a.shape} must have the same last length")
        at_once, codes, norms = max(1, _VALUES // a.shape[1]), [], []
        for first in range(0, max(1, len(a)), at_once):
            rows = _floats(op, "x", a[first : first + at_once], 2) - center
            part, norm = _coded(rotate(rows, self.seed), self.bits)
            codes.append(part)
            norms.append(norm)
        return RotatedRows(joined(op, codes, 0), np.concatenate(norms), center, self.seed)

    def __repr__(self) -> str:
        center = "" if self.center is None else ", center=.."
        return f"RaBitQ({self.bits}{center}{f', seed={self.seed}' if self.seed else ''})"


@dataclass(frozen=True, eq=False, repr=False)
class RotatedRows:
    """A database that `RaBitQ.quantize` returns; `top_k` and `within` search it by estimates of "dot" and "l2".

    codes: QuantArray [n D], in scales, of the rotated rows less center; norms: float32 [n], their lengths; center:
    float32 [d]; seed: the rotation's. `arrays()` has all as a dict for `save`; `RotatedRows(**qa.load(file))` is the
    same again. An index of rows, or a slice, selects some.

    >>> import numpy as np, quantarray as qa, tempfile, os
    >>> rows = qa.RaBitQ(8, seed=3).quantize(np.float32([[3, 4, 0], [0, 0, 1]]))
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.qa")
    >>> qa.save(path, rows.arrays())
    >>> again = qa.RotatedRows(**qa.load(path))
    >>> again, again.norms, again[:1].dequantize().round(1).tolist() == [[3, 4, 0]]
    (RotatedRows(2, 3, bits=8), array([5., 1.], dtype=float32), True)
    """

    codes: QuantArray
    norms: Array
    center: Array
    seed: Any

    def __post_init__(self) -> None:
        codes, norms, center = self.codes, self.norms, self.center
        checks.packed("RotatedRows", "codes", codes)
        width = word_count(len(center)) * WORD_BITS
        if codes.ndim != 2 or codes.axis != 1 or codes.shape != (len(norms), width):
            raise ValueError(
                f"RotatedRows: codes must be [{len(norms)} {width}], as norms and center are, got {codes.shape}"
            )

    def arrays(self) -> dict[str, Any]:
        """Return all that is stored, by name."""
        return {"codes": self.codes, "norms": self.norms, "center": self.center, "seed": np.array(int(self.seed))}

    def dequantize(self) -> Array:
        """Return estimates of the vectors, float32 [n d]."""
        back: Array = self.codes.dequantize() @ _rotation(len(self.center), int(self.seed)).T + self.center
        return back

    def scores(self, queries: Array, metric: str, product: Product) -> Scores:
        """Return estimates of some of these rows for queries [m d]; product: of rotated queries and codes."""
        codes = attrgetter("codes")
        if metric == "dot":
            return Scores(product, of_query=queries @ self.center.astype(np.float64), codes=codes)
        squares = np.square((queries - self.center).astype(np.float64)).sum(axis=1)
        return Scores(product, ESTIMATE, squares, self.norms, codes)

    def rotated(self, queries: Array, metric: str) -> Array:
        """Return rotated queries float32 [m D], less the center for "l2"."""
        return rotate(queries if metric == "dot" else queries - self.center, int(self.seed))

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, elements of a vector)."""
        return len(self.norms), len(self.center)

    @property
    def bits(self) -> int:
        """Return the bits of an element."""
        return self.codes.bits

    @property
    def device(self) -> str:
        """Return the device of the codes."""
        return self.codes.device

    @property
    def nbytes(self) -> int:
        """Return the bytes of codes, scales, norms and center."""
        return self.codes.nbytes + self.norms.nbytes + self.center.nbytes

    def __len__(self) -> int:
        return len(self.norms)

    def __getitem__(self, rows: slice | Array) -> RotatedRows:
        codes = self.codes[rows] if isinstance(rows, slice) else take(self.codes, rows, 0)
        return RotatedRows(codes, self.norms[rows], self.center, self.seed)

    def __repr__(self) -> str:
        return f"RotatedRows({self.shape[0]}, {self.shape[1]}, bits={self.bits})"


def rotate(x: Array, seed: int) -> Array:
    """Return float32 rows [n D], those of x [n d] rotated; D is the next multiple of 64."""
    rotated: Array = x.astype(np.float32, copy=False) @ _rotation(x.shape[1], seed)
    return rotated


@lru_cache(2)
def _rotation(length: int, seed: int) -> Array:
    """Return the matrix float32 [length D] of a rotation, whose rows are orthonormal.

    Each round changes random signs, multiplies the first 2**p elements, or the last ones, by a Hadamard matrix, and
    where there are more rotates pairs of elements of both halves by 45 degrees, so that all elements meet: Kac's walk,
    as rabitqlib has it. Of additions in float64 in a fixed order, and so the same everywhere.
    """
    width = word_count(length) * WORD_BITS
    signs = np.unpackbits(np.random.PCG64(seed).random_raw(_ROUNDS * width // WORD_BITS).astype("<u8").view(np.uint8))
    rounds = 1.0 - 2.0 * signs.reshape(_ROUNDS, width)
    starts = range(0, length, _ROWS)
    return np.concatenate([_rotated(np.eye(min(_ROWS, length - i), width, i), rounds) for i in starts])


def _rotated(rows: Array, rounds: Array) -> Array:
    """Return float32 rows after rounds of signs [rounds D]."""
    width = rows.shape[1]
    power = 1 << width.bit_length() - 1
    for i, signs in enumerate(rounds):
        rows = rows * signs
        part = slice(0, power) if i % 2 == 0 else slice(width - power, width)
        rows[:, part] = _hadamard(rows[:, part])
        if power < width:
            low, high = rows[:, : width // 2], rows[:, width // 2 :]
            rows = np.concatenate([low + high, low - high], axis=1) / np.sqrt(2.0)
    return rows.astype(np.float32)


def _hadamard(x: Array) -> Array:
    """Multiply rows [n 2**p] by the orthonormal Hadamard matrix.

    >>> _hadamard(np.array([[1.0, 0, 0, 0], [1, 2, 3, 4]]))
    array([[ 0.5,  0.5,  0.5,  0.5],
           [ 5. , -1. , -2. ,  0. ]])
    """
    shape, half = x.shape, 1
    while half < shape[1]:
        pairs = x.reshape(shape[0], -1, 2, half)
        x = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        half *= 2
    return np.asarray(x.reshape(shape) / np.sqrt(float(shape[1])))


def _coded(rows: Array, bits: int) -> tuple[QuantArray, Array]:
    """Return codes of rotated rows, with scales that make products unbiased, and the lengths of rows."""
    half = 2 ** (bits - 1)
    codes, scale, squares = np.empty(rows.shape, np.uint8), np.empty(len(rows)), np.empty(len(rows))
    at_once = max(1, _IN_CACHE // rows.shape[1])
    for first in range(0, len(rows), at_once):
        part = slice(first, first + at_once)
        magnitudes = np.abs(rows[part])
        squares[part] = _products(magnitudes, magnitudes)
        levels = _levels(magnitudes, half, _steps(magnitudes, squares[part], bits))
        products = _products(levels, magnitudes)
        scale[part] = np.divide(squares[part], 2 * products, out=np.zeros(len(products)), where=products > 0)
        codes[part] = np.where(rows[part] < 0, half - 0.5 - levels, half - 0.5 + levels)
    law = Uniform(bits, midrise=True).dtype
    return from_codes(codes, law, scale=scale[:, None]), np.sqrt(squares).astype(np.float32)


def _steps(magnitudes: Array, squares: Array, bits: int) -> Array:
    """Return the step of each row, among some, whose levels have the largest cosine with it.

    Steps are tried in powers of 2 around that which is best for Gaussian values of the same squares, and then some
    around the best of these. A search of all at which a level changes finds cosines larger by less than 0.01 %.
    """
    usual = _GAUSSIAN[bits - 1] * np.sqrt(np.where(squares > 0, squares, 1.0) / magnitudes.shape[1])
    factor = np.ones(len(usual))
    for exponents in ((0.0,) if bits == 1 else _COARSE, () if bits == 1 else _FINE):
        middle, largest = factor.copy(), np.full(len(usual), -1.0)
        for power in exponents:
            tried = middle * 2.0**power
            levels = _levels(magnitudes, 2 ** (bits - 1), usual * tried)
            cosine = _products(levels, magnitudes) / np.sqrt(_products(levels, levels))
            factor, largest = np.where(cosine > largest, tried, factor), np.maximum(cosine, largest)
    return np.asarray(usual * factor)


def _levels(magnitudes: Array, half: int, step: Array) -> Array:
    """Return float32 1/2, 3/2 .. half - 1/2: the middles of steps in which magnitudes are."""
    levels = magnitudes * (1 / step).astype(np.float32)[:, None]
    np.floor(levels, out=levels)
    np.minimum(levels, np.float32(half - 1), out=levels)
    levels += np.float32(0.5)
    return levels


def _products(a: Array, b: Array) -> Array:
    """Return the product of each row of a and that of b, in float64 of float32 sums."""
    return np.asarray(np.einsum("ij,ij->i", a, b), np.float64)


def _floats(op: str, name: str, value: Any, ndim: int) -> Array:
    """Return finite float32 numbers, of an array of `ndim` axes."""
    a = checks.real_array(op, name, value)
    if a.ndim != ndim:
        raise ValueError(f"{op}: {name} must have {ndim} axes, got {a.shape}")
    checks.finite(op, name, a)
    return a.astype(np.float32, copy=False)
