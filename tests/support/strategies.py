"""Random packed arrays of every law, and what the oracle needs to know of them.

Arrays are made by `from_codes` only; values and terms are computed here from the drawn codes and constants, by the
formulas of the laws, without the package. Hypothesis draws shapes, laws and a seed; codes and constants come from
NumPy's generator, because drawing them one by one would take longer than the kernels.
"""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.backends.kernel_choice import forced

_WITH_THREADS = [
    import_module(f"quantarray.cpu.{name}")
    for name in (
        "depthwise.masked_add depthwise.int8 popcount.tile_tasks bits.encode bits.gather bits.gather_across "
        "bits.encode_grouped bits.recode bits.pack bits.place reduction.pool bits.rebit bits.repack "
        "epilogue.rescale depthwise.bit_sliced bits.repeat bits.rotate bits.im2col"
    ).split()
]
CHANNELS = (1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129)  # around a half word, a word, two words


def channels(most=129):
    return st.sampled_from([c for c in CHANNELS if c <= most])


def lengths():
    """Draw lengths of a packed axis: `channels`, rarely 0, and rarely many words."""
    return st.one_of(*[channels()] * 6, st.sampled_from([0, 1025]))


def seeds():
    return st.integers(0, 2**32 - 1)


@contextmanager
def threads(many):
    """Split even the smallest work over threads if `many`; otherwise leave the choice to the kernels."""
    with ExitStack() as stack:
        for module in _WITH_THREADS if many else ():
            stack.enter_context(patch.object(module, "_LEAST", 0))
        yield


PRODUCTS = ("conv", "dot", "winograd", "framed")
products_by = forced  # one of them, wherever it can make a product of integers and whatever it costs


@dataclass(frozen=True)
class Law:
    dtype: qa.DType
    scaled: bool = False

    @property
    def exact(self):
        return self.dtype.is_integer and not self.scaled


@st.composite
def integer_dtypes(draw, most_bits=8):
    """Draw bipolar, ternary, uintK, intK, arithmetic levels up or down, and uneven levels in any order."""
    kind = draw(st.sampled_from(["bipolar", "ternary", "uint", "int", "steps", "uneven"]))
    bits = draw(st.integers(1, most_bits))
    if kind in ("bipolar", "ternary"):
        return qa.bipolar if kind == "bipolar" or most_bits == 1 else qa.ternary
    if kind == "uint":
        return getattr(qa, f"uint{bits}")
    if kind == "int":
        return getattr(qa, f"int{bits}") if bits > 1 else qa.bipolar
    count = draw(st.integers(max(1, 2 ** (bits - 1)), 2**bits))
    if kind == "steps":
        start, step = draw(st.integers(-300, 300)), draw(st.sampled_from([-3, -2, -1, 1, 2, 7]))
        return qa.integers(range(start, start + count * step, step))
    rng = np.random.default_rng(draw(seeds()))
    return qa.integers((draw(st.sampled_from([1, 5])) * rng.choice(np.arange(-130, 130), count, False)).tolist())


@st.composite
def laws(draw, most_bits=8, kinds=("integer", "scaled", "uniform", "basis", "table"), table_bits=None):
    kind = draw(st.sampled_from(kinds))
    if kind in ("integer", "scaled"):
        return Law(draw(integer_dtypes(most_bits)), kind == "scaled")
    bits = draw(st.integers(1, table_bits if kind == "table" and table_bits else most_bits))
    if kind == "basis":
        return Law(qa.basis(bits))
    return Law(getattr(qa, kind)(bits, draw(st.sampled_from([2**bits, 2 ** (bits - 1) + 1]))))


@dataclass(frozen=True)
class Sample:
    """A packed array `q`, what it decodes to, and values = offset + sum_t scale[t] * terms[t] for the oracle.

    `values` int64 or float32 and `terms` int64 [t, *shape] are in q's shape; `scale` [t, ...] and `offset` [...],
    float64, broadcast against it, with groups along the packed axis repeated.
    """

    law: Law
    codes: np.ndarray
    axis: int
    constants: dict
    group: int | None
    values: np.ndarray
    terms: np.ndarray
    scale: np.ndarray
    offset: np.ndarray

    @property
    def q(self):
        packed = qa.from_codes(self.codes, self.law.dtype, self.axis, **self.constants, group=self.group)
        validate(packed)
        return packed

    @property
    def exact(self):
        return self.law.exact

    def transpose(self, *order):
        """Reorder the array's axes, to be packed again."""

        def moved(a):
            lead = a.ndim - len(order)
            return a.transpose(*range(lead), *(lead + d for d in order)) if a.ndim >= len(order) else a

        constants = {name: moved(a) for name, a in self.constants.items()}
        fields = {n: moved(getattr(self, n)) for n in ("codes", "values", "terms", "scale", "offset")}
        return replace(self, axis=order.index(self.axis), constants=constants, **fields)


@st.composite
def samples(draw, shape, axis, law, vary=(), groups=(None,), cancel=None):
    """Draw an array of `shape` packed on `axis`. Constants vary along some of the axes in `vary`, and along the packed
    axis in runs of one of `groups`.

    Where `cancel`, terms add up to nearly nothing, so that float32 results are made of the rounding errors of
    float64 sums, and another order of summation shows.
    """
    law = draw(law) if isinstance(law, st.SearchStrategy) else law
    axis = axis % len(shape)
    cancel = draw(st.booleans()) if cancel is None else cancel
    along = [d for d in vary if draw(st.booleans())]
    group = draw(st.sampled_from(groups))
    rng = np.random.default_rng(draw(seeds()))
    dims = [n if d in along else 1 for d, n in enumerate(shape)]
    if group and axis not in along:
        dims[axis] = max(1, -(-shape[axis] // group))
    elif axis in along:
        group, dims[axis] = 1, max(1, shape[axis])
    codes = rng.integers(0, law.dtype.n_levels, shape)
    constants = {} if law.exact else constants_of(rng, law, dims)
    if cancel and not law.exact:
        codes = _cancel(rng, law, codes, constants)
    singles = {name: np.asarray(a, np.float32) for name, a in constants.items()}
    index = np.arange(shape[axis]) // group if group and dims[axis] > 1 else None
    wide = {n: a if index is None else a.take(index, a.ndim - len(shape) + axis) for n, a in singles.items()}
    return Sample(law, codes, axis, singles, group, *meaning(law, codes, wide))


@st.composite
def arrays(draw, least=1, most=4, length=lengths, groups=(None, None, 5, 64), vary=True, axis=None):
    """Draw a sample of small axes and a packed one of any length."""
    shape = [draw(st.sampled_from([1, 1, 2, 3, 4])) for _ in range(draw(st.integers(least, most)))]
    axis = draw(st.integers(0, len(shape) - 1)) if axis is None else axis % len(shape)
    shape[axis] = draw(length())
    return draw(samples(tuple(shape), axis, laws(4), range(len(shape)) if vary else (), groups))


def constants_of(rng, law, dims):
    """Draw constants of either sign, of magnitudes up to 1000 apart."""

    def draw(*lead):
        return np.float32(rng.normal(size=(*lead, *dims)) * 10.0 ** rng.integers(-1, 3))

    if law.dtype.kind == "table":
        return {"table": draw(law.dtype.n_levels)}
    if law.dtype.kind == "basis":
        return {"scale": draw(law.dtype.bits), "offset": draw()}
    return {"scale": draw()} if law.dtype.is_integer else {"scale": draw(), "offset": draw()}


def _cancel(rng, law, codes, constants):
    """Change constants and codes so that an element's terms nearly cancel; return the codes."""
    bits = law.dtype.bits
    if law.dtype.kind == "table":
        constants["table"][1:] = constants["table"][:1] * np.float32(1 + 2e-7)
    elif law.dtype.kind == "uniform":
        one = rng.integers(0, law.dtype.n_levels)
        constants["offset"] = -constants["scale"] * np.float32(one)
        return np.full_like(codes, one)
    elif law.dtype.kind == "basis":  # planes in pairs of equal bits and opposite scales
        constants["scale"][1::2] = -constants["scale"][: bits // 2 * 2 : 2]
        even = codes & 0x55 & (2 ** (bits // 2 * 2) - 1)
        return even | even << 1
    return codes


def meaning(law, codes, constants):
    """Compute values, terms, scale, offset of codes under constants that broadcast against them."""
    c64 = {name: a.astype(np.float64) for name, a in constants.items()}
    scale, offset = c64.get("scale"), c64.get("offset", np.zeros((1,) * codes.ndim))
    bits = np.stack([codes >> k & 1 for k in range(law.dtype.bits)])
    if law.dtype.is_integer:
        exact = np.array(law.dtype.levels)[codes]
        if not law.scaled:
            return exact, exact[None], np.ones((1,) * (codes.ndim + 1)), offset
        return (scale * exact).astype(np.float32), exact[None], scale[None], offset
    if law.dtype.kind == "uniform":
        return (offset + scale * codes).astype(np.float32), codes[None], scale[None], offset
    if law.dtype.kind == "basis":
        value = offset
        for k in range(law.dtype.bits):
            value = value + scale[k] * bits[k]
        return value.astype(np.float32), bits, scale, offset
    table = constants["table"]
    value = np.take_along_axis(np.broadcast_to(table, (len(table), *codes.shape)), codes[None], 0)[0]
    return value, *_plane_products(c64["table"], bits)


def _plane_products(table, bits):
    """Write a table as offset + sum over sets S of planes of scale[S] * product of the planes in S."""
    count = 2 ** len(bits)
    scale = np.concatenate([table, np.zeros((count - len(table), *table.shape[1:]))])
    for k in range(len(bits)):
        for s in range(count):
            if s >> k & 1:
                scale[s] = scale[s] - scale[s - 2**k]
    sets = [[k for k in range(len(bits)) if s >> k & 1] for s in range(1, count)]
    return np.stack([bits[planes].prod(axis=0) for planes in sets]), scale[1:], scale[0]
