"""Every public error: its type, and a message with the op, what was needed, what came, and the fix.

Warnings are errors here: a call that is refused says so once.
"""

import warnings

import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays import checks
from quantarray.backends.registry import kernel

BIG = 33_026  # the first n with n * 255 * 255 >= 2**31
UNIT = np.ones(1, np.float32)


def signs(*shape, axis=-1):
    """An array of ones in {-1, 1}."""
    return qa.encode(np.ones(shape, np.int8), (-1, 1), axis)


def image(*shape, axis=-1):
    return signs(*(shape or (2, 5, 5, 64)), axis=axis)


def weights(*shape, axis=-1):
    return signs(*(shape or (8, 3, 3, 64)), axis=axis)


def scaled(*shape, along=None, group=None, axis=-1):
    """An array with a fitted scale that varies along some axes."""
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    return qa.quantize(x, qa.Sign(scale=True), axis, scale_axis=along, group=group)


def table(bits, *shape):
    values = np.arange(2.0**bits)
    return qa.from_codes(np.zeros(shape, int), qa.table(bits), table=values)


def bytes_255(*shape):
    return qa.from_codes(np.full(shape, 255), qa.uint8)


def masked(dtype):
    return np.ma.masked_array(np.ones((2, 5, 5, 64), dtype), True)


def thresholds(channels=8):
    return qa.Thresholds(np.zeros((channels, 1)))


def affine(channels):
    return qa.Affine(np.ones(channels), np.zeros(channels))


class Elsewhere(qa.QuantArray):
    """An array that says it is on a GPU."""

    @property
    def device(self):
        return "cuda:0"


def elsewhere(*shape):
    q = signs(*shape)
    return Elsewhere(q.words, q.dtype, q.shape, q.axis)


class Scheme(qa.Quantizer):
    """A quantiser of a caller's own that gives these codes and constants, whatever it is asked."""

    dtype, fixed = qa.ternary, True

    def __init__(self, codes, constants=None, monotone=False):
        self.codes, self.constants, self.monotone = codes, constants or qa.Constants(), monotone

    def fit(self, x, axes):
        return self.constants

    def encode(self, x, constants):
        return self.codes(x) if callable(self.codes) else self.codes

    def __repr__(self):
        return "Scheme()"


def batch_norm(op=qa.fold_batchnorm, into=None, **changed):
    given = {"gamma": UNIT, "beta": UNIT, "mean": UNIT, "var": UNIT, **changed}
    return op(**given, into=qa.Sign() if into is None else into)


def fold(f, into=None, of=range(-9, 10), **others):
    return qa.fold(f, into=qa.Uniform(2, step=1.0) if into is None else into, of=of, **others)


def assign(q, key, value):
    q[key] = value


# op -> cases (call, error, what the message must hold besides the op)
CASES = {
    "conv2d": [
        # operands
        (lambda: qa.conv2d(np.ones((2, 5, 5, 64)), weights()),
         TypeError, "x must be a QuantArray or an int8/uint8 array", "float64 array (2, 5, 5, 64)", "quantize("),
        (lambda: qa.conv2d(np.ones((2, 5, 5, 64), complex), weights()), TypeError, "complex128 array"),
        (lambda: qa.conv2d(np.ones((2, 5, 5, 64), object), weights()), TypeError, "object array"),
        (lambda: qa.conv2d(np.full((2, 5, 5, 64), "a"), weights()), TypeError, "<U1 array"),
        (lambda: qa.conv2d(np.ones((2, 5, 5, 64), np.int32), weights()), TypeError, "int32 array (2, 5, 5, 64)"),
        (lambda: qa.conv2d(masked(np.int8), weights()), TypeError, "masked int8 array"),
        (lambda: qa.conv2d([[1, 2]], weights()), TypeError, "got list"),
        (lambda: qa.conv2d(None, weights()), TypeError, "got NoneType"),
        (lambda: qa.conv2d(image(), np.ones((8, 3, 3, 64))),
         TypeError, "w must be a QuantArray", "float64 array (8, 3, 3, 64)", "encode("),
        (lambda: qa.conv2d(image(), np.ones((8, 3, 3, 64), np.int8)), TypeError, "w must be a QuantArray", "int8"),
        (lambda: qa.conv2d(image(), qa.QuantArray), TypeError, "got the class QuantArray"),
        # shapes and axes
        (lambda: qa.conv2d(image(5, 5, 64), weights()),
         ValueError, "x [n h w c] and w [o kh kw c/groups]", "(5, 5, 64) and (8, 3, 3, 64)", "x[None]"),
        (lambda: qa.conv2d(image(5, 64), weights()), ValueError, "(5, 64) and (8, 3, 3, 64)"),
        (lambda: qa.conv2d(np.array(1, np.int8), weights()), ValueError, "got () and (8, 3, 3, 64)"),
        (lambda: qa.conv2d(image(), weights(3, 3, 64)), ValueError, "(2, 5, 5, 64) and (3, 3, 64)"),
        (lambda: qa.conv2d(image(2, 5, 5, 64, axis=1), weights()),
         ValueError, "NHWC needs x packed on its channel axis 3", "(2, 5, 5, 64) packed on axis 1", "axis=3"),
        (lambda: qa.conv2d(image(2, 64, 5, 5, axis=1), weights()), ValueError, 'data_format="NCHW"'),
        (lambda: qa.conv2d(image(), weights(8, 64, 3, 3, axis=1), data_format="NCHW"),
         ValueError, "NCHW needs x packed on its channel axis 1", "packed on axis 3"),
        (lambda: qa.conv2d(image(), weights(8, 3, 3, 64, axis=1)),
         ValueError, "needs w packed on its input channel axis 3", "(8, 3, 3, 64) packed on axis 1", "axis=3"),
        (lambda: qa.conv2d(image(), weights(8, 3, 3, 64, axis=0)), ValueError, "on axis 0 if groups = channels"),
        (lambda: qa.conv2d(image(), weights(8, 3, 3, 63)),
         ValueError, "64 channels (axis 3 of (2, 5, 5, 64))", "w takes 63", "w (8, 3, 3, 63)"),
        # no taps, no room
        (lambda: qa.conv2d(image(), weights()[:, :0]), ValueError, "at least one tap", "(8, 0, 3, 64)"),
        (lambda: qa.conv2d(image()[:, :2], weights()),
         ValueError, "window of 3x3", "does not fit into the image 2x5", "padding ((0, 0), (0, 0))"),
        (lambda: qa.conv2d(image()[:, :, :0], weights()), ValueError, "does not fit into the image 5x0"),
        (lambda: qa.conv2d(image(), weights(), dilation=(1, 3)), ValueError, "dilation (1, 3) does not fit"),
        # groups
        (lambda: qa.conv2d(image(), weights(), groups=2),
         ValueError, "64 in each of 2 groups", "channels = 64 * groups"),
        (lambda: qa.conv2d(image(), weights(7, 3, 3, 32), groups=2), ValueError, "outputs a multiple of groups"),
        (lambda: qa.conv2d(image(), weights(), groups=0), ValueError, "groups must be at least 1, got 0"),
        (lambda: qa.conv2d(image(), weights(), groups=1.0), TypeError, "groups must be an integer, got 1.0"),
        (lambda: qa.conv2d(image(), weights(), groups=True), TypeError, "groups must be an integer, got True"),
        # geometry
        (lambda: qa.conv2d(image(), weights(), stride=0), ValueError, "stride must be at least 1, got 0"),
        (lambda: qa.conv2d(image(), weights(), stride=1.5), TypeError, "stride must be an integer, got 1.5"),
        (lambda: qa.conv2d(image(), weights(), stride=(1, "2")), TypeError, "stride must be an integer, got '2'"),
        (lambda: qa.conv2d(image(), weights(), stride=(1, 2, 3)),
         ValueError, "stride must be an integer or two (height, width), got (1, 2, 3)"),
        (lambda: qa.conv2d(image(), weights(), stride=2**70), ValueError, "stride must be at most 2147483647"),
        (lambda: qa.conv2d(image(), weights(), dilation=0), ValueError, "dilation must be at least 1, got 0"),
        (lambda: qa.conv2d(image(), weights(), dilation=2**62), ValueError, "dilation must be at most"),
        (lambda: qa.conv2d(image(), weights(), padding=-1), ValueError, "padding must be at least 0, got -1"),
        (lambda: qa.conv2d(image(), weights(), padding=None), TypeError, "padding must be an integer, got None"),
        (lambda: qa.conv2d(image(), weights(), padding=2**40), ValueError, "padding must be at most"),
        (lambda: qa.conv2d(image(), weights(), padding=10**6), ValueError, "(2000003, 2000003) windows", "2**31"),
        (lambda: qa.conv2d(image(), weights(), padding=20_000),
         MemoryError, "a result of shape (2, 40003, 40003, 8) needs at least", "this machine has 2,048"),
        (lambda: qa.conv2d(image(), weights(), padding=(1, 1, 1, 1)),
         ValueError, "((top, bottom), (left, right)), 'same' or 'valid', got (1, 1, 1, 1)"),
        (lambda: qa.conv2d(image(), weights(), padding=((1, 2, 3), 0)), ValueError, "padding", "got (1, 2, 3)"),
        (lambda: qa.conv2d(image(), weights(), padding="SAME"),
         ValueError, "padding must be one of 'same', 'valid', got 'SAME'"),
        (lambda: qa.conv2d(image(), weights(), data_format="nhwc"),
         ValueError, "data_format must be one of 'NHWC', 'NCHW', got 'nhwc'"),
        (lambda: qa.conv2d(image(), weights(), data_format=np.array(["NHWC"] * 2)), ValueError, "data_format"),
        *[(lambda f=f: qa.conv2d(image(), weights(), flip_kernel=f), TypeError, "flip_kernel must be True or False")
          for f in (1, None, "no", [1, 2], np.ones(2))],
        # pad_value
        (lambda: qa.conv2d(image(), weights(), pad_value="1"), TypeError, "pad_value must be a number, got '1'"),
        (lambda: qa.conv2d(image(), weights(), pad_value=1 + 0j), TypeError, "pad_value must be a number"),
        (lambda: qa.conv2d(image(), weights(), pad_value=True), TypeError, "pad_value must be a number, got True"),
        (lambda: qa.conv2d(image(), weights(), pad_value=np.ones(1)), TypeError, "pad_value must be a number"),
        (lambda: qa.conv2d(image(), weights(), pad_value=np.nan), ValueError, "pad_value must be finite, got nan"),
        (lambda: qa.conv2d(image(), weights(), pad_value=2**31), ValueError, "pad_value must be within +-2**31"),
        (lambda: qa.conv2d(image(), weights(), pad_value=10**400), ValueError, "pad_value must be within"),
        (lambda: qa.conv2d(image(), weights(), pad_value=0.5),
         ValueError, "pad_value must be an integer where the result is an integer, got 0.5"),
        # bias
        (lambda: qa.conv2d(image(), weights(), bias=1), ValueError, "bias must be numbers [8]", "got int64 ()"),
        (lambda: qa.conv2d(image(), weights(), bias=[1] * 7),
         ValueError, "bias must be numbers [8], one an output channel, got int64 (7,)"),
        (lambda: qa.conv2d(image(), weights(), bias=[True] * 8), ValueError, "got bool (8,)"),
        (lambda: qa.conv2d(image(), weights(), bias="a"), TypeError, "bias must be an array of", "got <U1"),
        (lambda: qa.conv2d(image(), weights(), bias=[[1], [1, 2]]), ValueError, "bias", "lists of equal lengths"),
        (lambda: qa.conv2d(image(), weights(), bias=[1j] * 8), TypeError, "bias", "got complex128"),
        (lambda: qa.conv2d(image(), weights(), bias=[1.0, np.nan] * 4),
         ValueError, "bias must be finite, got nan at (1,)"),
        (lambda: qa.conv2d(image(), weights(), bias=[1e300] * 8), ValueError, "bias must fit in float32", "1e+300"),
        (lambda: qa.conv2d(image(), weights(), bias=signs(8)), TypeError, "bias is packed already", ".dequantize()"),
        (lambda: qa.conv2d(image(), weights(), bias=np.full(8, 2**64 - 1, np.uint64)),
         OverflowError, "bias must fit in int64", "18446744073709551615"),
        (lambda: qa.conv2d(image(), weights(), bias=np.full(8, -(2**63))), OverflowError, "-9223372036854775808"),
        (lambda: qa.conv2d(image(), weights(), bias=np.full(8, -(2**31))),
         OverflowError, "may reach 2147484224, which int32 cannot hold", "out_dtype=np.int64"),
        # result types
        (lambda: qa.conv2d(image(), weights(), out_dtype=np.float16),
         TypeError, "out_dtype must be one of int32, int64, float32, got float16"),
        (lambda: qa.conv2d(image(), weights(), out_dtype="int33"), TypeError, "got int33"),
        (lambda: qa.conv2d(image(), weights(), out_dtype=qa.bipolar), TypeError, "got bipolar"),
        (lambda: qa.conv2d(image(), weights(), out_dtype=">i4"), TypeError, "got >i4"),
        (lambda: qa.conv2d(scaled(2, 5, 5, 64), weights(), out_dtype=np.int32),
         TypeError, "float constants give float32", "out_dtype=int32 needs integer levels without a scale"),
        (lambda: qa.conv2d(bytes_255(1, 1, 1, BIG), bytes_255(1, 1, 1, BIG), out_dtype=np.int32),
         OverflowError, f"may reach {BIG * 255 * 255}", "int32 cannot hold", "out_dtype=np.int64"),
        (lambda: qa.conv2d(qa.encode(np.full((1, 1, 1, 3), 2**31 - 1), (2**31 - 1,)),
                           qa.encode(np.full((1, 1, 1, 3), 2**31 - 1), (2**31 - 1,))),
         OverflowError, "may reach 13835058042397261827, which int64 cannot hold", "contract fewer elements"),
        # requantize
        (lambda: qa.conv2d(image(), weights(), requantize=qa.Sign()),
         TypeError, "requantize must be a Thresholds object, got Sign"),
        (lambda: qa.conv2d(image(), weights(), requantize=thresholds(7)),
         ValueError, "requantize has thresholds for 7 channels, the result has 8"),
        # constants along the contraction
        *[(lambda d=d: qa.conv2d(scaled(2, 5, 5, 64, along=d), weights()),
           ValueError, f"the scale of x (2, 5, 5, 64) varies along axis {d}", "contracted", "scale_axis=0")
          for d in (1, 2, 3)],
        *[(lambda d=d: qa.conv2d(image(), scaled(8, 3, 3, 64, along=d)),
           ValueError, f"the scale of w (8, 3, 3, 64) varies along axis {d}", "contracted")
          for d in (1, 2, 3)],
        (lambda: qa.conv2d(scaled(2, 5, 5, 64, along=(), group=32), weights()), ValueError, "varies along axis 3"),
        (lambda: qa.conv2d(image(2, 5, 5, 8), scaled(8, 3, 3, 1, along=1, axis=0), groups=8),
         ValueError, "scale of w", "axis 1"),
        (lambda: qa.conv2d(table(5, 2, 5, 5, 64), weights()),
         TypeError, "x is a table of 5 bits", "at most 4 bits", "quantise to a uniform or basis law"),
        # devices
        (lambda: qa.conv2d(elsewhere(2, 5, 5, 64), weights()),
         qa.DeviceError, "different devices: x on cuda:0, w on cpu", ".to_device("),
        (lambda: qa.conv2d(np.ones((2, 5, 5, 64), np.int8), elsewhere(8, 3, 3, 64)),
         qa.DeviceError, "x on cpu, w on cuda:0"),
    ],
    "linear": [
        (lambda: qa.linear(np.ones((3, 64)), weights(5, 64)), TypeError, "x must be", "float64 array (3, 64)"),
        (lambda: qa.linear(signs(3, 64), np.ones((5, 64))),
         TypeError, "w must be a QuantArray", "float64 array (5, 64)"),
        (lambda: qa.linear(signs(3, 64), signs(1, 5, 64)), ValueError, "w must be [outputs, k]", "(1, 5, 64)"),
        (lambda: qa.linear(signs(3, 64), signs(5, 64, axis=0)), ValueError, "packed on k (axis 1)", "packed on axis 0"),
        (lambda: qa.linear(signs(3, 64, axis=0), signs(5, 64)),
         ValueError, "x must be packed on its last axis", "axis 0"),
        (lambda: qa.linear(signs(3, 63), signs(5, 64)), ValueError, "x (3, 63) and w (5, 64)", "same last length"),
        (lambda: qa.linear(np.array(1, np.int8), signs(5, 64)), ValueError, "x () and w (5, 64)"),
        (lambda: qa.linear(signs(3, 64), signs(5, 64), bias=[1]), ValueError, "bias must be numbers [5]", "int64 (1,)"),
        (lambda: qa.linear(signs(3, 64), signs(5, 64), requantize=thresholds(4)), ValueError, "4 channels", "has 5"),
        (lambda: qa.linear(signs(3, 64), signs(5, 64), out_dtype=np.uint8), TypeError, "out_dtype", "uint8"),
        (lambda: qa.linear(scaled(3, 192, group=32), signs(5, 192)),
         ValueError, "x must have one scale", "groups of 32", "group=64"),
        (lambda: qa.linear(signs(3, 192), scaled(5, 192, group=96)),
         ValueError, "w must have one scale", "groups of 96"),
        (lambda: qa.linear(bytes_255(1, BIG), bytes_255(1, BIG), out_dtype=np.int32),
         OverflowError, str(BIG * 255 * 255), "out_dtype=np.int64"),
        (lambda: qa.linear(table(6, 2, 64), signs(5, 64)), TypeError, "x is a table of 6 bits"),
        (lambda: qa.linear(signs(100, 64), signs(100, 64)),
         MemoryError, "a result of shape (100, 100) needs at least 40,000 bytes"),
        (lambda: qa.linear(elsewhere(3, 64), signs(5, 64)),
         qa.DeviceError, "different devices: x on cuda:0, w on cpu", ".to_device("),
    ],
    "matmul": [
        (lambda: signs(3, 64) @ np.ones((64, 2)), TypeError, "b must be", "float64 array (64, 2)"),
        (lambda: np.ones((2, 3)) @ signs(3, 4, axis=0), TypeError, "a must be", "float64 array (2, 3)"),
        (lambda: qa.matmul(3, signs(3, 64)), TypeError, "a must be", "got int"),
        (lambda: qa.matmul(np.ones((2, 2), np.int8), np.ones((2, 2), np.int8)),
         TypeError, "at least one operand must be a QuantArray", "NumPy"),
        (lambda: signs(3, 64) @ np.array(1, np.int8), ValueError, "at least one axis", "(3, 64) and ()"),
        (lambda: signs(3, 64) @ signs(5, 64), ValueError, "a (3, 64) and b (5, 64)", "b.T"),
        (lambda: signs(3, 63) @ signs(64, 5, axis=0), ValueError, "a (3, 63) and b (64, 5)"),
        (lambda: signs(3, 64) @ signs(64, 5), ValueError, "b (64, 5) must be packed on axis 0", "axis=-2"),
        (lambda: signs(3, 64, axis=0) @ signs(64, 5, axis=0),
         ValueError, "a (3, 64) must be packed on axis 1", "axis=-1"),
        (lambda: signs(2, 3, 64) @ signs(3, 64, 5, axis=1), ValueError, "(2, 3, 64) and (3, 64, 5) do not broadcast"),
        (lambda: qa.matmul(signs(2, 3, 64), signs(2, 64, 5, axis=1), requantize=thresholds(5)),
         TypeError, "requantize needs a right operand with two axes, got (2, 64, 5)"),
        (lambda: qa.matmul(signs(64), signs(64), requantize=thresholds(1)), TypeError, "requantize", "got (64,)"),
        (lambda: elsewhere(3, 64) @ signs(64, 5, axis=0), qa.DeviceError, "a on cuda:0, b on cpu"),
    ],
    "max_pool2d": [
        (lambda: qa.max_pool2d(np.ones((4, 4, 1)), 2),
         ValueError, "NHWC needs x [n h w c], got float64 array (4, 4, 1)", "x[None] adds the batch axis"),
        (lambda: qa.max_pool2d(np.ones(3), 2, data_format="NCHW"), ValueError, "NCHW needs x [n c h w]", "array (3,)"),
        (lambda: qa.max_pool2d(np.ones((1, 4, 4, 1), complex), 2), TypeError, "x must be an array of", "complex128"),
        (lambda: qa.max_pool2d(masked(np.int8), 2), TypeError, "x is a masked array"),
        (lambda: qa.max_pool2d(None, 2), TypeError, "x must be an array of", "object"),
        (lambda: qa.max_pool2d(np.ones((1, 4, 4, 1)), 2, padding=2), ValueError, "without a single element"),
        (lambda: qa.max_pool2d(np.ones((1, 1, 1, 8)), 30_000, padding=20_000, stride=1), MemoryError, "(1, 10002, 10"),
        (lambda: qa.max_pool2d(image(4, 4, 3), 2), ValueError, "4 axes packed on axis 3", "(4, 4, 3) packed on axis 2"),
        (lambda: qa.max_pool2d(image(1, 4, 4, 3, axis=1), 2), ValueError, "NHWC", "packed on axis 1"),
        (lambda: qa.max_pool2d(image(), 2, data_format="NCHW"), ValueError, "NCHW", "axis 1", "packed on axis 3"),
        (lambda: qa.max_pool2d(image(), 2, data_format="CHWN"), ValueError, "data_format", "'CHWN'"),
        (lambda: qa.max_pool2d(image(), 0), ValueError, "size must be at least 1, got 0"),
        (lambda: qa.max_pool2d(image(), None), TypeError, "size must be an integer, got None"),
        (lambda: qa.max_pool2d(image(), (2, 2, 2)), ValueError, "size", "(height, width), got (2, 2, 2)"),
        (lambda: qa.max_pool2d(image(), 2, stride=0), ValueError, "stride must be at least 1, got 0"),
        (lambda: qa.max_pool2d(image(), 6), ValueError, "window of 6x6", "image 5x5"),
        (lambda: qa.max_pool2d(image(), 30_000, padding=20_000, stride=1), MemoryError, "(2, 10006, 10006, 64)"),
        (lambda: qa.max_pool2d(image(), 2, padding=20_000), ValueError, "without a single element"),
        (lambda: qa.max_pool2d(image()[:, :0], 1, padding=1), ValueError, "without a single element"),
        (lambda: qa.max_pool2d(image(), (1, 2), stride=(5, 1), padding=((0, 1), 0)), ValueError, "without a single"),
        (lambda: qa.max_pool2d(image(), 2, padding=2), ValueError, "without a single element", "(2, 2)"),
        (lambda: qa.max_pool2d(scaled(2, 4, 4, 3, along=(1, 2)), 2),
         ValueError, "varies inside the image (2, 4, 4, 3)"),
    ],
    "avg_pool2d": [
        (lambda: qa.avg_pool2d(np.ones((4, 4, 1)), 2), ValueError, "NHWC needs x [n h w c]", "float64 array (4, 4, 1)"),
        (lambda: qa.avg_pool2d(np.full((1, 4, 4, 1), 2**52), 2), OverflowError, f"4 elements of x may reach {2**54}"),
        (lambda: qa.avg_pool2d(np.ones((1, 4, 4, 3)), 2, requantize=thresholds(3)), TypeError, "x is float64"),
        (lambda: qa.avg_pool2d(np.ones((1, 4, 4, 3), "f4"), 2, requantize=thresholds(2)), ValueError, "for 2 channels"),
        (lambda: qa.avg_pool2d(image(), 6), ValueError, "window of 6x6", "image 5x5"),
        (lambda: qa.avg_pool2d(image(), 2, padding=3), ValueError, "without a single element"),
        (lambda: qa.avg_pool2d(image(), 30_000, padding=20_000, stride=1), MemoryError, "(2, 10006, 10006, 64)"),
        (lambda: qa.avg_pool2d(image(), 2, requantize=affine(64)), TypeError, "got Affine; call it on the"),
        (lambda: qa.avg_pool2d(image(), 2, requantize=1), TypeError, "requantize must be a Thresholds", "got int"),
        (lambda: qa.avg_pool2d(image(), 2, requantize=thresholds(3)), ValueError, "for 3 channels, the result has 64"),
        (lambda: qa.avg_pool2d(scaled(2, 4, 4, 3, along=2), 2), ValueError, "varies inside the image"),
        (lambda: qa.avg_pool2d(table(5, 1, 4, 4, 3), 2), TypeError, "x is a table of 5 bits"),
    ],
    "quantize": [
        (lambda: qa.quantize(np.ones(3, complex), qa.Sign()), TypeError, "x must be an array of", "got complex128"),
        (lambda: qa.quantize(np.array([1, None]), qa.Sign()), TypeError, "got object"),
        (lambda: qa.quantize(["a"], qa.Sign()), TypeError, "got <U1"),
        (lambda: qa.quantize(np.array(["2020"], "M8[Y]"), qa.Sign()), TypeError, "got datetime64[Y]"),
        (lambda: qa.quantize(masked(float), qa.Sign()), TypeError, "x is a masked array", ".filled("),
        (lambda: qa.quantize([[1.0], [1, 2]], qa.Sign()), ValueError, "x must be an array, or lists of equal lengths"),
        (lambda: qa.quantize([signs(3), signs(3)], qa.Sign()), TypeError, "x must be an array", ".dequantize()"),
        (lambda: qa.quantize(1.0, qa.Sign()), ValueError, "at least one axis to pack, got a scalar"),
        (lambda: qa.quantize(np.ones(3), qa.Sign(scale=True), calibration=signs(3)),
         TypeError, "calibration is packed already", ".dequantize()"),
        (lambda: qa.quantize(UNIT, qa.Sign), TypeError, "quantizer must be", "the class Sign: call it"),
        (lambda: qa.quantize(UNIT, "sign"), TypeError, "quantizer must be a quantiser such as Sign()", "got 'sign'"),
        (lambda: qa.quantize(UNIT, qa.uint4), TypeError, "quantizer must be", "got quantarray.uint4"),
        (lambda: qa.quantize(UNIT, qa.Sign(), axis=1), np.exceptions.AxisError, "axis 1 is out of bounds", "1 axes"),
        (lambda: qa.quantize(UNIT, qa.Sign(), axis=-2), np.exceptions.AxisError, "axis -2 is out of bounds"),
        (lambda: qa.quantize(UNIT, qa.Sign(), axis=0.0), TypeError, "axis must be an integer, got 0.0"),
        (lambda: qa.quantize(UNIT, qa.Sign(), scale_axis=3), np.exceptions.AxisError, "scale_axis 3 is out of bounds"),
        (lambda: qa.quantize(UNIT, qa.Sign(), scale_axis="0"), TypeError, "scale_axis must be an integer, got '0'"),
        (lambda: qa.quantize(UNIT, qa.Sign(), group=0), ValueError, "group must be at least 1, got 0"),
        (lambda: qa.quantize(UNIT, qa.Sign(), group=2.0), TypeError, "group must be an integer, got 2.0"),
        (lambda: qa.quantize(UNIT, qa.Sign(), group=1, scale_axis=0), ValueError, "group=1 already says", "axis 0"),
        (lambda: qa.quantize([[1, 2], [3, np.nan]], qa.Sign()), ValueError, "x must hold no NaN, got one at (1, 1)"),
        (lambda: qa.quantize([np.nan], qa.Uniform(4, step=1.0)), ValueError, "no NaN"),
        (lambda: qa.quantize([1, -np.inf], qa.Sign(scale=True)),
         ValueError, "Sign(scale=True) is fitted, must be finite, got -inf at (1,)"),
        (lambda: qa.quantize([1, np.inf], qa.Uniform(4)), ValueError, "Uniform(4) is fitted, must be finite", "inf"),
        (lambda: qa.quantize(UNIT, Scheme(np.array([3]))), ValueError, "Scheme() must give codes 0 to 2, got 3 to 3"),
        (lambda: qa.quantize(UNIT, Scheme(np.array([1.0]))),
         TypeError, "integer codes of shape (1,)", "float64 array (1,)"),
        (lambda: qa.quantize(UNIT, Scheme(np.array([1, 2]))), TypeError, "codes of shape (1,)", "int64 array (2,)"),
        *[(lambda x=x: qa.quantize(x, Scheme(lambda x: np.full(x.shape, 3), monotone=True)),
           ValueError, "Scheme() must give codes 0 to 2, got 3 to 3") for x in (UNIT, np.ones(1000, np.float32))],
        *[(lambda x=x: qa.quantize(x, Scheme(lambda x: x.tolist(), monotone=True)),
           TypeError, "Scheme() must give integer codes of shape", "float64 array")
          for x in (UNIT, np.ones(1000, np.float32))],
        *[(lambda g=g: qa.quantize(np.ones((2, 9)), Scheme(None, "none"), group=g),
           TypeError, "Scheme() must fit a quantarray.Constants, got str") for g in (None, 3)],
        *[(lambda c=c, g=g: qa.quantize(np.ones((2, 9)), Scheme(None, c), group=g),
           ValueError, "Scheme() must fit a scale of shape", f"got {c.scale.shape}")
          for c in (qa.Constants(1.0), qa.Constants(np.ones(9))) for g in (None, 3)],
        (lambda: qa.quantize(np.float32([-3e38, 3e38]), qa.Uniform(2, symmetric=False)),
         ValueError, "uniform(2): levels must fit in float32"),
    ],
    "Sign": [
        *[(lambda s=s: qa.Sign(s), ValueError, "scale must be True, False or a positive float32", f"got {s!r}")
          for s in (0, -1.0, np.nan, np.inf, np.float16("inf"), 1e-60, 1e60, 10**400, "1", None, [1.0], 1j)],
        (lambda: qa.quantize([1e300], qa.Sign(scale=True)), ValueError, "data are too large", "scale of 1e+300"),
        (lambda: qa.quantize([1.7e308] * 2, qa.Sign(scale=True)), ValueError, "data are too large"),
    ],
    "Uniform": [
        *[(lambda b=b: qa.Uniform(b), ValueError, "bits must be an integer from 1 to 8", f"got {b!r}")
          for b in (0, 9, -1, 2.0, "4", None, True, 2**70)],
        *[(lambda p=p: qa.Uniform(4, percentile=p), ValueError, "percentile must be in (0, 100]", f"got {p!r}")
          for p in (0, -1, 100.5, np.nan, np.float16("nan"), "99", None)],
        *[(lambda s=s: qa.Uniform(4, step=s), ValueError, "step must be a positive float32", f"got {s!r}")
          for s in (0, -1, np.nan, np.inf, 1e-60, 1e60, "1", [1.0], True)],
        *[(lambda o=o: qa.Uniform(4, symmetric=False, step=1.0, offset=o), ValueError, "offset must be a float32")
          for o in (np.nan, -np.inf, np.float16("-inf"), 1e60, "1", [1.0])],
        (lambda: qa.Uniform(4, offset=1.0), ValueError, "needs symmetric=False and a step", "offset=1.0, step=None"),
        (lambda: qa.Uniform(4, step=1.0, offset=1.0), ValueError, "needs symmetric=False", "symmetric=True"),
        (lambda: qa.Uniform(4, signed="no"), ValueError, "signed must be True or False, got 'no'"),
        (lambda: qa.Uniform(4, symmetric=1), ValueError, "symmetric must be True or False, got 1"),
        (lambda: qa.quantize([1e300], qa.Uniform(4)), ValueError, "data are too large", "beyond float32"),
        (lambda: qa.quantize([-1.7e308, 1.7e308], qa.Uniform(4, symmetric=False)), ValueError, "data are too large"),
        (lambda: qa.quantize([1e308, -1e308], qa.Uniform(3, symmetric=False, percentile=30.0)),
         ValueError, "data are too large", "beyond float32"),
    ],
    "PACT": [(lambda: qa.PACT(2, alpha=np.float16("inf")), ValueError, "alpha must be a number", "inf")],
    "Ternary": [
        (lambda: qa.Ternary(np.float16("inf")), ValueError, "threshold must be a number of at least 0", "inf"),
        *[(lambda t=t: qa.quantize([1e308, -1e308, 1.0], qa.Ternary(t)), ValueError, "data are too large", "of 1e+308")
          for t in (0, 0.7)],
    ],
    "LQ": [(lambda b=b: qa.LQ(2, basis=b), ValueError, "basis must be 2 float32 numbers")
           for b in (1.0, np.array(1.0), [1], "ab", [[1], [1, 2]], np.ones((2, 2)), [1, np.float16("inf")])],
    "ABCActivations": [
        (lambda: qa.ABCActivations([[1], [1, 2]], [1, 1]), ValueError, "shifts must be 1 to 8 float32 numbers"),
        (lambda: qa.ABCActivations([1], []), ValueError, "betas must be 1 to 8 float32 numbers, got []"),
    ],
    "allocate_bits": [
        (lambda: qa.allocate_bits(np.array(1), 9), TypeError, "tensors must be a list of arrays or of sizes"),
        (lambda: qa.allocate_bits([UNIT], 9, bits=np.array(9)), ValueError, "each of bits must be at most 8, got 9"),
    ],
    "dropout_mask": [
        (lambda: qa.dropout_mask(2.0, 0.5), TypeError, "a length of shape must be an integer, got 2.0"),
        *[(lambda n=n: qa.dropout_mask(n, 0.5), MemoryError, "a mask of shape", f"{s} bytes")
          for n, s in (((2**40,), "137,438,953,472"), (2**63, "1,152,921,504,606,846,976"))],
        (lambda: qa.dropout_mask(3, np.float16("inf")), ValueError, "p must be a probability from 0 to 1"),
    ],
    "encode": [
        (lambda: qa.encode([1, 2], (-1, 1)), ValueError, "only the values of bipolar (-1, 1), got 2 at (1,)"),
        (lambda: qa.encode([[0.5]], (-1, 1)), ValueError, "got 0.5 at (0, 0)"),
        (lambda: qa.encode([np.nan], (-1, 1)), ValueError, "got nan at (0,)"),
        (lambda: qa.encode([300], range(256)), ValueError, "uint8 (0, 1, 2, 3, 4, 5, 6, 7, ..)", "got 300"),
        (lambda: qa.encode(np.array([2**64 - 1], np.uint64), (-1, 1)), ValueError, "got 18446744073709551615"),
        (lambda: qa.encode([1]), TypeError, "needs the values that x may hold", "values=(-1, 1)"),
        (lambda: qa.encode(["a"], (-1, 1)), TypeError, "x must be an array of", "got <U1"),
        (lambda: qa.encode([1j], (-1, 1)), TypeError, "got complex128"),
        (lambda: qa.encode(5, (5,)), ValueError, "at least one axis to pack, got a scalar"),
        (lambda: qa.encode([1], (1,), axis=1), np.exceptions.AxisError, "axis 1 is out of bounds"),
        (lambda: qa.encode([1], qa.uniform(2)), TypeError, "values must be integers, got uniform(2)", "from_codes"),
        (lambda: qa.encode([1], (0.5, 1)), ValueError, "values must be integers", "got 0.5"),
        (lambda: qa.encode([1], "12"), ValueError, "values must be integers", "got '1'"),
        (lambda: qa.encode([1], (True,)), ValueError, "values must be integers", "got True"),
        (lambda: qa.encode([1], (np.nan,)), ValueError, "values must be integers", "got nan"),
        (lambda: qa.encode([1], (np.inf,)), ValueError, "values must be integers", "got inf"),
        (lambda: qa.encode([1], np.ones((2, 2), int)), ValueError, "values must be integers"),
        (lambda: qa.encode([1], {1, "a"}), TypeError, "values must be integers"),
        (lambda: qa.encode([1], qa.Sign()), ValueError, "values must be integers", "Sign()"),
        (lambda: qa.encode([1], []), ValueError, "1 to 256 levels, got 0"),
        (lambda: qa.encode([1], range(257)), ValueError, "1 to 256 levels, got 257"),
        (lambda: qa.encode([1], (1, 1)), ValueError, "2 different integer levels, got (1, 1)"),
        (lambda: qa.encode([1], (2**31,)), ValueError, "within +-(2**31 - 1), got (2147483648,)"),
        (lambda: qa.encode([1], (10**30,)), ValueError, "within +-(2**31 - 1)"),
    ],
    "from_codes": [
        (lambda: qa.from_codes([0, 2], qa.bipolar), ValueError, "bipolar has the codes 0 to 1, got 0 to 2"),
        (lambda: qa.from_codes([False, True], qa.integers([5])), ValueError, "codes 0 to 0, got False to True"),
        (lambda: qa.from_codes([-1], qa.uint4), ValueError, "codes 0 to 15, got -1 to -1"),
        (lambda: qa.from_codes([3], qa.ternary), ValueError, "ternary has the codes 0 to 2, got 3 to 3"),
        (lambda: qa.from_codes(np.array([2**64 - 1], np.uint64), qa.uint8), ValueError, "18446744073709551615"),
        (lambda: qa.from_codes([0.0], qa.uint4), TypeError, "codes must be integers, got float64", "quantize("),
        (lambda: qa.from_codes([None], qa.uint4), TypeError, "codes must be an array of", "got object"),
        (lambda: qa.from_codes([[0], [0, 1]], qa.uint4), ValueError, "codes", "lists of equal lengths"),
        (lambda: qa.from_codes(3, qa.uint4), ValueError, "codes must have at least one axis"),
        (lambda: qa.from_codes(signs(3), qa.uint4), TypeError, "codes is packed already", ".codes()"),
        (lambda: qa.from_codes([0], np.uint8), TypeError, "dtype must be one of quantarray's", "numpy.uint8"),
        (lambda: qa.from_codes([0], "uint4"), TypeError, "dtype must be one of quantarray's", "'uint4'"),
        (lambda: qa.from_codes([0], qa.uint4, axis=1), np.exceptions.AxisError, "axis 1 is out of bounds"),
        (lambda: qa.from_codes([0], qa.uniform(2)), ValueError, "uniform(2) needs a scale", "offset is 0"),
        (lambda: qa.from_codes([0], qa.bipolar, offset=1), ValueError, "bipolar: needs the constants []", "['offset']"),
        (lambda: qa.from_codes([0], qa.table(1)), ValueError, "table(1): needs the constants ['table'], got []"),
        (lambda: qa.from_codes([0], qa.uniform(2), scale="1"), TypeError, "scale must be an array of", "<U1"),
        (lambda: qa.from_codes([0], qa.uniform(2), scale=1j), TypeError, "scale must be an array of", "complex128"),
        (lambda: qa.from_codes([0], qa.uniform(2), scale=np.nan), ValueError, "scale must be finite, got nan"),
        (lambda: qa.from_codes([0], qa.uniform(2), scale=1e60), ValueError, "scale must fit in float32, got 1e+60"),
        (lambda: qa.from_codes([0], qa.uniform(2), scale=3e38), ValueError, "levels must fit in float32"),
        (lambda: qa.from_codes([0], qa.bipolar, scale=[1, 2, 3]),
         ValueError, "scale must have the shape (1,)", "got (3,)"),
        (lambda: qa.from_codes([0, 1], qa.bipolar, scale=[1, 2]),
         ValueError, "1 on the packed axis 0, along which constants vary with group= only, got (2,)"),
        (lambda: qa.from_codes([0, 1, 1], qa.bipolar, scale=[1, 2, 3], group=2),
         ValueError, "2 on the packed axis 0, got (3,)"),
        (lambda: qa.from_codes([0, 1], qa.bipolar, scale=[1, 2], group=0), ValueError, "group must be at least 1"),
        (lambda: qa.from_codes([0, 1], qa.bipolar, scale=[1, 2], group=1.0), TypeError, "group must be an integer"),
        (lambda: qa.from_codes([0], qa.basis(2), scale=1.0),
         ValueError, "scale must have the shape (2, 1)", "got (1,)"),
        (lambda: qa.from_codes([0], qa.table(1), table=[1, 2, 3]),
         ValueError, "table must have the shape (2, 1)", "(3, 1)"),
    ],
    "from_words": [
        (lambda: qa.from_words(np.array([[5]], np.uint64), qa.bipolar, (2,)), ValueError, "bits after element 2"),
        (lambda: qa.from_words(np.array([[5]], np.uint64), qa.bipolar, (65,)),
         ValueError, "words must be uint64 (1, 2) for shape (65,), got uint64 (1, 1)"),
        (lambda: qa.from_words(np.array([[5]], np.uint64), qa.uint2, 3), ValueError, "uint64 (2, 1)", "uint64 (1, 1)"),
        (lambda: qa.from_words([[5]], qa.bipolar, (3,)), ValueError, "words must be uint64", "got int64 (1, 1)"),
        (lambda: qa.from_words(np.array([[5]], ">u8"), qa.bipolar, (3,)), ValueError, "got >u8 (1, 1)"),
        (lambda: qa.from_words("101", qa.bipolar, (3,)), TypeError, "words must be an array of", "<U3"),
        (lambda: qa.from_words(np.ones((2, 1), np.uint64), qa.ternary, (1,)),
         ValueError, "ternary has codes below 3, got 3"),
        (lambda: qa.from_words(np.ones((1, 1), np.uint64), None, (1,)), TypeError, "dtype must be one of", "got None"),
        (lambda: qa.from_words(np.ones((1, 1), np.uint64), qa.bipolar, None),
         TypeError, "shape must be an integer, got None"),
        (lambda: qa.from_words(np.ones((1, 1), np.uint64), qa.bipolar, (1.0,)), TypeError, "shape must be an integer"),
        (lambda: qa.from_words(np.ones((1, 1), np.uint64), qa.bipolar, (-1,)),
         ValueError, "shape must be at least 0, got -1"),
        (lambda: qa.from_words(np.ones((1, 1), np.uint64), qa.bipolar, ()),
         np.exceptions.AxisError, "an array of 0 axes"),
        (lambda: qa.from_words(np.ones((1, 1), np.uint64), qa.bipolar, (1,), scale=[1, 2]),
         ValueError, "scale must have"),
    ],
    "integers": [
        (lambda: qa.integers(1.5), ValueError, "levels must be integers, got 1.5", "table(bits)"),
        (lambda: qa.integers("1"), ValueError, "levels must be integers, got '1'"),
        (lambda: qa.integers(True, False), ValueError, "levels must be integers, got True"),
        (lambda: qa.integers(None), ValueError, "levels must be integers, got None"),
        (lambda: qa.integers(), ValueError, "1 to 256 levels, got 0"),
        (lambda: qa.integers(np.array(1)), ValueError, "levels must be integers, got array(1)"),
        (lambda: qa.integers(1, 1), ValueError, "2 different integer levels, got (1, 1)"),
        (lambda: qa.integers(-(2**31)), ValueError, "within +-(2**31 - 1)"),
    ],
    "uniform": [
        *[(lambda b=b: qa.uniform(b),
           ValueError, f"needs 1 to 8 bits, got {b!r}") for b in (0, 9, 2.0, "4", None, True)],
        (lambda: qa.uniform(4, 0), ValueError, "4 bits hold 1 to 16 levels, got 0"),
        (lambda: qa.uniform(4, 2.5), ValueError, "an integer number of levels, got 2.5"),
    ],
    "basis": [(lambda: qa.basis(9), ValueError, "needs 1 to 8 bits, got 9")],
    "table": [
        (lambda: qa.table(0), ValueError, "needs 1 to 8 bits, got 0"),
        (lambda: qa.table(4, 17), ValueError, "4 bits hold 1 to 16 levels, got 17"),
    ],
    "DType": [
        (lambda: qa.DType("float", 1, 2), ValueError, "kind must be integer, uniform, basis or table, got 'float'"),
        (lambda: qa.DType("basis", 2, 3), ValueError, "a basis of 2 bits has 4 levels, got 3"),
        (lambda: qa.DType("integer", 1, 2), ValueError, "integer levels go with the kind 'integer'"),
        (lambda: qa.DType(np.ones(2), 1, 2), ValueError, "kind must be integer, uniform, basis or table, got array"),
        *[(lambda v=v: qa.DType("integer", 1, 2, v), ValueError, f"a tuple of Python integers, got {v!r}")
          for v in ((0.5, 1), 5, {0, 1}, [0, 1])],
    ],
    "Thresholds": [
        (lambda: qa.Thresholds(["a"]), TypeError, "values must be an array of", "<U1"),
        (lambda: qa.Thresholds([1j]), TypeError, "values must be an array of", "complex128"),
        (lambda: qa.Thresholds(None), TypeError, "values must be an array of", "object"),
        (lambda: qa.Thresholds([2**70]), TypeError, "values must be an array of", "object"),
        (lambda: qa.Thresholds([[1], [2, 3]]), ValueError, "values", "lists of equal lengths"),
        (lambda: qa.Thresholds(signs(2)), TypeError, "values is packed already"),
        (lambda: qa.Thresholds([True]), TypeError, "numbers [T] or [channels, T], got bool of shape (1,)"),
        (lambda: qa.Thresholds(3), TypeError, "numbers [T] or [channels, T], got int64 of shape ()"),
        (lambda: qa.Thresholds([]), TypeError, "got float64 of shape (0,)"),
        (lambda: qa.Thresholds(np.zeros((1, 2, 3))), TypeError, "of shape (1, 2, 3)"),
        (lambda: qa.Thresholds([np.nan]), ValueError, "must not be NaN", "inf"),
        (lambda: qa.Thresholds(np.arange(256)), ValueError, "at most 255", "256; for one a channel"),
        (lambda: qa.Thresholds([0], greater=1), ValueError, "greater must be a bool", "int64 ()"),
        (lambda: qa.Thresholds([[0], [1]], strict=[True] * 3), ValueError, "strict must be", "(2,)", "bool (3,)"),
        (lambda: qa.Thresholds([0], greater=[[1], [1, 2]]), ValueError, "greater", "lists of equal lengths"),
        (lambda: qa.Thresholds([0], greater=signs(3)), TypeError, "greater is packed already"),
        (lambda: qa.Thresholds([0], by_rank=np.ones(2)), TypeError, "by_rank must be True or False, got array"),
        (lambda: qa.Thresholds([0], into="bipolar"), TypeError, "into must be a dtype", "'bipolar'"),
        (lambda: qa.Thresholds([0], into=qa.uint2), ValueError, "1 thresholds give 2 codes, but uint2 has 4 levels"),
        (lambda: qa.Thresholds([0], into=qa.uniform(1)), ValueError, "uniform(1) needs a scale"),
        (lambda: qa.Thresholds([0], offset=1.0), ValueError, "bipolar: needs the constants []", "['offset']"),
        (lambda: qa.Thresholds([0], scale=np.nan), ValueError, "scale must be finite, got nan"),
        (lambda: qa.Thresholds([0], scale=[1, 2]), ValueError, "scale must have the shape (1,)", "got (2,)"),
        # calls
        (lambda: thresholds(2)(np.zeros((3, 2))),
         TypeError, "real results are float32, got float64", ".astype(np.float32)"),
        (lambda: thresholds(2)(np.zeros((3, 2), np.uint64)), TypeError, "integer results are signed, got uint64"),
        (lambda: thresholds(2)(np.full((3, 2), -(2**63))), OverflowError, "be above -2**63", "-9223372036854775808"),
        (lambda: thresholds(2)(np.full((3, 2), np.nan, np.float32)), ValueError, "no NaN"),
        (lambda: thresholds(2)(np.zeros((2, 3), int)), ValueError, "for 2 channels, the result has 3"),
        (lambda: thresholds(2)(np.zeros((2, 2), int), axis=2), np.exceptions.AxisError, "axis 2 is out of bounds"),
        (lambda: thresholds(2)(signs(3, 2)), TypeError, "dense result", "QuantArray", "requantize="),
        (lambda: thresholds(1)(3), ValueError, "at least one axis"),
        (lambda: thresholds(1)("a"), TypeError, "values must be an array of"),
    ],
    "Affine": [
        (lambda: qa.Affine(1.0, [1.0]), ValueError, "scale must be numbers [channels], got the shape ()"),
        (lambda: qa.Affine([1.0], [1.0, 2.0]), ValueError, "[channels] alike, got (1,) and (2,)"),
        (lambda: qa.Affine([np.inf], [1.0]), ValueError, "scale must be finite, got inf at (0,)"),
        (lambda: qa.Affine(["a"], [1.0]), TypeError, "scale must be an array of", "<U1"),
        (lambda: qa.fold_batchnorm([1e300], [0], [1e300], [1], into=None), ValueError, "offset must be finite", "inf"),
        (lambda: affine(3)(np.zeros((2, 4))), ValueError, "has 3 channels, axis 1 of the values (2, 4) has 4"),
        (lambda: affine(3)(signs(2, 3)), TypeError, "dense result", "QuantArray", "dequantize()"),
        (lambda: affine(3)(np.zeros((2, 3)), axis=2), np.exceptions.AxisError, "axis 2 is out of bounds"),
        (lambda: affine(1)(3), ValueError, "at least one axis"),
    ],
    "fold": [
        (lambda: fold(None), TypeError, "f must be a function, got NoneType"),
        (lambda: fold(np.abs, into=qa.Uniform(4)), ValueError, "fixed constants", "got Uniform(4)"),
        (lambda: fold(np.abs, of=range(0)), ValueError, "range of step 1 within +-2**53", "got range(0, 0)"),
        (lambda: fold(np.abs, of=range(0, 9, 2)), ValueError, "range of step 1", "got range(0, 9, 2)"),
        (lambda: fold(np.abs, of=range(2**70)), ValueError, "within +-2**53"),
        (lambda: fold(np.abs, of=np.int8), TypeError, "of must be one of int32, int64, float32", "got int8"),
        (lambda: fold(np.abs, channels=0), ValueError, "channels must be at least 1, got 0"),
        (lambda: fold(np.abs), ValueError, "in channel 0 it gives the levels 1 for -9, 0 for 0 and 1 for 9"),
        (lambda: fold(lambda v: v * np.array([1, 1, np.nan])), ValueError, "got NaN for", "in channel 2"),
        (lambda: fold(lambda v: v[0]), ValueError, "f must give [n, channels] for values [n, channels], got (1,)"),
        (lambda: fold(lambda v: v[:, [0, 1]]), ValueError, "takes no values of one channel", "pass channels="),
        (lambda: fold(lambda v: v.sum(0, keepdims=True)), ValueError, "one number for each of the values (2, 1)"),
        (lambda: fold(lambda v: np.array([["a"]])), TypeError, "the result of f must be an array of"),
    ],
    "fold_batchnorm": [
        (lambda: batch_norm(into=qa.Sign), ValueError, "into must be a quantiser with fixed constants", "Sign()"),
        (lambda: batch_norm(into=qa.Sign(scale=True)), ValueError, "fixed constants", "got Sign(scale=True)"),
        (lambda: batch_norm(into=Scheme(lambda x: np.full(x.shape, 3), monotone=True)), ValueError, "codes 0 to 2"),
        (lambda: batch_norm(into=Scheme(None, "none", monotone=True)), TypeError, "must fit a quantarray.Constants"),
        (lambda: batch_norm(into=qa.Uniform(4)), ValueError, "fixed constants", "got Uniform(4)"),
        (lambda: batch_norm(beta=np.ones(2)),
         ValueError, "[channels] alike, got gamma (1,), beta (2,), mean (1,), var (1,)"),
        (lambda: qa.fold_batchnorm(1.0, 1.0, 1.0, 1.0, into=qa.Sign()), ValueError, "[channels] alike", "gamma ()"),
        (lambda: qa.fold_batchnorm([], [], [], [], into=qa.Sign()), ValueError, "[channels] alike", "gamma (0,)"),
        (lambda: batch_norm(gamma=[np.nan]), ValueError, "gamma must be finite, got nan"),
        (lambda: batch_norm(mean=[np.inf]), ValueError, "mean must be finite, got inf"),
        (lambda: batch_norm(gamma=[1e300], precision=np.float32),
         ValueError, "gamma must be finite, got inf as float32"),
        (lambda: batch_norm(beta=["a"]), TypeError, "beta must be an array of", "<U1"),
        (lambda: batch_norm(beta=[1j]), TypeError, "beta must be an array of", "complex128"),
        (lambda: batch_norm(beta=None), TypeError, "beta must be an array of", "object"),
        (lambda: batch_norm(var=[-1.0]), ValueError, "var and eps must not be negative", "var from -1.0"),
        (lambda: batch_norm(var=[0.0], eps=0.0), ValueError, "var + eps must be positive", "eps=0.0 and var from 0.0"),
        *[(lambda e=e: batch_norm(eps=e), ValueError, "var + eps", f"eps={e!r}")
          for e in (-1, np.nan, np.inf, np.float16("inf"), "1")],
        (lambda: batch_norm(input_scale=np.ones(3)), ValueError, "input_scale must be a number or 1, one a", "(3,)"),
        (lambda: batch_norm(input_scale=np.nan), ValueError, "input_scale must be finite, got nan"),
        (lambda: batch_norm(input_scale="a"), TypeError, "input_scale must be an array of", "<U1"),
        (lambda: batch_norm(into=qa.Thresholds([0])), ValueError, "into must be a quantiser", "or None for the scores"),
        (lambda: batch_norm(of=np.int8), TypeError, "of must be one of int32, int64, float32, got int8"),
        (lambda: batch_norm(of="integer"), TypeError, "of must be one of", "got integer"),
        (lambda: batch_norm(of=None), TypeError, "of must be one of", "got None"),
        (lambda: batch_norm(precision=np.float16), TypeError, "precision must be one of float32, float64, got float16"),
    ],
    "index": [
        (lambda: signs(2, 3, 4)[5], IndexError, "5 is out of bounds for axis 0 of length 2"),
        (lambda: signs(2, 3, 4)[0, -4], IndexError, "-4 is out of bounds for axis 1 of length 3"),
        (lambda: signs(2, 3, 4)[0, 0, :, 0], IndexError, "too many indices", "3 axes, 4 were named"),
        (lambda: signs(2, 3, 4)[..., 0, ...], IndexError, "at most one ..."),
        (lambda: signs(2, 3, 4)[[0, 2]], IndexError, "2 is out of bounds for axis 0 of length 2"),
        (lambda: signs(2, 3, 4)[[0, 1], [0, 1, 2]], IndexError, "must broadcast, got the shapes (2,), (3,)"),
        (lambda: signs(2, 3, 4)[np.ones((2, 4), bool)], IndexError, "mask from axis 0 on", "(2, 3), got (2, 4)"),
        *[(lambda k=k: signs(2, 3, 4)[k], TypeError, "arrays of integers and masks", f"got {name}", ".codes()")
          for name, k in [("float64 array (1,)", [0.5]), ("list", [[0], [1, 2]]), ("bool", True), ("float", 1.0),
                          ("str", "a"), ("masked bool array (2,)", np.ma.masked_array([True, False])), ("set", {0}),
                          ("the class int", int), ("float64 array ()", np.array(1.5))]],
        (lambda: signs(2, 3, 4)[:"a"], TypeError, "slice(None, 'a', None) for axis 0 of (2, 3, 4)"),
        (lambda: signs(2, 3, 4)[::0], ValueError, "slice(None, None, 0) for axis 0", "cannot be zero"),
        (lambda: scaled(2, 8, group=4)[:, 2:], IndexError, "groups of 4", "2:8 cuts through a group"),
    ],
    "reshape": [
        (lambda: signs(2, 3, 4).reshape(5, 5), ValueError, "(2, 3, 4) does not fit the shape (5, 5)"),
        (lambda: signs(2, 3, 4).reshape(), ValueError, "does not fit the shape ()"),
        (lambda: signs(2, 3, 4).reshape(-1, -1), ValueError, "at most one length may be -1, got (-1, -1)"),
        (lambda: signs(2, 3, 4).reshape(7, -1), ValueError, "does not fit the shape (7, -1)"),
        (lambda: signs(0, 3, 4).reshape(0, -1), ValueError, "does not fit the shape (0, -1)"),
        (lambda: signs(2, 3, 4).reshape(-2, 12), ValueError, "a length must be at least -1, got -2"),
        (lambda: signs(2, 3, 4).reshape(2.0, 12), TypeError, "a length must be an integer, got 2.0"),
        (lambda: signs(2, 3, 4).reshape("24"), TypeError, "a length must be an integer, got '24'"),
        (lambda: signs(2, 3, 0).reshape(2**32, 2**32), ValueError, "does not fit the shape (4294967296, 4294967296)"),
        (lambda: signs(2, 3, 4, axis=1).reshape(2, 12),
         ValueError, "(2, 3, 4) packed on axis 1 cannot become (2, 12)", "pack the last axis first, with repack(q)"),
        (lambda: scaled(3, 100, along=0).reshape(2, 150), ValueError, "constants of (3, 100) vary", "length 150"),
    ],
    "transpose": [
        (lambda: signs(2, 3, 4).transpose(0, 1), ValueError, "each of the 3 axes once, got (0, 1)"),
        (lambda: signs(2, 3, 4).transpose(0, 0, 1), ValueError, "an axis is named twice in (0, 0, 1)"),
        (lambda: signs(2, 3, 4).transpose(0, 1, 3), np.exceptions.AxisError, "axis 3 is out of bounds"),
        (lambda: signs(2, 3, 4).transpose("a"), TypeError, "axis must be an integer, got 'a'"),
    ],
    "array_equal": [
        (lambda: qa.array_equal(signs(2), np.ones(2)), TypeError, "b must be a QuantArray", "float64 array (2,)"),
        (lambda: qa.array_equal(None, signs(2)), TypeError, "a must be a QuantArray, got NoneType"),
        (lambda: qa.array_equal(elsewhere(2), signs(2)), qa.DeviceError, "a on cuda:0, b on cpu", ".to_device("),
    ],
    "to_device": [(lambda d=d: signs(2).to_device(d), qa.DeviceError, repr(d), "cpu") for d in ("tpu", np.ones(2))],
    "device": [(lambda d=d: qa.device(d).__enter__(), qa.DeviceError, repr(d), "cpu") for d in ("tpu", np.ones(2))],
    "save": [
        (lambda: qa.save("q.npz", np.ones(2)),
         TypeError, "needs a QuantArray or a dict of arrays, got ndarray", "quantize"),
        (lambda: qa.save("q.npy", signs(2)), ValueError, "must end in .npz, .safetensors or .qa, got 'q.npy'"),
        (lambda: qa.save(3, signs(2)), TypeError, "file must be a path, got int"),
        (lambda: qa.save("a\0.npz", signs(2)), ValueError, "without null characters, got 'a\\x00.npz'"),
    ],
    "load": [
        (lambda: qa.load("q"), ValueError, "must end in .npz, .safetensors, .qa or .gguf, got 'q'"),
        (lambda: qa.load(None), TypeError, "file must be a path, got NoneType"),
        (lambda: qa.load("a\0.npz"), ValueError, "null characters"),
    ],
    "load_network": [
        (lambda: qa.nn.load_network(3), TypeError, "file must be a path, got int"),
        (lambda: qa.nn.load_network(b"a\0.npz"), ValueError, "null characters"),
    ],
    # what NumPy's habits would do by accident; the message starts as Python's or NumPy's own would
    "": [
        *[(lambda f=f: f(signs(2, 3)), TypeError, "does not turn into a NumPy array by accident", ".dequantize()")
          for f in (np.asarray, np.array, lambda q: np.array([q]), lambda q: np.asarray(q, int))],
        *[(lambda f=f: f(signs(2, 3)), TypeError, f"numpy.{name}", "does not take packed arrays", ".dequantize()")
          for name, f in {
              "add": lambda q: np.add(q, 1, dtype=int),
              "gcd": lambda q: np.gcd(q, 2),
              "subtract": lambda q: np.subtract.outer(q, q),
              "isnat": np.isnat,
              "maximum": lambda q: np.maximum.accumulate(q),
              "sum": lambda q: np.sum(q, where=np.ones(3, bool)),
              "median": np.median,
              "fft.fft": np.fft.fft,
              "linalg.svd": np.linalg.svd,
              "concatenate": lambda q: np.concatenate([q, q], out=np.ones(3)),
              "allclose": lambda q: np.allclose(q, q),
              "matmul": lambda q: np.matmul(q, q, out=np.zeros((2, 2))),
          }.items()],
        *[(lambda f=f: f(signs(2, 3)), ValueError, "truth value of a packed array of 6 elements", "array_equal()")
          for f in (lambda q: bool(q == q), lambda q: q in [1, q], lambda q: not q)],
        (lambda: signs(2) << 1, TypeError, "<< of packed arrays is refused", "q * 2**n", "shift(q, n)"),
        (lambda: bool(signs(2)), ValueError, "truth value of a packed array of 2 elements", "array_equal()"),
        (lambda: "1" in signs(2), TypeError, "in: packed arrays hold numbers", "got str"),
        (lambda: hash(signs(2)), TypeError, "unhashable type: 'QuantArray'"),
        (lambda: assign(signs(2, 3), 0, 1), TypeError, "immutable", ".codes()"),
        (lambda: assign(signs(2, 3).words, 0, 1), ValueError, "read-only"),
        (lambda: signs(2, 3) @ [1, 2], TypeError, "unsupported operand", "QuantArray", "list"),
        (lambda: qa.conv2d(elsewhere(2, 5, 5, 64), elsewhere(8, 3, 3, 64)),
         qa.DeviceError, "arrays on a GPU need CuPy", "pip install 'quantarray[cuda13]'"),
        (lambda: kernel("cuda:0", "winograd"), qa.DeviceError, "no kernel for device 'cuda:0'", ".to_device('cpu')"),
        (lambda: qa.uniform(2).max_abs, TypeError, "uniform(2) has real levels", "constants"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("op", "case"), [pytest.param(op, c, id=f"{op or 'python'}-{n}") for op in CASES for n, c in enumerate(CASES[op])]
)
def test_message(op, case, monkeypatch):
    call, error, *parts = case
    if error is MemoryError:
        monkeypatch.setattr(checks, "memory", lambda: 2048)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error) as caught:
            call()
    message = str(caught.value)
    assert type(caught.value) is error and message.startswith(f"{op}:" if op else "")
    assert [part for part in parts if part not in message] == [], message


def test_numbers_of_float16():
    """A float16 number is compared with float32's limit itself, which as a float16 would be infinite."""
    half = np.float16(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert qa.Sign(scale=half).scale == qa.PACT(1, alpha=half).step == 0.5
        assert qa.PACT(2, alpha=np.float16(1)).step == 1 / 3
        assert qa.Uniform(2, step=half, offset=half, symmetric=False).offset == 0.5
        assert qa.Uniform(2, percentile=half).percentile == qa.LQ(2, ridge=half).ridge == 0.5
        assert qa.array_equal(qa.dropout_mask(100, half), qa.dropout_mask(np.array(100), 0.5))
        assert batch_norm(eps=half).values.tolist() == batch_norm(eps=0.5).values.tolist()


def test_groups_longer_than_the_array():
    assert qa.allocate_bits([UNIT], 200, group=2**63) == [8]


def test_sums_past_int32_are_int64():
    """255 * 255 taken 33,026 times is past 2**31: the default is int64 there, one element less is int32, both exact."""
    for n, dtype in ((BIG, np.int64), (BIG - 1, np.int32)):
        q = bytes_255(1, n)
        conv = q.reshape(1, 1, 1, n)
        for result in (qa.linear(q, q), q @ q.T, qa.conv2d(conv, conv)):
            assert result.dtype == dtype and result.ravel().tolist() == [n * 255 * 255]
    q = bytes_255(1, BIG - 1)
    assert qa.linear(q, q, out_dtype=np.int64).dtype == np.int64
    exact = qa.linear(q, q, bias=[2**31], out_dtype=np.int64)
    assert exact.tolist() == [[(BIG - 1) * 255 * 255 + 2**31]]
