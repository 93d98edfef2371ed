"""Calls prepared once, which are kept on the weights."""

import naive
import numpy as np
import pytest
from results import assert_bits

import quantarray as qa


def test_a_second_call_is_prepared_by_its_own_arguments():
    """Each argument that changes the result changes what is kept: calls in any order give what a fresh w gives."""
    rng = np.random.default_rng(0)
    images = [qa.encode(rng.choice([-1, 1], (n, h, 5, 6)), (-1, 1)) for n, h in ((1, 5), (3, 5), (2, 6))]
    images += [
        qa.encode(rng.integers(0, 4, (1, 5, 5, 6)), range(4)),
        qa.from_codes(rng.integers(0, 2, (1, 5, 5, 6)), qa.bipolar, scale=0.5),
        qa.from_codes(rng.integers(0, 2, (2, 5, 5, 6)), qa.bipolar, scale=rng.random((2, 1, 1, 1))),
        qa.from_codes(rng.integers(0, 2, (2, 5, 5, 6)), qa.bipolar, scale=3.0),
        rng.integers(0, 256, (1, 5, 5, 6)).astype(np.uint8),
        rng.integers(-9, 9, (1, 5, 5, 6)).astype(np.int8),
    ]
    options = [{}, {"padding": 1}, {"padding": [1, 1]}, {"padding": 1, "pad_value": 2}, {"stride": 2}, {"dilation": 2}]
    options += [{"bias": np.arange(4) + b} for b in (0, 1)] + [{"bias": np.arange(4.0)}, {"out_dtype": np.int64}]
    options += [{"requantize": qa.Thresholds([t])} for t in (0, 9)] + [{"flip_kernel": True}]
    codes = rng.choice([-1, 1], (4, 3, 3, 6))
    w = qa.encode(codes, (-1, 1))
    for _ in range(2):
        for x in images:
            for how in options:
                if "out_dtype" in how and getattr(x, "scale", None) is not None:
                    continue
                got, expected = (qa.conv2d(x, v, **how) for v in (w, qa.encode(codes, (-1, 1))))
                if "requantize" in how:
                    assert qa.array_equal(got, expected)
                else:
                    assert_bits(got, expected)
    assert w.nbytes_cached > 0
    w.drop_cache()
    assert w.nbytes_cached == 0


def test_the_latest_call_again():
    """The same options with another x, lists and biases that were changed since, and another device."""
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 1], (4, 3, 3, 6))
    w, pads, bias = qa.encode(codes, (-1, 1)), [0, 0], np.arange(4)
    for n, height, pad in ((1, 5, 1), (1, 5, 0), (3, 5, 0), (3, 6, 1)):
        pads[:] = pad, pad
        x = rng.choice([-1, 1], (n, height, 5, 6))
        for _ in range(2):
            got = qa.conv2d(qa.encode(x, (-1, 1)), w, padding=pads)
            assert_bits(got, naive.conv2d(x, codes, padding=pad).astype(np.int32))
    for _ in range(2):
        bias += 1
        got = qa.conv2d(qa.encode(x, (-1, 1)), w, bias=bias)
        assert_bits(got, (naive.conv2d(x, codes) + bias).astype(np.int32))
    for scale in (0.5, 0.5, 2.0):
        got = qa.conv2d(qa.encode(x, (-1, 1)) * np.float32(scale), w)
        assert_bits(got, (naive.conv2d(x, codes) * scale).astype(np.float32))

    class Elsewhere(qa.QuantArray):
        device = "cuda:0"

    x = qa.encode(x, (-1, 1))
    qa.conv2d(x, w)
    with pytest.raises(qa.DeviceError, match="x on cuda:0, w on cpu"):
        qa.conv2d(Elsewhere(x.words, x.dtype, x.shape, x.axis), w)


def test_equal_is_not_the_same_to_checks():
    x, w = qa.encode(np.ones((1, 3, 3, 4), int), (-1, 1)), qa.encode(np.ones((1, 1, 1, 4), int), (-1, 1))
    for name in ("stride", "dilation", "groups"):
        qa.conv2d(x, w, **{name: 1})
        with pytest.raises(TypeError, match=f"conv2d: {name} must be an integer, got True"):
            qa.conv2d(x, w, **{name: True})


def test_images_of_ever_new_sizes_do_not_pile_up():
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 1], (2, 1, 2, 3))
    w = qa.encode(codes, (-1, 1))
    for width in range(2, 150):
        x = rng.choice([-1, 1], (1, 1, width, 3))
        assert_bits(qa.conv2d(qa.encode(x, (-1, 1)), w), naive.conv2d(x, codes).astype(np.int32))
    assert len(w._cache) <= 128
