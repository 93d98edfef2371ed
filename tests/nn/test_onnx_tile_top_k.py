"""ONNX's Tile and TopK equal the reference: dtypes, ties, NaN, axes, opsets, constants, results that are left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa

DTYPES = "float16 float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()


def type_of(dtype):
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def elements(rng, shape, dtype):
    """Draw few different elements, so that many are equal, and the extremes of the dtype."""
    if np.dtype(dtype).kind == "f":
        return rng.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0], dtype), shape)
    ends = np.iinfo(dtype)
    return rng.choice(np.array([ends.min, ends.min + 1, 0, 1, ends.max - 1, ends.max], dtype), shape)


def assert_same(m, x, graph=None, signs=False):
    """Assert that the network, or the file of it, gives the results of the reference; with the `signs` of zeros."""
    graph = qa.nn.load(m) if graph is None else graph
    got = graph(x)
    results = list(got.values()) if isinstance(got, dict) else [got]
    for result, expected in zip(results, evaluator(m).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)
        if expected.dtype.kind == "f" and signs:
            np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
    return graph


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(st.data(), SHAPES, st.sampled_from(DTYPES))
def test_top_k(data, shape, dtype):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(0, shape[axis]))
    a = {"axis": axis, "largest": data.draw(st.integers(0, 1)), "sorted": data.draw(st.integers(0, 1))}
    if data.draw(st.booleans()) and axis == -1:
        del a["axis"]
    names = data.draw(st.sampled_from([["v", "i"], ["v", ""], ["", "i"]]))
    m = model(
        [node("TopK", ["x", "k"], names, **a)],
        [("x", shape, type_of(dtype))],
        [(n, None, t) for n, t in zip(names, (type_of(dtype), 7), strict=True) if n],
        [("k", np.array([k]))],
    )
    x = elements(rng, shape, dtype)
    graph = assert_same(m, x, signs=True)
    if graph.inputs[0].batched:
        assert axis % len(shape) != 0
        assert_same(m, elements(rng, (3, *shape[1:]), dtype), graph)


@given(st.data(), SHAPES, st.sampled_from(DTYPES))
def test_tile(data, shape, dtype):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    repeats = [data.draw(st.integers(0, 3)) for _ in shape]
    repeats[0] = data.draw(st.sampled_from([1, repeats[0]]))
    element = type_of(dtype)
    m = model([node("Tile", ["x", "r"], ["y"])], [("x", shape, element)], [("y", None, element)], [("r", repeats)])
    graph = assert_same(m, elements(rng, shape, dtype), signs=True)
    if graph.inputs[0].batched:
        assert repeats[0] == 1
        assert_same(m, elements(rng, (3, *shape[1:]), dtype), graph)


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_top_k_of_older_opsets(opset):
    k = {"k": 2} if opset < 10 else {}
    inputs, tensors = (["x"], []) if opset < 10 else (["x", "k"], [("k", np.array([2]))])
    m = model([node("TopK", inputs, ["v", "i"], axis=1, **k)], [("x", (1, 5))], [("v", None), ("i", None, 7)], tensors,
              opset=opset)  # fmt: skip
    assert_same(m, np.array([[3, 1, 3, 2, 3], [0, 0, 0, 0, 0]], np.float32))


def test_of_constants():
    nodes = [node("TopK", ["c", "k"], ["", "i"], axis=0), node("Tile", ["i", "r"], ["t"]),
             node("Cast", ["t"], ["f"], to=1), node("Add", ["x", "f"], ["y"])]  # fmt: skip
    tensors = [("c", np.float32([3, 7, 7])), ("k", np.array([2])), ("r", np.array([2]))]
    assert_same(model(nodes, [("x", (1, 4))], [("y", None)], tensors), np.ones((2, 4), np.float32))


QUANT = node("Quant", ["x", "s", "zero", "bits"], ["q"], signed=1, narrow=0, rounding_mode="ROUND")
SCALARS = [("s", np.float32(0.5)), ("zero", np.float32(0)), ("bits", np.float32(3))]


@pytest.mark.parametrize("last", ["Tile", "TopK", "TopK of products"])
def test_of_codes(last, tmp_path):
    """Of codes, and of sums of codes; from the file, from one that is written, and prepared."""
    nodes = [QUANT]
    if last == "Tile":
        nodes += [node("Tile", ["q", "r"], ["t"]), node("ReduceSum", ["t", "axes"], ["y"])]
        tensors = [*SCALARS, ("r", np.array([1, 3, 1, 2])), ("axes", np.array([2, 3]))]
        outputs = [("y", None)]
    else:
        product = [node("Transpose", ["q"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["p"])]
        nodes += product if last == "TopK of products" else []
        nodes += [node("TopK", [nodes[-1].output[0], "k"], ["v", "i"], axis=2)]
        tensors, outputs = [*SCALARS, ("k", np.array([2]))], [("v", None), ("i", None, 7)]
    m = model(nodes, [("x", (1, 4, 3, 3))], outputs, tensors)
    x = (np.random.default_rng(0).integers(-20, 21, (5, 4, 3, 3)) / 8).astype(np.float32)
    graph = assert_same(m, x)
    graph.save(tmp_path / "net.onnx")
    written = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert_same(written, x)
    graph.save(tmp_path / "net.qa")
    assert_same(m, x, qa.nn.load(tmp_path / "net.qa"))
    fast = graph.prepared()
    for _ in range(3):
        assert_same(m, x, fast)


def test_split_without_its_first_part():
    nodes = [node("Split", ["x", "sizes"], ["", "y"], axis=1)]
    m = model(nodes, [("x", (1, 3))], [("y", None)], [("sizes", np.array([1, 2]))])
    assert_same(m, np.float32([[1, 2, 3]]))


@pytest.mark.parametrize(
    "op, operand, message",
    [
        ("TopK", np.array([4]), "k must be one integer from 0 to 3, got \\[4\\]"),
        ("TopK", np.array([-1]), "k must be one integer from 0 to 3"),
        ("TopK", np.array([1, 2]), "k must be one integer from 0 to 3"),
        ("TopK", np.float32([1]), "k must be one integer from 0 to 3"),
        ("Tile", np.array([2]), "repeats \\[2\\] are not one integer from 0 for each axis"),
        ("Tile", np.array([1, -1]), "repeats \\[1, -1\\] are not one integer"),
        ("Tile", np.array([1, 2**60]), "larger than a file of this size"),
        ("Tile", None, "must be a constant"),
        ("TopK", None, "must be a constant"),
    ],
)
def test_what_is_refused(op, operand, message):
    tensors = [] if operand is None else [("n", operand)]
    inputs = [("x", (1, 3)), *([("n", (2,), 7)] if operand is None else [])]
    m = model([node(op, ["x", "n"], ["y", "i"][: 1 + (op == "TopK")])], inputs, [("y", None)], tensors)
    with pytest.raises(ValueError, match=message):
        qa.nn.load(m)


def test_tile_of_an_axis_of_old_opsets_is_refused():
    tensors = [("n", np.float32(2)), ("a", np.float32(1))]
    m = model([node("Tile", ["x", "n", "a"], ["y"])], [("x", (1, 3))], [("y", None)], tensors, opset=5)
    with pytest.raises(ValueError, match="copies along one axis, of opsets before 6"):
        qa.nn.load(m)
