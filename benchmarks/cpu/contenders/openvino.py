"""OpenVINO on the CPU: convolutions in float32, in int8, and by its BinaryConvolution node, each as a whole graph.

Images and results are float32 for the float and binary graphs and int8 for the int8 one, NHWC or NCHW, whichever is
faster, in tensors that are bound once; weights are constants, laid out when the graph is compiled.
"""

import numpy as np
import openvino
from openvino import opset1, opset8

from ..cases import Conv
from . import Entry, attempt, fastest

FLOAT, BYTE, BINARY = "openvino float32", "openvino int8", "openvino binary"


def version():
    return openvino.__version__.split("-")[0]


def entries(case, threads):
    if not isinstance(case, Conv):
        return {}
    wide = "its 8-bit result cannot hold the sums"
    plain = case.bits == (1, 1) and case.groups == 1
    return {
        FLOAT: attempt(floats, case, threads),
        BYTE: attempt(integers, case, threads) if case.out == "bits" else wide,
        BINARY: attempt(binary, case, threads) if plain else "the node takes -1 and 1 without groups",
    }


def compiled(x, parameter, result, threads):
    """A call of the graph from parameter to result."""
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = openvino.Model([result], [parameter], "case")
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(x))
    out = request.get_output_tensor()

    def call():
        request.infer()
        return out

    return call


def window(case):
    pads = [case.padding] * 2
    return {"strides": [case.stride] * 2, "pads_begin": pads, "pads_end": pads, "dilations": [1, 1]}


def convolution(case, x, w):
    """The node for plain or grouped weights; w is a constant [o i kh kw]."""
    if case.groups == 1:
        return opset8.convolution(x, w, **window(case))
    groups, taps = case.groups, [case.kernel] * 2
    shape = np.array([groups, case.outputs // groups, case.channels // groups, *taps])
    return opset8.group_convolution(x, opset8.reshape(w, shape, special_zero=False), **window(case))


def weights(case):
    return np.ascontiguousarray(case.inputs()["w"].transpose(0, 3, 1, 2))


def reader(case, last):
    def read(y):
        data = y.data if last else y.data.transpose(0, 2, 3, 1)
        return data > 0 if case.out == "bits" else data.astype(case.out)

    return read


def graph(case, make, x, threads, last, tolerance=0.0):
    """The entry of a graph that `make` builds on an NCHW node; images and results are NHWC where `last`."""
    x = x if last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    parameter = opset8.parameter(x.shape, x.dtype)
    image = opset8.transpose(parameter, np.array([0, 3, 1, 2])) if last else parameter
    made = make(image)
    made = opset8.transpose(made, np.array([0, 2, 3, 1])) if last else made
    return Entry(compiled(x, parameter, made, threads), reader(case, last), tolerance)


def in_both_layouts(*args):
    return fastest([graph(*args, last) for last in (True, False)])


def floats(case, threads):
    kept = weights(case).astype(np.float32)
    x = case.inputs()["x"].astype(np.float32)
    return in_both_layouts(case, lambda image: convolution(case, image, opset8.constant(kept)), x, threads)


def integers(case, threads):
    """int8 in and out: what its low-precision passes make of converted inputs and a fake quantised result."""

    def make(image):
        image = opset8.multiply(opset8.convert(image, "f32"), opset8.constant(np.float32(1)))
        kept = opset8.convert(opset8.constant(weights(case)), "f32")
        kept = opset8.multiply(kept, opset8.constant(np.ones((case.outputs, 1, 1, 1), np.float32)))
        low, high = (opset8.constant(np.float32(v)) for v in (-128, 127))
        return opset8.convert(opset8.fake_quantize(convolution(case, image, kept), low, high, low, high, 256), "i8")

    return in_both_layouts(case, make, case.inputs()["x"], threads)


def binary(case, threads):
    """Bits are made by a fake quantiser of two levels, in the graph; a padded pixel counts nothing.

    OpenVINO 2026.4 gives wrong sums with AVX-512 (an image of ones by weights of ones does not give the number of taps
    and channels), so its result is looked at here, and it takes part only where that is right.
    """
    bits, shape = np.packbits(weights(case) > 0, bitorder="little"), openvino.Shape(weights(case).shape)

    def make(image):
        cut, low, high = (opset8.constant(np.full((1, 1, 1, 1), v, np.float32)) for v in (0, -1, 1))
        image = opset8.fake_quantize(image, cut, cut, low, high, 2)
        kept = openvino.op.Constant(openvino.Tensor(bits, shape, openvino.Type.u1))
        return opset1.binary_convolution(image, kept, mode="xnor-popcount", pad_value=0.0, **window(case))

    entry = in_both_layouts(case, make, case.inputs()["x"].astype(np.float32), threads)
    return entry if np.array_equal(entry.read(entry.call()), case.expected()) else "the node's sums are wrong"
