"""Memory of calls that took tables of all levels, indices of all elements, or said nothing where no machine has room.

`python -m tests.long calls` draws such calls at random; these are those that it found.
"""

import tracemalloc

import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays.blocks import blocks
from quantarray.ops.counting import reducers as jobs
from quantarray.ops.quantize import parts
from quantarray.ops.statistical import searching, sets
from quantarray.ops.words import conversion
from quantarray.ops.words import level_tables as tables

pytestmark = pytest.mark.full
MIB = 2**20
RNG = np.random.default_rng(0)
REDUCTIONS = "sum mean var max min any all count_nonzero".split()


UNIFORM, BASIS = qa.uniform(8), qa.basis(8)


def rows(n, length, law=UNIFORM, axis=1):
    """An array with constants of its own for each row, or for each column."""
    dims = (n, 1) if axis == 1 else (1, length)
    codes = RNG.integers(0, 256, (n, length), np.uint8)
    if law.kind == "basis":
        return qa.from_codes(codes, law, axis, scale=RNG.normal(size=(8, *dims)), offset=RNG.normal(size=dims))
    return qa.from_codes(codes, law, axis, scale=RNG.normal(size=dims), offset=RNG.normal(size=dims))


def peak(call):
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def size(result):
    """Bytes of an array or of all in a tuple."""
    return sum(map(size, result)) if isinstance(result, tuple) else getattr(result, "nbytes", 0)


CALLS = {
    **{name: lambda q, name=name: getattr(qa, name)(q, 1) for name in REDUCTIONS},
    "vector_norm": lambda q: qa.linalg.vector_norm(q, axis=1),
    "argmax": lambda q: qa.argmax(q, 1),
    "sign": lambda q: qa.sign(q),
    "sort": lambda q: qa.sort(q),
    "dequantize": lambda q: q.dequantize(),
    "argsort": lambda q: qa.argsort(q),
    "cumulative_sum": lambda q: qa.cumulative_sum(q, axis=1),
    "argmax of all": lambda q: qa.argmax(q),
    "argmax along": lambda q: qa.argmax(q, 0),
    "argsort along": lambda q: qa.argsort(q, axis=0),
    "cumulative_sum along": lambda q: qa.cumulative_sum(q, axis=0),
    "isin": lambda q: qa.isin(q, [0, 1]),
    "contains": lambda q: 5 in q,
    "unique_all": lambda q: qa.unique_all(q),
    "levels": lambda q: q.levels,
}


@pytest.mark.parametrize("name", CALLS)
def test_levels_of_many_constants_are_no_table(name):
    """The table would take 61 MB, the words 1.9 MB."""
    q = rows(30_000, 64)
    CALLS[name](q[:64])
    result = size(CALLS[name](q))
    most = peak(lambda: CALLS[name](q))
    assert most < 4 * q.nbytes + result + 20 * MIB, f"{most / MIB:.0f} MiB"


@pytest.mark.parametrize("name", [*CALLS, "assert_array_equal"])
@pytest.mark.parametrize("group", [1, 5, 64])
def test_levels_of_groups_are_no_table(name, group):
    """Two million elements in groups of 64; of shorter groups fewer, as many as their constants take."""
    call = CALLS.get(name) or (lambda q: qa.testing.assert_array_equal(q, q.copy()))
    n = min(2**21, 2**16 * group) // 64 * 64
    codes, (scale, offset) = RNG.integers(0, 256, (1, n), np.uint8), RNG.normal(size=(2, 1, -(-n // group)))
    if name == "sort":
        return  # refused
    q = qa.from_codes(codes, UNIFORM, scale=scale, offset=offset, group=group)
    call(qa.from_codes(codes[:, :320], UNIFORM, scale=scale[:, : -(-320 // group)], offset=0, group=group))
    result = size(call(q))
    most = peak(lambda: call(q))
    assert most < 4 * q.nbytes + result + 24 * MIB, f"{most / MIB:.0f} MiB"


def test_pad_and_full_like_of_many_constants():
    scale = RNG.normal(size=(30_000, 1))
    q = qa.from_codes(RNG.integers(0, 256, (30_000, 64), np.uint8), UNIFORM, scale=scale, offset=-scale)
    for call in (lambda q: qa.pad(q, ((0, 0), (3, 2))), lambda q: qa.zeros_like(q)):
        assert (call(q).dequantize()[:, :3] == 0).all()
        assert peak(lambda call=call: call(q)) < 4 * q.nbytes + 20 * MIB


def test_roll_of_all_elements_has_no_row_of_words_for_each_element():
    """Packed along the last axis, of one element, 7 bits of each would fill seven words."""
    q = qa.from_codes(RNG.integers(0, 128, (1_000_000, 1), np.uint8), qa.uint7, axis=0)
    qa.roll(q, 5)  # compiling takes memory too
    assert peak(lambda: qa.roll(q, 5)) < 4 * q.nbytes + q.nbytes + 8 * MIB


def test_roll_of_all_elements_has_no_constants_for_each_element():
    q = qa.from_codes(RNG.integers(0, 8, (2, 2000, 498), np.uint8), qa.uint3, axis=1, scale=RNG.random((1, 1, 498)))
    qa.roll(q, 5)  # compiling takes memory too
    assert peak(lambda: qa.roll(q, 5)) < 5 * q.nbytes + 8 * MIB


def test_counts_of_lanes_are_in_blocks():
    """Each of 64 columns has counts of its own for each row's constants: 270 MB of 2,000 rows at once."""
    q = rows(2000, 64)
    qa.sum(q[:8], 0)
    assert peak(lambda: qa.sum(q, 0)) < 40 * MIB


def test_sums_of_planes_are_in_blocks():
    """By each of 13 terms of the weights, the sums of all rows are 13 times the result: 118 MB."""
    x = qa.encode(RNG.integers(0, 32, (322, 24)), values=range(32))
    table = np.cumsum(RNG.random((14, 1, 1)), axis=0).astype(np.float32)
    w = qa.from_codes(RNG.integers(0, 14, (7023, 24), np.uint8), qa.table(4, n_levels=14), table=table, axis=1)
    result = qa.linear(x, w)
    assert np.allclose(result, x.dequantize() @ w.dequantize().T)
    assert peak(lambda: qa.linear(x, w)) < result.nbytes + 16 * MIB


def test_take_of_narrow_indices():
    """8 million indices of a byte are 64 MB as int64."""
    q = qa.encode(RNG.integers(0, 2, (2, 100)), values=range(2))
    places = RNG.integers(-100, 100, 2**23, np.int8)
    assert np.array_equal(qa.take(q, places[:200_000], 1).dequantize(), q.dequantize()[:, places[:200_000]])
    assert peak(lambda: qa.take(q, places, 1)) < 16 * MIB


def test_repeat_by_narrow_counts():
    """Counts and their sums took 16 bytes an element."""
    q = qa.from_words(RNG.integers(0, 2**64, (1, 2**16), np.uint64), qa.bipolar, (2**22,))
    counts = RNG.integers(0, 3, 2**22, np.int8)
    qa.repeat(q, counts, 0)
    assert peak(lambda: qa.repeat(q, counts, 0)) < 4 * (q.nbytes + counts.nbytes) + 8 * MIB
    few = counts[:200_000].copy()
    few[5:9] = 90
    assert np.array_equal(qa.repeat(q[:200_000], few, 0).codes(), np.repeat(q[:200_000].codes(), few))


def test_blocks_are_small_where_the_packed_axis_comes_first():
    """One of 12 elements made blocks 12 times as large as they may be."""
    q = qa.zeros((12, 65422, 2, 2), axis=0)
    sizes = [q[key].size for key in blocks(q.shape, arrays=(q,))]
    assert max(sizes) <= 1 << 18 and sum(sizes) == q.size


@pytest.mark.parametrize("counts", [[], np.array([2, 0, 3], np.uint64), np.array([2, 0, 3], np.int8)])
@pytest.mark.parametrize("axis", [0, 1])
def test_repeat_takes_counts_of_any_type(counts, axis):
    n = len(counts)
    q = qa.encode(np.arange(n * n).reshape(n, n) % 4, values=range(4))
    assert np.array_equal(qa.repeat(q, counts, axis).codes(), np.repeat(q.codes(), np.array(counts, int), axis))


def test_norm_of_empty_matrices_is_refused():
    with pytest.raises(ValueError, match="matrix_norm: matrices"):
        qa.linalg.matrix_norm(qa.zeros((3, 0)), ord=1)


LARGE = {
    "dequantize": lambda q: q.dequantize(),
    "diff": lambda q: qa.diff(q, n=2),
    "unique_inverse": lambda q: qa.unique_inverse(q),
    "vector_norm": lambda q: qa.linalg.vector_norm(q, axis=()),
}


@pytest.mark.parametrize("name", LARGE)
def test_no_indices_of_all_elements(name):
    """A call on one line of 16 million elements makes no indices beside the result."""
    q = qa.from_words(RNG.integers(0, 2**64, (1, 2**18), np.uint64), qa.bipolar, (2**24,))
    LARGE[name](q[:128])
    nbytes = size(LARGE[name](q))
    most = peak(lambda: LARGE[name](q))
    assert most < nbytes + 32 * MIB, f"{most / MIB:.0f} MiB"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("law", [UNIFORM, BASIS], ids=str)
def test_tables_of_blocks_and_parts_give_the_same(law, axis, monkeypatch):
    q = rows(70, 65, law, axis)
    v = q.dequantize().astype(np.float64)
    monkeypatch.setattr(tables, "_MOST", 1 << 12)
    monkeypatch.setattr(searching, "_BLOCK", 100)
    monkeypatch.setattr(sets, "_BLOCK", 100)
    for along in (0, 1):
        assert np.array_equal(qa.argmax(q, along), v.argmax(along))
        assert np.array_equal(qa.argsort(q, axis=along), np.argsort(v, along, kind="stable"))
        np.testing.assert_allclose(qa.cumulative_sum(q, axis=along), v.cumsum(along), rtol=1e-4, atol=1e-3)
        for n in (1, 2, 3):
            assert np.array_equal(qa.diff(q, axis=along, n=n), np.diff(q.dequantize(), n, along))
        if not q.constants.varies(along):
            assert np.array_equal(qa.sort(q, axis=along).dequantize(), np.sort(v, along))
            assert np.array_equal(qa.sort(q, axis=along, descending=True).dequantize(), -np.sort(-v, along))
        for name in REDUCTIONS:
            expected = getattr(np, name)(v, axis=along)
            np.testing.assert_allclose(getattr(qa, name)(q, along), expected, rtol=1e-4, atol=1e-3)
    assert np.array_equal(qa.sign(q).dequantize(), np.sign(v))
    values, inverse = np.unique(v, return_inverse=True)
    everything = qa.unique_all(q)
    assert np.array_equal(everything.values, values.astype(np.float32))
    assert np.array_equal(everything.inverse_indices, inverse.reshape(v.shape))


@pytest.mark.parametrize("group", [1, 5, 64, 100])
@pytest.mark.parametrize("law", [UNIFORM, BASIS, qa.table(8), qa.int8], ids=str)
def test_parts_of_groups_give_the_same(law, group, monkeypatch):
    n, lead = 333, {"basis": (8,), "table": (256,)}.get(law.kind, ())
    codes, dims = RNG.integers(0, 256, (7, n, 3), np.uint8), (7, -(-n // group), 1)
    constants = {"table" if law.kind == "table" else "scale": np.round(RNG.normal(size=(*lead, *dims)), 1)}
    constants |= {} if law.is_integer or law.kind == "table" else {"offset": np.round(RNG.normal(size=dims), 1)}
    q = qa.from_codes(codes, law, 1, **constants, group=group)
    v = q.levels[tuple(np.broadcast_arrays(codes, *np.ix_(range(7), np.arange(n) // group, [0])))]
    monkeypatch.setattr(tables, "_MOST", 1 << 12)
    monkeypatch.setattr(conversion, "_FEW", 1 << 12)
    monkeypatch.setattr(searching, "_BLOCK", 100)
    monkeypatch.setattr(sets, "_BLOCK", 100)
    monkeypatch.setattr(jobs, "_WAITING", 100)
    assert np.array_equal(q.dequantize(), v)
    assert qa.argmax(q) == v.argmax() and qa.argmin(q) == v.argmin()
    for along in range(3):
        assert np.array_equal(qa.argmax(q, along), v.argmax(along))
        assert np.array_equal(qa.argsort(q, axis=along), np.argsort(v, along, kind="stable"))
        assert np.array_equal(qa.argsort(q, axis=along, descending=True), np.argsort(-v, along, kind="stable"))
        sums = np.cumsum(v, along, np.float64).astype(np.float32)
        assert np.array_equal(qa.cumulative_sum(q, axis=along), sums)
        more = np.insert(sums, 0, 0, along)
        assert np.array_equal(qa.cumulative_sum(q, axis=along, include_initial=True), more)
    assert np.array_equal(qa.sort(q, axis=2).dequantize(), np.sort(v, 2))
    assert np.array_equal(qa.isin(q, v[0, :9, 0]).dequantize(), np.isin(v, v[0, :9, 0]))
    assert v[6, 300, 2] in q and 1e9 not in q
    everything, expected = qa.unique_all(q), np.unique(v, True, True, True)
    for ours, numpys in zip(everything, expected, strict=True):
        assert np.array_equal(ours, numpys.reshape(ours.shape))


@pytest.mark.parametrize("over", [(), (0,), (1,), (0, 1)], ids=str)
def test_tables_of_blocks_of_groups(over, monkeypatch):
    codes, (scale, offset) = RNG.integers(0, 256, (7, 640), np.uint8), RNG.normal(size=(2, 7, 10))
    q = qa.from_codes(codes, UNIFORM, scale=scale, offset=offset, group=64)
    expected = [getattr(qa, name)(q, over) for name in REDUCTIONS]
    monkeypatch.setattr(tables, "_MOST", 1 << 12)
    for name, array in zip(REDUCTIONS, expected, strict=True):
        assert np.array_equal(getattr(qa, name)(q, over), array)


ROW = qa.encode(np.ones(2**20, np.int8), values=(-1, 1))
WIDE = qa.broadcast_to(ROW[:128], (2**23, 2**21, 128))
TOO_LARGE = {
    "codes": lambda: WIDE.codes(),
    "copy": lambda: WIDE.copy(),
    "outer": lambda: qa.outer(qa.tile(ROW, 8), qa.tile(ROW, 8)),
    "sum": lambda: WIDE.sum(2),
    "argsort": lambda: qa.argsort(WIDE, axis=0),
    "concatenate": lambda: qa.concatenate([WIDE, WIDE]),
    "reshape": lambda: WIDE.reshape(-1, 2**8),
    "repack": lambda: WIDE.repack(0),
    "isin": lambda: qa.isin(WIDE, 1),
    "unique_inverse": lambda: qa.unique_inverse(WIDE),
    "take": lambda: qa.take(WIDE, np.zeros(2**20, int), 1),
    "hamming": lambda: qa.hamming(WIDE, WIDE, 2),
    "where": lambda: qa.where(WIDE > 0, WIDE, 0),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_results_that_no_machine_holds_say_what_they_need(name):
    with pytest.raises(MemoryError, match=r"^\w+: .* needs (at least )?[\d,]+ bytes"):
        TOO_LARGE[name]()


TABLES = [qa.PowerOfTwo(8), qa.NormalFloat(8), qa.LloydMax(6), qa.PowerOfTwo(4)]


@pytest.mark.parametrize("scheme", TABLES, ids=repr)
@pytest.mark.parametrize("how", [{"scale_axis": 0}, {"group": 1}, {"group": 2}], ids=str)
def test_quantize_by_tables_of_many_constants(scheme, how):
    """Levels of all of them were made in float64 at once, several times: 220 MB each where the result has 110."""
    n = 2**19 // scheme.dtype.n_levels * 16 // (1 if how == {"scale_axis": 0} else 3)
    x = RNG.normal(size=(n, 3)).astype(np.float32)
    qa.quantize(x[:64], scheme, **how)
    q = qa.quantize(x, scheme, **how)
    most = peak(lambda: qa.quantize(x, scheme, **how))
    assert most < 4 * x.nbytes + q.nbytes + 64 * MIB, f"{most / MIB:.0f} MiB for {q.nbytes / MIB:.0f}"
    for part in (slice(0, 50), slice(-50, None)):
        expected = qa.quantize(x[part], scheme, **how)
        assert np.array_equal(q[part].codes(), expected.codes())
        assert np.array_equal(q[part].levels.view(np.uint32), expected.levels.view(np.uint32))


@pytest.mark.parametrize("scheme", [*TABLES, qa.LQ(3), qa.Greedy(3), qa.ABC(3)], ids=repr)
@pytest.mark.parametrize("how", [{}, {"scale_axis": 0}, {"scale_axis": (0, 2)}, {"group": 1}, {"group": 3}], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_levels_in_parts_change_nothing(scheme, how, axis, monkeypatch):
    x = RNG.normal(size=(5, 7, 4)).astype(np.float32)
    whole = qa.quantize(x, scheme, axis=axis, **how)
    monkeypatch.setattr(parts, "LEVELS", 3 * scheme.dtype.n_levels)
    assert qa.quantize(x[..., ::-1][..., ::-1], scheme, axis=axis, **how).digest() == whole.digest()
