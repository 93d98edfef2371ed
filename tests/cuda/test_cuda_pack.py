"""CUDA twins of packing: pack, unpack, encode, threshold, bit for bit what the CPU's kernels make."""

from fractions import Fraction

import numpy as np
import pytest
from cuda_backend import both

from quantarray.backends.registry import kernel, writes_words
from quantarray.core.format import word_count
from quantarray.kernels.operands import Shortcut
from quantarray.ops.products import epilogue
from quantarray.ops.products.lanes import GroupLanes

LENGTHS = (1, 31, 32, 33, 63, 64, 65, 129, 300, 700)


@pytest.fixture(autouse=True, params=[1, 3], ids=["1 warp", "3 warps"])
def few_warps(request, monkeypatch):
    """Blocks so small that a row of few words needs several, and more rows than a grid may be high."""
    from quantarray.cuda.runtime import launch

    monkeypatch.setattr(launch, "WARPS", request.param)
    monkeypatch.setattr(launch, "MOST_ROWS", 2)
    monkeypatch.setattr(launch, "BUSY", 1)


def words(planes, rows, length, fill=0xAB):
    return np.full((planes, rows, word_count(length)), fill, np.uint64)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("planes", [1, 2, 5, 8])
def test_pack_and_unpack(planes, length):
    rng = np.random.default_rng(length)
    codes = rng.integers(0, 2**planes, (3, length), np.uint8)
    cpu, cuda = both("pack", codes, out=words(planes, 3, length))
    np.testing.assert_array_equal(cuda, cpu)
    back = both("unpack", cuda, out=np.full((3, length), 77, np.uint8))
    np.testing.assert_array_equal(back[0], codes)
    np.testing.assert_array_equal(back[1], codes)


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 15])
@pytest.mark.parametrize(("rows", "length"), [(3, 64), (1, 65), (3, 65), (5, 1), (2, 160), (4, 34)])
def test_pack_wherever_codes_begin(rows, length, first):
    """A line of 16 bytes, a word or any byte; bits of codes that no plane has, and bytes around the array, are left."""
    rng = np.random.default_rng(first)
    room = rng.integers(0, 256, rows * length + 32, np.uint8)
    begin = -room.ctypes.data % 16 + first
    codes = room[begin : begin + rows * length].reshape(rows, length)
    assert codes.ctypes.data % 16 == first
    cpu, cuda = both("pack", codes, out=words(3, rows, length))
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("first", [0, 1, 8, 16])
@pytest.mark.parametrize(("rows", "length"), [(3, 64), (1, 1400), (2, 1040), (4, 34), (1, 2048)])
def test_unpack_wherever_codes_go(rows, length, first):
    """By lines of 16 bytes where rows are whole lines, else one by one; bytes around them stay as they are."""
    rng = np.random.default_rng(first)
    codes, packed = rng.integers(0, 8, (rows, length), np.uint8), words(3, rows, length)
    kernel("cpu", "pack")(codes, packed)
    room = np.full(rows * length + 64, 77, np.uint8)
    begin = 16 + -room.ctypes.data % 16 + first
    out = room[begin : begin + rows * length].reshape(rows, length)
    kernel("cuda", "unpack")(packed, out)
    np.testing.assert_array_equal(out, codes)
    assert (room[:begin] == 77).all() and (room[begin + out.size :] == 77).all()


def test_empty():
    for shape in ((0, 5), (3, 0)):
        made = both("pack", np.zeros(shape, np.uint8), out=words(2, *shape))
        assert made[1].size == 0
        both("unpack", made[1], out=np.zeros(shape, np.uint8))


SHORT = [(1, 1), (2, 1), (2, 2), (2, 3)]  # codes of one bit and two, which rows that share thresholds pack in batches


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int8, np.uint16])
@pytest.mark.parametrize(("rows", "length"), [(3, 300), (19, 33), (12, 64), (10, 128), (3, 64)])
@pytest.mark.parametrize(("planes", "count"), SHORT)
@pytest.mark.parametrize("tables", (1, 3))
def test_encode_of_few_bits(tables, planes, count, rows, length, dtype):
    """Short rows of whole words are joined where all have the same table; warps stride over rows."""
    rng = np.random.default_rng(length + count)
    kind = np.float64 if dtype is np.float64 else np.float32
    x, limits = some(rng, dtype, (rows, length, 1)), some(rng, dtype, (tables, 1, count))
    thresholds = np.sort(widened(limits), axis=-1).astype(kind)
    codes = rng.integers(0, 2**planes, (tables, 1, count + 1), np.uint8)
    x[0, length // 2, 0] = limits[0, 0, 0]  # at least is not above
    row = np.arange(rows) % tables if tables > 1 else np.zeros(1, np.int64)
    nan, made = np.zeros(4, bool), []
    for device in ("cpu", "cuda"):
        made.append(words(planes, rows, length))
        kernel(device, "encode")(x, thresholds, codes, row, length, nan, made[-1])
    assert not nan.any()
    np.testing.assert_array_equal(made[1], made[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int8, np.uint16])
@pytest.mark.parametrize("after", [1, 33])
@pytest.mark.parametrize("length", (33, 130))
@pytest.mark.parametrize(("planes", "count"), [(2, 3), (8, 255)])
def test_encode(planes, count, length, after, dtype):
    rng = np.random.default_rng(length + count)
    rows, tables, group = 3 if after == 1 else 2 * after, 2, 64
    groups, kind = -(-length // group), np.float64 if dtype is np.float64 else np.float32
    x, limits = some(rng, dtype, (rows // after, length, after)), some(rng, dtype, (tables, groups, count))
    thresholds = np.sort(widened(limits), axis=-1).astype(kind)
    codes = rng.integers(0, 2**planes, (tables, groups, count + 1), np.uint8)
    x[0, length // 2, 0] = limits[1, length // 2 // group, 0]  # at least is not above
    row = rng.integers(0, tables, rows)
    row[0] = 1
    nan = [np.zeros(4, bool), np.zeros(4, bool)]
    made = []
    for device, found in zip(("cpu", "cuda"), nan, strict=True):
        made.append(words(planes, rows, length))
        kernel(device, "encode")(x, thresholds, codes, row, group, found, made[-1])
        assert not found.any()
    np.testing.assert_array_equal(made[1], made[0])
    one = both("encode", x, thresholds[:1, :1], codes[:1, :1], np.zeros(1, np.int64), length, nan[0],
               out=words(planes, rows, length))  # fmt: skip
    np.testing.assert_array_equal(one[1], one[0])


LINES = [
    (1, 1, 1, None), (3, 1100, 1, None), (2, 1184, 1, 128), (20, 64, 1, None), (1, 5000, 1, None), (4, 1024, 1, 64),
    (2, 70, 5, None), (1, 130, 40, 64),
]  # fmt: skip
ONE_OF_EACH = [(3, np.float32), (4, np.float64), (4, np.uint16), (8, np.int8)]  # for the long ones
MANY_BITS = [
    (planes, count, *line, dtype)
    for planes, count in [(3, 5), (4, 15), (8, 255), (8, 1)]
    for line in LINES
    for dtype in [np.float32, np.float64, np.float16, np.uint8, np.int8, np.uint16]
    if line[0] * line[1] <= 1100 or (planes, dtype) in ONE_OF_EACH
]


@pytest.mark.parametrize(("planes", "count", "rows", "length", "after", "group", "dtype"), MANY_BITS)
def test_encode_of_many_bits(planes, count, rows, length, after, group, dtype):
    """Warps' tiles of 1,024 values, whole and cut, of lines of 4 values and of others; codes that are ranks."""
    rng = np.random.default_rng(length + count)
    kind = np.float64 if dtype is np.float64 else np.float32
    groups = -(-length // group) if group else 1
    x, limits = some(rng, dtype, (rows, length, after)), some(rng, dtype, (1, groups, count))
    thresholds = np.sort(widened(limits), axis=-1).astype(kind)
    codes = np.broadcast_to(np.arange(count + 1, dtype=np.uint8), (1, groups, count + 1)).copy()
    x[0, length // 2, 0] = limits[0, 0, 0]
    nan, made = np.zeros(4, bool), []
    for device in ("cpu", "cuda"):
        made.append(words(planes, rows * after, length))
        kernel(device, "encode")(x, thresholds, codes, np.zeros(1, np.int64), group or length, nan, made[-1])
    assert not nan.any()
    np.testing.assert_array_equal(made[1], made[0])


@pytest.mark.parametrize("place", [(0, 0), (2, 64), (1, 33)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint16])
@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("count", [1, 7])
def test_encode_reports_nan(count, place, dtype, after):
    x = np.zeros((3, 65, after), dtype)
    found = np.zeros(3, bool)
    table, planes = np.zeros((1, 1, count), np.float64 if dtype is np.float64 else np.float32), count.bit_length()
    codes = np.arange(count + 1, dtype=np.uint8)[None, None]
    args = table, codes, np.zeros(3 * after, np.int64), 65, found, words(planes, 3 * after, 65)
    kernel("cuda", "encode")(x, *args)
    assert not found.any()
    x[(*place, after - 1)] = 0x7FC0 if dtype is np.uint16 else np.nan
    kernel("cuda", "encode")(x, *args)
    assert found.any()


def some(rng, dtype, shape):
    """Values of a dtype that often are the same; uint16 are bits of bfloat16."""
    if np.dtype(dtype).itemsize == 1:
        return rng.integers(-9, 9, shape).astype(dtype)
    x = np.round(rng.normal(size=shape) * 3) / 3
    x.flat[:: x.size // 2 + 1] = np.inf
    x.flat[1 :: x.size // 2 + 1] = -np.inf
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if dtype is np.uint16 else x.astype(dtype)


def widened(x):
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x.astype(np.float64)


@pytest.mark.parametrize("real", [False, True], ids=["int64", "float64"])
@pytest.mark.parametrize("channels", LENGTHS)
@pytest.mark.parametrize(("planes", "count"), [(1, 1), (2, 3), (4, 9)])
def test_threshold(planes, count, channels, real):
    rng = np.random.default_rng(channels)
    lanes = GroupLanes(channels)
    dtype = np.float64 if real else np.int64
    values = rng.integers(-9, 9, (3, channels)).astype(dtype)
    limits = np.sort(rng.integers(-9, 9, (count, channels)), axis=0).astype(dtype)
    if real:
        limits[0, ::3] = np.nan  # below all values
    bits = rng.integers(0, 2, (count + 1, planes)) if count > 1 else np.array([[0], [1]])
    finish = epilogue.finish(None, channels, real, lanes=lanes)._replace(
        thresholds=lanes(limits),
        flip=np.packbits(lanes(rng.integers(0, 2, channels).astype(bool)), bitorder="little").view("<u4"),
        toggles=np.where(bits == 1, ~np.uint64(0), np.uint64(0)),
    )
    cpu, cuda = both("threshold", values, finish, out=words(planes, 3, channels, 0))
    assert cpu.any() or channels == 1
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("channels", LENGTHS)
@pytest.mark.parametrize("values", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize("other", [np.int8, np.int32, np.float32, 1, 3], ids=str)
@pytest.mark.parametrize("stored", ["sums", "codes", "both"])
def test_add_shortcut(stored, other, values, channels):
    """Values of each dtype and codes of 1 and 3 bits are added; a sum that does not fit int32 sets a flag."""
    rng, lanes = np.random.default_rng(channels), GroupLanes(channels)
    real = np.float32 in (values, other)
    exact = np.float64 if real else np.int64
    a = rng.integers(-9, 9, (3, channels)).astype(values)
    levels, count = np.zeros(1, exact), 3
    if isinstance(other, int):
        b, levels = words(other, 3, channels), rng.integers(-9, 9, 2**other).astype(exact)
        b[:] = rng.integers(0, 2**63, b.shape)
    else:
        b = rng.integers(-9, 9, (3, channels)).astype(other)
    dtype = np.dtype(np.float32 if real else values)
    bounds = np.array([-np.inf, np.inf]) if real else np.array([np.iinfo(dtype).min, np.iinfo(dtype).max])
    finish = epilogue.finish(None, channels, real, lanes=lanes)._replace(
        thresholds=lanes(np.sort(rng.integers(-9, 9, (count, channels)), axis=0).astype(exact)),
        flip=np.packbits(lanes(rng.integers(0, 2, channels).astype(bool)), bitorder="little").view("<u4"),
        toggles=np.where(rng.integers(0, 2, (count + 1, 2)) == 1, ~np.uint64(0), np.uint64(0)),
    )

    def added(device):
        sums = np.zeros((0, 0) if stored == "codes" else a.shape, dtype)
        fill = 0xAB if writes_words(device, "add_shortcut", 3, channels) else 0
        out = np.zeros((0, 0, 0), np.uint64) if stored == "sums" else words(2, 3, channels, fill)
        over = np.zeros(1, np.int64)
        kernel(device, "add_shortcut")(a, Shortcut(b, levels, bounds), finish, sums, over, out)
        return sums, over, out

    (_, over, _) = results = added("cpu")
    for cpu, cuda in zip(results, added("cuda"), strict=True):
        np.testing.assert_array_equal(cuda, cpu)
    assert not over[0]
    if values is np.int32 and not real:
        a[1, -1], levels[:] = 2**31 - 1, np.maximum(levels, 1)
        b = b if isinstance(other, int) else np.maximum(b, 1)
        assert all(added(device)[1][0] for device in ("cpu", "cuda")), "a sum that does not fit"


@pytest.mark.parametrize("length, group, stride", [
    (1, 5, 1), (33, 8, 1), (65, 64, 1), (130, 100, 1), (65, 65, 3), (40, 7, 2**33),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("planes", [1, 2, 8])
@pytest.mark.parametrize("key", [[], [1, 2**32 - 1, 0], [7, 0, 1]], ids=["nearest", "rounding", "dropout"])
def test_encode_grouped(planes, length, group, stride, dtype, key):
    rng = np.random.default_rng(length)
    values = rng.normal(size=(3, length)).astype(dtype)
    low, step = (rng.uniform(*ends, (3, -(-length // group))).astype(np.float32) for ends in ((-2, -1), (0.01, 0.5)))
    values[:, 0], values[1, -1], values[2, -1] = low[:, 0], np.inf, np.nan
    start = np.array([0, 5, 2**40 + 3])
    cpu, cuda = both("encode_grouped", values, low, step, start, stride, group, np.array(key, np.uint32),
                     out=words(planes, 3, length))  # fmt: skip
    assert cpu.any()
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("rows, length, run", [
    (1, 1, 64), (1, 40, 40), (1, 64, 64), (1, 700, 256), (1, 1000, 64), (3, 128, 64), (5, 33, 33), (4, 70, 140),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("planes", [1, 2, 8])
@pytest.mark.parametrize("digits", [8, 24])
@pytest.mark.parametrize("key", [[], [1, 2**32 - 1, 0]], ids=["nearest", "rounding"])
def test_encode_groups(rows, length, run, dtype, planes, digits, key):
    """Values of all sizes, groups of one value, of zeros of both signs and of subnormal steps."""
    rng = np.random.default_rng(length)
    x = (rng.normal(size=(rows, length)) * 10.0 ** rng.integers(-6, 7, (rows, length))).astype(dtype)
    flat = x.reshape(-1)
    flat[:run] = rng.choice([-0.0, 0.0, -3e-38, 1e-44, 2.5])
    flat[-1] = rng.choice([1e-44, -1e29, 5.0])
    runs = -(-x.size // run)
    made = {}
    for device in ("cpu", "cuda"):
        wrong, constants, out = np.zeros(1, bool), np.zeros((2, runs), np.float32), words(planes, rows, length)
        kernel(device, "encode_groups")(x, run, digits, np.array(key, np.uint32), wrong, constants, out)
        assert not wrong[0]
        made[device] = constants, out
    for cpu, cuda in zip(made["cpu"], made["cuda"], strict=True):
        np.testing.assert_array_equal(cuda, cpu)
    assert not np.signbit(made["cuda"][0][1][made["cuda"][0][1] == 0]).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-38, 1e-44, 3e29], ids=str)
@pytest.mark.parametrize("planes", [1, 4, 8])
def test_groups_whose_values_are_between_two_codes(planes, scale, dtype):
    """Values a few units of their last place from where a code begins, which float32 alone does not tell apart."""
    levels = np.arange(2**planes) * dtype(scale) / (2**planes - 1)
    x = np.repeat(levels, 7)[: -(-len(levels) * 7 // 64) * 64] + dtype(scale) / (2 * (2**planes - 1))
    x = np.clip(x, 0, dtype(scale)).astype(dtype)
    for k in range(1, 4):
        x[k::7], x[k + 3 :: 7] = np.nextafter(x[k::7], -np.inf), np.nextafter(x[k + 3 :: 7], np.inf)
        x[:], x[0], x[-1] = np.clip(x, 0, dtype(scale)), 0, scale
    made = []
    for device in ("cpu", "cuda"):
        wrong, constants, out = np.zeros(1, bool), np.zeros((2, 1), np.float32), words(planes, 1, x.size)
        kernel(device, "encode_groups")(x[None], x.size, 24, np.zeros(0, np.uint32), wrong, constants, out)
        each = both("encode_grouped", x[None], constants[1:], constants[:1], np.zeros(1, int), 1, x.size,
                    np.zeros(0, np.uint32), out=out)  # fmt: skip
        np.testing.assert_array_equal(*each)
        made.append((constants, out))
    for cpu, cuda in zip(*made, strict=True):
        np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30])
@pytest.mark.parametrize("at", [0, 100, 699])
def test_encode_groups_sees_what_no_grid_holds(value, at):
    x = np.ones((1, 700), np.float32)
    x[0, at] = value
    for device in ("cpu", "cuda"):
        wrong, constants = np.zeros(1, bool), np.zeros((2, 3), np.float32)
        kernel(device, "encode_groups")(x, 256, 8, np.zeros(0, np.uint32), wrong, constants, words(2, 1, 700))
        assert wrong[0], device


DECODED = [(1, 1), (33, 8), (65, 64), (300, 100), (700, 256), (64, 64), (1100, 3), (130, 1), (256, 4), (1024, 40)]


@pytest.mark.parametrize("length, group", DECODED)
@pytest.mark.parametrize("planes", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16], ids=["float32", "float16", "bfloat16"])
def test_decode_uniform(dtype, planes, length, group):
    """Groups that end inside of what a lane stores, and rows that are joined where none does."""
    rng = np.random.default_rng(length)
    codes, out = rng.integers(0, 2**planes, (3, length), np.uint8), words(planes, 3, length)
    kernel("cpu", "pack")(codes, out)
    low, step = (
        (rng.normal(size=(3, -(-length // group))) * 10.0 ** rng.integers(-3, 4)).astype(np.float32) for _ in range(2)
    )
    expected, got = np.zeros((3, length), np.float32), np.zeros((3, length), dtype)
    kernel("cpu", "decode_uniform")(out, low, step, group, expected)
    kernel("cuda", "decode_uniform")(out, low, step, group, got)
    np.testing.assert_array_equal(got, narrowed(expected, dtype))


def narrowed(x, dtype):
    """Round float32 to a narrower type; uint16 are bits of bfloat16."""
    if dtype is not np.uint16:
        return x.astype(dtype)
    exact = [Fraction(float(v)) for v in x.flat]  # the even one of the two neighbours, where both are as near
    low = x.view(np.uint32) >> 16
    ends = [(bits << 16).astype(np.uint32).view(np.float32).ravel().tolist() for bits in (low, low + 1)]
    up = [
        (abs(v - Fraction(b)), bits % 2 == 0) < (abs(v - Fraction(a)), bits % 2 == 1)
        for v, a, b, bits in zip(exact, *ends, low.flat, strict=True)
    ]
    return (low + np.reshape(up, x.shape)).astype(np.uint16)


@pytest.mark.parametrize("tables, groups", [(1, 1), (3, 1), (1, 5), (3, 5)])
@pytest.mark.parametrize("length, group", [(65, 13), (320, 64), (40, 8), (1050, 210)])
@pytest.mark.parametrize("planes", [1, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16, np.uint16])
def test_decode_levels(dtype, planes, length, group, tables, groups):
    """One table in shared memory, a table a row, a table a group; codes that have no level do not occur."""
    rng = np.random.default_rng(length)
    count = max(2, 2**planes - 1)
    codes, packed = rng.integers(0, count, (4, length), np.uint8), words(planes, 4, length)
    kernel("cpu", "pack")(codes, packed)
    levels = rng.integers(0, 2**15, (tables, groups, count)).astype(dtype)
    row = rng.integers(0, tables, 4) if tables > 1 else np.zeros(1, np.int64)
    part = np.arange(length) // group if groups > 1 else np.zeros(length, int)
    expected = levels[np.broadcast_to(row, 4)[:, None], part, codes]
    cpu, cuda = both("decode_levels", packed, levels, row, group, out=np.zeros((4, length), dtype))
    np.testing.assert_array_equal(cpu, expected)
    np.testing.assert_array_equal(cuda, expected)
