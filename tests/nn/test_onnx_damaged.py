"""Damaged and hostile ONNX files: refused with the documented error, or they load and run."""

import time
import tracemalloc

import numpy as np
import pytest
from onnx_models import model, node, onnx
from paths import TESTS

import quantarray as qa

FILE = TESTS / "data" / "qonnx" / "TFC_1W1A.onnx"


def small():
    """A network whose bytes are mostly those of the graph."""
    weights = np.random.default_rng(0).choice([-1, 1], (4, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("BipolarQuant", ["x", "one"], ["a"]),
        node("BipolarQuant", ["w", "one"], ["b"]),
        node("Conv", ["a", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["d"], ["e"]),
        node("Quant", ["e", "one", "zero", "bits"], ["f"], signed=0, narrow=0, rounding_mode="ROUND"),
        node("Flatten", ["f"], ["g"]),
        node("Softmax", ["g"], ["y"], axis=1),
    ]
    numbers = [("one", np.float32(1)), ("zero", np.float32(0)), ("bits", np.float32(2)), ("w", weights)]
    return model(nodes, [("x", (1, 3, 6, 6))], [("y", None)], numbers)


def damaged(data, rng):
    """The bytes with one to three of them changed, left out or put in."""
    bytes_ = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, kind = rng.integers(len(bytes_)), rng.integers(3)
        if kind == 0:
            bytes_[at] = rng.integers(256)
        elif kind == 1:
            del bytes_[at : at + rng.integers(1, 9)]
        else:
            bytes_[at:at] = rng.bytes(rng.integers(1, 9))
    return bytes(bytes_)


def loads_and_runs_or_is_refused(data, most=2**26):
    """Whether it ran. No file of a few KB may take more memory than `most`, beside its inputs."""
    tracemalloc.start()
    try:
        graph = qa.nn.load(data)
    except ValueError as error:
        assert "load: " in str(error)
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most
    inputs = [np.zeros(v.shape, v.dtype) for v in graph.inputs if np.prod(v.shape) < 2**20]
    if len(inputs) == len(graph.inputs):
        graph(*inputs)
    return True


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes(seed):
    rng, data = np.random.default_rng(seed), small().SerializeToString()
    assert loads_and_runs_or_is_refused(data)
    ran = sum(loads_and_runs_or_is_refused(damaged(data, rng)) for _ in range(150))
    assert ran < 150


def test_a_name_that_is_no_text():
    data = small().SerializeToString().replace(b"Softmax_y", b"Softm\xff\xfe_y")
    with pytest.raises(qa.FormatError, match="load: "):
        qa.nn.load(data)


def changed(change):
    m = small()
    change(m.graph)
    return m


def operands(graph):
    del graph.node[4].input[:]
    graph.node[4].input.extend(["d", "one"])


def huge_weight(graph):
    graph.initializer[3].dims[0] = 2**40


def negative_weight(graph):
    graph.initializer[3].dims[0] = -4


def short_weight(graph):
    graph.initializer[3].raw_data = graph.initializer[3].raw_data[:-1]


def huge_input(graph):
    graph.input[0].type.tensor_type.shape.dim[3].dim_value = 2**40


def huge_stride(graph):
    graph.node[2].attribute.append(onnx.helper.make_attribute("strides", [2**31, 1]))


def nan(graph):
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32(np.nan), "one"))


def bits(graph):
    graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.float32(2.5), "bits"))


def unknown(graph):
    graph.node[4].domain = "com.example"


def flag(graph):
    graph.node[5].attribute[0].i = 7


@pytest.mark.parametrize(
    "change, message",
    [
        (operands, r"Relu 'Relu_e': it has 2 operands, 1 are needed"),
        (huge_weight, r"constant 'w': 432 bytes for a tensor \(1099511627776, 3, 3, 3\) of 118747255799808"),
        (negative_weight, r"constant 'w': a tensor of shape \(-4, 3, 3, 3\)"),
        (short_weight, r"constant 'w': 431 bytes for a tensor \(4, 3, 3, 3\) of 432"),
        (huge_input, r"input 'x': \(1, 3, 6, 1099511627776\) has more than"),
        (huge_stride, r"Conv 'Conv_c': its attributes and operands do not go together: kernel \(3, 3\), strides"),
        (nan, r"constant 'one': it has a NaN"),
        (bits, r"Quant 'Quant_f': its bit width must be an integer from 1 to 32, not 2.5"),
        (unknown, r"com.example.Relu 'Relu_e': the operator is not known"),
        (flag, r"Quant 'Quant_f': its attribute \w+ must be 0 or 1, got 7"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        qa.nn.load(changed(change))


@pytest.mark.parametrize("at", [np.array([3]), np.array([-4]), np.array([0.5], np.float32)])
def test_indices_outside_an_axis(at):
    m = model([node("Gather", ["x", "at"], ["y"], axis=1)], [("x", (1, 3))], [("y", None)], [("at", at)])
    with pytest.raises(ValueError, match="its indices must be integers from -3 to 2"):
        qa.nn.load(m)


def test_constants_do_not_grow_beyond_the_file():
    nodes = [node("ConstantOfShape", ["s"], ["big"]), node("Add", ["x", "big"], ["y"])]
    m = model(nodes, [("x", (1, 2**12, 2**12))], [("y", None)], [("s", np.array([1, 2**12, 2**12]))])
    with pytest.raises(ValueError, match="constants computed from constants are larger than a file of this size may"):
        qa.nn.load(m)
    grown = node("Resize", ["x", "", "s"], ["y"], mode="nearest")
    m = model([grown], [("x", (1, 1, 2, 2))], [("y", None)], [("s", np.array([1, 1, 1e4, 1e4], np.float32))])
    with pytest.raises(
        ValueError, match=r"a result of shape \(1, 1, 20000, 20000\) is larger than a file of this size"
    ):
        qa.nn.load(m)


def test_a_large_file_is_refused_at_once():
    start = time.perf_counter()
    data = FILE.read_bytes()
    with pytest.raises(qa.FormatError):
        qa.nn.load(data[: len(data) // 2])
    assert time.perf_counter() - start < 5


def test_an_operand_of_many_that_is_left_out():
    m = model([node("Max", ["x", ""], ["y"])], [("x", (1, 3))], [("y", None)])
    with pytest.raises(ValueError, match="Max 'Max_y': one of its operands is left out"):
        qa.nn.load(m)


def test_infinite_weights():
    w = np.full((3, 2), -np.inf, np.float32)
    m = model([node("MatMul", ["x", "w"], ["y"])], [("x", (1, 3))], [("y", None)], [("w", w)])
    with pytest.raises(ValueError, match="its weights hold a NaN or an infinity"):
        qa.nn.load(m)


def test_split_into_another_number_of_parts():
    m = model(
        [node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2**31)], [("x", (1, 4))], [("y", None), ("z", None)]
    )
    with pytest.raises(ValueError, match="num_outputs is 2147483648, and it has 2 outputs"):
        qa.nn.load(m)


def test_integer_scales():
    tensors = [("w", np.int8([[1, 2]])), ("scale", np.uint8(128))]
    nodes = [node("DequantizeLinear", ["w", "scale"], ["v"]), node("Add", ["x", "v"], ["y"])]
    m = model(nodes, [("x", (1, 2))], [("y", None)], tensors)
    with pytest.raises(ValueError, match="its scale must be floats, not uint8"):
        qa.nn.load(m)


def test_a_bias_of_another_dtype():
    w, bias = np.ones((2, 3, 1, 1), np.float32), np.ones(2, np.int32)
    m = model([node("Conv", ["x", "w", "b"], ["y"])], [("x", (1, 3, 4, 4))], [("y", None)], [("w", w), ("b", bias)])
    with pytest.raises(ValueError, match="its operands have different dtypes, float32, int32"):
        qa.nn.load(m)
