"""Backward passes by packed kernels, which equal those of floats by the same rounded gradient."""

import numpy as np
import pytest
import torch
from test_packed_forward import INTEGERS, REALS, rand
from torch import nn

import quantarray as qa
from quantarray.torch import packed_gradients

T = qa.torch


def gradients(layer, seed, rounds=None):
    """Return the gradients in x and in all parameters; `rounds` replaces a product's gradient before it is used."""
    shape = (3, 2, 8) if isinstance(layer, nn.Linear) else (2, 8, 9, 7)
    x = rand(*shape).requires_grad_()
    layer.zero_grad()
    y = layer(x)
    if rounds is not None:
        y.register_hook(rounds)
    torch.manual_seed(seed)
    (y * rand(*y.shape, seed=5)).sum().backward()
    return [x.grad, *(p.grad for p in layer.parameters())]


def made(kind, bits):
    torch.manual_seed(0)
    layer = (INTEGERS | REALS)[kind]()
    layer.bias = None
    layer.packed, layer.gradient_bits = True, bits
    return layer


def as_floats(bits):
    """Round a gradient as the packed pass does, by the same random numbers, to floats."""

    def rounds(g):
        last = g if g.ndim == 3 else g.permute(0, 2, 3, 1)
        rows = last.reshape(-1, last.shape[-1]) if g.ndim == 3 else last
        values = torch.from_numpy(packed_gradients.rounded(rows, bits).dequantize()).reshape(last.shape)
        return values if g.ndim == 3 else values.permute(0, 3, 1, 2)

    return rounds


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
@pytest.mark.parametrize("kind", [*INTEGERS, *REALS])
def test_equal_to_floats_by_the_rounded_gradient(kind, bits):
    got, expected = gradients(made(kind, bits), 3), gradients(made(kind, None), 3, as_floats(bits))
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


@pytest.mark.parametrize("bits", [1, 4])
def test_right_on_average(bits):
    exact, layer = gradients(made("signs", None), 0), made("signs", bits)
    every = [gradients(layer, seed) for seed in range(200)]
    for i, g in enumerate(exact):
        each = torch.stack([one[i] for one in every])
        error = (each.mean(0) - g).abs() / (each.std(0) / 200**0.5 + 1e-6 * g.abs().max())
        assert error.max() < 5.5  # of thousands of numbers, in standard deviations of the mean


def test_the_error_that_the_page_states():
    """Of the gradient of weights, relative: docs/training.md."""
    exact, errors = gradients(made("signs", None), 0)[1], {}
    for bits in (2, 4, 6, 8):
        layer = made("signs", bits)
        g = [gradients(layer, seed)[1] - exact for seed in range(20)]
        errors[bits] = float(torch.stack(g).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt())
    stated = {2: 0.99, 4: 0.19, 6: 0.046, 8: 0.011}
    assert all(abs(errors[bits] / stated[bits] - 1) < 0.1 for bits in stated)


def test_codes_are_the_levels_of_dorefa():
    g = rand(4, 70)
    q = packed_gradients.rounded(g, 3)
    assert q.bits == 3 and q.dtype.levels == (-7, -5, -3, -1, 1, 3, 5, 7)
    step = 2 * float(g.abs().max()) / 7
    assert np.abs(q.dequantize() - g.numpy()).max() <= step * (1 + 1e-6)
    assert not packed_gradients.rounded(torch.zeros(2, 3), 3).dequantize().any()
    assert packed_gradients.rounded(torch.zeros(0, 3), 3).shape == (0, 3)


def test_no_floats_are_held():
    held = []
    layer = made("signs", 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.shape) or t, lambda t: t):
        packed_gradients.product(
            rand(2, 8, 9, 7).sign().requires_grad_(), layer.weight.sign(), torch.zeros(2, 16, 9, 7), None, None, 4
        )
    assert held == []


def test_only_the_gradients_that_are_asked_for():
    layer = made("DoReFa", 4)
    layer.weight.requires_grad_(False)
    x = rand(2, 8, 9, 7).requires_grad_()
    layer(x).sum().backward()
    assert x.grad.any() and layer.weight.grad is None


def test_a_network_learns():
    torch.manual_seed(0)
    net = nn.Sequential(
        T.QuantLinear(
            16, 32, weights=T.DoReFa(4), activations=T.DoReFa(4, activations=True), packed=True, gradient_bits=6
        ),
        nn.Hardtanh(0, 1),
        T.QuantLinear(
            32, 1, weights=T.DoReFa(4), activations=T.DoReFa(4, activations=True), packed=True, gradient_bits=6
        ),
    )
    x = torch.rand(256, 16)
    target = (x[:, :1] > x[:, 1:2]).float()
    optimizer, losses = torch.optim.Adam(net.parameters(), 1e-2), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_settings():
    layer = T.QuantLinear(8, 4, weights=T.Sign(), activations=T.Sign(), packed=True, gradient_bits=3)
    assert layer.extra_repr().endswith("packed=True, gradient_bits=3")
    with pytest.raises(ValueError, match="QuantConv2d: gradient_bits=2 needs packed=True"):
        T.QuantConv2d(8, 4, 3, weights=T.Sign(), activations=T.Sign(), gradient_bits=2)
    with pytest.raises(ValueError, match="gradient_bits must be at most 8, got 9"):
        T.BinaryConv2d(8, 4, 3, packed=True, gradient_bits=9)
    x = rand(2, 8).requires_grad_()
    (g,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    assert not g.requires_grad  # it has no gradient of its own
