"""NaN has no code: quantisers of graphs name its first index in an error, other operators give NaN as ONNX has it."""

import numpy as np
import pytest
from onnx_models import model, node
from qonnx_reference import evaluator

import quantarray as qa

F = np.float32
TENSORS = {
    "s": F(0.5),
    "none": F(0),
    "bits": F(2),
    "b8": F(8),
    "one": F(1),
    "z": np.uint8(3),
    "zero": F(0),
    "inf": F(np.inf),
    "T3": F([[-1, 0.5, 2]]),
    "T20": np.linspace(-3, 3, 20).astype(F)[None],
    "each": F([[[0.5]], [[-1]]]),
    "c": F([[[0.5]], [[2]]]),
    "neg": F(-2),
    "low": F(-1),
    "high": F(1),
    "w": np.ones((2, 2, 1, 1), F),
    "axes": np.array([1]),
    "g": F([1, -1]),
    "b": F([0, 1]),
    "v": F([1, 1]),
    "m": np.ones((3, 2), F),
    "pads": np.array([0, 0, 1, 0, 0, 0, 0, 0]),
    "scales": F([1, 1, 2, 4]),
}


def quant(x, y, bits="bits", **a):
    return node("Quant", [x, "s", "none", bits], [y], **{"signed": 1, "narrow": 0, "rounding_mode": "ROUND", **a})


QUANTISERS = {
    "few codes": lambda x: [quant(x, "y")],
    "many codes": lambda x: [quant(x, "y", "b8")],
    "a sign": lambda x: [quant(x, "y", "one")],
    "of what turns": lambda x: [node("PRelu", [x, "each"], ["p"]), quant("p", "y")],
    "one sign of what turns": lambda x: [node("PRelu", [x, "each"], ["p"]), quant("p", "y", "one")],
    "after functions": lambda x: [node("Mul", [x, "c"], ["p"]), node("Relu", ["p"], ["r"]), quant("r", "y")],
    "after a pool": lambda x: [node("MaxPool", [x], ["p"], kernel_shape=[1, 2]), quant("p", "y", "b8")],
    "BipolarQuant": lambda x: [node("BipolarQuant", [x, "s"], ["y"])],
    "bipolar of what turns": lambda x: [node("PRelu", [x, "each"], ["p"]), node("BipolarQuant", ["p", "s"], ["y"])],
    "MultiThreshold": lambda x: [node("MultiThreshold", [x, "T3"], ["y"])],
    "many thresholds": lambda x: [node("MultiThreshold", [x, "T20"], ["y"])],
    "Sign": lambda x: [node("Sign", [x], ["y"])],
    "sign of what turns": lambda x: [node("PRelu", [x, "each"], ["p"]), node("Sign", ["p"], ["y"])],
    "Trunc": lambda x: [node("Trunc", [x, "s", "none", "b8", "bits"], ["y"], rounding_mode="FLOOR")],
    "QuantizeLinear": lambda x: [node("QuantizeLinear", [x, "s", "z"], ["y"])],
    "and back": lambda x: [
        node("QuantizeLinear", [x, "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ],
    "Cast": lambda x: [node("Cast", [x], ["y"], to=6)],
}
SOURCES = {
    "of the input": [],
    "0 / 0": [node("Div", ["x", "zero"], ["v_"])],
    "inf - inf": [node("Mul", ["x", "inf"], ["i"]), node("Sub", ["i", "i"], ["v_"])],
    "0 * inf": [node("Mul", ["x", "inf"], ["v_"])],
    "log of a negative": [node("Log", ["x"], ["v_"])],
    "codes * inf": [quant("x", "c8", "b8"), node("Mul", ["c8", "inf"], ["v_"])],
    "codes / 0": [quant("x", "c8", "b8"), node("Div", ["c8", "zero"], ["v_"])],
}


def loaded(nodes):
    used = {i for n in nodes for i in n.input}
    m = model(nodes, [("x", (1, 2, 2, 3))], [("y", None)], [(n, a) for n, a in TENSORS.items() if n in used])
    return m, qa.nn.load(m)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", QUANTISERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_quantisers_name_the_first_index(name, source):
    x = np.ones((2, 2, 2, 3), F)
    at = (1, 0, 1, 2)
    x[at] = np.nan if source == "of the input" else -1 if "log" in source else 0
    if source == "inf - inf":
        at = (0, 0, 0, 0)  # all of them are NaN
    if name == "after a pool" and at[-1]:
        at = (*at[:-1], 1)  # of its window
    _, graph = loaded([*SOURCES[source], *QUANTISERS[name]("v_" if SOURCES[source] else "x")])
    place = ", ".join(map(str, at))
    inside = rf"x must hold no NaN, got one at \({place}\)|values must hold no NaN, got one at \({place}\)"
    with pytest.raises(ValueError, match=rf"{inside}|the input x has a NaN at "):
        graph(x)


OPERATORS = {
    **{
        op: ([op, "x"], {})
        for op in "Relu LeakyRelu Abs Neg Floor Ceil Round Sigmoid HardSigmoid HardSwish Tanh Mish Gelu Elu Selu Erf "
        "Softplus Sqrt Exp Log Reciprocal GlobalMaxPool GlobalAveragePool".split()
    },
    **{op: ([op, "x", "low"], {}) for op in "Add Sub Mul Div Max Min".split()},
    "PRelu": (["PRelu", "x", "each"], {}),
    "Clip": (["Clip", "x", "low", "high"], {}),
    "Conv": (["Conv", "x", "w"], {}),
    "MatMul": (["MatMul", "x", "m"], {}),
    "BatchNormalization": (["BatchNormalization", "x", "g", "b", "b", "v"], {}),
    "Softmax": (["Softmax", "x"], {"axis": 1}),
    "LayerNormalization": (["LayerNormalization", "x", "each"], {"axis": 2}),
    "ReduceMax": (["ReduceMax", "x", "axes"], {}),
    "ReduceSum": (["ReduceSum", "x", "axes"], {}),
    "Pad": (["Pad", "x", "pads"], {}),
    "Transpose": (["Transpose", "x"], {"perm": [0, 3, 1, 2]}),
    "linear Resize": (["Resize", "x", "", "scales"], {"mode": "linear"}),
    "cubic Resize": (["Resize", "x", "", "scales"], {"mode": "cubic"}),
    "Flatten": (["Flatten", "x"], {}),
    "Concat": (["Concat", "x", "x"], {"axis": 1}),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_of_floats_give_nan_where_the_reference_does(name):
    (op, *operands), attributes = OPERATORS[name]
    m, graph = loaded([node(op, operands, ["y"], **attributes)])
    x = np.random.default_rng(0).normal(size=(2, 2, 2, 3)).astype(F)
    x[1, 0, 1, 2] = np.nan
    expected = evaluator(m).run(None, {"x": x})[0]
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    np.testing.assert_allclose(graph(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_with_a_nan_is_nan(op):
    """ONNX's reference ignores NaN, because it pads with NaN."""
    _, graph = loaded([node(op, ["x"], ["y"], kernel_shape=[1, 2])])
    x = np.zeros((1, 2, 2, 3), F)
    x[0, 1, 0, 0] = np.nan
    assert np.argwhere(np.isnan(graph(x))).tolist() == [[0, 1, 0, 0]]


def test_infinities_have_codes_unless_the_functions_before_make_nan_of_them():
    """A norm of gamma 0 gives NaN for an infinity, which thresholds could not tell from a number."""
    norm = node("BatchNormalization", ["x", "gamma", "b", "b", "v"], ["n"])
    tensors = [(n, TENSORS[n]) for n in ("b", "v", "s", "none", "bits")]
    x = np.ones((1, 2, 2, 3), F)
    x[0, 1, 0, 0] = np.inf
    for gamma, code in (([1.0, -1.0], -2), ([1.0, 0.0], None)):
        m = model([norm, quant("n", "y")], [("x", x.shape)], [("y", None)], [*tensors, ("gamma", F(gamma))])
        graph = qa.nn.load(m)
        if code is not None:
            assert graph(x)[0, 1, 0, 0] == code * F(0.5)
            continue
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"no NaN, got one at \(0, 1, 0, 0\)"):
            graph(x)
