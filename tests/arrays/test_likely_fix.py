"""Mistakes that users make at first, and the likely fix that each message must name."""

import numpy as np
import pytest

import quantarray as qa

F = np.random.default_rng(0).standard_normal


def packed(*shape, axis=-1):
    return qa.quantize(F(shape), qa.Sign(), axis=axis)


X, W = packed(1, 10, 12, 64), packed(8, 3, 3, 64)
NCHW, OIHW = packed(1, 64, 10, 12, axis=1), packed(8, 64, 3, 3, axis=1)
ROWS, MATRIX = packed(5, 70), packed(9, 70)
BYTES = np.ones((1, 10, 12, 64), np.int8)
IMAGE = packed(10, 12, 64)

MISTAKES = {
    "swapped x and w": (lambda: qa.conv2d(W, X), ["conv2d(x, w) takes the images first"]),
    "bytes swapped": (lambda: qa.conv2d(W, BYTES), ["are they swapped?", "conv2d(x, w)"]),
    "bytes swapped in linear": (lambda: qa.linear(MATRIX, np.ones((2, 70), np.int8)), ["swapped?", "linear(x, w)"]),
    "NCHW, packed on its channels": (lambda: qa.conv2d(NCHW, OIHW), ['pass data_format="NCHW"']),
    "NHWC, given as NCHW": (lambda: qa.conv2d(X, W, data_format="NCHW"), ['pass data_format="NHWC"']),
    "NCHW, packed on its last axis": (
        lambda: qa.conv2d(packed(1, 64, 10, 12), packed(8, 64, 3, 3)),
        ["axis=1", 'data_format="NCHW"'],
    ),
    "OIHW weights": (lambda: qa.conv2d(X, packed(8, 64, 3, 3)), ["w.transpose(0, 2, 3, 1)", "axis=3"]),
    "HWIO weights": (lambda: qa.conv2d(X, packed(3, 3, 64, 8)), ["w.transpose(3, 0, 1, 2)", "[kh kw c/groups o]"]),
    "NCHW images with OHWI weights": (lambda: qa.conv2d(packed(1, 64, 10, 12), W), ["x.transpose(0, 2, 3, 1)"]),
    "groups left out": (lambda: qa.conv2d(X, packed(8, 3, 3, 32)), ["groups=2"]),
    "no batch axis": (lambda: qa.conv2d(IMAGE, W), ["x[None] adds the batch axis"]),
    "a matrix for a convolution": (lambda: qa.conv2d(X, MATRIX), ["linear takes weights [o k]"]),
    "weights of one channel": (lambda: qa.conv2d(X, W[0]), ["w[None]"]),
    "padding in capitals": (lambda: qa.conv2d(X, W, padding="SAME"), ["write 'same'"]),
    "padding of ONNX": (lambda: qa.conv2d(X, W, padding="SAME_UPPER"), ["write 'same'"]),
    "padding by four": (lambda: qa.conv2d(X, W, padding=[1, 1, 1, 1]), ["((top, bottom), (left, right)) here"]),
    "channels_last": (lambda: qa.conv2d(X, W, data_format="channels_last"), ["write 'NHWC'"]),
    "nchw": (lambda: qa.conv2d(NCHW, OIHW, data_format="nchw"), ["write 'NCHW'"]),
    "floats": (lambda: qa.conv2d(F((1, 10, 12, 64)), W), ["quantize(x, quantizer)", "float64 array"]),
    "float weights": (lambda: qa.conv2d(X, F((8, 3, 3, 64))), ["quantize(x, quantizer)", "float64 array"]),
    "wide integers": (lambda: qa.linear(np.ones((1, 70), np.int32), MATRIX), ["x.astype(np.int8) or np.uint8"]),
    "linear by [k o]": (lambda: qa.linear(ROWS, packed(70, 9)), ["quantize or encode its transpose"]),
    "linear of floats by [k o]": (lambda: qa.linear(F((5, 70)).astype("f"), packed(70, 9)), ["encode its transpose"]),
    "linear by [k o], packed on k": (lambda: qa.linear(ROWS, packed(70, 9, axis=0)), ["pass w.T", "matmul(x, w)"]),
    "linear of float64": (lambda: qa.linear(F((1, 70)), MATRIX, quantize_x="row"), ["x.astype(np.float32)"]),
    "matmul of floats": (lambda: qa.matmul(F((1, 70)).astype("f"), MATRIX.T), ["linear(x, w)"]),
    "linear by a convolution's weights": (lambda: qa.linear(ROWS, W), ["conv2d takes weights"]),
    "matmul by [o k]": (lambda: qa.matmul(ROWS, MATRIX), ["b.T", "linear"]),
    "bits in place of a quantiser": (lambda: qa.quantize(F((3, 4)), 2), ["bits=2", "Uniform(2)"]),
    "too many bits": (lambda: qa.quantize(F((3, 4)), 9), ["bits= takes 1 to 8"]),
    "a law of results": (lambda: qa.quantize(F((3, 4)), qa.uniform(2)), ["Uniform(2) a quantiser"]),
    "a dtype of integers": (lambda: qa.quantize(F((3, 4)), qa.uint2), ["encode(x, values=uint2)"]),
    "thresholds [T, channels]": (
        lambda: qa.linear(ROWS, MATRIX, requantize=qa.Thresholds(np.arange(float(len(MATRIX)))[None])),
        ["values.T", "per_channel=True"],
    ),
    "a class": (lambda: qa.quantize(F((3, 4)), qa.Sign), ["the class Sign: call it"]),
    "a name": (lambda: qa.quantize(F((3, 4)), "sign"), ["quantarray.Sign()"]),
    "pooling of NCHW": (lambda: qa.max_pool2d(NCHW, 2), ['pass data_format="NCHW"']),
    "pooling of NHWC as NCHW": (lambda: qa.avg_pool2d(X, 2, data_format="NCHW"), ['pass data_format="NHWC"']),
    "pooling without a batch axis": (lambda: qa.max_pool2d(IMAGE, 2), ["x[None] adds the batch axis"]),
    "pooling padding": (lambda: qa.max_pool2d(X, 2, padding="Valid"), ["write 'valid'"]),
    "float layer": (lambda: qa.nn.Conv2d(F((8, 3, 3, 64))), ["quantize(weight, Sign(scale=True), scale_axis=0)"]),
    "OIHW layer": (lambda: qa.nn.Conv2d(OIHW), ["weight.transpose(0, 2, 3, 1)"]),
    "[k o] layer": (lambda: qa.nn.Dense(packed(70, 9, axis=0)), ["weight.T"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_message_names_the_fix(mistake):
    call, words = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == [], caught.value


FIXES = {
    "NCHW": lambda: qa.conv2d(NCHW, OIHW, data_format="NCHW"),
    "OIHW": lambda: qa.conv2d(X, qa.quantize(F((8, 64, 3, 3)).transpose(0, 2, 3, 1), qa.Sign(), axis=3)),
    "HWIO": lambda: qa.conv2d(X, qa.quantize(F((3, 3, 64, 8)).transpose(3, 0, 1, 2), qa.Sign(), axis=3)),
    "groups": lambda: qa.conv2d(X, packed(8, 3, 3, 32), groups=2),
    "same": lambda: qa.conv2d(X, W, padding="same"),
    "four": lambda: qa.conv2d(X, W, padding=((1, 1), (1, 1))),
    "batch": lambda: qa.conv2d(IMAGE[None], W),
    "w.T": lambda: qa.linear(ROWS, packed(70, 9, axis=0).T),
    "matmul": lambda: qa.matmul(ROWS, packed(70, 9, axis=0)),
    "bits": lambda: qa.quantize(F((3, 4)), bits=2),
    "weight.T": lambda: qa.nn.Dense(packed(70, 9, axis=0).T),
    "layer": lambda: qa.nn.Conv2d(OIHW.transpose(0, 2, 3, 1)),
}


@pytest.mark.parametrize("fix", FIXES)
def test_the_fix_works(fix):
    assert FIXES[fix]() is not None
