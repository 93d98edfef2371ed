"""Bits allocated to layers and samples: variance below that of uniform bits, no bias, running norms, extra passes."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa
from quantarray.torch.layout import layout_of
from quantarray.torch.report import Layer
from quantarray.torch.sensitivity import Allocation, allocated, rows_of
from quantarray.torch.stored import Mixed

compressed = qa.torch.compressed_activations


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Branches(nn.Module):
    """A sum of products: its gradients are linear in what is saved. Branches and samples have sizes of their own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(512, 8) for _ in range(3))

    def forward(self, x):
        y = x.clone()
        return self.first(y) + 0.2 * self.second(3 * y.roll(7, 1)) + self.third(0.05 * y)


SIZES = torch.logspace(-1, 1, 16)[:, None]
X, UPSTREAM = rand(16, 512, seed=1) * SIZES, rand(16, 8, seed=2) * SIZES.flip(0) ** 0.5


def gradients(model, context, x=X, upstream=UPSTREAM, ids=None):
    """Gradients of all parameters, side by side."""
    model.zero_grad()
    with context if ids is None else context.batch(ids):
        y = model(x)
    y.backward(upstream)
    return torch.cat([p.grad.flatten() for p in model.parameters()]).double()


def exact(model, x=X, upstream=UPSTREAM):
    return gradients(model, compressed(level="L0"), x, upstream)


def drawn(model, context, count, **settings):
    """Return `count` gradients [count parameters], of steps after two that show gradient norms to the context."""
    return torch.stack([gradients(model, context, **settings) for _ in range(count + 2)])[2:]


@pytest.mark.parametrize("ids", [None, range(16)], ids=["norms of batches", "norms of samples"])
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_variance_is_below_that_of_uniform_bits_and_within_the_bound(bits, ids):
    """At equal mean bits, summed over all parameters. Of 40 draws of 12,000 numbers each a sum is within some %.

    The bound of a product is sum of C / (2**bits - 1)**2: it holds for samples' norms, and rounds steps up by 1/128.
    """
    model = Branches()
    right = exact(model)
    uniform = drawn(model, compressed(bits), 40)
    context = compressed(bits, allocate=True)
    mixed = drawn(model, context, 40, ids=ids)
    variance = [float(((g - right) ** 2).sum()) / 40 for g in (uniform, mixed)]
    assert context.report.mean_bits <= bits == compressed(bits).bits
    assert variance[1] < (0.8 if bits > 1 else 1.02) * variance[0]
    if ids is not None:
        bound = sum(
            float((c / (2.0**b - 1) ** 2).sum())
            for place in context._rounding.allocation.places.values()
            for c in [place.sensitivities(1.0)]
            for b in [allocated(c, np.ones(16, np.int64), place.mean_bits)]
        )
        assert variance[1] < 1.1 * bound


@pytest.mark.parametrize("bits", [2, 3])
def test_gradients_with_allocated_bits_are_unbiased(bits):
    """The mean of 400 projections within 5 standard errors: one false alarm in 1.7 million runs, of near normal means.

    Each draw has bits that depend on gradients drawn before, and random numbers of its own.
    """
    model = Branches()
    right, direction = exact(model), rand(3 * 8 * 513, seed=4).double()
    numbers = (drawn(model, compressed(bits, allocate=True, seed=5), 400, ids=range(16)) - right) @ direction
    assert abs(numbers.mean()) < 5 * numbers.std() / 20
    assert numbers.std() > 0


def test_one_object_holds_samples_of_different_bits():
    model, context = Branches(), compressed(3, allocate=True)
    for _ in range(3):
        gradients(model, context, ids=range(16))
    assert 2.7 < context.report.mean_bits <= 3
    assert len(set(context.report.bits.values())) == 3  # each layer its own
    x, sizes = rand(16, 1000), torch.logspace(-2, 2, 16)[:, None]
    rounding, layer = context._rounding, Layer("a layer", 3)
    packed = rounding.allocate(x * sizes, layout_of(x), 3, layer, rounding.packer)
    assert isinstance(packed, Mixed)
    rows = packed.rows
    assert set(rows.bits.tolist()) == set(range(1, 9)) and rows.bits.sum() <= 3 * 16
    assert rows.words.shape == (rows.bits.sum() * 16,) and np.array_equal(np.diff(rows.first), rows.bits[:-1] * 16)
    assert packed.nbytes == 8 * rows.words.size + 16 * (4 * 4 + 1 + 8)
    off = (packed.restore() / sizes - x).abs().amax(1)
    assert off[0] < 7 and off[-1] < 0.03


def test_samples_of_large_gradients_get_more_bits():
    """Their norms are those of the samples, wherever they are in a batch; a sample that was not seen has the mean."""
    layer, context = nn.Linear(1024, 4), compressed(3, allocate=True)
    x, ids = rand(8, 1024).clone(), torch.arange(8)
    weight = torch.where(ids == 5, 100.0, 0.1)[:, None]

    def step(order, keys):
        with context.batch(keys):
            y = layer(x[order].requires_grad_().clone())
        y.backward(weight[order] * rand(8, 4)[order])
        return context._rounding.allocation.places["Linear 0", 0]

    step(ids, ids + 10)
    order = torch.tensor([7, 1, 5, 0, 2, 3, 4, 6])
    place = step(order, ids[order] + 10)
    norms = place.norms
    assert norms.shape == (18,) and np.isnan(norms[:10]).all() and norms[10:].argmax() == 5
    c = place.sensitivities(1.0)
    assert c.argmax() == 2 and np.allclose(c / place.spread, norms[10:][order.numpy()], rtol=1e-6)
    place.follow()
    new = ((weight * rand(8, 4)) ** 2).sum(1).numpy()
    assert np.allclose(place.norms[10:], new, rtol=1e-5) and np.isclose(place.norm, new.mean())
    bits = allocated(c, np.ones(8, np.int64), 3)
    assert bits[2] == bits.max() > 3
    place.ids = np.array([3, 99, 15])
    place.spread = np.ones(3)
    assert np.allclose(place.sensitivities(1.0), [place.norm, place.norm, place.norms[15]])


@pytest.mark.parametrize("mean", [1, 1.7, 3, 8])
def test_allocation_is_the_best_of_all(mean):
    c = np.array([3.0, 0.0, 40.0, 0.2])
    bits = allocated(c, np.ones(4, np.int64), mean)
    every = np.array(list(itertools.product(range(1, 9), repeat=4)))
    within = every[every.sum(1) <= 4 * mean]
    best = (c / (2.0**within - 1) ** 2).sum(1).min()
    assert bits.sum() <= 4 * mean and np.isclose((c / (2.0**bits - 1) ** 2).sum(), best, rtol=1e-12)


def test_rows():
    assert rows_of(rand(6, 4, 64), True, 6) == 6 and rows_of(rand(12, 64), True, 6) == 6
    assert rows_of(rand(6, 64), True, None) == 6
    assert rows_of(rand(7, 64), True, 6) == 1  # no samples
    assert rows_of(rand(6, 64), False, 6) == 1  # not outermost in memory
    assert rows_of(rand(6, 70), True, 6) == 1  # two words for 70 elements
    assert rows_of(rand(64), True, 64) == 1 and rows_of(torch.zeros(0, 4), True, None) == 1


def test_models_with_allocated_bits_keep_their_loss_and_size():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.GELU(),
        nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip
    x, y = rand(16, 1, 16, 16) * SIZES[:, :, None, None], torch.arange(16) % 10
    usual, context = compressed(2, model=model), compressed(level="L3", model=copy.deepcopy(model))
    losses, ratios = [], []
    for c in (usual, context, context, context):
        model.zero_grad()
        with c:
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item()), ratios.append(c.report.ratio)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert len(set(losses)) == 1 and min(ratios) > 0.97 * ratios[0]
    fixed = compressed(2, model=model, allocate=True, layers={"3": 5})
    for _ in range(3):
        with fixed:
            loss = F.cross_entropy(model(x), y)
        loss.backward()
    assert fixed.report.bits["3"] == 5 and fixed.report.bits["6"] != 2
    assert fixed.report.bits["1"] == 2  # a norm, whose errors spread


def test_extra_passes_measure_layers():
    """A layer whose rounding moves no gradient gets 1 bit; parameters, buffers, random numbers stay as they were."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(512, 8), "b": nn.Linear(512, 8), "norm": nn.BatchNorm1d(8)})
    x = rand(16, 512).requires_grad_().clone()

    def loss():
        torch.rand(3)
        out = model["norm"](model["a"](x)) + model["b"](x.roll(1, 1)) * 1e-4
        return (out * UPSTREAM).sum()

    context = compressed(2, model=model, allocate=True)
    before = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    c = context.measure(loss)
    assert all(torch.equal(v, before[0][k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert set(c) >= {"a", "b"} and c["a"] > 1e4 * c["b"] > 0
    torch.set_rng_state(before[1])
    with context:
        loss()
    assert context.report.bits["a"] > 2.5 and context.report.bits["b"] == 1
    assert context.report.mean_bits <= 2
    with pytest.raises(ValueError, match="measure needs model= and allocate=True"):
        compressed(2, model=model).measure(loss)
    with pytest.raises(ValueError, match="measure needs model= and allocate=True"):
        compressed(2, allocate=True).measure(loss)


def test_an_exception_while_measuring_leaves_nothing_behind():
    model = nn.Sequential(nn.Linear(512, 8), nn.BatchNorm1d(8))
    context, before = compressed(2, model=model, allocate=True), copy.deepcopy(model.state_dict())

    def loss():
        model(rand(16, 512))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        context.measure(loss)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not torch.nn.modules.module._global_forward_hooks
    with context:
        model(rand(16, 512).clone())
    assert context.report.mean_bits == 2 and context.report.ratio > 8  # it packs again


def test_gradients_that_are_no_numbers_change_no_norm():
    context, layer = compressed(2, allocate=True), nn.Linear(512, 4)
    for factor in (1.0, float("nan"), float("inf")):
        with context:
            y = layer(rand(8, 512).clone())
        y.backward(rand(8, 4) * factor)
    allocation: Allocation = context._rounding.allocation
    place = allocation.places["Linear 0", 0]
    allocation.start()
    assert np.isclose(place.norm, float((rand(8, 4) ** 2).sum()) / 8)


@pytest.mark.parametrize("ids", [[], [-1], [1.5], [[1, 2]], "ab", 3, [10**9]])
def test_wrong_ids(ids):
    with pytest.raises(ValueError, match="compressed_activations: sample_ids must be"):
        compressed(2, allocate=True).batch(ids)


@pytest.mark.parametrize("count", [1, 7, 16])
def test_ids_of_another_batch(count):
    layer, context = nn.Linear(512, 4), compressed(2, allocate=True)
    with (
        context.batch(range(count)),
        pytest.raises(ValueError, match=rf"has {count} sample_ids for an input \(8, 512\)"),
    ):
        layer(rand(8, 512))
    with context.batch(range(8)):
        layer(rand(8, 512)).sum().backward()


def test_wrong_groups():
    with pytest.raises(ValueError, match="multiple of 64, got 100"):
        compressed(2, allocate=True, group=100)
