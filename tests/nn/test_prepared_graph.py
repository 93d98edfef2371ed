"""Graphs from compiled calls equal graphs run node by node, in every output, call after call and thread by thread."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from onnx_models import networks

import quantarray as qa
from quantarray.nn import steps
from quantarray.nn.operators import OPERATORS
from quantarray.nn.plan.reserved import Reserved

models = qa.nn.models
SMALL = {"size": 32, "width": 16, "classes": 10}
CASES = [
    ("lfc", {}),
    ("lfc", {"bits": (1, 3), "width": 64}),
    ("cnv", {}),
    ("xnor_alexnet", {"size": 67, "classes": 10}),
    ("bireal_resnet18", SMALL),
    ("dorefa_resnet18", {**SMALL, "bits": 2}),
    ("dorefa_mobilenet_v2", {"size": 32, "classes": 10}),
    ("quicknet", {"size": 32, "classes": 10}),
]
Value, Node, Graph = qa.nn.Value, qa.nn.Node, qa.nn.Graph


def images(net, batch, seed):
    shape = net.inputs[0].shape
    return np.random.default_rng(seed).integers(0, 256, (batch, *shape[1:]), np.uint8)


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_models(name, arguments):
    net = getattr(models, name)(**arguments)
    prepared = net.prepared()
    for batch in (1, 3):
        for seed in range(4):
            x = images(net, batch, seed)
            np.testing.assert_array_equal(prepared(x), net(x))
    assert sum("compiled" in line for line in prepared.summary()) > 0


@settings(max_examples=40)
@given(networks())
def test_random_graphs(drawn):
    model, x = drawn
    net = qa.nn.load(model)
    prepared = net.prepared()
    for turn in range(3):
        y = np.roll(x, turn)
        np.testing.assert_array_equal(prepared(y), net(y))


def small():
    """A convolution whose integers and bits are both outputs, the integers through an operation of NumPy's."""
    rng = np.random.default_rng(0)
    w = qa.encode(rng.choice((-1, 1), (5, 3, 3, 70)), (-1, 1)).transpose(0, 3, 1, 2)
    constants = {"w": w, "t": qa.Thresholds(np.arange(5) - 2, per_channel=True)}
    nodes = [
        Node("conv2d", ("x", "w"), ("sums",), {"padding": 1}),
        Node("threshold", ("sums", "t"), ("bits",), {"axis": 1}),
        Node("Reshape", ("sums", "shape"), ("flat",)),
    ]
    constants["shape"] = np.array([-1, 5 * 16])
    inputs = [Value("x", (1, 70, 4, 4), "int8")]
    outputs = [Value("flat", (1, 80), "int32"), Value("bits", (1, 5, 4, 4), "bipolar")]
    return Graph(inputs, outputs, nodes, constants)


def test_outputs_are_the_callers():
    """Outputs that are views of a plan's memory are copied, unless `reuse` allows the next call to overwrite them."""
    net = small()
    prepared, reusing = net.prepared(), net.prepared(reuse=True)
    x = np.random.default_rng(1).integers(-100, 100, (4, 1, 70, 4, 4)).astype(np.int8)
    for _ in range(2):
        prepared(x[0]), reusing(x[0])
    kept = prepared(x[0])
    for other in x[1:]:
        prepared(other)
        assert qa.array_equal(reusing(other)["bits"], net(other)["bits"])
    np.testing.assert_array_equal(kept["flat"], net(x[0])["flat"])
    assert qa.array_equal(kept["bits"], net(x[0])["bits"])


def with_floats():
    """A batch norm and thresholds of float32 values, which are one node `chain`."""
    channels = 70
    table = np.stack([np.full(channels, 0.5), np.full(channels, 2)]).astype(np.float32)
    constants = {"k": table, "t": qa.Thresholds([0.25], into=qa.uint1)}
    attributes = {"steps": ("subtract", "multiply"), "gives": ("codes",), "rank": 4}
    node = Node("chain", ("x", "", "k", "", "", "t"), ("bits",), attributes)
    return Graph([Value("x", (1, 70, 5, 5), "float32")], [Value("bits", (1, 70, 5, 5), "uint1")], [node], constants)


def test_a_value_that_is_nan_is_still_an_error():
    net = with_floats()
    last = np.random.default_rng(0).standard_normal((1, 5, 5, 70)).astype(np.float32)
    prepared, x = net.prepared(), last.transpose(0, 3, 1, 2)  # in the memory order of a convolution's results
    for _ in range(3):
        assert qa.array_equal(prepared(x), net(x))
    assert "compiled, 1 launches" in prepared.summary(x)[0]
    x[0, 69, 4, 4] = np.nan
    for call in (net, prepared):
        with pytest.raises(ValueError, match="NaN"):
            call(x)
    x[0, 69, 4, 4] = 1
    assert qa.array_equal(prepared(x), net(x))


@pytest.mark.parametrize(("batch", "black"), [(1, False), (4, False), (2, True)])
@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_networks_are_one_part(name, arguments, batch, black):
    """A network is one part from the images, which NumPy would reorder, to the scores; large results begin anywhere."""
    net = getattr(models, name)(**arguments)
    (line,) = net.prepared().summary(images(net, batch, 0) * (not black))
    assert "compiled" in line


@pytest.mark.parametrize("bits", [1, 3, 8])
@pytest.mark.parametrize("image", [(64, 3, 2), (70, 2, 2), (5, 4), (3, 2, 2, 2)])
@pytest.mark.parametrize("last", [False, True])
def test_images_are_flattened_as_they_lie(bits, image, last):
    """Images are flattened in place before two products by weights, shared or not, and before an ordered output."""
    rng, rows = np.random.default_rng(0), int(np.prod(image))
    w, v = (qa.encode(rng.integers(-3, 4, (o, rows)), values=range(-3, 4)) for o in (7, 66))
    constants = {"w": w, "v": v, "t": qa.Thresholds(np.arange(66), per_channel=True)}
    constants["steps"] = qa.Thresholds(np.arange(2**bits - 1), per_channel=False)
    nodes = [
        Node("threshold", ("x", "steps"), ("q",), {"axis": 1}),
        Node("reshape", ("q",), ("flat",), {"shape": (-1, rows), "allowzero": 1}),
        Node("linear", ("flat", "w"), ("y",)),
        Node("linear", ("flat", "v", "t"), ("bits",)),
    ]
    outputs = [Value("y", (1, 7), "int32"), Value("bits", (1, 66), "bipolar")]
    if last:
        outputs.append(Value("flat", (1, rows), "uint" + str(bits)))
    net = Graph([Value("x", (1, *image), "int32")], outputs, nodes, constants)
    prepared = net.prepared()
    for _ in range(4):
        x = rng.integers(-9, 2**bits + 9, (3, *image), np.int32)
        expected = net(x)
        assert all((got == expected[name]).all() for name, got in prepared(x).items())
    moved = [node.op for node in prepared._program.nodes].count("transpose")
    assert moved == (not last) and net.constants["w"] is w


STEPS = ("add", "subtract", "subtract from", "multiply", "divide", "max", "min", "slope")


@pytest.mark.parametrize("seed", range(40))
def test_integers_are_pooled_before_functions(seed):
    """Results are equal to the bit where functions rise or fall in a channel. A constant channel, or a second reader,
    prevents it."""
    rng = np.random.default_rng(seed)
    steps = tuple(rng.choice(STEPS, rng.integers(1, 5)))
    table = rng.normal(size=(len(steps), 20)).astype(np.float32) * 3
    table[np.array(steps) == "slope"] = abs(table[np.array(steps) == "slope"])
    constants = {"k": table}
    if seed % 3:
        constants["scale"] = rng.choice((-1, 1), 20) * rng.uniform(1e-8, 1e-7, 20)
    twice, constant = seed % 5 == 0, seed % 7 == 0
    if constant:
        constants["scale"] = np.where(np.arange(20) == 3, 0.0, 1e-8)
    nodes = [
        Node(
            "chain",
            ("x", "", "k", "scale" if "scale" in constants else ""),
            ("v",),
            {"steps": steps, "gives": ("values",), "rank": 4},
        ),
        Node("max_pool2d", ("v",), ("y",), {"size": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1))}),
        *[Node("Exp", ("v",), ("z",))] * twice,
    ]
    outputs = [Value("y", (1, 20, 4, 4), "float32"), *[Value("z", (1, 20, 8, 8), "float32")] * twice]
    net = Graph([Value("x", (1, 20, 8, 8), "int32")], outputs, nodes, constants)
    prepared = net.prepared()
    for _ in range(4):
        x = rng.integers(-(2**31), 2**31, (2, 20, 8, 8)).astype(np.int32)
        got, expected = prepared(x), net(x)
        np.testing.assert_array_equal(got["y"] if twice else got, expected["y"] if twice else expected)
    first = prepared._program.nodes[0].op
    assert first == ("chain" if twice or constant else "max_pool2d")


def test_a_summary_names_what_numpy_computes():
    x, y = (Value(name, (1, 4), "float32") for name in "xy")
    lines = Graph([x], [y], [Node("Exp", ("x",), ("y",))], {}).prepared().summary()
    assert lines == ["operations 0 to 0: one by one, Exp"]


CHAIN = {"steps": ("add",), "rank": 2}


@pytest.mark.parametrize("first", [0.0, 1.0, 0.05, 1e6])  # with which all codes, or most, are the same
@pytest.mark.parametrize("middle", ["unpack", "MatMul"])
def test_what_numpy_computes_is_no_constant(first, middle):
    """NumPy works between two kernels, on inputs equal in both recordings: few codes unpacked, a product by BLAS."""
    rng, wide = np.random.default_rng(0), middle == "MatMul"
    n, k, last = (100, 256, 8192) if wide else (4, 32, 32)
    constants = {"a": np.zeros((1, k), np.float32), "b": rng.normal(size=(1, last)).astype(np.float32)}
    if wide:
        constants["w"] = rng.normal(size=(k, last)).astype(np.float32)
        parts = [
            Node("chain", ("x", "", "a"), ("m",), CHAIN | {"gives": ("values",)}),
            Node("MatMul", ("m", "w"), ("v",)),
        ]
    else:
        constants["T"] = qa.Thresholds([0.5, 1.5, 2.5], per_channel=False)
        encode = Node("chain", ("x", "", "a", "", "", "T"), ("m",), CHAIN | {"gives": ("codes",)})
        parts = [encode, Node("unpack", ("m",), ("v",))]
    parts.append(Node("chain", ("v", "", "b"), ("y",), CHAIN | {"gives": ("values",)}))
    net = Graph([Value("x", (1, k), "float32")], [Value("y", (1, last), "float32")], parts, constants)
    prepared, x = net.prepared(), rng.uniform(-1, 4, (n, k)).astype(np.float32)
    for _ in range(3):
        prepared(np.full((n, k), first, np.float32))
    assert np.array_equal(prepared(x), net(x))


STEPS_OF_MANY = {
    "Reshape": [Node("Reshape", ("x", "shape"), ("v",))],
    "Transpose": [Node("Reshape", ("x", "shape"), ("r",)), Node("Transpose", ("r",), ("v",), {"perm": (0, 1, 3, 2)})],
    "Concat": [Node("Reshape", ("x", "half"), ("r",)), Node("Concat", ("r", "r"), ("v",), {"axis": 3})],
}


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("name", STEPS_OF_MANY)
def test_copies_by_numpy_are_no_constants(name, dtype):
    """Zeros and random elements near them give the same codes, so that a plan of a copy would pass its trials."""
    rng, most = np.random.default_rng(0), min(3000, np.iinfo(dtype).max if dtype != "float32" else 3000)
    law = qa.Thresholds([most // 30, most // 3], per_channel=False)
    constants = {"t": law, "shape": np.array([-1, 32, 4, 4]), "half": np.array([-1, 32, 4, 2])}
    nodes = [*STEPS_OF_MANY[name], Node("threshold", ("v", "t"), ("q",), {"axis": 1})]
    width = 256 if name == "Concat" else 512
    net = Graph([Value("x", (1, width), dtype)], [Value("q", (1, 32, 4, 4), "uint2")], nodes, constants)
    prepared = net.prepared()
    for x in [np.zeros((3, width), dtype)] * 2 + [rng.integers(0, most, (3, width)).astype(dtype) for _ in range(3)]:
        assert qa.array_equal(prepared(x), net(x))


@pytest.mark.parametrize("reader", ["conv2d", "max_pool2d", "unpack", "reshape"])
@pytest.mark.parametrize("channels", [1, 3, 65])
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_packed_values_in_another_order_are_no_constants(reader, channels, dtype):
    """Words that a transpose moved are copied by NumPy before the next kernel reads them."""
    rng = np.random.default_rng(0)
    law = qa.Thresholds([100, 200], per_channel=False)
    w = qa.encode(rng.integers(-1, 2, (5, 1, 1, channels)), (-1, 0, 1)).transpose(0, 3, 1, 2)
    read, shape, kind = {
        "conv2d": (Node("conv2d", ("v", "w"), ("y",), {"padding": 0}), (1, 5, 4, 4), "int32"),
        "max_pool2d": (Node("max_pool2d", ("v",), ("y",), {"size": (2, 2)}), (1, channels, 2, 2), "uint2"),
        "unpack": (Node("unpack", ("v",), ("y",)), (1, channels, 4, 4), "int32"),
        "reshape": (Node("reshape", ("v",), ("y",), {"shape": (-1, channels, 16)}), (1, channels, 16), "uint2"),
    }[reader]
    nodes = [
        Node("threshold", ("x", "t"), ("q",), {"axis": 1}),
        Node("transpose", ("q",), ("v",), {"perm": (0, 1, 3, 2)}),
        read,
    ]
    net = Graph([Value("x", (1, channels, 4, 4), dtype)], [Value("y", shape, kind)], nodes, {"t": law, "w": w})
    prepared, zeros = net.prepared(), np.zeros((2, channels, 4, 4), dtype)
    for x in [zeros, zeros] + [rng.integers(0, 256, zeros.shape).astype(dtype) for _ in range(3)]:
        assert (prepared(x) == net(x)).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_copy_of_zeros_is_no_memory_to_clear(order):
    """Small numbers are lost in the sum, so that a plan that read zeros would pass its trials."""
    k = np.stack([np.full(65, 1e-6), np.full(65, 1e3)]).astype(np.float32)
    nodes = [
        Node("chain", ("x", "", "k"), ("v",), {"steps": ("multiply", "add"), "gives": ("values",), "rank": 5}),
        Node("Reshape", ("x", "shape"), ("y",)),
    ]
    outputs = [Value("v", (1, 65, 3, 3, 1), "float32"), Value("y", (1, 585), "float32")]
    net = Graph([Value("x", (1, 65, 3, 3, 1), "float32")], outputs, nodes, {"k": k, "shape": np.array([-1, 585])})
    prepared, zeros = net.prepared(), np.zeros((2, 65, 3, 3, 1), np.float32)
    for size in (0, 0, 1, 1e6, 1e9):
        x = np.asarray(zeros + size, np.float32, order=order)
        assert all((got == net(x)[name]).all() for name, got in prepared(x).items())


def test_the_least_int64_is_still_an_error():
    net = Graph([Value("x", (1, 3), "int64")], [Value("q", (1, 3), "bipolar")],
                [Node("threshold", ("x", "t"), ("q",), {"axis": 1})], {"t": qa.Thresholds([0])})  # fmt: skip
    prepared, x = net.prepared(), np.ones((2, 3), np.int64)
    for _ in range(3):
        assert (prepared(x) == net(x)).all()
    x[1, 1] = -(2**63)
    for call in (net, prepared):
        with pytest.raises(OverflowError, match="above"):
            call(x)


def test_two_weights_of_one_flatten_have_their_own_names():
    rng = np.random.default_rng(0)
    a, b = (qa.encode(rng.choice((-1, 1), (7, 12)), (-1, 1)) for _ in range(2))
    nodes = [
        Node("threshold", ("x", "t"), ("q",), {"axis": 1}),
        Node("reshape", ("q",), ("f",), {"shape": (-1, 12), "allowzero": 1}),
        Node("linear", ("f", "a.b"), ("y",)),
        Node("linear", ("f", "b"), ("y.a",)),
    ]
    outputs = [Value("y", (1, 7), "int32"), Value("y.a", (1, 7), "int32")]
    constants = {"a.b": a, "b": b, "t": qa.Thresholds([0])}
    net = Graph([Value("x", (1, 3, 2, 2), "int32")], outputs, nodes, constants)
    prepared, x = net.prepared(), rng.integers(-9, 9, (2, 3, 2, 2)).astype(np.int32)
    for _ in range(3):
        assert all((got == net(x)[name]).all() for name, got in prepared(x).items())


def test_factors_without_bounds_stay_before_a_pool():
    """0 times infinity is NaN, where a pool would pass the largest on."""
    nodes = [
        Node("scale", ("x", "k"), ("v",), {"to": "float32"}),
        Node("max_pool2d", ("v",), ("y",), {"size": (2, 2)}),
    ]
    ends = [Value("x", (1, 2, 4, 4), "int32")], [Value("y", (1, 2, 2, 2), "float32")]
    net = Graph(*ends, nodes, {"k": np.array([np.inf, 1]).reshape(2, 1, 1)})
    prepared = net.prepared()
    for turn in range(3):
        x = np.arange(-turn, 64 - turn).reshape(2, 2, 4, 4).astype(np.int32)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(prepared(x), net(x))


def test_a_view_of_packed_values_does_not_lock_a_plan():
    rng = np.random.default_rng(0)
    constants = {"t": qa.Thresholds([0]), "w": qa.encode(rng.choice((-1, 1), (7, 4)), (-1, 1))}
    nodes = [
        Node("threshold", ("x", "t"), ("q",), {"axis": 1}),
        Node("reshape", ("q",), ("f",), {"shape": (-1, 260), "allowzero": 1}),
        Node("reshape", ("q",), ("g",), {"shape": (-1, 65, 4), "allowzero": 1}),
        Node("linear", ("g", "w"), ("y",)),
    ]
    net = Graph([Value("x", (1, 65, 1, 4), "int32")], [Value("y", (1, 65, 7), "int32")], nodes, constants)
    prepared = net.prepared()
    for _ in range(4):
        x = rng.integers(-9, 9, (2, 65, 1, 4)).astype(np.int32)
        np.testing.assert_array_equal(prepared(x), net(x))


def plain(nodes, constants=None, shape=(1, 64, 13, 13), result=None, **more):
    inputs = [Value("x", shape, "float32"), *more.pop("inputs", [])]
    return Graph(inputs, [Value("y", result or shape, "float32")], nodes, constants or {}, **more)


PLAIN = {
    "sums in the order of memory": plain([Node("Relu", ("x",), ("r",)), Node("ReduceMean", ("r", "axes"), ("y",))],
                                         {"axes": np.array([2, 3])}, result=(1, 64, 1, 1)),
    "sums behind several": plain(
        [Node("Relu", ("x",), ("r",)), Node("Add", ("r", "k"), ("a",)), Node("Concat", ("a", "a"), ("c",), {"axis": 1}),
         Node("ReduceSum", ("c", "axes"), ("y",))],
        {"axes": np.array([2, 3]), "k": np.ones((64, 1, 1), np.float32)}, result=(1, 128, 1, 1)),
    "a dead node": plain([Node("Relu", ("x",), ("y",)), Node("Neg", ("x",), ("n",)), Node("Relu", ("n",), ("dead",))]),
    "the sign of zero": plain([Node("Relu", ("x",), ("r",)), Node("Div", ("one", "r"), ("y",))],
                              {"one": np.float32(1)}),
    "a name that is taken": plain(
        [Node("Add", ("x", "y.chain.constants"), ("a",)), Node("Relu", ("a",), ("y",))],
        {"y.chain.constants": np.ones((1, 7), np.float32)}, shape=(1, 7)),
    "constants as outputs": Graph([Value("x", (1, 7), "float32")], [Value("k", (3,), "float32", batched=False)],
                                  [Node("Relu", ("x",), ("y",))], {"k": np.float32([1, 2, 3])}),
    "one axis": Graph([Value("x", (5,), "float32", batched=False)], [Value("y", (5,), "float32", batched=False)],
                      [Node("GlobalAveragePool", ("x",), ("y",))], {}),
    "an input with a name of constants": plain(
        [Node("scale", ("x", "k"), ("a",), {"to": "float32"}), Node("Add", ("a", "y.chain.scale"), ("y",))],
        {"k": np.float64([[2, 3]])}, shape=(1, 2), inputs=[Value("y.chain.scale", (1, 2), "float32")]),
    "images in two orders": plain(
        [Node("Conv", ("x", "w"), ("c",)), Node("Concat", ("x", "x"), ("d",), {"axis": 1}),
         Node("ReduceSum", ("d", "axes"), ("s",)), Node("ReduceSum", ("c", "axes"), ("t",)),
         Node("Add", ("s", "t"), ("y",))],
        {"axes": np.array([2, 3]), "w": np.ones((128, 64, 1, 1), np.float32)}, result=(1, 128, 1, 1)),
    "a product of four axes": plain([Node("Relu", ("x",), ("r",)), Node("MatMul", ("r", "w"), ("y",))],
                                    {"w": np.linspace(-1, 1, 13, dtype=np.float32)[:, None]}, result=(1, 64, 13, 1)),
    "broadcast over the batch": plain([Node("Relu", ("k",), ("r",)), Node("Add", ("x", "r"), ("y",))],
                                      {"k": np.ones((1, 64, 13, 13), np.float32)}),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_rewritten_graphs(name):
    """Results are equal to the bit, including the sign of zero."""
    net, rng = PLAIN[name], np.random.default_rng(0)
    prepared, batched = net.prepared(), net.inputs[0].batched
    for batch, order in ((1, "C"), (3, "C"), (3, "F")) * 4:
        shapes = [(batch, *value.shape[1:]) if batched else value.shape for value in net.inputs]
        inputs = [np.asarray(rng.normal(size=shape), np.float32, order=order) for shape in shapes]
        inputs[0][:1] *= -0.0
        with np.errstate(divide="ignore"):
            got, expected = prepared(*inputs), net(*inputs)
        assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


def test_a_nan_that_is_encoded_is_an_error_for_both():
    """One that is cut away before is none."""
    law = qa.Thresholds([0.5])
    cut = [Node("Slice", ("x", "zero", "two", "one"), ("s",)), Node("threshold", ("s", "t"), ("q",), {"axis": 1})]
    constants = {"zero": np.array([0]), "two": np.array([2]), "one": np.array([1]), "t": law}
    outside = Graph([Value("x", (1, 4), "float32")], [Value("q", (1, 2), "bipolar")], cut, constants)
    add = [Node("Add", ("x", "k"), ("s",)), Node("threshold", ("s", "t"), ("q",), {"axis": 1})]
    made = Graph(outside.inputs, [Value("q", (1, 4), "bipolar")], add, {"k": np.full(4, -np.inf, np.float32), "t": law})
    for net, wrong in ((outside, np.nan), (made, np.inf)):
        prepared, x = net.prepared(), np.ones((2, 4), np.float32)
        for _ in range(3):
            assert qa.array_equal(prepared(x), net(x))
        if net is outside:
            x[1, 3] = np.nan
            assert qa.array_equal(prepared(x), net(x))
        x[1, 1] = wrong
        for call in (net, prepared):
            with pytest.raises(ValueError, match="NaN"):
                call(x)


def test_axes_that_come_as_an_input_are_looked_at():
    nodes = [Node("Concat", ("x", "x"), ("c",), {"axis": 0}), Node("Unsqueeze", ("c", "axes"), ("y",))]
    inputs = [Value("x", (2, 3), "float32", batched=False), Value("axes", (1,), "int64", batched=False)]
    net = Graph(inputs, [Value("y", (1, 4, 3), "float32", batched=False)], nodes, {})
    prepared, x = net.prepared(), np.ones((2, 3), np.float32)
    for axis in (2, 2, 2, 1, 0):
        assert prepared(x, np.array([axis])).shape == net(x, np.array([axis])).shape


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("channels", [3, 40_000])
def test_concatenated_arrays_keep_their_order_of_axes(axis, dtype, channels):
    """With the order of axes kept, the next kernel needs no copy."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (2, 5, 1, channels)).astype(dtype).transpose(0, 3, 1, 2) for _ in range(2))
    got = OPERATORS["Concat"].run({"axis": axis}, x, y, x[:, :0] if axis == 1 else x)
    np.testing.assert_array_equal(got, np.concatenate([x, y, x[:, :0] if axis == 1 else x], axis))
    assert got.transpose(0, 2, 3, 1).flags.c_contiguous and got.dtype == dtype


def test_threads():
    net = models.cnv()
    prepared, failed = net.prepared(), []
    expected = [net(images(net, 1, seed)) for seed in range(3)]

    def work():
        for turn in range(30):
            if not np.array_equal(prepared(images(net, 1, turn % 3)), expected[turn % 3]):
                failed.append(turn)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_what_depends_on_constants_is_computed_once(monkeypatch):
    net = models.quicknet(size=32, classes=10)
    prepared, x = net.prepared(), images(net, 1, 0)
    for _ in range(2):
        prepared(x)
    ran = []
    call = steps.Step.__call__
    monkeypatch.setattr(steps.Step, "__call__", lambda step, values: ran.append(step.name) or call(step, values))
    prepared(x)
    assert "scale" in {node.op for node in net.nodes} and not ran


def test_forms_and_errors():
    net = models.cnv()
    prepared = net.prepared()
    assert repr(prepared) == f"Prepared({net.name}: {len(net.nodes)} operations)"
    for batch in (1, 2, 3, 4, 5, 1):
        for _ in range(2):
            np.testing.assert_array_equal(prepared(images(net, batch, 9)), net(images(net, batch, 9)))
    with pytest.raises(ValueError, match="input"):
        prepared(np.zeros((1, 32, 32, 3), np.uint8))
    strided = np.zeros((1, 3, 32, 64), np.uint8)[..., ::2]
    np.testing.assert_array_equal(prepared(strided), net(strided))


def test_outputs_of_constants_alone():
    """They are the caller's, call after call; and a graph may have no input."""
    nodes = [Node("Relu", ("x",), ("y",)), Node("Add", ("k", "k"), ("c",))]
    outputs = [Value("y", (1, 2), "float32"), Value("c", (3,), "float32", batched=False)]
    net = Graph([Value("x", (1, 2), "float32")], outputs, nodes, {"k": np.float32([1, 2, 3])})
    prepared, x = net.prepared(), np.ones((1, 2), np.float32)
    for _ in range(4):
        c = prepared(x)["c"]
        np.testing.assert_array_equal(c, [2, 4, 6])
        c += 1
    alone = Graph([], outputs[1:], nodes[1:], {"k": np.float32([1, 2, 3])})
    np.testing.assert_array_equal(alone.prepared()(), [2, 4, 6])


def test_plans_hold_no_reserved_memory():
    """What a plan was recorded on goes with the recording."""
    net = models.lfc()
    prepared, x = net.prepared(), images(net, 1, 0)
    for _ in range(3):
        prepared(x)
    gc.collect()
    assert not [one for one in gc.get_objects() if issubclass(type(one), Reserved)]
