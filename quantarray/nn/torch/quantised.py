"""Operators of PyTorch's quantised tensors (static int8): products of stored integers, requantised as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...core.dtypes import Array
from ..onnx import movement
from ..onnx.laws import Constant, Link, Operand, Tensor, scaling
from ..onnx.products import Weights, integer_conv, product
from ..onnx.tensors import Refused
from ..onnx.transposed import packed_sums
from .conversion import Conversion
from .quantised_tables import clipped, is_unary, look_up, of_pair
from .recording import Call, Var, variables
from .rounding import SINGLE, affine, codes_of, link, store

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
        codes = codes_of(result)
        store(c, result, c.settle(call.args[0]), last=affine(1 / np.float32(codes.scale), codes.zero))
    elif call.op == "dequantize":
        c.put(result, c.settle(call.args[0]))
    elif space == "aten" and call.op in _MOVES:
        _copied(c, call, lower)
    elif space == "aten" and call.op in _AVERAGES:
        lower[call.op](c, call)
        _averaged(c, result)
    elif result.codes is not None and is_unary(call):
        (x,) = {v.index: v for v in variables(call.args) if v.depends}.values()
        if not clipped(c, call, x):
            look_up(c, call, [x])
    else:
        raise Refused(_why(call, space))


def _why(call: Call, space: str) -> str:
    named = next((why for part, why in _REFUSED.items() if part in call.op), None)
    return named or f"{space}.{call.op} of quantised tensors is not taken"


def _space(call: Call) -> str:
    return str(getattr(getattr(call.function, "_schema", None), "name", "aten::")).split("::")[0]


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
    sums = integer_conv(c.builder, step, source, Weights(whole, np.ones(())), call.results[0].shape, SINGLE)
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
    sums = product(c.builder, c.settle(x), held, len(x.shape) - 1, "linear", {}, {}, shape, SINGLE)
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
    to, codes = np.float32(codes_of(call.args[0]).scale) * scale, codes_of(result)
    offset = np.zeros(1, np.float32) if bias is None else bias.detach().numpy()
    out, relu = np.float32(codes.scale), "relu" in call.op
    if engine in ("x86", "onednn"):
        y = replace(sums, chain=(scaling(to.reshape(column), SINGLE),))
        y = y.then(link("Add", offset.reshape(column)))
        y = y.then(link("Mul", np.float32(1) / out))
        y = y.then(link("Add", np.float32(codes.zero)))
    else:
        offset = np.rint(offset / to) if engine == "qnnpack" else offset / to
        y = replace(sums, chain=(scaling(1.0, SINGLE),))
        y = y.then(link("Add", offset.reshape(column)))
        y = y.then(link("Mul", (to / out).reshape(column)))
        y = y.then(Link("Round", {}, (None,))).then(link("Add", np.float32(codes.zero)))
    c.steps[result.index] = y
    store(c, result, y, relu)


# Pools and functions of elements


def _copied(c: Conversion, call: Call, lower: Mapping[str, Callable[[Conversion, Call], None]]) -> None:
    """Convert an operator that gives some of the codes that it takes, or the larger of a code and zero."""
    if call.op == "relu":
        (x,), result = variables(call.args), call.results[0]
        steps = replace(c.settle(x), chain=(scaling(1.0, SINGLE),))
        store(c, result, steps.then(link("Add", np.float32(codes_of(result).zero))), relu=True)
        return
    if call.op == "constant_pad_nd":  # with the code nearest to a number
        (x, widths, value), codes = (*call.args, 0)[:3], codes_of(call.results[0])
        scale = np.float32(codes.scale)
        level = np.clip(np.rint(np.float32(value) / scale) + codes.zero, codes.low, codes.high) - codes.zero
        call = call._replace(args=(x, widths, float(level) * float(scale)))
    lower["max_pool2d_with_indices" if "max_pool" in call.op and "adaptive" not in call.op else call.op](c, call)
    for var in call.results:
        if var.index in c.functions:
            c.put(var, c.settle(var))


def _averaged(c: Conversion, result: Var) -> None:
    """Round a mean in steps to codes."""
    mean, codes = c.settle(result), codes_of(result)
    if mean.pure is not None:  # sums of integers: divided in steps, so that halves are halves
        steps = replace(mean, chain=(scaling(mean.pure / np.float64(np.float32(codes.scale)), SINGLE),))
    else:
        steps = mean.then(link("Mul", np.float32(1) / np.float32(codes.scale)))
    store(c, result, steps.then(link("Add", np.float32(codes.zero))))


def _normed(c: Conversion, call: Call) -> None:
    """Convert a batch norm of codes: (x - mean) * weight / sqrt(var + eps) + bias, requantised."""
    x, weight, bias, mean, var, epsilon = call.args[:6]
    w, b, m, v = (a.tensor.detach().numpy() for a in (weight, bias, mean, var))
    source, codes = c.settle(x), codes_of(call.results[0])
    alpha = w / np.sqrt(v + np.float32(epsilon))
    out = np.float32(codes.scale)
    column = (-1, *(1,) * (len(x.shape) - 2))
    factor = (alpha * np.float32(codes_of(x).scale) / out).reshape(column)
    offset = ((b - m * alpha) / out).reshape(column)
    y = replace(source, chain=(scaling(factor, SINGLE),)).then(link("Add", offset))
    store(c, call.results[0], y.then(link("Add", np.float32(codes.zero))), "relu" in call.op)


def _joined(c: Conversion, call: Call) -> None:
    """Convert a concatenation: parts in steps of the result, then side by side."""
    parts, axis, result = call.args[0], int(call.args[1]), call.results[0]
    codes = codes_of(result)
    held: list[Operand] = []
    for v in parts:
        has, x = codes_of(v), c.settle(v)
        if (has.scale, has.zero) != (codes.scale, codes.zero):
            part = c.variable(v.tensor, True)
            part.codes = codes
            steps = replace(x, chain=(scaling(np.float32(has.scale), SINGLE),))
            store(c, part, steps, last=affine(1 / np.float32(codes.scale), codes.zero))
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
    **dict.fromkeys(("add", "add_relu", "mul", "mul_relu"), of_pair),
    "cat": _joined,
    **{f"batch_norm{d}{tail}": _normed for d in ("1d", "2d", "3d") for tail in ("", "_relu")},
}
