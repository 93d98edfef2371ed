"""Networks of QuantizeLinear and DequantizeLinear, and of integer operators: packed, and equal to the reference."""

import numpy as np
import pytest
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa


def qdq(zero, dtype, seed=0):
    """conv, relu, pool, conv, dense between quantisers, weights as int8 with a scale an output, biases as int32."""
    rng = np.random.default_rng(seed)
    bound = np.iinfo(dtype)
    tensors = [("s", np.float32(0.25)), ("t", np.float32(0.5)), ("z", np.array(zero, dtype)), ("x_z", np.uint8(3))]
    tensors += [("w_z", np.zeros(5, np.int8)), ("v_z", np.int8(0)), ("b_z", np.zeros(5, np.int32))]
    tensors += [("w", rng.integers(-127, 128, (5, 3, 3, 3)).astype(np.int8)), ("one", np.float32(0.125))]
    tensors += [("w_s", (2.0 ** rng.integers(-4, 0, 5)).astype(np.float32))]
    tensors += [("b", rng.integers(-99, 99, 5).astype(np.int32)), ("v", rng.integers(-8, 8, (45, 4)).astype(np.int8))]
    assert bound.min <= zero <= bound.max
    nodes = [
        node("QuantizeLinear", ["x", "s", "x_z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "x_z"], ["xd"]),
        node("DequantizeLinear", ["w", "w_s", "w_z"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "w_s", "b_z"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "t", "z"], ["rq"]),
        node("DequantizeLinear", ["rq", "t", "z"], ["rd"]),
        node("MaxPool", ["rd"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("DequantizeLinear", ["v", "one", "v_z"], ["vd"]),
        node("MatMul", ["f", "vd"], ["y"]),
    ]
    return model(nodes, [("x", (1, 3, 6, 6))], [("y", None)], tensors)


@pytest.mark.parametrize("zero, dtype", [(0, np.uint8), (7, np.uint8), (128, np.uint8), (0, np.int8), (-128, np.int8)])
def test_quantize_and_dequantize(zero, dtype):
    m = qdq(zero, dtype)
    graph = qa.nn.load(m)
    x = (np.random.default_rng(1).integers(-200, 200, (4, 3, 6, 6)) / 8).astype(np.float32)
    np.testing.assert_array_equal(graph(x), evaluator(m).run(None, {"x": x})[0])
    assert [n.op for n in graph.nodes if n.op in ("conv2d", "linear")] == ["conv2d", "linear"]
    assert not any(n.op in ("Conv", "MatMul", "MaxPool") for n in graph.nodes)


@pytest.mark.parametrize("x_zero, w_zero, y_zero", [(0, 0, 0), (5, 0, 100), (128, 3, 128)])
def test_qlinear_operators(x_zero, w_zero, y_zero):
    rng = np.random.default_rng(2)
    w, v = rng.integers(0, 256, (6, 4, 3, 3)).astype(np.uint8), rng.integers(0, 256, (6 * 16, 5)).astype(np.uint8)
    tensors = [("xz", np.uint8(x_zero)), ("wz", np.uint8(w_zero)), ("yz", np.uint8(y_zero)), ("s", np.float32(0.0625))]
    tensors += [("w", w), ("v", v), ("b", rng.integers(-99, 99, 6).astype(np.int32)), ("u", np.float32(4.0))]
    nodes = [
        node("QLinearConv", ["x", "s", "xz", "w", "s", "wz", "u", "yz", "b"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Flatten", ["c"], ["f"]),
        node("QLinearMatMul", ["f", "s", "yz", "v", "s", "wz", "u", "yz"], ["y"]),
    ]
    m = model(nodes, [("x", (1, 4, 8, 8), 2)], [("y", None, 2)], tensors)
    x = rng.integers(0, 256, (3, 4, 8, 8)).astype(np.uint8)
    graph = qa.nn.load(m)
    got = graph(x)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, evaluator(m).run(None, {"x": x})[0])
    assert {"conv2d", "linear"} <= {n.op for n in graph.nodes}


def test_operators_of_integers():
    rng = np.random.default_rng(3)
    w, v = rng.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8), rng.integers(-128, 128, (54, 5)).astype(np.int8)
    tensors = [
        ("xz", np.uint8(9)),
        ("w", w),
        ("v", v),
        ("n", np.array([0, -1])),
        ("s", np.float32(64)),
        ("z", np.uint8(7)),
    ]
    nodes = [
        node("ConvInteger", ["x", "w", "xz"], ["c"]),
        node("Cast", ["c"], ["f"], to=1),
        node("QuantizeLinear", ["f", "s", "z"], ["q"]),
        node("Reshape", ["q", "n"], ["r"]),
        node("MatMulInteger", ["r", "v", "z"], ["y"]),
    ]
    m = model(nodes, [("x", (1, 4, 5, 5), 2)], [("y", None, 6)], tensors)
    x = rng.integers(0, 256, (3, 4, 5, 5)).astype(np.uint8)
    graph = qa.nn.load(m)
    expected = evaluator(m).run(None, {"x": x})[0]
    got = graph(x)
    assert got.dtype == np.int32 and onnx.__version__
    np.testing.assert_array_equal(got, expected)
    assert {"conv2d", "linear"} <= {n.op for n in graph.nodes}


@pytest.mark.parametrize("zero", [0, 9, -128])
@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Sigmoid", "Abs", "Exp", "PRelu", "Identity"])
def test_functions_of_bytes_are_looked_up(op, zero, tmp_path):
    """Of all bytes, in one node; a slope for each channel is none of them."""
    tensors = [("s", np.float32(0.03)), ("z", np.int8(zero)), ("t", np.float32(0.05)), ("u", np.uint8(100))]
    tensors += [("slope", np.float32([[0.5], [-1]]))]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        node(op, ["d", "slope"] if op == "PRelu" else ["d"], ["r"]),
        node("QuantizeLinear", ["r", "t", "u"], ["y"]),
    ]
    used = {i for n in nodes for i in n.input}
    m = model(nodes, [("x", (1, 2, 128), 3)], [("y", None, 2)], [(n, a) for n, a in tensors if n in used])
    graph, x = qa.nn.load(m), np.arange(256, dtype=np.uint8).view(np.int8).reshape(1, 2, 128)
    expected = evaluator(m).run(None, {"x": x})[0]
    for path in ("net.qa", "net.onnx"):
        graph.save(tmp_path / path)
        np.testing.assert_array_equal(qa.nn.load(tmp_path / path)(x), expected, strict=True)
    np.testing.assert_array_equal(graph(x), expected, strict=True)
    assert ([n.op for n in graph.nodes if n.op != "Identity"] == ["Gather"]) == (op != "PRelu")


def test_a_function_that_has_no_integer_for_some_bytes_raises():
    nodes = [
        node("DequantizeLinear", ["x", "s"], ["d"]),
        node("Log", ["d"], ["r"]),
        node("QuantizeLinear", ["r", "s"], ["y"]),
    ]
    graph = qa.nn.load(model(nodes, [("x", (1, 3), 3)], [("y", None, 2)], [("s", np.float32(0.5))]))
    assert graph(np.int8([[2, 4, 100]])).tolist() == [[0, 1, 8]]
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"no NaN, got one at \(0, 1\)"):
        graph(np.int8([[2, -1, 100]]))


def dynamic(*results):
    return node("DynamicQuantizeLinear", ["x"], list(results))


@pytest.mark.parametrize("values", ["around 0", "above 0", "below 0", "of zeros", "of halves", "tiny"])
def test_dynamic_quantization(values, tmp_path):
    x = np.random.default_rng(4).normal(0, 3, (2, 5, 7)).astype(np.float32)
    others = {"above 0": np.abs(x) + 1, "below 0": -np.abs(x) - 1, "of zeros": 0 * x, "tiny": x * np.float32(1e-30)}
    x = others.get(values, x)
    if values == "of halves":  # each is between two codes
        x = np.append(np.float32([-2.5, 252.5]), np.arange(0.5, 33)).astype(np.float32).reshape(1, 5, 7)
    m = model([dynamic("y", "s", "z")], [("x", x.shape)], [("y", None, 2), ("s", None), ("z", None, 2)])
    graph = qa.nn.load(m)
    graph.save(tmp_path / "net.onnx")
    graph.save(tmp_path / "net.qa")
    for run in (graph, qa.nn.load(tmp_path / "net.onnx"), qa.nn.load(tmp_path / "net.qa")):
        for got, expected in zip(run(x).values(), evaluator(m).run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(got, expected, strict=True)


DYNAMIC = {
    "matrix": ("MatMulInteger", (3, 8), (8, 4), {}),
    "matrices": ("MatMulInteger", (2, 3, 8), (8, 4), {}),
    "image": ("ConvInteger", (2, 4, 5, 6), (6, 4, 3, 3), {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
    "groups": ("ConvInteger", (2, 4, 5, 6), (4, 1, 3, 3), {"group": 4}),
    "row": ("ConvInteger", (1, 4, 9), (3, 4, 2), {"pads": [1, 1], "dilations": [2]}),
}


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", DYNAMIC)
def test_products_of_dynamic_integers(name, each, tmp_path):
    """As dynamic quantisation writes them: of integers with a zero point that is computed, counted as bytes."""
    (op, shape, kernel, attributes), rng = DYNAMIC[name], np.random.default_rng(5)
    if name == "row" and each:
        pytest.skip("ONNX's reference has it for images alone")
    outputs = kernel[1] if op == "MatMulInteger" else kernel[0]
    w_zero = rng.integers(-9, 9, outputs) if each else np.array(rng.integers(-9, 9))
    tensors = [("w", rng.integers(-99, 100, kernel).astype(np.int8)), ("w_z", w_zero.astype(np.int8))]
    nodes = [dynamic("q", "s", "z"), node(op, ["q", "w", "z", "w_z"], ["y"], **attributes)]
    m = model(nodes, [("x", shape)], [("y", None, 6)], tensors)
    graph, x = qa.nn.load(m), rng.normal(1, 2, shape).astype(np.float32)
    expected = evaluator(m).run(None, {"x": x})[0]
    np.testing.assert_array_equal(graph(x), expected, strict=True)
    assert {"linear", "conv1d", "conv2d"} & {n.op for n in graph.nodes} and op not in {n.op for n in graph.nodes}
    for path in (tmp_path / "net.qa", tmp_path / "net.onnx"):
        graph.save(path)
        np.testing.assert_array_equal(qa.nn.load(path)(x), expected, strict=True)


@pytest.mark.parametrize(
    "op, operands, why",
    [
        ("ConvInteger", ["x", "w", "two"], r"operand 2, of shape \(2,\), must be one number$"),
        ("ConvInteger", ["x", "w", "z", "two"], r"operand 3, of shape \(2,\), must be one number for each output"),
        (
            "QLinearConv",
            ["x", "s", "z", "w", "ss", "z", "s", "z"],
            r"operand 4, of shape \(2,\), must be one number for",
        ),
        ("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "two"], r"operand 7, of shape \(2,\), must be one number$"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(op, operands, why):
    tensors = [("w", np.ones((3, 4, 2, 2), np.uint8)), ("two", np.ones(2, np.uint8)), ("z", np.uint8([[1]]))]
    tensors += [("s", np.float32(1)), ("ss", np.ones(2, np.float32))]
    m = model([node(op, operands, ["y"])], [("x", (1, 4, 5, 5), 2)], [("y", None, 6)], tensors)
    with pytest.raises(ValueError, match=why):
        qa.nn.load(m)


def test_zero_points_are_integers_of_any_size():
    """Levels reach 2**31; beyond, the difference is computed in NumPy."""
    nodes = [node("Clip", ["x", "low", "high"], ["c"]), node("DequantizeLinear", ["c", "s", "z"], ["y"])]
    tensors = [("low", np.int32(-3)), ("high", np.int32(4)), ("s", np.float32(1))]
    x = np.array([[-9, 1, 3]], np.int32)
    for zero in (-(2**31), 2**31 - 1):
        m = model(nodes, [("x", (1, 3), 6)], [("y", None)], [*tensors, ("z", np.int32(zero))])
        np.testing.assert_array_equal(qa.nn.load(m)(x), np.float32(np.clip(x.astype(np.int64), -3, 4) - zero))
    with pytest.raises(ValueError, match="its zero point must be integers, not float32"):
        qa.nn.load(model(nodes, [("x", (1, 3), 6)], [("y", None)], [*tensors, ("z", np.float32(1))]))


def test_a_computed_zero_point_may_be_an_input():
    """Of an axis of its own, of one element; and one that is not alone stays in NumPy."""
    rng = np.random.default_rng(6)
    x, w = rng.integers(0, 256, (3, 8)).astype(np.uint8), rng.integers(-128, 128, (8, 4)).astype(np.int8)
    for zero in (np.uint8([7]), np.uint8([1, 2, 200])):
        m = model([node("MatMulInteger", ["x", "w", "z"], ["y"])], [("x", x.shape, 2), ("z", zero.shape, 2)],
                  [("y", None, 6)], [("w", w)])  # fmt: skip
        graph = qa.nn.load(m)
        expected = (x.astype(np.int32) - zero.astype(np.int32).reshape(-1, 1)) @ w.astype(np.int32)
        np.testing.assert_array_equal(graph(x=x, z=zero), expected, strict=True)
        assert ("linear" in [n.op for n in graph.nodes]) == (zero.size == 1)


def test_dynamic_quantization_names_a_nan():
    m = model([dynamic("y", "s", "z")], [("x", (1, 2, 3))], [("y", None, 2)])
    x = np.ones((1, 2, 3), np.float32)
    x[0, 1, 2] = np.nan
    with pytest.raises(ValueError, match=r"DynamicQuantizeLinear.*x must hold no NaN, got one at \(0, 1, 2\)"):
        qa.nn.load(m)(x)


@pytest.mark.parametrize("dtype, shape", [("float16", (2, 3)), ("float32", (0, 3))])
def test_dynamic_quantization_that_is_refused(dtype, shape):
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    m = model([dynamic("y", "s", "z")], [("x", shape, element)], [("y", None, 2)])
    with pytest.raises(
        ValueError, match=r"DynamicQuantizeLinear.*it quantises .* of shape .*, not float32 with elements"
    ):
        qa.nn.load(m)


def test_gelu_names_what_it_approximates_by():
    m = model([node("Gelu", ["x"], ["y"], approximate="erf")], [("x", (2, 3))], [("y", None)])
    with pytest.raises(ValueError, match="approximate is 'erf', 'none' and 'tanh' are taken"):
        qa.nn.load(m)
