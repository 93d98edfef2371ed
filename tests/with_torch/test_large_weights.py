"""Weights of dense layers of AlexNet and VGG: parts of them are quantised at a time."""

import numpy as np
import pytest
import torch

import quantarray as qa

T = qa.torch


def fitted(bits, rows, center):
    """Return a scheme in evaluation with a basis for each of the rows."""
    scheme = T.LQ(bits, center, weights=True).eval()
    random = np.random.default_rng(bits)
    scheme._hold(torch.from_numpy(np.sort(random.uniform(0.1, 1, (rows, bits + center)), axis=1)))
    scheme.started.fill_(True)
    return scheme


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    ("bits", "shape"),
    [(2, (9, 500_000)), (1, (4_300_000, 1)), (8, (2100, 5)), (4, (33_000, 3, 1, 1)), (3, (1, 4_300_000))],
    ids=["long rows", "many rows", "many levels", "many outputs", "one row"],
)
def test_each_output_has_its_basis_whatever_the_size(bits, shape, center):
    scheme = fitted(bits, shape[0], center)
    w = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = scheme(w)
    for row in (0, shape[0] // 2, shape[0] - 1):
        one = T.LQ(bits, center, weights=True).eval()
        one._hold(scheme.basis[row : row + 1])
        one.started.fill_(True)
        assert torch.equal(values[row : row + 1], one(w[row : row + 1]))
    with pytest.raises(ValueError, match=f"LQ: the basis is of {shape[0]} outputs, the weights have {shape[0] + 1}"):
        scheme.packed(torch.ones(shape[0] + 1, 3))


def test_a_basis_is_fitted_to_parts_of_the_rows():
    """6 rows of 700,000 elements, every eleventh of which is looked at."""
    w = torch.randn((6, 700_000), generator=torch.Generator().manual_seed(1))
    scheme = T.LQ(2, weights=True)
    scheme(w)
    expected = qa.quantize(w[:, ::11].numpy(), qa.LQ(2), scale_axis=0)
    assert np.allclose(scheme.basis, expected.scale[..., 0].T / 2, rtol=1e-6)
    before = scheme.basis.clone()
    scheme(-w * 2)
    assert torch.allclose(scheme.basis, 0.9 * before + 0.2 * before, rtol=0.1)
