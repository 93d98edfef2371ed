"""Products write to PyTorch's tensors: their memory, in their type."""

import numpy as np
import pytest
import torch

import quantarray as qa

X = qa.encode(np.random.default_rng(0).choice((-1, 1), (5, 100)), (-1, 1))
W = qa.encode(np.random.default_rng(1).choice((-1, 1), (7, 100)), (-1, 1))
IMAGE, TAPS = X.reshape(1, 5, 1, 100), W.reshape(7, 1, 1, 100)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_floats(kind):
    w = W * np.float32(0.3)
    out = torch.zeros(5, 7, dtype=kind)
    assert qa.linear(X, w, out=out) is out
    assert torch.equal(out, torch.from_numpy(qa.linear(X, w)).to(kind))
    first = torch.zeros(1, 7, 5, 1, dtype=kind)
    x, taps = IMAGE.transpose(0, 3, 1, 2), (TAPS * np.float32(0.3)).transpose(0, 3, 1, 2)
    assert qa.conv2d(x, taps, data_format="NCHW", out=first) is first
    assert torch.equal(first, torch.from_numpy(qa.conv2d(x, taps, data_format="NCHW").copy()).to(kind))


def test_integers():
    out = torch.zeros(5, 7, dtype=torch.int32)
    assert qa.linear(X, W, out=out) is out
    assert torch.equal(out, torch.from_numpy(qa.linear(X, W)))


def test_refusals():
    with pytest.raises(TypeError, match="linear: out requires a gradient"):
        qa.linear(X, W * np.float32(0.3), out=torch.zeros(5, 7, requires_grad=True))
    for out in (torch.zeros(5, 7), torch.zeros(5, 6, dtype=torch.int32), torch.zeros(5, 7, device="meta")):
        with pytest.raises(ValueError, match="linear: out must be a writable NumPy array of int32"):
            qa.linear(X, W, out=out)
