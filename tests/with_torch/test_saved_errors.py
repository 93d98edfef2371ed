"""Errors of saved tensors by layer in the report, and bits of norms chosen by them."""

import pytest
import torch
from torch import nn

import quantarray as qa

compressed = qa.torch.compressed_activations


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def errors(model, x, **settings):
    context = compressed(**settings)
    with context:
        model(x)
    return context.report


def restored(x, bits, seed):
    """A tensor as a context whose first rounded tensor it is restores it, by `quantize`."""
    return torch.from_numpy(qa.quantize(x.numpy().ravel(), qa.Grouped(bits, 256, seed)).dequantize()).view(x.shape)


def seed_of(context_seed):
    return context_seed << 32 | 1


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_error_of_a_layer_is_that_of_what_is_restored(bits):
    x = rand(32, 512) + 1
    report = errors(nn.Linear(512, 8), x, bits=bits, seed=5)
    off = (restored(x, bits, seed_of(5)).double() - x).norm() / x.double().norm()
    assert report.errors == {"Linear 0": pytest.approx(float(off), rel=1e-5)}
    assert f"off by {off:.2g}" in str(report)


# A norm, and the rows of its input that are normalised together
NORMS = {
    "batch norm": (nn.BatchNorm1d(6), lambda x: x.transpose(0, 1).flatten(1)),
    "layer norm": (nn.LayerNorm((6, 81)), lambda x: x.flatten(1)),
    "layer norm of the last axis": (nn.LayerNorm(81), lambda x: x.flatten(0, 1)),
    "group norm": (nn.GroupNorm(3, 6), lambda x: x.reshape(24, -1)),
}


def channels():
    """Channels of other sizes: in a group of 256 values, errors of small channels are large beside them."""
    return rand(8, 6, 81) * torch.tensor([1, 2, 4, 8, 16, 32.0]).view(1, -1, 1)


@pytest.mark.parametrize("kind", NORMS)
def test_the_error_of_a_norm_is_that_of_normalised_values(kind):
    (norm, rows), x = NORMS[kind], channels()
    report = errors(norm, x, bits=3, seed=1)
    off, values = rows(x - restored(x, 3, seed_of(1))), rows(x)
    ratio = off.square().mean(1) / (values.var(1, correction=0) + norm.eps)
    assert report.errors == {f"{type(norm).__name__} 0": pytest.approx(float(ratio.mean().sqrt()), rel=1e-4)}


@pytest.mark.parametrize("kind", NORMS)
def test_norms_get_the_fewest_bits_of_a_small_error(kind):
    norm, x, name = NORMS[kind][0], channels(), f"{type(NORMS[kind][0]).__name__} 0"
    of_bits = {bits: errors(norm, x, bits=bits).errors[name] for bits in range(1, 9)}
    for bound in (2, 0.5, 0.2):
        report = errors(norm, x, bits=2, norm_error=bound)
        bits = report.bits[name]
        assert report.errors[name] <= bound and 2 <= bits <= 8
        assert bits == 2 or of_bits[bits - 1] > 0.9 * bound
    assert errors(norm, x, bits=2, norm_error=1e-6).bits[name] == 8
    fixed = errors(norm, x, bits=2, norm_error=0.2, layers={nn.Module: 3})
    assert fixed.bits[name] == 3 and fixed.errors[name] > 0.2


def test_chosen_bits_stay_until_errors_are_measured_again():
    norm, context, measured = nn.BatchNorm1d(6), compressed(2, norm_error=0.3), []
    for step in range(66):
        with context:
            norm(rand(8, 6, 81) if step < 3 else channels())
        measured.append((context.report.bits["BatchNorm1d 0"], context.report.errors["BatchNorm1d 0"]))
    assert len(set(measured[:64])) == 1 and measured[64] == measured[65]
    assert measured[64][0] > measured[0][0] and all(error <= 0.3 for _, error in measured)


def test_errors_of_many_norms_multiply_less():
    """With 2 bits gradients of a few images are off by more than their size."""
    torch.manual_seed(0)
    block = lambda: (nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())  # noqa: E731
    model = nn.Sequential(*(layer for _ in range(16) for layer in block()))
    for conv in model[::3]:  # channels of other sizes, which the norms make equal
        conv.weight.data *= torch.logspace(-1, 1, 16).view(-1, 1, 1, 1)
    x = rand(2, 16, 8, 8)

    def gradient(**settings):
        model.zero_grad()
        with compressed(2, **settings):
            y = model(x)
        (y * rand(*y.shape, seed=1)).sum().backward()
        return model[0].weight.grad.clone()

    exact = gradient(layers={nn.Module: None})
    off, less = (float((gradient(norm_error=bound) - exact).norm() / exact.norm()) for bound in (None, 0.1))
    assert off > 1 and less < 0.5 * off


def test_wrong_bounds():
    for bound in (0, -1.0):
        with pytest.raises(ValueError, match="compressed_activations: norm_error must be above 0"):
            compressed(norm_error=bound)
