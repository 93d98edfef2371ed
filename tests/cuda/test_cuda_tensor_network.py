"""Trained networks on binary tensor cores, by their models in the simulator: the scores of their files, to the bit."""

import fake_cupy
import numpy as np
import pytest
from cuda_backend import twins
from paths import PACKAGED, SHARED
from test_cuda_bmma_choice import launched
from test_cuda_network import moved

from quantarray.cuda.runtime import launch
from quantarray.cuda.runtime.graph import Graph
from quantarray.nn import load_network

FILES = [PACKAGED, *(SHARED / "networks" / f"{name}.npz" for name in ("lfc-w1a1", "cnv-w1a1"))]
PRODUCTS = "integer_tile", "bmma_tile", "imma_tile", "few_rows"

__all__ = ["moved"]


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setattr(launch, "capability", lambda: (9, 0))


@pytest.mark.parametrize("path", [path for path in FILES if path.exists()], ids=lambda path: path.stem)
def test_every_product_on_tensor_cores(path, monkeypatch):
    monkeypatch.setenv("QUANTARRAY_CUDA", "bmma")
    network, names = load_network(path), launched(monkeypatch)
    with twins():
        scores = network(network.plain.input[:1])
    np.testing.assert_array_equal(scores, network.plain.expected[:1])
    products = [layer for layer in network.plain.layers if layer.op != "max_pool2d"]
    assert [name for name in names if name in PRODUCTS] == ["bmma_tile"] * len(products)


def test_a_graph_of_what_suits_each_layer(monkeypatch, moved):
    """A captured graph multiplies the image as bytes, and counts a dense layer of one row."""
    network, names = load_network(PACKAGED), launched(monkeypatch)
    x = network.plain.input[:1]
    monkeypatch.setattr(fake_cupy.cuda.Stream, "begin_capture", lambda stream: (names.append("begin"), moved.clear()))
    with twins():
        graph = Graph(network, x, fake_cupy)
    begin = names.index("begin")
    captured = names[begin + 1 :]
    once = "_rebit", "_lay_out", "_move_bits"  # of weights
    assert captured == [name for name in names[:begin] if name not in once]
    assert [name for name in captured if name in PRODUCTS] == ["imma_tile", "bmma_tile", "bmma_tile", "few_rows"]
    assert moved == []
    del names[:], fake_cupy.events[:]
    np.testing.assert_array_equal(graph(x), network.plain.expected[:1])
    assert names == [] and fake_cupy.events == ["launch"]
