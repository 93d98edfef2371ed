"""Modules of many forms: what is taken is equal to PyTorch, what is not is refused by name, and nothing changes."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_compared import compare
from torch_layers import Bin, Faked, LearnedStep, Levels, LowConv, LowLinear, SignDetached, ThreeLevels, channel_weight
from torch_modules import module

import quantarray as qa

X = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(1))


def seen(net, shape=X.shape[1:]):
    """Return a network whose batch norms have seen images, with gammas of both signs."""
    torch.manual_seed(2)
    for part in net.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    with torch.no_grad():
        net.train()(torch.randn(8, *shape))
    return net.eval()


@pytest.mark.parametrize("case", range(12))
def test_random_modules_are_equal(case):
    net, x = module(np.random.default_rng([7, case]))
    assert compare(net, x, qa.nn.from_torch(net, x[:1]))


@pytest.mark.parametrize("act", [nn.PReLU(8), nn.Hardswish(), nn.SiLU(), nn.Mish(), nn.LeakyReLU(-0.5), nn.GELU()])
@pytest.mark.parametrize("quantiser", [Bin, SignDetached, partial(LearnedStep, 2, True)])
def test_functions_that_turn_are_equal(act, quantiser):
    nn.init.normal_(act.weight) if isinstance(act, nn.PReLU) else None
    net = seen(nn.Sequential(Bin(), LowConv(4, 8, 3), nn.BatchNorm2d(8), act, quantiser(), LowConv(8, 4, 3)))
    try:
        graph = qa.nn.from_torch(net, X[:1])
    except ValueError as error:
        assert isinstance(act, nn.GELU) and "3 (GELU): aten.gelu" in str(error)
        return
    assert list(compare(net, X, graph)) == ["0", "4"]
    assert not [row for row in graph.summary().numpy if row.op in ("Conv", "MatMul")]


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(3, 2, ceil_mode=True)])
@pytest.mark.parametrize("place", range(4))
def test_max_pools_on_either_side_of_batch_norm_and_quantiser(pool, place):
    parts = [Bin(), LowConv(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(8), Bin()]
    net = seen(nn.Sequential(*parts[: place + 2], pool, *parts[place + 2 :], LowConv(8, 3, 1)))
    assert compare(net, X, qa.nn.from_torch(net, X[:1]))


class Net(nn.Module):
    """Code that is no Sequential: a loop, a dict of results, a residual of integers."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(LowConv(4, 4, 3, padding=1, bias=False) for _ in range(3))
        self.act, self.scale = SignDetached(), nn.Parameter(torch.tensor(0.25))

    def forward(self, x, y):
        total = self.act(x)
        for conv in self.convs:
            total = self.act(conv(total)) + total
        return {"sum": total * self.scale, "both": total.flatten(1) - self.act(y)}


def test_code_of_any_form_and_several_inputs_and_outputs():
    net, y = Net(), torch.randn(3, 256)
    graph = qa.nn.from_torch(net, (X[:1], y[:1]))
    assert [v.name for v in graph.inputs] == ["x", "y"]
    got = graph(X.numpy(), y.numpy())
    with torch.no_grad():
        expected = net(X, y)
    for name in ("sum", "both"):
        np.testing.assert_array_equal(got[name], expected[name].numpy())


def test_weights_and_inputs_of_8_bits_and_scales_of_each_channel():
    first = LowConv(4, 8, 3, weight=partial(channel_weight, bits=8))
    last = LowConv(8, 8, 3, groups=8, weight=channel_weight)
    net = seen(nn.Sequential(Faked(8, 0.02), first, nn.BatchNorm2d(8), Faked(4, 0.3), last))
    graph = qa.nn.from_torch(net, X[:1])
    assert list(compare(net, X, graph)) == ["0", "3"]
    assert sum(row.op.startswith("conv2d") for row in graph.summary().rows) == 2


def test_images_of_bytes():
    net = nn.Sequential(Scaled(), LowConv(3, 4, 3))
    x = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8)
    graph = qa.nn.from_torch(net, x[:1])
    np.testing.assert_allclose(graph(x.numpy()), net(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert graph.summary().rows[0].op == "conv2d"


class Scaled(nn.Module):
    def forward(self, x):
        return x.float() / 255


def test_padding_by_a_level():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.conv = Bin(), LowConv(4, 8, 3, bias=False)

        def forward(self, x):
            return self.conv(F.pad(self.act(x), (1, 1, 1, 1), value=-1.0))

    net = Padded()
    graph = qa.nn.from_torch(net, X[:1])
    np.testing.assert_array_equal(graph(X.numpy()), net(X).detach().numpy())
    assert not [row for row in graph.summary().numpy if row.op == "Conv"]


def test_a_float_layer_is_left_and_the_summary_says_so():
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), Levels(), LowConv(8, 2, 1))
    graph = qa.nn.from_torch(net, X[:1])
    np.testing.assert_allclose(graph(X.numpy()), net(X).detach().numpy(), rtol=1e-5, atol=1e-5)
    left = [row.source for row in graph.summary().numpy if row.op == "Conv"]
    assert left == ["0 (Conv2d)", "2 (Conv2d)"]


def test_a_saved_graph_is_equal(tmp_path):
    net, x = module(np.random.default_rng([7, 3]))
    graph = qa.nn.from_torch(net, x[:1])
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x.numpy()), graph(x.numpy()))


# Refused


class Reads(nn.Module):
    def forward(self, x):
        return x * 2 if float(x.sum()) > 0 else x


class WritesAPart(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 0] = 0
        return y + 1


class ReturnsAPart(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 0] = 0
        return y


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


REFUSED = {
    "reads": (Reads(), r"module \(Reads\): its Python code reads a tensor that depends on the input"),
    "a part": (nn.Sequential(nn.ReLU(), WritesAPart()), r"1 \(WritesAPart\): a part of a tensor is written in place"),
    "a part, returned": (ReturnsAPart(), r"module \(ReturnsAPart\): a part of a tensor is written in place"),
    "a part, read by another": (
        nn.Sequential(ReturnsAPart(), nn.ReLU()),
        r"0 \(ReturnsAPart\): a part of a tensor is written in place",
    ),
    "random": (nn.Sequential(Draws()), r"0 \(Draws\): it draws random numbers; do that only if self.training"),
    "group norm": (nn.Sequential(nn.GroupNorm(1, 4)), r"0 \(GroupNorm\): it normalises by statistics of its input"),
    "adaptive": (nn.AdaptiveAvgPool2d(3), r"module \(AdaptiveAvgPool2d\): an adaptive pool of \(8, 8\) to \(3, 3\)"),
    "recurrent": (nn.Sequential(nn.Flatten(2), nn.LSTM(64, 4)), r"1 \(LSTM\): "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_refused_by_name(name):
    net, why = REFUSED[name]
    with pytest.raises(ValueError, match=rf"from_torch: \d+ parts? of the module cannot be taken:\n  {why}"):
        qa.nn.from_torch(net, X[:1])


def test_all_refused_layers_are_listed_at_once():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.norm = nn.AdaptiveAvgPool2d(3), nn.GroupNorm(1, 4)

        def forward(self, x):
            return self.up(x), self.norm(x)

    with pytest.raises(ValueError, match=r"2 parts of the module(.|\n)*up .AdaptiveAvgPool2d.(.|\n)*norm .GroupNorm."):
        qa.nn.from_torch(Both(), X[:1])


def test_half_precision_is_refused():
    with pytest.raises(ValueError, match="it computes in bfloat16; convert the module"):
        qa.nn.from_torch(nn.Sequential(nn.Conv2d(4, 4, 3)).to(torch.bfloat16), X[:1].bfloat16())


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"needs a torch.nn.Module, got type"):
        qa.nn.from_torch(nn.ReLU, X)
    with pytest.raises(TypeError, match=r"a tensor, or a tuple of the tensors that forward takes, got ndarray"):
        qa.nn.from_torch(nn.ReLU(), X.numpy())
    with pytest.raises(ValueError, match="at least one sample"):
        qa.nn.from_torch(nn.ReLU(), X[:0])


# A forward of one's own


class Compiled(nn.Module):
    """A layer whose code reads its input, as one that calls a library does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4, 1, 1))

    def forward(self, x):
        numbers = torch.tensor(np.where(x.numpy() >= 0, 1.0, -1.0).astype(np.float32))
        return F.conv2d(numbers, self.weight.sign())


def test_another_forward_stands_in():
    net = nn.Sequential(Compiled(), ThreeLevels(), LowLinear(8, 3))
    with pytest.raises(ValueError, match=r"0 \(Compiled\): "):
        qa.nn.from_torch(net, X[:1])

    def forward(layer, x):
        return F.conv2d(torch.where(x >= 0, 1.0, -1.0), layer.weight.sign())

    net = nn.Sequential(Compiled(), ThreeLevels(), LowConv(8, 3, 1, bias=False))
    graph = qa.nn.from_torch(net, X[:1], forwards={Compiled: forward})
    with torch.no_grad():
        np.testing.assert_array_equal(graph(X.numpy()), net(X).numpy())
    assert "forward" not in net[0].__dict__


# Layers of floats, quantised after training


def floats():
    first = [nn.Conv2d(4, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 16, 3, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
    return seen(nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(16, 10)))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_float_layers_are_quantised(bits):
    net, x = floats(), torch.randn(64, 4, 8, 8)
    graph = qa.nn.from_torch(net, X[:1], quantize={"weights": bits, "activations": bits, "calibration": x})
    assert not [row for row in graph.summary().numpy if row.op in ("Conv", "MatMul")]
    got, expected = graph(x.numpy()), net(x).detach().numpy()
    error = np.abs(got - expected).mean() / np.abs(expected).mean()
    assert error < {1: 1.5, 2: 1.2, 4: 0.35, 8: 0.04}[bits]
    if bits == 8:
        assert (got.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.9


def test_layers_that_are_kept_stay_floats():
    graph = qa.nn.from_torch(floats(), X[:1], quantize={"weights": 4, "calibration": X, "keep": ("0", "8")})
    assert [row.source for row in graph.summary().numpy if row.op in ("Conv", "MatMul")] == ["0 (Conv2d)", "8 (Linear)"]


def test_a_batch_of_numpy_arrays():
    net = floats()
    one, *others = (
        qa.nn.from_torch(net, X[:1], quantize={"weights": 4, "calibration": batch})
        for batch in (X, X.numpy(), X.numpy().astype(np.float64))
    )
    for other in others:
        np.testing.assert_array_equal(one(X.numpy()), other(X.numpy()))


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
@pytest.mark.parametrize("group", [None, 1, 7, 32, 1000])
def test_weights_of_linear_layers_alone(bits, group):
    """Convolutions stay floats; 100 inputs have a last group of 2, 4 or all of them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(100, 33), nn.ReLU(), nn.Linear(33, 5, bias=False))
    x, choices = torch.randn(6, 3, 27), {"weights": bits, "activations": None, "group": group}
    graph = qa.nn.from_torch(net, x[:1], quantize=choices)
    for layer in (net[2], net[4]):
        w = layer.weight.detach()
        for part in w.split(group or w.shape[1], 1):
            sizes = part.abs().double()
            if bits == 1:
                scale = sizes.mean(1, keepdim=True).float()
                part.copy_(torch.where(part >= 0, scale, -scale))
            else:
                scale = (sizes.amax(1, keepdim=True) / (2 ** (bits - 1) - 1)).float()
                part.copy_((part.double() / scale.double()).round() * scale)
    expected = net(x).detach().numpy()
    np.testing.assert_allclose(graph(x.numpy()), expected, rtol=1e-5, atol=1e-5)
    rows = {row.op: row for row in graph.summary().rows}
    assert "dequantized_linear" in rows and "linear" not in rows
    kept = qa.nn.from_torch(net, x[:1], quantize={**choices, "keep": "2"})
    assert [row.source for row in kept.summary().rows if row.op == "dequantized_linear"] == ["4 (Linear)"]


@pytest.mark.parametrize(
    ("quantize", "why"),
    [
        (4, "must be a dict"),
        ({"weights": 4}, "needs 'calibration'"),
        ({"calibration": X * torch.nan}, r"the layer '0' takes of quantize\['calibration'\] holds NaN or infinity"),
        ({"activations": 4, "calibration": X / 0}, r"the layer '0' takes of quantize\['calibration'\] holds NaN"),
        ({"weights": 9, "calibration": X}, r"quantize\['weights'\] must be an integer from 1 to 8, got 9"),
        ({"bits": 4, "calibration": X}, "has 'bits'; it takes weights, activations, calibration, keep, group"),
        ({"calibration": X.tolist()}, "must be an array or a tensor"),
        ({"calibration": X[0]}, r"must be samples as the example, torch.float32 \(n, .*\), got torch.float32 "),
        ({"calibration": X[:0]}, r"must be samples as the example, .* got torch.float32 \(0, "),
        ({"calibration": X.to(torch.int8)}, "must be samples as the example, .* got torch.int8"),
        ({"calibration": X * 0}, "of zeros alone"),
        ({"calibration": X[:, :1]}, r"the module does not take quantize\['calibration'\] of "),
        (
            {"calibration": X, "group": 32},
            r"quantize\['group'\] must be a positive integer, beside 'activations': None",
        ),
        ({"activations": None, "group": 0}, r"quantize\['group'\] must be a positive integer"),
        ({"activations": None, "weights": 9}, r"quantize\['weights'\] must be an integer from 1 to 8"),
        ({"calibration": X, "keep": ("0", "head*")}, r"\['keep'\] has 'head\*', which matches no path of the module"),
    ],
)
def test_choices_are_checked(quantize, why):
    with pytest.raises((TypeError, ValueError), match=why):
        qa.nn.from_torch(floats(), X[:1], quantize=quantize)
