"""Python calls of packing and restoring saved tensors: few, and as many for thousands of tensors as for a hundred."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa


class Products(nn.Module):
    """Products and ReLUs, one after the other, in one module."""

    def __init__(self, count):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(64, 64) / 8 for _ in range(count))

    def forward(self, x):
        for weight in self.weights:
            x = F.linear(x, weight).relu()
        return x


class Tangents(nn.Module):
    """Functions of which each saves one tensor, which is rounded."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        for _ in range(self.count):
            x = x.tanh()
        return x


def calls(function):
    """Count the calls of Python's functions and of C's in a function."""
    total = 0

    def count(frame, event, arg):
        nonlocal total
        total += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return total


def step(model, x, context=None):
    """A forward and a backward pass."""
    if context is None:
        y = model(x)
    else:
        with context:
            y = model(x)
    y.sum().backward()


def calls_added(model, context):
    x = torch.randn(32, 64).requires_grad_() * 1
    for _ in range(2):
        step(model, x.detach().requires_grad_() * 1, context)
    return calls(lambda: step(model, x.detach().requires_grad_() * 1, context)) - calls(
        lambda: step(model, x.detach().requires_grad_() * 1)
    )


# By model: the tensors that autograd saves in each of its rounds
MODELS = {"products": (Products, 3), "tangents": (Tangents, 1)}


@pytest.mark.parametrize("name", MODELS)
def test_calls_of_a_saved_tensor(name):
    """At most 40 a tensor, packed and restored, and not more for many tensors than for few."""
    make, saved = MODELS[name]
    context = qa.torch.compressed_activations(2, least=1)
    rates = [calls_added(make(count), context) / (count * saved) for count in (100, 2000)]
    assert context.report.ratio > 3
    assert max(rates) <= 40 and abs(rates[1] - rates[0]) < 2, rates


def test_a_level_that_packs_nothing_calls_nothing():
    context = qa.torch.compressed_activations(level="L0")
    few, many = (calls_added(Products(count), context) for count in (10, 100))
    assert few == many < 120
