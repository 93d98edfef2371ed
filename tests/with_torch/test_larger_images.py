"""Images that grow: transposed convolutions, interpolation, nearest elements by any factor."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_compared import compare
from torch_layers import Levels, LowConv, LowTransposed

import quantarray as qa

GEOMETRY = {
    "plain": {},
    "strides": {"stride": 2},
    "pads": {"stride": 2, "padding": 1, "output_padding": 1},
    "dilation": {"stride": 1, "dilation": 2, "padding": 1},
    "groups": {"stride": 2, "groups": 2},
    "each channel": {"stride": 3, "groups": 4, "padding": 1},
}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", GEOMETRY)
def test_transposed_convolutions(name, axes):
    torch.manual_seed(axes)
    how, image = GEOMETRY[name], (6, 5, 3)[:axes]
    layer = getattr(nn, f"ConvTranspose{axes}d")(4, 8, 3, **how)
    x = torch.randn(3, 4, *image)
    graph = qa.nn.from_torch(layer, x[:1])
    np.testing.assert_allclose(graph(x.numpy()), layer(x).detach().numpy(), rtol=0, atol=2e-6)
    low = LowTransposed(axes, 4, 8, 3, **how)
    net = nn.Sequential(Levels(2), low, nn.PReLU(8), Levels(2))
    graph = qa.nn.from_torch(net, x[:1])
    compare(net, x, graph)
    assert f"conv_transpose{axes}d" in [n.op for n in graph.nodes]


UP = {
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "interpolate"),
    "eight times": (lambda x: F.interpolate(x, scale_factor=8, mode="bilinear"), "interpolate"),
    "one axis": (lambda x: F.interpolate(x, scale_factor=(1, 4), mode="bilinear"), "interpolate"),
    "corners": (lambda x: F.interpolate(x, size=(9, 9), mode="bilinear", align_corners=True), "interpolate"),
    "smaller": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), "interpolate"),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), "Resize"),
    "nearest": (lambda x: F.interpolate(x, size=(13, 8)), "Gather"),
    "by a factor": (lambda x: F.interpolate(x, scale_factor=1.7), "Gather"),
    "exact": (lambda x: F.interpolate(x, size=(13, 8), mode="nearest-exact"), "Gather"),
    "smaller nearest": (lambda x: F.interpolate(x, size=(2, 3)), "Gather"),
}


class Grown(nn.Module):
    """Two products by few bits, and codes or sums of the first one resized between."""

    def __init__(self, function, codes):
        super().__init__()
        self.function, self.codes = function, codes
        self.first, self.second = LowConv(3, 8, 3, padding=1, bias=False), LowConv(8, 4, 3, padding=1, bias=False)
        self.ends = nn.ModuleList([Levels(2), Levels(2)])

    def forward(self, x):
        x = self.first(self.ends[0](x)) / 8
        x = self.function(self.ends[1](x)) if self.codes else self.ends[1](self.function(x))
        return self.second(x if not self.codes else (x * 48).round().clamp(0, 15))


@pytest.mark.parametrize("codes", [True, False])
@pytest.mark.parametrize("name", UP)
def test_resized(name, codes):
    torch.manual_seed(1)
    function, op = UP[name]
    net, x = Grown(function, codes).eval(), torch.randn(4, 3, 5, 5)
    graph = qa.nn.from_torch(net, x[:1])
    compare(net, x, graph)
    ops = [n.op for n in graph.nodes]
    assert op in ops and ops.count("conv2d") == 2 and "Conv" not in ops


@pytest.mark.parametrize("axes", [1, 3])
def test_linear_interpolation_of_other_axes(axes):
    mode = {1: "linear", 3: "trilinear"}[axes]
    net, x = nn.Sequential(Levels(2), nn.Upsample(scale_factor=2, mode=mode)), torch.randn(3, 2, *(4, 3, 5)[:axes])
    graph = qa.nn.from_torch(net, x[:1])
    np.testing.assert_allclose(graph(x.numpy()), net(x).numpy(), rtol=0, atol=1e-6)


def test_antialias_is_refused_by_name():
    class Shrunk(nn.Module):
        def forward(self, x):
            return F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)

    with pytest.raises(ValueError, match="antialias=True averages more elements"):
        qa.nn.from_torch(Shrunk(), torch.zeros(1, 2, 8, 8))
