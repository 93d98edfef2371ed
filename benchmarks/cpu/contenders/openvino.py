"""OpenVINO on the CPU: convolutions in float32, in int8, and by its BinaryConvolution node, each as a whole graph.

Images and results are NHWC float32 for the float and binary graphs and int8 for the int8 one, in tensors that are
bound once; weights are constants, laid out when the graph is compiled.
"""

import numpy as np
import openvino
from openvino import opset1, opset8

from ..cases import Conv
from . import Entry, attempt

FLOAT, BYTE, BINARY = "openvino float32", "openvino int8", "openvino binary"


def version():
    return openvino.__version__.split("-")[0]


def entries(case, threads):
    if not isinstance(case, Conv):
        return {}
    wide = "its 8-bit result cannot hold the sums"
    plain = case.bits == (1, 1) and not case.depthwise
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


def nchw(node):
    return opset8.transpose(node, np.array([0, 3, 1, 2]))


def nhwc(node):
    return opset8.transpose(node, np.array([0, 2, 3, 1]))


def convolution(case, x, w):
    """The node for plain or depthwise weights; w is a constant [o i kh kw]."""
    if not case.depthwise:
        return opset8.convolution(x, w, **window(case))
    grouped = opset8.reshape(w, np.array([case.channels, 1, 1, case.kernel, case.kernel]), special_zero=False)
    return opset8.group_convolution(x, grouped, **window(case))


def weights(case):
    return np.ascontiguousarray(case.inputs()["w"].transpose(0, 3, 1, 2))


def reader(case):
    if case.out == "bits":
        return lambda y: y.data > 0
    return lambda y: y.data.astype(case.out)


def floats(case, threads):
    x = case.inputs()["x"].astype(np.float32)
    parameter = opset8.parameter(x.shape, np.float32)
    made = convolution(case, nchw(parameter), opset8.constant(weights(case).astype(np.float32)))
    return Entry(compiled(x, parameter, nhwc(made), threads), reader(case), 0.0 if case.out == "bits" else 1e-6)


def integers(case, threads):
    """int8 in and out: what its low-precision passes make of converted inputs and a fake quantised result."""
    x = case.inputs()["x"]
    parameter = opset8.parameter(x.shape, np.int8)
    image = opset8.multiply(opset8.convert(parameter, "f32"), opset8.constant(np.float32(1)))
    kept = opset8.convert(opset8.constant(weights(case)), "f32")
    kept = opset8.multiply(kept, opset8.constant(np.ones((case.outputs, 1, 1, 1), np.float32)))
    made = convolution(case, nchw(image), kept)
    low, high = (opset8.constant(np.float32(v)) for v in (-128, 127))
    made = opset8.convert(opset8.fake_quantize(made, low, high, low, high, 256), "i8")
    return Entry(compiled(x, parameter, nhwc(made), threads), reader(case))


def binary(case, threads):
    """Bits are made by a fake quantiser of two levels, in the graph; a padded pixel counts nothing.

    OpenVINO 2026.4 gives wrong sums with AVX-512 (an image of ones by weights of ones does not give the number of taps
    and channels), so its result is looked at here, and it takes part only where that is right.
    """
    x = case.inputs()["x"].astype(np.float32)
    parameter = opset8.parameter(x.shape, np.float32)
    cut, low, high = (opset8.constant(np.full((1, 1, 1, 1), v, np.float32)) for v in (0, -1, 1))
    image = opset8.fake_quantize(nchw(parameter), cut, cut, low, high, 2)
    bits = np.packbits(weights(case) > 0, bitorder="little")
    kept = openvino.op.Constant(openvino.Tensor(bits, openvino.Shape(weights(case).shape), openvino.Type.u1))
    made = opset1.binary_convolution(image, kept, mode="xnor-popcount", pad_value=0.0, **window(case))
    entry = Entry(compiled(x, parameter, nhwc(made), threads), reader(case))
    return entry if np.array_equal(entry.read(entry.call()), case.expected()) else "the node's sums are wrong"
