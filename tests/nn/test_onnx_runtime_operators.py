"""ONNX Runtime's operators on integers with scales: equal to its kernels' float32 formulas, and to its results."""

import math

import numpy as np
import pytest
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa

F, U, I8 = np.float32, np.uint8, np.int8
KINDS = {U: 2, I8: 3, F: 1}  # ONNX's numbers of types
X = np.array([0, 1, 2, 3, 4, 5, 7, 90, 127, 128, 129, 200, 254, 255], U)
IMAGE = np.concatenate([X, X[::-1], X, X[::-1]]).reshape(1, 2, 4, 7)
WEIGHTS = np.array([[3, -4], [127, -128], [0, 1], [5, 9], [-1, 2], [2, 2], [7, -7]], I8)


def net(op, operands, kind=U, **attributes):
    """Build a model of one operator; `operands` are inputs as ("input", array), constants, or None if left out."""
    names, inputs, tensors = [], [], []
    for i, a in enumerate(operands):
        names.append("" if a is None else f"v{i}")
        if isinstance(a, tuple):
            inputs.append((names[-1], a[1].shape, KINDS[a[1].dtype.type]))
        elif a is not None:
            tensors.append((names[-1], a))
    made = onnx.helper.make_node(op, names, ["y"], name=f"{op}_y", domain="com.microsoft", **attributes)
    m = model([made], inputs, [("y", None, KINDS[kind])], tensors)
    m.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return m


def given(operands):
    """Return the values of a model's inputs."""
    return {f"v{i}": a[1] for i, a in enumerate(operands) if isinstance(a, tuple)}


def x(a):
    return ("input", a)


def kind_of(operands):
    return next(a for a in reversed(operands) if a is not None and not isinstance(a, tuple)).dtype.type


A, B = X.reshape(1, 2, 7), X[::-1].reshape(1, 2, 7)
S, T = A.view(I8), B.view(I8)
# operands, attributes, and what ONNX Runtime 1.32 gave on x86: halves are rounded after zero points, or before them
RUNTIME = {
    "sum": (
        "QLinearAdd", [x(A), F(0.5), U(3), x(B), F(0.25), U(7), F(1), U(1)], {},
        [62, 62, 49, 32, 32, 32, 24, 44, 62, 63, 63, 98, 125, 125],
    ),
    "sum of other scales": (
        "QLinearAdd", [x(A), F(0.03), U(128), x(B), F(0.017), U(7), F(0.04), U(121)], {},
        [130, 131, 109, 79, 79, 80, 66, 92, 119, 120, 120, 173, 213, 213],
    ),
    "sum of int8": (
        "QLinearAdd", [x(S), F(0.5), I8(3), x(T), F(0.25), I8(-7), F(0.5), I8(1)], {},
        [1, 2, -24, -59, -58, 70, 54, 95, 127, -124, -124, -54, 0, 0],
    ),
    "product": (
        "QLinearMul", [x(A), F(0.5), U(3), x(B), F(0.25), U(7), F(1), U(101)], {},
        [8, 39, 77, 101, 116, 131, 142, 101, 70, 54, 38, 0, 0, 0],
    ),
    "product of int8": (
        "QLinearMul", [x(S), F(0.03), I8(3), x(T), F(0.25), I8(-7), F(0.4), I8(-5)], {},
        [-5, -5, -4, -5, -7, 0, 2, 18, 23, -32, -29, -15, -6, -6],
    ),
    "sigmoid": (
        "QLinearSigmoid", [x(A), F(0.05), U(128), F(1 / 256), U(0)], {},
        [0, 0, 0, 0, 1, 1, 1, 33, 125, 128, 131, 249, 255, 255],
    ),
    "leaky relu": (
        "QLinearLeakyRelu", [x(A), F(0.5), U(100), F(1), U(101)], {"alpha": 0.25},
        [89, 89, 89, 89, 89, 89, 89, 100, 115, 115, 115, 151, 178, 179],
    ),
    "leaky relu of int8": (
        "QLinearLeakyRelu", [x(S), F(0.5), I8(1), F(0.3), I8(-7)], {},
        [-7, -7, -5, -4, -2, 0, 3, 127, 127, -9, -9, -8, -7, -7],
    ),
    "concat": (
        "QLinearConcat", [F(1), U(1), x(A), F(0.5), U(3), x(B), F(1), U(1)], {"axis": 1},
        [0, 0, 1, 1, 1, 2, 3, 45, 63, 63, 64, 99, 127, 127, 255, 254, 200, 129, 128, 127, 90, 7, 5, 4, 3, 2, 1, 0],
    ),
    "global average": ("QLinearGlobalAveragePool", [x(IMAGE), F(0.5), U(3), F(0.25), U(1)], {}, [167, 167]),
    "global average, channels last": (
        "QLinearGlobalAveragePool", [x(IMAGE.reshape(1, 4, 2, 7)), F(0.03), U(128), F(0.01), U(121)],
        {"channels_last": 1}, [1, 27, 0, 0, 0, 27, 1],
    ),
    "average": (
        "QLinearAveragePool", [x(IMAGE), F(0.5), U(3), F(1), U(1)], {"kernel_shape": [2, 2], "strides": [2, 2]},
        [27, 32, 57, 65, 42, 32, 27, 32, 57, 65, 42, 32],
    ),
    "gemm": (
        "QGemm", [x(X.reshape(2, 7)), F(0.5), U(3), WEIGHTS, F([0.25, 0.03]), np.zeros(2, I8),
                  np.array([7, -900], np.int32), F(16), U(101)], {}, [99, 100, 247, 85],
    ),
    "gemm that gives floats": (
        "QGemm", [x(X.reshape(2, 7)), F(0.5), U(3), WEIGHTS.T.copy(), F(0.03), I8(1)], {"transB": 1, "alpha": 0.3},
        [-1.0485000610351562, 1.0980000495910645, 78.9570083618164, -76.45950317382812],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNTIME)
def test_results_of_onnx_runtime(name, tmp_path):
    """The graph, and what is read from its files, are equal; ONNX's reference runs the file that is written."""
    op, operands, attributes, expected = RUNTIME[name]
    kind = F if "floats" in name else U if name == "concat" else kind_of(operands)
    graph, inputs = qa.nn.load(net(op, operands, kind, **attributes)), given(operands)
    got = graph(**inputs)
    assert got.dtype == kind and got.reshape(-1).tolist() == expected
    for path in (tmp_path / "net.qa", tmp_path / "net.onnx"):
        graph.save(path)
        np.testing.assert_array_equal(qa.nn.load(path)(**inputs), got, strict=True)
    np.testing.assert_array_equal(evaluator(onnx.load(tmp_path / "net.onnx")).run(None, inputs)[0], got, strict=True)


# the float32 formulas of its kernels, of arrays of integers, scales and zero points


def clipped(v, kind):
    info = np.iinfo(kind)
    return np.clip(v, info.min, info.max).astype(kind)


def whole(v, zero):
    return v.astype(F) - F(zero)


def summed(a, a_s, a_z, b, b_s, b_z, s, z):
    left, right = a_s / s, b_s / s
    offset = F(z) - (left * F(a_z) + right * F(b_z))
    return np.rint((left * a.astype(F) + offset) + right * b.astype(F))


def multiplied(a, a_s, a_z, b, b_s, b_z, s, z):
    return np.rint(whole(a, a_z) * whole(b, b_z) * (a_s * b_s / s) + F(z))


def sigmoid(a, a_s, a_z, s, z):
    real = [1 / (1 + math.exp(-v)) for v in (whole(a, a_z) * a_s).reshape(-1).tolist()]
    return np.rint(F(real).reshape(a.shape) / s) + z.astype(int)


def leaky(a, a_s, a_z, s, z, alpha=0.01):
    real = whole(a, a_z) * a_s
    return np.rint(np.where(real < 0, real * F(alpha), real) / s) + z.astype(int)


def joined(s, z, *parts, axis):
    each = [np.rint(whole(*parts[i : i + 3 : 2]) * parts[i + 1] / s) + z.astype(int) for i in range(0, len(parts), 3)]
    return np.concatenate(each, axis)


def averaged(a, a_s, a_z, s, z, channels_last=0):
    axes = (1, 2) if channels_last else (2, 3)
    total = (a.astype(int) - int(a_z)).sum(axes, keepdims=True)
    return np.rint(total.astype(F) * (a_s / (s * F(a.shape[axes[0]] * a.shape[axes[1]])))) + z.astype(int)


def gemm(a, a_s, a_z, w, w_s, w_z, c, s, z, alpha=1.0, transB=0):
    w = w.astype(int) - w_z.astype(int).reshape((-1, 1) if transB and w_z.size > 1 else (-1,))
    total = (a.astype(int) - int(a_z)) @ (w.T if transB else w) + (0 if c is None else c)
    return np.rint(total.astype(F) * (F(alpha) * a_s * w_s / s)) + z.astype(int)


FORMULAS = {
    "QLinearAdd": summed, "QLinearMul": multiplied, "QLinearSigmoid": sigmoid, "QLinearLeakyRelu": leaky,
    "QLinearConcat": joined, "QLinearGlobalAveragePool": averaged, "QGemm": gemm,
}  # fmt: skip


def drawn(op, rng, kind):
    """Draw operands and attributes; some scales are powers of two, of which halves come."""
    info = np.iinfo(kind)
    scale = lambda low=0.01, high=0.1: F(rng.choice([rng.uniform(low, high), 2.0 ** rng.integers(-6, 0)]))  # noqa: E731
    zero = lambda: kind(rng.choice([0, rng.integers(info.min, info.max + 1)]))  # noqa: E731
    whole = lambda *shape: rng.integers(info.min, info.max + 1, shape).astype(kind)  # noqa: E731
    image, y = (2, 3, 5, 4), (scale(), zero())
    one = lambda *shape: [x(whole(*shape)), scale(), zero()]  # noqa: E731
    if op in ("QLinearAdd", "QLinearMul"):
        second = one(*((1, 3, 1, 1) if rng.random() < 0.3 else image))
        if rng.random() < 0.3:
            second[0] = second[0][1]  # a constant
        return [*one(*image), *second, *y], {}
    if op == "QLinearConcat":
        axis = int(rng.integers(1, 4))
        return [*y, *one(*image), x(whole(*image)), *y, *one(*image)], {"axis": axis}
    if op == "QGemm":
        k, outputs, transposed = int(rng.integers(1, 40)), int(rng.integers(2, 9)), int(rng.integers(0, 2))
        w = rng.integers(-128, 128, (outputs, k) if transposed else (k, outputs)).astype(I8)
        each = rng.random() < 0.5
        w_s = F(rng.uniform(0.01, 0.1, outputs)) if each else scale()
        c = rng.integers(-5000, 5000, outputs).astype(np.int32) if rng.random() < 0.5 else None
        last = [F(rng.uniform(1, 9)), zero()]
        w_z = np.zeros(outputs, I8) if each else I8(rng.integers(-9, 9))
        return [*one(3, k), w, w_s, w_z, c, *last], {"alpha": float(rng.choice([1, 0.3])), "transB": transposed}
    a = {"alpha": float(F(rng.uniform(0, 0.5)))} if op == "QLinearLeakyRelu" and rng.random() < 0.5 else {}
    if op == "QLinearGlobalAveragePool":
        a = {"channels_last": int(rng.integers(0, 2))}
    return [*one(*image), *y], a


@pytest.mark.parametrize("kind", [U, I8])
@pytest.mark.parametrize("op", FORMULAS)
def test_formulas(op, kind):
    rng = np.random.default_rng(len(op))
    for _ in range(12):
        operands, attributes = drawn(op, rng, kind)
        values = [a[1] if isinstance(a, tuple) else a for a in operands]
        expected = clipped(FORMULAS[op](*values, **attributes), kind)
        graph = qa.nn.load(net(op, operands, kind, **attributes))
        np.testing.assert_array_equal(graph(**given(operands)), expected, strict=True)


@pytest.mark.parametrize("zero", [0, 121])
def test_products_are_packed(zero):
    """Between products, integers stay codes or bytes: of two convolutions with a shortcut, a pool and a dense layer."""
    rng = np.random.default_rng(zero)
    tensors = [("s", F(0.02)), ("z", U(zero)), ("w_s", F(0.01)), ("w_z", I8(0)), ("y_s", F(3.0)), ("shape", [0, -1])]
    tensors += [
        ("w", rng.integers(-128, 128, (4, 4, 3, 3)).astype(I8)),
        ("v", rng.integers(-128, 128, (5, 4)).astype(I8)),
    ]
    conv = lambda of, to: node(  # noqa: E731
        "QLinearConv", [of, "s", "z", "w", "w_s", "w_z", "s", "z"], [to], pads=[1, 1, 1, 1]
    )
    other = lambda op, inputs, to, **a: onnx.helper.make_node(op, inputs, [to], domain="com.microsoft", **a)  # noqa: E731
    nodes = [
        conv("x", "a"),
        conv("a", "b"),
        other("QLinearAdd", ["a", "s", "z", "b", "s", "z", "s", "z"], "c"),
        other("QLinearGlobalAveragePool", ["c", "s", "z", "s", "z"], "g"),
        node("Reshape", ["g", "shape"], ["f"]),
        other("QGemm", ["f", "s", "z", "v", "w_s", "w_z", "", "y_s", "z"], "y", transB=1),
    ]
    m = model(nodes, [("x", ("n", 4, 6, 6), 2)], [("y", None, 2)], [(n, np.asarray(a)) for n, a in tensors])
    graph = qa.nn.load(m)
    assert graph.inputs[0].batched
    assert [n.op for n in graph.nodes if n.op in ("conv2d", "linear", "Conv", "MatMul")][:2] == ["conv2d", "conv2d"]
    assert not any(n.op in ("Conv", "MatMul", "MatMulInteger", "QLinearConv") for n in graph.nodes)
    values = rng.integers(0, 256, (3, 4, 6, 6)).astype(U)
    got = graph(values)
    assert got.shape == (3, 5) and (got == np.concatenate([graph(values[i : i + 1]) for i in range(3)])).all()


REFUSED = {
    "an operator that is not known": (
        "QLinearSoftmax", [x(A), F(1), U(0), F(1), U(0)], {}, "the operator is not known",
    ),
    "a computed scale": (
        "QLinearSigmoid", [x(A), x(F(np.ones(()))), U(0), F(1), U(0)], {}, "its scale .operand 1. must be a constant",
    ),
    "a scale of 0": ("QLinearSigmoid", [x(A), F(0), U(0), F(1), U(0)], {}, "its scale .operand 1. must be positive"),
    "a scale for each channel": (
        "QLinearAdd", [x(A), F([1, 1]), U(0), x(A), F(1), U(0), F(1), U(0)], {},
        r"its scale .operand 1. must be one number, not \(2,\)",
    ),
    "no zero point": (
        "QLinearLeakyRelu", [x(A), F(1), U(0), F(1)], {}, "the zero point of its result .operand 4. is left out",
    ),
    "16 bits": (
        "QLinearAdd", [x(A), F(1), U(0), x(A), F(1), U(0), F(1), np.uint16(0)], {},
        "the zero point of its result .operand 7. must be a constant of 8 bits",
    ),
    "16 bits of a function": (
        "QLinearSigmoid", [x(A), F(1), U(0), F(1), np.uint16(0)], {}, "uint16 has 16 bits .2, 4 and 8 are taken.",
    ),
    "a quantiser of 16 bits": (
        "QuantizeLinear", [x(F(A)), F(1), np.int16(0)], {}, "int16 has 16 bits .2, 4 and 8 are taken.",
    ),
    "a transposed operand": (
        "QGemm", [x(X.reshape(7, 2)), F(0.5), U(3), WEIGHTS, F(1), I8(0)], {"transA": 1},
        "its first operand is transposed",
    ),
    "a computed bias": (
        "QGemm", [x(X.reshape(2, 7)), F(0.5), U(3), WEIGHTS, F(1), I8(0), x(F([1, 2])), F(1), U(0)], {},
        "its bias .operand 6. must be a constant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_one_line_names_what_is_refused(name):
    op, operands, attributes, why = REFUSED[name]
    with pytest.raises(
        ValueError, match=rf"load: 1 parts of the file cannot be taken:\n.*{op} '{op}_y': {why}"
    ) as error:
        qa.nn.load(net(op, operands, **attributes))
    assert len(str(error.value).splitlines()) == 2


def test_quantisers_of_the_domain():
    """They are those of ONNX, whose results the reference gives."""
    values = F(np.random.default_rng(0).normal(0, 3, (2, 3, 4)))
    tensors = [("s", F([0.1, 0.2, 0.3])), ("z", U([0, 5, 200]))]
    for domain in ("", "com.microsoft"):
        nodes = [
            onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain=domain, axis=1),
            onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], domain=domain, axis=1),
        ]
        m = model(nodes, [("x", (1, 3, 4))], [("y", None)], tensors)
        got = qa.nn.load(m)(values)
        expected = got if domain else evaluator(m).run(None, {"x": values})[0]
        np.testing.assert_array_equal(got, expected)


def test_gelu():
    a = F(np.linspace(-3, 3, 14).reshape(A.shape))
    operands = [x(a)]
    expected = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in a.reshape(-1).tolist()]
    got = qa.nn.load(net("Gelu", operands, F))(**given(operands))
    np.testing.assert_allclose(got.reshape(-1), F(expected), rtol=1e-6, atol=1e-7)


def test_names_of_the_steps_are_free():
    """A file may have the names that the steps of an operator would have."""
    operands = [x(A), F(0.5), U(3), x(B), F(0.25), U(7), F(1), U(1)]
    m = net("QLinearAdd", operands)
    for i, name in enumerate(("y.Add", "y.constant", "y.DequantizeLinear")):
        m.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, (1, 2)))
        m.graph.node.append(node("Relu", [name], [f"r{i}"]))
        m.graph.output.append(onnx.helper.make_tensor_value_info(f"r{i}", 1, (1, 2)))
    ones = np.ones((1, 2), F)
    got = qa.nn.load(m)(**given(operands), **dict.fromkeys(("y.Add", "y.constant", "y.DequantizeLinear"), ones))
    assert got["y"].reshape(-1).tolist() == RUNTIME["sum"][3] and (got["r0"] == 1).all()
