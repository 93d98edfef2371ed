"""`top_k` against all distances, sorted."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import quantarray as qa
from quantarray.cpu.hamming import nearest, reservoir

LENGTHS = (1, 31, 63, 64, 65, 192, 200, 300, 512, 513, 1024, 1100, 1200, 2048)


def expected(queries, codes, k):
    distances = (queries[:, None] != codes[None]).sum(axis=-1, dtype=np.int64)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), order


def check(queries, codes, k):
    found = qa.top_k(qa.from_codes(queries, qa.bipolar), qa.from_codes(codes, qa.bipolar), k)
    for got, right in zip(found, expected(queries, codes, k), strict=True):
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("least", [0, 1 << 62])
@given(st.data())
def test_nearest(least, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    rows, asked = data.draw(st.integers(1, 300)), data.draw(st.integers(0, 12))
    length = data.draw(st.sampled_from(LENGTHS))
    few = data.draw(st.integers(1, rows))  # rows that occur again and again: equal distances
    codes = rng.integers(0, 2, (few, length), np.uint8)[rng.integers(0, few, rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reservoir, "LEAST", least)
        check(rng.integers(0, 2, (asked, length), np.uint8), codes, data.draw(st.integers(1, rows)))


@pytest.mark.parametrize("length", LENGTHS)
@given(seed=st.integers(0, 10**6))
def test_every_bit_counts(length, seed):
    """A row that differs in one bit, followed by the query itself, anywhere: a wrong word in any lane hides it."""
    rng, asked, rows = np.random.default_rng(seed), 12, 200
    queries = rng.integers(0, 2, (asked, length), np.uint8)
    codes = rng.integers(0, 2, (rows, length), np.uint8)
    near, same = np.sort(rng.permutation(rows)[: 2 * asked].reshape(asked, 2)).T
    codes[near] = codes[same] = queries
    codes[near, rng.integers(0, length, asked)] ^= 1
    check(queries, codes, 1)


@pytest.mark.parametrize("least", [0, 1 << 62])
@pytest.mark.parametrize("length", [64, 1024])
def test_rows_of_several_stretches(length, least, monkeypatch):
    monkeypatch.setattr(reservoir, "LEAST", least)
    rng, rows = np.random.default_rng(0), 3 * nearest.STRETCH // (length // 8) + 13
    check(rng.integers(0, 2, (5, length), np.uint8), rng.integers(0, 2, (rows, length), np.uint8), 100)


def test_one_query():
    codes = np.random.default_rng(0).integers(0, 2, (20, 100), np.uint8)
    database = qa.from_codes(codes, qa.uint1)
    found = qa.top_k(database[3], database, 1)
    assert found.distances.tolist() == [0] and found.indices.tolist() == [3]


def test_a_view_of_a_database():
    codes = np.random.default_rng(0).integers(0, 2, (40, 100), np.uint8)
    database = qa.from_codes(codes, qa.uint1)[::-2]
    found = qa.top_k(qa.from_codes(codes[:3], qa.uint1), database, 5)
    np.testing.assert_array_equal(found.indices, expected(codes[:3], codes[::-2], 5)[1])


def test_no_bits():
    empty = qa.from_codes(np.zeros((3, 0), np.uint8), qa.uint1)
    assert qa.top_k(empty, empty, 2).indices.tolist() == [[0, 1]] * 3


def signs(*shape, dtype=qa.bipolar, axis=-1):
    return qa.from_codes(np.zeros(shape, np.uint8), dtype, axis=axis)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: qa.top_k(signs(2, 8), signs(3, 8), 4), ValueError, "k must be at most the 3 rows"),
        (lambda: qa.top_k(signs(2, 8), signs(3, 8), -1), ValueError, "k must be at least 0"),
        (lambda: qa.top_k(signs(2, 8), signs(3, 9), 1), ValueError, "have 8 elements a row, database (3, 9) has 9"),
        (lambda: qa.top_k(signs(2, 8), signs(8), 1), ValueError, "database must be"),
        (lambda: qa.top_k(signs(2, 8, axis=0), signs(3, 8), 1), ValueError, "packed on axis 0"),
        (lambda: qa.top_k(signs(2, 8, dtype=qa.uint2), signs(3, 8), 1), TypeError, "must have one dtype"),
        (lambda: qa.top_k(signs(2, 8, dtype=qa.uint1), signs(3, 8), 1), TypeError, "must have one dtype"),
        (lambda: qa.top_k(np.zeros((2, 8)), signs(3, 8), 1), TypeError, "queries must be a QuantArray"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith("top_k: ") and said in str(caught.value), caught.value


@pytest.mark.parametrize("dtype", [qa.uint1, qa.bipolar])
@pytest.mark.parametrize("precision", ["ubinary", "binary"])
@pytest.mark.parametrize("side", ["queries", "database", "both", "one query"])
def test_packed_bytes_of_other_libraries(side, precision, dtype):
    """For embeddings packed by sentence-transformers, the error has the call that reads them, which is run here."""
    rng = np.random.default_rng(0)
    embeddings, stored = rng.standard_normal((5, 72)), rng.standard_normal((9, 72))
    if side == "one query":
        embeddings = embeddings[0]

    def packed(x):
        data = np.packbits(x > 0, axis=-1)
        return data if precision == "ubinary" else (data.astype(int) - 128).astype(np.int8)

    right = [qa.from_codes((x > 0).astype(np.uint8), dtype) for x in (embeddings, stored)]
    database = packed(stored) if side in ("database", "both") else right[1]
    queries = right[0] if side == "database" else packed(embeddings)
    with pytest.raises(TypeError, match=r"top_k: .* must be a QuantArray, got u?int8 array .*bytes of 8 bits, as") as e:
        qa.top_k(queries, database, 4)
    for _ in range(2):
        advice = str(e.value).rpartition("pack them: ")[2]
        read = eval(advice, {"np": np, "queries": queries, "database": database, "from_packbits": qa.from_packbits})
        name = "database" if "(database" in advice else "queries"
        queries, database = (read, database) if name == "queries" else (queries, read)
        if all(isinstance(q, qa.QuantArray) for q in (queries, database)):
            break
        with pytest.raises(TypeError) as e:
            qa.top_k(queries, database, 4)
    got, expected = qa.top_k(queries, database, 4), qa.top_k(*right, 4)
    np.testing.assert_array_equal(got.indices, expected.indices)
    np.testing.assert_array_equal(got.distances, expected.distances)


@pytest.mark.parametrize("x", [np.zeros((2, 9), np.uint8), np.zeros((2, 8), np.int8), np.zeros((2, 9, 1), np.uint8)])
def test_other_bytes_are_no_packed_bits(x):
    with pytest.raises(TypeError) as error:
        qa.top_k(x, signs(3, 8), 1)
    assert "bytes" not in str(error.value)


def test_dtypes_that_differ_by_their_values_only():
    """The error has the expression that makes the dtypes equal."""
    codes = np.random.default_rng(0).integers(0, 2, (4, 70), np.uint8)
    one, two = qa.from_codes(codes, qa.uint1), qa.from_codes(codes, qa.bipolar)
    for queries, database, advice in ((one, two, "2 * queries - 1"), (two, one, "2 * database - 1")):
        with pytest.raises(TypeError, match="must have one dtype") as error:
            qa.top_k(queries, database, 1)
        assert str(error.value).endswith(f"; {advice} is bipolar")
    assert qa.top_k(2 * one - 1, two, 1).distances.tolist() == [[0]] * 4
