"""Functions of one or two of PyTorch's quantised tensors, as tables of their codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...core.dtypes import Array
from ...ops.words.code_tables import scaled_sum
from ..onnx.laws import Source, Tensor, scaling
from ..onnx.tensors import Refused
from .conversion import Conversion
from .recording import Call, Var, variables
from .rounding import SINGLE, codes_of, store


def is_unary(call: Call) -> bool:
    """Tell if each code of the result depends on the code at its place alone."""
    inputs = [v for v in variables((call.args, call.kwargs)) if v.depends]
    alike = call.op in _ALIKE or torch.Tag.pointwise in call.function.tags
    return len(inputs) == 1 and inputs[0].shape == call.results[0].shape and alike


_ALIKE = frozenset(
    "add_scalar add_scalar_relu mul_scalar mul_scalar_relu hardtanh hardswish hardsigmoid sigmoid tanh elu celu "
    "leaky_relu relu6 gelu threshold clamp".split()
)


def clipped(c: Conversion, call: Call, x: Var) -> bool:
    """Set the result to a product's codes if the operator only clips these, and nothing else reads them."""
    steps, codes, (result,) = c.steps.get(x.index), codes_of(x), call.results
    if steps is None or c.readers[x.index] > 1:
        return False
    low, high = c.settle(x).source.bounds
    every = np.arange(low, high + 1) + codes.zero
    got = _evaluated(call, [x], [every - codes.zero])
    same = (codes.scale, codes.zero) == (codes_of(result).scale, codes_of(result).zero)
    if not same or (got != np.clip(every, got[0], got[-1])).any() or got[0] == got[-1]:
        return False
    store(c, result, steps, ends=(int(got[0]), int(got[-1])))
    return True


def look_up(c: Conversion, call: Call, inputs: list[Var]) -> None:
    """Set the result to a table of the operator's codes, for each code of its input or each pair of codes."""
    result = call.results[0]
    c.builder.step = c.step(call, "Gather")
    if any(v.shape != result.shape for v in inputs):
        raise Refused("it broadcasts quantised tensors")
    held = [_packed(c, c.settle(v), v) for v in inputs]
    low, high = zip(*(x.bounds for x in held), strict=True)
    whole = np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(low, high, strict=True)), indexing="ij")
    codes, to = _evaluated(call, inputs, [np.ascontiguousarray(a) for a in whole]), codes_of(result)
    table = np.zeros([1 << max(1, (b - a).bit_length()) for a, b in zip(low, high, strict=True)], np.uint8)
    table[tuple(slice(n) for n in codes.shape)] = codes - to.low
    factors = _factors(call, inputs, low)
    flat = table.T.reshape(-1)
    if factors is not None and not np.array_equal(scaled_sum(factors, (8, 8)), flat):
        factors = None
    names = [held[0].name, c.builder.constant(flat, "codes"), *(x.name for x in held[1:])]
    names += [] if factors is None else [c.builder.constant(factors, "factors")]
    ends = to.low - to.zero, to.high - to.zero
    name = c.builder.emit("look_up", names, c.builder.hint, low=ends[0], high=ends[1])
    source = Source(name, result.shape, np.dtype(np.int32), tuple(range(ends[0], ends[1] + 1)), *ends)
    c.put(result, Tensor(result.shape, SINGLE, source, (scaling(np.float32(to.scale), SINGLE),)))


def _packed(c: Conversion, x: Tensor, var: Var) -> Source:
    """Return codes less their zero point as a packed value."""
    source = x.source
    low, high = source.bounds
    if source.levels is not None:
        return source
    if high - low > 255 or len(x.shape) < 2:
        raise Refused(f"integers from {low} to {high} of {len(x.shape)} axes are not taken")
    levels, axis = tuple(range(low, max(high, low + 1) + 1)), 1 if len(x.shape) != 3 else 2
    name = c.builder.emit("pack", [source.name], f"{source.name}.packed", levels=levels, shift=0, axis=axis)
    return replace(source, name=name, dtype=np.dtype(np.int32), levels=levels)


def _factors(call: Call, inputs: list[Var], low: tuple[int, ...]) -> Array | None:
    """Return factors by which a sum of two tensors is computed, as PyTorch's kernels for vectors do."""
    whole = [codes_of(v) for v in (*inputs, call.results[0])]
    if call.op not in ("add", "add_relu") or len(inputs) != 2 or any(k.low != 0 or k.high != 255 for k in whole):
        return None
    if any(least + k.zero for least, k in zip(low, whole[:2], strict=True)):  # a code is not that of the packed value
        return None
    out = whole[2]
    scales = [np.float32(k.scale) for k in whole]
    offsets = [np.float32(-k.zero) * scale for k, scale in zip(whole[:2], scales[:2], strict=True)]
    least = out.zero if call.op == "add_relu" else 0
    return np.array([scales[0], offsets[0], scales[1], offsets[1], 1 / scales[2], out.zero, least, 255], np.float32)


def _evaluated(call: Call, inputs: list[Var], integers: list[Array]) -> Array:
    """Run the operator on tensors of codes; return the codes that it gives."""
    known = {}
    for var, whole in zip(inputs, integers, strict=True):
        codes = codes_of(var)
        value = torch.from_numpy((whole + codes.zero).astype(codes.held))
        known[var.index] = torch._make_per_tensor_quantized_tensor(value, codes.scale, codes.zero)

    def filled(tree: Any) -> Any:
        if isinstance(tree, Var):
            return known.get(tree.index, tree.tensor)
        return [filled(t) for t in tree] if isinstance(tree, tuple) else tree

    with torch.no_grad():
        out = call.function(*filled(call.args), **{k: filled(v) for k, v in call.kwargs.items()})
    return np.asarray(out.int_repr().numpy())


def of_pair(c: Conversion, call: Call) -> None:
    inputs = [v for v in call.args[:2] if isinstance(v, Var) and v.depends]
    if len(inputs) == 2 and inputs[0].index == inputs[1].index:
        inputs = inputs[:1]
    if not inputs or any(v.codes is None for v in variables(call.args)):
        raise Refused("it mixes quantised tensors and constants")
    look_up(c, call, inputs)
