"""Training on compressed activations: bytes, exactness where it is promised, unbiasedness, and wrong use."""

import contextlib
import copy
import gc
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch_models import ResNet18, torchvision

import quantarray as qa
from quantarray.torch.host import Packed, Packer
from quantarray.torch.layout import layout_of
from quantarray.torch.saving import Saved
from quantarray.torch.windows import window_of

compressed = qa.torch.compressed_activations


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradients(model, x, loss, context=None):
    """The loss and the gradients of x and of all parameters. Leaves are held by the graph, so x is no input itself."""
    model, x = copy.deepcopy(model), x.clone().requires_grad_()
    torch.manual_seed(3)
    with context or contextlib.nullcontext():
        y = model(x.clone())
    value = loss(y)
    value.backward()
    return value.item(), [x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("size", [1, 64, 256, 1000, 4096 + 31])
@pytest.mark.parametrize(("bits", "group"), [(2, 256), (3, 64), (8, 100)])
def test_values_are_rounded_as_quantize_does(size, bits, group):
    x, packer = rand(size), Packer()
    for seed in (5, 2**40):  # the packer's memory is used again
        expected = qa.quantize(x.numpy(), qa.Grouped(bits, group, seed))
        got = packer.round_off(x, layout_of(x), bits, group, seed)
        assert np.array_equal(got.words[:, 0], expected.words) and got.nbytes == expected.nbytes
        assert np.array_equal(got.restore().numpy(), expected.dequantize())


EXACT = {
    "relu": nn.ReLU(),
    "relu in place": nn.Sequential(nn.BatchNorm2d(4).eval(), nn.ReLU(inplace=True)),
    "relu6": nn.ReLU6(),
    "hardtanh": nn.Hardtanh(-0.3, 0.7),
    "leaky relu": nn.LeakyReLU(0.1),
    "dropout": nn.Dropout(0.3),
    "max pooling": nn.MaxPool2d(2),
    "overlapping windows": nn.MaxPool2d(3, 2, 1),
    "dilated windows": nn.MaxPool2d((2, 3), (1, 2), (0, 1), dilation=(2, 1), ceil_mode=True),
    "a mask": nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5)),
}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_what_needs_no_values_is_exact(kind, layout):
    x = rand(3, 4, 15, 17).contiguous(memory_format=layout)
    weights = rand(1000)

    def loss(y):
        return (y.flatten() * weights.repeat(10)[: y.numel()]).sum()

    context = compressed(1, least=0, layers={nn.BatchNorm2d: None})
    for got, expected in zip(
        gradients(EXACT[kind], x, loss, context)[1], gradients(EXACT[kind], x, loss)[1], strict=True
    ):
        assert torch.equal(got, expected)
    assert 0 < context.report.after < context.report.before


def test_indices_of_pooling_take_a_byte():
    x = rand(2, 3, 40, 24).requires_grad_().clone()
    context = compressed(2)
    with context:
        y = F.max_pool2d(x, 2)
    assert context.report.layers == {"outside of modules": (x.nbytes + 2 * 3 * 20 * 12 * 8, y.numel())}
    y = F.max_pool2d(x, (2, 3), padding=1)
    window = window_of(y.grad_fn, (40, 24), y.shape[2:])
    assert window.starts == (tuple(range(-1, 40, 2)), tuple(range(-1, 22, 3)))
    assert window[1:] == ((2, 3), (1, 1), (40, 24))


POOLS = {
    "1 axis": (lambda x: F.max_pool1d(x[:, 0, 0], 3, 2, 1), (3, 2, 2, 101)),
    "3 axes": (lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), (1, 1, 2)), (2, 3, 7, 9, 8)),
    "adaptive, 1 axis": (lambda x: F.adaptive_max_pool1d(x[:, 0], 7), (4, 1, 3, 50)),
    "adaptive, 2 axes": (lambda x: F.adaptive_max_pool2d(x, (3, 5)), (2, 3, 10, 13)),
    "adaptive, 3 axes": (lambda x: F.adaptive_max_pool3d(x, (2, 5, 3)), (2, 2, 5, 11, 7)),
    "a window of 300": (lambda x: F.max_pool2d(x, (15, 20)), (2, 3, 30, 40)),
}


@pytest.mark.parametrize("kind", POOLS)
def test_pools_of_any_axes(kind):
    """Gradients are exact, ties included, and indices take a byte where a window has at most 256 elements."""
    function, shape = POOLS[kind]
    x = rand(*shape).round(decimals=1)
    indices = function(x).numel()
    context = compressed(2)

    def gradient(context):
        y = x.clone().requires_grad_()
        with context:
            z = function(y.clone())
        (z * rand(*z.shape)).sum().backward()
        return y.grad

    assert torch.equal(gradient(context), gradient(nullcontext()))
    assert context.report.after == (indices * 8 if kind == "a window of 300" else indices)


@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3, 0), (2, 2)])
def test_tensors_of_few_elements(shape):
    x = rand(*(shape or (1,))).reshape(shape).requires_grad_()
    with compressed(8, least=0):
        y = (x * 1).exp()
    y.sum().backward()
    assert torch.allclose(x.grad, x.detach().exp(), atol=0.03)


def test_ratios_of_actnn():
    """28.44, 15.06, 7.76, 3.94 for 1, 2, 4, 8 bits with constants."""
    x, w = rand(64, 4096), rand(8, 4096).requires_grad_()
    for bits, ratio in {1: 28.44, 2: 15.06, 4: 7.76, 8: 3.94}.items():
        context = compressed(bits)
        with context:
            F.linear(x, w)
        assert abs(context.report.ratio - ratio) < 0.005


def linear_gradients(bits, count):
    """Gradients of a product's weights under `count` seeds times a direction, the exact one, and their variance's
    bound."""
    x, upstream = rand(16, 300, seed=1).relu(), rand(16, 5, seed=2)
    direction = rand(5, 300, seed=4)
    exact = float((upstream.T @ x * direction).sum())
    numbers = []
    for seed in range(count):
        w = torch.zeros(5, 300, requires_grad=True)
        with compressed(bits, seed=seed):
            y = F.linear(x, w)
        y.backward(upstream)
        numbers.append(float((w.grad * direction).sum()))
    q = qa.quantize(x.numpy().ravel(), qa.Grouped(bits))
    step = np.repeat(q.scale, q.group)[: x.numel()].astype(float)
    bound = float(((upstream @ direction).numpy().ravel() ** 2 * step**2 / 4).sum())
    return np.array(numbers), exact, bound


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_gradients_are_unbiased_and_vary_within_the_bound(bits):
    """The mean of 400 within 5 standard errors: one false alarm in 1.7 million runs, as means are near normal.

    The variance is below sum(gradient**2 * step**2 / 4), ActNN's bound; that of 400 samples exceeds its mean by a
    factor of 1.4 once in 10 million runs, if it is near the bound at all.
    """
    numbers, exact, bound = linear_gradients(bits, 400)
    assert abs(numbers.mean() - exact) < 5 * numbers.std(ddof=1) / 20
    assert 0 < numbers.var(ddof=1) < 1.4 * bound


def cross_entropies(z, labels):
    """Losses whose saved results of log_softmax are all alike."""
    return {
        "cross entropy": lambda: F.cross_entropy(z, labels),
        "of log_softmax": lambda: F.nll_loss(F.log_softmax(z, 1), labels),
        "of the method": lambda: F.nll_loss(z.log_softmax(dim=1), labels),
        "smoothed": lambda: F.cross_entropy(z, labels, label_smoothing=0.2),
        "weighted": lambda: F.cross_entropy(z, labels, weight=torch.linspace(0.5, 2, z.shape[1])),
        "of probabilities": lambda: F.cross_entropy(z, torch.eye(z.shape[1])[labels]),
    }


@pytest.mark.parametrize("name", cross_entropies(torch.zeros(1, 1), None))
def test_losses_of_few_bits_follow_the_exact_ones(name):
    """Gradients of logits are off by a level of 8 bits of probability at most, and unbiased: rounded to 2 bits as
    logarithms, they were off by a third, and a ResNet-18 that learned 93 % learned 56.
    """
    labels = torch.arange(300) % 10
    logits = (5 * rand(300, 10)).requires_grad_()

    def gradient(context):
        logits.grad = None
        z = logits * 1
        with context:
            loss = cross_entropies(z, labels)[name]()
        loss.backward()
        return logits.grad

    exact = gradient(nullcontext())
    context, total = compressed(2), torch.zeros(300, 10)
    for _ in range(200):
        got = gradient(context)
        total += got
        assert (got - exact).abs().max() <= 3.1 / 255 / 300
    assert context.report.ratio > 1.5
    assert (total / 200 - exact).abs().max() < 5 * 0.5 * 3.1 / 255 / 300 / math.sqrt(200)


def test_log_probabilities_without_end():
    """Logits that a mask has made -inf have probability 0, as without compression; a context holds them once."""
    logits = rand(300, 10).masked_fill(torch.arange(10) == 3, -math.inf).requires_grad_()
    z, context = logits * 1, compressed(8)
    with context:
        loss = F.nll_loss(F.log_softmax(z, 1), torch.arange(300) % 3)
    loss.backward()
    assert torch.isfinite(logits.grad).all() and logits.grad[:, 3].abs().max() < 1e-37
    assert context.report.layers["outside of modules"] == (300 * 10 * 4 + 300 * 8 + 4, 3008 + 48 + 300 * 8 + 4)


@pytest.mark.parametrize("loss", [F.binary_cross_entropy_with_logits, F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_what_other_losses_save_is_left_alone(loss):
    target = torch.rand(300, 10, generator=torch.Generator().manual_seed(1))

    def gradient(context):
        z = rand(300, 10).requires_grad_()
        with context:
            value = loss(z * 1, target)
        value.backward()
        return z.grad

    assert torch.equal(gradient(compressed(1)), gradient(nullcontext()))


def test_a_quarter_resnet_saves_ten_times_fewer_bytes():
    torch.manual_seed(0)
    model, x, y = ResNet18(16), rand(16, 1, 32, 32), torch.arange(16) % 10
    context = compressed(2, model=model)
    loss, exact = gradients(model, x, lambda z: F.cross_entropy(z, y))
    packed_loss, packed = gradients(model, x, lambda z: F.cross_entropy(z, y), context)
    assert packed_loss == loss and context.report.ratio >= 10
    assert all(torch.isfinite(g).all() for g in packed)
    finer = gradients(model, x, lambda z: F.cross_entropy(z, y), compressed(8))[1]
    for g, e in zip(finer[1:], exact[1:], strict=True):
        assert (g - e).norm() < 0.1 * e.norm() + 1e-6


def test_one_tensor_is_packed_once():
    x = rand(4, 8, 16, 16)
    a, b = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1)
    context = compressed(2, model=nn.ModuleDict({"a": a, "b": b}))
    with context:
        a(x), b(x)
    assert context.report.layers["a"] == (x.nbytes, 32 * 64 + 4 * 32) and context.report.layers["b"] == (0, 0)


def test_one_tensor_has_one_form():
    """The strictest need wins: a tensor that one function reads exactly is not packed for another besides."""
    x, w = rand(8, 512), nn.Parameter(rand(4, 512))
    for first in (True, False):
        leaf = x.clone().requires_grad_()
        y, context = leaf * 1, compressed(2)
        with context:
            a = y.sin() if first else F.linear(y, w)
            b = F.linear(y, w) if first else y.sin()
        w.grad = None
        (a.sum() + b.sum()).backward()
        assert context.report.before == context.report.after == x.nbytes
        assert torch.allclose(w.grad, x.sum(0).expand(4, 512), atol=1e-5)
    layers = nn.ModuleDict({"a": nn.Linear(512, 4), "b": nn.Linear(512, 4)})
    context = compressed(2, model=layers, layers={"b": 8})
    with context:
        results = [layers["a"](x), layers["b"](x)]
    assert context.report.layers == {"a": (x.nbytes, 0), "b": (0, x.numel() + 16 * 4)}
    (results[0] + results[1]).sum().backward()
    for layer in layers.values():
        assert (layer.weight.grad - x.sum(0)).abs().max() < 0.1


def test_memory_that_is_used_again_is_another_tensor():
    """New storages get the addresses of freed tensors."""
    w = torch.ones(1, 4096, requires_grad=True)
    outputs = []
    with compressed(8):
        for i in range(1000):
            outputs.append(F.linear(torch.full((1, 4096), float(i % 200)), w))
    total = torch.stack(outputs).sum()
    total.backward()
    assert torch.equal(w.grad, torch.full((1, 4096), float(5 * sum(range(200)))))


def test_layers_have_bits_of_their_own():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Sequential(nn.Linear(1024, 64), nn.GELU()))
    x = rand(32, 1024)

    def after(**settings):
        context = compressed(model=model, **settings)
        with context:
            model(x)
        return {name: now for name, (_, now) in context.report.layers.items()}

    def size(elements, bits):
        return elements * bits // 8 + elements // 256 * 4

    usual, other = after(bits=2), after(bits=2, layers={"0": 8, nn.Tanh: None, "2": 4})
    # tanh and GELU are smooth functions of what they save, and have 8 bits
    assert usual == {"0": size(32768, 2), "1": size(32768, 8), "2.0": size(32768, 2), "2.1": size(2048, 8)}
    assert other == {"0": size(32768, 8), "1": x.nbytes, "2.0": 0, "2.1": size(2048, 8)}  # 2.0 reads the same
    assert set(after(bits=2, layers={nn.Module: None})) == set(usual) and after(level="L0") == {}


def test_levels():
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    x = rand(8, 4, 18, 18)
    ratios = {}
    for level in ("L0", "L1", "L2", "L3"):
        context = compressed(level=level, model=model)
        with context:
            model(x)
        ratios[level] = {name: round(was / max(now, 1)) for name, (was, now) in context.report.layers.items()}
    assert ratios["L0"] == {} and ratios["L1"] == {"0": 8, "1": 1, "2": 32}
    assert ratios["L2"] == {"0": 8, "1": 8, "2": 32} and ratios["L3"] == {"0": 14, "1": 15, "2": 32}  # rows are padded


def test_parameters_and_cheap_tensors_are_left_alone():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    context = compressed(1)
    with context:
        y = model(rand(100, 64))
        (y * rand(64).expand(100, 64)).sum()
    saved = {name: was - now for name, (was, now) in context.report.layers.items()}
    assert saved["outside of modules"] == 0 and saved["Linear 0"] > 0
    context = compressed(1)
    weight = nn.Parameter(rand(512, 512))
    with context:
        F.linear(rand(64, 512), weight).backward(rand(64, 512))
    assert context.report.before == 64 * 512 * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_floats(dtype):
    x, w = rand(32, 256).to(dtype), rand(8, 256).to(dtype).requires_grad_()
    with compressed(8) as context:
        y = F.linear(x, w)
    y.backward(torch.ones_like(y))
    assert w.grad.dtype == dtype and context.report.ratio > 1.9
    assert torch.allclose(w.grad.float(), x.float().sum(0).expand(8, 256), atol=0.5)


def test_autocast_leaves_copies_of_weights_alone():
    x, layer = rand(64, 256), nn.Linear(256, 512)
    context = compressed(2)
    with torch.autocast("cpu", torch.bfloat16), context:
        y = layer(x.requires_grad_().clone())
    y.float().sum().backward()
    expected = torch.ones(64, 512).bfloat16().T @ x.detach().bfloat16()
    assert torch.isfinite(layer.weight.grad).all() and context.report.after >= 512 * 256 * 2
    assert (layer.weight.grad - expected).norm() < 1.5 * expected.norm()


def test_gradients_of_gradients():
    x = rand(64, 64).double().requires_grad_()
    with compressed(2, least=0):
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert torch.allclose(h, 6 * x)  # float64 is left alone


def test_gradients_of_gradients_through_what_is_packed():
    """x * x * x saves x for its gradient and what the gradient needs: of 8 bits both are within some hundredths."""
    x = rand(64, 64).requires_grad_()
    context = compressed(8, least=0)
    with context:
        y = x.clone()
        (g,) = torch.autograd.grad((y * y * y).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert context.report.ratio > 1.4
    assert (g - 3 * x**2).norm() < 0.02 * g.norm() and (h - 6 * x).norm() < 0.02 * h.norm()


@pytest.mark.parametrize("groups", [1, 4], ids=["full", "depthwise"])
def test_adjoint_identities_of_convolutions(groups):
    """<conv(x, w), y> = <x, grad_x>, exact as w is left alone; <w, grad_w> is that of the packed x, unbiased.

    The mean of 300 within 5 standard errors: one false alarm in 1.7 million runs.
    """
    x, w = rand(4, 4, 12, 12).requires_grad_(), nn.Parameter(rand(8, 4 // groups, 3, 3, seed=1))
    context, inner = compressed(2, least=0, seed=2), []
    for _ in range(300):
        x.grad = w.grad = None
        with context:
            y = F.conv2d(x.clone(), w, padding=1, stride=2, groups=groups)
        up = rand(*y.shape, seed=3)
        y.backward(up)
        right = (y.detach().double() * up).sum()
        assert torch.isclose((x.detach().double() * x.grad).sum(), right, rtol=1e-4)
        inner.append(float((w.detach().double() * w.grad).sum()))
    inner = np.array(inner)
    assert inner.std() > 0 and abs(inner.mean() - float(right)) < 5 * inner.std(ddof=1) / 300**0.5


@pytest.mark.parametrize("allocate", [False, True])
def test_compiled_models(allocate):
    """Forward pass and loss of compiled models are equal; tensors that autograd saves are packed or left alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    x = rand(32, 1, 8, 8)
    exact, expected = gradients(model, x, lambda y: (y**2).mean())
    fast = torch.compile(model, backend="aot_eager")
    context = compressed(8, least=0, allocate=allocate)
    for _ in range(2):
        model.zero_grad()
        with context:
            loss = (fast(x.clone()) ** 2).mean()
        loss.backward()
    assert loss.item() == pytest.approx(exact, rel=1e-6)
    for p, e in zip(model.parameters(), expected[1:], strict=True):
        assert (p.grad - e).norm() < 0.05 * e.norm()


# Models that know nothing of it


def named_models():
    vision = torchvision().models
    return {
        "resnet18": lambda: (vision.resnet18(num_classes=10), rand(2, 3, 64, 64)),
        "mobilenet_v2": lambda: (vision.mobilenet_v2(num_classes=10), rand(2, 3, 64, 64)),
        "vit_b_16": lambda: (vision.vit_b_16(image_size=32, num_classes=10), rand(2, 3, 32, 32)),
        "TransformerEncoder": lambda: (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2),
            rand(4, 40, 64),
        ),
    }


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vit_b_16", "TransformerEncoder"])
def test_models_train_a_step(name):
    torch.manual_seed(0)
    model, x = named_models()[name]()
    for p in model.parameters():  # a last layer of zeros has no gradient before it
        if not p.any():
            nn.init.normal_(p, std=0.02)

    def loss(y):
        return (y.float() ** 2).mean()

    context = compressed(2, model=model)
    exact, gradient = gradients(model, x, loss)
    value, packed = gradients(model, x, loss, context)
    finer = gradients(model, x, loss, compressed(8))[1]
    assert value == exact and context.report.ratio > 3
    assert all(torch.isfinite(g).all() for g in packed)
    mixed = compressed(2, model=model, allocate=True, layers={nn.BatchNorm2d: 4})
    optimizer, values = torch.optim.SGD(model.parameters(), 1e-3), []
    torch.manual_seed(3)
    for _ in range(2):
        with mixed:
            values.append(loss(model(x)))
        optimizer.zero_grad()
        values[-1].backward()
        optimizer.step()
    assert values[0].item() == exact and np.isfinite(values[1].item()) and mixed.report.ratio > 3
    assert all(torch.isfinite(p).all() for p in model.parameters())
    off, size = (
        sum(float((a - b * same).norm() ** 2) for a, b in zip(finer, gradient, strict=True)) for same in (1, 0)
    )
    assert off < 0.05 * size


# Wrong use


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bits": 0}, "bits must be"),
        ({"bits": 9}, "bits must be"),
        ({"bits": 2.5}, "bits must be"),
        ({"level": "L5"}, "level must be"),
        ({"group": 0}, "group must be"),
        ({"seed": -1}, "seed must be"),
        ({"layers": {"a": 2}}, "need model="),
        ({"layers": {nn.Linear: 12}}, "bits of the layer"),
        ({"layers": {"conv": 2}, "model": nn.Linear(2, 2)}, "no module 'conv'"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises((ValueError, TypeError), match=f"^compressed_activations: .*{words}"):
        compressed(**settings)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("layer", [nn.Linear(2048, 4), nn.ReLU(), nn.ReLU6()], ids=lambda m: type(m).__name__)
def test_values_that_are_not_finite(bad, layer):
    x = rand(2, 2048)
    x[1, 7] = bad
    if isinstance(layer, nn.ReLU) and bad < 0:
        return  # its result is 0
    for allocate in (False, True):
        with pytest.raises(ValueError, match=rf"{type(layer).__name__} 0 saves a tensor of shape .* NaN, infinity"):
            with compressed(2, allocate=allocate):
                layer(x.requires_grad_().clone())
        nothing_is_hooked()


def nothing_is_hooked():
    module = torch.nn.modules.module
    assert not module._global_forward_pre_hooks and not module._global_forward_hooks
    x = rand(64, 64).requires_grad_()
    y = x.tanh()
    assert torch.equal(y.grad_fn._saved_result, y)
    assert not torch.overrides._get_current_function_mode_stack()


def test_an_exception_leaves_nothing_hooked():
    context = compressed(2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            with context:
                nn.Linear(2, 2)(torch.ones(1, 2))
                1 / 0  # noqa: B018
        nothing_is_hooked()
    with context, pytest.raises(RuntimeError, match="entered already"):
        context.__enter__()
    nothing_is_hooked()


def test_a_layer_that_raises_does_not_stay_the_current_one():
    context = compressed(2)
    with context:
        with pytest.raises(RuntimeError):
            nn.Linear(3, 3)(torch.ones(2, 2))
        F.linear(rand(8, 512), nn.Parameter(rand(2, 512)))
    assert context.report.layers["outside of modules"][0] == 8 * 512 * 4


@pytest.mark.parametrize("function", [torch.sqrt, torch.tanh, torch.relu, lambda x: x.double().exp()])
@pytest.mark.parametrize("least", [0, 1 << 20])
def test_results_without_a_backward_pass_are_freed(function, least):
    """A node that saves its result, left alone, once owned it, and the result owns the node."""
    x = (rand(64, 64).abs() + 1).requires_grad_()
    with compressed(2, least=least):
        y = function(x)
    memory = StorageWeakRef(y.untyped_storage())
    del y
    assert memory.expired()


def test_what_was_packed_is_freed_with_the_graph():
    """Without a run of the garbage collector: no cycle holds words of a step."""
    model, context = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), compressed(2)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            with context:
                y = model(rand(4, 4, 20, 20).requires_grad_().clone())
            y.sum().backward()
            del y
        assert not [x for x in gc.get_objects() if type(x) in (Saved, Packed)]
    finally:
        gc.enable()


def test_a_second_backward_pass():
    x = rand(64, 64).requires_grad_()
    with compressed(2):
        y = x.tanh().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.parametrize("least", [0, 10**6], ids=["packed", "left alone"])
def test_a_saved_tensor_that_is_changed(least):
    x = rand(64, 64).requires_grad_()
    with compressed(2, least=least):
        y = x.exp()
        z = (y * 2).sum()
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="saved by outside of modules was changed in place"):
        z.backward()
    weight = nn.Parameter(rand(64, 64))
    with compressed(2, least=least):
        z = F.linear(x, weight).sum()
    weight.data.add_(1)  # as an optimizer's step between
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        z.backward()


def test_random_numbers_go_on_and_repeat_with_the_seed():
    w, x = rand(4, 1024).requires_grad_(), rand(8, 1024)

    def two_steps(context):
        steps = []
        for _ in range(2):
            w.grad = None
            with context:
                y = F.linear(x, w)
            y.sum().backward()
            steps.append(w.grad.clone())
        return steps

    first, second = two_steps(compressed(2, seed=1)), two_steps(compressed(2, seed=1))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], two_steps(compressed(2, seed=2))[0])


def test_the_report_as_text():
    context = compressed(2)
    with context:
        F.linear(rand(8, 512), nn.Parameter(rand(2, 512)))
    lines = str(context.report).splitlines()
    assert lines[-1].split() == ["all", "16,384", "1,088", "15.1x", "smaller"]


def test_the_report_names_the_layers_that_saved_a_tensor_first():
    x, names = rand(4, 512), ("a", "b", "c", "d", "e", "f")
    layers = nn.ModuleDict({name: nn.Linear(512, 3) for name in names})
    others = [rand(4, 512) for _ in range(4)]
    context = compressed(2, model=layers)
    with context:
        results = [layers["a"](x), layers["b"](x), layers["b"](x), layers["c"](x), layers["c"](others[0])]
        results += [layers[name](y) for name, y in zip("abc", others[1:], strict=True)]
        results += [layers["d"](y) for y in (x, *others)]  # results hold what was packed
    text = {line.split()[0]: " ".join(line.split()[1:]) for line in str(context.report).splitlines()}
    assert context.report.layers["d"] == (0, 0) and text["d"] == "0 0 shared with a, c, b", results
    assert "x smaller, off by" in text["b"] and "x smaller, off by" in text["c"] and "0.0x" not in str(context.report)
    with context:
        results = [layers["a"](x), layers["b"](x)]
    assert str(context.report).splitlines()[1].split() == ["b", "0", "0", "shared", "with", "a"], results


def test_the_report_of_a_layer_with_other_bits_and_of_what_grows():
    x = rand(4, 512)
    layers = nn.ModuleDict({name: nn.Linear(512, 3) for name in "ab"})
    context = compressed(2, model=layers, layers={"b": 8})
    with context:
        results = [layers["a"](x), layers["b"](x)]
    assert results and context.report.layers["b"][0] == 0 < context.report.layers["b"][1]
    assert "shared with a" in str(context.report)
    few = rand(2, 3)
    with compressed(8, least=0) as context:
        F.linear(few, nn.Parameter(rand(2, 3)))
    was, now = context.report.before, context.report.after
    assert now > was and f"{now / was:.1f}x larger" in str(context.report)
