"""`from_torch` of code that computes with the batch: right for every batch, or for the example's alone, by name."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_batches import BATCHES, wide
from torch_compared import compare, outputs
from torch_layers import Bin, LearnedStep, LowConv

import quantarray as qa

X = torch.randn(6, 4, 4, 4, generator=torch.Generator().manual_seed(3))
ANY = {"folded", "rows", "tokens", "unfolded", "zeros", "ones", "new", "full", "sliced"}


class Code(nn.Module):
    """A function of images after a quantiser, as the forward of a module."""

    def __init__(self, function):
        super().__init__()
        self.act, self.function = Bin(), function

    def forward(self, x):
        return self.function(self.act(x))


def right_at(net, example, batches=(1, 2, 3, 4, 5, 6)):
    """Assert that a graph is equal for each batch, or says what holds it to that of the example; return it."""
    graph = qa.nn.from_torch(net, X[:example])
    for n in batches:
        if graph.inputs[0].batched or n == example:
            expected = outputs(net(X[:n].clone()))
            got = graph(X[:n].numpy())
            for a, b in zip(got.values() if isinstance(got, dict) else (got,), expected, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            with pytest.raises(ValueError, match=rf"; it takes batches of {example} alone, as module \(Code\): "):
                graph(X[:n].numpy())
    return graph


@pytest.mark.parametrize("example", [1, 3, 4])
@pytest.mark.parametrize("name", BATCHES)
def test_the_length_of_the_batch_in_code(name, example):
    graph = right_at(Code(BATCHES[name]).eval(), example)
    assert graph.inputs[0].batched == (name in ANY)


FOUR = np.int64(4)
OTHERS = {
    "of an argument": lambda q: torch.add(q, q, alpha=q.shape[0]), "padding": lambda q: F.pad(q, (q.shape[0], 0)),
    "slice": lambda q: q[:, : q.shape[0]], "squeezed": lambda q: q.mean((2, 3)).squeeze(),
    "product": lambda q: torch.ones(len(q), len(q)) @ q.flatten(1), "transposed": lambda q: q.transpose(0, 1),
    "gram": lambda q: q.flatten(1) @ q.flatten(1).t(), "where": lambda q: torch.where(q > 0, q * len(q), q),
    "rows out": lambda q: q.view(-1, 4), "constant out": lambda q: (q, torch.ones(q.shape[0], 2)),
    "equal": lambda q: q if q.shape == (2, 4, 4, 4) else -q,
    "through int": lambda q: q * 2 if int(q.shape[0]) > 4 else q,
    "size of all": lambda q: q * (2 if q.numel() > 256 else 3),
    "bytes of all": lambda q: q * (2 if q.nbytes > 1024 else 3), "half": lambda q: q * 2 if len(q) / 2 > 2 else q,
    "shares": lambda q: q * 2 if q.shape[0] / 2 > 2 else q, "float": lambda q: q * 2 if float(q.shape[0]) > 4 else q,
    "negative": lambda q: q * 2 if -q.shape[0] < -4 else q, "power": lambda q: q * 2 if q.shape[0] ** 2 > 16 else q,
    "shift": lambda q: q * 2 if q.shape[0] >> 2 else q, "root": lambda q: q * 2 if math.sqrt(q.shape[0]) > 2 else q,
    "bits": lambda q: q * 2 if q.shape[0].bit_length() > 2 else q, "flag": lambda q: q * 2 if q.shape[0] // 5 else q,
    "parts": lambda q: q * 2 if divmod(q.shape[0], 5)[0] else q, "set": lambda q: q * 2 if q.shape[0] in {5, 6} else q,
    "text": lambda q: q * 2 if f"{q.shape[0]}" in "56" else q, "array": lambda q: q * 2 if q.shape[0] > FOUR else q,
    "first samples": lambda q: q[:5], "last samples": lambda q: q[-5:] * 2, "all samples": lambda q: q[:] * 2,
    "rounds": lambda q: sum((q for _ in range(q.shape[0] // 5)), q),
}  # fmt: skip


@pytest.mark.parametrize("example", [1, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_other_uses_of_the_length_of_the_batch(name, example):
    right_at(Code(OTHERS[name]).eval(), example)


@pytest.mark.parametrize(
    "code", [lambda q: q if q.shape[0] > 0 else -q, lambda q: q.reshape(q.size(0), -1) / q.shape[1]]
)
def test_code_that_holds_for_any_batch_is_not_held_to_one(code):
    assert right_at(Code(code).eval(), 1).inputs[0].batched


def test_code_that_fails_for_some_batches_holds_for_the_example_alone():
    def few(q):
        if int(q.shape[0]) > 4:
            raise RuntimeError("too many")
        return q * 2

    graph = qa.nn.from_torch(Code(few).eval(), X[:1])
    with pytest.raises(ValueError, match=r"batches of 1 alone, as module \(Code\): it fails for a batch of 5"):
        graph(X[:2].numpy())


def test_a_learned_step_whose_gradient_is_scaled_by_the_batch_takes_any():
    net = nn.Sequential(LearnedStep(2, True), LowConv(4, 3, 1)).eval()
    graph = qa.nn.from_torch(net, X[:1])
    assert graph.inputs[0].batched and compare(net, X, graph)


def test_the_reason_names_the_module_and_the_operation():
    net = nn.Sequential(nn.ReLU(), Code(lambda q: q / q.shape[0])).eval()
    graph = qa.nn.from_torch(net, X[:2])
    with pytest.raises(ValueError, match=r"batches of 2 alone, as 1 \(Code\): aten.div takes 3 instead of 2"):
        graph(X.numpy())
    assert "float32 (2, 4, 4, 4)" in repr(graph)


def test_numbers_of_the_input_in_code_are_refused():
    net = Code(lambda q: q * float(q.numpy().mean()))
    with pytest.raises(ValueError, match=r"module \(Code\): it depends on the numbers of the input: .* aten.mul takes"):
        qa.nn.from_torch(net, X[:1])
    with pytest.raises(ValueError, match=r"module \(Code\): it takes random numbers"):
        qa.nn.from_torch(Code(lambda q: q + torch.rand(4)), X[:1])


def _signs_by_numpy(q):
    return torch.from_numpy(np.where(q.numpy() >= 0, 1, -1).astype(np.float32))


EXAMPLES = {
    "zeros": torch.zeros(1, 4, 4, 4),
    "ones": torch.ones(1, 4, 4, 4),
    "positive": torch.rand(1, 4, 4, 4, generator=torch.Generator().manual_seed(0)) + 5,
    "two zeros": torch.zeros(2, 4, 4, 4),
    "bytes": torch.zeros(1, 4, 4, 4, dtype=torch.uint8),
    "bools": torch.zeros(1, 4, 4, 4, dtype=torch.bool),
}


class Plain(nn.Module):
    """A function of the input, as the forward of a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_numpy_computes_is_seen_whatever_the_example(name):
    """Zeros once gave a network that returned the scores of zeros, whatever it was called with."""
    one = Plain(lambda x: _signs_by_numpy(x.float() - 0.5))
    signs, floats = Plain(_signs_by_numpy), Plain(lambda x: x.float())
    between = nn.Sequential(floats, nn.Conv2d(4, 4, 3, bias=False), signs, nn.Flatten(), nn.Linear(16, 3))
    for net in (one, between, Plain(lambda x: x.float() * float(x.float().numpy().sum()))):
        with pytest.raises(ValueError, match="it depends on the numbers of the input"):
            qa.nn.from_torch(net.eval(), EXAMPLES[name])


def test_a_module_that_takes_some_numbers_only_is_tried_on_near_ones():
    def of_positive(x):
        assert x.numpy().min() > 0
        return x * 2

    graph = qa.nn.from_torch(Plain(of_positive), EXAMPLES["positive"])
    assert graph.inputs[0].batched and (graph(X.numpy()) == 2 * X.numpy()).all()


@pytest.mark.parametrize("case", range(12))
def test_random_modules(case):
    net, x, mixes = wide(np.random.default_rng([9, case]))
    graph = qa.nn.from_torch(net, x[:1])
    assert mixes or graph.inputs[0].batched
    compare(net, x if graph.inputs[0].batched else x[:1], graph)
