"""PyTorch's quantised modules (static int8) become integer layers; every stored code is PyTorch's."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization as tq
from torch_compared import compare_stored

import quantarray as qa
from quantarray.ops.words.code_tables import scaled_sum

# Without AVX-512 PyTorch's oneDNN adds pairs of products in 16 bits, which saturate, and its averages round halves of
# the distance from the zero point to even; with it, halves of the code. FBGEMM saturates, too, where codes pass 127, as
# those of a sigmoid do: 2,702 of 16,200 codes of such a layer were others than exact sums give, up to 8 steps away
AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
ENGINES = [e for e in ("x86", "fbgemm", *["onednn"] * AVX512) if e in torch.backends.quantized.supported_engines]


class Quantised(nn.Module):
    """Layers between the stubs of static quantisation."""

    def __init__(self, *layers):
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.dequant(self.layers(self.quant(x)))


class Residual(nn.Module):
    """x + f(x), relu(x + f(x)) or x * f(x), as modules write it that are to be quantised."""

    def __init__(self, f, how):
        super().__init__()
        self.f, self.how, self.both = f, how, nn.quantized.FloatFunctional()

    def forward(self, x):
        return getattr(self.both, self.how)(x, self.f(x))


class Joined(nn.Module):
    """Two branches side by side, in steps of their own."""

    def __init__(self, f, g):
        super().__init__()
        self.f, self.g, self.both = f, g, nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.both.cat([self.f(x), self.g(x)], 1)


class Scaled(nn.Module):
    """x * 1.5 + 0.25, by scalars."""

    def __init__(self):
        super().__init__()
        self.times, self.plus = nn.quantized.FloatFunctional(), nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.plus.add_scalar(self.times.mul_scalar(x, 1.5), 0.25)


class Watched(nn.Module):
    """A module that returns all its stored tensors as floats, by path."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.seen = inner, {}
        for path, part in inner.named_modules():
            part.register_forward_hook(lambda part, args, out, path=path: self.seen.update({path: out}))

    def forward(self, x):
        self.seen.clear()
        out = self.inner(x)
        stored = {path: y.dequantize() for path, y in self.seen.items() if y.is_quantized}
        return {"out": out, **stored}


def usual_qconfig(engine):
    """Return the engine's settings; without AVX-512, with weights of 7 bits, whose products do not saturate."""
    usual = tq.get_default_qconfig(engine)
    if AVX512 or engine == "qnnpack":
        return usual
    return tq.QConfig(usual.activation, tq.default_per_channel_weight_observer.with_args(quant_min=-64, quant_max=63))


def converted(net, shape, engine="x86", fuse=(), **settings):
    """Quantise a module as PyTorch's guide does: fuse, observe two batches, convert."""
    torch.manual_seed(5)
    torch.backends.quantized.engine = engine
    for part in net.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
            nn.init.uniform_(part.running_var, 0.5, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = net.eval()
        net.qconfig = settings.get("qconfig") or usual_qconfig(engine)
        if fuse:
            tq.fuse_modules(net, [list(f) for f in fuse], inplace=True)
        prepared = tq.prepare(net)
        for _ in range(2):
            prepared(torch.randn(8, *shape))
        return tq.convert(prepared)


def check(net, shape, count=6):
    """Assert that all stored codes are equal; return the graph."""
    x = torch.randn(count, *shape, generator=torch.Generator().manual_seed(3)) * 1.3
    watched = Watched(net)
    graph = qa.nn.from_torch(watched, x[:1])
    got = graph(x.numpy())
    with torch.no_grad():
        expected = watched(x)
    assert set(got) == set(expected)
    for path, y in expected.items():
        np.testing.assert_array_equal(got[path], y.numpy(), err_msg=path)
    return graph


def convolutions():
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, 2, 1, groups=2), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1, groups=32)]
    return Quantised(*first, *second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 20), nn.ReLU(),
                     nn.Linear(20, 10))  # fmt: skip


FUSED = [("layers.0", "layers.1", "layers.2"), ("layers.5", "layers.6"), ("layers.9", "layers.10")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fuse", [FUSED, []], ids=["fused", "apart"])
def test_convolutions_and_linear_layers(engine, fuse):
    usual = tq.get_default_qconfig(engine)  # no sum saturates; of 7-bit weights one code is at a boundary
    graph = check(converted(convolutions(), (3, 16, 16), engine, fuse, qconfig=usual), (3, 16, 16))
    assert not [row for row in graph.summary().numpy if row.op in ("Conv", "MatMul")]


@pytest.mark.skipif("qnnpack" not in torch.backends.quantized.supported_engines, reason="an engine of ARM builds")
def test_qnnpack_rounds_biases():
    """Codes differ by one level at most, where PyTorch's value is at a boundary."""
    net = converted(Quantised(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3)), (3, 16, 16), "qnnpack")
    x = torch.randn(8, 3, 16, 16)
    step, got = net.layers[2].scale, qa.nn.from_torch(net, x[:1])(x.numpy())
    differ = np.rint((got - net(x).numpy()) / step)
    assert np.abs(differ).max() <= 1 and (differ != 0).mean() < 1e-4


NETWORKS = {
    "add": Residual(nn.Conv2d(8, 8, 3, padding=1), "add"),
    "add, relu": Residual(nn.Conv2d(8, 8, 3, padding=1), "add_relu"),
    "mul": Residual(nn.Conv2d(8, 8, 1), "mul"),
    "cat": Joined(nn.Conv2d(8, 8, 1), nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU())),
    "scalars": Scaled(),
    "hardswish": nn.Hardswish(),
    "sigmoid": nn.Sigmoid(),
    "leaky relu": nn.LeakyReLU(0.2),
    "elu": nn.ELU(),
    "relu6": nn.ReLU6(),
    "hardtanh": nn.Hardtanh(-0.7, 0.6),
    "average": nn.AvgPool2d(2),
    "average, padded": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "max, overlapping": nn.MaxPool2d(3, 2, 1),
    "nearest": nn.Upsample(scale_factor=2),
    "shuffle": nn.PixelShuffle(2),
    "zeros around": nn.ZeroPad2d(1),
    "numbers around": nn.ConstantPad2d((1, 2, 0, 1), 0.7),
    "mirrored": nn.ReflectionPad2d((1, 2, 2, 1)),
    "bilinear": nn.Upsample(scale_factor=2, mode="bilinear"),
    "nearest, 1.5 times": nn.Upsample(scale_factor=1.5),
}


class Moved(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


MOVED = {
    "joined": lambda q: torch.cat([q, q.flip(1)], 1),
    "picked": lambda q: q[:, [3, 1, 1, 7, 0]],
    "stacked": lambda q: torch.stack([q, q], 2).flatten(1, 2),
    "repeated": lambda q: q.repeat(1, 1, 2, 1),
    "unbound": lambda q: torch.cat(q[:, :, None].unbind(3), 2),
}


@pytest.mark.parametrize("name", MOVED)
def test_moved_codes(name):
    layers = nn.Conv2d(3, 8, 3), Moved(MOVED[name])
    channels = layers[1](torch.zeros(1, 8, 4, 4)).shape[1]
    check(converted(Quantised(*layers, nn.Conv2d(channels, 4, 3)), (3, 12, 12)), (3, 12, 12))


TRANSPOSED = {
    "1d": (nn.ConvTranspose1d(6, 8, 3, 2), (6, 7)),
    "2d": (nn.ConvTranspose2d(6, 8, 3, 2, 1, 1), (6, 7, 5)),
    "2d, in groups": (nn.ConvTranspose2d(6, 8, (3, 2), 2, groups=2), (6, 7, 5)),
    "3d": (nn.ConvTranspose3d(6, 8, 3, 2, dilation=2), (6, 3, 4, 3)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions(name):
    layer, shape = TRANSPOSED[name]
    per_tensor = tq.QConfig(tq.HistogramObserver.with_args(reduce_range=True), tq.default_weight_observer)
    net = converted(Quantised(layer, nn.ReLU()), shape, "fbgemm", qconfig=per_tensor)
    graph = check(net, shape)
    assert any(n.op.startswith("conv_transpose") for n in graph.nodes)
    torch.backends.quantized.engine = "x86"
    if not any(layer.output_padding):
        with pytest.raises(ValueError, match=r"oneDNN gives other sums .*engine = 'fbgemm' before"):
            qa.nn.from_torch(net, torch.randn(1, *shape))


@pytest.mark.parametrize("name", NETWORKS)
def test_functions_of_stored_codes(name):
    if name.startswith("average") and not AVX512:
        pytest.skip("PyTorch rounds halves in another direction on this CPU")
    net = Quantised(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), NETWORKS[name])
    check(converted(net, (3, 12, 12)), (3, 12, 12))


@pytest.mark.parametrize("how", ["add_relu", "add"])
def test_a_residual_network(how):
    """Each stored tensor, from PyTorch's codes before it: sums with a zero point, too."""
    blocks = [Residual(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)), how) for _ in "ab"]
    net = Quantised(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1),
                    nn.Flatten(), nn.Linear(16, 10))  # fmt: skip
    fuse = [FUSED[0], *((f"layers.{i}.f.0", f"layers.{i}.f.1") for i in (3, 4))]
    net = converted(net, (3, 16, 16), fuse=fuse)
    x = torch.randn(6, 3, 16, 16)
    differ = compare_stored(net, x, qa.nn.from_torch(net, x[:1]))
    layers = {"layers.0", "layers.3.f.0", "layers.3", "layers.4.f.0", "layers.4", "layers.5", "layers.7"}
    assert {"quant", *layers} <= set(differ) and sum(differ.values()) <= 2


@pytest.mark.parametrize("how", ["add", "add_relu", "mul"])
def test_a_residual_network_is_one_compiled_call(how, tmp_path):
    block = Residual(nn.Sequential(nn.Conv2d(24, 40, 1), nn.LeakyReLU(0.2), nn.Conv2d(40, 24, 3, 1, 1)), how)
    layers = nn.Conv2d(3, 24, 3, 2), nn.Sigmoid(), block, nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    net = converted(Quantised(*layers, nn.Linear(24, 10)), (3, 20, 20))
    x = torch.randn(5, 3, 20, 20)
    graph, expected = qa.nn.from_torch(net, x[:1]), net(x).numpy()
    graph.save(tmp_path / "net.qa")
    graph.save(tmp_path / "net.onnx")
    for other in (graph, qa.nn.load(tmp_path / "net.qa"), qa.nn.load(tmp_path / "net.onnx")):
        np.testing.assert_array_equal(other(x.numpy()), expected)
    prepared = graph.prepared()
    for _ in range(3):
        np.testing.assert_array_equal(prepared(x.numpy()), expected)
    (part,) = prepared.plan(x.numpy())
    assert part.kernels is not None and part.kernels.count("bits.look_up") == 3
    assert [len(n.inputs) for n in graph.nodes if n.op == "look_up"] == [2, 2, 3 if how == "mul" else 4]


@pytest.mark.parametrize("clip", [nn.ReLU6(), nn.Hardtanh(-0.3, 0.4), nn.ReLU()])
def test_products_clip_their_codes(clip):
    """FX leaves ReLU6 apart from its convolution, where nothing else reads the codes between the two."""
    net = converted(Quantised(nn.Conv2d(3, 24, 3), clip, nn.Conv2d(24, 16, 1)), (3, 12, 12))
    x = torch.randn(5, 3, 12, 12)
    graph = qa.nn.from_torch(net, x[:1])
    assert [n.op for n in graph.nodes if n.op in ("conv2d", "look_up", "threshold")] == ["conv2d"] * 2
    np.testing.assert_array_equal(graph(x.numpy()), net(x).numpy())
    check(net, (3, 12, 12))  # where all codes are read


def test_codes_that_a_relu_has_clipped_are_clipped_again():
    layers = nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Hardtanh(-0.3, 0.4), nn.Conv2d(24, 16, 1)
    net = converted(Quantised(*layers), (3, 12, 12), fuse=[("layers.0", "layers.1")])
    x = torch.randn(5, 3, 12, 12)
    graph = qa.nn.from_torch(net, x[:1])
    assert not any(n.op == "look_up" for n in graph.nodes)
    np.testing.assert_array_equal(graph(x.numpy()), net(x).numpy())


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_all_pairs_of_codes(seed):
    """Sums computed by scales, for all pairs of codes of random scales and zero points."""
    rng = np.random.default_rng(seed)
    scale, zero = 10 ** rng.uniform(-3, -1, 3), rng.integers(0, 256, 3)
    every = torch.arange(65536, dtype=torch.int32)
    codes = ((every % 256).to(torch.uint8), (every // 256).to(torch.uint8))
    a, b = (
        torch._make_per_tensor_quantized_tensor(c, float(s), int(z))
        for c, s, z in zip(codes, scale[:2], zero[:2], strict=True)
    )
    for relu in (False, True):
        add = torch.ops.quantized.add_relu if relu else torch.ops.quantized.add
        expected = add(a, b, float(scale[2]), int(zero[2])).int_repr().numpy()
        single = np.float32(scale)
        offsets = -zero[:2].astype(np.float32) * single[:2]
        ends = zero[2] if relu else 0, 255
        f = np.float32([single[0], offsets[0], single[1], offsets[1], np.float32(1) / single[2], zero[2], *ends])
        np.testing.assert_array_equal(scaled_sum(f, (8, 8)), expected)


def test_one_axis():
    net = Quantised(
        nn.Conv1d(4, 16, 5, 2, 2), nn.ReLU(), nn.Conv1d(16, 8, 3, dilation=2), nn.Flatten(), nn.Linear(96, 7)
    )
    check(converted(net, (4, 32), fuse=[("layers.0", "layers.1")]), (4, 32))


def test_weights_with_zero_points_and_one_scale():
    weight = tq.MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_affine)
    qconfig = tq.QConfig(activation=tq.HistogramObserver.with_args(reduce_range=True), weight=weight)
    net = Quantised(nn.Conv2d(3, 16, 3, bias=False), nn.Flatten(), nn.Linear(16 * 36, 10))
    check(converted(net, (3, 8, 8), "fbgemm", qconfig=qconfig), (3, 8, 8))


def test_modules_of_fx():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        torch.backends.quantized.engine = "x86"
        net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10))
        prepared = prepare_fx(net.eval(), tq.get_default_qconfig_mapping("x86"), torch.randn(1, 3, 8, 8))
        prepared(torch.randn(8, 3, 8, 8))
        net = convert_fx(prepared)
    x = torch.randn(6, 3, 8, 8)
    np.testing.assert_array_equal(qa.nn.from_torch(net, x[:1])(x.numpy()), net(x).detach().numpy())


def test_a_saved_graph_is_equal(tmp_path):
    net = converted(convolutions(), (3, 16, 16), fuse=FUSED)
    x = torch.randn(4, 3, 16, 16)
    graph = qa.nn.from_torch(net, x[:1])
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x.numpy()), net(x).numpy())


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.InstanceNorm2d(8, affine=True), "it normalises by statistics of its input"),
        (nn.GroupNorm(1, 8), "it normalises by statistics of its input"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(layer, why):
    per_tensor = tq.QConfig(tq.HistogramObserver.with_args(reduce_range=True), tq.default_weight_observer)
    net = converted(Quantised(nn.Conv2d(3, 8, 3), layer), (3, 8, 8), "fbgemm", qconfig=per_tensor)
    with pytest.raises(ValueError, match=rf"from_torch: 1 parts of the module cannot be taken:\n  layers.1 .*: {why}"):
        qa.nn.from_torch(net, torch.randn(1, 3, 8, 8))


def test_dynamic_quantisation_is_refused_by_name():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = tq.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear}, torch.qint8)
    with pytest.raises(ValueError, match=r"0 \(Linear\): its scale depends on the numbers of the input"):
        qa.nn.from_torch(net, torch.randn(1, 8))
