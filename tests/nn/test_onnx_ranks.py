"""Codes and floats of any rank, scalars too, through changes of rank: shapes and values of the reference."""

import numpy as np
import pytest
from onnx_models import model, node
from qonnx_reference import evaluator

import quantarray as qa

F = np.float32
SHAPES = [(1, 1, 2, 4), (1, 1, 1, 8), (1, 8), (1, 2, 2, 2), (2, 2, 2), (1, 1, 8), (8, 1), (1, 1, 1)]


def check(nodes, shape, /, **tensors):
    tensors |= {"s": F(0.5), "none": F(0), "bits": F(2), "b8": F(8), "z": np.uint8(3)}
    used = {i for n in nodes for i in n.input}
    m = model(
        nodes, [("x", shape)], [("y", None)], [(n, np.asarray(a)) for n, a in tensors.items() if n in used], opset=21
    )
    x = (np.random.default_rng(0).integers(-9, 10, shape) / 4).astype(F)
    expected = evaluator(m).run(None, {"x": x})[0]
    np.testing.assert_array_equal(qa.nn.load(m)(x), expected, strict=True)
    np.testing.assert_array_equal(qa.nn.load(m).prepared()(x), expected, strict=True)


def quant(x, y, bits="bits"):
    return node("Quant", [x, "s", "none", bits], [y], signed=1, narrow=0, rounding_mode="ROUND")


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_reshaped_to_any_rank(shape, last):
    """Axes after the packed one may merge with it also where those before it have one element."""
    size = int(np.prod(shape))
    targets = [(size,), (1, size), (size, 1), (1, 1, size), (1, size, 1), (1, 1, size, 1)]
    targets += [(2, size // 2), (1, 2, size // 2), (2, 1, size // 2)] if size % 2 == 0 else []
    for target in targets:
        check([quant("x", "q"), node("Reshape", ["q", "shape"], ["y" if last else "r"]),
               *([] if last else [node("Add", ["r", "s"], ["y"])])], shape, shape=np.array(target))  # fmt: skip


CHANGES = {
    "Unsqueeze": [node("Unsqueeze", ["v", "two"], ["y"])],
    "Unsqueeze of one": [node("Unsqueeze", ["v", "first"], ["y"])],
    "Reshape": [node("Reshape", ["v", "ones"], ["y"])],
    "Identity": [node("Identity", ["v"], ["y"])],
    "Neg": [node("Neg", ["v"], ["y"])],
    "Quant": [quant("v", "y", "b8")],
    "QuantizeLinear": [node("QuantizeLinear", ["v", "s", "z"], ["y"])],
    "Flatten": [node("Unsqueeze", ["v", "first"], ["u"]), node("Flatten", ["u"], ["y"])],
    "Expanded by a sum": [node("Add", ["v", "wide"], ["y"])],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("quantised", [True, False])
def test_scalars(change, quantised):
    before = [*([quant("x", "q")] if quantised else []), node("Reshape", ["q" if quantised else "x", "none_"], ["v"])]
    constants = {
        "none_": np.zeros(0, np.int64),
        "two": np.array([0, 1]),
        "first": np.array([0]),
        "ones": np.array([1, 1]),
    }
    constants["wide"] = np.ones((2, 3), F)
    check([*before, *CHANGES[change]], (1, 1), **constants)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_element_of_a_row(rank):
    row = [quant("x", "q"), node("Reshape", ["q", "flat"], ["v"]), node("Gather", ["v", "at"], ["y"], axis=0)]
    check(row, (1, 4), flat=np.array([-1]), at=np.array(2).reshape((1,) * rank))


def test_many_codes_of_a_row_after_a_product():
    nodes = [quant("x", "q"), node("MatMul", ["q", "w"], ["m"]), node("Reshape", ["m", "flat"], ["v"]),
             node("QuantizeLinear", ["v", "s", "z"], ["y"])]  # fmt: skip
    check(nodes, (1, 3), w=np.ones((3, 20), F), flat=np.array([-1]))


@pytest.mark.parametrize("rank", range(4))
def test_a_zero_point_of_any_rank_of_a_trunc(rank):
    one = lambda a: np.full((1,) * rank, a, F)  # noqa: E731
    nodes = [node("Quant", ["x", "scale", "zero", "eight"], ["q"], signed=1, narrow=0, rounding_mode="ROUND"),
             node("Trunc", ["q", "scale", "zero", "eight", "four"], ["y"], rounding_mode="FLOOR")]  # fmt: skip
    check(nodes, (1, 2, 3), scale=one(0.5), zero=one(4), eight=one(8), four=one(4))
