"""Every operator written as ONNX in each dtype: read again, and run by ONNX's reference, it gives equal values."""

import math

import numpy as np
import pytest
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa
from quantarray.nn import Graph, Node, Value

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int64")
SHAPE = (1, 4, 6, 6)


def values(dtype, shape=SHAPE, seed=0):
    """Draw values at codes, at the middle of two, and just beside both; small integers of integer dtypes."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind != "f":
        return rng.integers(0 if dtype[0] == "u" else -9, 10, (2, *shape[1:])).astype(dtype)
    x = (rng.integers(-60, 61, (2, *shape[1:])) * 0.15).astype(dtype)
    beside = rng.integers(-1, 2, x.shape)
    return np.where(
        beside < 0, np.nextafter(x, x.dtype.type(-9)), np.where(beside > 0, np.nextafter(x, x.dtype.type(9)), x)
    )


def check(graph, x, tmp_path, rtol=0.0):
    """Assert equal results of the file, read by the package and run by the reference."""
    with np.errstate(all="ignore"):
        results = listed(graph(x))
        graph.save(tmp_path / "net.onnx")
        read = listed(qa.nn.load(tmp_path / "net.onnx")(x))
        references = evaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"x": x})
    for expected, again, reference in zip(results, read, references, strict=True):
        assert again.dtype == reference.dtype == expected.dtype
        np.testing.assert_array_equal(again, expected)
        np.testing.assert_allclose(reference, expected, rtol=rtol, atol=rtol)


def listed(results):
    """Return the results of a graph of one output or several."""
    return list(results.values()) if isinstance(results, dict) else [results]


# quantisers, as a file has them: scales and zero points in the dtype of x

QUANTISERS = {
    "QuantizeLinear": [node("QuantizeLinear", ["x", "s", "z"], ["y"])],
    "QuantizeLinear of int8": [node("QuantizeLinear", ["x", "s", "i"], ["y"])],
    "QuantizeLinear of an axis": [node("QuantizeLinear", ["x", "each", "zeros"], ["y"], axis=1)],
    "QuantizeLinear of no zero point": [node("QuantizeLinear", ["x", "s"], ["y"])],
    "DequantizeLinear": [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ],
    "DequantizeLinear of an axis": [
        node("QuantizeLinear", ["x", "each", "zeros"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "each", "zeros"], ["y"], axis=1),
    ],
    "Quant": [node("Quant", ["x", "s", "none", "bits"], ["y"], signed=1, narrow=0, rounding_mode="ROUND")],
    "Quant of a zero point": [
        node("Quant", ["x", "s", "three", "bits"], ["y"], signed=1, narrow=0, rounding_mode="FLOOR")
    ],
    "Quant of a channel": [
        node("Quant", ["x", "column", "none", "bits"], ["y"], signed=0, narrow=1, rounding_mode="ROUND")
    ],
    "Quant of few bits": [
        node("Quant", ["x", "s", "three", "two"], ["y"], signed=1, narrow=1, rounding_mode="HALF_UP")
    ],
    "one signed bit": [node("Quant", ["x", "s", "three", "one"], ["y"], signed=1, narrow=0, rounding_mode="ROUND")],
    "BipolarQuant": [node("BipolarQuant", ["x", "s"], ["y"])],
    "MultiThreshold": [node("MultiThreshold", ["x", "T"], ["y"], out_scale=0.5, out_bias=-1.5)],
    "Trunc": [
        node("Quant", ["x", "s", "none", "bits"], ["q"], signed=1, narrow=0, rounding_mode="ROUND"),
        node("Trunc", ["q", "s", "none", "bits", "two"], ["y"], rounding_mode="FLOOR"),
    ],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", QUANTISERS)
def test_quantisers(name, dtype, tmp_path):
    nodes = QUANTISERS[name]
    if "Linear" in name and dtype == "float64":
        pytest.skip("ONNX has no QuantizeLinear of float64")
    real = {"s": 0.3, "none": 0, "three": 3, "bits": 8, "two": 2, "one": 1, "each": [0.1, 0.3, 0.5, 0.7],
            "column": np.reshape([0.1, 0.3, 0.5, 0.7], (4, 1, 1)), "T": [[-3.3, -0.6, 0.3, 1.2, 4.5]]}  # fmt: skip
    tensors = {n: np.asarray(a, dtype) for n, a in real.items()}
    if any(n.op_type == "Trunc" for n in nodes):  # which takes the float32 of a Quant
        tensors = {n: a.astype(np.float32) for n, a in tensors.items()}
    tensors |= {"z": np.uint8(9), "i": np.int8(-3), "zeros": np.array([1, 0, 5, 200], np.uint8)}
    used = {i for n in nodes for i in n.input}
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    m = model(
        nodes, [("x", SHAPE, element)], [("y", None, 1)], [(n, a) for n, a in tensors.items() if n in used], opset=21
    )
    x, graph = values(dtype), qa.nn.load(m)
    rounds = 5e-4 if dtype == "float16" and "Quant" in (n.op_type for n in nodes) else 0  # products with a scale
    np.testing.assert_allclose(graph(x), evaluator(m).run(None, {"x": x})[0], rtol=rounds, strict=True)
    check(graph, x, tmp_path)


# operators of elements, pools, products and movements

CONSTANTS = {"k": 1.5, "each": [[[0.5]], [[1.5]], [[2.0]], [[-1.0]]], "low": -1.25, "high": 3.0}
INTEGERS_OF = {"copies": [1, 2, 3, 1], "count": [4]}  # constants that are int64, whatever x is
RESULTS = {"TopK": ("y", "places")}
OPERATORS = {
    **{op: ([op, "x"], {}) for op in "Identity Relu Abs Neg Floor Ceil Round Sign Mish".split()},
    **{op: ([op, "x", "k"], {}) for op in "Add Sub Mul Div Max Min Sum".split()},
    "LeakyRelu": (["LeakyRelu", "x"], {"alpha": 0.25}),
    "Selu": (["Selu", "x"], {}),
    "Selu of other constants": (["Selu", "x"], {"alpha": 0.75, "gamma": 1.5}),
    "Gelu of tanh": (["Gelu", "x"], {"approximate": "tanh"}),
    "PRelu": (["PRelu", "x", "each"], {}),
    "Clip": (["Clip", "x", "low", "high"], {}),
    "HardTanh": (["HardTanh", "x"], {}),
    "MaxPool": (["MaxPool", "x"], {"kernel_shape": (2, 2), "strides": (2, 2)}),
    "GlobalMaxPool": (["GlobalMaxPool", "x"], {}),
    "ReduceMax": (["ReduceMax", "x"], {"axes": (2,)}),
    "ReduceMin": (["ReduceMin", "x"], {"axes": (2,)}),
    "ArgMax": (["ArgMax", "x"], {"axis": 1}),
    "Flatten": (["Flatten", "x"], {}),
    "Transpose": (["Transpose", "x"], {"perm": (0, 2, 3, 1)}),
    "Concat": (["Concat", "x", "x"], {"axis": 2}),
    "Pad": (["Pad", "x"], {"pads": (0, 0, 1, 0, 0, 0, 0, 2)}),
    "Slice": (["Slice", "x"], {"starts": (1,), "ends": (3,), "axes": (1,)}),
    "Tile": (["Tile", "x", "copies"], {}),
    "TopK": (["TopK", "x", "count"], {"axis": 2}),
    "TopK of the smallest": (["TopK", "x", "count"], {"largest": 0, "sorted": 0}),
    "DepthToSpace": (["DepthToSpace", "x"], {"blocksize": 2}),
    "SpaceToDepth": (["SpaceToDepth", "x"], {"blocksize": 2}),
}
OF_REALS = (
    "Floor Ceil Round HardTanh LeakyRelu Selu PRelu Div Sum Mish Gelu"
).split()  # of integers ONNX has none of these


def small(name, dtype):
    (op, *operands), attributes = OPERATORS[name]
    constants = {n: np.asarray(CONSTANTS[n], np.float64).astype(dtype) for n in operands if n in CONSTANTS}
    constants |= {n: np.array(INTEGERS_OF[n]) for n in operands if n in INTEGERS_OF}
    names = RESULTS.get(op, ("y",))
    node_ = Node(op, tuple(operands), names, attributes)
    x = Value("x", SHAPE, dtype)
    kinds = qa.nn.inference.kinds_of(Graph([x], [Value(n, (), dtype) for n in names], [node_], constants))
    outputs = [Value(n, kinds[n].shape, str(kinds[n].dtype)) for n in names]
    return Graph([x], outputs, [node_], constants)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, dtype, tmp_path):
    graph, x = small(name, dtype), values(dtype)
    if OPERATORS[name][0][0] in OF_REALS and dtype not in FLOATS:
        pytest.skip("ONNX has it for floats alone")
    try:
        check(graph, x, tmp_path)
    except ValueError as error:  # integers of which a result may pass their dtype
        assert dtype not in FLOATS and str(error).startswith(("save: ", "load: ")), error


@pytest.mark.parametrize("op", ["sign", "bipolar"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS[:-1]])  # int64 is refused: no float is exact
def test_signs_times_a_scale(dtype, op, tmp_path):
    """Signs are integers of the network, and floats of the file, where float16 may not meet a float32 scale."""
    nodes = [Node(op, ("x",), ("s",), {}), Node("scale", ("s", "k"), ("y",), {"to": "float32"})]
    outputs = [Value("y", SHAPE, "float32")]
    graph = Graph([Value("x", SHAPE, dtype)], outputs, nodes, {"k": np.array(0.1)})
    x = values(dtype)
    if np.dtype(dtype).kind == "f":
        x[0, 0, 0, :4] = [0.0, -0.0, np.finfo(dtype).smallest_subnormal, -np.finfo(dtype).smallest_subnormal]
    check(graph, x, tmp_path)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_erf(dtype, tmp_path):
    node_ = Node("Erf", ("x",), ("y",), {})
    graph, x = Graph([Value("x", SHAPE, dtype)], [Value("y", SHAPE, dtype)], [node_], {}), values(dtype)
    check(graph, x, tmp_path, 1e-6 if dtype == "float64" else 0.0)  # the reference rounds float64 to float32
    exact = np.array([math.erf(v) for v in x.reshape(-1).tolist()]).reshape(x.shape)
    to = dtype if dtype == "float64" else "float32"
    np.testing.assert_array_equal(graph(x), exact.astype(to).astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu(dtype, tmp_path):
    node_ = Node("Gelu", ("x",), ("y",), {})
    graph, x = Graph([Value("x", SHAPE, dtype)], [Value("y", SHAPE, dtype)], [node_], {}), values(dtype)
    check(graph, x, tmp_path, 1e-6 if dtype == "float64" else 0.0)  # as of Erf


COMPARED = "Greater GreaterOrEqual Less LessOrEqual Equal".split()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", COMPARED)
def test_comparisons(op, dtype, tmp_path):
    """Two comparisons, every operator on their bools, and a choice between the value and a constant."""
    nodes = [Node(op, ("x", "k"), ("a",), {}), Node(op, ("each", "x"), ("b",), {})]
    for name, operands in {"And": ("a", "b"), "Or": ("And", "b"), "Xor": ("Or", "a"), "Not": ("Xor",)}.items():
        nodes.append(Node(name, operands, (name,), {}))
    nodes += [Node("Where", ("Not", "x", "k"), ("y",), {}), Node("Identity", ("Not",), ("bools",), {})]
    constants = {"k": np.array(2, dtype), "each": np.array(CONSTANTS["each"]).astype(dtype)}
    x = values(dtype)
    x[0, :, 0, 0] = 2
    graph = Graph([Value("x", SHAPE, dtype)], [Value("y", SHAPE, dtype), Value("bools", SHAPE, "bool")],
                  nodes, constants)  # fmt: skip
    assert 0 < graph(x)["bools"].mean() < 1
    check(graph, x, tmp_path)


@pytest.mark.parametrize("dtype", FLOATS + ("int32",))
@pytest.mark.parametrize("right", [0, 1])
def test_bucketize(right, dtype, tmp_path):
    limits = np.array([-3, -1.25, 0, 0, 2]).astype(dtype)
    x = values(dtype)
    x[0, :, 0, 0], x[0, 0, 1, 1] = 2, np.nan if dtype != "int32" else 7
    node_ = Node("bucketize", ("x", "limits"), ("y",), {"right": right})
    graph = Graph([Value("x", SHAPE, dtype)], [Value("y", SHAPE, "int64")], [node_], {"limits": limits})
    counted = (limits <= x[..., None]) if right else (limits < x[..., None])
    np.testing.assert_array_equal(graph(x), np.where(np.isnan(x), 5, counted.sum(-1)), strict=True)
    check(graph, x, tmp_path)


CASTS = [(a, b) for a in FLOATS + INTEGERS for b in FLOATS + INTEGERS]


@pytest.mark.parametrize("dtype, to", CASTS)
def test_casts(dtype, to, tmp_path):
    x = np.abs(values(dtype)) if to[0] == "u" else values(dtype)
    graph = Graph([Value("x", SHAPE, dtype)], [Value("y", SHAPE, to)], [Node("Cast", ("x",), ("y",), {"to": to})], {})
    check(graph, x, tmp_path)


ROUNDING = {"Sigmoid": {}, "HardSigmoid": {}, "HardSwish": {}, "Elu": {}, "Softplus": {}, "Tanh": {}, "Sqrt": {},
            "Exp": {}, "Log": {}, "Reciprocal": {}, "Softmax": {"axis": 1}, "AveragePool": {"kernel_shape": (2, 2)},
            "GlobalAveragePool": {}, "ReduceMean": {"axes": (2,)}, "ReduceSum": {"axes": (2,)}}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ROUNDING)
def test_operators_that_round(op, dtype, tmp_path):
    x = np.abs(values(dtype)) + np.asarray(0.5, dtype)
    node_ = Node(op, ("x",), ("y",), ROUNDING[op])
    whole = Graph([Value("x", SHAPE, dtype)], [Value("y", (), dtype)], [node_], {})
    shape = qa.nn.inference.kinds_of(whole)["y"].shape
    graph = Graph([Value("x", SHAPE, dtype)], [Value("y", shape, dtype)], [node_], {})
    check(graph, x, tmp_path, {"float16": 4e-3, "float32": 1e-5, "float64": 1e-6}[dtype])


NORMS = {
    "last axis": (["x", "row", "row"], ["y"], {}),
    "no bias": (["x", "row"], ["y"], {"axis": 3, "epsilon": 0.1}),
    "channels and image": (["x", "each", "k"], ["y", "mean", "inverse"], {"axis": 1, "epsilon": 1e-3}),
    "whole batch": (["x", "k"], ["y", "mean"], {"axis": 0}),
    "two axes, no mean": (["x", "row", "each"], ["y", "", "inverse"], {"axis": -2}),
    "computed scale and bias": (["x", "r", "s"], ["y", "mean", "inverse"], {"axis": -3, "stash_type": 1}),
    "computed scale of a constant": (["c", "x", "each"], ["y", "mean"], {}),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NORMS)
def test_layer_norms(name, dtype, tmp_path):
    """ONNX's reference has statistics in x's dtype; its operator has them in float32."""
    (operands, results, attributes), rng = NORMS[name], np.random.default_rng(1)
    constants = {"row": rng.normal(size=6), "c": rng.normal(size=SHAPE)} | CONSTANTS
    tensors = [(n, np.asarray(a, np.float64).astype(dtype)) for n, a in constants.items() if n in operands]
    nodes = [node("Relu", ["x"], ["r"]), node("Abs", ["x"], ["s"]),
             node("LayerNormalization", operands, results, **attributes)]  # fmt: skip
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    outputs = [(n, None, element if n == "y" else 1) for n in results if n]
    m, x = model(nodes, [("x", SHAPE, element)], outputs, tensors), values(dtype)[:1]
    graph = qa.nn.load(m)
    graph.save(tmp_path / "net.qa")
    graph.save(tmp_path / "net.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"), full_check=True)
    expected = evaluator(m).run(None, {"x": x})
    again = evaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"x": x})
    for run in (graph, qa.nn.load(tmp_path / "net.qa"), qa.nn.load(tmp_path / "net.onnx")):
        got = run(x)
        got = [got] if len(outputs) == 1 else list(got.values())
        for (n, *_), a, b, c in zip(outputs, got, expected, again, strict=True):
            assert a.dtype == (dtype if n == "y" else "float32")
            rough = 4e-3 if dtype == "float16" else 0.0
            np.testing.assert_allclose(a, b.astype(a.dtype), rtol=rough, atol=rough)
            np.testing.assert_allclose(a, c.astype(a.dtype), rtol=rough, atol=rough)


def test_layer_norms_of_a_batch():
    """Constants let a batch have any length, as do computed scales of the sample; a norm of the batch does not."""
    for operands, attributes, batched in (
        (["x", "k"], {}, True),
        (["x", "x"], {}, True),
        (["x", "k"], {"axis": 0}, False),
    ):
        nodes = [node("LayerNormalization", operands, ["y"], **attributes)]
        graph = qa.nn.load(model(nodes, [("x", ("n", 3))], [("y", None)], [("k", np.float32([1, 2, 3]))]))
        assert [v.batched for v in graph.inputs] == [batched]


@pytest.mark.parametrize(
    "operands, results, attributes, why",
    [
        (["x", "k"], ["y"], {"stash_type": 16}, "its stash_type is 16, 1 .float32. is taken"),
        (["x", "long"], ["y"], {}, r"scale and bias \[\(2, 1, 3\)\] must broadcast to \(1, 3\)|shape mismatch"),
        (["x", "k"], ["y"], {"axis": 2}, "axis 2 is not one of 2"),
        (["x", "k"], ["", "y"], {}, "its outputs must be Y, and optionally Mean and InvStdDev"),
        (["x", "wide"], ["y"], {}, "its operands have different dtypes"),
        (["x"], ["y"], {}, "it has 1 operands, 2 to 3 are needed"),
    ],
)
def test_layer_norms_that_are_refused(operands, results, attributes, why):
    tensors = {"k": np.float32([1, 2, 3]), "wide": np.ones(3), "long": np.ones((2, 1, 3), np.float32)}
    nodes = [node("LayerNormalization", operands, results, **attributes)]
    m = model(nodes, [("x", (1, 3))], [("y", None)], [(n, a) for n, a in tensors.items() if n in operands])
    with pytest.raises(ValueError, match=why):
        qa.nn.load(m)
