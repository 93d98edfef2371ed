"""Modules that torch.ao has prepared for training with fake quantisation, whose scales and zero points are tensors."""

import numpy as np
import pytest
import torch
import torch.ao.quantization as ao
from torch import nn

import quantarray as qa

pytestmark = pytest.mark.filterwarnings("ignore")


def trained(backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3))
    net = ao.QuantWrapper(net)
    net.qconfig = ao.get_default_qat_qconfig(backend)
    net = ao.fuse_modules_qat(net.train(), [["module.0", "module.1", "module.2"]])
    ao.prepare_qat(net, inplace=True)
    for _ in range(4):
        net(torch.randn(4, 3, 10, 10))
    return net


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
def test_a_prepared_module(backend):
    net = trained(backend)
    net.apply(ao.disable_observer)
    net.eval()
    x = torch.randn(5, 3, 10, 10)
    graph = qa.nn.from_torch(net, x)
    assert np.array_equal(graph(x.numpy()), net(x).detach().numpy())
    assert sum(node.op == "conv2d" for node in graph.nodes) == 2


def test_a_module_that_still_observes_is_refused():
    net = trained("x86").eval()
    with pytest.raises(ValueError, match=r"_fused_moving_avg_obs_fq_helper writes to its argument"):
        qa.nn.from_torch(net, torch.randn(2, 3, 10, 10))


def test_numbers_in_tensors():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 4, bias=False)
            self.register_buffer("scale", torch.tensor([0.1]))
            self.register_buffer("zero", torch.tensor([7], dtype=torch.int32))

        def forward(self, x):
            x = torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, 15)
            return nn.functional.linear(x, self.linear.weight.sign())

    module, x = Module().eval(), torch.randn(6, 16)
    graph = qa.nn.from_torch(module, x)
    np.testing.assert_allclose(graph(x.numpy()), module(x).detach().numpy(), atol=1e-5)
    assert any(node.op == "linear" for node in graph.nodes)
