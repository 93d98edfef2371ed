"""Files that exporters write: PyTorch's with constants in another file, also of a quantised network, Brevitas's, and
what QONNX, FINN and hls4ml make of those: the largest places, and operators of channels last.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quantarray as qa

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript", reason="PyTorch's exporter writes files by it")
sys.path.append(str(Path(__file__).parents[1] / "support"))

from qonnx_reference import evaluator  # noqa: E402


class Block(nn.Module):
    """relu(x + conv(relu(norm(conv(x)))))."""

    def __init__(self, channels):
        super().__init__()
        self.first, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return (self.second(self.norm(self.first(x)).relu()) + x).relu()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Sequential(Block(16), Block(16)), None
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(F.max_pool2d(self.stem(x).relu(), 2)).mean((2, 3)))


def trained():
    torch.manual_seed(1)
    net = Residual().train()
    for _ in range(3):
        net(torch.randn(8, 3, 16, 16))
    return net.eval()


def exported(net, folder):
    """Export as PyTorch does by default, for any length of the batch; return the path of the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n")},)
        torch.onnx.export(net, (torch.randn(2, 3, 16, 16),), str(folder / "net.onnx"), dynamic_shapes=shapes,
                          verbose=False)  # fmt: skip
    assert (folder / "net.onnx.data").exists(), "constants are in another file"
    return folder / "net.onnx"


def test_a_residual_network_of_floats(tmp_path):
    net, x = trained(), torch.randn(6, 3, 16, 16)
    graph = qa.nn.load(exported(net, tmp_path))
    assert graph.inputs[0].batched
    np.testing.assert_allclose(graph(x.numpy()), net(x).detach().numpy(), rtol=0, atol=1e-6)


def test_a_residual_network_that_pt2e_has_quantised(tmp_path):
    """Its products are packed; NumPy quantises floats, and computes with them after the sums of two branches."""
    pytest.importorskip("torchao.quantization.pt2e")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = (torch.randn(2, 3, 16, 16),)
        module = torch.export.export(trained(), example, dynamic_shapes=({0: torch.export.Dim("n")},)).module()
        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
        prepared = prepare_pt2e(module, quantizer)
        prepared(torch.randn(16, 3, 16, 16))
        path = exported(convert_pt2e(prepared), tmp_path)
    graph, x = qa.nn.load(path), np.random.default_rng(0).normal(0, 1, (8, 3, 16, 16)).astype(np.float32)
    ops = [n.op for n in graph.nodes]
    assert (ops.count("conv2d"), ops.count("linear")) == (5, 1) and not {"Conv", "MatMul"} & set(ops), ops
    got, expected = graph(x), evaluator(str(path)).run(None, {onnx.load(path).graph.input[0].name: x})[0]
    top = np.abs(expected).max()
    assert (np.abs(got - expected) > 2e-6 * top).mean() <= 0.02  # a code of a sum at a boundary moves some outputs
    np.testing.assert_allclose(got, expected, rtol=0, atol=0.01 * top)


@pytest.fixture(scope="module")
def brevitas_file(tmp_path_factory):
    """Export a network of 4 bits by Brevitas; return it and the path of its QONNX file."""
    qnn, export = pytest.importorskip("brevitas.nn"), pytest.importorskip("brevitas.export")
    torch.manual_seed(0)
    a, w = {"bit_width": 4}, {"weight_bit_width": 4, "bias": False}
    net = nn.Sequential(
        qnn.QuantIdentity(**a), qnn.QuantConv2d(3, 16, 3, padding=1, **w), nn.BatchNorm2d(16), qnn.QuantReLU(**a),
        nn.MaxPool2d(2), qnn.QuantConv2d(16, 8, 3, **w), qnn.QuantReLU(**a), nn.Flatten(), qnn.QuantLinear(32, 10, **w),
    ).train()  # fmt: skip
    for _ in range(3):
        net(torch.randn(16, 3, 8, 8))
    path = tmp_path_factory.mktemp("brevitas") / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export.export_qonnx(net.eval(), torch.randn(1, 3, 8, 8), str(path))
    return net, path


def numpy_rows(graph):
    return {row.op for row in graph.summary().numpy}


def test_the_largest_places_of_a_brevitas_network(brevitas_file, tmp_path):
    """TopK as qonnx's InsertTopK appends it, which FINN's flow begins with: places alone are the output."""
    net, path = brevitas_file
    m = onnx.load(path)
    scores = m.graph.output[0].name
    top = onnx.helper.make_node("TopK", [scores, "k"], ["values", "places"], axis=-1, largest=1, sorted=1)
    m.graph.node.append(top)
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.array([5]), "k"))
    m.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("places", onnx.TensorProto.INT64, [1, 5]))
    graph, x = qa.nn.load(m), torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    assert numpy_rows(graph) <= {"scale", "TopK"}
    np.testing.assert_array_equal(graph(x.numpy()), net(x).topk(5).indices.numpy())


def test_what_qonnx_makes_of_a_brevitas_network(brevitas_file, tmp_path):
    pytest.importorskip("qonnx", reason="FINN and hls4ml change files by it")
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.transformation.channels_last import ConvertToChannelsLastAndClean
    from qonnx.transformation.insert_topk import InsertTopK
    from qonnx.util.cleanup import cleanup_model

    net, path = brevitas_file
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    largest = cleanup_model(ModelWrapper(str(path))).transform(InsertTopK())
    graph = qa.nn.load(largest.model)
    np.testing.assert_array_equal(graph(x.numpy()), net(x).topk(5).indices.numpy())
    last = cleanup_model(ModelWrapper(str(path))).transform(ConvertToChannelsLastAndClean())
    assert {n.domain for n in last.graph.node} >= {"qonnx.custom_op.channels_last"}
    graph = qa.nn.load(last.model)
    assert numpy_rows(graph) == {"scale"}
    np.testing.assert_allclose(graph(x.numpy()), net(x).detach().numpy(), rtol=1e-6, atol=1e-7)
