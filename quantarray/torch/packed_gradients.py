"""Packed backward passes: gradients of a product from a gradient of few bits and packed operands.

The gradient g of the product is rounded as DoReFa-Net has it (Zhou et al., 2016, arXiv:1606.06160, section 2.3), to
2**bits evenly spaced levels from -max |g| to max |g|, up or down at random so that its mean is g. One maximum for the
whole tensor, where DoReFa-Net has one for each image: what is summed over images needs one scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ..arrays.array import QuantArray
from ..core.dtypes import integers
from ..ops.creation.creation import from_codes
from ..ops.manipulation.repacking import repack
from ..ops.products import matrix_product
from ..ops.products.adjoint_calls import Geometry, data_adjoint, filter_adjoint
from ..ops.products.geometry import LAYOUTS, to_first, to_last
from .packed_products import Packed, Window, of_convolution, tensor
from .tracers import uncompiled


class _PackedBackward(torch.autograd.Function):
    """A product whose value is known, which keeps its packed operands for the backward pass, and no floats."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        w: torch.Tensor,
        value: torch.Tensor,
        packed: Packed,
        window: Window | None,
        bits: int,
    ) -> torch.Tensor:
        """Return the value."""
        ctx.packed, ctx.window, ctx.bits, ctx.shapes = packed, window, bits, (x.shape, w.shape)
        return value

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients in x and w of the rounded gradient."""
        of = _of_rows if ctx.window is None else _of_images
        both = of(gradient, ctx.packed, ctx.window, ctx.bits, ctx.needs_input_grad[:2])
        shaped = (
            None if g is None else g.to(gradient.dtype).reshape(shape)
            for g, shape in zip(both, ctx.shapes, strict=True)
        )
        return *shaped, None, None, None, None


@uncompiled
def product(
    x: torch.Tensor, w: torch.Tensor, value: torch.Tensor, packed: Packed, window: Window | None, bits: int
) -> torch.Tensor:
    """Return `value`, whose gradients in x and w come from `packed` and from a gradient of so many bits."""
    result: torch.Tensor = _PackedBackward.apply(x, w.to(x.dtype), value.to(x.dtype), packed, window, bits)
    return result


def rounded(gradient: torch.Tensor, bits: int) -> QuantArray:
    """Round a gradient at random to 2**bits levels, packed on its last axis; PyTorch's random numbers."""
    steps = 2**bits - 1
    largest = gradient.abs().max() if gradient.numel() else gradient.new_zeros(())
    scale = float(largest) / steps
    unit = gradient / (2 * largest) + 0.5 if scale else torch.zeros_like(gradient)
    codes = (unit * steps + torch.rand_like(gradient)).floor_().clamp_(0, steps).to(torch.uint8)
    return from_codes(codes, integers(*range(-steps, steps + 1, 2)), scale=scale or 0.0)


def _of_images(
    gradient: torch.Tensor, packed: Packed, window: Window, bits: int, needed: tuple[bool, bool]
) -> tuple[Any, Any]:
    """Return the gradients in x [n c ..] and in w [o c/groups ..]."""
    axes, first = len(window.stride), to_first(len(window.stride))
    g, (x, w) = rounded(gradient.permute(to_last(axes)), bits), packed
    how = Geometry(window.stride, window.padding, window.dilation, window.groups, LAYOUTS[axes].last, False)
    of_x = of_w = None
    if needed[0] and w.constants.varies(0):  # a scale for each output, over which the gradient sums
        decoded = tensor(g.dequantize()).permute(first)
        images, taps = (tensor(a.dequantize()).permute(first).to(decoded.dtype) for a in (x, w))
        of_x, _ = of_convolution(decoded, images, taps, window, (True, False))
    elif needed[0]:
        of_x = tensor(data_adjoint(axes, g, w, x.shape[1:-1], how)).permute(first)
    if needed[1]:
        of_w = tensor(filter_adjoint(axes, x, g, w.shape[1:-1], how)).permute(first)
    return of_x, of_w


def _of_rows(
    gradient: torch.Tensor, packed: Packed, window: None, bits: int, needed: tuple[bool, bool]
) -> tuple[Any, Any]:
    """Return the gradients in x [m k] and in w [o k]."""
    g, (x, w) = rounded(gradient.reshape(-1, gradient.shape[-1]), bits), packed
    x = x.reshape(-1, x.shape[-1])
    of_x = of_w = None
    if needed[0] and w.constants.varies(0):
        of_x = tensor(g.dequantize()) @ tensor(w.dequantize()).to(torch.float32)
    elif needed[0]:
        of_x = tensor(matrix_product.linear(g, repack(w, 0).T))
    if needed[1]:
        of_w = tensor(matrix_product.linear(repack(g, 0).T, repack(x, 0).T))
    return of_x, of_w
