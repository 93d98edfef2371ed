"""conv2d against the oracle, bit for bit: every pair of laws, all geometry, thresholds."""

import math
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import naive
import numba
import numpy as np
import pytest
from conv_cases import INTEGER, PAD_REALS, REAL, arrays, cases, check, integer_bias, layout, real, real_bias
from hypothesis import given, settings
from hypothesis import strategies as st
from results import assert_bits, assert_packed
from strategies import PRODUCTS, Law, laws, products_by, seeds, threads

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.backends import kernel_choice
from quantarray.core.format import WORD
from quantarray.cpu.int8 import dot, framed, winograd
from quantarray.cpu.int8.amx_unit import DOTS, UNIT
from quantarray.cpu.popcount import conv, conv_real, tile_tasks
from quantarray.cpu.runtime import threads as cpu_threads
from quantarray.ops.products import calls, folded_thresholds, scaled_sums

LARGE = st.sampled_from([(-(2**20), 5, 2**20 - 1), (2**16, -(2**16)), (2**9 - 1, 0)]).map(lambda v: Law(qa.integers(v)))


@given(st.data(), cases())
def test_integers(data, case):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    reach = max(ours[0].dtype.max_abs, abs(case.options["pad_value"])) * ours[1].dtype.max_abs
    wide = math.prod(case.kernel[1:]) * reach >= 2**31  # by dtypes and shapes alone, as conv2d documents it
    check(data.draw, case, *ours, expected.astype(np.int64 if wide else np.int32), bias)


@pytest.fixture
def ones(monkeypatch):
    """Fill memory of results with ones: who does not ask for zeros gets no zeros."""
    empty = calls.empty

    def filled(device, shape, dtype=WORD):
        a = empty(device, shape, dtype)
        a.view(np.uint8)[...] = 255
        return a

    monkeypatch.setattr(calls, "empty", filled)


@pytest.mark.parametrize("outputs", [1, 8, 15, 16, 17, 31, 48, 49, 80])
@pytest.mark.parametrize("bits", [1, 2])
def test_outputs_that_leave_lanes_of_a_block(ones, outputs, bits):
    """No more than half of a block of 32, or more."""
    rng = np.random.default_rng(outputs)
    x, w = rng.integers(0, 2**bits, (2, 7, 9, 20)), rng.choice((-1, 1), (outputs, 3, 3, 20))
    sums = naive.conv2d(x, w, padding=((1, 1), (1, 1))).astype(np.int32)
    a, b = qa.encode(x, range(2**bits)), qa.encode(w, (-1, 1))
    assert_bits(qa.conv2d(a, b, padding=1), sums)
    for limits in ([0], [-3, 0, 5]):
        law = qa.Thresholds(limits)
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=1, requantize=law).codes(), law(sums).codes())


@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 128, 144])
@pytest.mark.parametrize("bits", [3, 4, 7])
@pytest.mark.parametrize("of_bytes", [False, True])
def test_codes_on_lines_that_leave_registers(ones, outputs, bits, of_bytes):
    """Evenly spaced thresholds, some counting down, of more pixels than a band has, and of tiles that are not full."""
    rng, count, sides = np.random.default_rng(outputs), 2**bits - 1, (2, 34, 19)
    codes, w = rng.integers(0, 256 if of_bytes else 16, (*sides, 3)), rng.integers(-3, 4, (outputs, 3, 3, 3))
    sums = naive.conv2d(codes, w, padding=((1, 1), (1, 1))).astype(np.int32)
    steps = rng.uniform(1, 4 * np.abs(sums).max() / count, outputs)
    values = np.floor((np.arange(count) - count / 2) * steps[:, None] + rng.uniform(-50, 50, (outputs, 1)))
    law = qa.Thresholds(values.astype(int), greater=rng.random(outputs) < 0.7)
    x = codes.astype(np.uint8) if of_bytes else qa.encode(codes, range(16))
    kernels = [products_by("dot")] * DOTS + [nullcontext()]
    for kernel in kernels:
        with kernel:
            got = qa.conv2d(x, qa.encode(w, range(-4, 4)), padding=1, requantize=law)
        validate(got)
        np.testing.assert_array_equal(got.codes(), law(sums).codes())


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("outputs", [1, 20, 40, 64, 90, 128])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("channels", [6, 300])
def test_codes_are_written_whole(ones, bits, outputs, groups, channels):
    """Thresholds on no line, of one stretch of the contraction or several: words have nothing after the channels."""
    rng, outputs = np.random.default_rng(outputs), outputs * groups
    codes, w = rng.integers(0, 8, (1, 7, 5, channels * groups)), rng.integers(-1, 2, (outputs, 3, 3, channels))
    sums = naive.conv2d(codes, w, padding=((1, 1), (1, 1)), groups=groups).astype(np.int32)
    law = qa.Thresholds(np.sort(rng.integers(-99, 99, (outputs, 2**bits - 1)), axis=1))
    x, expected = qa.encode(codes, range(8)), law(sums)
    for kernel in [products_by("dot")] * DOTS + [nullcontext()]:
        with kernel:
            got = qa.conv2d(x, qa.encode(w, (-1, 0, 1)), padding=1, groups=groups, requantize=law)
        validate(got)
        np.testing.assert_array_equal(got.codes(), expected.codes())


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("bias", [None, -0.0, 0.0])
def test_no_real_sum_is_a_negative_zero(depthwise, bias):
    """A sum of 0 by a negative scale, and a bias of -0.0: in the documented order all begins with 0.0."""
    values = np.tile([[-1], [1]], (1, 4, 2, 18))  # of neighbours in a row
    x, w = qa.encode(values, (-1, 1)), qa.encode(np.ones((18, 1, 2, 1 if depthwise else 18), int), (-1, 1), axis=0)
    w = w if depthwise else w.repack(3)
    shift = None if bias is None else np.full(18, bias, np.float32)
    made = qa.conv2d(x, w * np.float32(-0.5), bias=shift, groups=18 if depthwise else 1)
    assert made.size and made.dtype == np.float32
    np.testing.assert_array_equal(made.view(np.uint32), 0)


def few_bits(draw):
    """A law of codes and one of levels that the kernel of squares takes, if only in terms of codes."""
    low, step, bits = draw(st.integers(-40, 40)), draw(st.sampled_from([-3, -1, 1, 2, 5])), draw(st.integers(1, 4))
    count = draw(st.integers(2 ** (bits - 1) + 1, 2**bits))
    w = draw(laws(4, ["integer"]) | st.just(Law(qa.integers(range(low, low + count * step, step)))))
    return draw(laws(6, ["integer"])), w


@given(st.data(), cases(squares=True))
def test_integers_by_squares(data, case):
    x_law, w_law = few_bits(data.draw)
    x, w, *ours = arrays(data.draw, case, x_law, w_law)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias, by=["winograd"])


def test_squares_that_see_padding_only():
    """A thread may get no others, and no pixel that it could bring."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 16, (2, 1, 2, 65)), rng.integers(-8, 8, (33, 3, 3, 65))
    a, b = qa.encode(x, range(16)), qa.encode(w, range(-8, 8))
    expected = naive.conv2d(x, w, padding=((9, 9), (9, 9)), pad_value=-3)
    dirt = [np.full(n, 255, np.uint8) for n in (64, 128, 256, 4096) for _ in range(99)]  # reused by empty buffers
    dirt.clear()
    with threads(True), products_by("winograd"):
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=9, pad_value=-3), expected)


@pytest.mark.skipif(UNIT is None, reason="no matrix unit, not even an emulated one")
@settings(max_examples=60)
@given(st.data(), cases(framed=True))
def test_integers_between_zeros(data, case):
    w_law = data.draw(laws(8, ["integer"]).filter(lambda law: max(map(abs, law.dtype.levels)) < 128))
    x, w, *ours = arrays(data.draw, case, INTEGER, w_law)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias, by=["framed"])


@pytest.mark.skipif(UNIT is None, reason="no matrix unit, not even an emulated one")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("images", "size", "channels", "outputs"),
    [
        (20, (7, 7), 130, 200),  # 7 together at most: the last are fewer; weights that are not kept
        (3, (30, 40), 70, 33),  # rows in bands
        (2, (3, 600), 65, 64),  # a row is more than a band
        (2, (9, 30), 640, 40),  # more words than a band has, in stretches of the contraction
    ],
)
def test_bands_between_zeros(images, size, channels, outputs, many):
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 4, (images, *size, channels)), rng.integers(-2, 2, (outputs, 3, 3, channels))
    a, b = qa.encode(x, range(4)), qa.encode(w, range(-2, 2))
    expected = naive.conv2d(x, w, padding=((1, 1), (1, 1))).astype(np.int32)
    with kernel_choice.heard() as asked, products_by("framed"), threads(many):
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=1), expected)
        for planes in range(1, 6):
            law = qa.Thresholds(np.sort(rng.integers(-300, 300, (outputs, 2**planes - 1))))
            bits = qa.conv2d(a, b, padding=1, requantize=law)
            np.testing.assert_array_equal(bits.codes(), law(expected).codes())
    assert asked and all("framed" in question.candidates for question in asked)


@pytest.mark.skipif(UNIT is None, reason="no matrix unit, not even an emulated one")
@pytest.mark.parametrize("channels", [1, 32, 33])
@pytest.mark.parametrize("length", [4608, 4609, 6706, 9216])
def test_windows_in_place_of_one_block_and_two_stretches(channels, length):
    """Weights of one block are kept whole, in two stretches: the second was once written beyond their memory."""
    rng = np.random.default_rng(length)
    x, w = rng.choice((-1, 1), (2, 1, 3, length)), rng.choice((5, 0), (channels, 1, 1, length))
    packed = qa.encode(x, (-1, 1)), qa.encode(w, (5, 0))
    with products_by("framed"):
        for _ in range(2):
            np.testing.assert_array_equal(qa.conv2d(*packed)[:, 0], x[:, 0] @ w[:, 0, 0].T)


@given(st.data(), st.booleans(), st.sampled_from([np.int8, np.uint8]))
def test_dense_bytes(data, depthwise, dtype):
    """Images of plain bytes; with few channels and no padding value they are unrolled into rows."""
    case = data.draw(cases(depthwise, pad_values=st.sampled_from([0, 0, 3])))
    axis = data.draw(st.sampled_from([0, -1])) if depthwise else -1
    _, w, _, ours = arrays(data.draw, case, INTEGER, laws(4), w_axis=axis)
    info = np.iinfo(dtype)
    x = np.random.default_rng(data.draw(seeds())).integers(info.min, info.max + 1, case.image).astype(dtype)
    if w.exact:
        expected = naive.conv2d(x, w.values, **case.naive()).astype(np.int32)
    else:
        expected = real(case, x[None].astype(int), np.ones((1, 1, 1, 1, 1)), np.zeros((1,) * 4), w, None)
    check(data.draw, case, layout(x, case), ours, expected)


@given(st.data(), cases(), st.sampled_from([np.int64, np.float32]))
def test_out_dtype(data, case, dtype):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    expected = naive.conv2d(x.values, w.values, **case.naive()).astype(dtype)
    check(data.draw, case, *ours, expected, out_dtype=dtype)


@given(st.data(), cases(pad_values=st.integers(-2, 2)))
def test_large_integers(data, case):
    """The result is int64 exactly if n * |x|max * |w|max needs it."""
    x, w, *ours = arrays(data.draw, case, LARGE, LARGE)
    n = int(np.prod(case.kernel[1:]))
    bound = n * max(x.law.dtype.max_abs, abs(case.options["pad_value"])) * w.law.dtype.max_abs
    if bound >= 2**63:
        with pytest.raises(OverflowError, match="int64 cannot hold"):
            qa.conv2d(*ours, **case.ours())
        return
    expected = naive.conv2d(x.values, w.values, **case.naive())
    check(data.draw, case, *ours, expected.astype(np.int32 if bound < 2**31 else np.int64))


@given(st.data(), cases(pad_values=PAD_REALS))
def test_real(data, case):
    x, w, *ours = arrays(data.draw, case, REAL, REAL)
    if x.exact and w.exact:
        x, w, *ours = arrays(data.draw, case, laws(3, ["scaled", "basis"]), REAL)
    bias, expected = real_bias(data.draw, lambda b: real(case, x.terms, x.scale, x.offset, w, b))
    check(data.draw, case, *ours, expected, bias)


@pytest.mark.parametrize(("channels", "outputs"), [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("law", [{}, {"scale": 0.5}])
def test_of_no_channels(channels, outputs, law):
    """Sums of nothing are the bias, and padding adds nothing to pixels of no channels."""
    x = qa.from_codes(np.ones((2, 4, 5, channels), int), qa.bipolar, **law)
    w = qa.from_codes(np.ones((outputs, 3, 2, channels), int), qa.bipolar)
    bias = np.arange(outputs)
    expected = np.zeros((2, 4, 6, outputs)) + bias
    how = {"padding": 1, "pad_value": 3, "bias": bias}
    assert_bits(qa.conv2d(x, w, **how), expected.astype(np.float32 if law else np.int32))
    assert_packed(qa.conv2d(x, w, **how, requantize=qa.Thresholds([1])), np.where(expected > 1, 1, -1))
    turned = qa.conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), **how, data_format="NCHW")
    assert turned.shape == (2, outputs, 4, 6)


@given(st.data(), cases())
def test_integers_with_a_real_bias(data, case):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    bias = np.random.default_rng(data.draw(seeds())).normal(size=len(w.codes)).astype(np.float32)
    exact = naive.conv2d(x.values, w.values, **case.naive()).astype(np.float64)
    check(data.draw, case, *ours, (exact + bias).astype(np.float32), bias)


def on_two_threads(run):
    """Return what `drive` takes for `threads`: two of them for any work, and `run`."""
    return SimpleNamespace(run=run, count=lambda: 2, workers=lambda work, least: 2)


@cache
def called_by_python(kernel):
    return numba.njit(error_model="numpy")(kernel.compiled.py_func)


@pytest.mark.skipif(not DOTS, reason="no dot products")
@pytest.mark.parametrize(
    ("name", "bits"),
    [("dot", [(2, 2), (8, 8), (8, 4), (4, 4), (8, 5), (7, 6)]), ("winograd", [(2, 2), (4, 4), (3, 3)])],
)
def test_sums_of_16_and_of_32_bits_in_one_process(name, bits):
    """Kernels take operands of the same types, whether 16 bits hold sums of products, some of them, or none."""
    if name == "winograd" and UNIT is not None:
        pytest.skip("a matrix unit multiplies")
    rng = np.random.default_rng(0)
    for of_x, of_w in bits:
        x = qa.encode(rng.integers(0, 1 << of_x, (1, 9, 8, 130)), range(1 << of_x))
        levels = range(-(1 << of_w - 1), 1 << of_w - 1)
        w = qa.encode(rng.choice(levels, (40, 3, 3, 130)), levels)
        with products_by("conv"):
            expected = qa.conv2d(x, w, padding=1)
        with products_by(name):
            np.testing.assert_array_equal(qa.conv2d(x, w._view(), padding=1), expected)


@pytest.mark.full  # compiles each kernel again
@pytest.mark.parametrize(
    "module, name, scale",
    [
        (conv, "conv", None),
        (dot, "dot", None),
        (winograd, "winograd", None),
        (framed, "framed", None),
        (conv_real, "real", 2.0),
    ],
)
@pytest.mark.parametrize("groups, outputs", [(1, 400), (2, 200), (3, 129)])
def test_no_two_tasks_write_the_same_word(groups, outputs, module, name, scale, monkeypatch):
    """Threads set bits without atomic operations. All bits are ones here, so that every word written shows."""
    unit = {winograd: UNIT is None, framed: UNIT is not None and groups == 1}.get(module, True)
    if (module in (dot, winograd) and not DOTS) or not unit:
        pytest.skip("no dot products, or others")
    pieces = []

    def one_by_one(kernel, arguments, tasks, workers, dealt, kind, held):
        x, values, words = arguments
        x = x._replace(words=x.words.copy())  # kernels are compiled for arrays that may be written to
        written = np.zeros(words.shape, bool)
        for task in range(tasks):
            alone = np.zeros_like(words)
            dealt = np.zeros(16, np.int64)  # this task to one worker, as `deal.next_task` has it
            dealt[0], dealt[1], dealt[8] = 1, task + 1, task
            called_by_python(kernel)(*held.arguments, x, values, alone, dealt.ctypes.data, 0)
            assert not (written & (alone != 0)).any()
            written |= alone != 0
            words |= alone
        pieces.append(tasks)

    monkeypatch.setattr(tile_tasks, "threads", on_two_threads(one_by_one))
    monkeypatch.setattr(tile_tasks, "cut", lambda workers, split, *rest: (split, 2))
    monkeypatch.setattr(folded_thresholds, "refusal", lambda *operands: "not asked for")
    x = qa.from_codes(np.ones((1, 3, 3, 2 * groups), int), qa.bipolar)
    w = qa.from_codes(np.ones((groups * outputs, 3, 3, 2), int), qa.bipolar, scale=scale)
    with products_by(name):
        got = qa.conv2d(x, w, padding=1, groups=groups, requantize=qa.Thresholds([0]))
    assert (got.dequantize() == 1).all() and len(pieces) == 1
    assert pieces[0] >= (2 if groups > 1 else 6)


@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("levels", [(-1, 1), (0, 1, 2, 3)])
@pytest.mark.parametrize("chunks, parts, threads", [(3, 3, 1), (3, 4, 2), (2, 150, 2)])
def test_threads_take_all_chunks_of_channels_and_stretches_of_tiles(
    chunks, parts, threads, levels, name, scale, monkeypatch
):
    """Prepare again for each chunk what a kernel keeps for the channels of one; some of so many stretches
    have no tiles."""
    rng = np.random.default_rng(0)
    x, w = rng.choice(levels, (2, 9, 7, 70)), rng.choice((-1, 1), (400, 3, 3, 70))
    limits = rng.integers(-9, 9, (400, 1))
    exact = naive.conv2d(x, w, padding=((1, 1), (1, 1)))
    taken = []

    def run(kernel, arguments, tasks, workers, dealt, kind, held):
        taken.append(tasks)
        cpu_threads.run(kernel, arguments, tasks, threads, dealt, kind, held)

    monkeypatch.setattr(tile_tasks, "threads", on_two_threads(run))
    monkeypatch.setattr(tile_tasks, "cut", lambda *arguments: (chunks, parts))
    for real_constants in (folded_thresholds, scaled_sums):  # so that they are summed
        monkeypatch.setattr(real_constants, "refusal", lambda *operands: "not asked for")
    a, b = qa.encode(x, levels), qa.encode(w, (-1, 1))
    real = qa.from_codes(b.codes(), b.dtype, axis=3, scale=scale) if scale else b
    with products_by(name):
        sums = qa.conv2d(a, real, padding=1)
        bits = qa.conv2d(a, real, padding=1, requantize=qa.Thresholds((scale or 1) * limits))
    np.testing.assert_array_equal(sums, exact * (scale or 1))
    np.testing.assert_array_equal(bits.dequantize() > 0, exact > limits[:, 0])
    assert taken == [chunks * parts] * 2


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("images", [5, 6, 8])  # of which 1, 2 and 4 share tiles
@pytest.mark.parametrize(
    ("levels", "bits_out"), [((-1, 1), True), ((-1, 1), False), ((0, 1, 2), False), (range(256), True)]
)
def test_more_tiles_than_a_band(levels, bits_out, images, name, threads):
    """Kernels walk 64 tiles, or 128 squares, with one block of weights, from inside one image into another."""
    rng = np.random.default_rng(0)
    x, w = rng.choice(levels, (images, 13, 19, 70)), rng.choice((-1, 1), (100, 3, 3, 35))
    a, b = qa.encode(x, levels), qa.encode(w, (-1, 1))
    expected = naive.conv2d(x, w, padding=((1, 1), (1, 1)), groups=2)
    limit = qa.Thresholds(rng.integers(-9, 9, (100, 1))) if bits_out else None
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(min(threads, before))
        with products_by(name):
            got = qa.conv2d(a, b, padding=1, groups=2, requantize=limit)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(
        got if limit is None else got.codes(), expected if limit is None else limit(expected.astype(np.int32)).codes()
    )


TWO_LEVELS = [(-1, 1), (1, -1), (0, 1), (0, -2), (0, 3), (-4, 4), (5, 1)]


@pytest.mark.parametrize(
    "groups, channels, outputs", [(1, 70, 70), (1, 32, 6), (1, 64, 60), (1, 64, 210), (2, 64, 64), (3, 96, 180)]
)
@pytest.mark.parametrize("w_levels", TWO_LEVELS)
@pytest.mark.parametrize("x_levels", TWO_LEVELS)
def test_counts_against_one_threshold(x_levels, w_levels, groups, channels, outputs):
    """Steps that are powers of two or not, of either sign; thresholds at results and next to them; and the results."""
    rng = np.random.default_rng(0)
    x, w = rng.choice(x_levels, (2, 5, 6, channels)), rng.choice(w_levels, (outputs, 3, 3, channels // groups))
    bias, a, b = rng.integers(-9, 9, outputs), qa.encode(x, x_levels), qa.encode(w, w_levels)
    geometry = {"padding": ((1, 1), (1, 1)), "groups": groups}
    expected = naive.conv2d(x, w, stride=(1, 1), dilation=(1, 1), **geometry) + bias
    some = np.array([rng.choice(expected[..., o].ravel()) for o in range(outputs)])[:, None]
    greater, strict = rng.random((2, outputs)) < 0.5
    limits = some - rng.integers(0, 2, some.shape)
    law = qa.Thresholds(limits, greater=greater, strict=strict)
    above = np.where(strict == greater, expected > limits[:, 0], expected >= limits[:, 0])
    got = qa.conv2d(a, b, bias=bias, requantize=law, padding=1, groups=groups)
    validate(got)
    np.testing.assert_array_equal(got.codes(), np.where(greater, above, ~above))
    for dtype in (np.int32, np.int64):
        got = qa.conv2d(a, b, bias=bias, padding=1, groups=groups, out_dtype=dtype)
        np.testing.assert_array_equal(got, expected.astype(dtype), strict=True)


@pytest.mark.parametrize("outputs", [1, 40])
def test_steps_beyond_int32(outputs):
    """Results of int32 are summed modulo 2**32; here the product of two steps is 2**32, and thresholds are larger."""
    levels = (-32767, 32769)
    rng = np.random.default_rng(0)
    x, w = rng.choice(levels, (1, 6, 7, 1)), rng.choice(levels, (outputs, 1, 1, 1))
    a, b, expected = qa.encode(x, levels), qa.encode(w, levels), naive.conv2d(x, w)
    got = qa.conv2d(a, b)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, expected)
    for limits in [-(2**40)], [2**40], [levels[0] * levels[1]], [-(2**40), -(2**31), 0, 2**31 - 1, 2**40]:
        made = qa.conv2d(a, b, requantize=qa.Thresholds(limits))
        np.testing.assert_array_equal(made.codes(), np.searchsorted(limits, expected))


@pytest.mark.parametrize("elements", [1, 576, 577, 3000, 4608, 4609, 10000])
@pytest.mark.parametrize(("x_levels", "w_levels"), [((0, 255), (-128, 127)), ((0, 255), (0, 255)), ((7, -8), (-7, 8))])
def test_largest_sums_of_bytes(elements, x_levels, w_levels):
    """Contractions of one stretch and of several, where every product is as large as it can be."""
    (low, high), (first, last) = map(sorted, (x_levels, w_levels))
    rng = np.random.default_rng(elements)
    x, w = rng.choice(x_levels, (9, elements)), rng.choice(w_levels, (70, elements))
    x[0], w[0], w[1] = x_levels[1], w_levels[1], w_levels[0]
    with products_by("dot"):
        got = qa.linear(qa.encode(x, range(low, high + 1)), qa.encode(w, range(first, last + 1)))
    assert_bits(got, (x @ w.T).astype(np.int32))


def results_to_write():
    rng = np.random.default_rng(0)
    x, w = (
        qa.encode(rng.choice([-1, 1], (2, 6, 5, 40)), (-1, 1)),
        qa.encode(rng.choice([-1, 1], (35, 3, 3, 40)), (-1, 1)),
    )
    first, real = (
        qa.encode(x.dequantize().transpose(0, 3, 1, 2), (-1, 1), axis=1),
        qa.from_codes(w.codes(), w.dtype, scale=0.5),
    )
    deep = qa.encode(rng.choice([-1, 1], (40, 3, 3, 1)), (-1, 1), axis=0)
    image = rng.integers(0, 256, (2, 6, 5, 3)).astype(np.uint8)
    of_image = qa.encode(rng.choice([-1, 1], (35, 3, 3, 3)), (-1, 1))
    rows, table = qa.encode(rng.choice([-1, 1], (2, 4, 70)), (-1, 1)), qa.encode(rng.choice([-1, 1], (9, 70)), (-1, 1))
    return {
        "integers": lambda **how: qa.conv2d(x, w, padding=1, **how),
        "bias": lambda **how: qa.conv2d(x, w, bias=np.arange(35), **how),
        "channels first": lambda **how: qa.conv2d(first, w.transpose(0, 3, 1, 2), data_format="NCHW", **how),
        "floats": lambda **how: qa.conv2d(x, real, padding=1, **how),
        "depthwise": lambda **how: qa.conv2d(x, deep, groups=40, **how),
        "image": lambda **how: qa.conv2d(image, of_image, padding=1, **how),
        "no channels": lambda **how: qa.conv2d(x[..., :0], w[..., :0], bias=np.arange(35), **how),
        "linear": lambda **how: qa.linear(rows, table, **how),
        "linear of floats": lambda **how: qa.linear(rows, table * 0.5, **how),
        "linear of nothing": lambda **how: qa.linear(rows[..., :0], table[..., :0], **how),
    }


@pytest.mark.parametrize("name", results_to_write())
def test_results_are_written_where_the_caller_says(name):
    call = results_to_write()[name]
    expected = call()
    for out in (np.full_like(expected, 7), np.full((*expected.shape, 2), 7, expected.dtype)[..., 1]):
        assert call(out=out) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", results_to_write())
def test_float32_results_are_rounded_to_narrower_arrays(name):
    call = results_to_write()[name]
    expected, bfloat16 = call(), pytest.importorskip("ml_dtypes").bfloat16
    for kind in (np.float16, bfloat16):
        out = np.zeros(expected.shape, kind)
        if expected.dtype == np.float32:
            assert call(out=out) is out
            np.testing.assert_array_equal(out, expected.astype(kind))
        else:
            with pytest.raises(ValueError, match="out must be a writable NumPy array"):
                call(out=out)


@pytest.mark.parametrize("name", ["integers", "channels first", "linear"])
def test_arrays_that_cannot_take_the_result(name):
    call = results_to_write()[name]
    right = call()
    fixed = right.copy()
    fixed.flags.writeable = False
    for out in (right.astype(np.int64), right[..., 1:].copy(), fixed, right.tolist()):
        with pytest.raises(ValueError, match=r"(conv2d|linear): out must be a writable NumPy array of int32 \("):
            call(out=out)
    with pytest.raises(TypeError, match="out takes dense results"):
        call(out=right, requantize=qa.Thresholds([0]))


@pytest.mark.parametrize("sign", [1, -1])
def test_thresholds_of_sums_that_int32_just_holds(sign):
    """Add the fixed part where bits differ, 3000 * 2**20: it is that of a pixel of code 3, which these levels lack."""
    rng, levels, k = np.random.default_rng(0), np.array([0, 2**20, 2**21]), 1000
    x, w = rng.choice(levels, (1, 3, 3, k)), rng.choice([-1, 1], (40, 1, 1, k))
    x[0, 0, 0], w[0], w[1] = levels[-1], sign, -sign
    expected = naive.conv2d(x, w, (1, 1), ((0, 0), (0, 0)), (1, 1))
    ours = qa.encode(x, levels.tolist()), qa.encode(w, (-1, 1))
    assert qa.conv2d(*ours).dtype == np.int32 and expected.max() == k * 2**21
    np.testing.assert_array_equal(qa.conv2d(*ours), expected)
    for threshold in (-(2**30), 0, 2**30, k * 2**21 - 2**19):
        law = qa.Thresholds([threshold])
        np.testing.assert_array_equal(qa.conv2d(*ours, requantize=law).codes(), law(expected).codes())


def test_a_band_of_squares_is_whole_tiles():
    """If one square of a tile exists, all rows of the tile are read, and what they refer to."""
    for length in range(1, 5000):
        assert winograd.band_of(length) % 4 == 0 < winograd.band_of(length)
