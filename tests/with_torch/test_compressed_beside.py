"""Compressed activations beside what people train with: autocast, checkpoints, compilers, processes, and layers."""

import contextlib
import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import quantarray as qa

compressed = qa.torch.compressed_activations
LABELS = torch.arange(16) % 10


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def images():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip


class Recurrent(nn.Module):
    """The mean of a recurrent layer's results, and a classifier."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.head = kind(32, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.layer(x)[0].mean(1))


class Attention(nn.Module):
    """An encoder, and a classifier of its mean."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


MODELS = {"images": (images, (16, 3, 32, 32)), "attention": (Attention, (16, 40, 64))}


def loss_of(model, x):
    return F.cross_entropy(model(x), LABELS)


def step(model, x, context=None, of=loss_of, dtype=None, scaled=False):
    """The loss and all gradients of a step, divided by a scale again where a scaler has one."""
    model = copy.deepcopy(model)
    torch.manual_seed(1)
    cast = contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype)
    with context or contextlib.nullcontext(), cast:
        loss = of(model, x)
    if scaled:
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss).backward()
        scaler.unscale_(torch.optim.SGD(model.parameters(), 0.1))
    else:
        loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


def compare(model, x, least, **settings):
    """Check that the loss is equal, gradients are near at 8 bits, and bytes at 2 bits are `least` times fewer."""
    loss, exact = step(model, x, **settings)
    for bits, most in ((8, 0.03), (2, 1.5)):
        context = compressed(bits)
        value, gradient = step(model, x, context, **settings)
        assert value == loss and (gradient - exact).norm() < most * exact.norm(), (bits, (gradient - exact).norm())
    assert context.report.ratio > least, str(context.report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_autocast(name, dtype):
    """Halves take half the bytes that are saved exactly, so packing saves half as many times."""
    make, shape = MODELS[name]
    compare(make(), rand(*shape), 5, dtype=dtype, scaled=dtype == torch.float16)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_activation_checkpointing(reentrant, inside):
    """What a checkpoint computes again is not saved; in a backward pass inside of the context it is packed."""

    def of(model, x):
        y = checkpoint(model[:5], x.clone().requires_grad_(), use_reentrant=reentrant)
        y = checkpoint(model[5:8], y, use_reentrant=reentrant)
        return F.cross_entropy(model[8:](y), LABELS)

    x, model = rand(16, 3, 32, 32), images()
    loss, exact = step(model, x, of=of)
    if not inside:
        context = compressed(2)
        value, gradient = step(model, x, context, of=of)
        assert value == loss and torch.equal(gradient, exact)
        plain = compressed(2)
        step(model, x, plain)
        assert context.report.after < plain.report.after  # both together hold less
        return
    model, context = copy.deepcopy(model), compressed(8)
    torch.manual_seed(1)
    with context:
        value = of(model, x)
        value.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert value.item() == loss and (gradient - exact).norm() < 0.03 * exact.norm()


def test_graphs_of_whole_models():
    """Compiled code saves its tensors as they are, in one graph, whose hooks do nothing."""
    model, x = images().eval(), rand(16, 3, 32, 32)
    loss, exact = step(model, x)
    whole = lambda model, x: torch.compile(loss_of, fullgraph=True, backend="aot_eager")(model, x)  # noqa: E731
    context = compressed(2)
    value, gradient = step(model, x, context, of=whole)
    assert value == pytest.approx(loss, rel=1e-6) and torch.allclose(gradient, exact, atol=1e-6)
    assert context.report.before == context.report.after


@pytest.mark.parametrize(("kind", "fused"), [(nn.LSTM, False), (nn.GRU, True), (nn.RNN, True)])
def test_recurrent_layers(kind, fused):
    with torch.backends.mkldnn.flags(enabled=fused):
        compare(Recurrent(kind), rand(16, 40, 32), 3)


def test_what_onednn_saves_of_an_lstm_is_left_alone():
    context = compressed(2)
    model, x = Recurrent(nn.LSTM), rand(16, 40, 32)
    loss, exact = step(model, x)
    value, gradient = step(model, x, context)
    assert value == loss and (gradient - exact).norm() < 1.5 * exact.norm()
    if torch.backends.mkldnn.is_available():
        assert context.report.layers["LSTM 0"][0] == context.report.layers["LSTM 0"][1]


WORKER = """
import sys, torch, torch.distributed as dist, quantarray as qa
from contextlib import nullcontext
from torch import nn
rank, bits, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 196, 10))
model = nn.parallel.DistributedDataParallel(model)
context = qa.torch.compressed_activations(bits, seed=rank) if bits else nullcontext()
x = torch.randn(2, 16, 3, 16, 16, generator=torch.Generator().manual_seed(5))[rank]
optimizer, losses = torch.optim.SGD(model.parameters(), 0.01), []
for _ in range(3):
    with context:
        loss = nn.functional.cross_entropy(model(x), torch.arange(16) % 10)
    optimizer.zero_grad()
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    optimizer.step()
    losses.append(loss.item())
both = [torch.empty_like(gradient) for _ in range(2)]
dist.all_gather(both, gradient)
assert torch.equal(*both)
print(*losses, float(gradient.norm()), context.report.ratio if bits else 1)
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")
def test_two_processes_have_equal_gradients(tmp_path):
    """DistributedDataParallel averages the gradients of both, whose random numbers are their own."""

    def run(bits):
        arguments = [sys.executable, "-c", WORKER]
        workers = [
            subprocess.Popen([*arguments, str(rank), str(bits), str(tmp_path / f"store{bits}")], stdout=-1, text=True)
            for rank in range(2)
        ]
        outputs = [worker.communicate(timeout=200)[0] for worker in workers]
        assert not any(worker.returncode for worker in workers)
        return [[float(number) for number in output.split()] for output in outputs]

    exact, packed = run(0), run(8)
    for (first, *losses, norm, _), (value, *others, size, ratio) in zip(exact, packed, strict=True):
        assert value == first and ratio > 3
        assert others == pytest.approx(losses, rel=0.02) and size == pytest.approx(norm, rel=0.1)
