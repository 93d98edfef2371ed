"""Trained float models become quantised ones in place."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_models import ResNet18

import quantarray as qa

T = qa.torch


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, groups=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4),
    )  # fmt: skip


def data(seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (256,), generator=g)
    corner = F.one_hot(y, 4).float().view(-1, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    return corner + 0.7 * torch.randn(256, 1, 8, 8, generator=g), y


def train(net, optimizer, steps):
    net.train()
    for i in range(steps):
        x, y = data(i)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


def accuracy(net):
    x, y = data(1000)
    return (net.eval()(x).argmax(1) == y).float().mean().item()


def test_what_is_converted():
    assert T.convert(model(), T.DoReFa(2)) == ["3", "8"]
    assert T.convert(model(), T.DoReFa(2), keep=()) == ["0", "3", "8", "10"]
    assert T.convert(model(), T.DoReFa(2), keep=("8", "last")) == ["0", "3"]
    assert T.convert(model(), T.DoReFa(2), keep=(nn.Linear,)) == ["0", "3"]
    assert T.convert(model(), T.DoReFa(2), keep="last") == ["0", "3", "8"]
    inside = ResNet18(8)
    names = T.convert(inside, T.Sign(scale=True), keep=("3", "first", "last"))
    assert "3.conv1" not in names and "0" not in names and "4.conv1" in names and len(names) == 17


class Padded(nn.Conv2d):
    """A convolution of another forward pass."""


def everything():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), Padded(4, 4, 3), nn.ConvTranspose2d(4, 4, 3),
        nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Linear(4, 4), nn.MultiheadAttention(4, 2), nn.LSTM(4, 4), nn.Conv1d(1, 1, 1),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), T.QuantLinear(4, 4), nn.Linear(4, 4),
    )  # fmt: skip


def test_what_was_left_is_said_with_the_reason():
    net = everything()
    with pytest.warns(UserWarning, match=r"convert: left in floats: '3', Padded is a subclass of Conv2d, whose"):
        converted = T.convert(net, T.DoReFa(2), keep=("first", "last", "5"))
    assert converted == ["2", "4", "7", "10"] and isinstance(converted, list)
    assert converted.left == {
        "0": "keep: first",
        "3": "Padded is a subclass of Conv2d, whose forward may be another",
        "5": "keep: 5",
        "8": "MultiheadAttention has no quantised layer: linear layers and convolutions have",
        "8.out_proj": "NonDynamicallyQuantizableLinear is a subclass of Linear, whose forward may be another",
        "9": "LSTM has no quantised layer: linear layers and convolutions have",
        "11": "ParametrizedLinear is a subclass of Linear, whose forward may be another",
        "12": "QuantLinear is quantised already",
        "13": "keep: last",
    }
    lines = str(converted).splitlines()
    assert lines[0].split() == ["2", "quantised"] and lines[4] == "0           keep: first" and len(lines) == 13
    every = {id(m) for name, m in net.named_modules() if name in {*converted, *converted.left}}
    assert all(id(m) in every for m in net if any(p.ndim > 1 for p in m.parameters()))


def test_what_keep_names_is_left_without_a_warning():
    others = (Padded, nn.ConvTranspose2d, nn.MultiheadAttention, nn.LSTM, nn.Conv1d, "11")
    with warnings.catch_warnings(action="error"):
        converted = T.convert(everything(), T.DoReFa(2), keep=others)
        again = T.convert(model(), T.DoReFa(2))
    assert converted == ["0", "2", "5", "7", "13"] and converted.left["3"] == "keep: Padded"
    assert converted.left["8.out_proj"] == "keep: MultiheadAttention" and again.left == {
        "0": "keep: first", "10": "keep: last"
    }  # fmt: skip


def test_parameters_and_settings_stay():
    net = model()
    before = dict(net.named_parameters())
    conv, weight = net[3], net[3].weight.detach().clone()
    T.convert(net, T.DoReFa(3), T.PACT(4))
    after = dict(net.named_parameters())
    assert all(after[name] is p for name, p in before.items())
    assert type(net[3]) is T.QuantConv2d and net[3] is conv and net[3].groups == 2 and net[3].padding == (1, 1)
    assert net[3].activations is not net[8].activations
    x = torch.rand(2, 8, 8, 8)
    expected = F.conv2d(T.PACT(4)(x), T.DoReFa(3)(weight), net[3].bias, padding=1, groups=2)
    assert torch.equal(net[3](x), expected)


@pytest.mark.parametrize(
    ("weights", "activations"),
    [
        (T.ABC(3), T.LQ(2)),
        (T.Sign("approx_sign", scale=True), T.DoReFa(2, activations=True)),
        (T.LSQ(3), T.LSQ(3, False)),
    ],
    ids=["ABC, LQ", "Sign, DoReFa", "LSQ"],
)  # fmt: skip
def test_norms_and_fine_tuning_bring_accuracy_back(weights, activations):
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    train(net, optimizer, 40)
    exact = accuracy(net)
    variances = net[4].running_var.clone()
    net.train()
    T.convert(net, weights, activations, samples=[data(i)[0] for i in range(4)])
    assert net.training and net[4].momentum == 0.1 and not torch.equal(net[4].running_var, variances)
    x = torch.cat([data(i)[0] for i in range(4)])
    net.eval()
    got = net[:4](x).transpose(0, 1).flatten(1).var(1)
    assert np.allclose(got.detach(), net[4].running_var, rtol=0.15)
    train(net, torch.optim.Adam(net.parameters(), 3e-3), 40)
    assert exact > 0.9 and accuracy(net) > exact - 0.03


def test_wrong_arguments():
    with pytest.raises(ValueError, match="convert: keep names a module 'conv'"):
        T.convert(model(), keep=("conv",))
    with pytest.raises(TypeError, match="convert: weights must be a module"):
        T.convert(model(), qa.Sign())
    with pytest.raises(TypeError, match=r"convert: model must be a torch\.nn\.Module"):
        T.convert(lambda x: x)


@pytest.mark.parametrize(
    ("weights", "activations", "told"),
    [
        (T.DoReFa(2), T.DoReFa(2), r"activations need .* got DoReFa, of weights; pass DoReFa\(bits, activations=True"),
        (T.PACT(2), None, "weights need .* got PACT, of activations"),
        (
            T.LQ(2),
            None,
            r"weights need .* got LQ, of activations; pass LQ\(bits\) for .*, LQ\(bits, weights=True\) for",
        ),
        (T.ABC(2), T.ABC(2), r"activations need .* pass ABCActivations\(masks\)"),
        (T.ABCActivations(2), None, r"weights need .* pass ABC\(masks\)"),
        (T.Sign(scale=True), T.Sign(scale=True), r"activations need .* pass Sign\(\)"),
        (None, T.Ternary(), "activations need .* got Ternary"),
    ],
)
def test_schemes_of_the_other_role(weights, activations, told):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(ValueError, match=f"convert: {told}"):
        T.convert(net, weights, activations)
    assert not any(isinstance(layer, T.QuantLinear) for layer in net)
    with pytest.raises(ValueError, match=f"QuantLinear: {told}"):
        T.QuantLinear(4, 4, weights=weights, activations=activations)


def test_signs_behind_a_relu_are_told():
    net = nn.Sequential(
        nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 9), nn.BatchNorm1d(9), nn.Linear(9, 9), nn.Linear(9, 2)
    )
    with pytest.warns(UserWarning, match="Sign gives .1 everywhere in '2', whose inputs are never below 0"):
        T.convert(net, T.Sign(scale=True), T.Sign(), samples=[torch.randn(50, 4) for _ in range(2)])
    with pytest.raises(TypeError, match="convert: samples must be batches, got a tensor"):
        T.convert(net, T.Sign(scale=True), T.Sign(), samples=torch.randn(50, 4))


def test_pytorch_writes_no_quantisers(tmp_path):
    """A file of the old exporter had the answer for the example as a constant."""
    net = nn.Sequential(nn.Linear(4, 4), T.QuantLinear(4, 4, weights=T.DoReFa(2), activations=T.PACT(2)))
    with warnings.catch_warnings(action="ignore"), pytest.raises(RuntimeError, match=r"quantarray\.nn\.from_torch"):
        torch.onnx.export(net, (torch.randn(2, 4),), tmp_path / "net.onnx", dynamo=False)
    assert net(torch.randn(2, 4)).shape == (2, 4)
