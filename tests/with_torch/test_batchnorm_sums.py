"""Statistics and backward sums of a batch norm, by one map_reduce each, against PyTorch's."""

import numpy as np
import pytest
import torch

import quantarray as qa


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_batchnorm(axis, kind):
    rng = np.random.default_rng(0)
    q = qa.from_codes(rng.integers(0, 4, (4, 70, 9, 11)), qa.uint2, axis=axis)
    dy = torch.from_numpy(rng.standard_normal(q.shape, np.float32)).to(kind)
    x = torch.from_numpy(q.dequantize().astype(np.float32)).requires_grad_()
    gamma, beta = (torch.ones(70, requires_grad=True) for _ in range(2))
    torch.nn.functional.batch_norm(x, None, None, gamma, beta, training=True, eps=1e-12).backward(dy.float())
    over = (0, 2, 3)
    mean, square = qa.map_reduce(lambda v: (v, v * v), q, axis=over, reduce="mean")
    total, product = qa.map_reduce(lambda g, v: (g, g * v), dy, q, axis=over)
    variance = square - mean**2
    np.testing.assert_allclose(mean, x.detach().mean(over), rtol=1e-6)
    np.testing.assert_allclose(variance, x.detach().var(over, unbiased=False), rtol=1e-6)
    np.testing.assert_allclose(total, beta.grad, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((product - mean * total) / np.sqrt(variance), gamma.grad, rtol=1e-4, atol=1e-4)
