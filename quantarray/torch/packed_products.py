"""Compute a layer's product by packed kernels; its gradients are those of the product of floats."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import handle_torch_function, has_torch_function

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..ops.manipulation.repacking import repack
from ..ops.manipulation.views import permute_dims
from ..ops.products import matrix_product
from ..ops.products.convolution import conv2d
from ..ops.products.convolution_1d_3d import conv1d, conv3d
from ..ops.products.geometry import to_first, to_last
from . import gpu
from .tracers import uncompiled

Packed = tuple[QuantArray, QuantArray]  # x and w


_CONVOLUTIONS: dict[int, Any] = {1: conv1d, 2: conv2d, 3: conv3d}


class Window(NamedTuple):
    """A convolution's settings, each for all axes of an image, and its groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class _Known(torch.autograd.Function):
    """A product of x and w whose value is known: a convolution, or without a window x @ w.T."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, value: torch.Tensor, window: Window | None) -> torch.Tensor:
        """Return the value."""
        ctx.save_for_backward(x, w)
        ctx.window = window
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, Any, None, None]:
        """Give the gradients of the product of floats, in operations that have gradients of their own."""
        x, w = ctx.saved_tensors
        if ctx.window is not None:
            return *of_convolution(gradients[0], x, w, ctx.window, ctx.needs_input_grad[:2]), None, None
        of_x = gradients[0] @ w if ctx.needs_input_grad[0] else None
        of_w = None
        if ctx.needs_input_grad[1]:
            of_w = gradients[0].reshape(-1, w.shape[0]).T @ x.reshape(-1, w.shape[1])
        return of_x, of_w, None, None


def is_known_product(kind: type) -> bool:
    """True for the class of autograd's nodes of a product whose value was known; they save x and w."""
    return getattr(kind, "_forward_cls", None) is _Known


def of_convolution(
    gradient: torch.Tensor, x: torch.Tensor, w: torch.Tensor, window: Window, needed: tuple[bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of a convolution in x and in w, where they are needed."""
    stride, padding, dilation, groups = window
    of_x, of_w, _ = torch.ops.aten.convolution_backward(
        gradient, x, w, None, stride, padding, dilation, False, (0,) * len(stride), groups, (*needed, False)
    )
    return of_x, of_w


def known(x: torch.Tensor, w: torch.Tensor, value: torch.Tensor, window: Window | None) -> torch.Tensor:
    """Return `value` with the gradients of the convolution of x and w, or without a window of x @ w.T."""
    if has_torch_function((x, w)):
        result: torch.Tensor = handle_torch_function(known, (x, w), x, w, value, window)
    else:
        result = _Known.apply(x, w.to(x.dtype), value.to(x.dtype), window)
    return result


@uncompiled
def convolved(packed: Packed, window: Window) -> torch.Tensor:
    """Convolve packed images [n .. c] with packed weights [o .. c/groups]: int32 or float32 [n o ..]."""
    convolve = _CONVOLUTIONS[len(window.stride)]
    values = convolve(
        *packed, stride=window.stride, padding=window.padding, dilation=window.dilation, groups=window.groups
    )
    return tensor(values).permute(to_first(len(window.stride)))


@uncompiled
def images_and_taps(x: QuantArray, w: QuantArray, groups: int) -> Packed:
    """Return packed images [n .. c] and weights [o c/groups ..] as `convolved` takes them."""
    packed_w = permute_dims(repack(w, 1), to_last(w.ndim - 2))
    if groups == x.shape[-1]:
        packed_w = repack(packed_w, 0)
    return x, packed_w.to_device(x.device)


@uncompiled
def rows(x: QuantArray, w: QuantArray) -> Packed:
    """Return packed rows [.. k] and weights [o k] as `multiplied` takes them."""
    return x, w.to_device(x.device)


@uncompiled
def multiplied(packed: Packed) -> torch.Tensor:
    """Multiply packed rows [.. k] by packed weights [o k]: int32 or float32 [.. o]."""
    return tensor(matrix_product.linear(*packed))


def tensor(values: Array) -> torch.Tensor:
    """Return an array of a product as a tensor, in its memory where that is contiguous."""
    return torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else gpu.as_tensor(values)
