"""Graphs whose every operation is a CUDA kernel, in the simulator: the values of the CPU, to the bit."""

import numpy as np
import pytest
from cuda_backend import twins

import quantarray as qa
from quantarray.cuda.runtime import launch

Graph, Node, Value = qa.nn.Graph, qa.nn.Node, qa.nn.Value


def launched(monkeypatch):
    """Return a list of the names of CUDA kernels that are launched."""
    names, run = [], launch.run
    monkeypatch.setattr(
        launch, "run", lambda kernel, *args, **how: names.append(kernel.__name__) or run(kernel, *args, **how)
    )
    return names


def network():
    """A float convolution, a chain to codes, a packed one, a max pool of integers, a join, means, a matrix product."""
    rng = np.random.default_rng(0)

    def packed(*shape):
        return qa.encode(rng.choice((-1, 1), shape), (-1, 1), axis=1)

    constants = {
        "f": rng.standard_normal((5, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(5).astype(np.float32),
        "k": rng.standard_normal((3, 5)).astype(np.float32),
        "T": qa.Thresholds(np.sort(rng.standard_normal((5, 3)), axis=1), into=qa.uint2),
        "w": packed(6, 5, 3, 3),
        "s": rng.standard_normal(6) / 9,
        "m": rng.standard_normal((1, 6)).astype(np.float32),
        "v": rng.standard_normal((6, 4)).astype(np.float32),
    }
    nodes = [
        Node("Conv", ("x", "f", "b"), ("c",), {"pads": (1, 1, 1, 1)}),
        Node("chain", ("c", "", "k", "", "", "T"), ("q",),
             {"steps": ("subtract", "multiply", "slope"), "gives": ("codes",), "rank": 4}),
        Node("conv2d", ("q", "w"), ("y",), {"padding": 1}),
        Node("max_pool2d", ("y",), ("p",), {"size": (2, 2)}),
        Node("chain", ("p", "", "m", "s"), ("z",), {"steps": ("max",), "gives": ("values",), "rank": 4}),
        Node("AveragePool", ("z",), ("a",), {"kernel_shape": (2, 2)}),
        Node("Concat", ("a", "a"), ("j",), {"axis": 3}),
        Node("GlobalAveragePool", ("j",), ("g",)),
        Node("Flatten", ("g",), ("h",), {"axis": 1}),
        Node("MatMul", ("h", "v"), ("o",)),
    ]  # fmt: skip
    outputs = [Value("o", (1, 4), "float32"), Value("q", (1, 5, 6, 6), "uint2")]
    return Graph([Value("x", (1, 3, 6, 6), "float32")], outputs, nodes, constants)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_graph_on_kernels_alone(batch, monkeypatch):
    net = network()
    x = np.random.default_rng(batch).standard_normal((batch, 3, 6, 6)).astype(np.float32)
    expected, names = net(x), launched(monkeypatch)
    with twins():
        got = network()(x)
    np.testing.assert_array_equal(got["q"].codes(), expected["q"].codes())
    np.testing.assert_array_equal(got["o"], expected["o"])
    assert {"apply", "pool", "_multiply", "_copy", "integer_tile"} <= set(names)


def test_a_published_network(monkeypatch):
    """A small Bi-Real network: bytes, batch norms of floats, shortcuts, float convolutions, pools and scores."""
    net = qa.nn.models.bireal_resnet18(size=32, width=2, classes=3)
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 32, 32), np.uint8)
    expected, names = net(x), launched(monkeypatch)
    with twins():
        again = qa.nn.models.bireal_resnet18(size=32, width=2, classes=3)
        np.testing.assert_array_equal(again(x), expected)
    assert {"apply", "pool", "_multiply"} <= set(names)
