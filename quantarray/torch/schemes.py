"""Quantisers as modules: values of the package's schemes, straight-through gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import quantizers
from ..arrays.array import QuantArray
from ..ops.manipulation.views import permute_dims
from ..ops.words import conversion
from . import gpu
from .bridges import quantize
from .known_levels import as_it_is, note_law
from .straight_through import estimator_of, identity, straight
from .tracers import refuse_script, refuse_tracers, uncompiled


class Scheme(torch.nn.Module):
    """A module that quantises: values of a packed array, the gradient of `surrogate`.

    A scheme of your own has `packed`, and `surrogate` if the gradient shall not pass everywhere. With `pointwise=True`
    each value depends in evaluation on its element alone: `quantarray.nn.from_torch` then takes the scheme, as any
    module with that attribute, as one function of a number.
    """

    pointwise: bool = False
    _packed: QuantArray | None = None  # what a call is on, where that is packed already

    @property
    def role(self) -> str | None:
        """Return "weights" or "activations" for a scheme that quantises one of them, None for both."""
        return None

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return x packed, whose values `forward` gives."""
        raise NotImplementedError

    def surrogate(self, x: torch.Tensor) -> torch.Tensor:
        """Return the function of x whose gradient counts."""
        return identity(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the quantised values in x's dtype; RuntimeError where a tracer of PyTorch runs."""
        refuse_tracers(type(self).__name__, x)
        if self._packed is None:
            self._follow(x)
        return self._quantised(x)

    @uncompiled
    def with_packed(self, x: torch.Tensor, axes: Sequence[int]) -> tuple[torch.Tensor, QuantArray]:
        """Call the module on x, and return x packed with its axes in another order too; x is quantised once."""
        self._follow(x)
        try:
            q = self.packed(x.detach().permute(*axes))
        except ValueError:
            check_values(x)  # which names the place of a NaN in x's own axes
            raise
        self._packed = permute_dims(q, tuple(map(axes.index, range(x.ndim))))
        try:
            return self(x), q
        finally:
            self._packed = None

    def _follow(self, x: torch.Tensor) -> None:
        """Check x, and update what follows it in training."""

    def _quantised(self, x: torch.Tensor) -> torch.Tensor:
        return straight(self._values(x), self.surrogate(x))

    __prepare_scriptable__ = refuse_script

    @uncompiled
    def _values(self, x: torch.Tensor) -> torch.Tensor:
        return values_of(self.packed(x) if self._packed is None else self._packed, x)


def values_of(q: QuantArray, like: torch.Tensor) -> torch.Tensor:
    """Return an array's values as a tensor of the dtype of `like`, on its device."""
    values = conversion.dequantize(q)
    tensor = torch.from_numpy(values.copy()) if q.device == "cpu" else gpu.as_tensor(values)
    return note_law(tensor.to(like.device, like.dtype), q.dtype, q.constants)


def packed_weights(x: torch.Tensor, scheme: quantizers.Quantizer, per_channel: bool = True) -> QuantArray:
    """Pack weights [outputs ..] along their input channels, with constants for each output, on the CPU."""
    axis = min(1, x.ndim - 1)
    return quantize(x.cpu(), scheme, axis, scale_axis=0 if per_channel and x.ndim > 1 else None)


@uncompiled
def check_values(x: torch.Tensor, fitted: Scheme | None = None) -> None:
    """Raise ValueError for a NaN, and for infinities that a scheme is fitted to, as `quantarray.quantize` does."""
    wrong = x.detach().isnan() if fitted is None else ~x.detach().isfinite()
    if bool(wrong.any()):
        at = tuple(wrong.nonzero()[0].tolist())
        if bool(x[at].isnan()):
            raise ValueError(f"quantize: x must hold no NaN, got one at {at}")
        raise ValueError(f"quantize: x, to which {fitted} is fitted, must be finite, got {x[at].item()} at {at}")


class Sign(Scheme):
    """+1 where x >= 0, else -1; with `scale=True` times the mean |x| of each output channel (XNOR-Net).

    estimator: "clip", "identity", "approx_sign" (Bi-Real Net), "swish_sign" (BNN+) or "reste". The scale is a constant
    to the gradient.

    >>> import quantarray as qa, torch
    >>> x = torch.tensor([-2.0, -0.25, 0.5], requires_grad=True)
    >>> y = qa.torch.Sign("approx_sign")(x)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([-1.0, -1.0, 1.0], [0.0, 1.5, 1.0])
    """

    def __init__(self, estimator: str = "clip", scale: bool = False) -> None:
        super().__init__()
        self.estimator, self.scale, self._surrogate = estimator, scale, estimator_of("Sign", estimator)
        self.pointwise = not scale

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits=1, estimator={self.estimator!r}, scale={self.scale}"

    @property
    def role(self) -> str | None:
        """Return "weights" with a scale for each output."""
        return "weights" if self.scale else None

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.Sign` of x."""
        if self.scale:
            return packed_weights(x, quantizers.Sign(scale=True))
        return quantize(x, quantizers.Sign())

    def surrogate(self, x: torch.Tensor) -> torch.Tensor:
        """Return the estimator of x, times the scale."""
        if not self.scale:
            return self._surrogate(x)
        return self._surrogate(x) * x.detach().abs().mean(dim=list(range(1, x.ndim)), keepdim=True)


class Ternary(Scheme):
    """a * sign(x) where |x| > 0.7 * mean |x|, else 0, for each output channel; the gradient passes everywhere.

    >>> import quantarray as qa, torch
    >>> qa.torch.Ternary()(torch.tensor([[1, -1.5, 0.5, -0.2]]))
    tensor([[ 1.2500, -1.2500,  0.0000,  0.0000]])
    """

    role = "weights"

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return "bits=2"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.Ternary` of x."""
        return packed_weights(x, quantizers.Ternary())


class ABC(Scheme):
    """sum_m alpha_m * B_m, B_m = sign(x - mean + u_m * std), for each output channel; alpha by least squares (ABC-Net).

    The gradient of x is sum_m alpha_m times that of the values.

    >>> import quantarray as qa, torch
    >>> x = torch.tensor([[-3.0, -1, 1, 3]], requires_grad=True)
    >>> y = qa.torch.ABC(2)(x)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([[-3.0, 0.0, 0.0, 3.0]], [[3.0, 3.0, 3.0, 3.0]])
    """

    role = "weights"

    def __init__(self, masks: int) -> None:
        super().__init__()
        self.scheme = quantizers.ABC(masks)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits={self.scheme.dtype.bits}"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.ABC` of x."""
        return packed_weights(x, self.scheme)

    def _quantised(self, x: torch.Tensor) -> torch.Tensor:
        values, factor = self._with_factor(x)
        return straight(values, x * factor)

    @uncompiled
    def _with_factor(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = self.packed(x) if self._packed is None else self._packed
        assert q.scale is not None
        return values_of(q, x), torch.from_numpy(q.scale.sum(axis=0) / 2).to(x.device, x.dtype)


class DoReFa(Scheme):
    """2 * round(n * u) / n - 1, u = tanh(x) / (2 * max |tanh x|) + 1/2 of weights; round(n * clip(x, 0, 1)) / n of
    `activations`; n = 2**bits - 1.

    The gradient is that of the formula without `round`, through the maximum too, which equal ones share; of weights of
    1 bit, a * sign(x), and of weights that are all 0, it passes everywhere.

    >>> import quantarray as qa, torch
    >>> qa.torch.DoReFa(2, activations=True)(torch.tensor([-1, 0.2, 0.5, 7]))
    tensor([0.0000, 0.3333, 0.6667, 1.0000])
    """

    def __init__(self, bits: int, activations: bool = False) -> None:
        super().__init__()
        self.scheme = quantizers.DoReFa(bits, activations)
        self.pointwise = bool(activations)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits={self.scheme.bits}, activations={self.scheme.activations}"

    @property
    def role(self) -> str | None:
        """Return what it quantises."""
        return "activations" if self.scheme.activations else "weights"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.DoReFa` of x; of weights along their input channels, with one scale."""
        if self.scheme.activations:
            return quantize(x, self.scheme)
        return packed_weights(x, self.scheme, per_channel=False)

    def surrogate(self, x: torch.Tensor) -> torch.Tensor:
        """Return clip(x, 0, 1), or tanh(x) / max |tanh x|."""
        if self.scheme.activations:
            return x.clamp(0, 1)
        if self.scheme.bits == 1:
            return identity(x)
        with as_it_is():  # tanh saves numbers as few as weights, which rounding would bias
            t = torch.tanh(x)
            top = t.abs().max()
            return t / torch.where(top > 0, top, 1)


_OTHERS = {  # schemes of the other role, by the class of those that have both, or a twin
    "DoReFa": "DoReFa(bits, activations=True) for activations, DoReFa(bits) for weights",
    "LQ": "LQ(bits) for activations, LQ(bits, weights=True) for weights",
    "ABC": "ABCActivations(masks)",
    "ABCActivations": "ABC(masks)",
    "Sign": "Sign()",
}


def scheme_of(op: str, name: str, value: Any) -> torch.nn.Module | None:
    """Check for a module that quantises weights or activations, as `name` says, or None for floats."""
    role = value.role if isinstance(value, Scheme) else None
    if role not in (None, name):
        other = _OTHERS.get(type(value).__name__, "a scheme of their own, such as DoReFa, LQ or LSQ")
        raise ValueError(f"{op}: {name} need a scheme of theirs, got {type(value).__name__}, of {role}; pass {other}")
    if value is None or isinstance(value, torch.nn.Module):
        return value
    raise TypeError(f"{op}: {name} must be a module such as quantarray.torch.DoReFa(2), or None, got {value!r}")
