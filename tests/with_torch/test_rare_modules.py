"""Modules with layers and code that low-bit networks seldom have are refused by name, or equal in every code."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_compared import compare
from torch_layers import Bin, Levels, LowLinear, channel_weight
from torch_unlisted import Attention, Code, Recurrent, module, unlisted_paths

import quantarray as qa

X = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("case", range(12))
def test_random_modules_are_refused_by_name_or_equal(case):
    net, x = module(np.random.default_rng([3, case]))
    try:
        graph = qa.nn.from_torch(net, x[:1])
    except ValueError as error:
        _, *lines = str(error).splitlines()
        assert lines and all(line.split()[0] in unlisted_paths(net) for line in lines), error
        return
    compare(net, x if graph.inputs[0].batched else x[:1], graph)


def test_linear_layers_of_three_axes_take_any_batch():
    net = nn.Sequential(Bin(), LowLinear(8, 16, weight=channel_weight), Levels(), LowLinear(16, 5, bias=False)).eval()
    x = X.flatten(1, 2)
    graph = qa.nn.from_torch(net, x[:1])
    assert list(compare(net, x, graph)) == ["0", "2"]
    assert sum(row.op.startswith("linear") for row in graph.summary().rows) == 2


def test_linear_layers_of_one_value_and_one_that_is_read_twice():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.a, self.b = Bin(), LowLinear(8, 4), LowLinear(8, 4)

        def forward(self, x):
            y = self.act(x)
            z = self.a(y)
            return z + self.b(y), z.flatten(1), y.flatten(0, 1) @ self.a.weight.sign().t()

    net = Heads()
    x = X.flatten(1, 2)
    with torch.no_grad():
        expected = net(x)
    for example in (x, x[:1]):
        graph = qa.nn.from_torch(net, example)
        outputs = graph(x[: len(example)].numpy())
        for got, right in zip(outputs.values(), expected, strict=True):
            right = right[: got.shape[0]]
            np.testing.assert_allclose(got, right.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", [(torch.zeros(4), torch.ones(4)), (None, None)])
def test_norms_of_statistics_of_the_input_are_refused(stored):
    net = nn.Sequential(Code(lambda x: F.batch_norm(x, *stored, training=True)))
    with pytest.raises(ValueError, match=r"0 \(Code\): it normalises by statistics of its input"):
        qa.nn.from_torch(net, X[:1])


def test_batch_norm_without_parameters_is_equal():
    net = nn.Sequential(Bin(), nn.BatchNorm2d(4, affine=False), Levels())
    net.train()(X)
    graph = qa.nn.from_torch(net.eval(), X[:1])
    np.testing.assert_array_equal(graph(X.numpy()), net(X).numpy())


def test_images_with_channels_last_in_memory():
    net = nn.Sequential(Bin(), nn.Conv2d(4, 8, 3), Levels(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), LowLinear(8, 2))
    x = X.to(memory_format=torch.channels_last)
    assert compare(net.eval(), x, qa.nn.from_torch(net, x[:1]))


@pytest.mark.parametrize("pool", [F.max_pool2d, F.adaptive_max_pool2d])
def test_indices_of_a_pool_are_refused(pool):
    with pytest.raises(ValueError, match=r"module \(Code\): the indices of a max pool are not taken"):
        qa.nn.from_torch(Code(lambda x: pool(x, 2, return_indices=True)), X[:1])
    net = nn.Sequential(Code(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)))
    with pytest.raises(ValueError, match=r"0 \(Code\): the indices of a max pool are not taken"):
        qa.nn.from_torch(net, X[:1])


def test_code_that_counts_the_batch_takes_that_of_the_example():
    net = Code(lambda x: torch.cat([x[i : i + 1] * 2 for i in range(len(x))]))
    graph = qa.nn.from_torch(net, X)
    np.testing.assert_array_equal(graph(X.numpy()), net(X).numpy())
    with pytest.raises(ValueError, match=r"must be float32 \(3, 4, 8, 8\), got \(2, 4, 8, 8\)"):
        graph(X[:2].numpy())


@pytest.mark.parametrize("layer", [True, False])
def test_attention_is_equal_to_rounding(layer):
    net = Attention(4, layer).eval()
    graph = qa.nn.from_torch(net, X)
    with torch.no_grad():
        np.testing.assert_allclose(graph(X.numpy()), net(X).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [nn.GELU(), nn.GELU("tanh"), nn.SELU(), Code(torch.erf)], ids=repr)
def test_smooth_functions_without_a_quantiser(layer):
    net = nn.Sequential(layer, nn.Linear(8, 8))
    graph = qa.nn.from_torch(net, X[:1])
    with torch.no_grad():
        np.testing.assert_allclose(graph(X.numpy()), net(X).numpy(), rtol=1e-5, atol=1e-6)


def test_an_encoder_is_equal_to_rounding():
    net = nn.Sequential(nn.Flatten(2), nn.TransformerEncoderLayer(64, 2, 16, batch_first=True)).eval()
    graph = qa.nn.from_torch(net, X)
    with torch.no_grad():
        np.testing.assert_allclose(graph(X.numpy()), net(X).numpy(), rtol=1e-4, atol=1e-5)


class Written(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 0] = 0
        return y


REASONS = {
    "written": (nn.Sequential(Written(), nn.AdaptiveAvgPool2d(1)), r"0.0 \(Written\): a part of a tensor is written"),
    "GRU": (Recurrent(nn.GRU, 4), r"0.layer \(GRU\): a recurrent layer is not taken"),
    "LSTM": (Recurrent(nn.LSTM, 4), r"0.layer \(LSTM\): a recurrent layer is not taken"),
    "circular": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), r"0 \(Conv2d\): padding_mode='circular' is"),
    "RReLU": (nn.RReLU(), r"0 \(RReLU\): aten.(rrelu_with_noise writes to its argument `noise`|empty_like)"),
    "out": (Code(lambda x: torch.neg(x, out=torch.empty(0)) + 1), r"0 \(Code\): aten.neg writes to its argument `out`"),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons_are_those_of_the_layer(name):
    net, why = REASONS[name]
    fast = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ValueError, match=why):
        qa.nn.from_torch(nn.Sequential(net).eval(), X)
    assert torch.backends.mha.get_fastpath_enabled() == fast


class AfterUnevenMeans(nn.Module):
    """A function of means whose windows have 4, 6 or 9 places."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(F.avg_pool2d(torch.where(x >= 0, 1.0, -1.0), 3, 1, 1, count_include_pad=False))


AFTER_MEANS = {
    "a pool of the same size": lambda y: F.max_pool2d(y, 3, 1, 1),
    "a pool along one axis": lambda y: F.max_pool2d(y, (1, 3), 1, (0, 1)),
    "a smaller pool": lambda y: F.max_pool2d(y, 2),
    "the largest": lambda y: F.adaptive_max_pool2d(y, 1),
    "the smallest": lambda y: -F.max_pool2d(-y, 3, 1, 1),
    "rectified": lambda y: F.max_pool2d(F.relu(y - 0.2), 3, 1, 1),
    "signs": lambda y: F.max_pool2d(torch.where(y >= 0.3, 1.0, -1.0), 3, 1, 1),
    "shifted": lambda y: y.roll(1, 2) + y.flip(3),
    "a part": lambda y: y[:, :, 1:, :-2],
    "means": lambda y: F.avg_pool2d(y, 2),
}


@pytest.mark.parametrize("name", AFTER_MEANS)
def test_functions_of_uneven_means(name):
    """The divisor differs along the image, so that nothing may pass it that moves places."""
    torch.manual_seed(0)
    net, x = AfterUnevenMeans(AFTER_MEANS[name]).eval(), torch.randn(3, 4, 6, 8)
    graph = qa.nn.from_torch(net, x[:1])
    for run in (graph, graph.prepared()):
        np.testing.assert_allclose(run(x.numpy()), net(x).numpy(), rtol=1e-6, atol=1e-6)
