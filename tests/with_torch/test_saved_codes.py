"""Low-bit layers under compressed activations: codes are saved, and gradients are exact to the bit."""

import contextlib

import pytest
import torch
from torch import nn

import quantarray as qa

T = qa.torch


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def conv(weights, activations, **settings):
    return T.QuantConv2d(8, 16, 3, weights=weights, activations=activations, padding=1, **settings)


def rows(weights, activations, **settings):
    return T.QuantLinear(40, 48, weights=weights, activations=activations, **settings)


IMAGES, ROWS = (16, 8, 20, 20), (6, 20, 40)
# A layer, its input, and the bits of a code of its input and of masks
LAYERS = {
    "signs": (lambda **s: T.BinaryConv2d(8, 16, 3, padding=1, **s), IMAGES, 1, 1),
    "signs, in groups": (lambda **s: T.BinaryConv2d(8, 16, 3, groups=4, estimator="clip", **s), IMAGES, 1, 1),
    "DoReFa": (lambda **s: conv(T.DoReFa(2), T.DoReFa(3, activations=True), **s), IMAGES, 3, 1),
    "DoReFa of 8 bits": (lambda **s: conv(T.DoReFa(4), T.DoReFa(8, activations=True), **s), IMAGES, 8, 1),
    "PACT": (lambda **s: conv(T.Ternary(), T.PACT(4, 1.1), **s), IMAGES, 4, 2),
    "ABC": (lambda **s: conv(T.ABC(3), T.ABCActivations(3), **s), IMAGES, 3, 3 + 3),  # signs, for the betas, besides
    "LQ": (lambda **s: conv(T.LQ(2, weights=True), T.LQ(2), **s), IMAGES, 2, 1),
    "LQ with a center": (lambda **s: conv(T.LSQ(3), T.LQ(3, True), **s), IMAGES, 3, 1),
    "rows": (lambda **s: rows(T.Sign(scale=True), T.DoReFa(2, activations=True), **s), ROWS, 2, 1),
    "rows of LQ": (lambda **s: rows(T.LQ(2, weights=True), T.LQ(2), **s), ROWS, 2, 1),
}


def step(make, shape, context=None, dtype=torch.float32):
    """The result of a layer, and the gradients of its input and of its parameters."""
    torch.manual_seed(0)
    layer, x = make().to(dtype), rand(*shape).to(dtype).requires_grad_()
    with context or contextlib.nullcontext():
        y = layer(x * 1)  # as a leaf is left alone
    torch.manual_seed(1)
    (y * rand(*y.shape, seed=5).to(dtype)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]


def are_equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_exact_and_codes_are_saved(name, packed):
    """At 1 bit as at 2: what is exact has the bits of its codes, whatever `bits` is."""
    make, shape, of_codes, of_masks = LAYERS[name]
    exact = step(lambda: make(packed=packed), shape)
    for bits in (1, 2):
        context = T.compressed_activations(bits, least=64)
        assert are_equal(step(lambda: make(packed=packed), shape, context), exact)
        elements = torch.Size(shape).numel()
        weights = 4 * exact[2].numel()
        most = elements * (of_codes + of_masks) / 8 + 0.4 * weights + 16 * 2**of_codes
        assert elements * of_codes / 8 < context.report.after < most, str(context.report)


def test_weights_are_saved_as_bits():
    layer, x = T.BinaryConv2d(64, 64, 3), rand(1, 64, 4, 4)
    context = T.compressed_activations(2, least=2048)  # more than x has
    with context:
        layer(x).sum().backward()
    signs = 64 * 64 * 9 / 8 + 64 * 8
    assert context.report.layers["BinaryConv2d 0"] == (4 * (64 * 64 * 9 + x.numel()), signs + x.nbytes)


def test_the_step_of_lsq_is_unbiased_and_all_else_exact():
    """Its gradient reads how far x is from its code, which is rounded to the bits of the layer."""
    make, count = lambda: conv(T.LSQ(3), T.LSQ(2, signed=False, step=0.3)), 200
    exact = step(make, (4, 8, 9, 9))
    numbers = []
    for seed in range(count):
        got = step(make, (4, 8, 9, 9), T.compressed_activations(2, least=64, seed=seed))
        assert are_equal(got[:-1], exact[:-1])
        numbers.append(got[-1])
    steps = torch.stack(numbers)
    assert steps.std() > 0 and abs(steps.mean() - exact[-1]) < 5 * steps.std() / count**0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype):
    make = lambda: conv(T.DoReFa(2), T.DoReFa(3, activations=True))  # noqa: E731
    context = T.compressed_activations(2, least=64)
    assert are_equal(step(make, IMAGES, context, dtype), step(make, IMAGES, dtype=dtype))
    assert context.report.bits == {}  # nothing was rounded


def test_images_with_channels_last_and_without_gradients():
    layer, x = (
        conv(T.Sign(), T.DoReFa(3, activations=True)),
        rand(4, 8, 12, 12).contiguous(memory_format=torch.channels_last),
    )
    exact = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    context = T.compressed_activations(1, least=64)
    with context:
        y = layer(x)
    assert torch.equal(torch.autograd.grad(y.square().sum(), layer.weight)[0], exact)
    assert context.report.layers["QuantConv2d 0"][1] < x.numel() * 3 / 8 + layer.weight.numel() * 4 + 64


def test_values_that_were_changed_are_rounded():
    """Levels are those of one version of a tensor; a function of it has others."""
    w, x = nn.Parameter(rand(8, 512)), rand(64, 512)

    def gradient(change, context):
        with context:
            y = nn.functional.linear(change(T.PACT(2, 1.0)(x).detach()), w).sum()
        return torch.autograd.grad(y, w)[0]

    for change in (lambda q: q.add_(x * 0.1), lambda q: q + x * 0.1):
        context = T.compressed_activations(2)
        exact = gradient(change, contextlib.nullcontext())
        assert not torch.equal(gradient(change, context), exact) and context.report.mean_bits == 2
    parts = lambda q: q.view(32, 2, 512)[:, 1]  # noqa: E731
    assert torch.equal(gradient(parts, T.compressed_activations(2)), gradient(parts, contextlib.nullcontext()))


def test_a_layer_that_is_left_alone_and_one_tensor_of_two_layers():
    x = rand(64, 40)
    quantised, context = T.LQ(2), T.compressed_activations(2, least=64, layers={nn.Linear: 8})
    both = nn.ModuleList([nn.Linear(40, 8), nn.Linear(40, 8)])
    with context:
        q = quantised(x)
        (both[0](q) + both[1](q).tanh()).sum().backward()
    expected = quantised.eval()(x).sum(0).expand(8, 40)
    assert torch.allclose(both[0].weight.grad, expected, atol=1e-5)
    assert context.report.layers["Linear 0"] == (x.nbytes, 40 * 64 * 2 / 8 + 16)
    assert context.report.layers["Linear 1"] == (0, 0)
    with T.compressed_activations(2, least=64, layers={nn.Linear: None}) as context:
        both[0](quantised(x))
    assert context.report.layers["Linear 0"] == (x.nbytes, x.nbytes)


def test_masks_and_shapes_of_codes_take_no_more_than_of_floats():
    x = rand(4, 8, 16, 16).requires_grad_()
    for function, most in ((lambda q: nn.functional.max_pool2d(q, 2), 2048), (lambda q: q.clamp(0.1, 0.9), 1100)):
        context = T.compressed_activations(2, layers={T.PACT: None})
        with context:
            function(T.PACT(4, 1.0)(x * 1))
        assert context.report.layers["outside of modules"][1] <= most


def test_packed_layers_quantise_once(monkeypatch):
    calls, packed = [], T.Sign.packed
    monkeypatch.setattr(T.Sign, "packed", lambda self, x: calls.append(tuple(x.shape)) or packed(self, x))
    T.BinaryConv2d(8, 16, 3, packed=True)(rand(2, 8, 5, 5)).sum().backward()
    assert calls == [(2, 5, 5, 8), (16, 8, 3, 3)]
