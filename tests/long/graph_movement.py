"""Operators of random ONNX graphs that move elements and change shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .graph_net import Net, Value
from .graph_quantisers import quant


def _moved(net: Net, op: str, x: Value, rest: list[str], shape: Any, law: bool = False, **how: Any) -> Value:
    v = net.add(op, x, [x.name, *rest], shape, x.grid, x.most, **how)
    v.narrow, v.law = x.narrow, x.law if law or (x.law is not None and not x.law[1]) else None
    return v


def _ints(net: Net, *numbers: int) -> str:
    return net.constant(np.array(numbers, np.int64))


def reshape(net: Net, x: Value) -> Value | None:
    """Add a Reshape to a constant shape, or to one that is computed from that of the value."""
    if 0 in x.shape:
        return None
    rest, first = math.prod(x.shape[1:]), x.shape[0] if x.shape else 1
    if not x.shape:
        return _moved(net, "Reshape", x, [_ints(net, 1)], (1,))
    divisors = [d for d in range(1, rest + 1) if rest % d == 0]
    d = net.pick(divisors)
    e = net.pick([k for k in divisors if (rest // d) % k == 0])
    tail = net.pick(((rest,), (d, rest // d), (d, e, rest // d // e), (*x.shape[1:], 1), (1, *x.shape[1:])))
    if rest == 1 and net.chance(0.3):
        tail = ()
    if not net.batched and net.chance(0.3):
        if first * rest == 1 and net.chance(0.5):
            return _moved(net, "Reshape", x, [net.constant(np.zeros(0, np.int64))], ())
        return _moved(net, "Reshape", x, [_ints(net, -1)], (first * rest,))
    kind = net.pick(("literal", "copy", "rest", "computed"))
    if kind == "computed":
        (shape,) = net.node("Shape", [x.name])
        (batch,) = net.node("Gather", [shape, net.constant(np.array(0))])
        (one,) = net.node("Unsqueeze", [batch, _ints(net, 0)])
        (target,) = net.node("Concat", [one, _ints(net, *tail)], axis=0) if tail else (one,)
        return _moved(net, "Reshape", x, [target], (first, *tail))
    if kind == "literal":
        net.general = False
        lengths = (first, *tail)
        if tail and net.chance(0.3):
            at = net.number(1, len(tail))
            lengths = tuple(-1 if i == at else n for i, n in enumerate(lengths))
    else:
        lengths = (0 if kind == "copy" else -1, *tail)
        if kind == "copy" and tail and net.chance(0.5):
            lengths = (0, *tail[:-1], -1)
    return _moved(net, "Reshape", x, [_ints(net, *lengths)], (first, *tail))


def flatten(net: Net, x: Value) -> Value | None:
    """Add a Flatten."""
    if not x.shape:
        return None
    axis = 1 if net.batched and net.chance(0.97) else net.number(0, len(x.shape))
    if axis != 1:
        net.general = False
    shape = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return _moved(net, "Flatten", x, [], shape, axis=axis - len(x.shape) if axis and net.chance(0.2) and axis < len(
        x.shape) else axis)  # fmt: skip


def transpose(net: Net, x: Value) -> Value | None:
    """Add a Transpose."""
    first = 1 if net.batched else 0
    if len(x.shape) < 2:
        return None
    perm = [*range(first), *(int(i) + first for i in net.rng.permutation(len(x.shape) - first))]
    if perm == [*range(len(perm))][::-1] and net.chance(0.5):
        return _moved(net, "Transpose", x, [], x.shape[::-1])
    return _moved(net, "Transpose", x, [], [x.shape[i] for i in perm], perm=perm)


def squeeze(net: Net, x: Value) -> Value | None:
    """Add a Squeeze of axes of length 1."""
    first = 1 if net.batched else 0
    ones = [i for i, n in enumerate(x.shape) if n == 1 and i >= first]
    if not ones:
        return None
    gone = ones if net.chance(0.4) else [net.pick(ones)]
    shape = [n for i, n in enumerate(x.shape) if i not in gone]
    if len(gone) == x.shape.count(1) and net.chance(0.3):
        net.general = False  # a batch of 1 would go too
        return _moved(net, "Squeeze", x, [], shape)
    return _moved(net, "Squeeze", x, [_ints(net, *(i - len(x.shape) if net.chance(0.3) else i for i in gone))], shape)


def unsqueeze(net: Net, x: Value) -> Value | None:
    """Add an Unsqueeze at one or two axes."""
    first = 1 if net.batched else 0
    ndim = len(x.shape) + net.number(1, 2)
    if ndim > 5 or ndim - len(x.shape) > ndim - first:
        return None
    at = sorted(int(i) for i in net.rng.choice(np.arange(first, ndim), ndim - len(x.shape), replace=False))
    rest = iter(x.shape)
    shape = [1 if i in at else next(rest) for i in range(ndim)]
    return _moved(net, "Unsqueeze", x, [_ints(net, *(i - ndim if net.chance(0.3) else i for i in at))], shape)


def slice_(net: Net, x: Value) -> Value | None:
    """Add a Slice along one or two axes, forwards or backwards."""
    first = 1 if net.batched else 0
    if len(x.shape) <= first or 0 in x.shape:
        return None
    at = [int(i) for i in net.rng.choice(np.arange(first, len(x.shape)),
                                         min(net.number(1, 2), len(x.shape) - first), replace=False)]  # fmt: skip
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for i in at:
        n = shape[i]
        if net.chance(0.2):
            start, end, step = net.pick((n - 1, -1)), net.pick((-n - 1, -(2**40))), -1
        else:
            start = net.number(0, n - 1)
            end, step = net.pick((net.number(start + 1, n), n + 7, 2**40)), net.pick((1, 1, 2))
            start = start - n if net.chance(0.3) else start
        shape[i] = len(range(*slice(start, None if step < 0 else end, step).indices(n)))
        starts.append(start), ends.append(end), steps.append(step)
    rest = [_ints(net, *v) for v in (starts, ends, at)]
    if steps != [1] * len(at) or net.chance(0.3):
        rest.append(_ints(net, *steps))
    return _moved(net, "Slice", x, rest, shape)


def split(net: Net, x: Value) -> Value | None:
    """Add a Split into two parts, of which later nodes may take either, or their join in another order."""
    first = 1 if net.batched else 0
    axes = [i for i, n in enumerate(x.shape) if n > 1 and i >= first]
    if not axes or 0 in x.shape:
        return None
    axis = net.pick(axes)
    n = net.number(1, x.shape[axis] - 1)
    names = net.node("Split", [x.name, _ints(net, n, x.shape[axis] - n)], 2, axis=axis)
    for name, length in zip(names, (n, x.shape[axis] - n), strict=True):
        shape = tuple(length if i == axis else m for i, m in enumerate(x.shape))
        net.values.append(Value(name, shape, x.dtype, x.grid, x.most, x.narrow))
    if net.chance(0.5):
        return net.values[-1]
    return _moved(net, "Concat", Value(names[1], x.shape, x.dtype, x.grid, x.most, x.narrow), [names[0]], x.shape,
                  axis=axis)  # fmt: skip


def concat(net: Net, x: Value) -> Value | None:
    """Add a Concat with itself, with a constant, or of two quantisers of it."""
    first = 1 if net.batched else 0
    if len(x.shape) <= first or x.narrow:
        return None
    axis = net.number(first, len(x.shape) - 1)
    shape = tuple(2 * n if i == axis else n for i, n in enumerate(x.shape))
    if not net.batched and net.chance(0.5):
        k = net.constant(net.rng.integers(0, 4, x.shape).astype(x.dtype))
        return net.add("Concat", x, [x.name, k], shape, x.grid and min(x.grid, 1.0), max(x.most, 4.0), axis=axis)
    parts = [quant(net, x), quant(net, x)] if x.floats and net.chance(0.5) else [x, x]
    most, grids = max(v.most for v in parts), [v.grid for v in parts]
    grid = None if None in grids else min(grids)
    return net.add("Concat", parts[0], [v.name for v in parts], shape, grid, most, axis=axis)


def pad(net: Net, x: Value) -> Value | None:
    """Add a Pad, with any mode, value and axes."""
    first = 1 if net.batched else 0
    if len(x.shape) <= first or x.narrow or 0 in x.shape or x.dtype in (np.bool_, np.float16):
        return None
    mode = net.pick(["constant"] * 4 + ["edge", "reflect"] + ["wrap"] * (net.opset >= 19))
    most = [n - 1 if mode == "reflect" else n if mode == "wrap" else 2 for n in x.shape]
    widths = [[0 if i < first or net.chance(0.4) else net.number(0, min(2, m)) for i, m in enumerate(most)]
              for _ in range(2)]  # fmt: skip
    shape = [n + b + e for n, b, e in zip(x.shape, *widths, strict=True)]
    rest = [_ints(net, *widths[0], *widths[1])]
    value = net.pick((0, 1, -1, -2))
    value = abs(value) if x.dtype.kind == "u" else value
    if mode == "constant" and net.chance(0.7):
        rest.append(net.constant(np.asarray(value, x.dtype).reshape(net.pick(((), (1,))) if net.opset > 20 else ())))
    v = net.add("Pad", x, [x.name, *rest], shape, x.grid and min(x.grid, 1.0), max(x.most, 2.0), mode=mode)
    return v


def gather(net: Net, x: Value) -> Value | None:
    """Add a Gather at constant places of an axis, one or several."""
    first = 1 if net.batched else 0
    if len(x.shape) <= first or 0 in x.shape or len(x.shape) > 4:
        return None
    axis, form = net.number(first, len(x.shape) - 1), net.pick(((), (1,), (2,), (2, 2)))
    at = net.rng.integers(-x.shape[axis], x.shape[axis], form)
    shape = (*x.shape[:axis], *form, *x.shape[axis + 1 :])
    return _moved(net, "Gather", x, [net.constant(at.astype(net.pick((np.int32, np.int64))))], shape, axis=axis)


def looked_up(net: Net, x: Value) -> Value | None:
    """Add a Gather of a constant table at places that are computed."""
    if x.dtype != np.uint8 or x.narrow or len(x.shape) > 4:
        return None
    (at,) = net.node("Cast", [x.name], to=6)
    table = (net.rng.integers(-8, 9, 256) / 4).astype(np.float32)
    (name,) = net.node("Gather", [net.constant(table), at], axis=0)
    v = Value(name, x.shape, np.dtype(np.float32), 0.25, 2.0)
    net.values.append(v)
    return v


def blocks(net: Net, x: Value) -> Value | None:
    """Add a DepthToSpace, SpaceToDepth or a Resize, to the nearest element or by interpolation."""
    if len(x.shape) != 4 or 0 in x.shape or x.narrow:
        return None
    n, c, h, w = x.shape
    if c % 4 == 0 and net.chance(0.7):
        return _moved(net, "DepthToSpace", x, [], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=net.pick(("DCR", "CRD")))
    if h % 2 == w % 2 == 0 and net.chance(0.5):
        return _moved(net, "SpaceToDepth", x, [], (n, 4 * c, h // 2, w // 2), blocksize=2)
    if max(h, w) > 12:
        return None
    wide = net.pick((1, 2))
    scales = net.constant(np.float32([1, 1, 2, wide]))
    if x.dtype == np.float32 and net.chance(0.6):
        mode, shape = net.pick(("linear", "linear", "cubic")), (n, c, 2 * h, wide * w)
        grid = x.grid and x.grid / 4 ** (1 if wide == 1 else 2)  # weights of linear interpolation are 1/4 and 3/4
        if mode == "cubic":
            return net.add("Resize", x, [x.name, "", scales], shape, None, 2 * x.most, mode=mode)
        return net.add("Resize", x, [x.name, "", scales], shape, grid, x.most, mode=mode)
    return _moved(net, "Resize", x, ["", scales], (n, c, 2 * h, wide * w), mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip


MOVEMENT = {reshape: 5, flatten: 4, transpose: 4, squeeze: 4, unsqueeze: 3, slice_: 3, split: 2, concat: 2, pad: 3,
            gather: 3, looked_up: 1, blocks: 2}  # fmt: skip
