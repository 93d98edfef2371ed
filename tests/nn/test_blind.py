"""Operations in compiled calls read no elements: they run on arrays that kill the process which reads them."""

import os
from functools import partial

import numpy as np
import pytest
from blind import dies, survives
from hypothesis import given, settings
from onnx_models import networks
from paths import TESTS

import quantarray as qa
from quantarray.nn.operators.record import Operator
from quantarray.nn.passes import for_plan
from quantarray.nn.steps import Step

pytestmark = [pytest.mark.full, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and mprotect")]
models = qa.nn.models
GRAPHS = {
    "lfc": models.lfc,
    "cnv": partial(models.cnv, bits=(2, 2)),
    "bireal_resnet18": partial(models.bireal_resnet18, size=32, width=16),
    "dorefa_resnet18": partial(models.dorefa_resnet18, size=32, width=16, bits=3),
    "dorefa_mobilenet_v2": partial(models.dorefa_mobilenet_v2, size=32),
    "quicknet": partial(models.quicknet, size=32),
    "xnor_alexnet": partial(models.xnor_alexnet, size=67),
    **{name: partial(qa.nn.load, TESTS / "data" / "qonnx" / f"{name}.onnx") for name in ("TFC_1W1A", "TFC_2W2A")},
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_published_networks(name, batch):
    graph = GRAPHS[name]()
    value = graph.inputs[0]
    x = np.random.default_rng(0).integers(0, 2, (batch, *value.shape[1:])).astype(value.dtype)
    assert dies(for_plan(graph), [x]) == set()


@settings(max_examples=50, deadline=None)
@given(networks())
def test_random_networks(network):
    model, x = network
    assert dies(for_plan(qa.nn.load(model)), [x]) == set()


@pytest.mark.parametrize("shape", [(1, 1), (4, 16)])
@pytest.mark.parametrize(
    "run", [lambda a, x: x if x.max() < 128 else -x, lambda a, x: x + 1, lambda a, x: x * int(x[0, 0] > 3)]
)
def test_an_operation_that_reads_elements_dies(run, shape):
    step = Step("strange", Operator(run=run, launches="always"), {}, (0,), (1,))
    assert not survives(step, [None, None], [np.zeros(shape, np.float32), None])
