"""Random arguments of public calls: laws, shapes, packed and dense arrays, drawn twice at two sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.core.format import tail_mask, word_count

SMALL = 64  # elements an axis of a call that only has to compile what the next one needs
MOST = 2**26  # elements of an array of one bit: 8 MiB
MOST_BYTES = 2**23  # of words
MOST_CONSTANTS = 2**20  # numbers in the constants of one array
INTEGERS = ("bipolar", "ternary", "uint", "int", "steps", "uneven", "wide")
REALS = ("scaled", "uniform", "basis", "table")
KINDS = (*INTEGERS, *REALS)


class Draw:
    """A source of the arguments of one call. Equal seeds draw equal laws, ranks and choices; `small` shortens lengths.

    `choices` draws all that both sizes have in common, `contents` the elements of arrays. Nothing drawn from `choices`
    may depend on a length. `operands` lists the arrays drawn for the call, in order.
    """

    def __init__(self, seed: int, small: bool = False) -> None:
        self.choices, self.contents = (np.random.default_rng([seed, i]) for i in range(2))
        self.small = small
        self.operands: list[Any] = []
        low, high = ((0, 12), (12, 19), (19, 26))[self.choices.choice(3, p=(0.6, 0.18, 0.22))]
        self.scale = self.choices.uniform(low, high)  # log2 of the elements of the largest array

    # choices

    def flag(self, p: float = 0.5) -> bool:
        return bool(self.choices.random() < p)

    def among(self, *options: Any) -> Any:
        return options[self.choices.integers(len(options))]

    def between(self, low: int, high: int) -> int:
        """Draw an integer from low to high."""
        return int(self.choices.integers(low, high + 1))

    def length(self, most: int) -> int:
        """Draw a length from 1 to `most`, uniform in its logarithm."""
        n = int(2 ** self.choices.uniform(0, min(self.scale, math.log2(most))))
        return min(n, SMALL) if self.small else n

    def below(self, n: int) -> int:
        """Draw a position on an axis of n elements."""
        return int(self.choices.random() * n)

    def axis(self, q: Any) -> int:
        """Draw an axis, sometimes counted from the end."""
        d, back = int(self.choices.random() * q.ndim), self.flag(0.3)
        return d - q.ndim if back else d

    def shape(self, ndim: int, most: int = MOST) -> tuple[int, ...]:
        """Draw lengths whose product is about 2**scale, at most `most`; often one axis has nearly all."""
        total = min(self.scale, math.log2(most))
        cuts, long, few = self.choices.random(ndim - 1), self.between(0, ndim - 1), self.choices.random(ndim)
        if self.flag(0.4):
            logs = few * min(total / ndim, 2.6)
            logs[long] = total - logs.sum() + logs[long]
        else:
            logs = np.diff([0, *np.sort(cuts), 1]) * total
        lengths = [max(1, int(2**a)) for a in logs]
        if self.flag(0.01):
            lengths[long] = 0
        return tuple(min(n, SMALL) if self.small else n for n in lengths)

    # laws

    def integers(self, bits: int, kind: str | None = None) -> qa.DType:
        """Draw integer levels: named, in even steps, uneven, and of spans up to 2**31."""
        kind = kind or self.among(*INTEGERS)
        if kind in ("bipolar", "ternary"):
            return qa.ternary if kind == "ternary" and bits > 1 else qa.bipolar
        if kind in ("uint", "int"):
            return getattr(qa, f"{kind}{bits}", qa.bipolar)
        count = self.between(2 ** (bits - 1) + 1, 2**bits) if bits > 1 else 2
        if kind == "steps":
            start, step = self.between(-300, 300), self.among(-3, -1, 2, 7)
            return qa.integers(range(start, start + count * step, step))
        span = 2**31 - 1 if kind == "wide" else 300
        levels = np.unique(self.choices.integers(-span, span, 2 * count))
        return qa.integers(self.choices.permutation(levels)[:count].tolist())

    def dtype(self, bits: int = 8, kinds: tuple[str, ...] = KINDS, least: int = 1) -> tuple[qa.DType, bool]:
        """Draw (a dtype of at most `bits` bits, True if it goes with a scale)."""
        k, kind = self.between(least, bits), self.among(*kinds)
        if kind in INTEGERS:
            return self.integers(k, kind), False
        if kind == "scaled":
            return self.integers(k), True
        some = self.between(2 ** (k - 1) + 1, 2**k) if self.flag(0.3) else 2**k
        return (qa.basis(k) if kind == "basis" else getattr(qa, kind)(k, some)), False

    # arrays

    def array(
        self, *, bits: int = 8, kinds: tuple[str, ...] = KINDS, ndim: int | None = None, most: int = MOST,
        shape: tuple[int, ...] | None = None, axis: int | None = None, vary: float = 0.2, groups: float = 0.06,
        law: tuple[qa.DType, bool] | None = None, interval: tuple[float, float] | None = None,
    ) -> qa.QuantArray:  # fmt: skip
        """Draw a packed array; `vary` and `groups` are the probabilities of constants along an axis, and in groups."""
        dtype, scaled = law or self.dtype(bits, kinds)
        if shape is None:
            shape = self.shape(ndim or self.among(1, 2, 2, 3, 4), most)
        at = self.between(0, len(shape) - 1) if axis is None else axis % len(shape)
        shape = _fitting(shape, at, dtype.bits)
        along = self.choices.random(len(shape)) < vary
        group = self.among(1, 5, 64, 128) if self.flag(groups) else None
        constants = self._constants(dtype, scaled, shape, at, along, group, interval)
        words = self._words(dtype, shape, at)
        q = qa.from_words(words, dtype, shape, at, **constants)
        if self.flag(0.1) and q.ndim > 1:  # a view whose rows are in reverse order
            q = q[tuple(slice(None) if d == q.axis else slice(None, None, -1) for d in range(q.ndim))]
        return self.operand(q)

    def alike(
        self, q: qa.QuantArray, shape: tuple[int, ...] | None = None, axis: int | None = None, **options: Any
    ) -> qa.QuantArray:
        """Draw another array of the law of q, of its shape and packed axis unless these are given."""
        shape, axis = q.shape if shape is None else shape, q.axis if axis is None else axis
        law = q.dtype, q.dtype.is_integer and q.scale is not None
        return self.array(shape=shape, axis=axis, law=law, vary=0, groups=0, **options)

    def dense(self, dtype: Any, shape: tuple[int, ...], low: int = -9, high: int = 9) -> np.ndarray[Any, Any]:
        """Draw a NumPy array: integers from low to high, booleans, or floats about 0."""
        if np.dtype(dtype).kind in "iu":
            return self.operand(self.contents.integers(low, high + 1, shape, dtype))
        if np.dtype(dtype).kind == "b":
            return self.operand(self.contents.integers(0, 2, shape, np.uint8).astype(bool))
        return self.operand(self.contents.standard_normal(shape, np.float32).astype(dtype, copy=False))

    def operand(self, a: Any) -> Any:
        """Count an array among what the call gets."""
        self.operands.append(a)
        return a

    def _words(self, dtype: qa.DType, shape: tuple[int, ...], at: int) -> np.ndarray[Any, Any]:
        n = shape[at]
        words = self.contents.integers(0, 2**64, (dtype.bits, *shape[:at], *shape[at + 1 :], word_count(n)), np.uint64)
        if n % 64:
            words[..., -1] &= np.uint64(tail_mask(n))
        if dtype.n_levels != 2**dtype.bits:  # of codes with the highest bit the first only, which all dtypes drawn have
            words[-1] &= ~np.bitwise_or.reduce(words[:-1], axis=0, initial=np.uint64(0))
        return words

    def _constants(
        self, dtype: qa.DType, scaled: bool, shape: tuple[int, ...], at: int, along: Any, group: int | None,
        interval: Any,
    ) -> dict[str, Any]:  # fmt: skip
        if dtype.is_integer and not scaled:
            return {}
        dims = [n if v and d != at else 1 for d, (n, v) in enumerate(zip(shape, along, strict=True))]
        if group:
            dims[at] = max(1, -(-shape[at] // group))
        lead = {"table": dtype.n_levels, "basis": dtype.bits}.get(dtype.kind, 1)
        if lead * math.prod(dims) > MOST_CONSTANTS:
            dims, group = [1] * len(dims), None
        normal = self.contents.standard_normal
        if dtype.kind == "table":
            a = self.contents.uniform(*interval, (lead, *dims)) if interval else normal((lead, *dims)) * 3
            return {"table": a, "group": group}
        if dtype.kind == "basis":
            return {"scale": normal((lead, *dims)), "offset": normal(dims), "group": group}
        scale = {"scale": normal(dims) * 0.5, "group": group}
        return scale if dtype.is_integer else {**scale, "offset": normal(dims)}


def _fitting(shape: tuple[int, ...], at: int, bits: int) -> tuple[int, ...]:
    """Halve lengths until the words take at most MOST_BYTES, those of the unpacked axes first."""
    lengths = list(shape)
    while True:
        outer = [n for d, n in enumerate(lengths) if d != at]
        if 8 * bits * math.prod(outer) * word_count(lengths[at]) <= MOST_BYTES:
            return tuple(lengths)
        d = lengths.index(max(outer)) if max(outer, default=1) > 1 else at
        d = next(i for i, n in enumerate(lengths) if i != at and n == max(outer)) if d != at else at
        lengths[d] = max(1, lengths[d] // 2)


def nbytes(result: Any) -> int:
    """Return the bytes of a result: of an array, or of all in a tuple, a list or a dict."""
    if isinstance(result, (tuple, list)):
        return sum(map(nbytes, result))
    if isinstance(result, dict):
        return sum(map(nbytes, result.values()))
    return len(result) if isinstance(result, (bytes, str)) else int(getattr(result, "nbytes", 0))


def values(q: Any) -> np.ndarray[Any, Any]:
    """Return the values of an array, packed or not, as float64."""
    return np.asarray(q.dequantize() if isinstance(q, qa.QuantArray) else q, np.float64)
