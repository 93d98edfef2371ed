"""Transposed convolutions whose weights, and inputs, are quantised with straight-through gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .layers import Quantised


class _Transposed(Quantised):
    """A transposed convolution over the axes of an image."""

    _function: Callable[..., torch.Tensor]

    def _check_packed(self) -> None:
        raise ValueError(f"{type(self).__name__}: packed=True is not for transposed convolutions")

    def _weights_by_outputs(self) -> torch.Tensor:
        """Return weights [inputs outputs/groups ..] as those of a convolution are, [outputs inputs/groups ..]."""
        return _exchanged(self.weight, self._groups)

    @property
    def _groups(self) -> int:
        layer: Any = self
        return int(layer.groups)

    def forward(self, x: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """Return the transposed convolution of quantised inputs and weights; output_size as in PyTorch's layers."""
        layer: Any = self
        if self.packed:
            self._check_packed()
        quantised, w = self._quantised(x)
        padding = layer._output_padding(
            x, output_size, layer.stride, layer.padding, layer.kernel_size, len(layer.stride), layer.dilation
        )
        return type(self)._function(
            quantised, _exchanged(w, self._groups), layer.bias, layer.stride, layer.padding, padding, layer.groups,
            layer.dilation,
        )  # fmt: skip


class QuantConvTranspose1d(_Transposed, torch.nn.ConvTranspose1d):
    """A `torch.nn.ConvTranspose1d` of `activations(x)` and `weights(weight)`.

    Arguments are those of `torch.nn.ConvTranspose1d`, and weights and activations as in `QuantConv2d`, but for packed
    and gradient_bits. Scales of weights are of outputs, as in a convolution.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.QuantConvTranspose1d(3, 8, 2, stride=2, weights=qa.torch.DoReFa(2))
    >>> layer(torch.rand(1, 3, 5)).shape
    torch.Size([1, 8, 10])
    """

    _function = staticmethod(F.conv_transpose1d)


class QuantConvTranspose2d(_Transposed, torch.nn.ConvTranspose2d):
    """A `torch.nn.ConvTranspose2d` of `activations(x)` and `weights(weight)`, as `QuantConvTranspose1d` is.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.QuantConvTranspose2d(3, 8, 2, stride=2, weights=qa.torch.Sign(scale=True))
    >>> layer(torch.rand(1, 3, 5, 6), output_size=(11, 12)).shape
    torch.Size([1, 8, 11, 12])
    """

    _function = staticmethod(F.conv_transpose2d)


class QuantConvTranspose3d(_Transposed, torch.nn.ConvTranspose3d):
    """A `torch.nn.ConvTranspose3d` of `activations(x)` and `weights(weight)`, as `QuantConvTranspose1d` is.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.QuantConvTranspose3d(3, 8, 2, weights=qa.torch.LQ(2, weights=True))
    >>> layer(torch.rand(1, 3, 4, 5, 6)).shape
    torch.Size([1, 8, 5, 6, 7])
    """

    _function = staticmethod(F.conv_transpose3d)


def _exchanged(w: torch.Tensor, groups: int) -> torch.Tensor:
    """Return weights [groups * a b ..] with inputs and outputs exchanged, [groups * b a ..]."""
    parts = w.unflatten(0, (groups, -1)).transpose(1, 2)
    return parts.reshape(-1, *parts.shape[2:])
