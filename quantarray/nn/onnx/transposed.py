"""Transposed convolutions: packed where both operands are integers times a scale, in NumPy otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..operators.transposed import scattered
from .building import Builder
from .laws import Constant, Link, Operand, Shape, Source, Tensor, check_dtypes, scaling
from .products import Weights, operand, packed_weights, summed, weights_of
from .reading import Step


def conv_transpose(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert a transposed convolution; its bias is added by the chain of the result."""
    check_dtypes(operands)
    x, w, bias = [*operands, None][:3]
    assert x is not None
    b.per_sample(isinstance(x, Tensor) and not isinstance(w, Tensor))
    if bias is not None and not isinstance(bias, Constant):
        return [*b.numpy(step, operands, shapes, x.dtype)]
    out = packed_sums(b, step.attributes, x, w, shapes[0]) or b.numpy(step, operands[:2], shapes, x.dtype)[0]
    if bias is None:
        return [out]
    return [out.then(Link("Add", {}, (None, bias.value.reshape(-1, *(1,) * (len(shapes[0]) - 2)))))]


def packed_sums(b: Builder, a: dict[str, Any], x: Operand, w: Operand, shape: Shape) -> Tensor | None:
    """Convolve integers by the packed operation; None if x or w has none, or it has no such geometry."""
    axes, of_w = len(shape) - 2, weights_of(w, 1)
    if not isinstance(x, Tensor) or x.pure is None or x.pure.size > 1 or of_w is None or axes > 3 or 0 in shape:
        return None
    how, outputs = _arguments(a, x.shape[2:], of_w.integers.shape[2:]), _by_outputs(of_w, a.get("group", 1))
    if how is None or x.dtype.kind != "f":
        return None
    low, high = summed(x.source, outputs.integers)
    weight = packed_weights(outputs.integers, 0 if outputs.integers.shape[1] == 1 else 1)
    name = operand(b, x.source, 1) if weight is not None and -(2**31) < low and high < 2**31 else None
    if name is None:
        return None
    names = [name, b.constant(weight, f"{b.hint}.weight")]
    source = Source(b.emit(f"conv_transpose{axes}d", names, f"{b.hint}.sums", **how), shape, np.dtype(np.int32), None,
                    min(low, 0), max(high, 0))  # fmt: skip
    scale = outputs.scale if outputs.scale.ndim == 0 else outputs.scale.reshape(-1, *(1,) * axes)
    return Tensor(shape, x.dtype, source, (scaling(x.pure.reshape(()) * scale, x.dtype),))


def _arguments(a: dict[str, Any], image: Shape, kernel: Shape) -> dict[str, Any] | None:
    """Return the arguments of the packed operation; None where it has none such."""
    geometry = scattered(a, tuple(image), tuple(kernel))
    more = tuple(a.get("output_padding") or (0,) * len(image))
    sizes = zip(more, geometry.strides, geometry.dilations, strict=True)
    if min(map(min, geometry.pads)) < 0 or any(e >= max(s, d) for e, s, d in sizes):
        return None
    return {
        "stride": geometry.strides,
        "padding": geometry.pads,
        "output_padding": more,
        "dilation": geometry.dilations,
        "groups": a.get("group", 1),
    }


def _by_outputs(w: Weights, groups: int) -> Weights:
    """Bring weights [o/groups c ..], as `weights_of` has them, to [o c/groups ..]."""
    each, channels, *taps = w.integers.shape
    integers = np.moveaxis(w.integers.reshape(each, groups, channels // groups, *taps), 1, 0)
    scale = w.scale if w.scale.ndim == 0 else np.tile(w.scale, groups)
    return Weights(integers.reshape(groups * each, channels // groups, *taps), scale)


LOWER = {"ConvTranspose": conv_transpose}
