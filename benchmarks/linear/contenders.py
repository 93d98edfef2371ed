"""Contenders: programs, the kinds of weights that they take, and how they make a call of layers.

    version(setup)              the program's version; ImportError if it is not installed
    nbytes(w)                   bytes of a layer's weights, as a call reads them
    ready(layers, xs, setup)    a call that returns the results of all layers; xs: {k: rows}

Each layer has memory of its own, even where all have the same weights.
"""

import copy
import warnings
from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa

from ..cpu.contenders import OURS
from . import ggml
from .cases import FILES, GROUPED, KINDS, MODEL, ROW, TERNARY


class Setup(NamedTuple):
    """A number of threads, and the folder of ggml's libraries, None for those of libggml-python."""

    threads: int
    ggml: str | None = None


class Contender(NamedTuple):
    """A program with one kind of layers."""

    version: Callable[[Setup], str]
    kinds: tuple[str, ...]
    nbytes: Callable[[Any], int]
    ready: Callable[..., Callable[[], list]]


def _ours(layers, xs, setup):
    qa.set_num_threads(setup.threads)
    arrays = [(copy.deepcopy(w.array), xs[w.array.shape[1]], w.quantize_x) for w in layers]
    return lambda: [qa.linear(x, array, quantize_x=quantize_x) for array, x, quantize_x in arrays]


# ONNX Runtime


def _onnxruntime_version(setup):
    import onnx  # noqa: F401  it writes the graphs
    import onnxruntime

    return onnxruntime.__version__


def _onnxruntime(layers, xs, setup):
    """Make a session of MatMulNBits for each layer; with accuracy_level 4 it rounds x to int8."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = setup.threads, 1, 3
    graphs = {id(w): _graph(w.array) for w in layers}
    calls = []
    for w in layers:
        session = onnxruntime.InferenceSession(graphs[id(w)], options, providers=["CPUExecutionProvider"])
        calls.append((session.run, {"x": xs[w.array.shape[1]]}))
    return lambda: [run(None, x)[0] for run, x in calls]


def _graph(array):
    from onnx import TensorProto, helper, numpy_helper

    (outputs, k), bits, levels = array.shape, array.bits, array.levels
    zero = np.rint(levels[0] / (levels[0] - levels[1])).astype(np.uint8)  # the code of 0 in each group
    constants = {"w": _packed(array.codes().reshape(outputs, -1, array.group), bits), "scale": array.scale}
    if (zero != 1 << (bits - 1)).any():  # other than without zero points
        constants["zero"] = _packed(zero, bits)
    node = helper.make_node(
        "MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft",
        K=k, N=outputs, bits=bits, block_size=array.group, accuracy_level=4,
    )  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, n]) for name, n in (("x", k), ("y", outputs)))
    tensors = [numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "linear", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _packed(codes, bits):
    """Pack codes into bytes along the last axis, the first in the lowest bits."""
    parts = codes.reshape(*codes.shape[:-1], -1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=-1)


# PyTorch


def _torch_version(setup):
    import torch

    return torch.__version__


def _torch(engine=None):
    """Make layers of bfloat16, or of int8 by dynamic quantisation for an engine, one scale for a weight."""

    def ready(layers, xs, setup):
        import torch

        torch.set_num_threads(setup.threads)
        if engine is not None:
            torch.backends.quantized.engine = engine
        dtype = torch.bfloat16 if engine is None else torch.float32
        rows, calls = {k: torch.from_numpy(x).to(dtype) for k, x in xs.items()}, []
        for w in layers:
            module = torch.nn.Linear(*w.array.shape[::-1], bias=False).eval()
            module.weight = torch.nn.Parameter(torch.from_numpy(w.array.dequantize()).to(dtype, copy=True))
            if engine is not None:
                module = _dynamic(torch.nn.Sequential(module))
            calls.append((module, rows[w.array.shape[1]]))

        def call():
            with torch.inference_mode():
                return [module(x) for module, x in calls]

        return call

    return ready


def _dynamic(module):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and what there is
        return torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, torch.qint8)


# litespark-inference

_LITESPARK_ROWS = 8  # of a call: it takes at most 64, and these are slower than eight times 8


def _litespark_version(setup):
    from litespark_inference.torchless import kernel

    kernel.ensure_built()
    return installed("litespark-inference")


def _litespark(layers, xs, setup):
    from litespark_inference.torchless import kernel, pack

    packed = {id(w): pack.pack_ternary_4_per_byte(w.array.codes().astype(np.int8) - np.int8(1)) for w in layers}
    calls = [(packed[id(w)].copy(), xs[w.array.shape[1]], float(w.array.scale.item())) for w in layers]

    def one(words, x, scale):
        q, scales, y = np.empty(x.shape, np.int8), np.empty(len(x), np.float32), np.empty((len(x), len(words)), "f4")
        if len(x) == 1:
            kernel.matmul_packed_m1(q[0], words, scale, kernel.quantize_activation(x[0], q[0]), y[0])
            return y
        kernel.quantize_activation_batched(x, q, scales)
        for i in range(0, len(x), _LITESPARK_ROWS):
            rows = slice(i, i + _LITESPARK_ROWS)
            kernel.matmul_packed_mT(q[rows], scales[rows], words, scale, y[rows])
        return y

    return lambda: [one(*call) for call in calls]


def _code_bytes(bits):
    return lambda w: w.array.size * bits // 8


_BLOCKS, _BYTES = (*FILES, TERNARY, MODEL), (TERNARY, ROW, "Q8_0")
CONTENDERS = {
    OURS: Contender(lambda setup: qa.__version__, (*KINDS, MODEL), lambda w: w.array.nbytes, _ours),
    "ggml": Contender(ggml.version, _BLOCKS, lambda w: w.blocks.nbytes, ggml.ready(False)),
    "ggml repacked": Contender(ggml.version, _BLOCKS, lambda w: w.blocks.nbytes, ggml.ready(True)),
    "onnxruntime": Contender(
        _onnxruntime_version, ("Q2_0", "Q4_0", "Q8_0", *GROUPED), lambda w: w.array.nbytes, _onnxruntime
    ),
    "torch fbgemm": Contender(_torch_version, _BYTES, _code_bytes(8), _torch("fbgemm")),
    "torch onednn": Contender(_torch_version, _BYTES, _code_bytes(8), _torch("onednn")),
    "torch bfloat16": Contender(_torch_version, _BYTES, _code_bytes(16), _torch()),
    "litespark": Contender(_litespark_version, (TERNARY, MODEL), _code_bytes(2), _litespark),
}
