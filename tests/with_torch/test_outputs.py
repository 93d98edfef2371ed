"""`from_torch` of networks that end in a quantiser or a function of codes, alone or beside other outputs."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_batches import CODES, FORMS, Ends
from torch_compared import outputs
from torch_layers import Bin, Clipped, Faked, Levels, LowConv, LowConv1d, LowConv3d, ThreeLevels

import quantarray as qa

X = torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(1))


def equal(net, x=X, path=None):
    """Assert that a graph, prepared and saved too, gives the outputs of a module for a batch; return it."""
    graph = qa.nn.from_torch(net.eval(), x[:1])
    with torch.no_grad():
        expected = outputs(net(x.clone()))
    runs = [graph, graph.prepared()]
    if path is not None:
        graph.save(path)
        runs.append(qa.nn.load(path))
    for run in runs:
        got = run(x.numpy())
        got = list(got.values()) if isinstance(got, dict) else [got]
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return graph


class End(nn.Module):
    def __init__(self, function, net=None):
        super().__init__()
        self.net, self.function = net or nn.Identity(), function

    def forward(self, x):
        return self.function(self.net(x))


QUANTISED = {
    "where": lambda x: torch.where(x >= 0, 1.0, -1.0), "turns": lambda x: torch.where(x.abs() > 1, 1.0, -1.0),
    "uneven": lambda x: torch.where(x > 1, 2.5, torch.where(x > -1, 0.3, -1.7)), "bool": lambda x: x > 0.25,
    "int": lambda x: (x > 0.25).int(), "long": lambda x: (x > 0.25).long(), "bytes": lambda x: (x > 0.25).byte(),
    "double": lambda x: torch.where(x >= 0, 1.0, -1.0).double(),
    "8 bits": lambda x: (x.clamp(-1, 1) * 127).round() / 127,
    "sin of 8 bits": lambda x: ((x.clamp(-1, 1) * 127).round() / 127).sin(), "pair": lambda x: (x > 0, x * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("place", ["input", "product", "batch norm"])
def test_a_quantiser_as_an_output(name, place, tmp_path):
    torch.manual_seed(4)
    parts = {"input": [], "product": [Bin(), LowConv(4, 5, 3)], "batch norm": [nn.Conv2d(4, 5, 1), nn.BatchNorm2d(5)]}
    equal(End(QUANTISED[name], nn.Sequential(*parts[place])), path=tmp_path / "net.qa")


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("act", [Bin, Levels, ThreeLevels, Faked, lambda: Clipped(3)])
def test_a_function_of_codes_as_an_output(name, act):
    equal(End(CODES[name], act()))
    equal(End(CODES[name], nn.Sequential(act(), LowConv(4, 3, 3, bias=False), act())))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("act", [Bin, Levels])
def test_several_outputs(form, act, tmp_path):
    graph = equal(Ends(nn.Sequential(act(), LowConv(4, 3, 3)), act(), form, "gelu"), path=tmp_path / "net.qa")
    assert len(graph.outputs) == len({v.name for v in graph.outputs})


def test_a_function_without_a_form_in_numpy_is_refused_by_name():
    with pytest.raises(ValueError, match=r"module \(End\): aten.sin has no form in NumPy here, and no quantiser that"):
        qa.nn.from_torch(End(torch.sin), X[:1])


# Pools of one and three axes


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool"])
@pytest.mark.parametrize("place", ["floats", "codes", "before a quantiser"])
def test_pools(axes, kind, place):
    x = torch.randn(3, 4, *[6] * axes, generator=torch.Generator().manual_seed(axes))
    conv = (LowConv1d, LowConv, LowConv3d)[axes - 1]
    of_window = [{}, {"stride": 2, "padding": 1}, {"stride": 2, "ceil_mode": True}]
    adaptive = "Adaptive" in kind
    for options in [{"output_size": n} for n in (1, 3)] if adaptive else [{"kernel_size": 3, **o} for o in of_window]:
        pool = getattr(nn, f"{kind}{axes}d")(**options)
        parts = {"floats": [pool], "codes": [Bin(), pool], "before a quantiser": [Bin(), conv(4, 4, 1), pool, Bin()]}
        assert equal(nn.Sequential(*parts[place]), x).inputs[0].batched


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max_pool", "adaptive_max_pool"])
def test_indices_of_a_pool_are_refused_where_an_output_needs_them(axes, kind):
    x = torch.randn(1, 2, *[4] * axes)
    pool = getattr(nn.functional, f"{kind}{axes}d")
    equal(End(lambda x: pool(x, 2, return_indices=True)[0]), x)
    for code in (lambda x: pool(x, 2, return_indices=True), lambda x: pool(x, 2, return_indices=True)[1] + 1.0):
        with pytest.raises(ValueError, match=r"module \(End\): the indices of a max pool are not taken"):
            qa.nn.from_torch(End(code), x)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_of_one_and_three_axes(axes):
    x = torch.randn(3, 4, *[6] * axes, generator=torch.Generator().manual_seed(axes))
    conv, pool = (LowConv1d, LowConv, LowConv3d)[axes - 1], getattr(nn, f"MaxPool{axes}d")
    graph = equal(nn.Sequential(Bin(), conv(4, 8, 3, padding=1), pool(2), Levels(), conv(8, 3, 3, groups=1)), x)
    assert sum(row.op.startswith(f"conv{axes}d") for row in graph.summary().rows) == 2


# Messages


@pytest.mark.parametrize("compiled", [torch.jit.script, lambda part: torch.jit.trace(part, X[:1])])
def test_compiled_modules_are_refused_by_name(compiled):
    for net, path in ((compiled(nn.ReLU()), "the module"), (nn.Sequential(nn.ReLU(), compiled(nn.ReLU())), "1")):
        with pytest.raises(TypeError, match=rf"from_torch: {path} is a \w+Module of torch.jit, .* compiled from"):
            qa.nn.from_torch(net, X[:1])


@pytest.mark.parametrize(
    "net",
    [End(lambda x: nn.functional.pad(x, (1, 1, 1, 1), mode="circular")), nn.CircularPad2d(1)],
    ids=["function", "layer"],
)
def test_circular_padding_is_refused_by_name(net):
    with pytest.raises(ValueError, match=r"0 \(\w+\): F.pad with mode='circular' is not taken; pad by torch.cat"):
        qa.nn.from_torch(nn.Sequential(net), X[:1])


def test_tensors_as_inputs(tmp_path):
    """Other dtypes whose values float32 has are widened; a gradient is refused with the fix."""
    net = nn.Sequential(Bin(), nn.Flatten(), nn.Linear(144, 3)).eval()
    graph = qa.nn.from_torch(net, X[:1])
    graph.save(tmp_path / "net.onnx")
    loaded = qa.nn.load(tmp_path / "net.onnx")
    for run in (graph, graph.prepared(), loaded, loaded.prepared(), graph.predict):
        for x in (X.bfloat16(), X.half(), X[:, :, ::2, ::2].repeat(1, 1, 2, 2)):
            np.testing.assert_array_equal(run(x), run(x.float().numpy()))
        with pytest.raises(TypeError, match=r"input requires a gradient, .* pass input.detach\(\)"):
            run(X.clone().requires_grad_())
        with pytest.raises(qa.DeviceError, match="input is on a device that DLPack does not know"):
            run(X.to("meta"))


def test_tensors_as_inputs_of_layers_in_a_row():
    layers = qa.nn.Sequential([qa.nn.Dense(qa.encode(np.ones((2, 64), int), values=(-1, 1)))])
    for run in (layers, layers.prepared(), layers.predict):
        np.testing.assert_array_equal(run(torch.ones(3, 64, dtype=torch.int8)), np.full((3, 2), 64))
        with pytest.raises(TypeError, match=r"requires a gradient, .* pass \w+.detach\(\)"):
            run(torch.ones(3, 64, requires_grad=True))


def test_a_traced_call_is_not_taken_for_one_of_a_gpu():
    class Quantise(nn.Module):
        def forward(self, x):
            return qa.quantize(x, qa.Sign())

    with pytest.raises((TypeError, ValueError), match="quantize: x must be an array"):
        torch.fx.symbolic_trace(Quantise())
