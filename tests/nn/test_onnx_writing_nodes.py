"""Operations of a graph that run in NumPy, and those of graphs built by hand, written as QONNX files."""

import numpy as np
import pytest
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa
from quantarray.nn import Graph, Node, Value

RNG = np.random.default_rng(5)
SCALARS = {
    "one": np.float32(1), "half": np.float32(0.5), "zero": np.float32(0), "three": np.float32(3),
    "bits4": np.float32(4), "bits8": np.float32(8), "bits24": np.float32(24), "bits1": np.float32(1),
}  # fmt: skip
TENSORS = {
    "each": (2.0 ** RNG.integers(-2, 2, (1, 4, 1, 1))).astype(np.float32),
    "zeros": RNG.integers(-3, 3, (1, 4, 1, 1)).astype(np.float32),
    "slope": np.array([0.25, -0.5, 1, -1], np.float32).reshape(4, 1, 1),
    "T20": np.sort(RNG.integers(-30, 30, (4, 20)), axis=1).astype(np.float32),
    "T3": np.sort(RNG.integers(-9, 9, (1, 3)), axis=1).astype(np.float32),
    "line": RNG.integers(-3, 4, (3, 4, 2)).astype(np.float32),
    "pads": np.array([0, 0, 1, 2, 0, 0, 0, 1]),
    "axes": np.array([1, 2]),
    "flat": np.array([0, 4, 36]),
    "table": RNG.integers(-100, 100, 16).astype(np.int8),
    "qs": np.float32(0.75),
    "qz": np.array([1, 2, 3, 4], np.int8),
    "scales": (2.0 ** RNG.integers(-2, 2, 4)).astype(np.float32),
    **SCALARS,
}


def quant(x, y, bits="bits4", scale="half", zero="zero", signed=1, **a):
    return node("Quant", [x, scale, zero, bits], [y], **{"signed": signed, "narrow": 0, "rounding_mode": "ROUND", **a})


FOUR = (1, 4, 6, 6)
CASES = {
    "a quantiser of a scale each": [quant("x", "y", scale="each")],
    "a zero point": [quant("x", "y", zero="three", bits="bits8")],
    "a zero point, then a product": [quant("x", "q", zero="three", bits="bits8"), node("Mul", ["q", "q"], ["y"])],
    "a zero point each": None,
    "24 bits": [quant("x", "y", bits="bits24", scale="one")],
    "one signed bit": [quant("x", "y", bits="bits1")],
    "one signed bit of what turns": [node("PRelu", ["x", "slope"], ["p"]), quant("p", "y", bits="bits1", zero="three")],
    "bipolar of what turns": [node("PRelu", ["x", "slope"], ["p"]), node("BipolarQuant", ["p", "half"], ["y"])],
    "sign of what turns": [node("PRelu", ["x", "slope"], ["p"]), node("Sign", ["p"], ["y"])],
    "many thresholds": [node("MultiThreshold", ["x", "T20"], ["y"], out_scale=0.5, out_bias=-3.0)],
    "many bipolar thresholds": [node("MultiThreshold", ["x", "T20"], ["y"], out_scale=2.0, out_bias=-19.0)],
    "thresholds with an odd bias": [node("MultiThreshold", ["x", "T3"], ["y"], out_scale=2.0, out_bias=-3.0)],
    "thresholds with any bias": [node("MultiThreshold", ["x", "T3"], ["y"], out_scale=0.5, out_bias=0.3)],
    "truncated": [quant("x", "q", bits="bits8"), node("Trunc", ["q", "half", "zero", "bits8", "bits4"], ["y"],
                                                      rounding_mode="FLOOR")],
    "floor": [quant("x", "y", bits="bits8", rounding_mode="FLOOR")],
    "hard tanh": [node("HardTanh", ["x"], ["y"], min_val=-2.0, max_val=1.5)],
    "a product of computed matrices": [quant("x", "q"), node("Transpose", ["q"], ["t"], perm=[0, 1, 3, 2]),
                                       node("MatMul", ["q", "t"], ["y"])],
    "a convolution of one axis": [quant("x", "q"), node("Reshape", ["q", "flat"], ["r"]),
                                  quant("line", "w", scale="one"), node("Conv", ["r", "w"], ["y"])],
    "sums": [quant("x", "q"), node("ReduceSum", ["q", "axes"], ["y"])],
    "largest": [quant("x", "q"), node("ReduceMax", ["q", "axes"], ["y"], keepdims=0)],
    "largest of all": [quant("x", "q"), node("GlobalMaxPool", ["q"], ["y"])],
    "the place of the largest": [quant("x", "q"), node("ArgMax", ["q"], ["y"], axis=1)],
    "flat softmax": None,
    "borders": [quant("x", "q"), node("Pad", ["q", "pads"], ["y"])],
    "borders of a number": [quant("x", "q"), node("Pad", ["q", "pads", "three"], ["y"])],
    "borders of copies": [quant("x", "q"), node("Pad", ["q", "pads"], ["y"], mode="edge")],
    "a table": [quant("x", "q", scale="one", signed=0), node("Cast", ["q"], ["i"], to=7),
                node("Gather", ["table", "i"], ["y"])],
    "a table, then a quantiser": [quant("x", "q", scale="one", signed=0), node("Cast", ["q"], ["i"], to=7),
                                  node("Gather", ["table", "i"], ["g"]), node("Cast", ["g"], ["f"], to=1),
                                  quant("f", "y", scale="three")],
    "casts": [quant("x", "q", scale="one"), node("Cast", ["q"], ["a"], to=3), node("Cast", ["a"], ["b"], to=11),
              node("Cast", ["b"], ["y"], to=7)],
    "casts of fractions": [node("Cast", ["x"], ["a"], to=6), node("Cast", ["a"], ["y"], to=1)],
    "a zero point an axis": [node("QuantizeLinear", ["x", "scales", "qz"], ["q"], axis=1),
                             node("DequantizeLinear", ["q", "scales", "qz"], ["y"], axis=1)],
    "integers added": [quant("x", "q", scale="one"), quant("x", "r", scale="half", bits="bits8"),
                       node("Add", ["q", "r"], ["s"]), node("Sub", ["s", "r"], ["t"]), node("Mul", ["t", "q"], ["y"])],
    "integers of a dtype": [node("Cast", ["x"], ["a"], to=6), node("Abs", ["a"], ["b"]), node("Neg", ["b"], ["c"]),
                            node("Max", ["c", "a"], ["d"]), node("Min", ["d", "b"], ["e"]), node("Relu", ["e"], ["f"]),
                            node("Sign", ["f"], ["y"])],
}  # fmt: skip
CASES["a zero point each"] = [node("Div", ["x", "each"], ["d"]), node("Add", ["d", "zeros"], ["a"]), quant("a", "y")]
CASES["flat softmax"] = [node("Softmax", ["x"], ["y"], axis=1)]


def assert_equal(got, expected):
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CASES)
def test_operations(name, tmp_path):
    nodes = CASES[name]
    used = {i for n in nodes for i in n.input}
    tensors = [(n, a) for n, a in TENSORS.items() if n in used]
    opset = 12 if name == "flat softmax" else 20
    graph = qa.nn.load(model(nodes, [("x", FOUR)], [("y", None)], tensors, opset=opset))
    x = (RNG.integers(-60, 61, (3, *FOUR[1:])) / 4).astype(np.float32)
    graph.save(tmp_path / "net.onnx")
    onnx.checker.check_model(str(tmp_path / "net.onnx"), full_check=True)
    again = qa.nn.load(tmp_path / "net.onnx")
    assert_equal(again(x), graph(x))
    if name != "flat softmax":  # the reference computes it in float32
        assert_equal(evaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"x": x})[0], graph(x))
    again.save(tmp_path / "again.onnx")
    assert_equal(qa.nn.load(tmp_path / "again.onnx")(x), graph(x))


# graphs built by hand


def built(nodes, constants, x, y):
    return Graph([Value("x", *x)], [Value("y", *y)], [Node(*n) for n in nodes], constants)


def test_codes_and_labels(tmp_path):
    """Codes of packed values, other levels for them, reshaped and transposed."""
    cut = qa.Thresholds([-5, 0, 5], per_channel=False, into=qa.integers(0, 1, 4, 9))
    nodes = [
        ("threshold", ("x", "T"), ("q",), {"axis": 1}),
        ("relabel", ("q",), ("r",), {"levels": (-3, 0, 1, 7)}),
        ("relabel", ("r",), ("s",), {"levels": (-2, 1, 2, 8)}),
        ("transpose", ("s",), ("t",), {"perm": (0, 2, 1)}),
        ("reshape", ("t",), ("u",), {"shape": (-1, 12)}),
        ("codes", ("u",), ("c",), {}),
        ("unpack", ("u",), ("v",), {}),
        ("Add", ("c", "v"), ("y",), {}),
    ]
    graph = built(nodes, {"T": cut}, ((1, 3, 4), "int32"), ((1, 12), "int32"))
    x = RNG.integers(-9, 10, (5, 3, 4)).astype(np.int32)
    graph.save(tmp_path / "net.onnx")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.onnx")(x), graph(x))


@pytest.mark.parametrize("pair", [True, False])
def test_tables_of_codes(pair, tmp_path):
    """A table for the codes of one packed value, and for those of two of other bits."""
    cuts = [qa.Thresholds(t, per_channel=False, into=qa.integers(*range(-1, len(t)))) for t in ([-5, 0, 5], [1])]
    nodes = [
        ("threshold", ("x", "T"), ("q",), {"axis": 1}),
        ("threshold", ("x", "U"), ("r",), {"axis": 1}),
        ("look_up", ("q", "table", "r") if pair else ("q", "table"), ("s",), {"low": -7, "high": 3}),
        ("unpack", ("s",), ("y",), {}),
    ]
    table = RNG.integers(0, 11, 8 if pair else 4).astype(np.uint8)
    constants = {"T": cuts[0], "U": cuts[1], "table": table}
    graph = built(nodes, constants, ((1, 3, 4), "int32"), ((1, 3, 4), "int32"))
    x = RNG.integers(-9, 10, (5, 3, 4)).astype(np.int32)
    expected = table[(x[..., None] > [-5, 0, 5]).sum(axis=-1) + (4 * (x > 1) if pair else 0)].astype(int) - 7
    np.testing.assert_array_equal(graph(x), expected)
    graph.save(tmp_path / "net.onnx")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.onnx")(x), expected)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("signed", [True, False])
def test_narrow_inputs(bits, signed, tmp_path):
    """An input of few values has the element type of ONNX with that range."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    dtype = "int8" if signed else "uint8"
    x = Value("x", (1, 5), dtype, True, *((low, high) if bits < 8 else (None, None)))
    graph = Graph([x], [Value("y", (1, 5), dtype)], [Node("Add", ("x", "one"), ("y",))], {"one": np.ones((), dtype)})
    graph.save(tmp_path / "net.onnx")
    again = qa.nn.load(tmp_path / "net.onnx")
    assert again.inputs == graph.inputs
    values = RNG.integers(low, high + 1, (4, 5)).astype(dtype)
    got = again(values)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, graph(values))


def test_what_has_no_form(tmp_path):
    """All parts at once, each with its reason, and no file."""
    nodes = [
        ("Cast", ("x",), ("a",), {"to": "int64"}),
        ("ReduceMean", ("a",), ("m",), {"axes": (1,)}),
        ("sum_pool", ("image",), ("s",), {"kernel_shape": (2,)}),
        ("Add", ("m", "a"), ("y",), {}),
    ]
    inputs = [Value("x", (1, 3), "float32"), Value("image", (1, 2, 4), "float32")]
    outputs = [Value("y", (1, 3), "int64"), Value("s", (1, 2, 3), "float32")]
    with pytest.raises(ValueError) as caught:
        Graph(inputs, outputs, [Node(*n) for n in nodes], {}).save(tmp_path / "net.onnx")
    lines = str(caught.value).splitlines()
    assert lines[0] == "save: 2 parts of the network have no form in an ONNX file:"
    assert lines[1] == "  ReduceMean 'm': means of integers, which are cut off to integers, have no operator in ONNX"
    assert lines[2] == "  sum_pool 's': sums of floats have no operator in ONNX"
    with pytest.raises(ValueError, match="save: the graph has no form in a file: Add"):
        built([("Add", ("x", "a"), ("y",), {})], {"a": qa.ones((1, 4), qa.ternary)}, ((1, 4), "float32"),
              ((1, 4), "float32")).save(tmp_path / "net.onnx")  # fmt: skip
    with pytest.raises(ValueError, match="the output 'x' is an input"):
        Graph([Value("x", (1, 4), "float32")], [Value("x", (1, 4), "float32")], [], {}).save(tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("element, low", [(21, 0), (22, -8), (25, 0), (26, -2)])
def test_narrow_results_of_computed_scales(element, low, tmp_path):
    """Only the type of the zero point says how wide the result is."""
    zero = onnx.helper.make_tensor("z", element, (), [1])
    m = model([node("QuantizeLinear", ["x", "s", "z"], ["y"])], [("x", (1, 6)), ("s", ())], [("y", (1, 6), element)],
              opset=25)  # fmt: skip
    m.graph.initializer.append(zero)
    graph = qa.nn.load(m)
    graph.save(tmp_path / "net.onnx")
    x = np.linspace(-20, 20, 6, dtype=np.float32)[None]
    expected = graph(x=x, s=np.float32(1.5))
    assert expected.min() == low
    assert_equal(qa.nn.load(tmp_path / "net.onnx")(x=x, s=np.float32(1.5)), expected)


@pytest.mark.parametrize("op", ["conv2d", "linear"])
def test_codes_of_uneven_levels_are_looked_up(op, tmp_path):
    shape, taps = ((1, 3, 6, 6), (3, 3)) if op == "conv2d" else ((1, 12), ())
    w = qa.encode(RNG.choice([-1, 1], (4, shape[1], *taps)), values=(-1, 1), axis=1)
    T, levels = qa.Thresholds([0.0, 1.0, 2.0], per_channel=False), np.float32([0, 0.3, 0.8, 1.5])
    windows = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1} if taps else {}
    nodes = [
        Node("threshold", ("x", "T"), ("c",), {"axis": 1, "last": not taps}),
        Node(op, ("c", "w", "", "levels"), ("y",), windows),
    ]
    y = Value("y", (1, 4, *shape[2:]), "float32")
    graph = Graph([Value("x", shape, "float32")], [y], nodes, {"T": T, "w": w, "levels": levels})
    x = RNG.standard_normal((2, *shape[1:])).astype(np.float32)
    graph.save(tmp_path / "net.onnx")
    np.testing.assert_allclose(qa.nn.load(tmp_path / "net.onnx")(x), graph(x), rtol=1e-6, atol=1e-6)
