"""Graphs with chains, pads and pools of the smallest codes as QONNX files: loaded again, they give equal results."""

import numpy as np
import pytest
from onnx_models import model, node
from qonnx_reference import evaluator

import quantarray as qa
from quantarray.nn.passes.chains import chained, unchained

models = qa.nn.models
ARGUMENTS = {"size": 32, "classes": 10}


def written(net, path):
    net.save(path)
    return qa.nn.load(path)


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (models.lfc, {"bits": (1, 2), "width": 64}),
        (models.cnv, {"bits": (2, 2)}),
        (models.bireal_resnet18, {**ARGUMENTS, "width": 16}),
        (models.dorefa_resnet18, {**ARGUMENTS, "width": 16, "bits": 3}),
        (models.dorefa_mobilenet_v2, ARGUMENTS),
        (models.quicknet, ARGUMENTS),
        (models.xnor_alexnet, {"size": 67, "classes": 10}),
    ],
)
def test_models_as_qonnx_files(tmp_path, build, arguments):
    net = build(**arguments)
    again = written(net, tmp_path / "net.onnx")
    images = np.random.default_rng(0).integers(0, 256, (2, *net.inputs[0].shape[1:]), dtype=np.uint8)
    for image in images:
        assert np.array_equal(again(image[None]), net(image[None]))


def test_a_value_that_several_read_stays_in_its_chain():
    """A sum of an affine function of x is encoded and rectified: two chains, the first with values and codes."""
    rng = np.random.default_rng(1)
    Node, Value = qa.nn.Node, qa.nn.Value
    shape = 1, 3, 4, 5
    nodes = [
        Node("affine", ("x", "factor", "offset"), ("a",)),
        Node("Add", ("a", "y"), ("s",)),
        Node("threshold", ("s", "T"), ("c",), {"axis": 1, "last": False}),
        Node("Relu", ("s",), ("r",)),
    ]
    numbers = {name: rng.normal(size=(1, 3, 1, 1)).astype(np.float32) for name in ("factor", "offset")}
    constants = {**numbers, "T": qa.Thresholds([-0.5, 0.1, 0.7], per_channel=False)}
    shapes = {name: (shape, np.dtype(np.float32)) for name in "xyasr"}
    ends = [Value(name, shape, "float32") for name in "xy"], [Value("c", shape, "uint2"), Value("r", shape, "float32")]
    fused = chained(qa.nn.Graph(*ends, nodes, constants), shapes)
    again = unchained(fused)
    assert [node.op for node in fused.nodes] == ["chain", "chain"] and "affine" in {node.op for node in again.nodes}
    x, y = (rng.normal(size=(2, *shape[1:])).astype(np.float32) * 100 for _ in range(2))
    wanted = qa.nn.Graph(*ends, nodes, constants)(x, y)
    for graph in (fused, again):
        got = graph(x, y)
        assert qa.array_equal(got["c"], wanted["c"]) and np.array_equal(got["r"], wanted["r"])


@pytest.mark.parametrize("integers", [False, True])
def test_affine_functions_as_qonnx_files(tmp_path, integers):
    """A product and a sum of float64 values, rounded once, as a batch norm of PyTorch's is."""
    rng = np.random.default_rng(2)
    Node, Value = qa.nn.Node, qa.nn.Value
    constants = {name: (rng.normal(size=(1, 5, 1, 1)) * 1e3).astype(np.float32) for name in ("factor", "offset")}
    nodes = [
        *[Node("Cast", ("x",), ("v",), {"to": "float32"})] * integers,
        Node("affine", ("v" if integers else "x", "factor", "offset"), ("a",)),
        Node("Relu", ("a",), ("y",)),
    ]
    ends = [Value("x", (1, 5, 7, 9), "int16" if integers else "float32")], [Value("y", (1, 5, 7, 9), "float32")]
    net = qa.nn.Graph(*ends, nodes, constants)
    again = written(net, tmp_path / "net.onnx")
    x = rng.integers(-(2**15), 2**15, (3, 5, 7, 9))
    x = x.astype(np.int16) if integers else (x * rng.random(x.shape)).astype(np.float32)
    np.testing.assert_array_equal(again(x), net(x))


def test_constants_with_a_nan_are_no_chain():
    """The kernel refuses NaN, so the nodes stay, and give NumPy's results."""
    ends = [qa.nn.Value("x", (1, 2), "float32")], [qa.nn.Value("y", (1, 2), "float32")]
    nodes = [qa.nn.Node("Mul", ("x", "k"), ("m",)), qa.nn.Node("Relu", ("m",), ("y",))]
    constants = {"k": np.float32([[1, np.nan]])}
    shapes = {name: ((1, 2), np.dtype(np.float32)) for name in "xmy"}
    fused = chained(qa.nn.Graph(*ends, nodes, constants), shapes)
    x = np.float32([[3, 4], [-3, 4]])
    assert np.array_equal(fused(x), qa.nn.Graph(*ends, nodes, constants)(x), equal_nan=True)


def test_pools_before_falling_batch_norms(tmp_path):
    rng = np.random.default_rng(0)
    numbers = {
        "g": rng.choice([-1.0, 0.0, 2.0], 6),
        "b": rng.integers(-2, 3, 6),
        "m": rng.integers(-5, 6, 6),
        "v": np.ones(6),
    }
    tensors = [("one", np.float32(1)), ("w", rng.choice([-1, 1], (6, 3, 3, 3)).astype(np.float32))]
    tensors += [(name, a.astype(np.float32)) for name, a in numbers.items()]
    nodes = [
        node("BipolarQuant", ["x", "one"], ["a"]),
        node("Conv", ["a", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[3, 3], strides=[2, 2], dilations=[1, 1], ceil_mode=1),
        node("BatchNormalization", ["p", "g", "b", "m", "v"], ["n"], epsilon=0.0),
        node("BipolarQuant", ["n", "one"], ["y"]),
    ]
    m = model(nodes, [("x", (1, 3, 8, 8))], [("y", None)], tensors)
    x = rng.standard_normal((3, 3, 8, 8)).astype(np.float32)
    (wanted,) = evaluator(m).run(None, {"x": x})
    net = qa.nn.load(m)
    assert any(n.op == "max_pool2d" and len(n.inputs) == 2 for n in net.nodes), "no pool of the smallest codes"
    again = written(net, tmp_path / "net.onnx")
    assert np.array_equal(net(x), wanted) and np.array_equal(again(x), wanted)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layers_of_other_axes(tmp_path, axes):
    rng = np.random.default_rng(axes)
    image, kernel = (9, 8, 7)[:axes], (3,) * axes
    bits = [qa.encode(rng.choice([-1, 1], shape), values=(-1, 1)) for shape in ((4, *kernel, 8), (2, *image, 8))]
    conv = getattr(qa.nn, f"Conv{axes}d")(bits[0], padding=1, pad_value=1, bias=[1, -2, 0, 3], dilation=1)
    falling = np.array([True, False, False, True])
    highest = getattr(qa.nn, f"MaxPool{axes}d")(2, ceil_mode=True, dilation=2, stride=1, falling=falling)
    mean = getattr(qa.nn, f"AvgPool{axes}d")(2, padding=1, count_include_pad=True, ceil_mode=True)
    net = qa.nn.Sequential([conv, highest, mean])
    path = tmp_path / "net.onnx"
    net.save(path, x=bits[1])
    x = bits[1].dequantize().astype(np.float32)
    assert np.array_equal(qa.nn.load(path)(x), net(bits[1]))


def test_indices_are_refused(tmp_path):
    net = qa.nn.Sequential([qa.nn.MaxPool2d(2, return_indices=True)])
    with pytest.raises(ValueError, match="indices"):
        net.save(tmp_path / "net.onnx", x=np.zeros((1, 4, 4, 3), np.int8))


def test_values_of_codes_are_reshaped_as_values():
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], (4, 1, 1)).astype(np.float32)
    tensors = [("one", np.float32(1)), ("sign", sign), ("w", rng.choice([-1, 1], (16, 3)).astype(np.float32))]
    nodes = [
        node("BipolarQuant", ["x", "one"], ["a"]),
        node("Mul", ["a", "sign"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["c"], ["d"], axis=1),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    m = model(nodes, [("x", (1, 4, 4, 4))], [("y", None)], tensors)
    x = rng.standard_normal((2, 4, 4, 4)).astype(np.float32)
    (wanted,) = evaluator(m).run(None, {"x": x})
    assert np.array_equal(qa.nn.load(m)(x), wanted)


def test_constants_that_widen_a_value_are_no_chain():
    tensors = [("k", np.ones((1, 4, 1, 1), np.float32)), ("two", np.float32(2))]
    nodes = [node("Mul", ["x", "two"], ["a"]), node("Add", ["a", "k"], ["b"]), node("Relu", ["b"], ["y"])]
    m = model(nodes, [("x", (1, 1, 3, 3))], [("y", None)], tensors)
    x = np.random.default_rng(0).standard_normal((2, 1, 3, 3)).astype(np.float32)
    assert np.array_equal(qa.nn.load(m)(x), np.maximum(x * np.float32(2) + np.ones((1, 4, 1, 1), np.float32), 0))


def test_float64_is_no_chain():
    tensors = [("k", np.ones((1, 4, 1, 1))), ("scale", np.float32(1)), ("zero", np.float32(0)), ("bits", np.float32(4))]
    nodes = [
        node("Mul", ["x", "k"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Cast", ["b"], ["c"], to=1),
        node("Quant", ["c", "scale", "zero", "bits"], ["y"], signed=0, narrow=0, rounding_mode="ROUND"),
    ]
    m = model(nodes, [("x", (1, 4, 3, 3), 11)], [("y", None)], tensors)
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 3))
    assert np.array_equal(qa.nn.load(m)(x), np.rint(np.maximum(x, 0).astype(np.float32)))
