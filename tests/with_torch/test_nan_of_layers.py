"""NaN and infinity: a quantiser of a NaN raises with the first index in every form of a network; floats keep NaN."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import quantarray as qa

T = qa.torch
ACTIVATIONS = {
    "Sign": T.Sign,
    "DoReFa": lambda: T.DoReFa(2, activations=True),
    "PACT": lambda: T.PACT(2),
    "LSQ": lambda: T.LSQ(2, step=0.4),
    "LSQ unsigned": lambda: T.LSQ(4, False, step=0.2),
    "LSQ unfitted": lambda: T.LSQ(2),
    "ABCActivations": lambda: T.ABCActivations(2),
    "LQ": lambda: T.LQ(2),
}
WEIGHTS = {
    "Sign": lambda: T.Sign(scale=True),
    "Ternary": T.Ternary,
    "ABC": lambda: T.ABC(2),
    "DoReFa 1": lambda: T.DoReFa(1),
    "DoReFa": lambda: T.DoReFa(2),
    "LSQ": lambda: T.LSQ(2, step=0.4),
    "LSQ unfitted": lambda: T.LSQ(2),
    "LQ": lambda: T.LQ(2, weights=True),
    "LQ center": lambda: T.LQ(2, True, weights=True),
}


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_one(shape, value, seed, dtype=torch.float32):
    """Return random numbers, one of them `value`, and its index."""
    random = np.random.default_rng(seed)
    x, at = rand(*shape, seed=seed), tuple(int(random.integers(n)) for n in shape)
    x[at] = value
    return x.to(dtype), at


def text(at):
    return str(at).replace("(", r"\(").replace(")", r"\)")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", [*ACTIVATIONS, *(f"{n} weights" for n in WEIGHTS)])
def test_every_scheme_refuses_a_nan_and_stays_as_it_was(name, train, dtype):
    make = WEIGHTS[name.removesuffix(" weights")] if name.endswith(" weights") else ACTIVATIONS[name]
    for seed in range(3):
        module = make()
        if "unfitted" not in name:
            module(rand(4, 5))
        module.train(train)
        x, at = with_one((4, 5), torch.nan, seed, dtype)
        state = copy.deepcopy(module.state_dict())
        for call in (module, module.packed):
            with pytest.raises(ValueError, match=f"quantize: x must hold no NaN, got one at {text(at)}"):
                call(x)
        assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_infinities_are_refused_where_a_scheme_is_fitted_and_saturate_elsewhere(value):
    x, at = with_one((4, 5), value, 1)
    for make in (lambda: T.LQ(2), lambda: T.LQ(2, weights=True), lambda: T.LSQ(2), T.Ternary, lambda: T.ABC(2)):
        module = make()
        with pytest.raises(ValueError, match=f"must be finite, got {value} at {text(at)}"):
            module(x)
        if isinstance(module, (T.LQ, T.LSQ)):
            assert not module.started
    for make in ACTIVATIONS.values():
        module = make()
        module(rand(4, 5))
        module.eval()
        assert np.allclose(module(x).detach(), module.packed(x).dequantize(), atol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_layers_refuse_a_nan_in_inputs_and_in_weights(activations, train, packed):
    linear = T.QuantLinear(5, 3, weights=T.DoReFa(2), activations=ACTIVATIONS[activations](), packed=packed)
    conv = T.QuantConv2d(2, 3, 3, weights=T.DoReFa(2), activations=ACTIVATIONS[activations](), packed=packed)
    for layer, shape in ((linear, (4, 5)), (conv, (2, 2, 5, 5))):
        layer(rand(*shape))
        layer.train(train)
        x, at = with_one(shape, torch.nan, 3)
        with pytest.raises(ValueError, match=f"x must hold no NaN, got one at {text(at)}"):
            layer(x)
        with torch.no_grad():
            layer.weight.view(-1)[7] = torch.nan
        with pytest.raises(ValueError, match="x must hold no NaN, got one at"):
            layer(rand(*shape))


def test_float_layers_keep_nan():
    x, (row, _) = with_one((4, 5), torch.nan, 0)
    y = T.QuantLinear(5, 3, weights=T.DoReFa(2))(x)
    assert y[row].isnan().all() and y.isnan().sum() == 3


@pytest.mark.parametrize("step", [0.0, -0.1, torch.nan, torch.inf])
def test_a_step_that_is_not_positive_is_an_error_on_every_path(step):
    layer = T.QuantLinear(5, 3, weights=T.LSQ(3), activations=T.LSQ(2))
    layer(rand(4, 5))
    for scheme in (layer.activations, layer.weights):
        broken = copy.deepcopy(layer)
        with torch.no_grad():
            (broken.activations if scheme is layer.activations else broken.weights).step.fill_(step)
        words = "LSQ: step must be a positive float32, got .*; train it at a lower learning rate"
        for packed in (False, True):
            broken.packed = packed
            for train in (False, True):
                with pytest.raises(ValueError, match=words):
                    broken.train(train)(rand(4, 5))
            with pytest.raises(ValueError, match="step must be a positive float32"):
                qa.nn.from_torch(broken.eval(), rand(1, 5))
    with pytest.raises(ValueError, match="LSQ: step must be a positive float32"):
        T.LSQ(2, step=step)


@pytest.mark.parametrize("name", ["shifts", "betas"])
def test_trained_numbers_of_abc_that_are_nan_are_an_error(name):
    module = T.ABCActivations(2)
    with torch.no_grad():
        getattr(module, name)[1] = torch.nan
    with pytest.raises(ValueError, match=f"ABCActivations: {name}"):
        module(rand(3))


BEFORE = {
    "nothing": lambda: [],
    "batch norm": lambda: [nn.BatchNorm2d(4)],
    "relu": lambda: [nn.ReLU()],
    "pool": lambda: [nn.MaxPool2d(2)],
    "convolution": lambda: [nn.Conv2d(4, 4, 3, padding=1)],
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("activations", ["Sign", "DoReFa", "LSQ", "ABCActivations", "LQ"])
def test_networks_refuse_a_nan_as_their_module_does(activations, before):
    layer = T.QuantConv2d(4, 4, 3, weights=T.DoReFa(2), activations=ACTIVATIONS[activations]())
    module = nn.Sequential(*BEFORE[before](), layer)
    x = rand(3, 4, 6, 6)
    module(x)
    module.eval()
    network = qa.nn.from_torch(module, x)
    prepared = network.prepared()
    for _ in range(3):
        prepared(x.numpy())
    for seed in range(2):
        wrong, at = with_one(x.shape, torch.nan, seed)
        with pytest.raises(ValueError, match="NaN"):
            module(wrong)
        for net in (network, prepared):
            with pytest.raises(ValueError, match=f"the input .* has a NaN at {text(at)}: .* got one at"):
                net(wrong.numpy())
        for value in (torch.inf, -torch.inf):
            one, _ = with_one(x.shape, value, seed)
            assert np.array_equal(network(one.numpy()), prepared(one.numpy()))
            if before != "convolution":  # infinity times weights of both signs is NaN
                assert np.allclose(network(one.numpy()), module(one).detach(), atol=1e-4)
