"""Quantisers of random ONNX graphs, and what they have: weights, scales and zero points of any rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph_net import Net, Value

MODES = ("ROUND", "ROUND", "FLOOR", "CEIL", "ROUND_TO_ZERO", "HALF_EVEN", "UP", "DOWN", "HALF_UP", "HALF_DOWN")
SINGLE = np.dtype(np.float32)


def _scale(net: Net, x: Value, low: int = -2, high: int = 2) -> Any:
    """Draw a scale: one, or one a channel; a power of two, or any number."""
    shape = (1,) * net.number(0, len(x.shape))
    if net.chance(0.3) and len(x.shape) > 1:
        shape = (1, x.shape[1], *(1,) * (len(x.shape) - 2))[net.number(0, 1) if x.shape[0] == 1 else 0 :]
    if net.rough:
        return net.rng.uniform(0.2, 2, shape).astype(np.float32)
    return net.dyadic(shape, low, high).astype(np.float32)


def _grid(net: Net, scale: Any) -> float | None:
    return None if net.rough else float(scale.min())


def quant(net: Net, x: Value, weight: bool = False) -> Value | None:
    """Add QONNX's Quant."""
    if not x.floats:
        return None
    scale, bits = _scale(net, x), net.pick((1, 2, 2, 3, 4, 8))
    signed, narrow = net.number(0, 1), net.number(0, 1)
    narrow = 0 if bits == 1 else narrow
    zero = 0 if weight or net.chance(0.7) else net.number(-3, 3)
    names = [net.constant(a) for a in (scale, net.one(np.float32(zero), len(x.shape), 0), net.one(np.float32(bits), 1))]
    most = (2.0**bits + abs(zero)) * scale.max()
    return net.add("Quant", x, [x.name, *names], x.shape, _grid(net, scale), most, SINGLE, True, signed=signed,
                   narrow=narrow, rounding_mode=net.pick(MODES))  # fmt: skip


def bipolar(net: Net, x: Value, weight: bool = False) -> Value | None:
    """Add QONNX's BipolarQuant."""
    if not x.floats:
        return None
    scale = _scale(net, x)
    return net.add("BipolarQuant", x, [x.name, net.constant(scale)], x.shape, _grid(net, scale), scale.max(), SINGLE,
                   True)  # fmt: skip


def thresholds(net: Net, x: Value) -> Value | None:
    """Add a MultiThreshold."""
    if not x.floats or len(x.shape) < 2:
        return None
    count = net.pick((1, 2, 3, 3, 7, 15, 20))
    rows = net.pick((1, x.shape[1]))
    T = np.sort(net.rng.integers(-20, 21, (rows, count)) / 2, axis=1).astype(np.float32)
    scale, bias = net.pick(((1.0, 0.0), (0.5, -0.5), (2.0, -float(count)), (1.0, -2.0), (0.25, 0.25)))
    return net.add("MultiThreshold", x, [x.name, net.constant(T)], x.shape, 0.25, scale * count + abs(bias), SINGLE,
                   True, out_scale=scale, out_bias=bias)  # fmt: skip


def trunc(net: Net, x: Value) -> Value | None:
    """Add a Quant and QONNX's Trunc of it, of either version."""
    if not x.floats:
        return None
    scale = net.one(np.float32(2.0 ** net.number(-2, 1)), len(x.shape), 0)
    bits, fewer, zero = net.number(4, 8), net.number(0, 3), net.pick((0, 0, 4))
    common = [scale, net.one(np.float32(zero), len(x.shape), 0), net.one(np.float32(bits), 1)]
    names = [net.constant(a) for a in common]
    most = (2.0**bits + 8) * float(scale.max())
    x = net.add("Quant", x, [x.name, *names], x.shape, float(scale.max()), most, SINGLE, True, signed=1, narrow=0,
                rounding_mode="ROUND")  # fmt: skip
    out_bits, mode = bits - fewer, net.pick(MODES)
    if net.chance(0.5):
        names.append(net.constant(net.one(np.float32(out_bits), 1)))
        return net.add("Trunc", x, [x.name, *names], x.shape, float(scale.max()) / 8, 2 * most, SINGLE, True,
                       rounding_mode=mode)  # fmt: skip
    out_scale = net.one(scale.reshape(()) * np.float32(2.0**fewer), len(x.shape), 0)
    names += [net.constant(out_scale), net.constant(net.one(np.float32(max(out_bits, 1)), 1))]
    return net.add("Trunc", x, [x.name, *names], x.shape, float(scale.max()) / 8, 2 * most, SINGLE, True,
                   rounding_mode=mode, signed=net.number(0, 1), narrow=0)  # fmt: skip


_BOUNDS = {"uint8": (0, 255), "int8": (-128, 127), "uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1)}


def _integer_types(net: Net) -> list[str]:
    return ["uint8", "int8"] * 2 + ["uint4", "int4"] * (net.opset >= 21) + ["uint2", "int2"] * (net.opset >= 25)


def quantize_linear(net: Net, x: Value) -> Value | None:
    """Add a QuantizeLinear, whose integers other nodes may take, or a DequantizeLinear after it."""
    if x.dtype not in (np.float32, np.float16) or 0 in x.shape or net.opset < 19:
        return None
    kind = net.pick(_integer_types(net))
    low, high = _BOUNDS[kind]
    axis = net.number(0, len(x.shape) - 1) if x.shape else 0
    each = net.chance(0.3) and x.shape and (axis or not net.batched)
    block = 0
    shape = (x.shape[axis],) if each else net.pick(((), (), (1,)))
    if each and net.opset >= 21 and net.chance(0.3):
        block = net.number(1, x.shape[axis])
        shape = tuple(-(-n // block) if i == axis else n for i, n in enumerate(x.shape))
        if -(-x.shape[axis] // block) * block != x.shape[axis]:
            block, shape = 0, (x.shape[axis],)
    if block and net.batched:
        block, shape = 0, (x.shape[axis],)
    draw = net.rng.uniform(0.2, 2, shape) if net.rough else net.dyadic(shape, -2, 2)
    scale = np.asarray(draw, x.dtype)
    names = [net.constant(scale)]
    if kind != "uint8" or net.chance(0.8):
        zero = net.rng.integers(max(low, -9), min(high, 9) + 1, shape)
        names.append(net.constant(zero.astype(kind if "8" in kind else np.int8), kind if "8" not in kind else ""))
    how = {"axis": axis} if each else {}
    how |= {"block_size": block} if block else {}
    held = np.dtype(kind if "8" in kind else ("uint8" if kind[0] == "u" else "int8"))
    q = net.add("QuantizeLinear", x, [x.name, *names], x.shape, 1.0, max(-low, high), held, True, **how)
    q.narrow = kind if "8" not in kind else ""
    q.law = (names, how, x.dtype, scale)
    if "8" in kind and net.chance(0.4):  # as Brevitas writes fewer bits
        ends = [net.constant(np.asarray(n, held)) for n in (net.number(low, 0), net.pick((1, 3, 15, high)))]
        clipped = net.add("Clip", q, [q.name, *net.pick((ends, ends[:1], ["", ends[1]]))], x.shape, 1.0, q.most)
        clipped.law, q = q.law, clipped
    return q if net.chance(0.25) else dequantize_linear(net, q)


def dequantize_linear(net: Net, x: Value) -> Value | None:
    """Add a DequantizeLinear of integers, with their scale and zero point or others."""
    law = x.law
    if net.opset < 19:
        return None
    if law is None:
        if x.dtype not in (np.uint8, np.int8) or x.narrow:
            return None
        scale = net.one(np.float32(net.rng.uniform(0.2, 2) if net.rough else 2.0 ** net.number(-2, 2)), 1, 0)
        law = [net.constant(scale)], {}, SINGLE, scale
    names, how, dtype, scale = law
    block = how.get("block_size")
    if how and scale.size > 1 and (block or scale.size != x.shape[how["axis"]]) and scale.shape != x.shape:
        return None
    most = (x.most + 9) * float(scale.max())
    return net.add("DequantizeLinear", x, [x.name, *names], x.shape, _grid(net, scale), most, dtype, **how)


def weights(net: Net, shape: tuple[int, ...], axis: int, dtype: Any = SINGLE) -> tuple[str, float | None, float]:
    """Add constant weights, quantised or plain, with outputs on `axis`; return (name, grid, largest)."""
    low, high = net.pick(((-1, 1), (-2, 1), (-4, 3), (0, 3), (-8, 8)))
    whole = net.rng.integers(low, high + 1, shape)
    kind = net.pick(("quant", "bipolar", "plain", "linear", "rough" if net.rough else "quant"))
    kind = "plain" if kind == "linear" and net.opset < 19 else kind
    if dtype != SINGLE:
        kind = "plain"
    if kind == "rough":
        return net.constant(net.rng.normal(0, 1, shape).astype(dtype)), None, 3.0
    each = [1] * len(shape)
    if net.chance(0.4):
        each[axis] = shape[axis]
    scale = (net.rng.uniform(0.2, 2, each) if net.rough else net.dyadic(each, -2, 1)).astype(np.float32)
    if scale.size == 1:
        scale = scale.reshape((1,) * net.number(0, len(shape)))
    if kind == "plain":
        return net.constant(whole.astype(dtype)), 1.0, 8.0
    grid, most = _grid(net, scale), 9 * float(scale.max())
    if kind == "linear":
        flat = scale.reshape(-1) if scale.size > 1 else scale.reshape(net.pick(((), (1,))))
        how = {"axis": axis} if scale.size > 1 else {}
        names = [net.constant(whole.astype(np.int8)), net.constant(flat)]
        return net.node("DequantizeLinear", names, **how)[0], grid, most
    names = [net.constant(whole.astype(np.float32)), net.constant(scale)]
    if kind == "bipolar":
        return net.node("BipolarQuant", names)[0], grid, most
    names += [net.constant(net.one(np.float32(0), len(shape), 0)), net.constant(net.one(np.float32(4), 1))]
    q = net.node("Quant", names, signed=1, narrow=net.number(0, 1), rounding_mode="ROUND")
    return q[0], grid, most


QUANTISERS = {quant: 4, bipolar: 2, thresholds: 2, trunc: 1, quantize_linear: 5, dequantize_linear: 2}
