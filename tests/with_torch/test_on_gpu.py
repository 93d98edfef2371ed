"""Tensors of a GPU, by the stand-in for CuPy: what is packed there equals what is packed on a CPU."""

from contextlib import contextmanager, nullcontext

import fake_cupy
import pytest
import torch
from torch import nn

import quantarray as qa
from quantarray.ops.quantize import quantization
from quantarray.torch import gpu, learned, packed_gradients, schemes
from quantarray.torch.host import Packed
from quantarray.torch.stored import PackedOnGpu, Places, rounded

compressed = qa.torch.compressed_activations


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def on_gpu(monkeypatch):
    """A stand-in for a GPU that holds all tensors, inside a `with` block; gives the list of what goes to the host."""
    moved = []

    def to_host(tensor):
        moved.append(tensor)
        return tensor.clone()

    def as_array(tensor, dtype, shape):
        assert tensor.is_contiguous()
        return fake_cupy.ndarray(tensor.numpy().view(dtype).reshape(shape))

    @contextmanager
    def entered():
        monkeypatch.setattr(gpu, "on_gpu", lambda tensor: True)
        monkeypatch.setattr(gpu, "as_array", as_array)
        monkeypatch.setattr(gpu, "name_of", lambda device: "cuda:0")
        monkeypatch.setattr(gpu, "stream_of", lambda device: nullcontext())
        monkeypatch.setattr(gpu, "to_host", to_host)
        with fake_cupy.gpu():
            yield moved

    return entered


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU6(), nn.GELU(),
        nn.Flatten(), nn.Linear(288, 10),
    )  # fmt: skip


def step(context):
    """Gradients of all parameters, the report's bytes, and the forms of saved tensors."""
    net, forms = model(), []
    pack = context._pack
    context._pack = lambda tensor: forms.append(pack(tensor)) or forms[-1]
    with context:
        y = net(rand(32, 1, 16, 16))
    (y**2).mean().backward()
    return [p.grad for p in net.parameters()], (context.report.before, context.report.after), forms


@pytest.mark.parametrize("offload", [False, True])
def test_gradients_and_bytes_are_those_of_a_cpu(on_gpu, offload):
    expected, there, _ = step(compressed(2, seed=3))
    with on_gpu() as moved:
        got, here, forms = step(compressed(2, seed=3, offload=offload))
    stored = [saved.form.stored for saved in forms if saved.form is not None]
    assert sum(isinstance(form, PackedOnGpu) for form in stored) >= 5 and any(isinstance(f, Places) for f in stored)
    assert bool(moved) == offload
    assert here == there and all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("level", ["L3", "L4"])
def test_levels(on_gpu, level):
    context = compressed(level=level)
    with on_gpu() as moved:
        step(context)
    # GELU has 8 bits
    assert 2 < context.report.mean_bits < 3.5 and context.report.ratio > 6 and bool(moved) == (level == "L4")


def test_tensors_of_a_cpu_are_packed_alike():
    expected, before, _ = step(compressed(2, seed=3))
    got, after, _ = step(compressed(2, seed=3, offload=True))
    assert before == after and all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize(("size", "group"), [(5000, 256), (5000, 64), (300, 512), (5000, 100), (0, 256)])
@pytest.mark.parametrize("bits", [1, 2, 8])
def test_values_are_those_of_a_cpu(on_gpu, size, group, bits):
    x = rand(size) * 100
    expected = rounded(x, bits, group, 7)
    with on_gpu():
        got = rounded(x, bits, group, 7)
        assert isinstance(got, PackedOnGpu) == (group != 100 and size > 0)
        assert torch.equal(got.restore(), expected.restore()) and got.nbytes == expected.nbytes
        assert torch.equal(got.half_steps(), expected.half_steps()) and got.bits == expected.bits


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
@pytest.mark.parametrize("kind", ["product", "relu", "relu6"])
def test_what_no_grid_holds_is_told_at_the_end(on_gpu, kind, value):
    x = rand(64, 64)
    x[3, 5] = value
    w = torch.ones(8, 64, requires_grad=True)
    finite = kind != "product" and abs(value) < float("inf")
    context, passed = compressed(2), False
    with on_gpu():
        with nullcontext() if finite else pytest.raises(ValueError, match=r"of shape \(64, 64\) with NaN, infinity"):
            with context:
                if kind == "product":
                    nn.functional.linear(x, w).sum()
                else:
                    getattr(nn.functional, kind)(x.clone().requires_grad_() * 1).sum()
                passed = True
        assert passed
        with context:  # the next step has no flags of this one
            nn.functional.linear(rand(64, 64), w).sum()


def test_an_exception_is_not_hidden_by_what_was_found(on_gpu):
    x, w = torch.full((64, 64), float("nan")), torch.ones(8, 64, requires_grad=True)
    with on_gpu(), pytest.raises(KeyError):
        with compressed(2):
            nn.functional.linear(x, w).sum()
            raise KeyError("another")


def test_large_values_are_packed_on_the_host(on_gpu):
    x = rand(64, 64) * 1e31
    expected = rounded(x, 4, 256, 1)
    with on_gpu():
        got = rounded(x, 4, 256, 1)
    assert isinstance(got, Packed) and torch.equal(got.restore(), expected.restore())


@pytest.mark.parametrize("make", [lambda p: torch.optim.Adam(p, lr=0.01), lambda p: torch.optim.SGD(p, 0.1, 0.9)])
@pytest.mark.parametrize("bits", [4, 8])
def test_optimizer_states(on_gpu, make, bits):
    def trained():
        w = nn.Parameter(rand(100, 64))
        optimizer = make([w])
        handle = qa.torch.compress_state(optimizer, bits, seed=5)
        for i in range(4):
            optimizer.zero_grad()
            (w * rand(100, 64, seed=i)).square().sum().backward()
            optimizer.step()
        return w.detach(), (handle.nbytes_before, handle.nbytes)

    expected = trained()
    with on_gpu():
        got = trained()
    assert torch.equal(got[0], expected[0]) and got[1] == expected[1]


CLASSES = {
    "binary": lambda: qa.torch.BinaryConv2d(4, 8, 3, padding=1),
    "lq and abc": lambda: qa.torch.QuantConv2d(4, 8, 3, weights=qa.torch.ABC(3), activations=qa.torch.LQ(2)),
    "lq weights": lambda: qa.torch.QuantConv2d(
        4, 8, 3, weights=qa.torch.LQ(2, weights=True), activations=qa.torch.PACT(2)
    ),
    "dorefa and lsq": lambda: qa.torch.QuantConv2d(4, 8, 3, weights=qa.torch.DoReFa(2), activations=qa.torch.LSQ(2)),
    "ternary": lambda: qa.torch.QuantConv2d(
        4, 8, 3, weights=qa.torch.Ternary(), activations=qa.torch.DoReFa(2, activations=True)
    ),
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("packed", [False, True, "backwards, too"])
def test_layers(on_gpu, monkeypatch, name, packed):
    """Quantised on the stand-in: CuPy's arrays instead of tensors go into `quantize`, and come back as tensors."""

    def passed():
        torch.manual_seed(0)
        layer = CLASSES[name]()
        layer.packed, layer.gradient_bits = bool(packed), 4 if packed == "backwards, too" else None
        x = rand(2, 4, 9, 9, seed=1).requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        return [y.detach(), x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]

    expected = passed()
    to_packed = quantization.quantize

    def quantized(x, *args, **named):
        there = x.ndim == 4 and len(x) == 2  # activations
        return to_packed(fake_cupy.ndarray(x.detach().numpy()) if there else x.detach(), *args, **named)

    with on_gpu():
        for module in (schemes, learned):
            monkeypatch.setattr(module, "quantize", quantized)
        # contiguous, as on a CPU: PyTorch adds products of images with channels last in another order
        monkeypatch.setattr(gpu, "as_tensor", lambda values: torch.from_numpy(fake_cupy.asnumpy(values)).contiguous())
        codes = packed_gradients.from_codes
        monkeypatch.setattr(
            packed_gradients, "from_codes", lambda a, *law, **more: codes(fake_cupy.ndarray(a.numpy()), *law, **more)
        )
        got = passed()
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
