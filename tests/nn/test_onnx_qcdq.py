"""QuantizeLinear, Clip and DequantizeLinear, as Brevitas writes fewer than 8 bits: a Clip is a width, and packed."""

import numpy as np
import pytest
from onnx_models import model, node
from qonnx_reference import evaluator

import quantarray as qa

F = np.float32


def qcdq(x, y, *, quantises=True, axis=None):
    """Return the nodes of a quantiser of x; of integers, without the first."""
    a = {} if axis is None else {"axis": axis}
    s = f"{y}_"
    first = [node("QuantizeLinear", [x, f"{s}s", f"{s}z"], [f"{s}q"], **a)] if quantises else []
    clip = node("Clip", [f"{s}q" if quantises else x, f"{s}low", f"{s}high"], [f"{s}c"])
    return [*first, clip, node("DequantizeLinear", [f"{s}c", f"{s}s", f"{s}z"], [y], **a)]


def constants(y, bits, dtype, scale, zero=0):
    """Return those of a quantiser: scale, zero point, and the ends of its range, narrow if it is signed."""
    signed = np.dtype(dtype).kind == "i"
    ends = (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    low, high = (np.array(n, dtype) for n in ends)
    zeros = np.full(np.shape(scale), zero, dtype)
    return [(f"{y}_s", F(scale)), (f"{y}_z", zeros), (f"{y}_low", low), (f"{y}_high", high)]


def network(bits, weights, dtype=np.uint8, zero=0):
    """conv, batch norm, relu, pool, dense, with `bits`; weights are "integers", or "floats" that the file quantises."""
    rng = np.random.default_rng(bits)
    of_floats = weights == "floats"
    w, v = rng.integers(-1, 2, (8, 3, 3, 3)), rng.integers(-1, 2, (5, 128))
    scale = 2.0 ** rng.integers(-3, 1, 8)
    tensors = [*constants("xd", 8, np.uint8, 1 / 16), *constants("rd", bits, dtype, 0.5, zero)]
    tensors += [*constants("wd", 2, np.int8, scale), *constants("vd", 2, np.int8, 0.25)]
    tensors += [("w", F(w * scale.reshape(-1, 1, 1, 1)) if of_floats else w.astype(np.int8))]
    tensors += [("v", F(v / 4) if of_floats else v.astype(np.int8)), ("b", F(rng.integers(-9, 10, 8) / 8))]
    tensors += [("g", F([1, -1, 2, 0.5, 1, 1, -2, 1])), ("var", np.ones(8, F))]
    nodes = [
        *qcdq("x", "xd"),
        *qcdq("w", "wd", quantises=of_floats, axis=0),
        node("Conv", ["xd", "wd"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "g", "b", "b", "var"], ["n"], epsilon=0.0),
        node("Relu", ["n"], ["r"]),
        *qcdq("r", "rd"),
        node("MaxPool", ["rd"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        *qcdq("v", "vd", quantises=of_floats),
        node("Gemm", ["f", "vd"], ["y"], transB=1),
    ]
    return model(nodes, [("x", (1, 3, 8, 8))], [("y", None)], tensors)


def images(shape=(4, 3, 8, 8)):
    return F(np.random.default_rng(9).integers(-20, 300, shape) / 16)


@pytest.mark.parametrize("weights", ["integers", "floats"])
@pytest.mark.parametrize("bits, dtype, zero", [(2, np.uint8, 0), (3, np.int8, 0), (4, np.uint8, 2), (4, np.int8, -1)])
def test_a_clip_is_a_width(bits, dtype, zero, weights):
    m = network(bits, weights, dtype, zero)
    graph, x = qa.nn.load(m), images()
    np.testing.assert_array_equal(graph(x), evaluator(m).run(None, {"x": x})[0])
    rows = graph.summary().rows
    (conv,) = [row for row in rows if row.op.startswith("conv2d")]
    assert (conv.op, conv.bits) == ("conv2d + thresholds", bits)
    assert {row.op for row in rows if row.runs == "NumPy"} == {"quantize_linear", "scale"}  # the ends of the network
    assert not any(n.op == "Clip" for n in graph.nodes)


def test_more_levels_than_are_packed_lose_their_clip_too():
    m = network(8, "integers", np.int8)
    graph, x = qa.nn.load(m), images()
    np.testing.assert_array_equal(graph(x), evaluator(m).run(None, {"x": x})[0])
    assert not any(n.op == "Clip" for n in graph.nodes)


TENSORS = {
    "s": F(0.5), "z": np.int8(1), "low": np.int8(-2), "high": np.int8(1), "less": np.int8(0), "most": np.int8(127),
    "w": np.ones((4, 3), np.int8), "ones": np.ones(1, np.int8),
}  # fmt: skip
CLIPS = {
    "of both ends": ([["q", "low", "high"]], (-2, 1)),
    "from below": ([["q", "low"]], (-2, 127)),
    "from above": ([["q", "", "high"]], (-128, 1)),
    "an end of one axis": ([["q", "low", "ones"]], (-2, 1)),
    "the range of the dtype": ([["q"]], (-128, 127)),
    "two of them": ([["q", "low", "less"], ["q", "less", "high"]], (-2, 1)),
    "to one level": ([["q", "high", "high"]], None),
    "ends that are crossed": ([["q", "high", "low"]], None),
    "of a computed end": ([["q", "low", "c"]], None),
    "beside another taker": ([["q", "low", "high"], ["q"]], None),
}


@pytest.mark.parametrize("name", CLIPS)
def test_ends(name):
    """The range of the quantiser is what the Clips keep of it together, or stays where something else takes it."""
    clips, ends = CLIPS[name]
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    if name == "of a computed end":
        nodes = [node("ReduceMax", ["x"], ["largest"], keepdims=0), node("Cast", ["largest"], ["c"], to=3), *nodes]
    for i, operands in enumerate(clips):
        nodes.append(node("Neg" if name.startswith("beside") and i else "Clip", operands, [f"y{i}"]))
    used = {i for n in nodes for i in n.input}
    outputs = [(f"y{i}", None, 3) for i in range(len(clips))]
    m = model(nodes, [("x", (3, 4))], outputs, [(n, a) for n, a in TENSORS.items() if n in used])
    graph, x = qa.nn.load(m), F(np.linspace(-9, 9, 12).reshape(3, 4))
    got = graph(x)
    for result, expected in zip(got.values() if isinstance(got, dict) else [got], evaluator(m).run(None, {"x": x}),
                                strict=True):  # fmt: skip
        np.testing.assert_array_equal(result, expected, strict=True)
    kept = {(n.attributes["low"], n.attributes["high"]) for n in graph.nodes if n.op == "quantize_linear"}
    codes = [graph.constants[n.inputs[1]].into.levels for n in graph.nodes if n.op == "threshold"]
    assert kept | {(levels[0], levels[-1]) for levels in codes} == {ends or (-128, 127)}


def test_an_output_is_no_clip():
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("Clip", ["q", "low", "high"], ["y"])]
    tensors = [(n, TENSORS[n]) for n in ("s", "z", "low", "high")]
    graph = qa.nn.load(model(nodes, [("x", (3, 4))], [("y", None, 3), ("q", None, 3)], tensors))
    got = graph(F(np.full((3, 4), 9)))
    assert (got["y"] == 1).all() and (got["q"] == 19).all()


def test_a_clip_of_computed_integers_narrows_them():
    """It runs in NumPy, and what it gives is packed where a zero point is subtracted."""
    nodes = [node("Clip", ["x", "low", "high"], ["c"]), node("DequantizeLinear", ["c", "s", "z"], ["d"])]
    nodes += [node("DequantizeLinear", ["w", "s"], ["v"]), node("MatMul", ["d", "v"], ["y"])]
    tensors = [(n, TENSORS[n]) for n in ("s", "z", "low", "high", "w")]
    m = model(nodes, [("x", (3, 4), 3)], [("y", None)], tensors)
    graph, x = qa.nn.load(m), np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    np.testing.assert_array_equal(graph(x), evaluator(m).run(None, {"x": x})[0])
    (packed,) = [n for n in graph.nodes if n.op == "pack"]
    assert packed.attributes["levels"] == (-3, -2, -1, 0)
