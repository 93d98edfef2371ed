"""Calls of PyTorch that put elements in another order, or several times, equal its results, packed or not."""

import numpy as np
import pytest
import torch
from torch import nn

import quantarray as qa

CALLS = {
    "flip": lambda x: x.flip(2),
    "flip of two axes": lambda x: x.flip((1, 3)),
    "roll": lambda x: x.roll((1, -2), (2, 3)),
    "roll by a length": lambda x: x.roll(6, 3),
    "stack": lambda x: torch.stack([x, -x], dim=2).flatten(1, 2),
    "stack last": lambda x: torch.stack([x, x + 1], dim=-1),
    "unbind": lambda x: torch.cat(x.unbind(1)[::2], dim=1),
    "repeat": lambda x: x.repeat(1, 2, 1, 3),
    "tile": lambda x: x.tile(2, 1),
    "pixel_unshuffle": lambda x: nn.functional.pixel_unshuffle(x, 2),
    "topk": lambda x: x.topk(3, dim=1)[0],
    "topk of the smallest": lambda x: x.topk(2, dim=3, largest=False)[0],
    "sort": lambda x: x.sort(dim=1)[0],
    "sort descending": lambda x: x.sort(dim=2, descending=True)[0],
    "max": lambda x: x.max(dim=1)[0],
    "max, kept": lambda x: x.max(dim=1, keepdim=True)[0],
    "min": lambda x: x.min(dim=-1)[0],
    "places": lambda x: x.max(dim=1)[1],
}


class Module(nn.Module):
    def __init__(self, call, sign):
        super().__init__()
        self.call, self.sign = call, sign

    def forward(self, x):
        return self.call(torch.where(x >= 0, 1.0, -1.0) if self.sign else x)


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_calls(name, sign):
    if sign and name == "places":
        return  # of equal elements PyTorch names any
    module, x = Module(CALLS[name], sign).eval(), torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    graph = qa.nn.from_torch(module, x)
    for rows in (x, x[:1]):
        got, expected = graph(rows.numpy()), module(rows).numpy()
        assert got.dtype == expected.dtype and np.array_equal(got, expected)


@pytest.mark.parametrize("name", ["max", "min", "places", "sort", "sort descending", "topk", "topk of the smallest"])
def test_orders_of_nan(name):
    """A NaN is the extreme of an axis, whichever is asked for, and is sorted as the largest."""
    module, x = Module(CALLS[name], False).eval(), torch.randn(3, 4, 6, 6)
    graph = qa.nn.from_torch(module, x)
    x[0, 1, 2, 3] = x[1, 3, 0, 0] = torch.nan
    np.testing.assert_array_equal(graph(x.numpy()), module(x).numpy())


@pytest.mark.parametrize(
    "call", [lambda x: x.flip(0), lambda x: x.roll(1, 0), lambda x: x.roll(1), lambda x: x.repeat(2, 1, 1, 1),
             lambda x: x.max(), lambda x: x.sort(dim=0)[0], lambda x: torch.stack(x.unbind(0))]
)  # fmt: skip
def test_what_mixes_samples_is_refused_or_of_one_length(call):
    x = torch.randn(3, 4, 6, 6)
    try:
        graph = qa.nn.from_torch(Module(call, False).eval(), x)
    except ValueError:
        return
    assert np.array_equal(graph(x.numpy()), call(x).numpy())
    with pytest.raises(ValueError, match="batch"):
        graph(x[:2].numpy())


@pytest.mark.parametrize("tail", [nn.Identity(), nn.ReLU(), Module(lambda x: x, True)])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(3, 1, 1), nn.MaxPool2d((2, 1)), nn.MaxPool2d(2)])
def test_pools_of_what_varies_along_their_windows(pool, tail):
    """The bias of a linear layer differs along the last axis, so that a pool is not moved before it."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(8, 8), pool, tail).eval(), torch.randn(3, 2, 8, 8)
    module[0].bias.data *= 8
    graph = qa.nn.from_torch(module, x)
    np.testing.assert_allclose(graph(x.numpy()), module(x).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(16,), (5, 16)])
def test_layer_norms(shape, affine):
    torch.manual_seed(0)
    norm = nn.LayerNorm(shape, elementwise_affine=affine)
    if affine:
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    module = nn.Sequential(norm, nn.Linear(16, 4)).eval()
    x = torch.randn(3, 5, 16)
    graph = qa.nn.from_torch(module, x)
    np.testing.assert_allclose(graph(x.numpy()), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert graph(x[:2].numpy()).shape == (2, 5, 4)


def test_embeddings():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(32, 3)).eval()
    x = torch.randint(0, 10, (5, 4))
    graph = qa.nn.from_torch(module, x)
    np.testing.assert_allclose(graph(x.numpy()), module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
