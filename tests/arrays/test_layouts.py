"""What kernels keep of an array: never more than its bytes and a little, and told as it is."""

import gc
import threading
import tracemalloc
from importlib.resources import files

import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays.layouts import Buffers, room

RNG = np.random.default_rng(0)


def array(dtype, shape, axis=-1, **constants):
    return qa.from_codes(RNG.integers(0, dtype.n_levels, shape).astype(np.uint8), dtype, axis=axis, **constants)


def exact(x, w):
    return x.dequantize().astype(np.int64) @ w.dequantize().astype(np.int64).T


def layers(rows, k, x_dtype=qa.int8):
    """Calls that choose different kernels: rows of codes, of bytes, and of scaled codes."""
    yield array(x_dtype, (rows, k))
    yield RNG.integers(-128, 128, (rows, k)).astype(np.int8)
    yield array(x_dtype, (rows, k), scale=np.float32(0.5))


@pytest.mark.parametrize("rows", [1, 8, 64])
@pytest.mark.parametrize("scale", [{}, {"scale": np.float32(0.1)}])
def test_a_ternary_layer(rows, scale):
    w = array(qa.ternary, (2560, 6912), **scale)
    for x in layers(rows, 6912):
        for _ in range(2):
            qa.linear(x, w)
        assert w.nbytes_cached <= w.nbytes + room(w.nbytes)


def test_a_chain_of_calls_keeps_one_layout():
    """One layout is kept for any kernels in any order, and results stay the same."""
    w = array(qa.ternary, (1280, 3456))
    calls = [x for rows in (1, 8, 64) for x in (*layers(rows, 3456), *layers(rows, 3456, qa.ternary))]
    fresh = [qa.linear(x, w.copy()) for x in calls]
    for i in (*range(len(calls)), *reversed(range(len(calls)))):
        np.testing.assert_array_equal(qa.linear(calls[i], w), fresh[i])
        assert w.nbytes_cached <= w.nbytes + room(w.nbytes)


@pytest.mark.parametrize("bits", range(1, 9))
def test_weights_of_any_bits(bits):
    dtype = getattr(qa, f"uint{bits}")
    w = array(dtype, (1024, 2048))
    for rows in (1, 64):
        x = array(dtype, (rows, 2048))
        np.testing.assert_array_equal(qa.linear(x, w), exact(x, w))
        assert w.nbytes_cached <= w.nbytes + room(w.nbytes)


def test_a_search_table():
    """The sums alone are a tenth of rows of 128 bytes, so some rows are laid out in each call."""
    table = array(qa.int8, (60000, 96))
    for rows in (1, 5):
        query = array(qa.int8, (rows, 96))
        np.testing.assert_array_equal(qa.linear(query, table), exact(query, table))
        assert 0.8 * table.nbytes < table.nbytes_cached <= table.nbytes + room(table.nbytes)
    found = qa.linear(query, table, requantize=qa.Thresholds(np.arange(60000)[:, None] - 30000))
    assert qa.array_equal(found, qa.Thresholds(np.arange(60000)[:, None] - 30000)(exact(query, table)))
    biased = qa.linear(query, table, bias=np.arange(60000))
    np.testing.assert_array_equal(biased, exact(query, table) + np.arange(60000))
    out = np.empty_like(biased)
    assert qa.linear(query, table, bias=np.arange(60000), out=out) is out
    np.testing.assert_array_equal(out, biased)


LAYERS = {
    "1x1": lambda bits, c: ((2 * c, 1, 1, c), {}),
    "3x3": lambda bits, c: ((c, 3, 3, c), {"padding": 1}),
    "grouped": lambda bits, c: ((c, 3, 3, c // 4), {"groups": 4}),
    "small groups": lambda bits, c: ((2 * c, 3, 3, 4), {"groups": c // 4}),
    "ragged": lambda bits, c: ((40, 3, 3, c), {}),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_convolutions(name, bits):
    c, dtype = 256, getattr(qa, f"uint{bits}")
    shape, options = LAYERS[name](bits, c)
    w, steps = array(dtype, shape), qa.Thresholds([100.0, 2000.0, 9000.0], into=qa.uint2)
    for x in (array(dtype, (1, 7, 7, c)), array(dtype, (1, 7, 7, c), scale=np.float32(0.5))):
        for more in ({}, {"requantize": steps}):
            got, fresh = (qa.conv2d(x, v, **options, **more) for v in (w, w.copy()))
            assert qa.array_equal(got, fresh) if more else np.array_equal(got, fresh)
            assert w.nbytes_cached <= w.nbytes + room(w.nbytes) + plans(w)


def plans(w):
    """Bytes that go with pixels and thresholds."""
    return sum(Buffers(w._cache.values(), [w.words]).others.values())


def test_layouts_of_views_count_for_the_array():
    w, a, b = array(qa.uint2, (1024, 4096)), array(qa.uint2, (1, 4096)), array(qa.uint2, (64, 4096))
    for _ in range(2):
        first, second = qa.linear(a, w), b @ w.T
        assert w.nbytes_cached <= w.nbytes + room(w.nbytes)
    np.testing.assert_array_equal(first, exact(a, w))
    np.testing.assert_array_equal(second, exact(b, w))


def test_bytes_that_are_told_are_those_that_are_held():
    w = array(qa.uint2, (1024, 4096))
    x = [array(qa.uint2, (rows, 4096)) for rows in (1, 64)]
    images, kernel = array(qa.uint2, (2, 16, 16, 64)), array(qa.uint2, (64, 3, 3, 64))
    for _ in range(2):  # compile, and fill what all arrays share
        qa.linear(x[0], w), qa.linear(x[1], w), qa.conv2d(images, kernel, padding=1)
    w.drop_cache(), kernel.drop_cache()
    gc.collect()
    tracemalloc.start()
    for call, v in ((lambda: qa.linear(x[0], w), w), (lambda: qa.conv2d(images, kernel, padding=1), kernel)):
        before = tracemalloc.get_traced_memory()[0]
        call()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        assert abs(held - v.nbytes_cached) <= 0.01 * v.nbytes + plans(v) + 24_000, (held, v.nbytes_cached)
    tracemalloc.stop()
    assert f"{w.nbytes} bytes + {w.nbytes_cached} cached" in repr(w)
    w.drop_cache()
    assert w.nbytes_cached == 0 and "cached" not in repr(w)


def test_layouts_are_dropped_while_threads_use_them():
    w = array(qa.ternary, (512, 2304))
    calls = [x for rows in (1, 8, 64) for x in layers(rows, 2304)]
    fresh, wrong = [qa.linear(x, w.copy()) for x in calls], []

    def work(start):
        for i in range(start, start + 40):
            if not np.array_equal(qa.linear(calls[i % len(calls)], w), fresh[i % len(calls)]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        w.drop_cache()
    for thread in threads:
        thread.join()
    assert not wrong and w.nbytes_cached <= w.nbytes + room(w.nbytes)


def test_uneven_levels_are_not_kept_on_more_planes():
    """Levels 0, 1 and 65535 of 2 bits take 16 planes: 8 times the words, of which nothing is kept."""
    dtype = qa.integers(0, 1, 65535)
    w, x = array(dtype, (512, 4096)), array(qa.bipolar, (3, 4096))
    np.testing.assert_array_equal(qa.linear(x, w), exact(x, w))
    assert w.nbytes_cached <= w.nbytes + room(w.nbytes)
    kernel, images = array(dtype, (256, 3, 3, 128)), array(qa.bipolar, (1, 5, 5, 128))
    got = qa.conv2d(images, kernel)
    rows = np.lib.stride_tricks.sliding_window_view(images.dequantize(), (3, 3), axis=(1, 2))
    expected = np.einsum("nijcab,oabc->nijo", rows.astype(np.int64), kernel.dequantize().astype(np.int64))
    np.testing.assert_array_equal(got, expected)
    assert kernel.nbytes_cached <= kernel.nbytes + room(kernel.nbytes)


# compact networks


@pytest.mark.parametrize(("dtype", "k"), [(qa.bipolar, 4096), (qa.ternary, 2048), (qa.uint8, 1000)])
def test_a_compact_layer_holds_its_weight_once(dtype, k, tmp_path):
    w = array(dtype, (512, k))
    codes, digest, x = w.codes(), w.digest(), [array(qa.uint4, (rows, k)) for rows in (1, 64)]
    expected = [exact(q, w) for q in x]
    layer = qa.nn.Dense(w).compact()
    for q, result in zip(x * 2, expected * 2, strict=True):
        np.testing.assert_array_equal(layer(q), result)
        assert w.nbytes_cached <= room(w.nbytes)
    assert (w.codes() == codes).all() and w.digest() == digest
    np.testing.assert_array_equal(w.dequantize(), w.copy().dequantize())
    qa.save(tmp_path / "w.npz", w)
    assert qa.array_equal(qa.load(tmp_path / "w.npz"), w)
    assert not w.words.flags.writeable and w[3:5].digest() == qa.from_codes(codes, dtype)[3:5].digest()


def test_a_compact_convolution():
    w, x = array(qa.uint2, (64, 3, 3, 128)), array(qa.uint2, (2, 9, 9, 128))
    layer, digest = qa.nn.Conv2d(w, padding=1), w.digest()
    before = layer(x)
    held = w.nbytes + w.nbytes_cached - plans(w)
    np.testing.assert_array_equal(layer.compact()(x), before)
    assert w.nbytes + w.nbytes_cached - plans(w) <= held - 0.9 * w.nbytes and w.digest() == digest


def test_a_compact_network_is_the_same():
    network = qa.nn.load_network(files("quantarray") / "data" / "digits.npz")
    x = network.plain.input[:50]
    before, digests = network(x), [w.digest() for w in network.layers.weights]
    assert network.compact() is network
    for _ in range(2):
        np.testing.assert_array_equal(network(x), before)
    assert [w.digest() for w in network.layers.weights] == digests


def test_a_class_among_arguments_has_no_bytes():
    """np.int64, the class, has attributes `nbytes` and `strides` as arrays have."""
    a = qa.encode(np.ones((2, 64), int), values=(-1, 1))
    b = a.T
    assert qa.matmul(a, b, out_dtype=np.int64).tolist() == [[64, 64], [64, 64]]
    assert qa.matmul(a, b, out_dtype=np.int64, requantize=qa.Thresholds([0])).codes().all()
    assert a.nbytes_cached >= 0 and b.nbytes_cached > 0
