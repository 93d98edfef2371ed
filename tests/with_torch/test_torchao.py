"""Linear layers whose weights torchao quantised keep its integers and scales, packed, and give torchao's results."""

import io
import logging
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch
from torch import nn

import quantarray as qa

with redirect_stderr(io.StringIO()):
    logging.disable(logging.WARNING)  # of CUDA libraries that this machine has not
    from torchao import quantization as ao
    from torchao.quantization.granularity import PerAxis, PerGroup

    logging.disable(logging.NOTSET)

CONFIGURATIONS = {
    "int8": (ao.Int8WeightOnlyConfig(), 8),
    "int4, outputs": (ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerAxis(0)), 4),
    "int4, groups of 32": (ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)), 4),
    "int2, groups of 64": (ao.IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=PerGroup(64)), 2),
    "int8, groups of 16": (ao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(16)), 8),
}
X = torch.randn(5, 128, generator=torch.Generator().manual_seed(1))


def network(config):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128, bias=False), nn.Hardswish(), nn.Linear(128, 300)
    )
    ao.quantize_(net, config)
    return net.eval()


def check(net, x, graph):
    with torch.no_grad():
        expected = net(x).numpy()
    np.testing.assert_allclose(graph(x.numpy()), expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_weights_stay_packed(name, tmp_path):
    config, bits = CONFIGURATIONS[name]
    net = network(config)
    weights = {path: part.weight for path, part in net.named_modules() if isinstance(part, nn.Linear)}
    graph = qa.nn.from_torch(net, X[:1])
    check(net, X, graph)
    assert all(net.get_parameter(f"{path}.weight") is w for path, w in weights.items())  # the module is as it was
    packed = {n.source.split()[0]: graph.constants[n.inputs[1]] for n in graph.nodes if n.op == "dequantized_linear"}
    assert packed.keys() == weights.keys()
    for path, w in weights.items():
        q = packed[path]
        np.testing.assert_array_equal(q.dequantize(), w.dequantize().numpy())
        np.testing.assert_array_equal(q.codes().astype(int) + int(q.dtype.levels[0]), w.qdata.numpy())
        assert q.bits == bits and q.scale.size == w.scale.numel()
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(X.numpy()), graph(X.numpy()))
    graph.save(tmp_path / "net.onnx")
    np.testing.assert_allclose(qa.nn.load(tmp_path / "net.onnx")(X.numpy()), graph(X.numpy()), rtol=1e-5, atol=1e-6)


def test_summary_shows_packed_weights():
    rows = qa.nn.from_torch(network(CONFIGURATIONS["int4, outputs"][0]), X[:1]).summary().rows
    first = next(row for row in rows if row.op == "dequantized_linear")
    assert (first.runs, first.source, first.weights, first.macs) == ("float result", "0 (Linear)", 256 * 128, 256 * 128)
    assert first.nbytes == 256 * 128 // 2 + 4 * 256  # 4 bits a weight, and a scale for each output


@pytest.mark.parametrize("name", ["int4, outputs", "int4, groups of 32"])
def test_zero_points(name):
    config = CONFIGURATIONS[name][0]
    config = ao.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=config.granularity, mapping_type=ao.MappingType.ASYMMETRIC
    )
    net = network(config)
    assert (net[0].weight.zero_point != 0).any()
    graph = qa.nn.from_torch(net, X[:1])
    check(net, X, graph)
    assert sum(n.op == "dequantized_linear" for n in graph.nodes) == 3


def test_integer_inputs_give_integer_products():
    """A quantised input and one scale for each output: the product is of integers."""

    class Rounded(nn.Module):
        def forward(self, x):
            return torch.clamp(torch.round(x * 4), -8, 7) / 4

    net = nn.Sequential(Rounded(), nn.Linear(128, 32))
    ao.quantize_(net, CONFIGURATIONS["int4, outputs"][0])
    graph = qa.nn.from_torch(net, X[:1])
    check(net, X, graph)
    assert any(n.op == "linear" for n in graph.nodes)


def test_shared_weights_and_sequences():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(128, 128)

        def forward(self, x):
            return self.first(torch.relu(self.first(x)))

    net, x = Twice(), torch.randn(2, 3, 128)
    ao.quantize_(net, CONFIGURATIONS["int4, groups of 32"][0])
    graph = qa.nn.from_torch(net, x)
    check(net, x, graph)
    assert sum(n.op == "dequantized_linear" for n in graph.nodes) == 2


def test_other_configurations_are_refused_by_name():
    net = network(ao.Int8DynamicActivationInt8WeightConfig())
    why = r"3 parts of the module(.|\n)*0 \(Linear\): torchao quantises its input by the numbers of the input"
    with pytest.raises(ValueError, match=why):
        qa.nn.from_torch(net, X[:1])
    net = network(ao.Float8WeightOnlyConfig())
    with pytest.raises(ValueError, match=r"0 \(Linear\): its weight is a Float8Tensor of torchao, which is not taken"):
        qa.nn.from_torch(net, X[:1])
