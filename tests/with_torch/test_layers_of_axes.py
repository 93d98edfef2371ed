"""Quantised convolutions of one to three axes, transposed or not: values, gradients, and packed networks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa

T = qa.torch
SIZES = {1: (11,), 2: (7, 6), 3: (5, 4, 6)}
LAYERS = {
    "Conv1d": lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2),
    "Conv2d": lambda: nn.Conv2d(4, 6, 3, stride=2),
    "Conv3d": lambda: nn.Conv3d(4, 6, (1, 2, 3), padding=(0, 1, 1), bias=False),
    "ConvTranspose1d": lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1),
    "ConvTranspose2d": lambda: nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=1, groups=2, bias=False),
    "ConvTranspose3d": lambda: nn.ConvTranspose3d(4, 6, 2, dilation=(1, 2, 1)),
}
SCHEMES = {
    "signs": lambda: (T.Sign(scale=True), T.DoReFa(2, activations=True)),
    "LQ": lambda: (T.LQ(2, weights=True), T.LQ(2)),
    "steps": lambda: (T.DoReFa(3), None),
}


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exchanged(weight, layer):
    """Weights [outputs inputs ..] of a transposed convolution as it has them, [inputs outputs ..], or the inverse."""
    if "Transpose" not in type(layer).__name__:
        return weight
    return torch.cat([part.transpose(0, 1) for part in weight.chunk(layer.groups)])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_converted_layer_is_the_float_layer_of_quantised_operands(kind, scheme):
    torch.manual_seed(0)
    plain = LAYERS[kind]()
    layer = copy.deepcopy(plain)
    weights, activations = SCHEMES[scheme]()
    assert T.convert(nn.Sequential(layer), weights, activations, keep=()) == ["0"]
    assert type(layer) is getattr(T, f"Quant{kind}") and layer.weight.shape == plain.weight.shape
    x = rand(3, 4, *SIZES[int(kind[-2])]).requires_grad_()
    y = layer(x)
    quantised = x if activations is None else layer.activations.eval()(x)
    w = exchanged(layer.weights.eval()(exchanged(layer.weight, layer)), layer)
    expected = torch.func.functional_call(plain, {"weight": w}, (quantised,))
    assert torch.equal(y, expected) and y.any()
    up = rand(*y.shape, seed=1)
    got, wanted = (torch.autograd.grad((z * up).sum(), (x, layer.weight)) for z in (y, expected))
    assert all(torch.allclose(a, b, atol=1e-5) and a.any() for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("kind", LAYERS)
def test_from_torch_takes_them_as_packed_layers(kind):
    torch.manual_seed(0)
    layer = LAYERS[kind]()
    T.convert(net := nn.Sequential(layer), T.Sign(scale=True), T.DoReFa(2, activations=True), keep=())
    x = rand(3, 4, *SIZES[int(kind[-2])])
    network = qa.nn.from_torch(net.eval(), x[:1])
    assert np.allclose(network(x.numpy()), net(x).detach().numpy(), atol=1e-5)
    assert "NumPy" not in str(network.summary()).split("\n")[1]


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("axes", [1, 3])
def test_packed_products_of_one_and_three_axes(axes, bits):
    """Sums are equal, as levels are integers times powers of 2, and gradients too, or near it."""
    kind = {1: T.QuantConv1d, 3: T.QuantConv3d}[axes]
    torch.manual_seed(0)
    plain = kind(4, 6, 3, padding=1, groups=2, weights=T.LSQ(3, step=0.125), activations=T.LSQ(2, False, 0.5))
    layer = copy.deepcopy(plain)
    layer.packed, layer.gradient_bits = True, bits
    x = rand(2, 4, *SIZES[axes])
    results = []
    for one in (plain, layer):
        inputs = x.clone().requires_grad_()
        y = one(inputs)
        (y * rand(*y.shape, seed=1)).sum().backward()
        results.append((y, inputs.grad, one.weight.grad))
    assert torch.equal(results[0][0], results[1][0])
    for a, b in zip(results[0][1:], results[1][1:], strict=True):
        assert torch.equal(a, b) if bits is None else (a - b).norm() < 0.3 * a.norm()
    assert torch.equal(layer(x[0]), layer(x)[0])


def test_the_size_of_a_result_and_wrong_arguments():
    layer = T.QuantConvTranspose2d(4, 6, 3, stride=2, weights=T.Sign())
    x = rand(1, 4, 5, 5)
    expected = F.conv_transpose2d(x, torch.where(layer.weight >= 0, 1.0, -1.0), layer.bias, 2, output_padding=1)
    assert torch.equal(layer(x, output_size=(12, 12)), expected)
    with pytest.raises(ValueError, match="QuantConvTranspose1d: packed=True is not for transposed convolutions"):
        T.QuantConvTranspose1d(1, 1, 1, weights=T.Sign(), activations=T.Sign(), packed=True)
    layer.packed = True
    with pytest.raises(ValueError, match="QuantConvTranspose2d: packed=True is not"):
        layer(x)
    with pytest.raises(ValueError, match="QuantConv3d: weights need a scheme of theirs"):
        T.QuantConv3d(1, 1, 1, weights=T.PACT(2))
