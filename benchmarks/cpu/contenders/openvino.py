"""OpenVINO on the CPU: convolutions in float32, in int8, and by its BinaryConvolution node, each as a whole graph.

Images and results are float32 for the float and binary graphs and int8 for the int8 one, NHWC or NCHW, whichever is
faster, in tensors that are bound once; weights are constants, laid out when the graph is compiled. "openvino binary
node" is what its profiler says of that node alone, bits in and bits or float32 out: no call, no other node.
"""

import numpy as np
import openvino
from openvino import opset1, opset8

from ..cases import Conv
from . import Entry, attempt, fastest

FLOAT, BYTE, BINARY = "openvino float32", "openvino int8", "openvino binary"
NODE = "openvino binary node"
_SHARED = []  # memory of constants, which they do not keep


def version():
    return openvino.__version__.split("-")[0]


def entries(case, threads):
    if not isinstance(case, Conv):
        return {}
    _SHARED.clear()
    wide = "its 8-bit result cannot hold the sums"
    entries = {
        FLOAT: attempt(floats, case, threads),
        BYTE: attempt(integers, case, threads) if case.out == "bits" else wide,
    }
    if case.bits != (1, 1) or case.groups > 1:
        return entries | dict.fromkeys((BINARY, NODE), "the node takes -1 and 1 without groups")
    return entries | {BINARY: attempt(binary, case, threads), NODE: attempt(node, case, threads)}


def compiled(x, parameter, result, threads, **more):
    """(a call of the graph from parameter to result, what makes it)."""
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    } | more
    model = openvino.Model([result], [parameter], "case")
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(x))
    out = request.get_output_tensor()

    def call():
        request.infer()
        return out

    return call, request


def window(case):
    pads = [case.padding] * 2
    return {"strides": [case.stride] * 2, "pads_begin": pads, "pads_end": pads, "dilations": [1, 1]}


def convolution(case, x, w):
    """Build the convolution node for plain or grouped weights; w is a constant [o i kh kw]."""
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
    """Build the entry of a graph from `make`, which adds NCHW nodes; images and results are NHWC if `last`."""
    x = x if last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    parameter = opset8.parameter(x.shape, x.dtype)
    image = opset8.transpose(parameter, np.array([0, 3, 1, 2])) if last else parameter
    result = make(image)
    result = opset8.transpose(result, np.array([0, 2, 3, 1])) if last else result
    return Entry(compiled(x, parameter, result, threads)[0], reader(case, last), tolerance)


def in_both_layouts(*args):
    return fastest([graph(*args, last) for last in (True, False)])


def floats(case, threads):
    filters = weights(case).astype(np.float32)
    x = case.inputs()["x"].astype(np.float32)
    return in_both_layouts(case, lambda image: convolution(case, image, opset8.constant(filters)), x, threads)


def integers(case, threads):
    """Build an entry of int8 in and out, in the form that the plugin's low-precision passes turn into int8 nodes."""

    def make(image):
        image = opset8.multiply(opset8.convert(image, "f32"), opset8.constant(np.float32(1)))
        filters = opset8.convert(opset8.constant(weights(case)), "f32")
        filters = opset8.multiply(filters, opset8.constant(np.ones((case.outputs, 1, 1, 1), np.float32)))
        low, high = (opset8.constant(np.float32(v)) for v in (-128, 127))
        return opset8.convert(opset8.fake_quantize(convolution(case, image, filters), low, high, low, high, 256), "i8")

    return in_both_layouts(case, make, case.inputs()["x"], threads)


def binary(case, threads):
    """Build an entry of the binary node, NCHW only: with transposes beside it the process ends (OpenVINO 2026.4)."""
    x = case.inputs()["x"].astype(np.float32)
    return graph(case, lambda image: counted(case, bits_of(image)), x, threads, last=False)


def node(case, threads):
    """Build an entry that times the binary node only, by the plugin's profiling counters.

    For bits out it is the first of two such nodes, since the plugin keeps bits only between binary nodes.
    """
    x = np.ascontiguousarray(case.inputs()["x"].transpose(0, 3, 1, 2)).astype(np.float32)
    parameter = opset8.parameter(x.shape, np.float32)
    plain = counted(case, bits_of(parameter))
    whole, _ = compiled(x, parameter, plain, threads)
    result = plain
    if case.out == "bits":
        ones = np.full(case.outputs // 8, 255, np.uint8)
        result = opset1.binary_convolution(
            bits_of(plain), constant_bits(ones, (1, case.outputs, 1, 1)), mode="xnor-popcount", pad_value=0.0,
            strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1],
        )  # fmt: skip
    call, request = compiled(x, parameter, result, threads, PERF_COUNT=True)

    def seconds(_):
        times = [n.real_time.total_seconds() for n in request.profiling_info if n.node_type == "BinaryConvolution"]
        return times[0]

    return Entry(call, lambda _: reader(case, False)(whole()), seconds=seconds)


def bits_of(image):
    """Build a fake quantiser to 0 and 1, which the plugin turns into bits if nothing else reads its constants."""
    cut, same, low, high = (opset8.constant(np.full((1, 1, 1, 1), v, np.float32)) for v in (0, 0, 0, 1))
    return opset8.fake_quantize(image, cut, same, low, high, 2)


def counted(case, image):
    """Build the binary convolution node; padded pixels count as 0."""
    filters = constant_bits(np.packbits(weights(case) > 0, bitorder="little"), weights(case).shape)
    return opset1.binary_convolution(image, filters, mode="xnor-popcount", pad_value=0.0, **window(case))


def constant_bits(packed, shape):
    _SHARED.append(packed)
    return openvino.op.Constant(openvino.Tensor(packed, openvino.Shape(shape), openvino.Type.u1))
