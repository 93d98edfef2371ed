"""Constants of one element and any rank, before operators that change the shape: shapes and values of the reference."""

import numpy as np
import pytest
from onnx_models import model, node
from qonnx_reference import evaluator

import quantarray as qa

IMAGE = (1, 1, 3, 4)
RANKS = [(1,) * n for n in range(5)]
FLOAT = np.float32


def quant(x, y, scale="k"):
    return node("Quant", [x, scale, "zero", "bits"], [y], signed=1, narrow=0, rounding_mode="ROUND")


# a constant of one element in each place that it may have; "k" is that constant, "q" codes of x
BEFORE = {
    "a scale of Quant": [quant("x", "v")],
    "a scale of BipolarQuant": [node("BipolarQuant", ["x", "k"], ["v"])],
    "a scale of Trunc": [quant("x", "q", "half"), node("Trunc", ["q", "half", "zero", "bits", "three"], ["v"])],
    "an addend": [quant("x", "q"), node("Add", ["q", "k"], ["v"])],
    "a minuend": [quant("x", "q"), node("Sub", ["k", "q"], ["v"])],
    "a factor": [node("Mul", ["x", "k"], ["v"])],
    "a divisor": [node("Div", ["x", "k"], ["v"])],
    "a slope": [quant("x", "q", "half"), node("PRelu", ["q", "k"], ["v"])],
    "a bound": [quant("x", "q", "half"), node("Max", ["q", "k"], ["v"])],
    "one channel of a bias": [quant("x", "q"), node("Conv", ["q", "w", "bias"], ["v"])],
    "one channel of a bias of floats": [node("Conv", ["x", "w", "bias"], ["v"])],
    "one channel of a norm": [node("BatchNormalization", ["x", "bias", "bias", "bias", "one"], ["v"], epsilon=0.0)],
    "integers and their scale": [node("QuantizeLinear", ["x", "h", "z"], ["i"]),
                                 node("DequantizeLinear", ["i", "h", "z"], ["d"]), node("Mul", ["d", "k"], ["v"])],
}  # fmt: skip
AFTER = {
    "Flatten": node("Flatten", ["v"], ["y"]),
    "Reshape": node("Reshape", ["v", "flat"], ["y"]),
    "Reshape to rows": node("Reshape", ["v", "rows"], ["y"]),
    "Squeeze": node("Squeeze", ["v", "first"], ["y"]),
    "Unsqueeze": node("Unsqueeze", ["v", "first"], ["y"]),
    "Transpose": node("Transpose", ["v"], ["y"], perm=[0, 2, 3, 1]),
    "Slice": node("Slice", ["v", "first", "two", "last"], ["y"]),
    "Gather": node("Gather", ["v", "place"], ["y"], axis=1),
    "Tile": node("Tile", ["v", "copies"], ["y"]),
    "Pad": node("Pad", ["v", "pads"], ["y"]),
    "Concat": node("Concat", ["v", "v"], ["y"], axis=2),
    "a mean, flat": None,
}


@pytest.mark.parametrize("shape", RANKS, ids=str)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("before", BEFORE)
def test_shapes(before, after, shape):
    last = [AFTER[after]] if AFTER[after] else [node("GlobalAveragePool", ["v"], ["p"]), node("Flatten", ["p"], ["y"])]
    tensors = {
        "k": np.full(shape, 0.5, FLOAT), "half": FLOAT(0.5), "zero": FLOAT(0), "bits": FLOAT(4), "three": FLOAT(3),
        "h": FLOAT(0.5), "z": np.uint8(7), "w": np.full((1, 1, 2, 2), 2, FLOAT), "bias": np.full(1, 1.5, FLOAT),
        "one": np.ones(1, FLOAT), "flat": np.array([0, -1]), "rows": np.array([-1, 1, 3]), "first": np.array([1]),
        "two": np.array([2]), "last": np.array([3]), "place": np.array(0), "copies": np.array([1, 2, 1, 3]),
        "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2]),
    }  # fmt: skip
    if before.startswith("one channel of a bias"):
        tensors["rows"] = np.array([-1, 1, 2])
    nodes = [*BEFORE[before], *last]
    used = {i for n in nodes for i in n.input}
    m = model(nodes, [("x", IMAGE)], [("y", None)], [(n, a) for n, a in tensors.items() if n in used], opset=21)
    x = (np.random.default_rng(0).integers(-30, 31, (1, *IMAGE[1:])) / 4).astype(FLOAT)
    expected = evaluator(m).run(None, {"x": x})[0]
    graph = qa.nn.load(m)
    np.testing.assert_array_equal(graph(x), expected, strict=True)
    several = np.concatenate([x, x[:, :, ::-1], -x])
    whole = evaluator(m).run(None, {"x": several})[0] if after != "Squeeze" else None
    if whole is not None and graph.inputs[0].batched and len(whole) == len(expected) * 3:
        np.testing.assert_array_equal(graph(several), whole, strict=True)


def test_channels_before_rows_of_images_of_any_rank():
    """Constants for each channel of [n c 1 1 1] are those of [n c] after a Flatten."""
    for axes in (1, 2, 3):
        x_shape, k = (1, 4, *(1,) * axes), np.arange(1.0, 5, dtype=FLOAT).reshape(4, *(1,) * axes)
        for shape in (k.shape, (1, *k.shape)):
            nodes = [quant("x", "q", "half"), node("Mul", ["q", "k"], ["m"]), node("Flatten", ["m"], ["y"])]
            tensors = [("k", k.reshape(shape)), ("half", FLOAT(0.5)), ("zero", FLOAT(0)), ("bits", FLOAT(4))]
            m = model(nodes, [("x", x_shape)], [("y", None)], tensors)
            x = np.random.default_rng(1).normal(0, 2, (3, *x_shape[1:])).astype(FLOAT)
            np.testing.assert_array_equal(qa.nn.load(m)(x), evaluator(m).run(None, {"x": x})[0], strict=True)
