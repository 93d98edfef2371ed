"""Comparisons: part of a quantiser wherever its levels are few, else computed in NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_compared import compare

import quantarray as qa


class Net(nn.Module):
    """A product of few bits, what follows it, a function of that, and a product by small integers."""

    def __init__(self, before, function):
        super().__init__()
        torch.manual_seed(3)
        self.before, self.function = before, function
        self.first, self.second = (torch.randint(-1, 2, s).float() for s in ((8, 3, 3, 3), (5, 8, 3, 3)))

    def forward(self, x):
        y = F.conv2d((x.clamp(-1, 1) * 7).round(), self.first, padding=1)
        return F.conv2d(self.function(self.before(y)), self.second, padding=1)


def norm():
    layer = nn.BatchNorm2d(8).eval()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def written(y):
    y = y.clone()
    y[y < -1] = -1
    y[y > 1] = 1
    return y.round()


BEFORE = {
    "sums": lambda: nn.Identity(),
    "uneven means": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "means": lambda: nn.AvgPool2d(2),
    "norm": norm,
    "floats": lambda: nn.Conv2d(8, 8, 1),
}
FEW = {
    "where": lambda y: torch.where(y > 0.5, 1.0, -1.0),
    "greater": lambda y: (y >= 0.5).float() - (y < -2).float(),
    "masked_fill": lambda y: torch.ones_like(y).masked_fill(y < 0.2, -1.0),
    "heaviside": lambda y: torch.heaviside(y - 1, torch.tensor(1.0)),
    "bucketize": lambda y: torch.bucketize(y, torch.tensor([-1.5, 0.0, 0.75])).float() - 1,
    "both": lambda y: ((y > -1) & ~(y <= 2) | (y > 5)).float(),
    "written": written,
}
MANY = {
    "where": lambda y: torch.where(y > 0, (y.clamp(-20, 20) * 25).round() / 25, y * 0.5),
    "bucketize": lambda y: torch.bucketize(y, torch.linspace(-30, 30, 600)).float(),
    "right": lambda y: torch.bucketize(y, torch.arange(-300, 300) / 10, right=True, out_int32=True).float(),
    "masked_fill": lambda y: y.masked_fill(y < 0.2, -1.0),
    "heaviside": lambda y: torch.heaviside(y, torch.tensor(0.5)) * y,
    "threshold": lambda y: F.threshold(y, 0.5, -2.0),
    "counted": lambda y: ((y > 1).long() + (y > 3).long() * 2 - (y < -1).int()).float() * y,
    "logical": lambda y: torch.where((y == 1) | (y <= -2) & ~(y != 3) ^ (y > 5), y, 0.25),
    "written": lambda y: y.masked_fill(torch.logical_not(y), 1).clone().index_put_((y > 2,), torch.tensor(9.0)),
}


@pytest.mark.parametrize("function", FEW)
@pytest.mark.parametrize("before", BEFORE)
def test_quantisers(before, function):
    net, x = Net(BEFORE[before](), FEW[function]), torch.randn(4, 3, 9, 9)
    graph = qa.nn.from_torch(net, x[:1])
    compare(net, x, graph)
    assert not {n.op for n in graph.nodes} & {"Where", "Greater", "GreaterOrEqual", "Less", "bucketize", "Round"}
    assert [n.op for n in graph.nodes if n.op.endswith("onv2d")].count("conv2d") >= 2


@pytest.mark.parametrize("function", MANY)
@pytest.mark.parametrize("before", BEFORE)
def test_functions_of_many_levels(before, function):
    net, x = Net(BEFORE[before](), MANY[function]), torch.randn(4, 3, 9, 9)
    graph = qa.nn.from_torch(net, x[:1])
    compare(net, x, graph)


def test_outputs_that_are_bools(tmp_path):
    class Compared(nn.Module):
        def forward(self, x, y):
            return x > y, torch.where(x < y, x, y * 2), (x >= 0.5) & (y != 1), x.masked_fill(y > x, 7)

    x, y = (torch.from_numpy(np.random.default_rng(i).integers(-3, 4, (5, 6)) / 2).float() for i in range(2))
    net = Compared()
    graph = qa.nn.from_torch(net, (x[:1], y[:1]))
    graph.save(tmp_path / "net.onnx")
    for run in (graph, qa.nn.load(tmp_path / "net.onnx")):
        got = run(x.numpy(), y.numpy())
        for a, b in zip(got.values(), net(x, y), strict=True):
            np.testing.assert_array_equal(a, b.numpy(), strict=True)
