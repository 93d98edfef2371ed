"""Operators of PyTorch's quantised tensors (static int8): products of stored integers, requantised as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...core.dtypes import Array
from ..onnx import movement
from ..onnx.elementwise import LOWER as ELEMENTWISE
from ..onnx.laws import Constant, Link, Operand, Tensor, scaling
from ..onnx.products import Weights, integer_conv, product
from ..onnx.quantizers import minus
from ..onnx.tensors import Refused
from ..onnx.transposed import packed_sums
from .conversion import Conversion
from .recording import Call, Codes, Var, variables

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_MOVES = frozenset(
    "view _unsafe_view reshape flatten squeeze unsqueeze _reshape_alias permute transpose t swapaxes split "
    "split_with_sizes chunk slice select constant_pad_nd pixel_shuffle channel_shuffle native_channel_shuffle relu "
    "quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d max_pool2d adaptive_max_pool2d adaptive_max_pool3d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d reflection_pad1d reflection_pad2d flip index index_select stack unbind repeat expand "
    "pixel_unshuffle".split()
)
_AVERAGES = frozenset(
    "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d mean upsample_bilinear2d".split()
)
_REFUSED = {
    "dynamic": "its scale depends on the numbers of the input; quantise it statically",
    "norm": "it normalises by statistics of its input; use BatchNorm with running statistics",
}


def holds(call: Call) -> bool:
    """Tell if a call takes or gives stored codes."""
    return _space(call) == "quantized" or any(
        v.codes is not None for v in (*variables((call.args, call.kwargs)), *call.results)
    )


def convert(c: Conversion, call: Call, lower: Mapping[str, Callable[[Conversion, Call], None]]) -> None:
    """Convert a call on quantised tensors; raise Refused if it is not taken."""
    space, result = _space(call), call.results[0]
    if (space == "quantized" and call.op in _LOWER) or call.op == "cat":
        _LOWER[call.op](c, call)
    elif call.op == "quantize_per_tensor":
        _store(c, result, _affine(c.settle(call.args[0]), 1 / np.float32(_codes(result).scale), _codes(result).zero))
    elif call.op == "dequantize":
        c.put(result, c.settle(call.args[0]))
    elif space == "aten" and call.op in _MOVES:
        _copied(c, call, lower)
    elif space == "aten" and call.op in _AVERAGES:
        lower[call.op](c, call)
        _averaged(c, result)
    elif result.codes is not None and _unary(call):
        _looked_up(c, call, [v for v in variables(call.args) if v.depends])
    else:
        raise Refused(_why(call, space))


def _why(call: Call, space: str) -> str:
    named = next((why for part, why in _REFUSED.items() if part in call.op), None)
    return named or f"{space}.{call.op} of quantised tensors is not taken"


def _space(call: Call) -> str:
    return str(getattr(getattr(call.function, "_schema", None), "name", "aten::")).split("::")[0]


def _codes(var: Var) -> Codes:
    if var.codes is None:
        raise Refused("it mixes quantised tensors and floats")
    return var.codes


# Values in steps of the result


def _link(op: str, operand: Any) -> Link:
    """Return an operator with a constant."""
    return Link(op, {}, (None, np.asarray(operand)))


def _affine(x: Tensor, factor: Any, offset: Any) -> Tensor:
    """x * factor + offset, a fused multiply-add of float32."""
    return x.then(Link("affine", {}, (None, np.asarray(factor, np.float64), np.asarray(offset, np.float64))))


def _store(c: Conversion, var: Var, steps: Tensor, relu: bool = False) -> None:
    """Set a variable to the codes clip(rint(steps)), its zero point included; from it upwards after a ReLU."""
    codes = _codes(var)
    low = max(codes.low, codes.zero) if relu else codes.low
    attributes = {"low": low, "high": codes.high, "to": "int64"}
    last = Link("quantize_linear", attributes, (None, np.ones((), np.float32), np.zeros((), np.int64)))
    stored = c.builder.quantised(steps, last, range(low, codes.high + 1), 0, (), np.int64)
    assert isinstance(stored, Tensor)
    _set(c, var, stored)


def _set(c: Conversion, var: Var, stored: Tensor) -> None:
    """Set a variable to (codes - zero point) * scale."""
    codes = _codes(var)
    whole = minus(c.builder, stored, codes.zero)
    if whole is None:
        raise Refused(f"values of {len(var.shape)} axes with a zero point are not taken")
    c.put(var, Tensor(var.shape, _SINGLE, whole, (scaling(np.float32(codes.scale), _SINGLE),)))


# Products


def _convolution(c: Conversion, call: Call) -> None:
    x, packed = call.args[:2]
    n, ops = len(x.shape) - 2, torch.ops.quantized
    weight, bias = getattr(ops, f"conv{n}d_unpack")(packed)
    d = max(n, 2)  # a convolution of one axis is stored as one of two
    numbers = [getattr(ops, f"conv{d}d_{name}")(packed) for name in ("stride", "padding", "dilation")]
    stride, padding, dilation = (tuple(v)[-n:] for v in numbers)
    groups = int(getattr(ops, f"conv{d}d_groups")(packed))
    step = c.step(call, "Conv", strides=stride, pads=(*padding, *padding), dilations=dilation, group=groups,
                  kernel_shape=tuple(weight.shape[2:]))  # fmt: skip
    c.builder.step = step
    whole, scale = _stored_weights(weight)
    source = c.settle(x)
    sums = integer_conv(c.builder, step, source, Weights(whole, np.ones(())), call.results[0].shape, _SINGLE)
    _requantised(c, call, sums, scale, bias, (-1, *(1,) * n))


def _stretched(c: Conversion, call: Call) -> None:
    """Convert a transposed convolution, whose weights have one scale."""
    x, packed = call.args[:2]
    n, ops = len(x.shape) - 2, torch.ops.quantized
    weight, bias = getattr(ops, f"conv_transpose{n}d_unpack")(packed)
    d = max(n, 2)
    names = ("stride", "padding", "dilation", "output_padding")
    numbers = [getattr(ops, f"conv_transpose{d}d_{name}")(packed) for name in names]
    stride, padding, dilation, more = (tuple(v)[-n:] for v in numbers)
    groups = int(getattr(ops, f"conv_transpose{d}d_groups")(packed))
    if torch.backends.quantized.engine in ("x86", "onednn") and not any(more):  # of PyTorch 2.13, by oneDNN
        raise Refused(
            "PyTorch's oneDNN gives other sums than those of the weights of a transposed convolution; set "
            "torch.backends.quantized.engine = 'fbgemm' before torch.ao converts the module"
        )
    a = {"strides": stride, "pads": (*padding, *padding), "dilations": dilation, "group": groups,
         "output_padding": more}  # fmt: skip
    c.builder.step = c.step(call, "ConvTranspose", **a)
    whole, scale = _stored_weights(weight)
    held = Constant(whole.astype(np.float32), whole, np.ones(()))
    sums = packed_sums(c.builder, a, c.settle(x), held, call.results[0].shape)
    if scale.size > 1:
        raise Refused("a transposed convolution whose weights have a scale for each channel is not taken")
    _requantised(c, call, sums, scale, bias, (-1, *(1,) * n))


def _linear(c: Conversion, call: Call) -> None:
    x, packed = call.args[:2]
    weight, bias = torch.ops.quantized.linear_unpack(packed)
    c.builder.step = c.step(call, "MatMul")
    whole, scale = _stored_weights(weight)
    held, shape = Weights(whole, np.ones(())), call.results[0].shape
    sums = product(c.builder, c.settle(x), held, len(x.shape) - 1, "linear", {}, {}, shape, _SINGLE)
    _requantised(c, call, sums, scale, bias, (-1,))


def _stored_weights(w: Any) -> tuple[Array, Array]:
    """Return integers less their zero points, outputs on axis 0, and float32 scales, one or one for each output."""
    whole = w.int_repr().numpy().astype(np.int64)
    if w.qscheme() == torch.per_tensor_affine:
        return whole - w.q_zero_point(), np.float32(w.q_scale()).reshape(1)
    column = (-1, *(1,) * (whole.ndim - 1))
    zero = w.q_per_channel_zero_points().numpy().astype(np.int64)
    return whole - zero.reshape(column), w.q_per_channel_scales().numpy().astype(np.float32)


def _requantised(
    c: Conversion, call: Call, sums: Tensor | None, scale: Array, bias: Any, column: tuple[int, ...]
) -> None:
    """Set the result to rint((sums * s_x * s_w + bias) / s_y + zero), in float32 in the order of PyTorch's engine.

    oneDNN ("x86" and "onednn") does that; FBGEMM takes rint((sums + bias / (s_x * s_w)) * (s_x * s_w / s_y)) + zero;
    QNNPACK does so with a bias rounded to an integer.
    """
    result, engine = call.results[0], torch.backends.quantized.engine
    if sums is None:
        raise Refused("its input is no quantised tensor")
    to, codes = np.float32(_codes(call.args[0]).scale) * scale, _codes(result)
    offset = np.zeros(1, np.float32) if bias is None else bias.detach().numpy()
    out, relu = np.float32(codes.scale), "relu" in call.op
    if engine in ("x86", "onednn"):
        y = replace(sums, chain=(scaling(to.reshape(column), _SINGLE),))
        y = y.then(_link("Add", offset.reshape(column)))
        y = y.then(_link("Mul", np.float32(1) / out))
        y = y.then(_link("Add", np.float32(codes.zero)))
    else:
        offset = np.rint(offset / to) if engine == "qnnpack" else offset / to
        y = replace(sums, chain=(scaling(1.0, _SINGLE),))
        y = y.then(_link("Add", offset.reshape(column)))
        y = y.then(_link("Mul", (to / out).reshape(column)))
        y = y.then(Link("Round", {}, (None,))).then(_link("Add", np.float32(codes.zero)))
    _store(c, result, y, relu)


# Pools and functions of elements


def _copied(c: Conversion, call: Call, lower: Mapping[str, Callable[[Conversion, Call], None]]) -> None:
    """Convert an operator that gives some of the codes that it takes, or the larger of a code and zero."""
    if call.op == "relu":
        (x,), result = variables(call.args), call.results[0]
        steps = replace(c.settle(x), chain=(scaling(1.0, _SINGLE),))
        _store(c, result, steps.then(_link("Add", np.float32(_codes(result).zero))), relu=True)
        return
    if call.op == "constant_pad_nd":  # with the code nearest to a number
        (x, widths, value), codes = (*call.args, 0)[:3], _codes(call.results[0])
        scale = np.float32(codes.scale)
        level = np.clip(np.rint(np.float32(value) / scale) + codes.zero, codes.low, codes.high) - codes.zero
        call = call._replace(args=(x, widths, float(level) * float(scale)))
    lower["max_pool2d_with_indices" if "max_pool" in call.op and "adaptive" not in call.op else call.op](c, call)
    for var in call.results:
        if var.index in c.functions:
            c.put(var, c.settle(var))


def _averaged(c: Conversion, result: Var) -> None:
    """Round a mean in steps to codes."""
    mean, codes = c.settle(result), _codes(result)
    if mean.pure is not None:  # sums of integers: divided in steps, so that halves are halves
        steps = replace(mean, chain=(scaling(mean.pure / np.float64(np.float32(codes.scale)), _SINGLE),))
    else:
        steps = mean.then(_link("Mul", np.float32(1) / np.float32(codes.scale)))
    _store(c, result, steps.then(_link("Add", np.float32(codes.zero))))


def _normed(c: Conversion, call: Call) -> None:
    """Convert a batch norm of codes: (x - mean) * weight / sqrt(var + eps) + bias, requantised."""
    x, weight, bias, mean, var, epsilon = call.args[:6]
    w, b, m, v = (a.tensor.detach().numpy() for a in (weight, bias, mean, var))
    source, codes = c.settle(x), _codes(call.results[0])
    alpha = w / np.sqrt(v + np.float32(epsilon))
    out = np.float32(codes.scale)
    column = (-1, *(1,) * (len(x.shape) - 2))
    factor = (alpha * np.float32(_codes(x).scale) / out).reshape(column)
    offset = ((b - m * alpha) / out).reshape(column)
    y = replace(source, chain=(scaling(factor, _SINGLE),)).then(_link("Add", offset))
    _store(c, call.results[0], y.then(_link("Add", np.float32(codes.zero))), "relu" in call.op)


def _unary(call: Call) -> bool:
    """Tell if each code of the result depends on the code at its place alone."""
    inputs = [v for v in variables((call.args, call.kwargs)) if v.depends]
    alike = call.op in _ALIKE or torch.Tag.pointwise in call.function.tags
    return len(inputs) == 1 and inputs[0].shape == call.results[0].shape and alike


_ALIKE = frozenset(
    "add_scalar add_scalar_relu mul_scalar mul_scalar_relu hardtanh hardswish hardsigmoid sigmoid tanh elu celu "
    "leaky_relu relu6 gelu threshold clamp".split()
)


def _looked_up(c: Conversion, call: Call, inputs: list[Var]) -> None:
    """Set the result to a table of the operator's codes, for each code of its input or each pair of codes."""
    b, result = c.builder, call.results[0]
    b.step = c.step(call, "Gather")
    held = [c.settle(v) for v in inputs]
    if any(len(v.shape) != len(result.shape) for v in inputs):
        raise Refused("it broadcasts quantised tensors of several numbers of axes")
    b.per_sample(all(v.shape[0] == result.shape[0] for v in inputs))
    tables = [np.arange(x.source.bounds[0], x.source.bounds[1] + 1) for x in held]
    lengths = [len(t) for t in tables]
    wide = [t.reshape([-1 if i == j else 1 for j in range(len(tables))]) for i, t in enumerate(tables)]
    whole = [np.ascontiguousarray(np.broadcast_to(t, lengths)) for t in wide]
    table = _evaluated(call, inputs, whole).reshape(-1)
    place: Operand = b.integer_value(held[0], np.dtype(np.int32))
    if len(held) == 2:
        place = _calculated(c, call, "Mul", place, lengths[1], inputs[0].shape)
        other = b.integer_value(held[1], np.dtype(np.int32))
        place = _calculated(c, call, "Add", place, other, result.shape)
    first = int(sum(int(t[0]) * m for t, m in zip(tables, (*lengths[1:], 1), strict=True)))
    place = _calculated(c, call, "Add", place, -first, result.shape) if first else place
    out = movement.LOWER["Gather"](b, c.step(call, "Gather", axis=0), [Constant(table), place], [result.shape])[0]
    assert isinstance(out, Tensor)
    _set(c, result, out)


def _calculated(c: Conversion, call: Call, op: str, x: Operand, y: Operand | int, shape: Any) -> Operand:
    """Return x + y or x * y, places in a table."""
    operands = [x, Constant(np.array(y, np.int32)) if isinstance(y, int) else y]
    step = c.step(call, op)
    step = step._replace(outputs=(f"{step.outputs[0]}.place",))
    result: Operand = ELEMENTWISE[op](c.builder, step, operands, [shape])[0]
    return result


def _evaluated(call: Call, inputs: list[Var], integers: list[Array]) -> Array:
    """Run the operator on tensors of codes; return the codes that it gives."""
    known = {}
    for var, whole in zip(inputs, integers, strict=True):
        codes = _codes(var)
        value = torch.from_numpy((whole + codes.zero).astype(codes.held))
        known[var.index] = torch._make_per_tensor_quantized_tensor(value, codes.scale, codes.zero)

    def filled(tree: Any) -> Any:
        if isinstance(tree, Var):
            return known.get(tree.index, tree.tensor)
        return [filled(t) for t in tree] if isinstance(tree, tuple) else tree

    with torch.no_grad():
        out = call.function(*filled(call.args), **{k: filled(v) for k, v in call.kwargs.items()})
    return np.asarray(out.int_repr().numpy())


def _pair(c: Conversion, call: Call) -> None:
    inputs = [v for v in call.args[:2] if isinstance(v, Var) and v.depends]
    if len(inputs) == 2 and inputs[0].index == inputs[1].index:
        inputs = inputs[:1]
    if not inputs or any(v.codes is None for v in variables(call.args)):
        raise Refused("it mixes quantised tensors and constants")
    _looked_up(c, call, inputs)


def _joined(c: Conversion, call: Call) -> None:
    """Convert a concatenation: parts in steps of the result, then side by side."""
    parts, axis, result = call.args[0], int(call.args[1]), call.results[0]
    codes = _codes(result)
    held: list[Operand] = []
    for v in parts:
        has, x = _codes(v), c.settle(v)
        if (has.scale, has.zero) != (codes.scale, codes.zero):
            part = c.variable(v.tensor, True)
            part.codes = codes
            steps = replace(x, chain=(scaling(np.float32(has.scale), _SINGLE),))
            _store(c, part, _affine(steps, 1 / np.float32(codes.scale), codes.zero))
            x = c.settle(part)
        held.append(x)
    step = c.step(call, "Concat", axis=axis % len(result.shape))
    c.builder.step = step
    out = movement.LOWER["Concat"](c.builder, step, held, [result.shape])[0]
    assert isinstance(out, Tensor)
    c.put(result, out)


_LOWER: dict[str, Callable[[Conversion, Call], None]] = {
    **{f"conv{n}d{tail}": _convolution for n in (1, 2, 3) for tail in ("", "_relu")},
    **{f"conv_transpose{n}d": _stretched for n in (1, 2, 3)},
    **dict.fromkeys(("linear", "linear_relu"), _linear),
    **dict.fromkeys(("add", "add_relu", "mul", "mul_relu"), _pair),
    "cat": _joined,
    **{f"batch_norm{d}{tail}": _normed for d in ("1d", "2d", "3d") for tail in ("", "_relu")},
}
