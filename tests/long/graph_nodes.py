"""Nodes of random ONNX graphs: functions of elements, products, pools, and operators that move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .graph_net import Net, Value
from .graph_quantisers import weights


def _level(net: Net, x: Value, a: Any) -> Any:
    return np.asarray(a).astype(x.dtype)


# functions of elements


def plain(net: Net, x: Value) -> Value | None:
    """Add a function of elements that is exact."""
    ops = ["Relu", "LeakyRelu", "PRelu", "Clip", "Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Identity", "Dropout"]
    op = net.pick(ops if x.floats else ["Identity"])
    grid, most, how, names, jumps = x.grid, x.most, {}, [x.name], op in ("Floor", "Ceil", "Round", "Sign")
    if op == "LeakyRelu":
        how, grid = {"alpha": 0.25}, x.grid and x.grid / 4
    elif op == "PRelu":
        slope = net.rng.choice([0.0, 0.25, 1.0, -0.5], net.form(x.shape), p=[0.3, 0.3, 0.3, 0.1])
        names.append(net.constant(_level(net, x, slope)))
        grid = x.grid and x.grid / 4
    elif op == "Clip":
        low, high = net.number(-6, 0), net.number(0, 6)
        bounds = [net.constant(_level(net, x, net.pick((np.float32(n), np.float32([n]))))) for n in (low, high)]
        names += net.pick((bounds, bounds[:1], ["", bounds[1]], []))
        grid = x.grid and min(x.grid, 1.0)
    elif jumps:
        grid, most = 1.0, x.most + 1
    if op in ("Floor", "Ceil", "Round") and x.dtype != np.float64 and not x.exact:
        most = x.most + 1
    return net.add(op, x, names, x.shape, grid, most, jumps=jumps, **how)


def smooth(net: Net, x: Value) -> Value | None:
    """Add a function of elements that rounds."""
    if x.dtype != np.float32:
        return None
    ops = "Sigmoid Tanh HardSigmoid HardSwish Elu Selu Erf Softplus Sqrt Exp Log Reciprocal Softmax Pow".split()
    op = net.pick([*ops, *["Mish"] * (net.opset >= 18), *["Gelu"] * (net.opset >= 20)])
    name, most, inputs = x.name, 1.0 + x.most, []
    if op == "Exp":
        (name,) = net.node("Clip", [name, net.constant(np.float32(-4)), net.constant(np.float32(2))])
        most = 8.0
    if op in ("Sqrt", "Log", "Reciprocal"):
        (name,) = net.node("Abs", [name])
        (name,) = net.node("Add", [name, net.constant(net.one(np.float32(1), len(x.shape), 0))])
    if op == "Pow":
        if x.most > 100:
            return None
        inputs, most = [net.constant(net.one(np.float32(2), len(x.shape), 0))], x.most**2
        return net.add(op, x, [name, *inputs], x.shape, x.grid and x.grid**2, most)
    how: dict[str, Any] = {"approximate": net.pick(("none", "tanh"))} if op == "Gelu" else {}
    if op == "Softmax":
        if not x.shape or 0 in x.shape:
            return None
        how = {"axis": net.number(1 if net.batched and len(x.shape) > 1 else 0, len(x.shape) - 1)}
    return net.add(op, x, [name], x.shape, None, most, **how)


def with_constant(net: Net, x: Value) -> Value | None:
    """Add a sum, difference, product or quotient of a value and a constant of any form."""
    op = net.pick(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Sum"])
    form = net.form(x.shape)
    if len(form) == len(x.shape) and math.prod(form) == 1 and net.chance(0.1) and not net.batched:
        form = (1, *form)
    if not x.floats:
        if x.dtype not in (np.int32, np.int64) or op in ("Div", "Sum", "Max", "Min") or x.most > 1000:
            return None
        k = net.rng.integers(-3, 4, form).astype(x.dtype)
    elif op in ("Mul", "Div"):
        k = _level(net, x, net.rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], form))
        if net.rough and x.dtype == np.float32:
            k = net.rng.uniform(0.3, 3, form).astype(np.float32)
    else:
        k = _level(net, x, net.rng.integers(-8, 9, form) / 4)
        if net.rough and x.dtype == np.float32:
            k = net.rng.normal(0, 1, form).astype(np.float32)
    largest = float(np.abs(k).max())
    multiplies = op in ("Mul", "Div")
    most = x.most * max(largest, 2.0) if multiplies else x.most + largest
    grid = x.grid and (x.grid / 2 if multiplies else min(x.grid, 0.25))
    names = [x.name, net.constant(k)]
    if net.chance(0.3) and op != "Div":
        names = names[::-1]
    v = net.add(op, x, names, np.broadcast_shapes(x.shape, form), grid, most)
    if net.rough and v.floats:
        v.grid = None
    return v


def compared(net: Net, x: Value) -> Value | None:
    """Add a comparison with a constant, operators on its bools, and what they choose: numbers, or 0 and 1."""
    if x.narrow or not x.exact or not (x.floats or x.dtype in (np.int32, np.int64)):
        return None
    form, ops = net.form(x.shape), ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
    k = net.rng.integers(-8, 9, form) / 4 if x.floats else net.rng.integers(-3, 4, form)
    names = [x.name, net.constant(_level(net, x, k))]
    (mask,) = net.node(net.pick(ops), names[::-1] if net.chance(0.3) else names)
    shape = np.broadcast_shapes(x.shape, form)
    if net.chance(0.3):
        (other,) = net.node(net.pick(ops), names)
        (mask,) = net.node(net.pick(("And", "Or", "Xor")), [mask, other])
    if net.chance(0.2):
        (mask,) = net.node("Not", [mask])
    if net.chance(0.3):
        return net.add("Cast", x, [mask], shape, 1.0, 1.0, np.float32, to=1)
    form = net.form(shape)
    k = net.rng.integers(-8, 9, form) / 4 if x.floats else net.rng.integers(-3, 4, form)
    parts = [x.name, net.constant(_level(net, x, k))]
    shape = np.broadcast_shapes(shape, form)
    grid = x.grid and min(x.grid, 0.25)
    return net.add("Where", x, [mask, *(parts[::-1] if net.chance(0.5) else parts)], shape, grid, x.most + 3)


def of_two(net: Net, x: Value) -> Value | None:
    """Add a sum, difference, product, maximum or matrix product of two values."""

    def fits(y: Value) -> bool:
        try:
            return y.dtype == x.dtype and not y.narrow and np.broadcast_shapes(x.shape, y.shape) is not None
        except ValueError:
            return False

    others = [y for y in net.values if fits(y) and (not net.batched or y.shape[:1] == x.shape[:1])]
    if x.narrow or not others or not (x.floats or x.dtype in (np.int32, np.int64)):
        return None
    y, op = net.pick(others), net.pick(("Add", "Add", "Add", "Sub", "Mul", "Max", "Min", "Concat"))
    if op == "Concat":
        alike = [y for y in others if y.shape == x.shape]
        parts = [x.name, *(net.pick(alike).name for _ in range(net.number(1, 2)))]
        axis = net.number(1 if net.batched else 0, len(x.shape) - 1) if len(x.shape) > net.batched else None
        if axis is None:
            return None
        most = max(v.most for v in alike)
        grids = [v.grid for v in alike]
        shape = tuple(n * len(parts) if i == axis else n for i, n in enumerate(x.shape))
        v = net.add("Concat", x, parts, shape, None if None in grids else min(grids), most, axis=axis)
        return v
    most = x.most * y.most if op == "Mul" else x.most + y.most
    if not x.floats and most > 10000:
        return None
    rough = x.grid is None or y.grid is None
    grid = None if rough else x.grid * y.grid if op == "Mul" else min(x.grid, y.grid)
    return net.add(op, x, [x.name, y.name], np.broadcast_shapes(x.shape, y.shape), grid, most)


def norm(net: Net, x: Value) -> Value | None:
    """Add a BatchNormalization."""
    if x.dtype != np.float32 or len(x.shape) < 2:
        return None
    c = x.shape[1]
    gamma = net.rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], c)
    arrays = [gamma, net.rng.integers(-3, 4, c), net.rng.integers(-5, 6, c), 4.0 ** net.rng.integers(-1, 2, c)]
    epsilon = 1e-3 if net.rough else 0.0
    names = [net.constant(a.astype(np.float32)) for a in arrays]
    grid = None if net.rough or x.grid is None else min(x.grid, 1.0) / 4
    return net.add("BatchNormalization", x, [x.name, *names], x.shape, grid, 4 * (x.most + 5) + 3, epsilon=epsilon)


def cast(net: Net, x: Value) -> Value | None:
    """Add a Cast: of integers to floats, of floats between their dtypes, of exact floats to integers."""
    if x.narrow:
        to = 1
    elif x.floats:
        options = [n for n, d in ((1, "float32"), (10, "float16"), (11, "float64")) if x.most < 1000 and x.grid]
        whole = x.exact and x.grid is not None and x.grid >= 1
        to = net.pick([*options, 1, *((6, 7, 3) if whole and x.most < 128 else ())])
    else:
        to = net.pick((1, 1, 6, 7)) if x.most < 2**20 else 1
    kinds = {1: "float32", 3: "int8", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}
    return net.add("Cast", x, [x.name], x.shape, x.grid, x.most, kinds[to], to=to)


# products and pools


def _summed(net: Net, x: Value, grid: float | None, most: float, terms: int) -> tuple[float | None, float]:
    total = x.most * most * terms
    return (None if grid is None or x.grid is None else grid * x.grid), total


def conv(net: Net, x: Value) -> Value | None:
    """Add a convolution of one to three axes, in groups, of any geometry, with or without a bias."""
    axes = len(x.shape) - 2
    if x.dtype not in (np.float32, np.float64) or not 1 <= axes <= 3 or 0 in x.shape:
        return None
    c, image = x.shape[1], x.shape[2:]
    groups = net.pick([g for g in range(1, c + 1) if c % g == 0]) if net.chance(0.4) else 1
    outputs = groups * net.pick((1, 1, 2, 3))
    dilations = [net.pick((1, 1, 2)) for _ in image]
    kernel = [net.number(1, min(3, (n - 1) // d + 1)) for n, d in zip(image, dilations, strict=True)]
    how: dict[str, Any] = {"kernel_shape": kernel}
    if net.chance(0.7):
        how["dilations"] = dilations
    else:
        dilations = [1] * axes
    strides = [net.pick((1, 1, 2)) for _ in image]
    pads = [net.number(0, k - 1) for k in (*kernel, *kernel)]
    if net.chance(0.8):
        how |= {"strides": strides, "pads": pads}
    else:
        strides, pads = [1] * axes, [0] * 2 * axes
    if groups > 1:
        how["group"] = groups
    ends = zip(image, kernel, dilations, strides, pads[:axes], pads[axes:], strict=True)
    out = [(n + p + e - d * (k - 1) - 1) // s + 1 for n, k, d, s, p, e in ends]
    shape = (outputs, c // groups, *kernel)
    w, grid, most = weights(net, shape, 0, x.dtype)
    grid, most = _summed(net, x, grid, most, math.prod(shape[1:]))
    names = [x.name, w]
    if net.chance(0.5):
        bias = net.rng.integers(-8, 9, outputs) / 4
        names.append(net.constant(bias.astype(x.dtype)))
        grid, most = grid and min(grid, 0.25), most + 2
    return net.add("Conv", x, names, (x.shape[0], outputs, *out), grid, most, **how)


def transposed(net: Net, x: Value) -> Value | None:
    """Add a transposed convolution of images."""
    if x.dtype != np.float32 or len(x.shape) not in (3, 4) or 0 in x.shape or math.prod(x.shape[2:]) > 40:
        return None
    c, image = x.shape[1], x.shape[2:]
    outputs, strides = net.pick((1, 1, 2)), [net.pick((1, 2)) for _ in image]
    kernel = [net.number(s, 3) for s in strides]
    w, grid, most = weights(net, (c, outputs, *kernel), 1)
    grid, most = _summed(net, x, grid, most, c * math.prod(kernel))
    names = [x.name, w]
    if net.chance(0.4):
        names.append(net.constant((net.rng.integers(-8, 9, outputs) / 4).astype(np.float32)))
        grid, most = grid and min(grid, 0.25), most + 2
    out = [(n - 1) * s + k for n, s, k in zip(image, strides, kernel, strict=True)]
    return net.add("ConvTranspose", x, names, (x.shape[0], outputs, *out), grid, most, strides=strides)


def matmul(net: Net, x: Value) -> Value | None:
    """Add a matrix product by a constant on either side, a Gemm, or a product of two values."""
    if x.dtype not in (np.float32, np.float64) or not 2 <= len(x.shape) <= 4 or 0 in x.shape:
        return None
    k, outputs = x.shape[-1], net.pick((1, 1, 2, 4))
    if net.chance(0.4) and len(x.shape) == 2:
        by_outputs = net.number(0, 1)
        shape = (outputs, k) if by_outputs else (k, outputs)
        w, grid, most = weights(net, shape, 0 if by_outputs else 1, x.dtype)
        grid, most = _summed(net, x, grid, most, k)
        names, how = [x.name, w], {"transB": by_outputs}
        if net.chance(0.3):
            how["alpha"] = net.pick((0.5, 2.0))
            grid, most = grid and grid / 2, 2 * most
        if net.chance(0.6):
            form = net.pick(((), (1,), (1, 1), (outputs,), (1, outputs)))
            names.append(net.constant(_level(net, x, net.rng.integers(-8, 9, form) / 4)))
            how |= net.pick(({}, {"beta": 0.5}))
            grid, most = grid and min(grid, 0.125), most + 2
        return net.add("Gemm", x, names, (x.shape[0], outputs), grid, most, **how)
    lead = x.shape[:-2]
    if net.chance(0.2) and len(x.shape) > 2:  # a constant on the left
        w, grid, most = weights(net, (outputs, x.shape[-2]), 0, x.dtype)
        grid, most = _summed(net, x, grid, most, x.shape[-2])
        return net.add("MatMul", x, [w, x.name], (*lead, outputs, k), grid, most)
    if net.chance(0.2) and len(x.shape) > 2:
        (turned,) = net.node("Transpose", [x.name], perm=[*range(len(lead)), len(lead) + 1, len(lead)])
        grid, most = _summed(net, x, x.grid, x.most, k)
        return net.add("MatMul", x, [x.name, turned], (*x.shape[:-1], x.shape[-2]), grid, most)
    w, grid, most = weights(net, (k, outputs), 1, x.dtype)
    grid, most = _summed(net, x, grid, most, k)
    if net.chance(0.15):
        (w,) = net.node("Unsqueeze", [w, net.constant(np.array([0]))])
        if len(x.shape) == 2:
            lead = (1,)
    return net.add("MatMul", x, [x.name, w], (*lead, *x.shape[len(x.shape) - 2 : -1], outputs), grid, most)


def of_integers(net: Net, x: Value) -> Value | None:
    """Add ONNX's product of integers with zero points, or the one that quantises its result.

    Zero points of results are even: ONNX rounds before it adds them, its evaluator after.
    """
    if x.dtype not in (np.uint8, np.int8) or x.narrow or len(x.shape) not in (2, 4) or 0 in x.shape:
        return None
    kind, linear, c = net.pick(("uint8", "int8")), net.chance(0.5), x.shape[1]
    outputs, image = net.pick((1, 1, 3)), len(x.shape) == 4
    shape = (outputs, c, 1, 1) if image else (c, outputs)
    whole = net.rng.integers(0 if kind == "uint8" else -9, 10, shape).astype(kind)
    w, out = net.constant(whole), (x.shape[0], outputs, *x.shape[2:])
    zeros = [net.constant(_level(net, x, net.number(0, 5))), net.constant(np.asarray(net.number(0, 3), kind))]
    if not linear:
        op = "ConvInteger" if image else "MatMulInteger"
        return net.add(op, x, [x.name, w, *zeros], out, 1.0, 300.0 * 12 * c, "int32")
    scales = [net.constant(np.asarray(2.0 ** net.number(-2, 2), np.float32)) for _ in range(3)]
    names = [
        x.name,
        scales[0],
        zeros[0],
        w,
        scales[1],
        zeros[1],
        scales[2],
        net.constant(_level(net, x, net.pick((0, 4)))),
    ]
    if image and net.chance(0.5):
        names.append(net.constant(net.rng.integers(-30, 31, outputs).astype(np.int32)))
    return net.add("QLinearConv" if image else "QLinearMatMul", x, names, out, 1.0, 255.0, x.dtype)


def pool(net: Net, x: Value) -> Value | None:
    """Add a pool, over windows or over the whole image."""
    axes = len(x.shape) - 2
    if not 1 <= axes <= 3 or 0 in x.shape or x.dtype != np.float32:
        return None
    op = net.pick(("MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        taps = math.prod(x.shape[2:])
        grid = x.grid if "Max" in op else _divided(x.grid, taps)
        return net.add(op, x, [x.name], (*x.shape[:2], *(1,) * axes), grid, x.most)
    kernel = [net.number(1, min(3, n)) for n in x.shape[2:]]
    strides, pads = [net.number(1, 2) for _ in kernel], [net.number(0, (k - 1) // 2) for k in (*kernel, *kernel)]
    out = [(n + p + e - k) // s + 1 for n, k, s, p, e in
           zip(x.shape[2:], kernel, strides, pads[:axes], pads[axes:], strict=True)]  # fmt: skip
    taps, how = math.prod(kernel), {"kernel_shape": kernel, "strides": strides, "pads": pads}
    grid = x.grid
    if op == "AveragePool":
        how["count_include_pad"] = 1
        grid = _divided(x.grid, taps)
    return net.add(op, x, [x.name], (*x.shape[:2], *out), grid, x.most, **how)


def _divided(grid: float | None, count: int) -> float | None:
    """Return the grid of exact quotients, None if they round."""
    return grid / count if grid is not None and count & (count - 1) == 0 else None


def reduced(net: Net, x: Value) -> Value | None:
    """Add a reduction along axes, or the place of an extreme."""
    first = 1 if net.batched else 0
    if len(x.shape) <= first or 0 in x.shape or x.narrow or x.dtype not in (np.float32, np.int32):
        return None
    axis, keep = net.number(first, len(x.shape) - 1), net.number(0, 1)
    op = net.pick(["ReduceSum", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", *["ReduceMean"] * x.floats])
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape) if keep or i != axis)
    if op.startswith("Arg"):
        return net.add(op, x, [x.name], shape, 1.0, x.shape[axis], "int64", True, axis=axis, keepdims=keep)
    grid, most = x.grid, x.most * x.shape[axis]
    if op == "ReduceMean":
        grid = _divided(x.grid, x.shape[axis])
    by_operand = net.opset >= (13 if op == "ReduceSum" else 18)
    names, how = ([x.name, net.constant(np.array([axis]))], {}) if by_operand else ([x.name], {"axes": [axis]})
    return net.add(op, x, names, shape, grid, most, keepdims=keep, **how)


ELEMENTS = {plain: 7, smooth: 2, with_constant: 6, compared: 2, of_two: 5, norm: 2, cast: 1}
PRODUCTS = {conv: 5, transposed: 1, matmul: 5, of_integers: 6}
POOLS = {pool: 4, reduced: 2}
