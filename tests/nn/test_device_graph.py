"""Graphs on a GPU, by a stand-in for CuPy with the CPU's kernels: equal results, and nothing that goes to the host."""

from functools import partial
from importlib.util import find_spec

import fake_cupy
import numpy as np
import pytest
from hypothesis import given, settings
from onnx_models import networks
from paths import TESTS

import quantarray as qa
from quantarray.core.errors import DeviceError
from quantarray.nn.operators import OPERATORS

models, Graph, Node, Value = qa.nn.models, qa.nn.Graph, qa.nn.Node, qa.nn.Value
captures = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="needs numba-cuda")
GRAPHS = {
    "lfc": models.lfc,
    "cnv": models.cnv,
    "cnv, 2 bits": partial(models.cnv, bits=(2, 2)),
    "xnor_alexnet": partial(models.xnor_alexnet, size=67),
    "bireal_resnet18": partial(models.bireal_resnet18, size=32, width=16),
    "dorefa_resnet18": partial(models.dorefa_resnet18, size=32, width=16, bits=3),
    "dorefa_mobilenet_v2": partial(models.dorefa_mobilenet_v2, size=32),
    "quicknet": partial(models.quicknet, size=32),
    "tinier_yolo": models.tinier_yolo,
    **{name: partial(qa.nn.load, TESTS / "data" / "qonnx" / f"{name}.onnx") for name in ("TFC_1W1A", "TFC_2W2A")},
}


def drawn(graph, seed, batch=2):
    value = graph.inputs[0]
    x = np.random.default_rng(seed).integers(0, 256, (batch, *value.shape[1:]))
    return (x / 255 if np.dtype(value.dtype).kind == "f" else x).astype(value.dtype)


def on_host(result):
    """Return the results of a call by name, on the CPU."""
    named = result if isinstance(result, dict) else {"": result}
    named = dict(enumerate(result)) if isinstance(result, tuple) else named
    return {name: qa.asnumpy(a) for name, a in named.items()}


def same(got, expected):
    expected = dict(enumerate(expected)) if isinstance(expected, tuple) else expected
    expected = expected if isinstance(expected, dict) else {"": expected}
    assert got.keys() == expected.keys()
    for name, a in got.items():
        b = expected[name]
        assert type(a) is type(b) and a.dtype == b.dtype
        np.testing.assert_array_equal(*(v.codes() if isinstance(v, qa.QuantArray) else v for v in (a, b)))


@pytest.mark.parametrize("name", GRAPHS)
def test_published_networks(name):
    """No element goes to the host between two operations, and no constant moves twice."""
    graph = GRAPHS[name]()
    x = drawn(graph, 0)
    expected = graph(x)
    with fake_cupy.gpu() as xp:
        there, images = graph.to_device("cuda"), xp.asarray(x)
        there(images)
        del fake_cupy.waits[:]
        result = there(images)
        assert fake_cupy.waits == []
        same(on_host(result), expected)
        assert there.to_device("cpu") is graph and graph.device == "cpu" and there.device == "cuda:0"


@pytest.mark.parametrize("name", GRAPHS)
def test_networks_do_not_depend_on_the_order_of_sums(name):
    """Compare with a stand-in that adds in another order: kernels are equal by their order, not by NumPy's sums."""
    graph = GRAPHS[name]()
    x = drawn(graph, 0)
    with fake_cupy.gpu() as xp, fake_cupy.sums_in_another_order():
        same(on_host(graph.to_device("cuda")(xp.asarray(x))), graph(x))


def test_the_other_order_is_another():
    x = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    with fake_cupy.gpu() as xp, fake_cupy.sums_in_another_order():
        there = xp.asarray(x)
        assert (xp.asnumpy(there.sum(1)) != x.sum(1)).any() and (xp.asnumpy(xp.matmul(there, there.T)) != x @ x.T).any()


@captures
@pytest.mark.parametrize("name", GRAPHS)
def test_prepared_networks_are_one_launch(name):
    """Each form of inputs is captured once. The stand-in's launches compute nothing: results are the capture's."""
    graph = GRAPHS[name]()
    images = [drawn(graph, 0, batch) for batch in (1, 2, 1, 2, 1)]
    with fake_cupy.gpu() as xp:
        prepared, before = graph.to_device("cuda").prepared(), len(fake_cupy.events)
        for x in images:
            same(on_host(prepared(xp.asarray(x))), graph(x))
        captured = fake_cupy.events[before:]
        assert captured.count("begin") == 2 and captured.count("launch") == len(images)


@captures
def test_forms_are_bounded_and_results_share_memory_if_asked():
    graph = models.lfc()
    with fake_cupy.gpu() as xp:
        prepared = graph.to_device("cuda").prepared(reuse=True)
        x = [xp.asarray(drawn(graph, 0, n)) for n in range(1, 12)]
        for one in x:
            prepared(one)
        assert len(prepared._of_thread.graphs) == 8
        first, second = prepared(x[5]), prepared(x[5])
        assert first is second


@captures
def test_what_waits_is_not_captured():
    """Thresholds whose codes are no counts look for a NaN on the host, which ends a capture: they run one by one."""
    T = qa.Thresholds([[-1, 0, 1], [0, 1, 2]], into=qa.uint2, greater=[True, False])
    nodes = [Node("threshold", ("x", "t"), ("q",), {"axis": 2})]
    net = Graph([Value("x", (1, 3, 2), "float32")], [Value("q", (1, 3, 2), "uint2")], nodes, {"t": T})
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32)
    with fake_cupy.gpu() as xp:
        prepared = net.to_device("cuda").prepared()
        for _ in range(3):
            same(on_host(prepared(xp.asarray(x))), net(x))
        (captured,) = prepared._of_thread.graphs.values()
        assert captured.graph is None


@settings(max_examples=40, deadline=None)
@given(networks())
def test_random_graphs(drawn):
    model, x = drawn
    graph = qa.nn.load(model)
    expected = graph(x)
    with fake_cupy.gpu() as xp, np.errstate(all="ignore"):
        there = graph.to_device("cuda")
        same(on_host(there(xp.asarray(x))), expected)


def test_operations_of_the_cpu_are_named_before_anything_moves():
    x, y = Value("x", (1, 3, 4, 4), "float32"), Value("y", (1, 3, 4, 4), "float32")
    net = Graph([x], [y], [Node("Relu", ("x",), ("r",)), Node("Erf", ("r",), ("y",))], {})
    with fake_cupy.gpu():
        del fake_cupy.waits[:]
        with pytest.raises(DeviceError, match=r"run on the CPU alone: Erf of 'y'; run the network there"):
            net.to_device("cuda")
        assert fake_cupy.waits == []


def test_inputs_of_another_device_are_refused():
    graph = models.lfc()
    x = drawn(graph, 0)
    with fake_cupy.gpu():
        there = graph.to_device("cuda")
        with pytest.raises(DeviceError, match=r"must be on cuda:0, as the network is, got one on the CPU; move it"):
            there(x)
        with pytest.raises(ValueError, match="must be uint8"):
            there(fake_cupy.asarray(x[:, :5]))


def test_files_tables_and_batches(tmp_path):
    """A graph on a GPU saves what it has on the CPU, is summed up and timed there, and takes batches of the CPU."""
    graph = models.cnv()
    x = drawn(graph, 0, 5)
    with fake_cupy.gpu():
        there = graph.to_device("cuda")
        there.save(tmp_path / "net.qa")
        assert str(there.summary()) == str(graph.summary())
        assert [row.op for row in there.profile().rows] == [row.op for row in graph.profile().rows]
        np.testing.assert_array_equal(there.predict(x, batch=2), graph(x))
        np.testing.assert_array_equal(qa.on("cuda", graph, x), graph(x))
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x), graph(x))


def test_constants_that_are_read_both_ways():
    """The same constant may be axes, which Python reads, and an operand, which a GPU reads."""
    k = np.array([2, 1])
    nodes = [Node("Mul", ("x", "k"), ("m",)), Node("Reshape", ("m", "k"), ("y",)), Node("Add", ("y", "k"), ("z",))]
    outputs = [Value("z", (2, 2), "int64", batched=False), Value("k", (2,), "int64", batched=False)]
    net = Graph([Value("x", (1, 2), "int64", batched=False)], outputs, nodes, {"k": k, "k.cuda:0": np.array([7])})
    x = np.array([[3, 4]])
    with fake_cupy.gpu() as xp:
        same(on_host(net.to_device("cuda")(xp.asarray(x))), net(x))


RNG = np.random.default_rng(0)
F32 = RNG.standard_normal((2, 4, 6, 6)).astype(np.float32)
ROWS = RNG.standard_normal((3, 4)).astype(np.float32)
CODES = qa.encode(RNG.integers(0, 4, (2, 4, 6, 6)), range(4), axis=1)
SELDOM = {  # that random graphs draw seldom: x, attributes, constants
    "Flatten": (F32, {"axis": 2}, []),
    "Gemm": (ROWS, {"alpha": 0.5, "beta": 2.0, "transB": 1}, [ROWS, RNG.standard_normal(3).astype(np.float32)]),
    "GlobalMaxPool": (F32, {}, []),
    "HardTanh": (F32, {}, []),
    "MaxPool": (F32, {"kernel_shape": (2, 3), "pads": (1, 1, 0, 1), "strides": (2, 1)}, []),
    "MaxPool with places": (F32, {"kernel_shape": (2, 2), "strides": (2, 2), "outputs": 2}, []),
    "QuantizeLinear": (F32, {"low": 0, "high": 255, "held": "uint8"}, [np.float32(0.25), np.uint8(9)]),
    "DequantizeLinear": ((F32 * 9).astype(np.int8), {"held": "float32"}, [np.float32(0.25), np.int8(9)]),
    "Sign": (F32, {}, []),
    "Squeeze": (F32[:, :1], {}, [np.array([1])]),
    "Unsqueeze": (F32, {}, [np.array([1, -1])]),
    "Tile": (F32, {}, [np.array([1, 2, 1, 3])]),
    "affine": (F32, {}, [np.float32(0.5), np.float32(3)]),
    **{name: (F32, {}, [F32[:, :1]]) for name in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")},
    **{name: (F32 > 0, {}, [F32 < 0.5]) for name in ("And", "Or", "Xor")},
    "Not": (F32 > 0, {}, []),
    "Where": (F32 > 0, {}, [F32, np.float32(3)]),
    "bucketize": (F32, {"right": 1}, [np.float32([-1, 0, 1])]),
    "channel_shuffle": (CODES, {"groups": 2}, []),
    "codes": (CODES, {}, []),
    "pad": (CODES, {"pads": (1, 0, 2, 1), "value": 0}, []),
    "pack": ((F32 > 0).astype(np.int32), {"levels": (0, 1), "shift": 0, "axis": 1}, []),
    "look_up": (CODES, {"low": -1, "high": 2}, [np.uint8([3, 1, 0, 1])]),
    "look_up of two": (CODES, {"low": 0, "high": 8}, [RNG.integers(0, 9, 16, np.uint8), CODES]),
    "quantize_affine": (F32, {"low": 0, "high": 255, "to": "uint8"}, [np.float32(9), np.float32(100)]),
    "conv2d of bytes": ((F32 * 9).astype(np.int8).view(np.uint8),
                        {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1, "zero": 99},
                        [qa.encode(RNG.choice((-1, 1), (5, 4, 3, 3)), (-1, 1), axis=1)]),
    "relabel": (CODES, {"levels": (-3, -1, 1, 3)}, []),
    "unpack": (CODES, {}, []),
    "conv_transpose3d": (CODES.reshape(2, 4, 1, 6, 6), {"groups": 2},
                         [qa.encode(RNG.choice((-1, 1), (4, 2, 1, 2, 2)), (-1, 1), axis=1)]),
    "dequantized_linear": (ROWS, {}, [qa.quantize(ROWS, qa.Uniform(4), axis=-1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SELDOM)
def test_operations_that_are_drawn_seldom(name):
    x, attributes, constants = SELDOM[name]
    operator = OPERATORS[name.partition(" ")[0]]
    assert operator.gpu
    expected = operator.run(dict(attributes), x, *constants)
    with fake_cupy.gpu() as xp:

        def moved(a):
            return a.to_device("cuda") if isinstance(a, qa.QuantArray) else xp.asarray(a)

        operands = [a if i in operator.host else moved(a) for i, a in enumerate(constants, 1)]
        same(on_host(operator.run(dict(attributes), moved(x), *operands)), expected)


def test_operands_that_python_reads_have_to_be_constants():
    nodes = [Node("Add", ("k", "k"), ("s",)), Node("Reshape", ("x", "s"), ("y",))]
    net = Graph(
        [Value("x", (1, 8), "float32")], [Value("y", (4, 2), "float32", batched=False)], nodes, {"k": np.array([2, 1])}
    )
    with fake_cupy.gpu(), pytest.raises(DeviceError, match=r"Reshape of 'y', for its operand 's' is computed"):
        net.to_device("cuda")


def test_classes_are_those_of_the_graph(tmp_path):
    graph = models.lfc()
    with fake_cupy.gpu():
        there = graph.to_device("cuda")
        there.classes = [f"c{i}" for i in range(10)]
        assert there.to_device("cpu").classes == there.classes
        there.save(tmp_path / "net.qa")
    assert qa.nn.load(tmp_path / "net.qa").classes == there.classes


@captures
def test_functions_of_a_users_are_not_captured():
    """They may change from call to call, and hold what they take."""
    rng, seen = np.random.default_rng(0), []
    w = qa.encode(rng.choice((-1, 1), (8, 64)), (-1, 1))
    with fake_cupy.gpu() as xp:
        layers = [lambda x: seen.append(len(x)) or x, qa.nn.Dense(w.to_device("cuda"))]
        prepared, x = qa.nn.Sequential(layers).prepared(), xp.asarray(rng.integers(-9, 9, (3, 64)).astype(np.int8))
        for _ in range(3):
            prepared(x)
        assert len(seen) == 3
