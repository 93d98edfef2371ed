"""Networks from ONNX and QONNX files: trained ones, and what is refused."""

import numpy as np
import pytest
from onnx_models import model, node, onnx
from paths import TESTS
from test_networks import idx

import quantarray as qa

FILES = TESTS / "data" / "qonnx"
NAMES = ("1W1A", "2W2A")


def network(name):
    return qa.nn.load(FILES / f"TFC_{name}.onnx")


def pixels(images):
    return images.reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255)


def images():
    return pixels(np.load(FILES / "images.npz")["images"])


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_trained_network(name):
    expected = np.load(FILES / "expected.npz")[name]
    scores = network(name)(images())
    assert scores.dtype == np.float32 and scores.shape == (1000, 10)
    assert (scores.argmax(axis=1) == expected.argmax(axis=1)).all()
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_integers_between_input_and_last_layer(name):
    graph = network(name)
    values = graph.trace(images()[:20])
    ops = [node.op for node in graph.nodes]
    assert ops[:2] == ["Reshape", "threshold"] and ops[2:6] == ["linear"] * 4
    inside = [values[node.outputs[0]] for node in graph.nodes[1:6]]
    assert all(isinstance(q, qa.QuantArray) for q in inside[:4]) and inside[4].dtype == np.int32
    weights = [graph.constants[node.inputs[1]] for node in graph.nodes[2:6]]
    bits = 1 if name == "1W1A" else 2
    assert [w.bits for w in weights] == [bits] * 4 and [q.bits for q in inside[:4]] == [bits] * 4
    sums = inside[3].dequantize().astype(np.int64) @ weights[3].dequantize().astype(np.int64).T
    np.testing.assert_array_equal(inside[4], sums)


@pytest.mark.parametrize("name, right", [("1W1A", 9296), ("2W2A", 9660)])
def test_accuracy_on_all_mnist_test_images(name, right):
    x, labels = pixels(idx("t10k-images-idx3-ubyte")), idx("t10k-labels-idx1-ubyte")
    assert (network(name)(x).argmax(axis=1) == labels).sum() == right


@pytest.mark.parametrize("name", NAMES)
def test_summary_and_profile(name):
    summary = network(name).summary()
    assert [row.op for row in summary.numpy] == ["Reshape", "Add"]
    assert sum(row.weights for row in summary.rows) == sum(row.macs for row in summary.rows) == 59008
    text = str(network(name).profile(images()[:2]))
    assert "linear + thresholds" in text and "share" in text and "2 of 8 in NumPy" in text


def test_loaded_from_a_path_bytes_and_a_model():
    data = (FILES / "TFC_1W1A.onnx").read_bytes()
    x = images()[:3]
    scores = [qa.nn.load(source)(x) for source in (str(FILES / "TFC_1W1A.onnx"), data, onnx.load_from_string(data))]
    assert (scores[0] == scores[1]).all() and (scores[0] == scores[2]).all()


def test_inputs_by_name_and_their_errors():
    graph, x = network("1W1A"), images()[:2]
    np.testing.assert_array_equal(graph(**{"0": x}), graph(x))
    takes = r"network: the input 0 must be float32 \(n, 1, 28, 28\), got "
    with pytest.raises(ValueError, match=takes + r"\(2, 28, 28, 1\); it is NHWC, the network takes NCHW: x.transpose"):
        graph(x.transpose(0, 2, 3, 1))
    with pytest.raises(ValueError, match=takes + r"\(1, 28, 28\); x\[None\] adds the batch axis"):
        graph(x[0])
    with pytest.raises(ValueError, match=takes + r"\(2, 784\); x.reshape\(-1, 1, 28, 28\)"):
        graph(x.reshape(2, 784))
    with pytest.raises(TypeError, match=takes + r"uint8; x.astype\(np.float32\) / 255, if"):
        graph(np.zeros(x.shape, np.uint8))
    with pytest.raises(TypeError, match=takes + r"float64; x.astype\(np.float32\)"):
        graph(x.astype(np.float64))
    with pytest.raises(ValueError, match=r"the input 0 has an empty batch, \(0, 1, 28, 28\)"):
        graph(x[:0])
    with pytest.raises(ValueError, match="the input 0 has a NaN"):
        graph(x * np.float32(np.nan))
    with pytest.raises(TypeError, match="the input y is none of 0"):
        graph(x, y=x)
    with pytest.raises(TypeError, match=r"the input 0, float32 .* is missing"):
        graph()
    with pytest.raises(TypeError, match="takes 1 inputs, 0, got 2"):
        graph(x, x)


def test_all_that_cannot_be_taken_is_named_at_once():
    nodes = [
        node("LSTM", ["x", "w", "w"], ["a"]),
        node("Det", ["x"], ["b"]),
        node("Softmax", ["x"], ["c"], axis=7),
        node("Relu", ["a"], ["y"]),
    ]
    with pytest.raises(ValueError) as caught:
        qa.nn.load(model(nodes, [("x", (1, 3, 3)), ("w", (1, 3, 3))], [("y", (1, 3, 3))]))
    lines = str(caught.value).splitlines()
    assert lines[0] == "load: 3 parts of the file cannot be taken:"
    assert lines[1] == "  LSTM 'LSTM_a': the operator is not known"
    assert lines[2] == "  Det 'Det_b': the operator is not known"
    assert lines[3].startswith("  Softmax 'Softmax_c': its attributes and operands do not go together: axis 7")


def test_what_is_no_model():
    for data in (b"", b"\x00\x01\x02", b"not a model" * 20):
        with pytest.raises(qa.FormatError, match="load: "):
            qa.nn.load(data)
    with pytest.raises(TypeError, match=r"load: needs a path, bytes or an onnx.ModelProto, got int"):
        qa.nn.load(7)
    with pytest.raises(FileNotFoundError):
        qa.nn.load("nowhere.onnx")


def test_open_lengths_are_asked_for():
    m = model([node("Relu", ["x"], ["y"])], [("x", ("n", 3, "h", "w"))], [("y", ("n", 3, "h", "w"))])
    with pytest.raises(ValueError, match=r"input 'x': its shape \(1, 3, 'h', 'w'\) is open; pass shapes="):
        qa.nn.load(m)
    graph = qa.nn.load(m, shapes={"x": (1, 3, 4, 4)})
    x = np.random.default_rng(0).normal(size=(5, 3, 4, 4)).astype(np.float32)
    np.testing.assert_array_equal(graph(x), np.maximum(x, 0))
    with pytest.raises(ValueError, match="'z' is no input; these are x"):
        qa.nn.load(m, shapes={"z": (1,)})


@pytest.mark.parametrize("axes", [None, (2, 3), (0, 2, 3)])
def test_sizes_of_a_resize_leave_the_batch_as_it_is(axes):
    """`sizes` hold the batch that the file was written with; where `axes` name it, the batch is that of the file."""
    sizes = np.array([1, 2, 4, 6] if axes is None else [1, 4, 6][-len(axes) :])
    resize = node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", **({} if axes is None else {"axes": axes}))
    graph = qa.nn.load(model([resize], [("x", (1, 2, 2, 3))], [("y", None)], [("sizes", sizes)]))
    x = np.random.default_rng(0).normal(size=(3, 2, 2, 3)).astype(np.float32)
    if axes == (0, 2, 3):
        assert not graph.inputs[0].batched
        x = x[:1]
    np.testing.assert_array_equal(graph(x), x.repeat(2, axis=2).repeat(2, axis=3))
