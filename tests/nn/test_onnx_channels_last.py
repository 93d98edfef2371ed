"""QONNX's operators of channels last: equal to the reference, packed and folded as those of images [n c ..]."""

import numpy as np
import pytest
from onnx_models import DOMAIN, model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa

F = np.float32
LAST = "qonnx.custom_op.channels_last"


def last(op, inputs, output, **attributes):
    return onnx.helper.make_node(op, inputs, [output], name=f"{op}_{output}", domain=LAST, **attributes)


def quant(x, y, scale="s", bits="two", signed=0):
    return node("Quant", [x, scale, "none", bits], [y], signed=signed, narrow=signed, rounding_mode="ROUND")


def made(nodes, shape, tensors, outputs=("y",)):
    used = {i for n in nodes for i in n.input}
    m = model(nodes, [("x", shape)], [(n, None) for n in outputs], [(n, a) for n, a in tensors.items() if n in used])
    m.opset_import.append(onnx.helper.make_opsetid(LAST, 1))
    return m


def constants(rng, axes=2):
    """Return kernels [outputs .. c], norms of 4 channels, and constants along the last axis."""
    ternary = lambda *shape: rng.integers(-1, 2, (4, *(3,) * axes, *shape)).astype(F) / 4  # noqa: E731
    return {
        "s": F(0.5), "none": F(0), "two": F(2), "four": F(4), "eight": F(8), "one": F(0.25), "shape": np.array([0, -1]),
        "w": ternary(3), "v": ternary(4), "d": ternary(1), "b": F(rng.integers(-4, 5, 4) / 4), "g": F([1, -2, 0.5, 1]),
        "var": F([1, 4, 1, 0.25]), "each": F([0.5, 1, 0.25, 2]), "T": F(np.sort(rng.integers(-9, 9, (4, 3)) / 2)),
        "column": F([0.5, 0.25, 1, 0.5]).reshape(4, *(1,) * (axes + 1)), "axis": np.array([3]),
        "wide": ternary(6), "few": F([1, 0.5, 0.25, 1, 2, 0.5]),
        "grid": values(rng, (4, 3, 1)), "many": values(rng, (1, 1, 3, 4)),
    }  # fmt: skip


def values(rng, shape):
    return F(rng.integers(-20, 21, shape) / 4)


def thresholds(x, y, layout):
    return onnx.helper.make_node("MultiThreshold", [x, "T"], [y], domain=DOMAIN, data_layout=layout)


NETS = {  # nodes, and the axes of their images
    "a layer": ([
        quant("x", "a", bits="four", signed=1), quant("w", "p", "one", signed=1), last("Conv", ["a", "p"], "c"),
        quant("c", "y"),
    ], 2),
    "scales of each channel": ([
        quant("x", "a"), quant("w", "p", "column", signed=1), last("Conv", ["a", "p", "b"], "c", strides=[2, 1]),
        node("Mul", ["c", "each"], ["m"]), node("PRelu", ["m", "each"], ["r"]), quant("r", "q", "each"),
        last("MaxPool", ["q"], "y", kernel_shape=[2, 2]),
    ], 2),
    "of one axis": ([
        quant("x", "a"), quant("w", "p", "one", signed=1), last("Conv", ["a", "p"], "c", pads=[1, 1]),
        last("BatchNormalization", ["c", "g", "b", "b", "var"], "n", epsilon=0.0), quant("n", "y"),
    ], 1),
    "thresholds": ([last("Conv", ["x", "w"], "c"), thresholds("c", "y", "NHWC")], 2),
    "thresholds after a transposition": ([
        quant("x", "a"), last("Conv", ["a", "w"], "c"), node("Transpose", ["c"], ["t"], perm=[0, 3, 1, 2]),
        thresholds("t", "y", "NCHW"),
    ], 2),
    "a transposition to channels last": ([
        node("Relu", ["x"], ["r"]), node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]), quant("t", "a", "few"),
        last("Conv", ["a", "wide"], "c"), quant("c", "q"), node("Transpose", ["q"], ["y"], perm=[0, 3, 1, 2]),
    ], 2),
    "a value that is taken in both layouts": ([
        quant("x", "a"), last("Conv", ["a", "w"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]),
        node("ReduceMax", ["r", "axis"], ["m"]), node("Add", ["r", "m"], ["y"]),
    ], 2),
    "a sum": ([
        last("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]), last("Conv", ["c", "v"], "e", pads=[1, 1, 1, 1]),
        node("Add", ["c", "e"], ["y"]),
    ], 2),
    "constants of many axes": ([
        last("Conv", ["x", "w"], "c"), node("Add", ["c", "grid"], ["d"]), node("Sub", ["many", "d"], ["y"]),
    ], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_equal_to_the_reference(name, tmp_path):
    nodes, axes = NETS[name]
    rng = np.random.default_rng(len(name))
    shape = (1, *(6, 5)[:axes], 3)
    m = made(nodes, shape, constants(rng, axes))
    graph, x = qa.nn.load(m), values(rng, (2, *shape[1:]))
    expected = evaluator(m).run(None, {"x": x})[0]
    np.testing.assert_array_equal(graph(x), expected)
    for path in (tmp_path / "net.qa", tmp_path / "net.onnx"):
        graph.save(path)
        np.testing.assert_array_equal(qa.nn.load(path)(x), expected)


def network(channels_last):
    """conv, norm, relu, 2 bits, pool, depthwise conv, norm, 2 bits, dense, in one layout or the other."""
    op = last if channels_last else lambda name, inputs, output, **a: node(name, inputs, [output], **a)
    norm = ["g", "b", "b", "var"]
    nodes = [
        quant("x", "a", bits="eight", signed=1),
        quant("w", "p", "column", signed=1),
        op("Conv", ["a", "p", "b"], "c", pads=[1, 1, 1, 1]),
        op("BatchNormalization", ["c", *norm], "n", epsilon=0.0),
        node("Relu", ["n"], ["r"]),
        quant("r", "q"),
        op("MaxPool", ["q"], "m", kernel_shape=[2, 2], strides=[2, 2]),
        quant("d", "o", "one", signed=1),
        op("Conv", ["m", "o"], "e", group=4, pads=[1, 1, 1, 1]),
        op("BatchNormalization", ["e", *norm], "k", epsilon=0.0),
        quant("k", "h"),
        node("Reshape", ["h", "shape"], ["f"]),
        quant("u", "j", "one", signed=1),
        node("MatMul", ["f", "j"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    tensors = constants(rng)
    order = rng.integers(-1, 2, (3, 3, 4, 5)).astype(F) / 4  # of a dense layer after [h w c]
    if not channels_last:
        tensors |= {n: np.moveaxis(tensors[n], -1, 1) for n in ("w", "d")}
        order = np.moveaxis(order, 2, 0)
    return made(nodes, (1, 6, 6, 3) if channels_last else (1, 3, 6, 6), tensors | {"u": order.reshape(36, 5)})


def test_a_network_is_packed_as_that_of_channels_first():
    graph, first = qa.nn.load(network(True)), qa.nn.load(network(False))
    x = values(np.random.default_rng(1), (3, 6, 6, 3))
    got = graph(x)
    np.testing.assert_array_equal(got, first(np.moveaxis(x, -1, 1)))
    np.testing.assert_array_equal(got, evaluator(network(True)).run(None, {"x": x})[0])
    assert graph.inputs[0].batched
    plain = [row.op for row in first.summary().rows]
    assert [row.op for row in graph.summary().rows if row.op not in ("transpose", "Transpose")] == plain
    assert sum(row.op in ("transpose", "Transpose") for row in graph.summary().rows) == 2  # its ends


@pytest.mark.parametrize(
    "nodes, why",
    [
        (
            [last("AveragePool", ["x"], "y", kernel_shape=[2, 2])],
            f"{LAST}.AveragePool 'AveragePool_y': the operator is not",
        ),
        ([last("Conv", ["x", "missing"], "y")], f"{LAST}.Conv 'Conv_y': no node before it gives 'missing'"),
        ([last("Conv", ["x", "g"], "y")], f"{LAST}.Conv 'Conv_y': its attributes and operands do not go together"),
        (
            [last("Conv", ["x", "w"], "y"), last("Conv", ["x", "w"], "y")],
            f"{LAST}.Conv 'Conv_y': its output is given twice",
        ),
        (
            [onnx.helper.make_node("MaxPool", ["x"], ["y", "at"], "MaxPool_y", domain=LAST, kernel_shape=[2, 2])],
            f"{LAST}.MaxPool 'MaxPool_y': its second result is not taken",
        ),
    ],
)
def test_one_line_names_what_is_refused(nodes, why):
    with pytest.raises(ValueError, match=f"1 parts of the file cannot be taken:\n  {why}") as error:
        qa.nn.load(made(nodes, (1, 6, 6, 3), constants(np.random.default_rng(0))))
    assert len(str(error.value).splitlines()) == 2
