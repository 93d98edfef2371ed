"""Rows of PyTorch's floats by packed weights."""

import numpy as np
import torch

import quantarray as qa


def test_tensors_of_floats():
    w = qa.from_codes(np.random.default_rng(0).integers(0, 3, (30, 200)), qa.ternary)
    x = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        rows = x.to(kind)
        for quantize_x in (None, "row", 64):
            got = qa.linear(rows, w, quantize_x=quantize_x)
            np.testing.assert_array_equal(got, qa.linear(rows.float().numpy(), w, quantize_x=quantize_x))
        out = torch.empty(4, 30, dtype=torch.bfloat16)
        assert qa.linear(rows, w, out=out) is out
        assert torch.equal(out, torch.from_numpy(qa.linear(rows, w)).bfloat16())


def test_rows_as_bitnet_has_them():
    """BitLinear of BitNet b1.58 in PyTorch's float32."""
    weights = torch.randint(-1, 2, (30, 200), generator=torch.Generator().manual_seed(1))
    x = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
    s = 127 / x.abs().max(dim=-1, keepdim=True).values.clamp(min=1e-5)
    expected = ((x * s).round().clamp(-128, 127) @ weights.float().T) / s
    got = qa.linear(x, qa.encode(weights.numpy(), (-1, 0, 1)), quantize_x="row")
    assert torch.equal(torch.from_numpy(got), expected)
