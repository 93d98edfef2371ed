"""Networks of Brevitas, traced or from their QONNX files, are equal to Brevitas in every code and every argmax."""

import contextlib
import io
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch_compared import compare, plain
from torch_training import images

import quantarray as qa

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import brevitas.nn as qnn
    from brevitas import quant
    from brevitas.export import export_qonnx

QUANTISERS = (qnn.QuantIdentity, qnn.QuantReLU, qnn.QuantSigmoid, qnn.QuantTanh, qnn.QuantHardTanh, qnn.TruncAvgPool2d)
BINARY = {"weight_quant": quant.SignedBinaryWeightPerTensorConst}
TERNARY = {"weight_quant": quant.SignedTernaryWeightPerTensorConst}
SIGN, THREE = quant.SignedBinaryActPerTensorConst, quant.SignedTernaryActPerTensorConst
CHANNELS = {"weight_quant": quant.Int8WeightPerChannelFloat, "weight_bit_width": 4}
FIXED = {"weight_quant": quant.Int8WeightPerTensorFixedPoint, "weight_bit_width": 3}
SHIFTED = {"weight_quant": quant.ShiftedUint8WeightPerChannelFloat, "weight_bit_width": 4}


def conv(inputs, outputs, size=3, **options):
    return qnn.QuantConv2d(inputs, outputs, size, **{"bias": False, "padding": size // 2, **CHANNELS, **options})


class Residual(nn.Module):
    """relu(x + f(x)), both in the steps of one quantiser."""

    def __init__(self, f, bits=4):
        super().__init__()
        self.f, self.shared = f, qnn.QuantIdentity(bit_width=bits, return_quant_tensor=True)
        self.relu = qnn.QuantReLU(bit_width=bits, return_quant_tensor=True)

    def forward(self, x):
        x = self.shared(x)
        return self.relu(x + self.shared(self.f(x)))


class Sum(nn.Module):
    """The sum of two convolutions by `QuantEltwiseAdd`, which quantises both and the sum."""

    def __init__(self):
        super().__init__()
        self.f, self.g, self.add = conv(16, 8), conv(16, 8, 1), qnn.QuantEltwiseAdd(return_quant_tensor=True)

    def forward(self, x):
        return self.add(self.f(x), self.g(x))


class Joined(nn.Module):
    """Two branches side by side, in the steps of one quantiser."""

    def __init__(self):
        super().__init__()
        self.f, self.g, self.shared = conv(16, 8), conv(16, 8, 1), qnn.QuantIdentity(bit_width=4)

    def forward(self, x):
        return torch.cat([self.shared(self.f(x)), self.shared(self.g(x))], 1)


def binary(weights=BINARY, act=SIGN):
    identity = lambda: qnn.QuantIdentity(act_quant=act)  # noqa: E731
    first = [identity(), conv(1, 16, **weights), nn.BatchNorm2d(16), identity(), nn.MaxPool2d(2)]
    second = [conv(16, 32, **weights), nn.BatchNorm2d(32), nn.MaxPool2d(2), identity(), nn.Flatten()]
    return [*first, *second, qnn.QuantLinear(512, 10, bias=False, **weights)]


def of_bits(bits, **options):
    """Return a network of k-bit weights and activations, after 8-bit images."""
    relu = lambda: qnn.QuantReLU(bit_width=bits, return_quant_tensor=True)  # noqa: E731
    options = {"weight_bit_width": max(bits, 2), **options}
    first = [qnn.QuantIdentity(return_quant_tensor=True), conv(1, 16, **options), nn.BatchNorm2d(16), relu()]
    second = [conv(16, 16, bias=True, groups=16, **options), nn.BatchNorm2d(16), relu(), nn.MaxPool2d(2)]
    dense = qnn.QuantLinear(16 * 64, 10, bias=True, **{**CHANNELS, **options})
    return [*first, *second, nn.Flatten(), dense]


def around(*inner, channels=8):
    """Return layers between a first convolution of 16 channels and a last linear layer."""
    first = [qnn.QuantIdentity(), conv(1, 16), nn.BatchNorm2d(16), qnn.QuantReLU(bit_width=4, return_quant_tensor=True)]
    last = [nn.MaxPool2d(2), nn.Flatten(), qnn.QuantLinear(channels * 64, 10, bias=True, **CHANNELS)]
    return [*first, *inner, *last]


NETWORKS = {
    "binary": binary,
    "ternary": lambda: binary(TERNARY, THREE),
    "1 bit": lambda: of_bits(1),
    "2 bits": lambda: of_bits(2),
    "4 bits": lambda: of_bits(4),
    "8 bits": lambda: of_bits(8),
    "fixed point": lambda: of_bits(3, **FIXED),
    "zero points": lambda: of_bits(4, **SHIFTED),
    "zero point of images": lambda: [qnn.QuantIdentity(act_quant=quant.ShiftedUint8ActPerTensorFloat), *of_bits(4)[1:]],
    "residual": lambda: around(conv(16, 8), nn.BatchNorm2d(8), Residual(conv(8, 8))),
    "sum": lambda: around(Sum()),
    "joined": lambda: around(Joined(), channels=16),
    "truncated": lambda: around(qnn.TruncAvgPool2d(2, bit_width=4), nn.Upsample(scale_factor=2), channels=16),
    "sigmoid": lambda: around(conv(16, 8), nn.BatchNorm2d(8), qnn.QuantSigmoid(bit_width=4)),
    "tanh": lambda: around(conv(16, 8), nn.BatchNorm2d(8), qnn.QuantTanh(bit_width=4)),
    "hardtanh": lambda: around(conv(16, 8), qnn.QuantHardTanh(min_val=-1.0, max_val=1.0, bit_width=4)),
    "8-bit bias": lambda: around(
        conv(16, 8, bias=True, bias_quant=quant.Int8Bias, return_quant_tensor=True), qnn.QuantReLU(bit_width=4)
    ),
}


def trained(layers, steps=12):
    """Return a network after some steps of training, half of its gammas negative, in evaluation mode."""
    torch.manual_seed(0)
    net = nn.Sequential(*layers())
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight[::2] *= -1
    optimizer = torch.optim.Adam(net.train().parameters(), 1e-2)
    for step in range(steps):
        x, labels = images(32, step + 1)
        scores = plain_scores(net(x))
        optimizer.zero_grad()
        nn.functional.cross_entropy(2 * scores / (scores.detach().std() + 1e-3), labels).backward()
        optimizer.step()
    return net.eval()


def plain_scores(out):
    return getattr(out, "value", out)


def same_classes(got, expected):
    """Assert that each argmax is equal; integers that are equal are two different floats for PyTorch."""
    chosen = np.take_along_axis(expected, got.argmax(axis=1)[:, None], 1)[:, 0]
    assert (chosen >= expected.max(axis=1) - 1e-6 * np.abs(expected).max()).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_traced_networks_are_equal(name):
    net, (x, _) = trained(NETWORKS[name]), images(100, 10**6)
    graph = qa.nn.from_torch(net, x[:1])
    quantisers = {path for path, part in net.named_modules() if type(part) in QUANTISERS}
    compared = compare(net, x, graph, QUANTISERS)
    assert set(compared) == {path for path in quantisers if not path.endswith("shared")}  # which run twice in a call
    with torch.no_grad():
        same_classes(graph(x.numpy()), plain(net(x)).numpy())
    assert not [row for row in graph.summary().numpy if row.op in ("Conv", "MatMul")]


class Watched(nn.Module):
    """A network that returns the results of its quantisers beside its scores."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        results = []
        for layer in self.net:
            x = layer(x)
            if isinstance(layer, (*QUANTISERS, Residual, Sum)):
                results.append(plain_scores(x))
        return (plain_scores(x), *results)


@pytest.mark.parametrize("name", ["binary", "4 bits", "zero points", "residual"])
def test_qonnx_files_of_brevitas_are_equal(name, tmp_path):
    net, (x, _) = Watched(trained(NETWORKS[name])).eval(), images(100, 10**6)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_qonnx(net, x[:1], str(tmp_path / "net.onnx"))
    graph = qa.nn.load(tmp_path / "net.onnx")
    got = list(graph(x.numpy()).values())
    with torch.no_grad():
        expected = [y.numpy() for y in net(x)]
    alike = np.ones(len(x), bool)
    for a, b in zip(got[1:], expected[1:], strict=True):
        step = np.diff(np.unique(b)).min()
        differ = np.rint((a - b) / step)[alike].reshape(alike.sum(), -1)
        assert np.abs(differ).max() <= 1 and (differ != 0).mean() < 1e-5  # at a boundary, by the order of float32 sums
        alike[alike] = (differ == 0).all(axis=1)
    assert alike.mean() > 0.9
    np.testing.assert_allclose(got[0][alike], expected[0][alike], rtol=2e-5, atol=2e-5 * np.abs(expected[0]).max())
    same_classes(got[0][alike], expected[0][alike])
    assert not [row for row in graph.summary().numpy if row.op in ("Conv", "MatMul")]


def test_integers_of_a_quant_tensor_are_equal():
    """A network that ends in a quantiser returns its value: integers times a scale, both of Brevitas."""
    net, (x, _) = trained(lambda: of_bits(4))[:7], images(100, 7)
    graph = qa.nn.from_torch(net, x[:1])
    with torch.no_grad():
        out = net(x)
    assert [v.name for v in graph.outputs] == ["output"]
    whole = np.rint(graph(x.numpy()) / out.scale.numpy())
    np.testing.assert_array_equal(whole, out.int(float_datatype=True).numpy())


def test_quantisers_are_labelled_by_their_layer():
    graph = qa.nn.from_torch(nn.Sequential(qnn.QuantIdentity(), conv(1, 4)), images(1, 0)[0])
    sources = dict.fromkeys(row.source for row in graph.summary().rows)
    assert list(sources)[:2] == ["0 (QuantIdentity)", "1 (QuantConv2d)"]
