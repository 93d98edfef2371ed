"""Adjoints of convolutions against PyTorch's gradients: exact for integers, which float64 holds."""

import numpy as np
import pytest
import torch

import quantarray as qa

CASES = [
    (1, (3, 8, 11), (6, 8, 3), {"stride": 2, "padding": 1}),
    (2, (3, 8, 9, 7), (6, 8, 3, 3), {"padding": 1}),
    (2, (3, 8, 10, 9), (6, 4, 3, 2), {"stride": 2, "dilation": (1, 2), "groups": 2}),
    (2, (3, 8, 8, 8), (8, 1, 3, 3), {"padding": 1, "groups": 8, "stride": 2}),
    (2, (3, 8, 8, 8), (16, 1, 3, 3), {"padding": 2, "groups": 8}),
    (3, (2, 4, 5, 6, 7), (3, 4, 2, 3, 1), {"stride": (1, 2, 1), "padding": (1, 0, 0)}),
]


@pytest.mark.parametrize(("axes", "x_shape", "w_shape", "options"), CASES)
@pytest.mark.parametrize("dense", [None, torch.int8, torch.float32])
def test_gradients(axes, x_shape, w_shape, options, dense):
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 4, x_shape), rng.integers(-1, 2, w_shape)
    tx, tw = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, w))
    y = getattr(torch.nn.functional, f"conv{axes}d")(tx, tw, **options)
    g = rng.integers(-8, 8, y.shape)
    y.backward(torch.tensor(g, dtype=torch.float64))
    px, pw = qa.encode(x, qa.uint2, axis=1), qa.encode(w, qa.ternary, axis=1)
    pg = qa.encode(g, qa.int4, axis=1) if dense is None else torch.tensor(g, dtype=dense)
    how = {**options, "data_format": {1: "NCW", 2: "NCHW", 3: "NCDHW"}[axes]}
    data = getattr(qa, f"conv{axes}d_data_adjoint")(pg, pw, size=x_shape[2:], **how)
    filters = getattr(qa, f"conv{axes}d_filter_adjoint")(px, pg, size=w_shape[2:], **how)
    np.testing.assert_array_equal(data, tx.grad)
    np.testing.assert_array_equal(filters, tw.grad)
