"""Names of values that the package chooses itself: graphs are loaded, prepared, written and read as with others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import model, networks, node
from qonnx_reference import evaluator

import quantarray as qa
from quantarray.nn import Graph, Node, Value

ENDS = ("", ".0", ".1", ".2", ".3", ".constant4", ".constant9", ".chain.constants", ".chain.scale", ".falling", ".sums",
        ".integers", ".pool", ".scale", ".Add", ".Mul", ".weight", ".last", ".cast", ".moved", "'")  # fmt: skip


def read_again(graph, folder):
    for name in ("net.qa", "net.onnx"):
        graph.save(folder / name)
        yield qa.nn.load(folder / name)
    yield graph.prepared()


@pytest.mark.parametrize("names", [("add", "add.1", "add.2"), ("a", "a.0", "a.1"), ("w", "w.chain.constants", "w.2")])
def test_residual_additions_whose_names_count(names, tmp_path):
    """Chains written as steps numbered their results from the name of the chain: 'add.1' was given twice."""
    nodes, x = [], "x"
    for i, name in enumerate(names):
        nodes += [
            node("Conv", [x, f"w{i}"], [f"c{i}"]),
            node("BatchNormalization", [f"c{i}", "gamma", "b", "b", "v"], [f"n{i}"], epsilon=0.0),
            node("Add", [f"n{i}", x], [name]),
        ]
        x = name
    nodes.append(node("Relu", [x], ["y"]))
    rng = np.random.default_rng(0)
    tensors = [(f"w{i}", rng.integers(-2, 3, (3, 3, 1, 1)).astype(np.float32)) for i in range(len(names))]
    tensors += [(n, np.float32(a)) for n, a in (("gamma", [1, -1, 2]), ("b", [0, 1, 2]), ("v", [1, 4, 1]))]
    m = model(nodes, [("x", (1, 3, 4, 4))], [("y", None)], tensors)
    image = rng.integers(-8, 9, (2, 3, 4, 4)).astype(np.float32)
    graph, expected = qa.nn.load(m), evaluator(m).run(None, {"x": image})[0]
    np.testing.assert_array_equal(graph(image), expected)
    for again in read_again(graph, tmp_path):
        np.testing.assert_array_equal(again(image), expected)


@given(networks(), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_random_networks_of_such_names(tmp_path_factory, drawn, seed):
    m, x = drawn
    rng, taken = np.random.default_rng(seed), {"x", "y"}
    bases = ["v", *(rng.choice(["w", "y", "thresholds", "constant", "output"], 2))]
    new = {}
    for old in [o for n in m.graph.node for o in n.output] + [t.name for t in m.graph.initializer]:
        if old not in ("x", "y"):
            name = f"{rng.choice(bases)}{rng.choice(ENDS)}"
            while name in taken:
                name += str(rng.choice(ENDS))
                name += "" if name not in taken else str(len(taken))
            new[old] = name
            taken.add(name)
    for n in m.graph.node:
        n.input[:] = [new.get(i, i) for i in n.input]
        n.output[:] = [new.get(o, o) for o in n.output]
    for t in m.graph.initializer:
        t.name = new[t.name]
    expected, graph = evaluator(m).run(None, {"x": x})[0], qa.nn.load(m)
    np.testing.assert_array_equal(graph(x), expected)
    for again in read_again(graph, tmp_path_factory.mktemp("names")):
        np.testing.assert_array_equal(again(x), expected)


def test_an_input_and_a_constant_of_one_name_are_refused():
    x, y = Value("x", (1, 3), "float32"), Value("y", (1, 3), "float32")
    with pytest.raises(ValueError, match="Graph: two of its inputs and constants have one name, 'x'"):
        Graph([x], [y], [Node("Add", ("x", "x"), ("y",))], {"x": np.ones((1, 3), np.float32)})
