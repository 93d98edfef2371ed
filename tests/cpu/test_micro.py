"""The counting micro-kernels, each against NumPy, whatever this CPU would choose; and the choice itself."""

from functools import cache
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from paths import SUPPORT, path_of
from processors import AVX2, AVX512BW, FEATURES, PLAYED, pytest_of, run

from quantarray.cpu.depthwise.pairs import pair_pixels
from quantarray.cpu.int8.copy_windows import HALF, copy_windows
from quantarray.cpu.int8.expand import copy_bytes, expand, lay_out_quads
from quantarray.cpu.int8.interface import QUAD
from quantarray.cpu.llvm import adders
from quantarray.cpu.llvm.stream import stream_lanes
from quantarray.cpu.llvm.vectors import LANES, TILE
from quantarray.cpu.llvm.views import ByteWeights, Counted, Limits, Planes, Rows, RunSpan, View
from quantarray.cpu.popcount import avx512_vpopcntdq, count_bytes, neon, packed_weights
from quantarray.cpu.popcount import count_bytes as by_bytes
from quantarray.cpu.popcount.avx512_vpopcntdq import lay_out, mask_counts, plane_counts, value_counts
from quantarray.cpu.runtime import isa

WITHOUT = pytest.mark.skipif(not AVX2 or isa.NAME in ("portable", "neon"), reason="Numba compiles for less than AVX2")
KERNELS = ["neon", pytest.param("avx2_pshufb", marks=WITHOUT), "full_adder"]
HALVES = pytest.mark.skipif("avx512vpopcntdq" not in isa.FEATURES, reason="no AVX512-VPOPCNTDQ")
KERNELS += [pytest.param("ternary_adder", marks=pytest.mark.skipif(not AVX512BW, reason="no AVX-512 to compile for"))]
DOTS = [
    pytest.param("dot_avx2", marks=WITHOUT),
    pytest.param("dot_avx512bw", marks=pytest.mark.skipif(not AVX512BW, reason="no AVX-512 to compile for")),
    pytest.param("dot_avx512vnni", marks=pytest.mark.skipif("avx512vnni" not in isa.FEATURES, reason="no AVX512-VNNI")),
]


@cache
def compiled(name):
    """(count, lay_out) of a micro-kernel."""
    if name.endswith("_adder"):
        lay_out, count_tile = count_bytes.lay_out, count_bytes.kernel(neon.Bytes, getattr(adders, name))
    else:
        module = import_module(f"quantarray.cpu.popcount.{name}")
        lay_out, count_tile = module.lay_out, module.count_tile

    @njit
    def count(words, word, origins, origin, weights, weight, runs, first, last, differ, counts):
        seen, column = (View(words, word), View(origins, origin)), View(weights, weight)
        count_tile(*seen, column, RunSpan(runs, first, last), differ, counts)

    return count, lay_out


def drawn_origins(rng):
    """Draw the origins of a tile: 4 pixels, or fewer and then the last again."""
    return rng.permutation(20)[np.minimum(np.arange(TILE), rng.integers(0, TILE))]


def check(name, differ, words, origins, weights, runs, first, last, dtype=np.int64):
    """Every word of `words` and `weights` follows one that must not be read."""
    count, lay_out = compiled(name)
    counts = np.full((TILE, LANES), -1, dtype)
    padded = np.concatenate([[~np.uint64(0)], words])
    laid_out = lay_out(np.concatenate([np.full((2, LANES), ~np.uint64(0)), weights]))
    count(
        padded,
        1,
        np.concatenate([[99], origins]),
        1,
        laid_out,
        2 * LANES,
        runs,
        first,
        last,
        -1 if differ else 0,
        counts,
    )
    expected = np.zeros((TILE, LANES), np.int64)
    for at, weight, length in runs[first:last]:
        for p in range(TILE):
            start = origins[p] + at
            a, b = words[start : start + length, None], weights[weight : weight + length]
            expected[p] += np.bitwise_count(a ^ b if differ else a & b).sum(0, dtype=np.int64)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data())
def test_counts(name, differ, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    lengths = data.draw(st.lists(st.integers(0, 9), max_size=5))
    size = sum(lengths) + data.draw(st.integers(0, 20))
    words = rng.integers(0, 1 << 64, size + 30, np.uint64)
    weights = rng.integers(0, 1 << 64, (sum(lengths), LANES), np.uint64)
    origins = drawn_origins(rng)
    starts = np.cumsum([0, *lengths])
    rows = [(rng.integers(0, 10 + size - sum(lengths) + 1), starts[i], n) for i, n in enumerate(lengths)]
    runs = np.array(rows, np.int64).reshape(-1, 3)
    first = data.draw(st.integers(0, len(rows)))
    last, dtype = data.draw(st.integers(first, len(rows))), data.draw(st.sampled_from([np.int32, np.int64]))
    check(name, differ, words, origins, weights, runs, first, last, dtype)


def drawn_planes(data, differ, blocks=1):
    """(arguments from the words on to `differ`, what `plane_counts` counts of them, their rng)."""
    rng, length = np.random.default_rng(data.draw(st.integers(0, 1000))), data.draw(st.integers(0, 9))
    planes, apart = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    words = rng.integers(0, 1 << 64, 30 + planes * apart, np.uint64)
    weights, origins = rng.integers(0, 1 << 64, (length, blocks * LANES), np.uint64), drawn_origins(rng)
    counts = np.zeros((TILE, blocks * LANES), np.int64)
    low, high = weights & np.uint64(0xFFFFFFFF), weights >> np.uint64(32)
    left_out = np.bitwise_count(low ^ high if differ else low & high).sum(0, dtype=np.int64)
    for i in range(planes):
        pairs = words[i * apart + origins[:, None] + np.arange(length), None], weights
        ones = np.bitwise_count(np.bitwise_xor(*pairs) if differ else np.bitwise_and(*pairs)).sum(1, dtype=np.int64)
        counts += (ones - left_out) << i
    runs = np.array([[0, 0, length // 2], [length // 2, length // 2, length - length // 2]])
    # Two blocks, with one between that must not be read
    laid = np.stack([lay_out(part) for part in np.split(weights, blocks, axis=1) for _ in range(2)])[: 2 * blocks - 1]
    return (words, planes, apart, origins, laid, 2 * length * LANES, runs, -1 if differ else 0), counts, rng


@HALVES
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("differ", [False, True])
@given(data=st.data())
def test_plane_counts(differ, dtype, data):
    operands, expected, _ = drawn_planes(data, differ)
    counts, lanes = np.full((TILE, LANES), -1, dtype), data.draw(st.integers(1, LANES))
    planes_counted(*operands, counts, lanes)
    np.testing.assert_array_equal(counts[:, :lanes], expected[:, :lanes])


@njit
def counted(words, planes, apart, origins, weights, beside, runs, differ):
    span = RunSpan(runs, 0, len(runs))
    return Counted(Planes(words, 0, planes, apart), View(origins, 0), Rows(weights, 0, beside), span, differ)


@njit
def planes_counted(words, planes, apart, origins, weights, beside, runs, differ, counts, lanes):
    plane_counts(counted(words, planes, apart, origins, weights, beside, runs, differ), counts, lanes)


@HALVES
@pytest.mark.parametrize("differ", [False, True])
@given(data=st.data())
def test_mask_counts(differ, data):
    blocks = data.draw(st.integers(1, 2))
    operands, counts, rng = drawn_planes(data, differ, blocks)
    width = blocks * LANES
    limits = rng.integers(counts.min() - 1, counts.max() + 2, width + 3, np.int32)
    limits[3:] = np.where(rng.random(width) < 0.5, counts[0] - rng.integers(0, 2, width), limits[3:])
    lanes, origins = data.draw(st.integers(1, width)), operands[3]
    size, at, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2)), rng.permutation(6)[: TILE + 1]
    if origins[0] == origins[-1]:
        rows[1:] = rows[1]
    flips, used = rng.integers(0, 1 << 64, 2, np.uint64)
    out = rng.integers(0, 1 << 64, 6 * size + 3, np.uint64)
    expected = out.copy()
    for p in range(TILE):
        mask = np.uint64(sum(1 << lane for lane in range(lanes) if counts[p, lane] > limits[3 + lane]))
        expected[rows[1 + p] * size + at] = (mask ^ flips) & used
    masked(*operands, limits, 3, flips, used, out, rows, size, at, lanes)
    asked = used & np.uint64((1 << lanes) - 1)
    stored = rows[1:] * size + at
    np.testing.assert_array_equal(out[stored] & asked, expected[stored] & asked)
    np.testing.assert_array_equal(np.delete(out, stored), np.delete(expected, stored))


@njit
def masked(
    words, planes, apart, origins, weights, beside, runs, differ, limits, limits_at, flips, used, out, rows, size, at,
    lanes,
):  # fmt: skip
    operands = counted(words, planes, apart, origins, weights, beside, runs, differ)
    mask_counts(operands, Limits(limits, limits_at, flips, used), Rows(out, at, size), View(rows, 1), lanes)


@HALVES
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("differ", [False, True])
@given(data=st.data())
def test_value_counts(differ, dtype, data):
    blocks = data.draw(st.integers(1, 2))
    operands, counts, rng = drawn_planes(data, differ, blocks)
    width = blocks * LANES
    origins, places = operands[3], rng.permutation(5)[:TILE] * width + data.draw(st.integers(0, 3))
    if origins[0] == origins[-1]:
        places[1:] = places[0]
    extra, values = rng.integers(-99, 99, width + 3).astype(dtype), np.full(6 * width, 7, dtype)
    step = data.draw(st.sampled_from([1, -1])) << data.draw(st.integers(0, 20))
    lanes, expected = data.draw(st.integers(1, width)), values.copy()
    alone = origins[0] == origins[-1]
    stored = next(n for n in (LANES // 2, LANES, 2 * LANES) if n >= lanes and (n >= LANES or not alone))
    for p, place in enumerate(places):
        expected[place : place + stored] = (extra[3:] + step * counts[p]).astype(dtype)[:stored]
    valued(*operands, extra, 3, step, values, places, lanes)
    np.testing.assert_array_equal(values, expected)


@njit
def valued(words, planes, apart, origins, weights, beside, runs, differ, extra, extra_at, step, values, places, lanes):
    operands = counted(words, planes, apart, origins, weights, beside, runs, differ)
    value_counts(operands, View(extra, extra_at), step, values, places, lanes)


@pytest.mark.parametrize("kinds", [(np.int32, np.int32), (np.int64, np.int64), (np.float64, np.float32)])
@pytest.mark.parametrize("at", [0, 16, 32, 8, 4, 1])
def test_lanes_past_the_cache(kinds, at):
    """Stored where a line begins, and nowhere else."""
    lanes = np.random.default_rng(0).integers(-(2**20), 2**20, 3 * LANES).astype(kinds[0])
    buffer = np.zeros(256, kinds[1])
    first = -buffer.ctypes.data % 64 // buffer.itemsize
    out = buffer[first : first + 128]
    begins = at * out.itemsize % 64 == 0
    assert streamed(lanes, 5, out, at) == begins
    expected = np.zeros(128, kinds[1])
    if begins:
        expected[at : at + LANES] = lanes[5 : 5 + LANES]
    np.testing.assert_array_equal(out, expected)


@njit
def streamed(lanes, start, out, at):
    return stream_lanes(lanes, start, out, at)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lengths", [[1022], [1023], [1024], [5000], [1, 3, 1022, 2, 4], [1024, 1024]])
def test_no_sum_overflows(name, lengths):
    # All bits set: what is summed in 8 or 16 bits must be moved on in time
    size = sum(lengths)
    words, weights = np.full(size + 3, ~np.uint64(0)), np.full((size, LANES), ~np.uint64(0))
    starts = np.cumsum([0, *lengths])
    runs = np.array([(starts[i], starts[i], n) for i, n in enumerate(lengths)])
    for origins in np.arange(TILE), np.zeros(TILE, np.int64):
        check(name, False, words, origins, weights, runs, 0, len(runs))
        check(name, True, words, origins, weights * np.uint64(0), runs, 0, len(runs))


@pytest.mark.parametrize("planes", range(1, 9))
@given(data=st.data())
def test_expand(planes, data):
    rng, count = np.random.default_rng(data.draw(st.integers(0, 1000))), data.draw(st.integers(0, 5))
    base, unit = data.draw(st.integers(-128, 255)), data.draw(st.integers(-9, 9))
    step, codes = data.draw(st.integers(1, 3)), np.full(64 * 8, 77, np.uint8)
    words = rng.integers(0, 1 << 64, (planes, 18), np.uint64)
    expanded(words, 2, step, 18, planes, count, base, unit, codes, 64)
    bits = np.unpackbits(words[:, 2 : 2 + count * step : step].copy().view(np.uint8), axis=-1, bitorder="little")
    expected = base + unit * (bits.astype(int) << np.arange(planes)[:, None]).sum(0)
    np.testing.assert_array_equal(codes[64 : 64 * (count + 1)], expected.astype(np.uint8))
    assert (codes[:64] == 77).all() and (codes[64 * (count + 1) :] == 77).all()


@njit
def expanded(words, word, step, apart, planes, count, base, unit, codes, start):
    expand(Planes(words, word, planes, apart), step, count, base, unit, View(codes, start))


@given(st.integers(0, 5), st.integers(0, 3), st.integers(0, 2), st.integers(0, 70))
def test_pair_pixels(count, step, near, at):
    codes, pairs = np.random.default_rng(0).integers(0, 256, 1400, np.uint8), np.full(128 * 7, 77, np.uint8)
    paired(codes, at, 64 * step, 64 * near, count, pairs, 128)
    expected = np.full(128 * 7, 77, np.uint8)
    for c in range(count):
        for s in range(2):
            first = at + 64 * (c * step + s * near)
            expected[128 * (c + 1) + s : 128 * (c + 2) : 2] = codes[first : first + 64]
    np.testing.assert_array_equal(pairs, expected)


@njit
def paired(codes, at, step, near, count, pairs, to):
    pair_pixels(codes, at, step, near, count, pairs, to)


@given(data=st.data())
def test_copy_bytes(data):
    """Bytes are copied up to an array's end, also where less than a vector is left."""
    rng, length = np.random.default_rng(data.draw(st.integers(0, 1000))), data.draw(st.integers(0, 200))
    words, base = rng.integers(0, 256, 200, np.uint8), data.draw(st.sampled_from([0, -128]))
    at = data.draw(st.integers(0, 200 - length))
    codes = np.full(300, 77, np.uint8)
    copied(words, at, words.size, length, base, codes, 5)
    expected, stop = np.full(300, 77, np.uint8), 5 + -(-length // 64) * 64
    expected[5:stop] = 0
    expected[5 : 5 + length] = (words[at : at + length].astype(int) - base).astype(np.uint8)
    np.testing.assert_array_equal(codes, expected)


@njit
def copied(words, at, size, length, base, codes, start):
    copy_bytes(words, at, size, length, base, codes, start)


@given(data=st.data())
def test_copy_windows(data):
    """Spans one after the other, each followed by zeros up to half a line, the end of one or the next."""
    base, rng = data.draw(st.sampled_from([0, -128])), np.random.default_rng(data.draw(st.integers(0, 1000)))
    count, number, longest = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 12)), data.draw(st.integers(1, 150))
    codes, places, to, spans = rng.integers(1, 256, 500, np.uint8), np.array([99, *rng.integers(0, 100, count)]), 0, []
    for _ in range(number):
        to += rng.integers(0, 3) * rng.integers(0, HALF)
        spans.append((rng.integers(0, 200), to, rng.integers(1, longest + 1)))
        to += spans[-1][2]
    spans, first = np.array(spans), data.draw(st.integers(0, number))
    last, apart = data.draw(st.integers(first, number)), -(-to // 64) * 64 + 64
    rows = np.full(7 + count * apart, 77, np.uint8)
    copied_windows(codes, places, 1, count, spans, first, last, base, rows, 7, apart)
    expected, touched = np.zeros((count, apart), np.uint8), np.zeros(apart, bool)
    for at, to, length in spans[first:last]:
        for p in range(count):
            expected[p, to : to + length] = (codes[places[1 + p] + at :][:length].astype(int) - base).astype(np.uint8)
        touched[to : min(to + -(-length // HALF) * HALF, -(-(to + length) // 64) * 64)] = True
    got = rows[7:].reshape(count, apart)
    np.testing.assert_array_equal(got[:, touched], expected[:, touched])
    assert (rows[:7] == 77).all() and np.isin(got[:, ~touched], (0, 77)).all()  # at most zeros besides


@njit
def copied_windows(codes, places, place, count, spans, first, last, base, rows, row, apart):
    copy_windows(codes, View(places, place), count, RunSpan(spans, first, last), base, Rows(rows, row, apart))


def test_rows_of_weights():
    words = np.random.default_rng(0).integers(0, 1 << 64, (3, LANES), np.uint64)
    bits = np.unpackbits(words.view(np.uint8).reshape(3, LANES, 8), axis=-1, bitorder="little")
    laid_out = np.unpackbits(lay_out_quads(words).view(np.uint8).reshape(3, LANES * 8), axis=-1, bitorder="little")
    np.testing.assert_array_equal(laid_out.reshape(3, 16, LANES, 4).swapaxes(1, 2).reshape(3, LANES, 64), bits)


@cache
def dotted(name):
    dot_tile = import_module(f"quantarray.cpu.int8.{name}").dot_tile

    @njit
    def dot(codes, places, place, weights, weight, apart, blocks, spans, first, last, fresh, totals, total, most):
        columns, sums = ByteWeights(weights, weight, apart, blocks), Rows(totals, total, TILE * LANES)
        dot_tile(codes, View(places, place), columns, RunSpan(spans, first, last), fresh, sums, most)

    return dot


@pytest.mark.parametrize("name", DOTS)
@pytest.mark.parametrize("blocks", [1, 2])
@given(data=st.data())
def test_dot(name, blocks, data):
    rng, fresh = np.random.default_rng(data.draw(st.integers(0, 1000))), data.draw(st.booleans())
    largest = data.draw(st.sampled_from([(255, 128), (127, 128), (255, 63), (255, 15), (1, 128), (15, 8), (3, 2)]))
    most, end = import_module(f"quantarray.cpu.int8.{name}").most_quads(*largest), min(largest[1], 127)
    codes = rng.integers(0, largest[0] + 1, 600)
    weights = rng.integers(-largest[1], end + 1, (2, 90, LANES, QUAD))
    if data.draw(st.booleans()):  # sums of 16 bits come to their ends
        codes[:], weights[:] = largest[0], data.draw(st.sampled_from([-largest[1], end]))
    places = np.array([99, *rng.integers(0, 200, TILE)])
    quads = min(80, most // 4) if isinstance(most, int) else 80
    spans = np.array([(rng.integers(0, 20), rng.integers(0, 10), rng.integers(0, quads)) for _ in range(4)])
    first = data.draw(st.integers(0, 4))
    last = data.draw(st.integers(first, 4))
    before = rng.integers(-99, 99, (3, TILE, LANES), np.int32)
    totals = before.copy()
    laid = np.concatenate([[0], weights.ravel()]).astype(np.int8).view(np.uint8)
    dotted(name)(
        codes.astype(np.uint8), places, 1, laid, 1, weights[0].size, blocks, spans, first, last, fresh, totals,
        TILE * LANES, most,
    )  # fmt: skip
    expected = before.copy()
    expected[1 : blocks + 1] *= not fresh
    for at, row, quads in spans[first:last]:
        for p in range(TILE):
            a = codes[places[p + 1] + QUAD * at :][: QUAD * quads].reshape(-1, 1, QUAD)
            expected[1 : blocks + 1, p] += (weights[:blocks, row : row + quads] * a).sum((1, 3))
    np.testing.assert_array_equal(totals, expected)


@pytest.mark.parametrize("name", DOTS)
@pytest.mark.parametrize("code", [1, 3, 15, 63, 127, 255])
@pytest.mark.parametrize("byte", [1, 3, 8, 15, 16, 32, 127, 128])
def test_sums_of_dot_at_their_ends(name, code, byte):
    """The largest codes by the least and the greatest bytes, over as many quads as 16 bits hold, if not all in turn."""
    most = import_module(f"quantarray.cpu.int8.{name}").most_quads(code, byte)
    quads = min(400, most) if isinstance(most, int) else 400
    for level in (-byte, min(byte, 127)):
        codes, weights = np.full(QUAD * quads, code, np.uint8), np.full(2 * quads * LANES * QUAD, level, np.int8)
        spans, totals = np.array([(0, 0, 9), (9, 9, quads - 9)]), np.zeros((2, TILE, LANES), np.int32)
        some = np.zeros(1 + TILE, np.int64), 1, weights.view(np.uint8), 0, weights.size // 2, 2, spans, 0, 2
        dotted(name)(codes, *some, True, totals, 0, most)
        np.testing.assert_array_equal(totals, code * level * QUAD * quads)


def test_environment_chooses():
    show = "from quantarray.cpu import isa; from quantarray.cpu.popcount.count_tile import lay_out as chosen"
    show += "; print(isa.NAME, chosen.__module__)"
    assert run(show, QUANTARRAY_CPU="portable").stdout.split() == ["portable", "quantarray.cpu.popcount.count_bytes"]
    assert run(show, NUMBA_CPU_NAME="generic").stdout.split()[0] == "portable"
    assert run(show, NUMBA_CPU_NAME="x", NUMBA_CPU_FEATURES="+sse2,+avx2").stdout.split()[0] == "avx2"
    if AVX2:
        assert run(show, QUANTARRAY_CPU="avx2").stdout.split() == ["avx2", "quantarray.cpu.popcount.count_bytes"]


LESS = [
    name
    for name in ("portable", "avx2", "avx512bw")
    if name != isa.NAME and all(FEATURES.get(feature, False) for feature in isa.SETS[name][0])
]
# A CPU with AMX runs the kernels for it in all other tests
UNIT = [] if isa.NAME == "amx" else ["amx" if PLAYED else isa.EMULATED]
OTHERS = [*LESS, *UNIT]
PRODUCTS = "accumulators", "conv2d", "few_channels", "folded", "linalg", "networks"
# Kernels of depthwise convolutions look at the width of registers alone, 512 bits with avx512bw and AMX as with all of
# AVX-512; windows of few channels become rows by one text everywhere, and their products are those of conv2d
CHAPTERS = {
    "avx2": ("bands", *PRODUCTS, "depthwise", "rank_lines", "chain", "stored_bytes"),
    "avx512bw": ("bands", "nearest", "stored_bytes", *(chapter for chapter in PRODUCTS if chapter != "few_channels")),
    # Bits are moved by the same text without AVX512-VBMI
    "portable": ("bands", *PRODUCTS, "depthwise", "place", "rank_lines", "chain"),
    "amx": ("amx", *PRODUCTS, "stored_bytes"),
    isa.EMULATED: (*PRODUCTS, "stored_bytes"),
}
# (options, environment): pytest's handler of faults would take the place of the processor's
MORE = {"amx": (["-p", "no:faulthandler", "-p", "tile_processor"], {"PYTHONPATH": str(SUPPORT)})}


@pytest.mark.full
@pytest.mark.parametrize(("name", "chapter"), [(name, chapter) for name in OTHERS for chapter in CHAPTERS[name]])
def test_other_cpus(name, chapter):
    """Tests of products, moved bits and trained networks, in a process that compiles for less than this CPU has, for
    a matrix unit whose instructions are carried out by a handler of their traps, or for one in memory."""
    options, environment = MORE.get(name, ([], {}))
    more = {"QUANTARRAY_CPU": name, "QUANTARRAY_EXAMPLES": "10", "QUANTARRAY_CASES": "6"} | environment
    done = pytest_of([*options, path_of(f"test_{chapter}.py")], more)
    assert done.returncode == 0, done.stdout[-3000:]


def test_unknown_choice():
    error = run("import quantarray.cpu", QUANTARRAY_CPU="sse9").stderr
    assert "QUANTARRAY_CPU must be one of portable, neon, avx2, avx512bw, avx512, amx, got 'sse9'" in error


ORDERS = {
    packed_weights.BYTES: by_bytes.lay_out,
    packed_weights.QUADS: lay_out_quads,
    packed_weights.HALVES: avx512_vpopcntdq.lay_out,
}


@pytest.mark.parametrize("bits", ORDERS)
@pytest.mark.parametrize("shape", [(1, 5, 3, 1), (2, 40, 9, 1), (3, 64, 600, 1), (1, 24, 5, 3), (2, 80, 17, 2)])
def test_weights_are_laid_out_and_restored(bits, shape):
    planes, channels, length, groups = shape
    words = np.random.default_rng(0).integers(0, 2**64, shape[:3], np.uint64)
    each = channels // groups
    blocks = -(-each // LANES)
    lanes = np.zeros((planes, groups, blocks * LANES, length), np.uint64)
    lanes[:, :, :each] = words.reshape(planes, groups, each, length)
    by_block = lanes.reshape(planes, groups * blocks, LANES, length).swapaxes(-1, -2)
    out, back = np.empty(by_block.shape, np.uint64), np.zeros_like(words)
    packed_weights.interleave(words, groups, bits, out)
    np.testing.assert_array_equal(out, ORDERS[bits](np.ascontiguousarray(by_block)).reshape(out.shape))
    packed_weights.restore(out, groups, bits, back)
    np.testing.assert_array_equal(back, words)
