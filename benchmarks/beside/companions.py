"""Calls of other libraries that take some 0.2 to 1 ms by two threads: a name, and what makes the call."""

import numpy as np

_RNG = np.random.default_rng(0)
_IMAGE = (1, 64, 56, 56)
_FILTERS = (64, 64, 3, 3)


def _floats(*shape):
    return _RNG.standard_normal(shape, np.float32)


def torch():
    import torch

    torch.set_grad_enabled(False)
    x, w = torch.from_numpy(_floats(*_IMAGE)), torch.from_numpy(_floats(*_FILTERS))
    return lambda: torch.nn.functional.conv2d(x, w, padding=1)


def numpy():
    """Return a call of NumPy's float32 matrix product, which runs in its BLAS."""
    a, b = _floats(384, 384), _floats(384, 384)
    return lambda: a @ b


def sklearn():
    from sklearn.cluster import KMeans

    points = _floats(20_000, 16)
    fitted = KMeans(8, n_init=1, max_iter=5, random_state=0).fit(points)
    return lambda: fitted.predict(points)


def faiss():
    import faiss

    index = faiss.IndexBinaryFlat(256)
    index.add(_RNG.integers(0, 256, (20_000, 32), np.uint8))
    queries = _RNG.integers(0, 256, (16, 32), np.uint8)
    return lambda: index.search(queries, 10)


def onnxruntime():
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    tensor = helper.make_tensor_value_info
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    values = tensor("x", TensorProto.FLOAT, _IMAGE), tensor("y", TensorProto.FLOAT, _IMAGE)
    graph = helper.make_graph(
        [node], "conv", [values[0]], [values[1]], [numpy_helper.from_array(_floats(*_FILTERS), "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    session, x = onnxruntime.InferenceSession(model.SerializeToString()), _floats(*_IMAGE)
    return lambda: session.run(None, {"x": x})


def openvino():
    import openvino
    from openvino import opset13

    x = opset13.parameter(_IMAGE, np.float32)
    y = opset13.convolution(x, opset13.constant(_floats(*_FILTERS)), [1, 1], [1, 1], [1, 1], [1, 1])
    compiled = openvino.Core().compile_model(openvino.Model([y], [x]), "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    request, image = compiled.create_infer_request(), _floats(*_IMAGE)
    return lambda: request.infer([image], share_inputs=True)


COMPANIONS = {one.__name__: one for one in (torch, numpy, sklearn, faiss, onnxruntime, openvino)}
