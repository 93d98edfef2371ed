"""Variances, norms, masked softmax, repeated values and permuted channels between products of few bits."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_compared import compare
from torch_layers import Levels, LowConv, LowLinear

import quantarray as qa

PLACES = torch.tensor([3, 0, -1, 5, 2, 1, 4, 6])
FUNCTIONS = {
    "std": lambda y: y / (y.std(1, keepdim=True) + 1),
    "std of all": lambda y: y / (y.flatten(1).std(1)[:, None, None, None] + 1),
    "std of n": lambda y: y / (y.std((2, 3), keepdim=True, correction=0) + 1),
    "var": lambda y: y - y.var((2, 3), keepdim=True, unbiased=False) / 9,
    "var of n - 2": lambda y: y - y.var(-1, keepdim=True, correction=2) / 9,
    "var_mean": lambda y: (lambda v, m: (y - m) / (v + 1).sqrt())(*torch.var_mean(y, 1, keepdim=True)),
    "std_mean": lambda y: (lambda s, m: (y - m[:, None]) / (s[:, None] + 1))(*torch.std_mean(y, 1)),
    "normalize": lambda y: F.normalize(y, dim=1),
    "normalize, 1": lambda y: F.normalize(y, p=1.0, dim=(2, 3)) * 9,
    "normalize, 3": lambda y: F.normalize(y, p=3.0, dim=1),
    "normalize, inf": lambda y: F.normalize(y, p=math.inf, dim=1),
    "norm": lambda y: y / (1 + torch.linalg.vector_norm(y, -math.inf, 1, True)),
    "expand": lambda y: y.mean((2, 3), keepdim=True).expand_as(y) + 0.25,
    "expand codes": lambda y: y[:, :1].round().clamp(0, 3).expand(-1, 8, -1, -1),
    "index": lambda y: y[:, PLACES],
    "index of places": lambda y: y[:, :, [4, 0, 2, -1]],
    "index_select": lambda y: y.index_select(3, PLACES[:5].clamp(0, 4)),
    "linear of channels": lambda y: F.linear(y.permute(0, 2, 3, 1).round().clamp(-1, 1), WEIGHT).permute(0, 3, 1, 2),
    "product of channels": lambda y: (y.permute(0, 2, 3, 1).round().clamp(-1, 1) @ WEIGHT).movedim(-1, 1),
    "product of rows": lambda y: (y.flatten(2).transpose(1, 2).sign() @ WEIGHT).transpose(1, 2).reshape(y.shape),
}
WEIGHT = torch.randint(-1, 2, (8, 8), generator=torch.Generator().manual_seed(2)).float()


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(4)
        self.function = function
        self.first, self.second = LowConv(3, 8, 3, padding=1), LowConv(8, 4, 3, padding=1)
        self.ends = nn.ModuleList([Levels(2), Levels(4)])

    def forward(self, x):
        return self.second(self.ends[1](self.function(self.first(self.ends[0](x)))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_several_elements(name):
    net, x = Net(FUNCTIONS[name]), torch.randn(4, 3, 5, 5)
    graph = qa.nn.from_torch(net, x[:1])
    assert graph.inputs[0].batched
    compare(net, x, graph)
    ops = [n.op for n in graph.nodes]
    assert ops.count("conv2d") == 2, ops
    if "channels" in name or "rows" in name:
        assert "linear" in ops and "MatMul" not in ops


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.parts = nn.ModuleList([LowLinear(8, 8) for _ in range(4)])
            self.quantise = nn.ModuleList([Levels(2), Levels(2)])

        def forward(self, x):
            x = self.quantise[0](x)
            q, k, v = (part(x).unflatten(-1, (2, 4)).transpose(1, 2) for part in self.parts[:3])
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.parts[3](self.quantise[1](y.transpose(1, 2).flatten(2)))

    net, x = Attention(), torch.randn(4, 5, 8)
    graph = qa.nn.from_torch(net, x[:1])
    compare(net, x, graph)
    assert [n.op for n in graph.nodes].count("linear") == 4


def test_rows_that_are_masked_everywhere():
    class Masked(nn.Module):
        def forward(self, x, mask):
            return torch.ops.aten._safe_softmax(x.masked_fill(mask, -math.inf), -1)

    x, mask = torch.randn(3, 4, 5), torch.zeros(3, 4, 5, dtype=torch.bool)
    mask[:, 1] = mask[0, 2, 1:] = True
    graph = qa.nn.from_torch(Masked(), (x[:1], mask[:1]))
    expected = Masked()(x, mask).numpy()
    assert (expected[:, 1] == 0).all()
    np.testing.assert_allclose(graph(x.numpy(), mask.numpy()), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("function, why", [
    (lambda x: x / x.std(), "takes batches of 1 alone"),
    (lambda x: x[:, (x[0] > 0).nonzero()[:1, 0]], "reads a tensor that depends on the input"),
    (lambda x: torch.linalg.vector_norm(x, 0, 1), "a norm of power 0 is not taken"),
])  # fmt: skip
def test_what_is_refused_by_name(function, why):
    class Of(nn.Module):
        def forward(self, x):
            return function(x)

    with pytest.raises(ValueError, match=why):
        qa.nn.from_torch(Of(), torch.ones(1, 4))(np.ones((2, 4), np.float32))
