"""Trained quantisers of quantarray.torch, and uneven ones in plain PyTorch, stay packed in from_torch and are equal."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_compared import compare

import quantarray as qa

T = qa.torch
ACTIVATIONS = {
    "Sign": lambda: T.Sign(),
    "DoReFa": lambda: T.DoReFa(2, activations=True),
    "PACT": lambda: T.PACT(3, 2.0),
    "LSQ": lambda: T.LSQ(2),
    "LSQ unsigned": lambda: T.LSQ(3, signed=False),
    "LQ": lambda: T.LQ(2),
    "LQ 3 bits": lambda: T.LQ(3),
    "LQ 5 bits": lambda: T.LQ(5),
    "LQ center": lambda: T.LQ(2, center=True),
    "ABC": lambda: T.ABCActivations([-0.4, 0.1, 0.7], [0.31, 0.23, 0.55]),
    "ABC, one falls": lambda: T.ABCActivations([-1, 0, 1.0], [0.4, -0.3, 0.53]),
}
WEIGHTS = {
    "Sign": lambda: T.Sign(scale=True),
    "DoReFa": lambda: T.DoReFa(2),
    "DoReFa 8 bits": lambda: T.DoReFa(8),
    "LSQ 8 bits": lambda: T.LSQ(8),
    "Ternary": lambda: T.Ternary(),
    "ABC": lambda: T.ABC(3),
    "LQ": lambda: T.LQ(2, weights=True),
}
SCHEMES = (T.Sign, T.DoReFa, T.PACT, T.LSQ, T.LQ, T.ABCActivations)


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fitted(net, x):
    """Return a network whose batch norms and quantisers have followed images, with gammas of both signs."""
    torch.manual_seed(1)
    for part in net.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    with torch.no_grad():
        net.train()(x)
    return net.eval()


def network(weights, activations, packed=False):
    """Return two convolutions and two dense layers; the first quantiser and the second have numbers of their own."""
    layer = {"weights": weights, "packed": packed}
    conv = [T.QuantConv2d(a, b, 3, activations=activations(), **copy.deepcopy(layer)) for a, b in ((4, 16), (16, 8))]
    dense = [T.QuantLinear(a, b, activations=activations(), **copy.deepcopy(layer)) for a, b in ((32, 20), (20, 5))]
    norms = nn.BatchNorm2d(16), nn.BatchNorm2d(8), nn.BatchNorm1d(20)
    return nn.Sequential(
        conv[0], norms[0], conv[1], nn.MaxPool2d(2), norms[1], nn.Flatten(), dense[0], norms[2], dense[1]
    )


def check(net, x, count=4, kinds=SCHEMES):
    graph = qa.nn.from_torch(net, x[:1])
    if any(getattr(part, "packed", False) is True for part in net.modules()):
        for part in net.modules():
            part.packed = False if "packed" in part.__dict__ else part
    weights = {path for path, part in net.named_modules() if path.endswith("weights")}
    compared = [path for path in compare(net, x, graph, kinds) if path not in weights]
    assert len(compared) == count, compared
    assert not [row for row in graph.summary().numpy if row.op in ("Conv", "MatMul", "Gather", "unpack")]
    return graph


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_taken_without_forwards(name):
    x = rand(64, 4, 8, 8).abs() if name.startswith("LQ") else rand(64, 4, 8, 8)
    net = fitted(network(T.Sign(scale=True), ACTIVATIONS[name]), x)
    graph = check(net, x)
    assert sum(row.op.startswith(("conv2d", "linear")) for row in graph.summary().rows) == 4


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("activations", ["DoReFa", "LQ", "ABC"])
def test_weights(name, activations):
    x = rand(32, 4, 8, 8).abs()
    net = fitted(network(WEIGHTS[name](), ACTIVATIONS[activations]), x)
    check(net, x)


@pytest.mark.parametrize("name", ["Sign", "LQ", "ABC"])
def test_packed_layers_are_recorded_and_left_packed(name):
    x = rand(16, 4, 8, 8).abs()
    net = fitted(network(T.ABC(2), ACTIVATIONS[name], packed=True), x)
    qa.nn.from_torch(net, x[:1])
    assert all(part.packed is True for part in net if isinstance(part, (T.QuantConv2d, T.QuantLinear)))
    with torch.no_grad():
        np.testing.assert_allclose(qa.nn.from_torch(net, x[:1])(x.numpy()), net(x).numpy(), rtol=1e-4, atol=1e-4)


def test_binary_convolutions_are_equal_in_every_sum():
    net = nn.Sequential(T.BinaryConv2d(4, 8, 3, scale=False, bias=False), T.BinaryConv2d(8, 8, 3, groups=2, bias=False))
    x = rand(8, 4, 9, 9)
    graph = qa.nn.from_torch(net[:1], x[:1])
    with torch.no_grad():
        np.testing.assert_array_equal(graph(x.numpy()), net[0](x).numpy())
    assert compare(net, x, qa.nn.from_torch(net, x[:1]), (T.Sign,))


def test_a_depthwise_convolution_of_uneven_levels():
    x = rand(16, 8, 8, 8).abs()
    depthwise = T.QuantConv2d(8, 8, 3, groups=8, weights=T.Sign(scale=True), activations=T.LQ(2))
    grouped = T.QuantConv2d(8, 8, 3, groups=2, weights=T.ABC(2), activations=T.LQ(2))
    net = fitted(nn.Sequential(depthwise, nn.BatchNorm2d(8), grouped), x)
    check(net, x, 2)


def test_numbers_that_are_not_fitted_yet_are_refused():
    net = nn.Sequential(T.QuantConv2d(4, 8, 3, weights=T.Sign(), activations=T.LSQ(2)))
    with pytest.raises(
        ValueError, match=r"0.activations \(LSQ\): its numbers have not been fitted yet; call the model"
    ):
        qa.nn.from_torch(net, rand(1, 4, 8, 8))


class Stepped(nn.Module):
    """A quantiser that NumPy computes: its module says that each value depends on its element alone."""

    pointwise = True

    def forward(self, x):
        return torch.from_numpy(np.array([0.0, 0.4, 1.7], np.float32)[np.digitize(x.numpy(), [0.2, 0.9])])


class OwnLQ(nn.Module):
    """LQ-Nets' activations as people write them: the nearest of all sums of a basis."""

    def __init__(self):
        super().__init__()
        self.basis = nn.Parameter(torch.tensor([0.41, 0.97]))

    def forward(self, x):
        levels = torch.stack([0 * self.basis[0], self.basis[0], self.basis[1], self.basis.sum()])
        middle = (levels[1:] + levels[:-1]) / 2
        y = sum((x > m).float() * (b - a) for m, a, b in zip(middle, levels[:-1], levels[1:], strict=True))
        return x + (y - x).detach()


class OwnABC(nn.Module):
    """ABC-Net's activations as people write them: a sum of shifted signs times their betas."""

    def __init__(self):
        super().__init__()
        self.shifts, self.betas = (
            nn.Parameter(torch.tensor([-0.6, 0.1, 0.8])),
            nn.Parameter(torch.tensor([0.3, 0.5, 0.21])),
        )

    def forward(self, x):
        masks = [((x + v).clamp(0, 1) >= 0.5).float() * 2 - 1 for v in self.shifts]
        return sum(beta * mask for beta, mask in zip(self.betas, masks, strict=True))


class OwnConv(nn.Conv2d):
    """A convolution of ABC-Net's weights in plain PyTorch: two masks and factors of each output."""

    def forward(self, x):
        w = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        first = w.sign()
        alpha = w.abs().mean(dim=(1, 2, 3), keepdim=True)
        rest = w - alpha * first
        second = torch.where(rest >= 0, 1.0, -1.0)
        return F.conv2d(x, alpha * first + rest.abs().mean(dim=(1, 2, 3), keepdim=True) * second, self.bias)


@pytest.mark.parametrize("quantiser", [OwnLQ, OwnABC, Stepped])
def test_uneven_quantisers_of_ones_own(quantiser):
    x = rand(32, 4, 9, 9)
    parts = [quantiser(), OwnConv(4, 16, 3), nn.BatchNorm2d(16), nn.PReLU(16), quantiser(), OwnConv(16, 8, 3)]
    net = fitted(nn.Sequential(*parts), x)
    graph = check(net, x, 2, (quantiser,))
    assert [row.op.split()[0] for row in graph.summary().rows[:3]] == ["threshold", "conv2d", "conv2d"]


def test_a_pool_takes_codes_of_uneven_levels_and_a_file_has_them(tmp_path):
    x = rand(8, 4, 12, 12)
    net = fitted(nn.Sequential(OwnLQ(), nn.MaxPool2d(2), OwnConv(4, 8, 3), nn.BatchNorm2d(8), OwnLQ()), x)
    graph = qa.nn.from_torch(net, x[:1])
    with torch.no_grad():
        np.testing.assert_allclose(graph(x.numpy()), net(x).numpy(), rtol=1e-6)
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x.numpy()), graph(x.numpy()))
    np.testing.assert_array_equal(graph.prepared()(x.numpy()), graph(x.numpy()))


class Moves(nn.Module):
    """Codes of uneven levels, padded, joined, up-sampled, pooled, and added."""

    def __init__(self):
        super().__init__()
        self.quantiser, self.conv = OwnABC(), OwnConv(4, 8, 3)

    def forward(self, x):
        q = self.quantiser(x)
        padded = self.conv(F.pad(q, (1, 1, 1, 1), value=0.3)), self.conv(torch.cat([q[:, 2:], q[:, :2]], 1))
        pooled = F.avg_pool2d(q, 2), F.max_pool2d(q, 3, 1, 1)
        return *padded, *pooled, F.interpolate(q, scale_factor=2.0), q + 0.5 * q.transpose(2, 3), q * 1.7, F.relu(q)


def test_codes_of_uneven_levels_are_moved():
    net, x = Moves(), rand(4, 4, 12, 12)
    got = qa.nn.from_torch(net, x[:1])(x.numpy())
    with torch.no_grad():
        for value, expected in zip(got.values(), net(x), strict=True):
            np.testing.assert_allclose(value, expected.numpy(), rtol=1e-6, atol=1e-6)
