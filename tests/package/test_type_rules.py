"""The table of type rules: its page, its names, and the rules as code against what functions return."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import DOCS
from strategies import Law, laws, samples

import quantarray as qa
from tools import type_rules
from tools.type_rules import RULES

PAGE = DOCS / "type-rules.md"

# What these take and give is no array: dtypes, shapes, files, quantisers, devices
NO_ARRAY = set(
    """allocate_bits basis broadcast_shapes can_cast choose compare device explain fold fold_batchnorm
    get_num_threads iinfo
    integers isdtype on save set_num_threads table uniform""".split()
)


def test_page_is_what_the_code_says():
    assert PAGE.read_text() == type_rules.page(), "python -m tools.type_rules > docs/type-rules.md"


def test_every_public_function_has_a_rule():
    found = {name for name in qa.__all__ if inspect.isfunction(getattr(qa, name))}
    inner = {f"linalg.{name}" for name in qa.linalg.__all__ if name not in found}
    assert set(RULES) == found - NO_ARRAY | inner
    assert sum(map(len, type_rules.CHAPTERS.values())) == len(RULES)


def test_rules_are_words():
    for rule in RULES.values():
        assert rule.exact and rule.real and not rule.exact.endswith(".")


# the rules as code: of a law, the shape and the packed axis alone


def int_type(bound):
    return np.int32 if bound < 2**31 else np.int64


def whole(exact, real):
    """A rule that is the same for all exact dtypes, and for all real ones."""
    return lambda law, shape: exact if law.exact else real


def summed(law, shape):
    return int_type(np.prod(shape) * law.dtype.max_abs) if law.exact else np.float32


def summed_axis(law, shape):
    return int_type(shape[0] * law.dtype.max_abs) if law.exact else np.float32


def product(law, shape):
    return int_type(shape[-1] * law.dtype.max_abs**2) if law.exact else np.float32


def one_product(law, shape):
    return int_type(law.dtype.max_abs**2) if law.exact else np.float32


def differences(n):
    return lambda law, shape: int_type(2**n * law.dtype.max_abs) if law.exact else np.float32


def same(law, shape):
    return law.dtype


def table(law, shape):
    return qa.table(law.dtype.bits, law.dtype.n_levels)


def levels(f):
    """Integers of f of the levels: in code order where none are equal and the bits stay, else ascending."""

    def rule(law, shape):
        if not law.exact:
            return table(law, shape)
        values = [f(v) for v in law.dtype.levels]
        in_order = qa.integers(values) if len(set(values)) == len(values) else None
        return in_order if in_order and in_order.bits == law.dtype.bits else qa.integers(sorted(set(values)))

    return rule


def signs(law, shape):
    return qa.integers(sorted({int(np.sign(v)) for v in law.dtype.levels})) if law.exact else qa.ternary


def times_number(law, shape):
    return qa.integers([3 * v for v in law.dtype.levels]) if law.exact else law.dtype


def plus_number(law, shape):
    if law.exact:
        return qa.integers([v + 3 for v in law.dtype.levels])
    if law.dtype.is_integer:
        even = law.dtype.step is not None and abs(law.dtype.step) in 2 ** np.arange(32)
        return qa.uniform(law.dtype.bits, law.dtype.n_levels) if even else table(law, shape)
    return law.dtype


def pairs(f):
    def rule(law, shape):
        if law.exact:
            return qa.integers(sorted({f(v, w) for v in law.dtype.levels for w in law.dtype.levels}))
        bits = max(1, (law.dtype.n_levels**2 - 1).bit_length())
        return qa.table(bits, law.dtype.n_levels**2)

    return rule


CASES = {
    "positive": (qa.positive, same),
    "negative": (qa.negative, lambda law, shape: times(law, -1)),
    "add": (lambda q: q + 3, plus_number),
    "multiply": (lambda q: 3 * q, times_number),
    "divide": (lambda q: q / 3, same),
    "abs": (qa.abs, levels(abs)),
    "relu": (qa.relu, levels(lambda v: max(v, 0))),
    "clip": (lambda q: qa.clip(q, -1, 2), levels(lambda v: min(max(v, -1), 2))),
    "maximum": (lambda q: qa.maximum(q, 1), levels(lambda v: max(v, 1))),
    "remainder": (lambda q: q % 3, levels(lambda v: v % 3)),
    "sign": (qa.sign, signs),
    "floor": (qa.floor, lambda law, shape: law.dtype if law.exact else table(law, shape)),
    "tanh": (qa.tanh, table),
    "hypot": (lambda q: qa.hypot(q, 1.5), table),
    "signbit": (qa.signbit, whole(qa.uint1, qa.uint1)),
    "equal": (lambda q: q == q, whole(qa.uint1, qa.uint1)),
    "less": (lambda q: q < 1, whole(qa.uint1, qa.uint1)),
    "isin": (lambda q: qa.isin(q, [0, 1]), whole(qa.uint1, qa.uint1)),
    "logical_not": (qa.logical_not, whole(qa.uint1, qa.uint1)),
    "where": (lambda q: qa.where(q > 0, q, q), same),
    "empty_like": (qa.empty_like, same),
    "transpose": (qa.transpose, same),
    "flip": (lambda q: qa.flip(q, 0), same),
    "repack": (lambda q: qa.repack(q, 0), same),
    "take": (lambda q: qa.take(q, [0, 0], 0), same),
    "channel_shuffle": (lambda q: qa.channel_shuffle(q, 2, 0), same),
    "tile": (lambda q: qa.tile(q, (2, 1)), same),
    "broadcast_to": (lambda q: qa.broadcast_to(q, (2, *q.shape)), same),
    "concatenate": (lambda q: qa.concatenate([q, q]), same),
    "stack": (lambda q: qa.stack([q, q]), same),
    "unstack": (lambda q: qa.unstack(q)[0], same),
    "sort": (lambda q: qa.sort(q, axis=0), same),
    "max_pool1d": (lambda q: qa.max_pool1d(q.reshape(1, *q.shape), 1), same),
    "max_pool2d": (lambda q: qa.max_pool2d(q.reshape(1, 1, *q.shape), 1), same),
    "max_pool3d": (lambda q: qa.max_pool3d(q.reshape(1, 1, 1, *q.shape), 1), same),
    "sum": (qa.sum, summed),
    "cumulative_sum": (lambda q: qa.cumulative_sum(q, axis=0), summed_axis),
    "mean": (qa.mean, whole(np.float32, np.float32)),
    "std": (qa.std, whole(np.float32, np.float32)),
    "max": (qa.max, whole(np.int32, np.float32)),
    "all": (qa.all, whole(np.bool_, np.bool_)),
    "count_nonzero": (qa.count_nonzero, whole(np.int64, np.int64)),
    "counts": (qa.counts, whole(np.int64, np.int64)),
    "diff": (lambda q: qa.diff(q, axis=0), differences(1)),
    "diff of diff": (lambda q: qa.diff(q, axis=0, n=9), differences(9)),
    "argmax": (qa.argmax, whole(np.int64, np.int64)),
    "argsort": (qa.argsort, whole(np.int64, np.int64)),
    "nonzero": (lambda q: qa.nonzero(q)[0], whole(np.int64, np.int64)),
    "unique_values": (qa.unique_values, whole(np.int32, np.float32)),
    "unique_all": (lambda q: qa.unique_all(q).indices, whole(np.int64, np.int64)),
    "hamming": (lambda q: qa.hamming(q, q), whole(np.int64, np.int64)),
    "add_residual": (lambda q: qa.add_residual(q, q), whole(np.int32, np.float32)),
    "map_reduce": (lambda q: qa.map_reduce(np.abs, q), whole(np.int64, np.float64)),
    "outer": (lambda q: qa.outer(q[0], q[0]), one_product),
    "linalg.vector_norm": (qa.linalg.vector_norm, whole(np.float32, np.float32)),
    "linalg.trace": (lambda q: qa.linalg.trace(q[:1, :1]), lambda law, shape: summed(law, (1,))),
}
OF_FEW = {  # of 4 bits at most: pairs of levels, and products of tables
    "avg_pool1d": (lambda q: qa.avg_pool1d(q.reshape(1, *q.shape), 1), whole(np.float32, np.float32)),
    "avg_pool3d": (lambda q: qa.avg_pool3d(q.reshape(1, 1, 1, *q.shape), 1), whole(np.float32, np.float32)),
    "avg_pool2d": (lambda q: qa.avg_pool2d(q.reshape(1, 1, *q.shape), 1), whole(np.float32, np.float32)),
    "add of two": (lambda q: q + q, pairs(lambda v, w: v + w)),
    "multiply of two": (lambda q: q * q, pairs(lambda v, w: v * w)),
    "map2": (lambda q: qa.map2(np.subtract, q, q), pairs(lambda v, w: v - w)),
    "vecdot": (lambda q: qa.vecdot(q, q), product),
    "inner": (lambda q: qa.inner(q, q), product),
    "tensordot": (lambda q: qa.tensordot(q, q, ((1,), (1,))), product),
    "einsum": (lambda q: qa.einsum("ik,jk->ij", q, q), product),
    "matmul": (lambda q: q @ q.T, product),
    "linear": (lambda q: qa.linear(q, q), product),
    "conv1d": (lambda q: qa.conv1d(q.reshape(1, *q.shape), q.reshape(2, 1, -1)), product),
    "conv2d": (lambda q: qa.conv2d(q.reshape(1, 1, *q.shape), q.reshape(2, 1, 1, -1)), product),
    "conv3d": (lambda q: qa.conv3d(q.reshape(1, 1, 1, *q.shape), q.reshape(2, 1, 1, 1, -1)), product),
    "conv_transpose1d": (lambda q: qa.conv_transpose1d(q.reshape(1, *q.shape), q.reshape(2, 1, -1)), product),
    "conv_transpose2d": (lambda q: qa.conv_transpose2d(q.reshape(1, 1, *q.shape), q.reshape(2, 1, 1, -1)), product),
    "conv_transpose3d": (
        lambda q: qa.conv_transpose3d(q.reshape(1, 1, 1, *q.shape), q.reshape(2, 1, 1, 1, -1)),
        product,
    ),
}


def times(law, factor):
    return qa.integers([factor * v for v in law.dtype.levels]) if law.exact else law.dtype


def holds(name, cases, law, data):
    """The result's dtype is the rule's, for codes that all are 0 and for any."""
    call, rule = cases[name]
    length = data.draw(st.sampled_from([1, 64, 70]), "length")
    sample = data.draw(samples((2, length), 1, law, cancel=False), "sample")
    for codes in (sample.codes, np.zeros_like(sample.codes)):
        q = qa.from_codes(codes, law.dtype, 1, **sample.constants)
        got, expected = call(q), rule(law, q.shape)
        assert got.dtype == expected, f"{name} of {law}: {got.dtype}, not {expected}"


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25)
@given(law=laws(), data=st.data())
def test_rules(name, law, data):
    holds(name, CASES, law, data)


@pytest.mark.parametrize("name", OF_FEW)
@settings(max_examples=25)
@given(law=laws(4), data=st.data())
def test_rules_of_two(name, law, data):
    holds(name, OF_FEW, law, data)


def test_bounds_are_of_dtypes():
    """Large levels, few elements: int64 where the bound says so, though the elements are all 0."""
    zeros = qa.zeros((2, 64), qa.integers(0, 2**30))
    for name in ("sum", "cumulative_sum", "diff"):
        call, rule = CASES[name]
        assert call(zeros).dtype == rule(Law(zeros.dtype), zeros.shape) == np.int64, name
    assert qa.prod(zeros[:, :1]).dtype == np.int64 and qa.prod(zeros[:1, :1]).dtype == np.int32
    with pytest.raises(OverflowError, match="prod"):
        qa.prod(zeros)
    ones = zeros == 0
    assert {a.dtype for a in qa.top_k(ones, ones, 1)} == {np.dtype(np.int64)}
    q = qa.zeros((2, 64), qa.integers(0, 2**20))
    for name, call in {"outer": CASES["outer"][0], **{n: OF_FEW[n][0] for n in ("inner", "matmul", "vecdot")}}.items():
        assert call(q).dtype == np.int64, name
        if name == "outer":  # a product of two levels is below 2**62
            assert call(zeros).dtype == np.int64
            continue
        with pytest.raises(OverflowError, match="int64 cannot hold"):
            call(zeros)
