"""Matrix products of drawn shapes and laws, and their comparison with the oracle."""

from math import gcd

import naive
import numpy as np
from hypothesis import strategies as st
from results import assert_bits, assert_packed, thresholds
from strategies import channels, lengths, products_by, samples, threads

LENGTHS = lengths().filter(bool)


def parts(k, *operands):
    """Cut k into slices over which no constant changes: of the greatest common divisor of the groups."""
    groups = [x.group for x in operands if x.group and x.group < k]
    step = gcd(*groups) if groups else k
    return [slice(at, at + step) for at in range(0, k, step)]


def real(x, w, bias=None):
    """x [.. k] times w [o k] by the oracle, float32; constants vary along rows, outputs and parts."""
    k = x.values.shape[-1]
    cuts = parts(k, x, w)
    ours, theirs = ([_rows(s, a.values.shape) for s in (*a.scale, a.offset)] for a in (x, w))
    at = [cut.start for cut in cuts]
    flat = naive.linear_affine(
        x.terms.reshape(len(x.terms), -1, k),
        [[s[:, i] for s in ours[:-1]] for i in at],
        [ours[-1][:, i] for i in at],
        w.terms,
        [[s[:, i] for s in theirs[:-1]] for i in at],
        [theirs[-1][:, i] for i in at],
        bias=bias,
        parts=cuts,
    )
    return flat.reshape(*x.values.shape[:-1], len(w.values))


def _rows(constant, shape):
    """Broadcast a constant to [rows k]."""
    return np.broadcast_to(constant, shape).reshape(-1, shape[-1])


def operands(draw, lead, x_law, w_law, groups=(None,), length=LENGTHS):
    """Draw x [lead k] and w [outputs k]."""
    k, outputs = draw(length), draw(channels())
    x = draw(samples((*lead, k), -1, x_law, range(len(lead)), groups))
    return x, draw(samples((outputs, k), -1, w_law, (0,), groups))


def check(draw, call, expected):
    """Compare `call()` with the oracle's result, and `call(requantize=law)` with the law of both."""
    with threads(draw(st.booleans())), products_by(draw(st.sampled_from(["conv", "dot"]))):
        got = call()
        assert_bits(got, expected)
        if not expected.ndim:
            return
        law, values = draw(thresholds(expected))
        packed = call(requantize=law)
    assert_packed(packed, values)
    np.testing.assert_array_equal(packed.words, law(got).words)
