"""Random packed arrays for elementwise functions: any shape, any packed axis, any law, and pairs of them."""

from collections import namedtuple
from contextlib import contextmanager

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from strategies import laws, samples, seeds

PACKED = (1, 31, 32, 33, 63, 64, 65, 200, 0)
KINDS = ("integer", "scaled", "uniform", "basis", "table")


@st.composite
def shapes(draw):
    """Draw a shape of one to four axes and the packed one among them."""
    outer = draw(st.lists(st.sampled_from([1, 2, 3, 3, 0]), max_size=3))
    axis = draw(st.integers(0, len(outer)))
    return (*outer[:axis], draw(st.sampled_from(PACKED)), *outer[axis:]), axis


@st.composite
def any_samples(draw, laws=KINDS, most_bits=8, vary=True):
    """Draw a sample of any shape; its constants vary along any axes, along the packed one in groups."""
    shape, axis = draw(shapes())
    return draw(one_sample(shape, axis, laws, most_bits, vary))


def one_sample(shape, axis, kinds=KINDS, most_bits=8, vary=True):
    others = tuple(d for d in range(len(shape)) if d != axis) if vary else ()
    groups = (None, None, 1, 5, 64) if vary else (None,)
    return samples(shape, axis, laws(most_bits, kinds), others, groups, cancel=False)


@st.composite
def few_bit_pairs(draw, laws=KINDS, most=8):
    """Draw two samples of at most `most` bits together, packed alike, of shapes that broadcast."""
    shape, axis = draw(shapes())
    first = draw(st.integers(1, most - 1))
    p = draw(one_sample(shape, axis, laws, first))
    cut = [1 if draw(st.integers(0, 5)) == 0 else n for n in shape]
    gone = draw(st.integers(0, axis)) if draw(st.booleans()) else 0
    q = draw(one_sample(tuple(cut[gone:]), axis - gone, laws, most - p.law.dtype.bits))
    return (p, q) if draw(st.booleans()) else (q, p)


@st.composite
def beside(draw, shape, axis):
    """Draw a float32 or integer vector that broadcasts to the shape, along few axes."""
    along = draw(st.sampled_from([*range(len(shape)), None]))
    dims = [n if d == along else 1 for d, n in enumerate(shape)]
    dims = dims[draw(st.integers(0, len(shape))) :] if along is None else dims
    rng = np.random.default_rng(draw(seeds()))
    if draw(st.booleans()):
        return rng.integers(-5, 6, dims)
    return np.float32(rng.normal(size=dims) * 3)


@contextmanager
def within_memory():
    """Drop the cases whose constants would outgrow the values: the package refuses these."""
    try:
        yield
    except ValueError as error:
        if "would vary so much" in str(error):
            reject()
        raise


Value = namedtuple("Value", "sum magnitude")


def roundings(x):
    """Compute the value of a sample in float64 before its last rounding, and the magnitudes that were added up."""
    terms = x.scale * x.terms
    offset = np.broadcast_to(x.offset, x.codes.shape)
    magnitude = np.abs(offset) + np.abs(terms).sum(axis=0)
    if x.law.dtype.is_integer:  # a sum's offset is that of the first level
        magnitude = magnitude + np.abs(x.scale[0]) * abs(x.law.dtype.levels[0])
    return Value(offset + terms.sum(axis=0), magnitude)
