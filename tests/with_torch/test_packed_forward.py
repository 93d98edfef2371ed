"""Forward passes through packed kernels: equal integers, equal gradients, and the same under hooks and in training."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa
from quantarray.torch import packed_products

T = qa.torch


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def conv(weights, activations, outputs=16, size=3, **settings):
    return T.QuantConv2d(8, outputs, size, weights=weights, activations=activations, bias=False, **settings)


# Levels that are integers times powers of 2: sums of them are exact in float32, in any order
INTEGERS = {
    "signs": lambda: T.BinaryConv2d(8, 16, 3, scale=False, bias=False, padding=1),
    "signs, strided": lambda: T.BinaryConv2d(8, 16, (3, 2), scale=False, bias=False, stride=(2, 1), dilation=(1, 2)),
    "signs in groups": lambda: T.BinaryConv2d(8, 16, 3, scale=False, bias=False, padding=(1, 2), groups=2),
    "signs, depthwise": lambda: T.BinaryConv2d(8, 16, 3, scale=False, bias=False, padding=1, groups=8),
    "steps": lambda: conv(T.LSQ(3, step=0.125), T.LSQ(2, signed=False, step=0.5), padding=2),
    "steps and signs": lambda: conv(T.Sign(), T.PACT(2, 1.5)),
    "rows": lambda: T.QuantLinear(8, 5, weights=T.LSQ(4, step=0.25), activations=T.Sign(), bias=False),
}
REALS = {
    "signs with scales": lambda: T.BinaryConv2d(8, 16, 3, padding=1),
    "signs with scales, depthwise": lambda: T.BinaryConv2d(8, 8, 3, groups=8, stride=2),
    "DoReFa": lambda: conv(T.DoReFa(2), T.DoReFa(3, activations=True), padding=1),
    "ABC": lambda: conv(T.ABC(3), T.ABCActivations(3)),
    "LQ": lambda: conv(T.LQ(2, weights=True), T.LQ(2), padding=1),
    "LQ with centers": lambda: conv(T.LQ(3, True, weights=True), T.LQ(2, True), groups=2),
    "Ternary": lambda: conv(T.Ternary(), T.PACT(4)),
    "LQ rows": lambda: T.QuantLinear(8, 5, weights=T.LQ(2, weights=True), activations=T.LSQ(4)),
}


def both(make, grad=True):
    """Results and gradients of a layer by floats, and packed."""
    torch.manual_seed(0)
    plain, results = make(), []
    packed = copy.deepcopy(plain)
    packed.packed = True
    shape = (3, 2, 8) if isinstance(plain, nn.Linear) else (2, 8, 9, 7)
    for layer in (plain, packed):
        x = rand(*shape).requires_grad_()
        y = layer(x)
        (y * rand(*y.shape, seed=5)).sum().backward()
        results.append((y.detach(), [x.grad, *(p.grad for p in layer.parameters())]))
    return results


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_and_gradients_are_equal(kind):
    (y, gradients), (packed, others) = both(INTEGERS[kind])
    assert torch.equal(y, packed) and y.any()
    assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))


@pytest.mark.parametrize("kind", REALS)
def test_real_sums_are_as_near_as_float32_rounds_and_gradients_equal(kind):
    (y, gradients), (packed, others) = both(REALS[kind])
    assert y.shape == packed.shape and (y - packed).abs().max() < 1e-6 * y.abs().max()
    for a, b in zip(gradients, others, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6 * float(a.abs().max()))


WINDOWS = {
    "plain": ((2, 4, 5, 6), (3, 4, 3, 2), {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 1}),
    "strided": ((2, 4, 6, 5), (3, 4, 2, 2), {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2), "groups": 1}),
    "groups": ((1, 4, 5, 5), (6, 2, 3, 3), {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2}),
    "depthwise": ((1, 4, 5, 5), (8, 1, 3, 2), {"stride": (1, 2), "padding": (1, 1), "dilation": (2, 1), "groups": 4}),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_gradients_by_differences(kind):
    """Gradients of a known product in data and filter, their own gradients, and adjoints."""
    shape, filters, settings = WINDOWS[kind]
    x, w = rand(*shape).double().requires_grad_(), rand(*filters, seed=1).double().requires_grad_()

    def product(x, w):
        value = F.conv2d(x.detach(), w.detach(), **settings)
        return packed_products.known(x, w, value, packed_products.Window(**settings))

    y = product(x, w)
    up = rand(*y.shape, seed=2).double()
    known = torch.autograd.grad((y * up).sum(), (x, w), create_graph=True)
    plain = torch.autograd.grad((F.conv2d(x, w, **settings) * up).sum(), (x, w), create_graph=True)
    for a, b, operand in zip(known, plain, (x, w), strict=True):
        assert torch.allclose(a, b) and torch.isclose((operand * a).sum(), (y * up).sum())

    def gradients(x, w):
        return torch.autograd.grad((product(x, w) * up).sum(), (x, w), create_graph=True)

    assert torch.autograd.gradcheck(gradients, (x, w))


@pytest.mark.parametrize("kind", ["signs", "signs, depthwise", "rows"])
def test_gradients_of_gradients_are_equal(kind):
    layer, seconds = INTEGERS[kind]().double(), []
    for packed in (False, True):
        layer.packed = packed
        x = rand(*((3, 2, 8) if kind == "rows" else (2, 8, 9, 7))).double().requires_grad_()
        y = layer(x)
        (g,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad((g**2).sum(), [x, layer.weight]))
    for a, b in zip(*seconds, strict=True):
        assert a.any() and torch.allclose(a, b)


def test_one_image_without_a_batch_and_no_gradients():
    layer = T.BinaryConv2d(8, 4, 3, packed=True, bias=True)
    x = rand(8, 6, 6)
    with torch.no_grad():
        y = layer(x)
    assert not y.requires_grad and torch.equal(y, layer(x[None])[0])
    layer.packed = False
    assert torch.allclose(layer(x), y, atol=1e-5)


def network(packed):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8),
        T.BinaryConv2d(8, 16, 3, padding=1, estimator="approx_sign", packed=packed), nn.BatchNorm2d(16),
        nn.MaxPool2d(2), conv16(packed), nn.BatchNorm2d(16), nn.Flatten(),
        T.QuantLinear(256, 10, weights=T.LQ(2, weights=True), activations=T.PACT(4), packed=packed),
    )  # fmt: skip


def conv16(packed):
    return T.QuantConv2d(
        16, 16, 3, padding=1, weights=T.LQ(2, weights=True), activations=T.LQ(2), packed=packed
    )  # fmt: skip


def losses(model, context=None, steps=25):
    x = rand(64, 1, 8, 8)
    y = (x[:, 0, :4, :4].flatten(1) @ rand(16, 10, seed=1)).argmax(1)
    optimizer, values = torch.optim.Adam(model.parameters(), 5e-3), []
    for _ in range(steps):
        if context is None:
            loss = F.cross_entropy(model(x), y)
        else:
            with context:
                loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def test_a_network_learns_through_packed_kernels():
    plain, packed = losses(network(False)), losses(network(True))
    assert packed[0] == pytest.approx(plain[0], rel=1e-4)
    assert packed[-1] < 0.6 * packed[0] and plain[-1] < 0.6 * plain[0]


def test_compressed_activations_know_the_products():
    """Weights are left alone as those of PyTorch's functions are, and what is packed is as much."""
    after = []
    for packed in (False, True):
        context = T.compressed_activations(4, least=0)
        assert losses(network(packed), context, 12)[-1] < 2.3
        after.append(context.report.layers["BinaryConv2d 0"])
    assert after[0] == after[1]


def test_compile_and_autocast():
    model, x = network(True), rand(16, 1, 8, 8)
    model(x)
    model.eval()
    assert torch.allclose(torch.compile(model, backend="aot_eager")(x), model(x), atol=1e-5)
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: T.QuantConv2d(1, 1, 1, weights=T.DoReFa(2), packed=True), "needs quantisers of quantarray.torch"),
        (lambda: T.QuantLinear(1, 1, activations=T.Sign(), packed=True), "needs quantisers of quantarray.torch"),
        (lambda: T.BinaryConv2d(1, 1, 3, padding="same", packed=True), "padding in numbers"),
        (lambda: T.BinaryConv2d(1, 1, 3, padding=1, padding_mode="circular", packed=True), "padding_mode='zeros'"),
    ],
)
def test_wrong_arguments(make, words):
    with pytest.raises(ValueError, match=words):
        make()
