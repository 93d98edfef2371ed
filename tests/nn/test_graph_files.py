"""Graphs of ONNX files as `.qa` files: equal in every value, and refused by name where they are damaged."""

import json
import re
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from long.stored import content, packed
from onnx_models import model, networks, node
from paths import TESTS
from test_onnx import NAMES, images, network

import quantarray as qa
from quantarray.cli import main
from quantarray.io import document
from quantarray.nn import Graph, Node, Value
from quantarray.nn.inference import inferred


def same(a, b):
    assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
    if isinstance(a, qa.QuantArray):
        assert a.axis == b.axis and a.digest() == b.digest()
    else:
        np.testing.assert_array_equal(a, b)


def assert_equal_graphs(a, b, x):
    assert (a.name, a.inputs, a.outputs) == (b.name, b.inputs, b.outputs)
    assert [vars(n) for n in a.nodes] == [vars(n) for n in b.nodes]
    assert list(a.constants) == list(b.constants) and str(a.summary()) == str(b.summary())
    left, right = a.trace(x), b.trace(x)
    assert list(left) == list(right)
    for name in left:
        same(left[name], right[name])


@pytest.mark.parametrize("name", NAMES)
def test_trained_networks(name, tmp_path):
    graph = network(name)
    graph.save(tmp_path / "net.qa")
    loaded = qa.nn.load(tmp_path / "net.qa")
    assert type(loaded) is Graph and repr(loaded) == repr(graph)
    assert_equal_graphs(loaded, graph, images()[:200])
    loaded.save(tmp_path / "again.qa")
    assert (tmp_path / "again.qa").read_bytes() == (tmp_path / "net.qa").read_bytes()


def test_reading_needs_no_onnx(tmp_path, monkeypatch):
    network("1W1A").save(tmp_path / "net.qa")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError):
        network("1W1A")
    assert qa.nn.load(tmp_path / "net.qa")(images()[:2]).shape == (2, 10)


@given(networks())
@settings(max_examples=15)
def test_random_networks(tmp_path_factory, drawn):
    """Inferred shapes and dtypes equal those of a run, and the graph's file gives an equal graph."""
    onnx_model, x = drawn
    graph = qa.nn.load(onnx_model)
    kinds, values = inferred(graph), graph.trace(x[:1])
    assert list(kinds) == list(values)
    for name, value in values.items():
        axis = value.axis if isinstance(value, qa.QuantArray) else None
        assert kinds[name] == (value.shape, value.dtype, axis), name
    path = tmp_path_factory.mktemp("graph") / "net.qa"
    graph.save(path)
    assert_equal_graphs(qa.nn.load(path), graph, x)


def test_attributes_of_every_type(tmp_path):
    """Infinities, tuples in tuples, names that no array of a file can have."""
    x, y = Value("in\n", (1, 3, 4, 4), "float32"), Value("y", (1, 3, 2, 2), "float32")
    attributes = {"kernel_shape": (2, 2), "strides": (2, 2), "more": ((1, (2.5, "s")), None, np.inf, np.int8(3), True)}
    add = Node("Add", ("in\n", "a.words"), ("sum",), {}, "an é")
    pool = Node("MaxPool", ("sum",), ("y",), attributes)
    graph = Graph([x], [y], [add, pool], {"a.words": np.ones((), np.float32)})
    graph.save(tmp_path / "net.qa")
    loaded = qa.nn.load(tmp_path / "net.qa")
    assert_equal_graphs(loaded, graph, np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4))
    assert isinstance(loaded.nodes[1].attributes["more"][0], tuple)


def test_names_of_classes(tmp_path):
    x, y = qa.nn.Value("x", (1, 2), "float32"), qa.nn.Value("y", (1, 2), "float32")
    graph = qa.nn.Graph([x], [y], [qa.nn.Node("Relu", ("x",), ("y",))], {})
    graph.save(tmp_path / "net.qa")
    assert graph.classes is None and qa.nn.load(tmp_path / "net.qa").classes is None
    graph.classes = ["cat", "dög"]
    graph.save(tmp_path / "net.qa")
    assert qa.nn.load(tmp_path / "net.qa").classes == ("cat", "dög")
    for names in ("cat", [], [1, 2]):
        with pytest.raises(TypeError, match="graph: classes must be a list of texts or None"):
            graph.classes = names


def test_scalars_become_arrays(tmp_path):
    x, y = Value("x", (1, 4), "float32"), Value("y", (1, 4), "float64")
    graph = Graph([x], [y], [Node("Mul", ("x", "half"), ("y",))], {"half": np.float64(0.5)})
    graph.save(tmp_path / "net.qa")
    assert_equal_graphs(qa.nn.load(tmp_path / "net.qa"), graph, np.ones((2, 4), np.float32))


# damaged documents


def small(path):
    """A convolution with thresholds, a pool, a product, and floats after it."""
    rng = np.random.default_rng(0)
    signs = [("w", rng.choice([-1, 1], (4, 3, 3, 3))), ("v", rng.choice([-1, 1], (36, 5)))]
    tensors = [("one", np.float32(1)), ("b", rng.normal(size=5).astype(np.float32))]
    nodes = [
        node("BipolarQuant", ["x", "one"], ["a"]),
        node("BipolarQuant", ["w", "one"], ["w1"]),
        node("Conv", ["a", "w1"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BipolarQuant", ["c", "one"], ["d"]),
        node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["e"], ["f"]),
        node("BipolarQuant", ["v", "one"], ["v1"]),
        node("MatMul", ["f", "v1"], ["g"]),
        node("Add", ["g", "b"], ["y"]),
    ]
    tensors += [(name, a.astype(np.float32)) for name, a in signs]
    graph = qa.nn.load(model(nodes, [("x", (1, 3, 6, 6))], [("y", (1, 5))], tensors))
    graph.save(path)
    return graph


def at(op, /, **keys):
    """Change the first node of an operator."""
    return lambda d, p: next(n for n in d["nodes"] if n["op"] == op).update(keys)


def without(op):
    return lambda d, p: d["nodes"].remove(next(n for n in d["nodes"] if n["op"] == op))


def attribute(op, /, **keys):
    return lambda d, p: next(n for n in d["nodes"] if n["op"] == op)["attributes"].update(keys)


def dense(change):
    """Change the one dense constant, the bias."""
    return lambda d, p: p.update({"constant5": change(p["constant5"])})


CHANGES = {
    "a node removed": (without("max_pool2d"), "reshape takes"),
    "the last node removed": (without("Add"), "no node gives the output 'y'"),
    "an unknown operator": (at("Add", op="Plus"), "'Plus' is no operation"),
    "a wrong operand": (at("Add", inputs=["y", "constant"]), "Add takes 'y', which no node before it gives"),
    "an operand left out": (at("Add", inputs=["g", ""]), "Add"),
    "no operands": (at("Add", inputs=[]), "Add ('y',): missing a required argument"),
    "an operand too many": (at("linear", inputs=["x"] * 5), "linear"),
    "packed where floats are": (at("linear", op="Add"), "it takes dense arrays"),
    "a result twice": (at("linear", outputs=["x"]), "'x' is given twice"),
    "nodes in another order": (lambda d, p: d["nodes"].reverse(), "which no node before it gives"),
    "a bias of another length": (dense(lambda a: a[:3]), "Add"),
    "a bias of another dtype": (dense(lambda a: a.astype(np.float64)), "the output 'y' must be a dense float32"),
    "a larger result": (dense(lambda a: np.ones((7, 1, 5), np.float32)), "the output 'y' must be a dense float32"),
    "another stride": (attribute("max_pool2d", stride=[1, 1]), "(1, 4, 5, 5) cannot be reshaped"),
    "a stride of text": (attribute("max_pool2d", stride="two"), "max_pool2d"),
    "a huge padding": (attribute("conv2d", padding=[[10**9, 10**9], [10**9, 10**9]]), "conv2d"),
    "another input": (lambda d, p: d["inputs"][0].update(shape=[1, 4, 6, 6]), "conv2d"),
    "an input too large": (lambda d, p: d["inputs"][0].update(shape=[1, 3, 10**6, 10**6]), "too large"),
    "an input of text": (lambda d, p: d["inputs"][0].update(dtype="U3"), "an input or output that is none"),
    "an output of another shape": (lambda d, p: d["outputs"][0].update(shape=[1, 6]), "must be a dense float32 (n, 6)"),
    "no output": (lambda d, p: d.update(outputs=[]), "it has no outputs"),
    "another batch": (lambda d, p: d["outputs"][0].update(batched=False), "does not have the batch"),
    "a key too many": (at("Add", more=1), "an object with the keys"),
    "a lost constant": (lambda d, p: p.pop("constant5"), "there is no array 'constant5'"),
    "a constant twice": (lambda d, p: d["constants"].append(d["constants"][0]), "two of its constants have the name"),
    "an input and constant of one name": (lambda d, p: d["constants"].append({"name": "x", "array": "constant5"}),
                                          "two of its inputs and constants have one name"),
    "an attribute of text": (attribute("scale", to="complex128"), "its attribute to is 'complex128'"),
    "no list": (lambda d, p: d.update(nodes={}), "there must be a list"),
    "a number as name": (lambda d, p: d.update(name=3), "there must be a text"),
    "classes of numbers": (lambda d, p: d.update(classes=[1, 2]), "there must be a text"),
    "no classes": (lambda d, p: d.update(classes=[]), "its classes must have names, or be null"),
    "a low end alone": (lambda d, p: d["inputs"][0].update(low=3), "must be two integers"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_rewritten_graphs(name, tmp_path):
    change, message = CHANGES[name]
    path = tmp_path / "net.qa"
    small(path)
    meta, parts = content(path)
    change(meta["document"], parts)
    meta["digest"] = document.digest(meta, parts)
    path.unlink()
    path.write_bytes(packed(".safetensors", json.dumps(meta), parts))
    with pytest.raises(qa.FormatError) as caught:
        qa.nn.load(path)
    assert f"{path} is not a whole quantarray file: " in str(caught.value) and message in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 3, 2**13, 2**13), (1, 2**26, 2, 2), (2**26, 3, 1, 1)])
def test_what_a_graph_asks_for_is_not_allocated(shape, tmp_path):
    """A file of a few kilobytes may describe an input of 2**28 elements; reading it takes none of them."""

    def reshaped_twice(shape):
        x, y = Value("x", shape, "float32", False), Value("y", shape, "int32", False)
        cut, back = Node("threshold", ("x", "T"), ("q",), {"axis": 1}), Node("unpack", ("s",), ("y",))
        shapes = [
            Node("reshape", ("q",), ("r",), {"shape": (shape[0], -1)}),
            Node("reshape", ("r",), ("s",), {"shape": shape}),
        ]
        return Graph([x], [y], [cut, *shapes, back], {"T": qa.Thresholds([0.0], per_channel=False)})

    reshaped_twice((1, 2, 2, 2)).save(tmp_path / "warm.qa")  # compiles
    graph = reshaped_twice(shape)
    tracemalloc.start()
    try:
        graph.save(tmp_path / "net.qa")
        qa.nn.load(tmp_path / "net.qa")
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 1 << 22


def test_an_undamaged_graph(tmp_path):
    """The file that the tests above change loads unchanged, and is refused with any byte changed."""
    path = tmp_path / "net.qa"
    graph = small(path)
    x = np.random.default_rng(1).normal(size=(3, 3, 6, 6)).astype(np.float32)
    assert_equal_graphs(qa.nn.load(path), graph, x)
    whole = path.read_bytes()
    for i in range(8, len(whole), 97):
        damaged = bytearray(whole)
        damaged[i] ^= 1
        path.unlink()
        path.write_bytes(damaged)
        with pytest.raises(qa.FormatError):
            qa.nn.load(path)


def test_what_has_no_form_in_a_file(tmp_path):
    x, y = Value("x", (1, 4), "float32"), Value("y", (1, 4), "float32")
    add = Node("Add", ("x", "a"), ("y",))
    with pytest.raises(TypeError, match="save: the constant 'a' must be an array or thresholds, got"):
        Graph([x], [y], [add], {"a": "text"}).save(tmp_path / "net.qa")
    with pytest.raises(ValueError, match=r"save: the graph has no form in a file: Add .*: it takes dense arrays"):
        Graph([x], [y], [add], {"a": qa.ones((1, 4), qa.ternary)}).save(tmp_path / "net.qa")
    with pytest.raises(ValueError, match="save: the graph has no form in a file: the output 'y' must be"):
        Graph([x], [y], [add], {"a": np.ones((9, 4), np.float32)}).save(tmp_path / "net.qa")
    with pytest.raises(TypeError, match=r"save: the attribute node0\.f has no form in a file, got"):
        Graph([x], [y], [Node("Relu", ("x",), ("y",), {"f": len})], {}).save(tmp_path / "net.qa")
    assert not list(tmp_path.iterdir())


# the command line


def test_convert_and_info(tmp_path, capsys):
    source, target = TESTS / "data" / "qonnx" / "TFC_2W2A.onnx", tmp_path / "model.qa"
    assert main(["convert", str(source), str(target)]) == 0
    assert "Graph(0: float32 (n, 1, 28, 28)" in capsys.readouterr().out
    x = images()[:5]
    np.testing.assert_array_equal(qa.nn.load(target)(x), network("2W2A")(x))
    assert main(["info", str(target)]) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"linear \+ thresholds +packed +MatMul_", text)) == 3
    assert "59,008 weights" in text and "checksum" in text
    assert main(["info", str(target), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kind"] == "graph" and len(facts["nodes"]) == 8
    assert 50176 in [n.get("weights") for n in facts["nodes"]]
    assert facts["inputs"] == [{"name": "0", "shape": [1, 1, 28, 28], "dtype": "float32", "batched": True}]
