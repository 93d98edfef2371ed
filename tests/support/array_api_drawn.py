"""Inputs for the calls of `array_api_cases`: packed arrays, and arguments that two namespaces share."""

from dataclasses import dataclass
from typing import Any

import array_api_strict as strict
import numpy as np
from hypothesis import strategies as st
from reductions import GROUPS, LAWS, LENGTHS, shapes
from strategies import Law, integer_dtypes, laws, samples, seeds

import quantarray as qa

SMALL = laws(4, ["integer", "table"])  # two of them have a joint table
SIGNS = integer_dtypes(2).filter(lambda t: t.max_abs < 2)  # any number of them has a product


@dataclass(frozen=True)
class Case:
    """`call`; the arrays it is tried on; the dtype of plain arrays; how far real results may be from theirs.

    arrays: "any" law; "small" for pairs; "signs" -1, 0, 1; "bits" uint1; (low, high): levels in between.
    plain: "same" int64 or float32; "float" float64 or float32; "double" float64; "wide" int64 or float64; "bool".
    room: None for equal results; else a multiple of 2**-40 times the largest constant's size, of both arrays where
    there are two, or its square; and times the number of elements where these are `summed`. Beside it results may
    differ by `ulps` units in the last place of float32.
    """

    call: Any
    arrays: Any = "any"
    plain: str = "same"
    room: float | None = None
    square: bool = False
    summed: bool = True
    ulps: int = 1
    filled: bool = False  # at least one element


class Drawn:
    """A source of the other arguments of a call: each is drawn when the call first asks for it."""

    def __init__(self, data, q, case):
        self._data, self.q, self._case, self._values = data, q, case, {}

    def __call__(self, name, strategy):
        if name not in self._values:
            self._values[name] = self._data.draw(strategy, name)
        return self._values[name]

    def flag(self, name):
        return self(name, st.booleans())

    def between(self, name, low, high):
        return self(name, st.integers(low, high))

    def among(self, name, *options):
        return self(name, st.sampled_from(options))

    @property
    def axis(self):
        return self("axis", st.integers(-self.q.ndim, self.q.ndim - 1))

    @property
    def place(self):
        return self("place", st.integers(-self.q.ndim - 1, self.q.ndim))

    @property
    def axes(self):
        several = st.lists(st.integers(0, self.q.ndim - 1), unique=True).map(tuple)
        return self("axes", st.one_of(st.none(), st.integers(-self.q.ndim, self.q.ndim - 1), several))

    @property
    def order(self):
        return self("order", st.permutations(range(self.q.ndim)).map(tuple))

    @property
    def shape(self):
        return self("shape", shapes().map(lambda drawn: drawn[0]))

    @property
    def rng(self):
        return np.random.default_rng(self("seed", seeds()))

    def integers(self, xp, low, high, shape):
        """Draw the same dense integers for both namespaces."""
        return dense(xp, self.rng.integers(low, high, shape))

    def places(self, xp, axis):
        n = self.q.shape[axis]
        return self.integers(xp, -n if n else 0, max(n, 1), self("count", st.sampled_from(LENGTHS)) if n else 0)

    def number(self, name="number"):
        """Draw a number of the levels' kind."""
        if self.q.dtype.is_integer and self.q.scale is None:
            return self(name, st.integers(1, 5))
        return self(name, st.sampled_from([0.25, 1.5, 3.0]))

    def other(self, shape=None, axis=None):
        """Draw a second packed array of the dtype of x, and of its shape and packed axis or others."""
        shape, axis = shape or self.q.shape, self.q.axis if axis is None else axis
        if isinstance(self._case.arrays, tuple):
            drawn = tables(shape, axis, *self._case.arrays, self.q.dtype)
        else:
            drawn = samples(shape, axis, law_of(self.q)).map(lambda s: s.q)
        return self("other", drawn)

    @property
    def operands(self):
        """List the packed arrays."""
        return [self.q, *(self._values[name] for name in ("other",) if name in self._values)]

    def second(self, xp):
        """Return `other` for a namespace."""
        return self.other() if xp is qa else self.plain(self.other())

    def mask(self, xp):
        """Draw a mask, packed or plain."""
        drawn = self("mask", samples(self.q.shape, self.q.axis, Law(qa.uint1)).map(lambda s: s.q))
        return drawn if xp is qa else strict.asarray(drawn.codes() != 0)

    def plain(self, q):
        """Decode a packed array to a plain one."""
        a, kind = q.dequantize(), self._case.plain
        integer = a.dtype.kind == "i"
        if kind == "bool":
            return strict.asarray(a != 0)
        if kind == "double" or (kind == "wide" and not integer) or (kind == "float" and integer):
            return strict.asarray(a.astype(np.float64))
        return strict.asarray(a.astype(np.int64) if integer else a)


def law_of(q):
    return Law(q.dtype, q.dtype.is_integer and q.scale is not None)


def dense(xp, a):
    return np.asarray(a) if xp is qa else xp.asarray(np.ascontiguousarray(a))


@st.composite
def tables(draw, shape, axis, low, high, dtype=None):
    """Draw levels in an interval: integers if its bounds are, else a table, which may vary along unpacked axes."""
    bits, rng = dtype.bits if dtype else draw(st.integers(1, 4)), np.random.default_rng(draw(seeds()))
    codes = rng.integers(0, 2**bits, shape)
    if isinstance(low, int):
        dtype = dtype or qa.integers(rng.permutation(np.arange(low, high + 1))[: 2**bits].tolist())
        return qa.from_codes(codes % dtype.n_levels, dtype, axis)
    dims = [n if d != axis and draw(st.booleans()) else 1 for d, n in enumerate(shape)]
    return qa.from_codes(codes, qa.table(bits), axis, table=rng.uniform(low, high, (2**bits, *dims)))


def packed(case):
    """Return a strategy of packed arrays for a case."""
    least = 1 if case.filled else 0
    drawn = shapes(4, least)
    if isinstance(case.arrays, tuple):
        return drawn.flatmap(lambda s: tables(*s, *case.arrays))
    law = {
        "any": LAWS,
        "factors": laws(8, table_bits=4),
        "small": SMALL,
        "signs": SIGNS.map(Law),
        "bits": st.just(Law(qa.uint1)),
    }[case.arrays]
    groups = {"small": (None,), "factors": (None, 64)}.get(case.arrays, GROUPS)
    return drawn.flatmap(lambda s: samples(*s, law, range(len(s[0])), groups)).map(lambda s: s.q)
