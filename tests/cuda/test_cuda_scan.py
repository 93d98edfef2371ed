"""CUDA twins of what counts codes and of what needs them in order, bit for bit what the CPU's kernels make."""

from unittest.mock import patch

import numpy as np
import pytest
from cuda_backend import both, twins
from results import assert_bits
from test_cuda_layout import codes_of, words

import quantarray as qa
from quantarray.backends.registry import kernel
from quantarray.core.format import word_count
from quantarray.cuda.reduction import counting_sort, reduce, scan, total
from quantarray.cuda.runtime import launch
from quantarray.ops.quantize import encoding

LENGTHS = (1, 33, 64, 130)


@pytest.fixture(autouse=True, scope="module", params=[(1, 3), (3, 40)], ids=["1-warp", "3-warps"])
def few_warps(request):
    """Blocks so small that lines need several, grids so low that rows are walked, stretches that lines straddle."""
    warps, stretch = request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch, "WARPS", warps)
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setattr(reduce, "STRETCH", 2)
        patched.setattr(reduce, "FOLDS", 2)
        patched.setattr(scan, "STRETCH", stretch)
        patched.setattr(counting_sort, "STRETCH", stretch)
        patched.setattr(total, "STRETCH", stretch)
        patched.setattr(counting_sort, "_ROOM", 500)
        yield


def equal(name, *args, out):
    cpu, cuda = both(name, *args, out=out)
    assert cpu.any() or cpu.size < 5
    np.testing.assert_array_equal(cuda, cpu)


def chain(planes, seed=0):
    """All sets of planes in ascending order, each extending the one without its highest plane."""
    sets = range(1, 1 << planes)
    parents = [s ^ (1 << (s.bit_length() - 1)) for s in sets]
    return np.array([[p - 1, s.bit_length() - 1] for p, s in zip(parents, sets, strict=True)], np.int64)


SINGLE = np.array([[-1, 1], [-1, 0]], np.int64)


@pytest.mark.parametrize("start, stop, group", [
    (0, 300, 300), (0, 300, 1000), (3, 290, 64), (5, 6, 7), (60, 70, 1), (1, 299, 33), (0, 256, 64), (100, 300, 130),
])  # fmt: skip
@pytest.mark.parametrize("sets", [SINGLE, chain(2), chain(3)], ids=["planes", "2 planes", "3 planes"])
def test_count(sets, start, stop, group):
    x = words(np.random.default_rng(group), 3, 3, 5, length=300)
    out = np.arange(len(sets) * 3 * -(-(stop - start) // group)).reshape(len(sets), 3, -1)
    equal("count", x, start, stop, group, sets, out=out)


def test_count_of_one_long_row():
    x = words(np.random.default_rng(0), 1, 1, 1, length=64 * 700 + 1)
    equal("count", x, 0, 64 * 700 + 1, 1 << 20, SINGLE[1:], out=np.zeros((1, 1, 1), np.int64))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("sets", [SINGLE, chain(3)], ids=["planes", "3 planes"])
def test_count_lanes(sets, length):
    x = words(np.random.default_rng(length), 3, 3, 5, length=length)
    equal("count_lanes", x, sets, out=np.arange(len(sets) * 3 * length).reshape(len(sets), 3, length))


def lines(length, planes, group, one, tables=4):
    """(words [planes 3 folds words], which table each fold has, groups of a table) of 2 folds of 3 rows."""
    rng = np.random.default_rng(length + planes)
    row = np.zeros(1, np.int64) if one else rng.integers(0, tables, 3 * 2)
    return rng, words(rng, planes, 3, 2, length=length), row, max(1, -(-length // group))


def of_rows(x, row):
    """The same with one fold, as lines along the packed axis have."""
    return x[:, :, :1].copy(), row[::2].copy() if row.size > 1 else row


FORMS = [pytest.param(False, id="rows"), pytest.param(True, id="lanes")]
GROUPS = pytest.mark.parametrize("group, one", [(1000, True), (20, False)], ids=["one table", "groups"])


@pytest.mark.parametrize("along_folds", FORMS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("planes", [1, 3])
@GROUPS
def test_argmax(planes, length, group, one, along_folds):
    rng, x, row, groups = lines(length, planes, group, one)
    levels = rng.integers(-3, 3, (4, groups, 2**planes)).astype(np.float64)  # some equal
    if not along_folds:
        x, row = of_rows(x, row)
    out = np.full((3, length if along_folds else 1), 77, np.int64)
    for floor in (-np.inf, 1.0, 5.0):  # above which there is something, not everywhere, and nothing
        equal("argmax", x, length, levels, row, group, floor, along_folds, out=out)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("planes", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("kind, made, over", [
    (np.int64, np.int32, 0), (np.int64, np.int64, 0), (np.int64, np.float32, 7), (np.float64, np.float32, 0),
    (np.float64, np.float64, 65),
])  # fmt: skip
@pytest.mark.parametrize("tables", [1, 3])
def test_total(tables, kind, made, over, planes, length):
    """Sums that are beyond float64's integers, floats whose order counts, and an infinity of a code that is not there.

    The counters by which the last warp of a row is known are left as they were, for the next launch.
    """
    rng = np.random.default_rng(length)
    x = words(rng, planes, 3, 4, length=length)
    levels = rng.integers(-9, 9, (tables, 2**planes)).astype(kind)
    if made is np.int64:
        levels = levels * 2**52 + 1
    if kind is np.float64:
        levels = levels * 10.0 ** rng.integers(-8, 9, levels.shape) / 3
        if planes == 8:
            absent = np.setdiff1d(np.arange(256), codes_of(x.reshape(8, 12, -1), length))
            levels[:, absent] = np.inf
    arrived = np.zeros(8, np.uint32)
    with patch.object(launch, "arrivals", lambda count: arrived):
        for _ in range(2):
            equal("total", x, length, levels, np.arange(tables), over, out=np.full(3, 77, made))
    assert not arrived.any()


@pytest.mark.parametrize("along_folds", FORMS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("given, made", [
    (np.int64, np.int32), (np.int64, np.int64), (np.float64, np.float32), (np.float64, np.float64),
])  # fmt: skip
@GROUPS
def test_cumulate(group, one, given, made, length, along_folds):
    """Floats of such different sizes that another order has other sums."""
    rng, x, row, groups = lines(length, 3, group, one)
    levels = rng.integers(-9, 9, (4, groups, 8)).astype(given)
    if given is np.float64:
        levels = levels * 10.0 ** rng.integers(-8, 9, levels.shape) / 3
    if not along_folds:
        x, row = of_rows(x, row)
    out = np.full((3, x.shape[2], length), 77, made)
    equal("cumulate", x, length, levels, row, group, along_folds, out=out)


@pytest.mark.parametrize("along_folds", FORMS)
def test_cumulate_behind_an_initial_step(along_folds):
    """out may be a view."""
    rng, x, row, _ = lines(65, 2, 100, True)
    x, row = (x, row) if along_folds else of_rows(x, row)
    levels, made = rng.integers(-9, 9, (1, 1, 4)), []
    for device in ("cpu", "cuda"):
        out = np.zeros((3, x.shape[2] + 1, 66), np.int32)
        kernel(device, "cumulate")(x, 65, levels, row, 100, along_folds, out[:, 1:, 1:])
        made.append(out)
    assert made[0].any()
    np.testing.assert_array_equal(made[1], made[0])


@pytest.mark.parametrize("along_folds", FORMS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("planes", [1, 3])
@GROUPS
def test_argsort(planes, length, group, one, along_folds):
    rng, x, row, groups = lines(length, planes, group, one)
    ranks = rng.integers(0, 2**planes * groups, (4, groups, 2**planes))
    if not along_folds:
        x, row = of_rows(x, row)
    out = np.full((3, x.shape[2], length), 77, np.int64)
    equal("argsort", x, length, ranks, row, group, along_folds, out=out)


@pytest.mark.parametrize("along_folds", FORMS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("planes", [1, 3, 8])
@GROUPS
def test_sort(planes, length, group, one, along_folds):
    """Tables vary by row, and along the packed axis where the lines run along the folds."""
    rng, x, row, groups = lines(length, planes, group, one)
    row = row // 2 * 2 if one else np.repeat(row[::2], 2)
    groups = groups if along_folds else 1
    order = rng.permuted(np.tile(np.arange(2**planes), (4, groups, 1)), axis=-1).astype(np.uint8)
    if not along_folds:
        x, row = of_rows(x, row)
    equal("sort", x, length, order, row, group, along_folds, out=np.zeros_like(x))


def test_nothing():
    empty = np.zeros((2, 0, 1, 1), np.uint64)
    one, levels = np.zeros(1, np.int64), np.zeros((1, 1, 4))
    both("count", empty, 0, 5, 5, SINGLE, out=np.zeros((2, 0, 1), np.int64))
    both("count_lanes", empty, SINGLE, out=np.zeros((2, 0, 5), np.int64))
    both("argmax", empty, 5, levels, one, 5, -np.inf, False, out=np.zeros((0, 1), np.int64))
    both("cumulate", empty, 5, levels, one, 5, False, out=np.zeros((0, 1, 5)))
    both("argsort", empty, 5, levels.astype(int), one, 5, False, out=np.zeros((0, 1, 5), np.int64))
    both("sort", empty, 5, np.arange(4, dtype=np.uint8).reshape(1, 1, 4), one, 5, False, out=empty)
    assert word_count(5) == 1


RNG = np.random.default_rng(0)
LAWS = {
    "ternary": qa.from_codes(RNG.integers(0, 3, (2, 3, 70)), qa.ternary),
    "bytes": qa.from_codes(RNG.integers(0, 256, (2, 2, 40)), qa.int8),
    "in groups": qa.quantize(RNG.normal(size=(2, 2, 70)), qa.Uniform(2, symmetric=False), group=33),
    "by row": qa.quantize(RNG.normal(size=(2, 2, 65)), qa.LQ(2), scale_axis=(0, 1)),
    "axis in front": qa.quantize(RNG.normal(size=(2, 40, 2)), qa.Sign(scale=True), axis=1, scale_axis=2),
}
CALLS = {
    "sum": lambda q, d: qa.sum(q, d),
    "sum of all": lambda q, d: qa.sum(q),
    "var": lambda q, d: qa.var(q, d),
    "max": lambda q, d: qa.max(q, d),
    "counts": lambda q, d: qa.counts(q, d),
    "argmax": lambda q, d: qa.argmax(q, d),
    "argmin of all": lambda q, d: qa.argmin(q),
    "cumulative_sum": lambda q, d: qa.cumulative_sum(q, axis=d, include_initial=True),
    "argsort": lambda q, d: qa.argsort(q, axis=d, descending=True),
    "sort": lambda q, d: q if q.constants.varies(d) else qa.sort(q, axis=d),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", CALLS)
def test_public_functions(name, law):
    """Public functions give the kernels rows, folds, groups and tables of every law."""
    q = LAWS[law]
    for d in range(3):
        expected = CALLS[name](q, d)
        with twins():
            got = CALLS[name](q, d)
        if isinstance(got, qa.QuantArray):
            np.testing.assert_array_equal(got.words, expected.words)
        else:
            assert_bits(got, expected)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("scheme", [qa.Uniform(3, step=0.5), qa.LQ(2), qa.Grouped(2, 9, seed=5)], ids=repr)
def test_quantize(scheme, dtype, axis):
    x = (np.random.default_rng(0).normal(size=(2, 34, 3)) * 3 + 4).astype(dtype)
    options = {"scale_axis": (axis + 1) % 3, "axis": axis}
    if isinstance(scheme, qa.Grouped):
        options = {"axis": axis}
    expected = qa.quantize(x, scheme, **options)
    with twins(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(encoding, "pays", encoding.possible)
        got = qa.quantize(x, scheme, **options)
    np.testing.assert_array_equal(got.words, expected.words)
