"""ONNX Runtime: QLinearConv (uint8 by int8 to uint8), Conv in float32, MatMulInteger.

Weights are constants of the graph, so that they are packed when the session is made. Images and results are in buffers
that are bound once, NCHW, which is its own layout.
"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from ..cases import Conv, Product
from . import Entry, attempt, fastest

OWN = "com.microsoft"  # its own operators
KINDS = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "int32": TensorProto.INT32}


def version():
    return onnxruntime.__version__


def entries(case, threads):
    if isinstance(case, Product):
        return {"onnxruntime int8": attempt(product, case, threads)}
    if isinstance(case, Conv):
        wide = "its 8-bit result cannot hold the sums"
        return {
            "onnxruntime float32": attempt(floats, case, threads),
            "onnxruntime int8": attempt(quantized, case, threads) if case.out == "bits" else wide,
        }
    return {}


def session(op, constants, names, x, shape, dtype, threads, **attributes):
    """Return a call of a graph of one node, with x and the constants bound to its inputs `names`."""
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "case",
        [helper.make_tensor_value_info("x", KINDS[str(x.dtype)], x.shape)],
        [helper.make_tensor_value_info("y", KINDS[dtype], shape)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(OWN, 1)], ir_version=9
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    runner = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    y, binding = np.empty(shape, dtype), runner.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)

    def call():
        runner.run_with_iobinding(binding)
        return y

    return call


def images(case):
    inputs = case.inputs()
    return [np.ascontiguousarray(inputs[name].transpose(0, 3, 1, 2)) for name in ("x", "w")]


def window(case):
    return {"pads": [case.padding] * 4, "strides": [case.stride] * 2, "group": case.groups}


def floats(case, threads):
    x, w = (a.astype(np.float32) for a in images(case))
    n, height, width, c = case.shapes[2]
    call = session("Conv", {"w": w}, ["x", "w"], x, (n, c, height, width), "float32", threads, **window(case))
    if case.out == "bits":
        return Entry(call, lambda y: y.transpose(0, 2, 3, 1) > 0)
    return Entry(call, lambda y: y.transpose(0, 2, 3, 1).astype(case.out), 1e-6)


def quantized(case, threads):
    """Return the faster of the standard's NCHW node and ONNX Runtime's NHWC node.

    Their 8-bit sums saturate but keep their signs.
    """
    x, w = images(case)
    x = (x.astype(np.int16) + 128).astype(np.uint8)
    one, middle = np.float32(1), np.uint8(128)
    constants = {"one": one, "zero": middle, "w": w, "wzero": np.int8(0)}
    names = ["x", "one", "zero", "w", "one", "wzero", "one", "zero"]
    n, height, width, c = case.shapes[2]
    first = session("QLinearConv", constants, names, x, (n, c, height, width), "uint8", threads, **window(case))
    choices = [Entry(first, lambda y: y.transpose(0, 2, 3, 1) > 128)]
    attributes = {"domain": OWN, "channels_last": 1} | window(case)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    last = attempt(lambda: session("QLinearConv", constants, names, x, case.shapes[2], "uint8", threads, **attributes))
    return fastest([*choices, last if isinstance(last, str) else Entry(last, lambda y: y > 128)])


def product(case, threads):
    x, w = (case.inputs()[name] for name in ("x", "w"))
    shifted = (x.astype(np.int16) + 128).astype(np.uint8)  # uint8 by int8 is what it has kernels for
    constants = {"w": np.ascontiguousarray(w.T), "zero": np.uint8(128)}
    call = session("MatMulInteger", constants, ["x", "w", "zero"], shifted, (case.m, case.n), "int32", threads)
    return Entry(call, np.asarray)
