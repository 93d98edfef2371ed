"""Tensors of a GPU whose words wait in host memory, by the stand-in for CuPy; of CPU tensors nothing changes."""

from contextlib import contextmanager

import fake_cupy
import pytest
import torch
from torch import nn

import quantarray as qa
from quantarray.torch import offload
from quantarray.torch.stored import Packed, Places

compressed = qa.torch.compressed_activations


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def gpu(monkeypatch):
    """A stand-in for a GPU that holds all tensors, inside a `with` block."""

    @contextmanager
    def entered():
        monkeypatch.setattr(offload, "on_gpu", lambda tensor: True)
        monkeypatch.setattr(offload, "as_array", lambda flat: fake_cupy.asarray(flat.numpy()))
        monkeypatch.setattr(offload, "as_tensor", lambda values: torch.from_numpy(fake_cupy.asnumpy(values)))
        monkeypatch.setattr(offload, "name_of", lambda device: "cuda:0")
        with fake_cupy.gpu():
            yield

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


def test_words_wait_in_host_memory(gpu):
    with gpu():
        del fake_cupy.waits[:]
        gradients, _, forms = step(compressed(2, seed=3, offload=True))
        moves = fake_cupy.waits.count("an array is moved to the GPU")
    packed = [f.stored for f in forms if isinstance(f.stored, Packed)]
    assert len(packed) >= 5 and any(isinstance(f.stored, Places) for f in forms)
    assert all(form.q.device == "cpu" and form.device is not None for form in packed) and moves >= len(packed)
    assert all(torch.isfinite(g).all() for g in gradients)


def test_gradients_and_bytes_are_those_of_a_cpu(gpu):
    expected, there = step(compressed(2, seed=3))[:2]
    with gpu():
        got, here = step(compressed(2, seed=3, offload=True))[:2]
    assert here == there and all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_level_4(gpu):
    context = compressed(level="L4")
    with gpu():
        step(context)
    assert context.report.mean_bits == 2 and context.report.ratio > 8


def test_tensors_of_a_cpu_are_packed_alike():
    expected, before = step(compressed(2, seed=3))[:2]
    got, after = step(compressed(2, seed=3, offload=True))[:2]
    assert before == after and all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
