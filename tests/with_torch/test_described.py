"""Networks from a trained module's saved state dict and a description are the module, in every argmax and score."""

from functools import partial

import numpy as np
import pytest
import torch
from torch_layers import Bin, LearnedStep, Levels, dorefa_weight, sign_weight, ternary_weight
from torch_training import images, trained

import quantarray as qa

ROUND = {"type": "quantize", "bits": 4}
CASES = {
    "sign": (sign_weight, Bin, "sign", lambda name: {"type": "sign"}),
    "DoReFa": (dorefa_weight, Levels, 2, lambda name: {"type": "dorefa", "bits": 2}),
    "steps": (
        ternary_weight,
        partial(LearnedStep, 4, True, 0.2),
        lambda w: ternary_weight(torch.from_numpy(w)).numpy(),
        lambda name: {"type": "quantize", "bits": 4, "scale": f"{name}.step"},
    ),
}


def described(act, weights):
    """Return the layers of `torch_training.network`."""
    conv = lambda name, kind=weights: {"type": "conv", "name": name, "padding": 1, "weights": kind}  # noqa: E731
    norm, pool = lambda name: {"type": "norm", "name": name}, {"type": "max_pool", "size": 2}
    return [
        conv("0", None), norm("1"), act("2"), conv("3"), pool, norm("5"), act("6"), conv("7"), norm("8"), act("9"),
        pool,
        conv("11"), norm("12"), pool, {"type": "prelu", "name": "14"}, act("15"), {"type": "flatten"},
        {"type": "linear", "name": "17", "weights": weights}, norm("18"), act("19"),
        {"type": "linear", "name": "21", "weights": weights},
    ]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_saved_state_dict_gives_the_module(name, tmp_path):
    weight, act, weights, layer = CASES[name]
    model, (x, _) = trained(weight, act, 30), images(300, 10**6)
    np.savez(tmp_path / "net.npz", **{key: a.numpy() for key, a in model.state_dict().items()})
    net = qa.nn.from_state(described(layer, weights), dict(np.load(tmp_path / "net.npz")), (1, 16, 16))
    with torch.no_grad():
        expected = model(x).numpy()
    got = net(x.numpy())
    alike = np.isclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()).all(axis=1)
    assert alike.mean() > 0.98  # a float32 convolution before a quantiser: a value may be at a boundary
    np.testing.assert_array_equal(got.argmax(axis=1)[alike], expected.argmax(axis=1)[alike])
    assert sum(row.op in ("Conv", "MatMul") for row in net.summary().numpy) == 1  # the first layer, of floats
