"""Modules that torch.export and torchao's pt2e have quantised: quantize_per_tensor and dequantize_per_tensor."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quantarray as qa

pytest.importorskip("torchao.quantization.pt2e", reason="torchao has prepare_pt2e")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Linear(8 * 16, 5)

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.head((self.second(x).relu() + x).flatten(1))


def quantised():
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    example = (torch.randn(2, 3, 8, 8),)
    exported = torch.export.export(Net().eval(), example, dynamic_shapes=({0: torch.export.Dim("n")},)).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    for _ in range(3):
        prepared(torch.randn(8, 3, 8, 8))
    return convert_pt2e(prepared)


@pytest.fixture(scope="module")
def net():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantised()


def test_a_network_of_pt2e(net, tmp_path):
    """Products are of integers: sums differ from PyTorch's floats by their rounding, so a code may by one level."""
    x = torch.randn(16, 3, 8, 8)
    graph = qa.nn.from_torch(net, x[:1])
    ops = [n.op for n in graph.nodes]
    assert (ops.count("conv2d"), ops.count("linear"), ops.count("quantize")) == (2, 1, 2), ops
    assert not {"Conv", "MatMul", "Round"} & set(ops), ops
    expected = net(x).detach().numpy()
    top = np.abs(expected).max()
    apart = np.abs(graph(x.numpy()) - expected) > 2e-6 * top
    assert apart.mean() < 0.02
    np.testing.assert_allclose(graph(x.numpy()), expected, rtol=0, atol=0.01 * top)
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x.numpy()), graph(x.numpy()))


Q = torch.ops.quantized_decomposed
SCALES, ZEROS = torch.tensor([0.1, 0.25, 0.3, 0.07]), torch.tensor([0, 3, -2, 1])


def of_tensor(x):
    return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.13, 7, 0, 255, torch.uint8), 0.13, 7, 0, 255, torch.uint8)


def of_tensors(x):
    scale, zero, ends = torch.tensor(0.13), torch.tensor(-5), (-128, 127, torch.int8)
    return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, scale, zero, *ends), scale, zero, *ends)


def of_channels(x):
    a = (SCALES, ZEROS, 1, -8, 7, torch.int8)
    return Q.dequantize_per_channel(Q.quantize_per_channel(x, *a), *a)


def few_levels(x):
    return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.5, 1, 0, 3, torch.uint8), 0.5, 1, 0, 3, torch.uint8)


def stored(x):
    return Q.quantize_per_channel(x, SCALES, ZEROS, 1, -8, 7, torch.int8)


@pytest.mark.parametrize("function", [of_tensor, of_tensors, of_channels, few_levels, stored])
@pytest.mark.parametrize("before", [lambda x: x, lambda x: x.relu() - 0.3, torch.tanh])
def test_every_code_is_pytorchs(function, before):
    class Coded(nn.Module):
        def forward(self, x):
            return function(before(x))

    rng = np.random.default_rng(0)
    x = torch.from_numpy((rng.integers(-600, 600, (9, 4, 5, 5)) / 2 * 0.13).astype(np.float32))
    x = torch.where(torch.rand(x.shape) < 0.3, x.nextafter(torch.tensor(0.0)), x)
    graph = qa.nn.from_torch(Coded(), x[:1])
    if before is torch.tanh:  # NumPy's is not PyTorch's to the bit
        assert (graph(x.numpy()) != Coded()(x).numpy()).mean() < 1e-3
    else:
        np.testing.assert_array_equal(graph(x.numpy()), Coded()(x).numpy(), strict=True)
