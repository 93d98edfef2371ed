"""Products, pools and movements of a recording, by the functions that convert those of ONNX files."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..onnx import movement, pooling
from ..onnx.laws import Constant, Operand, Tensor, scaling
from ..onnx.products import exact_pair, integer_conv, product, weights_of
from ..onnx.tensors import Refused
from ..onnx.transposed import conv_transpose as transposed_convolution
from . import uneven
from .conversion import Conversion
from .emission import dtype_of
from .recording import Call, Var


def _biased(c: Conversion, call: Call, x: Tensor, bias: Any, axis: int, factor: float = 1) -> None:
    """Set the result of a product to its sums, and the bias added to them."""
    result = call.results[0]
    if bias is None or factor == 0:
        c.put(result, x)
        return
    column = bias.tensor.detach() * factor if factor != 1 else bias.tensor.detach()
    if column.ndim == 1:
        column = column.reshape(-1, *(1,) * (len(result.shape) - axis - 1))
    sums = c.variable(result.tensor, True)
    add = torch.ops.aten.add.Tensor
    c.added(result, x, Call("add", "Tensor", add, (sums, c.variable(column, False)), {}, (result,), call.path))


def _constant(x: Any, what: str) -> None:
    if isinstance(x, Var) and x.depends:
        raise Refused(f"its {what} depends on the input; make it a parameter, a buffer or a number")


def _low_bit(c: Conversion, call: Call, x: Var, w: Var, axis: int) -> tuple[Tensor, Constant]:
    """Return input and weights of a layer, those of floats quantised if the caller chose so."""
    source, weight, choices, stored = c.settle(x), c.constant(w, axis), c.choices, c.stored(w)
    if stored is not None:
        by_output = stored.scale.T if stored.scale.shape[1] == 1 else None
        weight = Constant(weight.value, None if by_output is None else stored.integers.T, by_output)
    in_groups = stored is not None and weight.integers is None
    if choices is None or choices.activations is None or in_groups or not choices.applies(call):
        return source, weight
    if weight.integers is None:
        weight = choices.weight(weight.value, axis)
    if source.pure is None or source.pure.size > 1:
        result = c.variable(x.tensor, True)
        quantise = choices.activation(x, result, call.path)
        c.functions[result.index] = c.functions[x.index].then(quantise)
        source = c.settle(result)
    return source, weight


def _convolution(c: Conversion, call: Call) -> None:
    x, w, bias, stride, padding, dilation, transposed, _, groups = call.args[:9]
    if transposed:
        _stretched(c, call)
        return
    _constant(w, "weight")
    _constant(bias, "bias")
    if not x.depends:
        raise Refused("it convolves a constant by weights that depend on the input")
    step = c.step(call, "Conv", strides=tuple(stride), pads=(*padding, *padding), dilations=tuple(dilation),
                  group=int(groups), kernel_shape=w.shape[2:])  # fmt: skip
    c.builder.step = step
    source, weight = _low_bit(c, call, x, w, 0)
    held, shape = weights_of(weight, 0), call.results[0].shape
    out = integer_conv(c.builder, step, source, held, shape, source.dtype)
    if out is None:
        out = uneven.convolution(c.builder, step, source, uneven.right_of(weight, 0, held), shape)
    if out is None:
        out = c.builder.numpy(step, [source, weight], [call.results[0].shape], source.dtype)[0]
    _biased(c, call, out, bias, 1)


def _stretched(c: Conversion, call: Call) -> None:
    """Convert a transposed convolution."""
    x, w, bias, stride, padding, dilation, _, more, groups = call.args[:9]
    _constant(w, "weight")
    _constant(bias, "bias")
    if not x.depends:
        raise Refused("it convolves a constant by weights that depend on the input")
    step = c.step(call, "ConvTranspose", strides=tuple(stride), pads=(*padding, *padding), dilations=tuple(dilation),
                  group=int(groups), kernel_shape=w.shape[2:], output_padding=tuple(more))  # fmt: skip
    c.builder.step = step
    operands: list[Operand] = list(_low_bit(c, call, x, w, 1))
    (out,) = transposed_convolution(c.builder, step, operands, [call.results[0].shape])
    assert isinstance(out, Tensor)
    _biased(c, call, out, bias, 1)


def _product(c: Conversion, call: Call, x: Var, w: Var, bias: Any = None, factor: float = 1) -> None:
    """x @ w, and bias * factor added to it."""
    result, b = call.results[0], c.builder
    step = c.step(call, "MatMul")
    b.step = step
    _constant(bias, "bias")
    if w.depends or not x.depends:
        _constant(bias, "bias")
        _computed(c, call, x, w)
        return
    source, weight = _low_bit(c, call, x, w, len(w.shape) - 1)
    if len(w.shape) == 3 and len(x.shape) == 3 and w.shape[0] == 1:
        weight = Constant(weight.value[0]) if weight.integers is None else weight
    held = weights_of(weight, 1) if len(w.shape) == 2 else None
    out = product(b, source, held, len(x.shape) - 1, "linear", {}, {}, result.shape, source.dtype)
    if out is None and len(w.shape) == 2:
        out = uneven.product(b, "linear", {}, source, uneven.right_of(weight, 1, held), result.shape)
    if out is None:
        b.per_sample(len(w.shape) == 2 and len(x.shape) >= 2)
        out = _of_floats(c, call, source, w, weight) or b.numpy(step, [source, weight], [result.shape], source.dtype)[0]
    _biased(c, call, out, bias, len(result.shape) - 1, factor)


def _of_floats(c: Conversion, call: Call, x: Tensor, w: Var, weight: Constant) -> Tensor | None:
    """Multiply floats by a weight that stays packed: one of torchao, or as the caller chose; None for any other."""
    stored, choices, b, packed = c.stored(w), c.choices, c.builder, None
    if x.dtype != np.float32:
        return None
    if stored is not None:
        packed = stored.packed()
    elif choices is not None and choices.activations is None and len(w.shape) == 2 and choices.applies(call):
        packed = choices.packed(weight.value.T, call.path)
    if packed is None:
        return None
    held = b.emit("dequantized_linear", [b.dense(x), b.constant(packed, f"{b.hint}.weight")], b.hint)
    return c.value(held, call.results[0])


def _computed(c: Conversion, call: Call, x: Var, w: Var) -> None:
    """Multiply two values that depend on the inputs, or a constant by one."""
    b, result = c.builder, call.results[0]
    b.per_sample(x.depends and w.depends and len(x.shape) == len(w.shape) >= 3)
    left, right = (c.settle(v) if v.depends else c.constant(v) for v in (x, w))
    both = exact_pair(b, left, right)
    if both is not None:
        source, scale = both(result.shape)
        c.put(result, Tensor(result.shape, dtype_of(result), source, (scaling(scale, dtype_of(result)),)))
        return
    c.put(result, b.numpy(c.step(call, "MatMul"), [left, right], [result.shape], dtype_of(result))[0])


def _addmm(c: Conversion, call: Call) -> None:
    bias, x, w = call.args[:3]
    if call.kwargs.get("alpha", 1) != 1:
        raise Refused("aten.addmm with alpha is not taken")
    if w.depends and isinstance(bias, Var):
        raise Refused("its weight depends on the input, and it has a bias; use torch.matmul and an addition")
    _product(c, call, x, w, bias, call.kwargs.get("beta", 1))


def _mm(c: Conversion, call: Call) -> None:
    _product(c, call, *call.args[:2])


# Pools

_INDICES = "the indices of a max pool are not taken"


def _pair(value: Any, n: int) -> tuple[int, ...]:
    """Return a window's lengths: one for all axes, or one for each."""
    listed = tuple(int(v) for v in (value if isinstance(value, (tuple, list)) else (value,)))
    return listed * n if len(listed) == 1 else listed


def _window(call: Call, defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    x = call.args[0]
    n = 3 if "3d" in call.op else 2 if "2d" in call.op else 1
    if len(x.shape) != n + 2:
        raise Refused(f"it takes {x.shape} without a batch; add one with x[None]")
    size, stride, padding, *rest = (*call.args[1:], *defaults[len(call.args) - 1 :])
    kernel = _pair(size, n)
    return (kernel, _pair(stride, n) if stride else kernel, _pair(padding, n), *rest)


def _max_pool(c: Conversion, call: Call) -> None:
    kernel, stride, padding, dilation, ceil_mode = _window(call, (1, (), 0, 1, False))
    attributes = {
        "kernel_shape": kernel, "strides": stride, "pads": (*padding, *padding),
        "dilations": _pair(dilation, len(kernel)), "outputs": 1,
    }  # fmt: skip
    x, result = call.args[0], call.results[0]
    if ceil_mode:
        floor = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(
            x.shape[2:], padding, attributes["dilations"], kernel, stride, strict=True)]  # fmt: skip
        if tuple(floor) != result.shape[2:]:
            attributes["ceil_mode"] = 1
    c.builder.step = c.step(call, "MaxPool")
    c.pooled(call, attributes)
    c.absent.update((r.index, _INDICES) for r in call.results[1:])


def _average_pool(c: Conversion, call: Call) -> None:
    kernel, stride, padding, ceil_mode, counted, divisor = _window(call, (1, (), 0, False, True, None))
    if divisor is not None:
        raise Refused("an average pool with divisor_override is not taken; multiply the result instead")
    attributes = {"kernel_shape": kernel, "strides": stride, "pads": (*padding, *padding),
                  "count_include_pad": int(bool(counted)), "ceil_mode": int(bool(ceil_mode))}  # fmt: skip
    _averaged(c, call, attributes)


def _averaged(c: Conversion, call: Call, attributes: dict[str, Any]) -> None:
    step, result = c.step(call, "AveragePool", **attributes), call.results[0]
    c.builder.step = step
    out = pooling.LOWER["AveragePool"](c.builder, step, [c.settle(call.args[0])], [result.shape])[0]
    if out.shape != result.shape:
        raise Refused(f"its windows give {out.shape}, not {result.shape}")
    c.put(result, out)


def _adaptive(c: Conversion, call: Call) -> None:
    """Convert a pool to a length that divides that of the image: windows side by side."""
    x, result = call.args[0], call.results[0]
    long, short = x.shape[2:], result.shape[2:]
    if len(x.shape) - 2 != int(call.op[call.op.index("pool") + 4]):
        raise Refused(f"it takes {x.shape} without a batch; add one with x[None]")
    if any(n % m for n, m in zip(long, short, strict=True)):
        raise Refused(f"an adaptive pool of {long} to {short} has windows of several lengths; use a pool of one window")
    kernel = tuple(n // m for n, m in zip(long, short, strict=True))
    attributes = {"kernel_shape": kernel, "strides": kernel, "pads": (0,) * 2 * len(kernel)}
    if "max" in call.op:
        c.builder.step = c.step(call, "MaxPool")
        c.pooled(call, {**attributes, "dilations": (1,) * len(kernel), "outputs": 1})
        c.absent.update((r.index, _INDICES) for r in call.results[1:])
        return
    _averaged(c, call, attributes)


def _mean(c: Conversion, call: Call) -> None:
    """Convert a mean over axes: that of all places of an image is an average pool."""
    x, axes, keep = (*call.args, False)[:3] if len(call.args) > 1 else (call.args[0], None, False)
    ndim, result = len(x.shape), call.results[0]
    keep = call.kwargs.get("keepdim", keep)
    at = sorted(int(i) % ndim for i in (range(ndim) if axes is None else _pair(axes, 1)))
    if ndim < 3 or at != list(range(2, ndim)):
        _reduced(c, call)
        return
    step = c.step(call, "GlobalAveragePool")
    c.builder.step = step
    long = (*x.shape[:2], *(1,) * (ndim - 2))
    out = pooling.LOWER["GlobalAveragePool"](c.builder, step, [c.settle(x)], [long])[0]
    if not keep:
        out = movement.LOWER["Reshape"](c.builder, c.step(call, "Reshape"), [out], [result.shape])[0]
    c.put(result, out)


_REDUCED = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"}


def _reduced(c: Conversion, call: Call) -> None:
    x, result = call.args[0], call.results[0]
    ndim = len(x.shape)
    axes = call.args[1] if len(call.args) > 1 and call.args[1] is not None else tuple(range(ndim))
    keep = int(bool(call.args[2] if len(call.args) > 2 else call.kwargs.get("keepdim", False)))
    at = np.array([int(i) % ndim for i in _pair(axes, 1)] or list(range(ndim)))
    step = c.step(call, _REDUCED[call.op], keepdims=keep)
    _along(c, call, step, [c.settle(x), Constant(at)], result)


def _along(c: Conversion, call: Call, step: Any, operands: list[Operand], result: Var) -> None:
    c.builder.step = step
    if dtype_of(result) != operands[0].dtype and step.op not in ("ArgMax", "ArgMin"):  # type: ignore[union-attr]
        raise Refused(f"it turns {operands[0].dtype} into {dtype_of(result)}")  # type: ignore[union-attr]
    c.put(result, pooling.LOWER[step.op](c.builder, step, operands, [result.shape])[0])


def _softmax(c: Conversion, call: Call) -> None:
    x, axis = call.args[:2]
    result = call.results[0]
    step = c.step(call, "Softmax", axis=int(axis) % len(x.shape))
    _along(c, call, step, [c.settle(x)], result)
    if call.op == "_log_softmax":
        name = c.builder.emit("Log", [c.builder.dense(c.functions[result.index].base)], c.builder.hint)
        c.put(result, c.value(name, result))


def _layer_norm(c: Conversion, call: Call) -> None:
    """Convert a layer norm; its statistics are not taken."""
    x, lengths, weight, bias, epsilon = call.args[:5]
    result, dtype = call.results[0], dtype_of(call.results[0])
    scale = Constant(np.ones(lengths, dtype)) if weight is None else c.constant(weight)
    operands = [c.settle(x), scale, None if bias is None else c.constant(bias)]
    step = c.step(call, "LayerNormalization", axis=len(x.shape) - len(lengths), epsilon=float(epsilon), gives=("Y",))
    c.builder.step = step
    c.put(result, pooling.LOWER["LayerNormalization"](c.builder, step, operands, [result.shape])[0])
    c.absent.update((r.index, "the statistics of a layer norm are not taken") for r in call.results[1:])


def _extreme(c: Conversion, call: Call) -> None:
    """Convert max or min along an axis, which gives the places too: of a NaN, or of equal elements the first."""
    if call.overload != "dim":
        raise Refused(f"aten.{call.op} of all elements, over the batch too, is not taken; pass dim=1")
    x, axis, keep = (*call.args, False)[:3]
    at, keepdims = int(axis) % len(x.shape), int(bool(call.kwargs.get("keepdim", keep)))
    source, (values, places) = c.settle(x), call.results
    name = call.op.capitalize()
    _along(c, call, c.step(call, f"Reduce{name}", keepdims=keepdims), [source, Constant(np.array([at]))], values)
    _along(c, call, c.step(call, f"Arg{name}", axis=at, keepdims=keepdims), [source], places)


def _argmax(c: Conversion, call: Call) -> None:
    x, axis, keep = (*call.args, None, None)[:3]
    axis, keep = call.kwargs.get("dim", axis), call.kwargs.get("keepdim", keep)
    if axis is None:
        raise Refused("argmax of all elements, over the batch too, is not taken; pass dim=1")
    step = c.step(
        call, "ArgMax" if call.op == "argmax" else "ArgMin", axis=int(axis) % len(x.shape), keepdims=int(bool(keep))
    )
    _along(c, call, step, [c.settle(x)], call.results[0])


LOWER: dict[str, Any] = {
    "convolution": _convolution,
    "addmm": _addmm,
    **dict.fromkeys(("mm", "bmm"), _mm),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _average_pool),
    **{f"{kind}_pool{n}d": _adaptive for kind in ("_adaptive_avg", "adaptive_max") for n in (2, 3)},
    "mean": _mean,
    **dict.fromkeys(("sum", "amax", "amin"), _reduced),
    **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("argmax", "argmin"), _argmax),
    **dict.fromkeys(("max", "min"), _extreme),
    "native_layer_norm": _layer_norm,
}
