"""Quantisers with numbers that training finds: clips, steps, shifts, and bases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import quantizers
from ..arrays import checks
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..ops.quantize.quantization import encoded
from ..quantizers.base import is_positive
from ..quantizers.lq import moving_average, qem
from ..quantizers.planes import plus_minus
from .bridges import quantize
from .known_levels import noted
from .schemes import Scheme, check_values
from .straight_through import identity, straight
from .tracers import refuse_tracers, uncompiled

_SAMPLE = 1 << 16  # elements that a basis is fitted to in a step
_ELEMENTS = 1 << 20  # that are sorted at a time, in float64


class PACT(Scheme):
    """round(clip(x, 0, alpha) * n / alpha) * alpha / n, n = 2**bits - 1, with a trained clip alpha (PACT).

    The gradient of x passes in [0, alpha], that of alpha above it. Weight decay on `alpha` is the paper's regulariser.

    >>> import quantarray as qa, torch
    >>> clip = qa.torch.PACT(2, alpha=3.0)
    >>> y = clip(torch.tensor([-1, 0.3, 1, 1.7, 5]))
    >>> y.sum().backward()
    >>> y.tolist(), clip.alpha.grad.item()
    ([0.0, 0.0, 1.0, 2.0, 3.0], 1.0)
    """

    role = "activations"

    def __init__(self, bits: int, alpha: float = 6.0) -> None:
        super().__init__()
        quantizers.PACT(bits, alpha)  # which checks both
        self.pointwise = True
        self.bits, self.alpha = bits, torch.nn.Parameter(torch.tensor(float(alpha)))

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits={self.bits}, alpha={self.alpha.item():.4g}"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.PACT` of x."""
        return quantize(x, quantizers.PACT(self.bits, self.alpha.item()))

    def surrogate(self, x: torch.Tensor) -> torch.Tensor:
        """Return clip(x, 0, alpha)."""
        alpha = self.alpha.to(x.dtype)
        return torch.where(x > alpha, alpha, x.clamp_min(0))  # `minimum` halves the gradient at alpha


class LSQ(Scheme):
    """step * round(clip(x / step, low, high)) with a trained step (Learned step size quantization, arXiv 1902.08153).

    signed: levels -L .. L, L = 2**(bits - 1) - 1, as `quantarray.Uniform` has them; else 0 .. 2**bits - 1. The step
    starts at 2 * mean |x| / sqrt(high) of the first x, and its gradient is divided by sqrt(elements * high). The
    gradient of x passes where low <= x / step <= high. Raises ValueError for a step that training made 0 or negative.

    >>> import quantarray as qa, torch
    >>> qa.torch.LSQ(2, signed=False, step=0.5)(torch.tensor([-1, 0.3, 1.2, 9]))
    tensor([0.0000, 0.5000, 1.0000, 1.5000], grad_fn=<MulBackward0>)
    """

    started: torch.Tensor

    def __init__(self, bits: int, signed: bool = True, step: float | None = None) -> None:
        super().__init__()
        checks.integer("LSQ", "bits", bits, 2 if signed else 1, 8)
        self.bits, self.signed, self.pointwise = bits, signed, True
        self.high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
        self.step = torch.nn.Parameter(torch.tensor(1.0 if step is None else float(step)))
        self.register_buffer("started", torch.tensor(step is not None))
        self._checked_step()

    def _checked_step(self) -> float:
        step = float(self.step.item())
        if not is_positive(step):
            raise ValueError(
                f"LSQ: step must be a positive float32, got {step}; train it at a lower learning rate, or clamp it "
                f"after each step of the optimizer"
            )
        return step

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits={self.bits}, signed={self.signed}, step={self.step.item():.4g}"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.Uniform` of x with the step."""
        return quantize(x, quantizers.Uniform(self.bits, signed=self.signed, step=self._checked_step()))

    @uncompiled
    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _follow(self, x: torch.Tensor) -> None:
        """Check x and the step, which the first x sets."""
        check_values(x, None if self.started else self)
        if not self.started:
            size = 2 * x.abs().mean().item() / math.sqrt(self.high)
            self.step.fill_(size if size > 0 and math.isfinite(size) else 1.0)
            self.started.fill_(True)
        self._checked_step()

    def _quantised(self, x: torch.Tensor) -> torch.Tensor:
        share = 1 / math.sqrt(max(x.numel(), 1) * self.high)
        step = straight(self.step.detach(), self.step * share).to(x.dtype)
        low = -self.high if self.signed else 0
        scaled, levels = (x / step).clamp(low, self.high), range(low, self.high + 1)
        rounded = straight(noted(scaled.round(), levels), scaled)
        return noted(rounded * step, levels, step)


class ABCActivations(Scheme):
    """sum_n betas[n] * H_n, H_n = +1 where clip(x + shifts[n], 0, 1) >= 0.5, else -1; both are trained (ABC-Net).

    The gradient of H_n passes where 0 <= x + shifts[n] <= 1. shifts: their first values, or how many, spread evenly.

    >>> import quantarray as qa, torch
    >>> qa.torch.ABCActivations([-1, 1], [1, 1])(torch.tensor([-0.5, -0.4, 1.4, 1.5])).tolist()
    [0.0, 0.0, 0.0, 2.0]
    """

    role = "activations"

    def __init__(self, shifts: int | Sequence[float], betas: Sequence[float] | None = None) -> None:
        super().__init__()
        if isinstance(shifts, int):
            count = checks.integer("ABCActivations", "shifts", shifts, 1, 8)
            shifts = [0.5] if count == 1 else [-1 + 2 * n / (count - 1) + 0.5 for n in range(count)]
        first = [1 / len(shifts)] * len(shifts) if betas is None else list(betas)
        quantizers.ABCActivations(list(shifts), first)  # which checks both
        self.pointwise = True
        self.shifts = torch.nn.Parameter(torch.tensor([float(v) for v in shifts]))
        self.betas = torch.nn.Parameter(torch.tensor([float(b) for b in first]))

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits={len(self.shifts)}"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.ABCActivations` of x."""
        return quantize(x, self._scheme())

    @uncompiled
    def _scheme(self) -> quantizers.ABCActivations:
        return quantizers.ABCActivations(self.shifts.tolist(), self.betas.tolist())  # which checks both

    def _follow(self, x: torch.Tensor) -> None:
        self._scheme()
        check_values(x)

    def _quantised(self, x: torch.Tensor) -> torch.Tensor:
        total: Any = 0
        levels: Any = torch.zeros(1, dtype=x.dtype, device=x.device)
        for shift, beta in zip(self.shifts.to(x.dtype), self.betas.to(x.dtype), strict=True):
            passed = (x.detach().double() + shift.detach().double()) >= 0.5
            signs = noted(2 * passed.to(x.dtype) - 1, (-1, 1))
            total = total + beta * straight(signs, (x + shift).clamp(0, 1))
            each = beta.detach()
            levels = torch.cat([levels - each, levels + each])  # in the order of the sum, whose rounding they have
        return noted(total, levels)


class LQ(Scheme):
    """value = the nearest of sum_k v_k * e_k, e in {0, 1}**bits, v a moving average (LQ-Nets, arXiv 1807.10029).

    weights=True is for weights [outputs ..]: e in {-1, 1}**bits, and a basis v for each output.

    In training each call makes one QEM step from v on at most 65,536 elements (of each output), v = 0.9 v + 0.1 v_new;
    the first call fits v. NaN and infinities are a ValueError then, and v stays. In evaluation v stays. With
    `center=True` levels have c added, one more number of the average. The gradient passes between the lowest and the
    highest level, and everywhere to weights. `basis`: float64 [bits], or [outputs bits] once weights have been seen,
    with c after them.

    >>> import quantarray as qa, torch
    >>> scheme = qa.torch.LQ(2)
    >>> x = torch.tensor([0.0, 0.1, 1.0, 2.0, 3.0])
    >>> scheme(x).shape, scheme.basis.shape
    (torch.Size([5]), torch.Size([2]))
    >>> scheme = qa.torch.LQ(2, weights=True)
    >>> scheme(torch.tensor([[-6.0, -4, -1, 1, 4, 6], [-3, -1, -1, 1, 1, 3]])).tolist()
    [[-5.0, -5.0, -1.0, 1.0, 5.0, 5.0], [-3.0, -1.0, -1.0, 1.0, 1.0, 3.0]]
    """

    basis: torch.Tensor
    started: torch.Tensor

    def __init__(self, bits: int, center: bool = False, momentum: float = 0.9, weights: bool = False) -> None:
        super().__init__()
        self.weights = bool(weights)
        self.pointwise = not self.weights
        self.scheme = quantizers.LQ(bits, activations=not weights, center=center)
        self.momentum = checks.number("LQ", "momentum", momentum)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"LQ: momentum must be from 0 to below 1, got {momentum}")
        width = self.scheme.bits + self.scheme.center
        self.register_buffer("basis", torch.ones((1, width) if weights else width, dtype=torch.float64))
        self.register_buffer("started", torch.tensor(False))

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"bits={self.scheme.bits}, weights={self.weights}, center={self.scheme.center}"

    @property
    def role(self) -> str | None:
        """Return what it quantises."""
        return "weights" if self.weights else "activations"

    def packed(self, x: torch.Tensor) -> QuantArray:
        """Return `quantarray.LQ` of x with the basis; of weights along their input channels."""
        bits, center = self.scheme.bits, self.scheme.center
        if not self.weights:
            return quantize(x, quantizers.LQ(bits, True, basis=self.basis.tolist(), center=center))
        refuse_tracers("LQ", x)
        rows = self.basis.cpu().numpy()
        entries = tuple(n if d == 0 and x.ndim > 1 else 1 for d, n in enumerate(x.shape))
        if math.prod(entries) != len(rows):
            raise ValueError(f"LQ: the basis is of {len(rows)} outputs, the weights have {math.prod(entries)}")
        constants = plus_minus("LQ", rows[:, :bits], entries, rows[:, bits:].sum(axis=1))
        a = checks.real_array("quantize", "x", x.detach().cpu())
        return encoded("quantize", a, quantizers.LQ(bits, center=center), constants, min(1, x.ndim - 1))

    def surrogate(self, x: torch.Tensor) -> torch.Tensor:
        """Return x clipped to the levels, or x of weights."""
        if self.weights:
            return identity(x)
        v, center = self.basis[: self.scheme.bits], self.basis[self.scheme.bits :].sum()
        return x.clamp((v.clamp_max(0).sum() + center).item(), (v.clamp_min(0).sum() + center).item())

    @uncompiled
    def _follow(self, x: torch.Tensor) -> None:
        if not (x.numel() and (self.training or not self.started)):
            return
        check_values(x, self)
        rows = x.detach().reshape(x.shape[0] if self.weights and x.ndim > 1 else 1, -1)
        sample = rows[:, :: -(-rows.shape[1] // _SAMPLE)]
        basis, step = np.empty((len(rows), self.basis.shape[-1])), max(1, _ELEMENTS // sample.shape[1])
        before = self.basis.cpu().numpy().reshape(-1, basis.shape[1])
        for cut in (slice(i, i + step) for i in range(0, len(rows), step)):
            part = sample[cut].double().cpu().numpy()
            basis[cut] = self._next(part, before[cut]) if self.started else self._first(part)
        self.started.fill_(True)
        self._hold(torch.from_numpy(basis if self.weights else basis[0]))

    def _next(self, sample: Array, before: Array) -> Array:
        """Move bases [rows bits] by one step of QEM towards those of the rows."""
        *_, (new, _) = qem(sample, before, self.scheme.activations, self.scheme.ridge, 1, self.scheme.center)
        return moving_average(before, new, self.momentum)

    def _first(self, sample: Array) -> Array:
        """Fit bases [rows bits], each followed by its center, to rows."""
        fitted = self.scheme.fit(sample, (1,))
        assert fitted.scale is not None and fitted.offset is not None
        scale, offset = (a.reshape(-1, len(sample)).T.astype(np.float64) for a in (fitted.scale, fitted.offset))
        v = scale if self.scheme.activations else scale / 2
        center = offset if self.scheme.activations else offset + v.sum(axis=1, keepdims=True)
        return np.hstack([v, center]) if self.scheme.center else v

    def _hold(self, basis: torch.Tensor) -> None:
        """Take a basis, of another number of outputs too."""
        if self.basis.shape != basis.shape:
            self.basis = self.basis.new_ones(basis.shape)
        self.basis.copy_(basis)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        basis = state_dict.get(f"{prefix}basis")
        if self.weights and isinstance(basis, torch.Tensor) and basis.shape[1:] == self.basis.shape[1:]:
            self._hold(basis)
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[arg-type]
