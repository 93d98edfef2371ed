"""Networks trained in plain PyTorch become packed networks in one call, equal in every code and every argmax."""

from functools import partial

import numpy as np
import pytest
import torch
from torch_compared import compare
from torch_layers import (
    Bin,
    Clipped,
    LearnedStep,
    Levels,
    Mask,
    SignDetached,
    ThreeLevels,
    dorefa_weight,
    lsq_weight,
    sign_weight,
    ternary_weight,
    xnor_weight,
)
from torch_training import images, trained

import quantarray as qa

NETWORKS = {
    "sign": (sign_weight, Bin),
    "sign, detached": (xnor_weight, SignDetached),
    "mask": (sign_weight, Mask),
    "DoReFa": (dorefa_weight, Levels),
    "LSQ": (lsq_weight, LearnedStep),
    "LSQ, signed": (partial(lsq_weight, bits=4), partial(LearnedStep, 4, True, 0.2)),
    "ternary": (ternary_weight, ThreeLevels),
    "PACT": (dorefa_weight, Clipped),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_trained_networks_are_equal(name):
    model = trained(*NETWORKS[name])
    x, labels = images(500, 10**6)
    graph = qa.nn.from_torch(model, x[:1])
    assert list(compare(model, x, graph)) == ["2", "6", "9", "15", "19"]
    scores = graph(x.numpy())
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    assert (scores.argmax(axis=1) == labels.numpy()).mean() > 0.5  # it has learned something
    assert {row.op for row in graph.summary().numpy} <= {"Conv", "Add", "scale"}
    assert sum(row.op == "Conv" for row in graph.summary().numpy) == 1  # the first layer, of floats


def test_sums_of_a_binary_network_are_equal():
    model = trained(sign_weight, Bin)[:4]  # up to a convolution: a pool after it would get its codes, not its sums
    x, _ = images(100, 7)
    graph = qa.nn.from_torch(model, x[:1])
    assert any(node.op == "conv2d" for node in graph.nodes)
    with torch.no_grad():
        np.testing.assert_array_equal(graph(x.numpy()), model(x).numpy())


def test_module_and_torch_are_left_as_they_were():
    model = trained(sign_weight, Bin, 2).train()
    model[3].register_forward_hook(lambda *a: None)
    model[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [part.training for part in model.modules()]
    hooks = [list(part._forward_hooks.items()) for part in model.modules()]
    random, grad = torch.get_rng_state(), torch.is_grad_enabled()
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    qa.nn.from_torch(model, images(1, 0)[0])
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [part.training for part in model.modules()] == flags
    assert [list(part._forward_hooks.items()) for part in model.modules()] == hooks
    assert all("forward" not in part.__dict__ for part in model.modules())
    assert torch.equal(torch.get_rng_state(), random) and torch.is_grad_enabled() == grad
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)
