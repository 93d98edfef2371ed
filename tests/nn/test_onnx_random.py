"""Random networks equal ONNX's reference evaluator, in every value at every output."""

import numpy as np
from hypothesis import given
from onnx_models import networks, onnx
from qonnx_reference import evaluator

import quantarray as qa


def with_all_outputs(model):
    """The model with every value an output too, and its reference."""
    seen = [name for node in model.graph.node for name in node.output]
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in seen)
    return whole, seen


@given(networks())
def test_random_networks(drawn):
    model, x = drawn
    expected = evaluator(model).run(None, {"x": x})[0]
    graph = qa.nn.load(model)
    got = graph(x)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected)


@given(networks())
def test_every_value_of_random_networks(drawn):
    """Each is an output too, so that nothing is folded away: integers and floats between layers."""
    model, x = drawn
    whole, names = with_all_outputs(model)
    constant = {n for n in names if qa_constant(model, n)}
    kept = [n for n in names if n not in constant]
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in kept)
    expected = dict(zip(kept, evaluator(whole).run(kept, {"x": x}), strict=True))
    got = qa.nn.load(whole)(x)
    got = got if isinstance(got, dict) else {kept[0]: got}
    for name in kept:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


def qa_constant(model, name):
    """Whether a value depends on no input."""
    tensors = {t.name for t in model.graph.initializer}
    for node in model.graph.node:
        if all(i in tensors for i in node.input):
            tensors.update(node.output)
    return name in tensors
