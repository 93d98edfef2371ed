"""Networks that ONNX Runtime's quantize_static writes, of every opset and form, give ONNX Runtime's results.

ONNX Runtime multiplies the sums of a product by float32(s_x * s_w / s_y), rounded; ONNX has a float32 value, divided by
s_y. A code may differ by one step where the value is next to the middle of two codes.
"""

import numpy as np
import pytest
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa

onnxruntime = pytest.importorskip("onnxruntime")
F = np.float32
OPSETS = range(13, 22)
FORMS = ["QDQ", "QOperator"]
KINDS = {"bytes": ("QUInt8", "QInt8"), "signed": ("QInt8", "QInt8"), "unsigned": ("QUInt8", "QUInt8")}


def network(opset, seed=0, channels=16):
    """Return a residual network: convolutions, one of each channel, pools, a sum, a concatenation, a linear layer."""
    rng, c = np.random.default_rng(seed), channels
    tensors = {
        "w1": rng.normal(0, 0.3, (c, 3, 3, 3)), "b1": rng.normal(0, 0.1, c), "w2": rng.normal(0, 0.1, (c, c, 3, 3)),
        "b2": rng.normal(0, 0.1, c), "w3": rng.normal(0, 0.4, (c, 1, 3, 3)), "b3": rng.normal(0, 0.1, c),
        "w4": rng.normal(0, 0.3, (2 * c, 10)), "b4": rng.normal(0, 0.1, 10),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4), node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w2", "b2"], ["c2"], pads=[1] * 4), node("Add", ["c2", "p"], ["a"]),
        node("Relu", ["a"], ["r2"]), node("Conv", ["r2", "w3", "b3"], ["c3"], pads=[1] * 4, group=c),
        node("LeakyRelu", ["c3"], ["l"], alpha=0.1), node("Concat", ["l", "r2"], ["j"], axis=1),
        node("GlobalAveragePool", ["j"], ["g"]), node("Flatten", ["g"], ["f"]), node("Gemm", ["f", "w4", "b4"], ["y"]),
    ]  # fmt: skip
    constants = [(n, a.astype(F)) for n, a in tensors.items()]
    return model(nodes, [("x", ("n", 3, 8, 8))], [("y", ("n", 10))], constants, opset=opset)


def images(n, seed):
    return np.random.default_rng(seed).normal(0, 1.2, (n, 3, 8, 8)).astype(F)


def quantised(folder, opset, form, kinds, by_channel, seed=0):
    """Quantise the network by ONNX Runtime, calibrated with 16 images.

    int8 weights have 7 bits: ONNX Runtime's products of 8 bits saturate without VNNI (by up to 78 steps of a result).
    With a scale for each channel, it writes int8 for "unsigned" ones too.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        batches = iter([{"x": images(4, 100 + i)} for i in range(4)])

        def get_next(self):
            return next(self.batches, None)

    onnx.save(network(opset, seed), folder / "net.onnx")
    activation, weight = (getattr(QuantType, kind) for kind in kinds)
    quantize_static(folder / "net.onnx", folder / "quantised.onnx", Reader(), quant_format=QuantFormat[form],
                    activation_type=activation, weight_type=weight, per_channel=by_channel,
                    reduce_range=by_channel or kinds[1] == "QInt8")  # fmt: skip
    return folder / "quantised.onnx"


def run(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def equal_but_for_one_step(got, expected, most):
    """Assert that at most `most` of the results differ, each by some steps of the last quantiser."""
    step = np.diff(np.unique(expected)).min()
    assert (np.abs(got - expected) > step / 2).mean() <= most
    np.testing.assert_allclose(got, expected, rtol=0, atol=4.5 * step)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by_channel", [False, True], ids=["one scale", "a scale for each channel"])
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_and_form(opset, form, kinds, by_channel, tmp_path):
    path, x = quantised(tmp_path, opset, form, KINDS[kinds], by_channel), images(24, 5)
    m = onnx.load(path)
    graph = qa.nn.load(path)
    got = graph(x)
    equal_but_for_one_step(got, run(path, x), 0.02)
    if opset >= 19 and not any(n.domain for n in m.graph.node):  # from which on the reference has the operators
        equal_but_for_one_step(got, evaluator(m).run(None, {"x": x})[0], 0.02)
    ops = [n.op for n in graph.nodes]
    assert not {"Conv", "MaxPool", "AveragePool"} & set(ops), ops
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x), got)
    np.testing.assert_array_equal(graph.prepared()(x), got)
