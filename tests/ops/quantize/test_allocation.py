"""Bits for many tensors under one budget, against every possible choice."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quantarray as qa
from quantarray.ops.quantize import bit_allocation


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def allocate(tensors, budget, sensitivity=None, bits=(1, 2, 4, 8), method="exact"):
    return qa.allocate_bits(tensors, budget, sensitivity=sensitivity, bits=bits, method=method)


def objective(c, bits):
    return sum(x / (2**b - 1) ** 2 for x, b in zip(c, bits, strict=True))


def best_objective(sizes, c, budget, bits):
    within = [
        objective(c, chosen)
        for chosen in itertools.product(bits, repeat=len(sizes))
        if sum(n * b for n, b in zip(sizes, chosen, strict=True)) <= budget
    ]
    return min(within, default=None)


weights = st.floats(1e-6, 1e6) | st.sampled_from([0.0, 1.0, 1.0, 2.0])
options = st.sampled_from([(1, 2, 4, 8), (1, 2, 3, 4), (2, 8), (4,), (1, 3, 8), tuple(range(1, 9))])


@given(st.lists(st.tuples(st.integers(0, 12), weights), min_size=1, max_size=4), options, st.integers(0, 100))
def test_exact_allocation_is_the_best(problem, bits, percent):
    sizes, c = zip(*problem, strict=True)
    least, most = sum(sizes) * min(bits), sum(sizes) * max(bits)
    budget = least + (most - least) * percent // 100
    best = best_objective(sizes, c, budget, bits)
    for method in ("exact", "greedy"):
        found = qa.allocate_bits(sizes, budget, sensitivity=c, bits=bits, method=method)
        assert found.dtype == np.int64 and set(found.tolist()) <= set(bits) and (found * sizes).sum() <= budget
        reached = objective(c, found.tolist())
        assert reached <= best * (1 + 1e-9) if method == "exact" else reached >= best * (1 - 1e-9)


@given(st.lists(weights, min_size=1, max_size=4), st.integers(1, 1000), st.integers(1, 8), st.integers(0, 100))
def test_greedy_allocation_is_the_best_for_equal_sizes(c, size, most, percent):
    bits = range(1, most + 1)
    budget = len(c) * size * (100 + (most - 1) * percent) // 100
    best = best_objective([size] * len(c), c, budget, bits)
    found = qa.allocate_bits([size] * len(c), budget, sensitivity=c, bits=bits)
    assert objective(c, found.tolist()) <= best * (1 + 1e-9)


def test_greedy_is_what_it_says():
    """Lowest first: the cheapest step down a bit saved, until the budget is met."""
    assert qa.allocate_bits([10, 10], 160, sensitivity=[1, 1]).tolist() == [8, 8]
    assert qa.allocate_bits([10, 10], 159, sensitivity=[1, 2]).tolist() == [4, 8]
    assert qa.allocate_bits([10, 10], 20, sensitivity=[1, 2]).tolist() == [1, 1]
    assert qa.allocate_bits([10, 1000], 4100, sensitivity=[1, 1]).tolist() == [8, 4]  # the large one saves more
    assert qa.allocate_bits([], 0).tolist() == [] and qa.allocate_bits([], 0, method="exact").tolist() == []


def test_allocation_to_tensors():
    """Layers, samples, groups: more bits where values are spread wider; constant tensors get the fewest."""
    layers = [normal(8, 300), 10 * normal(8, 300, seed=1), np.ones((8, 300))]
    for method in ("greedy", "exact"):
        bits = qa.allocate_bits(layers, 3 * 2400 * 3, method=method)
        assert bits[2] == 1 < bits[0] <= bits[1] and (bits * 2400).sum() <= 3 * 2400 * 3
    samples = normal(16, 512) * np.float32(4) ** np.arange(-8, 8)[:, None]
    assert (np.diff(qa.allocate_bits(samples, 3 * samples.size)) >= 0).all()
    sensitivity = np.where(np.arange(16) == 0, 1e30, 1)
    assert qa.allocate_bits(samples, 3 * samples.size, sensitivity=sensitivity)[0] == 8
    x = normal(2, 700)
    ranges = [np.ptp(x.ravel()[i : i + 256]) ** 2 * len(x.ravel()[i : i + 256]) / 4 for i in range(0, 1400, 256)]
    assert bit_allocation._spread("", "", x, 256) == pytest.approx(sum(ranges), rel=1e-6)


def test_spread_bounds_the_variance():
    x = normal(3, 1000)
    for bits in (1, 2, 4):
        q = qa.quantize(x.reshape(-1), qa.Grouped(bits, constants="float32"))
        error = ((q.dequantize().astype(np.float64) - x.reshape(-1)) ** 2).sum()
        assert error < bit_allocation._spread("", "", x, 256) / (2**bits - 1) ** 2


def test_allocation_over_many_groups():
    groups = np.random.default_rng(0).gamma(1, size=20_000)
    bits = qa.allocate_bits([256] * 20_000, 2 * 256 * 20_000, sensitivity=groups)
    assert bits.sum() <= 40_000 and np.corrcoef(bits, groups)[0, 1] > 0.5


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: allocate([10, 6], 15, [1, 1]), ValueError, "16 elements take at least 16 bits, 1 each, and"),
        (lambda: allocate([10], 19, [1], bits=(2, 4)), ValueError, "10 elements take at least 20 bits, 2 each"),
        (lambda: allocate([10], -1, [1]), ValueError, "10 elements take at least 10 bits, 1 each, and the budget"),
        (lambda: allocate([10], 80), TypeError, "sizes need a sensitivity each"),
        (lambda: allocate([10, 3], 80, [1]), ValueError, "sensitivity must have one number for each of 2 tensors"),
        (lambda: allocate([10], 80, [-1]), ValueError, "C must be finite and not negative, but tensor 0 has -1"),
        (lambda: allocate([10], 80, [np.nan]), ValueError, "C must be finite and not negative"),
        (lambda: allocate([[1e300, -1e300]], 80), ValueError, "C must be finite and not negative"),
        (lambda: allocate([[1, np.nan]], 80), ValueError, "tensor 0 must be finite"),
        (lambda: allocate([[1, 2], 3], 80), TypeError, "tensors must be arrays, or their sizes"),
        (lambda: allocate([2.5], 80, [1]), TypeError, "size 0 must be an integer"),
        (lambda: allocate([-2], 80, [1]), ValueError, "size 0 must be at least 0"),
        (lambda: allocate(5, 80), TypeError, "tensors must be a list"),
        (lambda: allocate([10], np.inf, [1]), ValueError, "budget must be finite"),
        (lambda: allocate([10], 80, [1], bits=()), ValueError, "bits must name at least one"),
        (lambda: allocate([10], 80, [1], bits=(0, 8)), ValueError, "each of bits must be at least 1"),
        (lambda: allocate([10], 80, [1], method="best"), ValueError, "method must be one of"),
        (lambda: allocate([10**9, 7], 3 * 10**9, [1, 1]), ValueError, "the exact method needs a table of 2 tensors"),
        (lambda: allocate([qa.encode([1], {1})], 80), TypeError, "tensor 0 is packed already"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=f"^allocate_bits: {message}"):
        call()
