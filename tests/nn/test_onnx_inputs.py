"""Lengths that an ONNX file leaves open, and errors of the package while it reads a file."""

import numpy as np
import pytest
from onnx_models import model, node

import quantarray as qa
from quantarray.nn.onnx import loading


def test_a_first_length_of_minus_one_is_a_batch():
    m = model([node("Relu", ["x"], ["y"])], [("x", (-1, 3))], [("y", (-1, 3))])
    graph = qa.nn.load(m)
    assert graph.inputs[0].shape == (1, 3) and graph.inputs[0].batched
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_array_equal(graph(x), np.maximum(x, 0))


def test_a_number_as_an_input():
    """It has no axis that could be a batch."""
    graph = qa.nn.load(model([node("Relu", ["x"], ["y"])], [("x", ())], [("y", ())]))
    assert not graph.inputs[0].batched
    for run in (graph, graph.prepared()):
        assert run(np.float32(-2)) == 0 and run(np.float32(3)) == 3
    with pytest.raises(ValueError, match=r"the input x must be float32 \(\), got \(3,\)"):
        graph(np.zeros(3, np.float32))


@pytest.mark.parametrize("shape", [(1, -1), (-1, -1, 4), ("n", 3, -1)])
def test_another_length_of_minus_one_is_asked_for(shape):
    m = model([node("Relu", ["x"], ["y"])], [("x", shape)], [("y", shape)])
    with pytest.raises(ValueError, match=r"input 'x': its shape .*'\?'.* is open; pass shapes="):
        qa.nn.load(m)
    whole = tuple(2 if i else 1 for i in range(len(shape)))
    x = -np.ones((3, *whole[1:]), np.float32)
    np.testing.assert_array_equal(qa.nn.load(m, shapes={"x": whole})(x), 0 * x)


def test_an_internal_error_names_the_node_and_is_no_fault_of_the_file(monkeypatch):
    def broken(*operands):
        raise AssertionError("no source")

    monkeypatch.setitem(loading._LOWER, "Relu", broken)
    m = model([node("Relu", ["x"], ["y"])], [("x", (1, 3))], [("y", (1, 3))])
    with pytest.raises(
        RuntimeError, match=r"load: Relu 'Relu_y': an internal error of quantarray, not a fault of the "
    ):
        qa.nn.load(m)
