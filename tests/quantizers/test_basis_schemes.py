"""ABC-Net, LQ-Nets and greedy residuals: published numbers, the formulas by plain loops, edge values, products."""

import warnings
from statistics import NormalDist

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.quantizers.lq import moving_average, qem
from quantarray.quantizers.rows import MAGNITUDES, SQUARES, SortedRows, row_means, row_sums

TINY = np.float32(1e-45)  # the smallest there is
FITTED = [qa.ABC(m) for m in (1, 2, 3, 5)]
FITTED += [qa.Greedy(b, refit) for b in (1, 2, 4) for refit in (False, True)]
FITTED += [qa.LQ(b, activations) for b in (1, 2, 3, 8) for activations in (False, True)] + [qa.LQ(3, starts=8)]
FITTED += [qa.LQ(b, activations, center=True) for b in (1, 2, 3, 8) for activations in (False, True)]
FIXED = [qa.ABCActivations([-1, 1], [1, 1]), qa.ABCActivations([0.25], [-2]), qa.ABCActivations([0, 0, 0], [1, 0, 3])]
FIXED += [qa.LQ(3, basis=[0.5, -2, 1]), qa.LQ(2, True, basis=[1, 2]), qa.LQ(2, True, basis=[0, 0])]
FIXED += [qa.LQ(2, basis=[0.5, 2, -7], center=True), qa.LQ(2, True, basis=[1, -2, 1e3], center=True)]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def normal():
    """A million values of a normal distribution, at quantiles of even spacing."""
    half = np.array([NormalDist().inv_cdf((i + 0.5) / 1e6) for i in range(500_000)])
    return np.concatenate([half, -half[::-1]])


def quantize(x, *args, **kwargs):
    q = qa.quantize(x, *args, **kwargs)
    validate(q)
    return q


def error(x, quantizer):
    return np.mean((x - quantize(x, quantizer).dequantize().astype(np.float64)) ** 2)


def signs(codes, bits):
    """+-1 [*codes bits]"""
    return 2.0 * (np.asarray(codes)[..., None] >> np.arange(bits) & 1) - 1


# published numbers


def test_abc_errors_on_normal_values(normal):
    found = [round(float(error(normal, qa.ABC(m))), 5) for m in range(1, 6)]
    assert found == [0.36338, 0.26192, 0.11755, 0.08794, 0.07723]


def test_abc_errors_on_random_normal_values():
    x = np.random.default_rng(0).normal(size=1_000_000)
    expected = [0.36338, 0.26192, 0.11755, 0.08794, 0.07723]
    assert np.allclose([error(x, qa.ABC(m)) for m in range(1, 6)], expected, rtol=0.01)


def test_lq_bases_and_errors_on_normal_values(normal):
    cases = {
        1: ([0.7979], 0.363379),
        2: ([0.5288, 0.9816], 0.117481),
        3: ([0.3010, 0.6069, 1.1578], 0.036942),
        4: ([0.2037, 0.3702, 0.7450, 1.2323], 0.011442),
    }
    for bits, (basis, expected) in cases.items():
        q = quantize(normal, qa.LQ(bits))
        assert (q.scale.ravel() / 2).round(4).tolist() == np.float32(basis).tolist()
        assert q.offset[0] == np.float32(-q.scale.astype(np.float64).sum() / 2)
        assert round(float(error(normal, qa.LQ(bits))), 6) == expected
    # the numbers that had been measured on random values
    for bits, measured in ((2, 0.117482), (3, 0.036943), (4, 0.01144)):
        assert abs(error(normal, qa.LQ(bits)) - measured) < 3e-6


def test_several_starts_find_better_bases(normal):
    for starts in (2, 8):
        assert error(normal, qa.LQ(3, starts=starts)) <= 0.03527
        assert error(normal, qa.LQ(4, starts=starts)) <= 0.00990
        assert abs(error(normal, qa.LQ(2, starts=starts)) - 0.117481) < 1e-6
    # no basis beats the best levels without one
    assert error(normal, qa.LQ(3, starts=8)) > 0.034548 and error(normal, qa.LQ(4, starts=8)) > 0.009501


@given(hnp.arrays(np.float64, (3, 40), elements=st.floats(-9, 9)), st.integers(2, 8), st.booleans())
def test_more_starts_are_never_worse(x, starts, activations):
    few, many = (
        ((x - quantize(x, qa.LQ(2, activations, starts=n), scale_axis=0).dequantize()) ** 2).sum(1)
        for n in (starts - 1, starts)
    )
    assert (many <= few + 1e-5 * (x**2).sum(1)).all()


def test_lq_errors_on_rectified_normal_values(normal):
    expected = [0.095087, 0.023429, 0.006443, 0.001845]
    x = np.maximum(normal, 0)
    found = [error(x, qa.LQ(bits, activations=True)) for bits in (1, 2, 3, 4)]
    assert np.round(found, 6).tolist() == expected


# a center


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("mean", [0, 0.5, 1, 2, -30, 1e6])
def test_centered_lq_follows_the_mean(mean, activations):
    x = np.random.default_rng(1).normal(mean, 1, 100_000)
    for bits, most in ((1, 1.01), (2, 1.01), (3, 1.03)):
        best = error(x, qa.LloydMax(bits))
        assert error(x, qa.LQ(bits, activations, starts=3, center=True)) <= most * best
        assert bits == 3 or error(x.astype(np.float32), qa.LQ(bits, activations, center=True)) <= most * best


@pytest.mark.parametrize("activations", [False, True])
def test_centered_lq_of_each_channel(activations):
    means, deviations = np.float64([0, 5, -1e3, 1e6])[:, None], np.float64([1, 1e-3, 7, 1])[:, None]
    x = np.random.default_rng(2).normal(size=(4, 20_000)) * deviations + means
    q = quantize(x, qa.LQ(2, activations, center=True), scale_axis=0)
    assert q.scale.shape == (2, 4, 1) and q.offset.shape == (4, 1)
    found = ((x - q.dequantize().astype(np.float64)) ** 2).mean(1, keepdims=True)
    assert (found <= 0.122 * deviations**2).all()
    for row, scale, offset in zip(x, q.scale[:, :, 0].T, q.offset, strict=True):  # as if it were alone
        alone = quantize(row, qa.LQ(2, activations, center=True))
        assert scale.tolist() == alone.scale.ravel().tolist() and offset.tolist() == alone.offset.tolist()


CLUSTERS = {
    "exponential": lambda rng: rng.exponential(size=4096),
    "lognormal": lambda rng: np.exp(rng.normal(size=4096)),
    "relu": lambda rng: np.maximum(rng.normal(size=4096), 0),
    "two clusters": lambda rng: rng.normal(np.where(rng.random(4096) < 0.2, 0, 5), 0.3),
    "spike": lambda rng: np.where(rng.random(4096) < 0.8, 0, rng.normal(3, 1, 4096)),
    "even": lambda rng: rng.random(4096),
}


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("activations", [False, True])
def test_centered_lq_is_no_worse_than_even_levels(name, activations):
    x = CLUSTERS[name](np.random.default_rng(3))
    for bits in (1, 2, 3, 4):
        even = error(x, qa.Uniform(bits, symmetric=False, mse=True))
        assert error(x, qa.LQ(bits, activations, center=True)) <= (1 + 1e-6) * even


@pytest.mark.parametrize("activations", [False, True])
def test_centered_lq_is_near_the_best_of_random_starts(activations):
    rng = np.random.default_rng(4)
    for draw in CLUSTERS.values():
        x = draw(rng)
        at, size = x.mean(), x.std()
        v = np.hstack([np.abs(rng.normal(size=(100, 2))) * size, rng.normal(size=(100, 1)) * size])
        *_, (_, least) = qem(np.tile(x - at, (100, 1)), v, activations, center=True)
        assert error(x, qa.LQ(2, activations, starts=8, center=True)) <= 1.01 * least.min()


@given(
    hnp.arrays(np.float32, (3, 2), elements=st.floats(-100, 100, width=16)),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([0, 1e3, -1e6]),
)
def test_a_center_reaches_two_values_exactly(x, bits, activations, at):
    x = np.repeat(np.float32(x + np.float32(at)), 3, axis=1)
    q = quantize(x, qa.LQ(bits, activations, center=True), scale_axis=0)
    ulp = np.spacing(np.abs(x).max(1, keepdims=True))
    assert (np.abs(q.dequantize() - x) <= (0 if (x == x[:, :1]).all() else 2) * ulp).all()


@pytest.mark.parametrize("activations", [False, True])
def test_a_center_of_nothing_of_one_value_and_a_given_one(activations):
    scheme = qa.LQ(2, activations, center=True)
    for value in (0.1, -7, 1e6 + 1 / 3, 3e38, -1e-45, 0):
        q = quantize(np.full((2, 3), value), scheme, scale_axis=0)
        assert (q.dequantize() == np.float32(value)).all() and (q.scale == 0).all()
    assert quantize(np.zeros((0, 2)), scheme, scale_axis=1).offset.shape == (1, 2)
    fixed = qa.LQ(2, activations, basis=[1, 2, 100], center=True)
    expected = [100, 101, 102, 103] if activations else [97, 99, 101, 103]
    assert fixed.fixed and quantize([-np.inf, 0, np.inf], fixed).levels.ravel().tolist() == expected
    assert quantize([], fixed).levels.ravel().tolist() == expected


def test_qem_with_a_center_is_least_squares_with_ones():
    x = np.random.default_rng(5).normal(9, 2, (1, 500))
    for activations in (False, True):
        *_, (v, found) = qem(x, np.array([[1.0, 2, 8]]), activations, center=True)
        e = np.array([[i >> j & 1 for j in range(2)] for i in range(4)], float)
        b = np.hstack([e if activations else 2 * e - 1, np.ones((4, 1))])
        rows = b[np.abs(x[0] - (b @ v[0])[:, None]).argmin(0)]
        np.testing.assert_allclose(v[0], np.linalg.lstsq(rows, x[0], rcond=None)[0], rtol=1e-6)
        np.testing.assert_allclose(found[0], np.mean((x[0] - rows @ v[0]) ** 2), rtol=1e-9)


def test_abc_activations_of_the_golden_vector():
    a = np.float32(
        [
            [-0.395354, -0.484792, 1.53637, -1.35602],
            [0.623933, 1.34218, -0.140339, 1.25815],
            [-1.55637, 1.05524, -0.579586, -0.749204],
            [1.1074, -0.339773, 2.60559, 1.14392],
        ]
    )
    out = quantize(a, qa.ABCActivations((-1, 1), (1, 1))).dequantize()
    assert out.tolist() == [[0, 0, 2, -2], [0, 0, 0, 0], [-2, 0, -2, -2], [0, 0, 2, 0]] and out.sum() == -4


# formulas, by plain loops


@given(hnp.arrays(np.float32, (2, 9), elements=st.sampled_from([-3.0, -1, 0, 0.5, 1, 1.5, 8])), st.integers(1, 8))
def test_abc_weights_are_least_squares_of_masks(x, masks):
    q = quantize(x, qa.ABC(masks), scale_axis=0)
    shifts = [-1 + 2 * m / (masks - 1) for m in range(masks)] if masks > 1 else [0]
    for row, codes, decoded in zip(x.astype(np.float64), q.codes(), q.dequantize(), strict=True):
        b = np.stack([np.where(row - row.mean() + u * row.std() >= 0, 1.0, -1) for u in shifts], axis=1)
        np.testing.assert_array_equal(signs(codes, masks), b)
        best = b @ np.linalg.lstsq(b, row, rcond=None)[0]
        np.testing.assert_allclose(decoded, best, atol=1e-5)


def test_equal_masks_add_nothing():
    """Two values have 2 codes, whatever the number of masks; the normal equations are singular."""
    x = np.float32([-1, 5, 5, -1])
    q = quantize(x, qa.ABC(4))
    assert np.isfinite(q.scale).all() and (q.scale == 0).sum() >= 2
    np.testing.assert_array_equal(q.dequantize(), x)
    even = quantize(np.float32([2, -2]), qa.ABC(2))  # both are at one deviation: no code is +-(+1, +1)
    assert np.isfinite(even.scale).all() and np.ptp(even.dequantize()) > 0


@given(hnp.arrays(np.float32, (2, 7), elements=st.floats(-100, 100, width=32)), st.integers(1, 8))
def test_greedy_residuals(x, bits):
    q = quantize(x, qa.Greedy(bits), scale_axis=0)
    for c, row in enumerate(x.astype(np.float64)):
        alpha = q.scale[:, c, 0].astype(np.float64) / 2
        for k in range(bits):
            np.testing.assert_allclose(np.abs(row).mean(), alpha[k], rtol=1e-6, atol=1e-45)
            b = np.where(row >= 0, 1, -1)
            np.testing.assert_array_equal(q.codes()[c] >> k & 1, b > 0)
            row = row - alpha[k] * b


@given(hnp.arrays(np.float32, (2, 7), elements=st.floats(-100, 100, width=32)), st.integers(1, 5))
def test_refitted_greedy_residuals(x, bits):
    """Each plane is the sign of what least squares of the planes before it leave."""
    q = quantize(x, qa.Greedy(bits, refit=True), scale_axis=0)
    for row, codes, decoded in zip(x.astype(np.float64), q.codes(), q.dequantize(), strict=True):
        planes, size = signs(codes, bits), np.abs(row).max()
        left = row
        for k in range(bits):
            sure = np.abs(left) > 1e-9 * size  # else its sign is that of rounding errors
            np.testing.assert_array_equal(planes[sure, k] > 0, left[sure] >= 0)
            best = planes[:, : k + 1] @ np.linalg.lstsq(planes[:, : k + 1], row, rcond=1e-9)[0]
            left = row - best
        np.testing.assert_allclose(decoded, best, atol=1e-5 * size + 1e-40)


def test_refitting_helps_on_normal_values(normal):
    for bits, plain, refitted in ((1, 0.36338, 0.36338), (2, 0.13045, 0.12508), (3, 0.05839, 0.05052)):
        assert round(float(error(normal, qa.Greedy(bits))), 5) == plain
        assert round(float(error(normal, qa.Greedy(bits, refit=True))), 5) == refitted


def test_one_plane_of_each_scheme_is_the_scaled_sign():
    x = np.random.default_rng(0).normal(size=(5, 70)).astype(np.float32)
    expected = quantize(x, qa.Sign(scale=True), scale_axis=0).dequantize()
    for quantizer in (qa.Greedy(1), qa.Greedy(1, refit=True), qa.LQ(1)):
        np.testing.assert_allclose(quantize(x, quantizer, scale_axis=0).dequantize(), expected, rtol=1e-6)


def naive_qem(x, v, activations, ridge, iterations):
    """(v, error) after each half-step, for one channel, from all values."""
    e = np.array([[i >> j & 1 for j in range(len(v))] for i in range(2 ** len(v))], float)
    e, before = e if activations else 2 * e - 1, None
    for _ in range(iterations):
        order = np.argsort(e @ v, kind="stable")
        levels = (e @ v)[order]
        b = e[order[np.searchsorted((levels[1:] + levels[:-1]) / 2, x, side="right")]]
        yield v, np.mean((x - b @ v) ** 2)
        if before is not None and (b == before).all():
            return
        before = b
        regular = ridge * len(x) * np.eye(len(v))
        v = np.linalg.solve(b.T @ b + regular, b.T @ x + regular @ v)
        yield v, np.mean((x - b @ v) ** 2)


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 50, 150_001])  # of the last, sums are kept by block
def test_qem_half_steps(n, bits, activations):
    rng = np.random.default_rng(n)
    x, v = rng.normal(size=(2, n)), rng.normal(size=(2, bits))
    rounds = 5 if n > 1000 else 300
    found = list(qem(x, v, activations, 1e-6, rounds))
    for c in range(2):
        expected = list(naive_qem(x[c], v[c], activations, 1e-6, rounds))
        assert len(found) >= len(expected)
        for (w, e), (w_expected, e_expected) in zip(found, expected, strict=False):
            np.testing.assert_allclose(w[c], w_expected, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(e[c], e_expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[-1][1][c], expected[-1][1], rtol=1e-9, atol=1e-12)  # and then it rests


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 30)), elements=st.floats(-100, 100)),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-8, 1e-3, 1.0]),
)
def test_the_error_never_rises_between_half_steps(x, bits, activations, seed, ridge):
    v = np.random.default_rng(seed).normal(size=(len(x), bits)) * 50
    errors = np.array([e for _, e in qem(x, v, activations, ridge)])
    assert (np.diff(errors, axis=0) <= 1e-12 * (np.square(x).mean(1) + errors[0])).all()


def test_a_plane_that_no_code_depends_on_stays():
    """One value reaches one code: the normal equations are singular, and the ridge keeps the step finite."""
    *_, (v, e) = qem(np.full((1, 5), 3.0), np.array([[1.0, 1.0]]))
    np.testing.assert_allclose(v, [[1.5, 1.5]])
    *_, (v, e) = qem(np.full((1, 5), 3.0), np.array([[0.5, 2.9]]), activations=True)
    assert v[0, 0] == 0.5 and abs(v[0, 1] - 3) < 1e-6 and e < 1e-12


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 20)), elements=st.integers(-4, 4)),
    st.lists(st.floats(-5, 5) | st.integers(-5, 5), min_size=1, max_size=5),
)
def test_sorted_rows(x, thresholds):
    rows, t = SortedRows(x), np.tile(thresholds, (len(x), 1))
    places = rows.below(t)
    np.testing.assert_array_equal(places.counts, [[(r < u).sum() for u in t[0]] for r in x])
    np.testing.assert_allclose(places.totals, [[r[r < u].sum() for u in t[0]] for r in x])
    np.testing.assert_allclose(rows.total, x.sum(1))
    n, ascending = x.shape[1], np.sort(x, axis=1)
    for r, row in enumerate(ascending):
        np.testing.assert_array_equal(places.before[r], row[np.maximum(places.counts[r] - 1, 0)])
        np.testing.assert_array_equal(places.at[r], row[np.minimum(places.counts[r], n - 1)])
    some = rows.below(t[:1], np.array([len(x) - 1]))
    assert all((a[0] == b[-1]).all() for a, b in zip(some, places, strict=True))


def test_sorted_rows_in_blocks():
    x = np.random.default_rng(0).normal(size=(2, 400_003)).astype(np.float32)
    t = np.float64([[-9, -1, 0, 0.3, 9], [-0.5, 0, 3, 4, 5]])
    places = SortedRows(x).below(t)
    for r, u, n, s in zip(x.astype(np.float64), t, places.counts, places.totals, strict=True):
        assert n.tolist() == [(r < v).sum() for v in u]
        np.testing.assert_allclose(s, [r[r < v].sum() for v in u], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("n", [1, 31, 1024, 1025, 70_001])
def test_row_sums(n):
    x = np.random.default_rng(n).normal(size=(3, n)).astype(np.float32)
    exact, cuts, shift = x.astype(np.float64), np.float64([[-1, 0.5]] * 3), np.float64([0, 1, -3])
    rank = (exact >= -1).astype(int) + (exact >= 0.5)
    for power, f in enumerate((np.abs, np.asarray, np.square)):
        count, total = row_sums(x, power, shift, cuts)
        for k in range(3):
            np.testing.assert_array_equal(count[:, k], (rank == k).sum(1))
            wanted = np.where(rank == k, f(exact - shift[:, None]), 0).sum(1)
            np.testing.assert_allclose(total[:, k], wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(row_means(x, MAGNITUDES), np.abs(exact).mean(1), rtol=1e-13)
    np.testing.assert_allclose(row_means(x, SQUARES), (exact**2).mean(1), rtol=1e-13)


def test_moving_average_of_integers_is_not_an_integer():
    assert moving_average(np.array([1, 2]), np.array([2, 4])).round(9).tolist() == [1.1, 2.2]
    assert moving_average([3], [0], momentum=0.5).tolist() == [1.5]
    v = np.int8([1, 2])
    for _ in range(200):
        v = moving_average(v, np.float32([5, 6]))
    np.testing.assert_allclose(v, [5, 6])
    q = quantize(np.float32([-11, -9, 2, 11]), qa.LQ(2, basis=v))
    assert q.dequantize().round(4).tolist() == [-11, -11, 1, 11]


# nearest, idempotent, monotone


def level_values(q):
    """[n_levels, *shape], float64."""
    return np.stack([np.broadcast_to(v, q.shape) for v in q.levels]).astype(np.float64)


@pytest.mark.parametrize("quantizer", [*FITTED, *FIXED], ids=repr)
def test_declared_properties(quantizer):
    for seed in range(4):
        x = (np.random.default_rng(seed).normal(size=(4, 60)) ** (1 + 2 * (seed % 2))).astype(np.float32)
        x[0, :8] = x[0, 8]
        q = quantize(x, quantizer, scale_axis=0)
        decoded = q.dequantize().astype(np.float64)
        if quantizer.nearest:
            levels = level_values(q)
            assert (np.abs(x - decoded) <= np.abs(x - levels).min(0) + 2e-7 * np.abs(levels).max()).all()
        if quantizer.idempotent:
            again = quantizer.encode(q.dequantize(), q.constants)
            np.testing.assert_array_equal(np.take_along_axis(level_values(q), again[None].astype(int), 0)[0], decoded)
        if quantizer.monotone:
            assert (np.diff(np.take_along_axis(decoded, np.argsort(x, axis=1), 1), axis=1) >= 0).all()


@pytest.mark.parametrize(
    "quantizer, x",
    [
        (qa.ABC(3), [6, -8, -6, -5, -6, 6, 7]),
        (qa.Greedy(3), [8, -9, 2, 0, -5, 0, 3, -4, 1]),
        (qa.Greedy(3, refit=True), [-1, 0, 5, 9, -9]),
        (qa.ABCActivations([0, 1], [1, 5]), [7, 3, 0, -4]),
    ],
    ids=repr,
)
def test_neither_nearest_nor_idempotent(quantizer, x):
    """Counterexamples to the properties that these schemes don't declare."""
    assert not quantizer.nearest and not quantizer.idempotent
    q = quantize(np.float32(x), quantizer)
    assert (np.abs(x - q.dequantize()) > np.abs(x - level_values(q)).min(0) + 1e-6).any()
    again = quantizer.encode(q.dequantize(), q.constants)
    assert (np.abs(level_values(q)[again, np.arange(len(x))] - q.dequantize()) > 1e-6).any()


def test_not_monotone():
    assert not qa.ABCActivations([0, 1], [1, -5]).monotone and not qa.Greedy(3).monotone
    assert quantize(np.float32([-1, 0, 1]), qa.ABCActivations([0, 1], [1, -5])).dequantize().tolist() == [4, -6, -4]
    for quantizer, x in ((qa.Greedy(2), [-1, 0, 0, 1, 4, 7]), (qa.Greedy(3, refit=True), [-3, -2, -1, 0, 1, 8])):
        decoded = quantize(np.float32(x), quantizer).dequantize()
        assert (np.diff(decoded) < -0.1).any()  # from just above 0 for -1 to just below it for 0


@pytest.mark.parametrize("quantizer", FITTED, ids=repr)
def test_neighbours_and_layout_do_not_matter(quantizer):
    x = np.random.default_rng(0).normal(size=(6, 3, 100)) * 10.0 ** np.arange(-3, 3)[:, None, None]
    q = quantize(x, quantizer, scale_axis=0)
    for row, values in zip(q, x, strict=True):
        assert qa.array_equal(row, quantize(values, quantizer))
    x = x.astype(np.float32)
    q = quantize(x, quantizer, scale_axis=(0, 1))
    for other in (np.asfortranarray(x), x[::-1][::-1], np.repeat(x, 2, 1)[:, ::2], x.astype(">f4")):
        assert quantize(other, quantizer, scale_axis=(0, 1)).digest() == q.digest()
    moved = quantize(x.transpose(1, 2, 0), quantizer, axis=1, scale_axis=(0, 2))
    np.testing.assert_array_equal(moved.codes(), q.codes().transpose(1, 2, 0))


@pytest.mark.parametrize("quantizer", FITTED, ids=repr)
def test_constants_for_each_packed_element(quantizer):
    """Depthwise weights are packed on their output channels."""
    w = np.random.default_rng(0).normal(size=(70, 3, 3, 1))
    q = quantize(w, quantizer, axis=0, scale_axis=0)
    assert q.scale.shape == (q.bits, 70, 1, 1, 1) and q.group == 1
    assert qa.array_equal(q, quantize(w, quantizer, scale_axis=0))


def test_groups():
    x = np.random.default_rng(0).normal(size=(3, 100))
    for quantizer in (qa.Greedy(3), qa.Greedy(3, refit=True), qa.ABC(3), qa.LQ(2), qa.LQ(3, True, starts=2)):
        grouped = quantize(x, quantizer, group=32)
        for start in range(0, 100, 32):
            part = quantize(x[:, start : start + 32], quantizer, scale_axis=0)
            assert qa.array_equal(grouped[:, start : start + 32], part)


# edge values


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 0.1, -3.7, TINY, -TINY, 1e-40, 1e38, -1e38, 2.0**24 + 2])
@pytest.mark.parametrize("shape", [(1,), (3, 2), (7, 11)])
@pytest.mark.parametrize("quantizer", FITTED, ids=repr)
def test_constant_arrays_decode_to_themselves(value, shape, quantizer):
    x = np.full(shape, value, np.float32)
    np.testing.assert_array_equal(quantize(x, quantizer).dequantize(), x)
    beside = np.stack([x, np.arange(x.size, dtype=np.float32).reshape(shape)])
    np.testing.assert_array_equal(quantize(beside, quantizer, scale_axis=0).dequantize()[0], x)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("quantizer", [*FITTED, *FIXED], ids=repr)
def test_empty(shape, quantizer):
    for axis in range(len(shape)):
        for along in (None, 0, tuple(range(len(shape)))):
            q = quantize(np.zeros(shape), quantizer, axis, along)
            assert q.shape == q.dequantize().shape == shape


def test_constants_of_nothing():
    assert quantize(np.zeros(0), qa.ABC(3)).scale.ravel().tolist() == [2, 0, 0]
    assert quantize(np.zeros(0), qa.Greedy(2, refit=True)).scale.ravel().tolist() == [2, 0]
    np.testing.assert_allclose(quantize(np.zeros(0), qa.LQ(2)).scale.ravel(), [0.6745, 1.349])


@pytest.mark.parametrize("quantizer", FITTED, ids=repr)
def test_subnormals_zeros_and_refusals(quantizer):
    with pytest.raises(ValueError, match="NaN"):
        quantize([1.0, np.nan], quantizer)
    for infinite in (np.inf, -np.inf):
        with pytest.raises(ValueError, match="must be finite"):
            quantize([1.0, infinite], quantizer)
    for huge in (1e300, 4e38):
        with pytest.raises(ValueError, match="data are too large"):
            quantize(np.array([huge, 1.0]), quantizer)
    q = quantize(np.float64([1e-320, -1e-320, 0]), quantizer)
    assert (q.dequantize() == 0).all()
    small = np.float32([TINY, -TINY, 5 * TINY, 0])
    assert np.abs(quantize(small, quantizer).dequantize()).max() <= 20 * TINY
    half = quantize(np.float32([TINY, 0, TINY, 0, 0, -TINY]), quantizer)
    if not (getattr(quantizer, "activations", False) or getattr(quantizer, "center", False)):
        assert half.offset[0] == -half.scale.astype(np.float64).sum() / 2
    zeros = quantize(np.float32([0.0, -0.0, 0.0]), quantizer)
    assert zeros.dequantize().tolist() == [0, 0, 0]


def test_ties():
    assert quantize(np.float32([-1, 0, -0.0, 1]), qa.LQ(1)).codes().tolist() == [0, 1, 1, 1]
    for refit in (False, True):
        assert quantize(np.float32([-1, 0, -0.0, 1]), qa.Greedy(1, refit)).codes().tolist() == [0, 1, 1, 1]
    assert quantize(np.float32([-1, 0, -0.0, 1]), qa.ABC(1)).codes().tolist() == [0, 1, 1, 1]
    q = quantize([-2, -1.5, 0, 1.5, 2], qa.LQ(2, basis=[1, 2]))  # thresholds are -2, 0, 2
    assert q.dequantize().tolist() == [-1, -1, 1, 1, 3]
    assert quantize([0.5 - 1, 0.5 + 1], qa.ABCActivations([1, -1], [1, 1])).dequantize().tolist() == [0, 2]
    assert quantize([-0.50001], qa.ABCActivations([1], [1])).dequantize().tolist() == [-1]


def test_infinities_where_nothing_is_fitted():
    x = [-np.inf, 0, np.inf]
    assert quantize(x, qa.ABCActivations([-1, 1], [1, 1])).dequantize().tolist() == [-2, 0, 2]
    assert quantize(x, qa.LQ(2, basis=[2, 1])).dequantize().tolist() == [-3, 1, 3]
    with pytest.raises(ValueError, match="NaN"):
        quantize([np.nan], qa.LQ(2, basis=[2, 1]))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("quantizer", [*FITTED, *FIXED], ids=repr)
def test_dtypes_of_input(dtype, quantizer):
    x = (np.random.default_rng(0).normal(size=(3, 70)) * 20).astype(dtype)
    assert qa.array_equal(quantize(x, quantizer), quantize(x.astype(np.float64), quantizer))


def test_extreme_integers():
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        least = np.iinfo(dtype).min
        for quantizer in FITTED:
            assert quantize(np.full(3, least, dtype), quantizer).dequantize().tolist() == [float(least)] * 3


def test_wrong_arguments():
    for wrong, message in (
        (lambda: qa.ABC(0), "masks must be an integer from 1 to 8, got 0"),
        (lambda: qa.ABC(True), "masks must be"),
        (lambda: qa.ABCActivations([], []), "shifts must be 1 to 8 float32 numbers"),
        (lambda: qa.ABCActivations([1, 2], [1]), "one beta a shift, got 2 shifts and 1 betas"),
        (lambda: qa.ABCActivations([np.nan], [1]), "shifts must be"),
        (lambda: qa.ABCActivations([0], [3e38]), "beyond float32"),
        (lambda: qa.LQ(9), "bits must be an integer from 1 to 8, got 9"),
        (lambda: qa.LQ(2, starts=9), "starts must be an integer from 1 to 8, got 9"),
        (lambda: qa.LQ(2, activations=1), "activations must be True or False"),
        (lambda: qa.LQ(2, center=1), "center must be True or False"),
        (lambda: qa.LQ(2, basis=[1, 2], center=True), "basis followed by its center must be 3 float32 numbers"),
        (lambda: qa.LQ(2, ridge=0), "ridge must be a positive float32, got 0"),
        (lambda: qa.LQ(2, iterations=0), "iterations must be"),
        (lambda: qa.LQ(2, basis=[1]), "basis must be 2 float32 numbers"),
        (lambda: qa.Greedy(2, refit=1), "refit must be True or False"),
        (lambda: qa.Greedy(0), "bits must be an integer from 1 to 8"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_reprs_make_the_same_quantizer():
    names = {name: getattr(qa, name) for name in ("ABC", "ABCActivations", "LQ", "Greedy")}
    for quantizer in (*FITTED, *FIXED, qa.LQ(2, ridge=1e-3, iterations=7, center=True)):
        assert vars(eval(repr(quantizer), names)) == vars(quantizer)


# products


PAIRS = [
    (qa.ABCActivations([-0.5, 0.7], [0.8, 1.3]), qa.ABC(1)),
    (qa.ABCActivations([-0.6, 0, 0.9], [0.5, 0.7, 0.9]), qa.ABC(3)),
    (qa.LQ(1, True), qa.LQ(1)),
    (qa.LQ(2, True), qa.LQ(2)),
    (qa.LQ(3, True), qa.LQ(3)),
    (qa.LQ(2, basis=[0.4, 1]), qa.Greedy(2)),
    (qa.ABCActivations([0.1], [1]), qa.Greedy(3, refit=True)),
]


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_convolution_of_dequantised_operands(pair):
    rng = np.random.default_rng(0)
    x = quantize(rng.normal(size=(2, 6, 5, 70)), pair[0])
    w = quantize(rng.normal(size=(5, 3, 2, 70)), pair[1], scale_axis=0)  # 3 high and 2 wide
    around = ((1, 1), (1, 1))
    exact = naive.conv2d(x.dequantize().astype(np.float64), w.dequantize().astype(np.float64), padding=around)
    size = naive.conv2d(np.abs(x.dequantize().astype(float)), np.abs(w.dequantize().astype(float)), padding=around)
    found = qa.conv2d(x, w, padding=1)
    assert found.dtype == np.float32
    assert (np.abs(found - exact) <= 2**-22 * size).all()
    thresholds = qa.Thresholds(rng.normal(size=(5, 3)) * exact.std(), greater=rng.random(5) < 0.5)
    assert qa.array_equal(qa.conv2d(x, w, padding=1, requantize=thresholds), thresholds(found))


def test_abc_convolution_is_a_sum_of_binary_convolutions():
    """sum_mn alpha_m beta_n (B_m * H_n), as in the paper."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(1, 5, 5, 66)), rng.normal(size=(3, 3, 3, 66))
    shifts, betas = [-0.5, 0.5], [0.75, 1.25]
    x, w = quantize(a, qa.ABCActivations(shifts, betas)), quantize(b, qa.ABC(2), scale_axis=0)
    total = 0
    for n in range(2):
        h = np.where(np.clip(a + shifts[n], 0, 1) >= 0.5, 1, -1)
        for m in range(2):
            plane = signs(w.codes(), 2)[..., m].astype(np.int64)
            alpha = w.scale[m, :, 0, 0, 0].astype(np.float64) / 2
            total = total + alpha * betas[n] * naive.conv2d(h, plane, padding=((1, 1), (1, 1)))
    np.testing.assert_allclose(qa.conv2d(x, w, padding=1), total, rtol=1e-5, atol=1e-4)
