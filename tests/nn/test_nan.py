"""NaN in networks, prepared or not: thresholds raise with the first index, functions of floats give NumPy's results."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.nn import Graph, Node, Value

random = np.random.default_rng(0)
CHANNELS = np.float32([0.5, -1, 2, 0.1]).reshape(4, 1, 1)
WEIGHTS = random.standard_normal((4, 4, 3, 3)).astype(np.float32)
WINDOW = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)}
FLOATS = {
    **{op: (Node(op, ("x",), ("z",)), {}) for op in ("Relu", "LeakyRelu", "Sigmoid", "Abs", "Floor", "Neg", "Tanh")},
    **{op: (Node(op, ("x", "k"), ("z",)), {"k": CHANNELS}) for op in ("Add", "Sub", "Mul", "Max", "Min", "PRelu")},
    "Clip": (Node("Clip", ("x", "a", "b"), ("z",)), {"a": np.float32(-1), "b": np.float32(1)}),
    "MaxPool": (Node("MaxPool", ("x",), ("z",), WINDOW), {}),
    "AveragePool": (Node("AveragePool", ("x",), ("z",), WINDOW), {}),
    "GlobalAveragePool": (Node("GlobalAveragePool", ("x",), ("z",)), {}),
    "Conv": (Node("Conv", ("x", "w"), ("z",), {"pads": (1, 1, 1, 1)}), {"w": WEIGHTS}),
}
THRESHOLDS = {
    "one": qa.Thresholds([0.0]),
    "two": qa.Thresholds([0.0, 0.5], per_channel=False),
    "of channels": qa.Thresholds(random.standard_normal((4, 3)).astype(np.float32)),
    "falling": qa.Thresholds(random.standard_normal((4, 1)).astype(np.float32), greater=False),
}


def graph(nodes, constants, output):
    return Graph([Value("x", (1, 4, 6, 6), "float32")], [output], nodes, constants)


def warm(net, batch):
    """Return a prepared network after the calls that plan it."""
    prepared = net.prepared()
    for seed in range(3):
        prepared(images(batch, seed))
    return prepared


def images(batch, seed=0, value=None):
    random = np.random.default_rng(seed)
    x = random.standard_normal((batch, 4, 6, 6)).astype(np.float32)
    at = tuple(int(random.integers(n)) for n in x.shape)
    if value is not None:
        x[at] = value
    return x if value is None else (x, str(at).replace("(", r"\(").replace(")", r"\)"))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", FLOATS)
def test_functions_of_floats_keep_nan(name, batch):
    node, constants = FLOATS[name]
    net = graph([node], constants, Value("z", (1, 4, 6, 6), "float32"))
    prepared = warm(net, batch)
    for value in (np.nan, np.inf, -np.inf):
        x, _ = images(batch, 1, value)
        y = net(x)
        assert np.array_equal(prepared(x), y, equal_nan=True)
        assert np.isnan(y).any() == np.isnan(value)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("before", [None, "Relu", "Add", "Clip", "MaxPool", "Conv"])
@pytest.mark.parametrize("name", THRESHOLDS)
def test_thresholds_refuse_nan_with_its_index(name, before, batch):
    nodes, constants = ([], {}) if before is None else ([FLOATS[before][0]], FLOATS[before][1])
    nodes = [
        *nodes,
        Node("threshold", ("x" if before is None else "z", "t"), ("c",), {"axis": 1}),
        Node("unpack", ("c",), ("y",)),
    ]
    net = graph(nodes, {**constants, "t": THRESHOLDS[name]}, Value("y", (1, 4, 6, 6), "int32"))
    prepared = warm(net, batch)
    x, at = images(batch, 1, np.nan)
    where = r"\(.*\)" if before in ("MaxPool", "Conv") else at
    for run in (net, prepared):
        with pytest.raises(ValueError, match=f"^graph: the input x has a NaN at {at}: .* no NaN, got one at {where}$"):
            run(x)
    for value in (np.inf, -np.inf):
        x, _ = images(batch, 1, value)
        assert np.array_equal(net(x), prepared(x))


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_nan_that_arises_inside_has_the_index_of_the_quantiser(name):
    """Infinity less infinity is NaN: no input has one."""
    nodes = [
        Node("Sub", ("x", "x"), ("z",)),
        Node("threshold", ("z", "t"), ("c",), {"axis": 1}),
        Node("unpack", ("c",), ("y",)),
    ]
    net = graph(nodes, {"t": THRESHOLDS[name]}, Value("y", (1, 4, 6, 6), "int32"))
    prepared = warm(net, 2)
    x, at = images(2, 4, np.inf)
    for run in (net, prepared):
        with pytest.raises(ValueError, match=f"^Thresholds: values must hold no NaN, got one at {at}$"):
            run(x)


@pytest.mark.parametrize("return_sum", [False, True])
@pytest.mark.parametrize("axis", [1, -1])
def test_sums_with_a_shortcut_refuse_nan_where_they_are_encoded(axis, return_sum):
    law = qa.Thresholds([0.0, 0.5], per_channel=False)
    for seed in range(3):
        x, at = images(2, seed, np.nan)
        y = images(2, seed + 9)
        for a, b in ((x, y), (y, x)):
            words = f"add_residual: the sum with residual must hold no NaN, got one at {at}$"
            with pytest.raises(ValueError, match=words):
                qa.add_residual(a, b, axis=axis, requantize=law, return_sum=return_sum)
            assert np.array_equal(qa.add_residual(a, b, axis=axis), a + b, equal_nan=True)
    with pytest.raises(ValueError, match="must hold no NaN"), np.errstate(invalid="ignore"):
        qa.add_residual(np.float32([[np.inf, 0]]), np.float32([[-np.inf, 0]]), requantize=law)
    infinite = qa.add_residual(np.float32([[np.inf, -np.inf]]), np.float32([[0, 0]]), requantize=law)
    assert infinite.codes().tolist() == [[2, 0]]


def test_a_prepared_shortcut_refuses_nan():
    random = np.random.default_rng(0)
    nodes = [Node("add_residual", ("x", "r", "t"), ("c",), {"axis": 1}), Node("unpack", ("c",), ("y",))]
    inputs = [Value("x", (1, 70), "float32"), Value("r", (1, 70), "float32")]
    law = qa.Thresholds([0.0, 0.5], per_channel=False)
    net = Graph(inputs, [Value("y", (1, 70), "int32")], nodes, {"t": law})
    x, r = random.standard_normal((2, 3, 70)).astype(np.float32)
    prepared = net.prepared()
    for _ in range(3):
        assert np.array_equal(prepared(x, r), net(x, r))
    assert "compiled" in prepared.summary(x, r)[0]
    for name, a in (("x", x), ("r", r)):
        wrong = a.copy()
        wrong[2, 65] = np.nan
        for run in (net, prepared):
            with pytest.raises(ValueError, match=rf"input {name} has a NaN at \(2, 65\): add_residual: .* \(2, 65\)$"):
                run(**{"x": x, "r": r, name: wrong})
    assert np.array_equal(prepared(x, r), net(x, r))


def test_a_nan_that_no_quantiser_meets_is_no_error():
    nodes = [
        Node("threshold", ("i", "t"), ("c",), {"axis": 1}),
        Node("unpack", ("c",), ("y",)),
        Node("Relu", ("x",), ("z",)),
    ]
    inputs = [Value("x", (1, 3), "float32"), Value("i", (1, 3), "float32")]
    outputs = [Value("y", (1, 3), "int32"), Value("z", (1, 3), "float32")]
    net = Graph(inputs, outputs, nodes, {"t": qa.Thresholds([0.0])})
    prepared = net.prepared()
    for _ in range(4):
        for run in (net, prepared):
            y = run(np.float32([[1, np.nan, -1]]), np.float32([[1, -1, 0]]))
            assert y["y"].tolist() == [[1, -1, -1]] and np.array_equal(
                y["z"], np.float32([[1, np.nan, 0]]), equal_nan=True
            )
    for run in (net, prepared):
        with pytest.raises(ValueError, match=r"the input i has a NaN at \(0, 2\): Thresholds"):
            run(np.zeros((1, 3), np.float32), np.float32([[1, 1, np.nan]]))
    with pytest.raises(ValueError, match=r"Thresholds: values must hold no NaN, got one at \(1, 0\)"):
        qa.Thresholds([0.0])(np.float32([[0, 1], [np.nan, np.nan]]))
