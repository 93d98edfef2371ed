"""Layers whose weights, and inputs, are quantised with straight-through gradients."""

from __future__ import annotations

from typing import Any

import torch

from ..arrays import checks
from ..ops.products.geometry import to_last
from . import packed_gradients, packed_products
from .packed_products import Window
from .schemes import Scheme, Sign, scheme_of
from .tracers import refuse_script, refuse_tracers


class Quantised(torch.nn.Module):
    """A layer of `activations(x)` and `weights(weight)`: what all layers have, beside a layer of PyTorch."""

    packed = False
    gradient_bits: int | None = None
    weight: torch.nn.Parameter
    __prepare_scriptable__ = refuse_script

    def __init__(
        self, *args: Any, weights: Any = None, activations: Any = None, packed: bool = False,
        gradient_bits: int | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **settings)
        op = type(self).__name__
        self.weights = scheme_of(op, "weights", weights)
        self.activations = scheme_of(op, "activations", activations)
        self.packed, self.gradient_bits = bool(packed), _bits_of(self, packed, gradient_bits)
        if packed:
            self._check_packed()

    def _check_packed(self) -> None:
        _quantisers(self)

    def extra_repr(self) -> str:
        """Return the settings as text, with both schemes and their bits."""
        return f"{super().extra_repr()}, {_schemes(self)}"

    def _quantised(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return quantised inputs, and weights [outputs inputs ..]."""
        w = self._weights_by_outputs()
        return (
            x if self.activations is None else self.activations(x),
            w if self.weights is None else self.weights(w),
        )

    def _weights_by_outputs(self) -> torch.Tensor:
        return self.weight

    def _product(self, x: torch.Tensor, window: Window | None) -> torch.Tensor:
        """Return the product by packed kernels, of images or, without a window, of rows."""
        activations, weights = _quantisers(self)
        quantised, packed_x = activations.with_packed(x, range(x.ndim) if window is None else to_last(x.ndim - 2))
        w, packed_w = weights.with_packed(self.weight, range(self.weight.ndim))
        if window is None:
            packed = packed_products.rows(packed_x, packed_w)
            value = packed_products.multiplied(packed)
        else:
            packed = packed_products.images_and_taps(packed_x, packed_w, window.groups)
            value = packed_products.convolved(packed, window)
        if self.gradient_bits is None:
            return packed_products.known(quantised, w, value, window)
        return packed_gradients.product(quantised, w, value, packed, window, self.gradient_bits)


class _Convolution(Quantised):
    """A convolution over the axes of an image."""

    def _check_packed(self) -> None:
        _quantisers(self)
        _window(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the convolution of quantised inputs and weights."""
        layer: Any = self
        if not self.packed:
            result: torch.Tensor = layer._conv_forward(*self._quantised(x), layer.bias)
            return result
        refuse_tracers(type(self).__name__, x)
        window = _window(layer)
        axes = len(window.stride)
        y = self._product(x if x.ndim == axes + 2 else x[None], window)
        y = y if layer.bias is None else y + layer.bias.view(-1, *(1,) * axes)
        return y if x.ndim == axes + 2 else y[0]


class QuantConv1d(_Convolution, torch.nn.Conv1d):
    """A `torch.nn.Conv1d` of `activations(x)` and `weights(weight)`; arguments as in `QuantConv2d`.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.QuantConv1d(3, 8, 5, weights=qa.torch.Sign(scale=True), activations=qa.torch.LQ(2))
    >>> layer(torch.rand(1, 3, 9)).shape
    torch.Size([1, 8, 5])
    """


class QuantConv2d(_Convolution, torch.nn.Conv2d):
    """A `torch.nn.Conv2d` that convolves `activations(x)` with `weights(weight)`; groups and depthwise too.

    weights, activations: modules such as `DoReFa(2)`, or None for floats. Other arguments are those of Conv2d.

    packed=True: the forward pass is `quantarray.conv2d` of `activations.packed(x)` and `weights.packed(weight)`, on the
    CPU: exact sums of codes, where the product of floats rounds. Gradients are those of the product of floats. Both
    quantisers must then be of `quantarray.torch`, padding numbers, and `padding_mode` "zeros"; else ValueError. The
    attribute `packed` may be set at any time.

    gradient_bits=1 to 8, with packed=True: the backward pass is packed, too. The product's gradient is rounded at
    random to so many bits, as in DoReFa-Net (arXiv:1606.06160) but with one maximum for the batch, and the gradients of
    weights and inputs are sums of codes (`conv2d_filter_adjoint`, `conv2d_data_adjoint`). What is held for it are the
    packed operands; it has no gradients of its own. Weights with a scale for each output have the inputs' gradient by
    floats.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.QuantConv2d(3, 8, 3, weights=qa.torch.DoReFa(2), activations=qa.torch.PACT(4), padding=1)
    >>> layer(torch.rand(1, 3, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    """


class QuantConv3d(_Convolution, torch.nn.Conv3d):
    """A `torch.nn.Conv3d` of `activations(x)` and `weights(weight)`; arguments as in `QuantConv2d`.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.QuantConv3d(3, 8, 2, weights=qa.torch.DoReFa(2), activations=qa.torch.PACT(2), packed=True)
    >>> layer(torch.rand(1, 3, 4, 5, 6)).shape
    torch.Size([1, 8, 3, 4, 5])
    """


class BinaryConv2d(QuantConv2d):
    """A `QuantConv2d` of signs: weights a * sign(w) with a = mean |w| of each output, and inputs sign(x) (XNOR-Net).

    estimator: of both signs' gradients, as `Sign` has it. scale=False leaves a out. Other arguments are those of
    QuantConv2d.

    >>> import quantarray as qa, torch
    >>> layer = qa.torch.BinaryConv2d(4, 8, 3, groups=4, bias=False, scale=False, packed=True)
    >>> y = layer(torch.randn(1, 4, 5, 5))
    >>> bool((y % 2 == 1).all())  # sums of nine signs
    True
    """

    def __init__(self, *args: Any, estimator: str = "clip", scale: bool = True, **settings: Any) -> None:
        super().__init__(*args, weights=Sign(estimator, scale), activations=Sign(estimator), **settings)


class QuantLinear(Quantised, torch.nn.Linear):
    """A `torch.nn.Linear` of `activations(x)` and `weights(weight)`.

    packed=True: the forward pass is `quantarray.linear` of packed operands, as `QuantConv2d` has it, and with
    gradient_bits= the backward pass, too.

    >>> import quantarray as qa, torch
    >>> qa.torch.QuantLinear(16, 4, weights=qa.torch.ABC(3), activations=qa.torch.LSQ(2))(torch.randn(2, 16)).shape
    torch.Size([2, 4])
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product of quantised inputs and weights."""
        if not self.packed:
            return torch.nn.functional.linear(*self._quantised(x), self.bias)
        refuse_tracers(type(self).__name__, x)
        y = self._product(x, None)
        return y if self.bias is None else y + self.bias


def _schemes(layer: Any) -> str:
    """Name the schemes of weights and activations, with their bits."""
    both = {name: getattr(layer, name) for name in ("weights", "activations")}
    texts = [f"{name}={_scheme(scheme)}" for name, scheme in both.items()]
    more = ["packed=True"] * bool(layer.packed)
    return ", ".join([*texts, *more, *[f"gradient_bits={layer.gradient_bits}"] * (layer.gradient_bits is not None)])


def _scheme(scheme: torch.nn.Module | None) -> str:
    return "float" if scheme is None else f"{type(scheme).__name__}({scheme.extra_repr()})"


def _bits_of(layer: Any, packed: bool, gradient_bits: Any) -> int | None:
    """Check the bits of gradients, which only a packed product has."""
    if gradient_bits is None:
        return None
    bits = checks.integer(type(layer).__name__, "gradient_bits", gradient_bits, 1, 8)
    if not packed:
        raise ValueError(f"{type(layer).__name__}: gradient_bits={bits} needs packed=True")
    return bits


def _quantisers(layer: Any) -> tuple[Scheme, Scheme]:
    """Return the quantisers of activations and of weights; ValueError unless both pack."""
    both = layer.activations, layer.weights
    if not all(isinstance(scheme, Scheme) for scheme in both):
        raise ValueError(
            f"{type(layer).__name__}: packed=True needs quantisers of quantarray.torch for weights= and activations=, "
            f"got {layer.weights!r} and {layer.activations!r}"
        )
    return both


def _window(layer: Any) -> Window:
    """Return a convolution's settings; ValueError for those that packed kernels do not have."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        raise ValueError(
            f"{type(layer).__name__}: packed=True needs padding in numbers and padding_mode='zeros', got "
            f"{layer.padding!r} and {layer.padding_mode!r}"
        )
    stride, padding, dilation = (tuple(map(int, axes)) for axes in (layer.stride, layer.padding, layer.dilation))
    return Window(stride, padding, dilation, layer.groups)
