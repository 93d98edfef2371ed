"""Optimizer states in few bits: momenta and second moments are packed between steps."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ..arrays import checks
from ..arrays.size_text import ratio
from . import gpu
from .host import Packed
from .stored import PackedOnGpu, rounded

_OP = "compress_state"
# States that are packed: what else optimizers hold, such as averages of parameters, may need all of its digits
_MOMENTA = frozenset(("exp_avg", "momentum_buffer"))
_SQUARES = frozenset(("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "acc_delta", "variance"))  # roots are read
_DIVISORS = _SQUARES | {"exp_inf"}  # not negative, and divided by


class CompressedState:
    """A handle of `compress_state`: the packed states of an optimizer's parameters, by the names that it gives them."""

    def __init__(self, optimizer: torch.optim.Optimizer, bits: int, group: int, seed: int, least: int) -> None:
        self._optimizer, self._settings, self._least = optimizer, (bits, group), least
        self._seed, self._count = seed, 0
        self._packed: dict[torch.Tensor, dict[str, Packed | PackedOnGpu]] = {}
        self._step = optimizer.step
        optimizer.step = self._replacement()  # type: ignore[method-assign]
        self._hooks = [
            optimizer.register_state_dict_post_hook(self._write_state),
            optimizer.register_load_state_dict_post_hook(lambda _: self._pack_all()),
        ]
        optimizer.__getstate__ = self._state_of_copies  # type: ignore[method-assign]
        self._pack_all()

    @property
    def nbytes(self) -> int:
        """Return the bytes of packed states."""
        return sum(packed.nbytes for states in self._packed.values() for packed in states.values())

    @property
    def nbytes_before(self) -> int:
        """Return the bytes that the same states take in float32."""
        return sum(4 * packed.layout.size for states in self._packed.values() for packed in states.values())

    def __repr__(self) -> str:
        name, bits = type(self._optimizer).__name__, self._settings[0]
        before, after = self.nbytes_before, self.nbytes
        sizes = f"{before:,} bytes before, {after:,} after, {ratio(after, before)}" if before else "no states yet"
        return f"CompressedState({name}, {bits} bit{'s' * (bits > 1)}: {sizes})"

    def remove(self) -> None:
        """Undo `compress_state`: the optimizer holds float32 states again."""
        for hook in self._hooks:
            hook.remove()
        self._optimizer.step = self._step  # type: ignore[method-assign]
        del self._optimizer.__getstate__
        for p in list(self._packed):
            self._unpack(p)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a handle of the optimizer's copy."""
        return CompressedState, (self._optimizer, *self._settings, self._seed, self._least)

    def _state_of_copies(self) -> dict[str, Any]:
        """Return what copies and pickles of the optimizer hold: its states in float32."""
        state: dict[str, Any] = type(self._optimizer).__getstate__(self._optimizer)  # type: ignore[call-arg, assignment]
        floats = {p: {**states, **self._floats(p)} for p, states in self._optimizer.state.items()}
        return {**state, "state": defaultdict(dict, floats)}

    def _floats(self, p: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a parameter's packed states in float32."""
        return {name: _values(name, packed) for name, packed in self._packed.get(p, {}).items()}

    def _replacement(self) -> Callable[..., Any]:
        original = self._step

        @wraps(original)
        def step(optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            self._step_each(original)
            return loss

        return types.MethodType(step, self._optimizer)

    def _step_each(self, original: Callable[[], Any]) -> None:
        """Step each parameter by itself, so that the states of one alone are unpacked at a time."""
        infinite = getattr(self._optimizer, "found_inf", None)  # of a GradScaler, which leaves this to fused optimizers
        if infinite is not None and bool(infinite):
            return
        groups = self._optimizer.param_groups
        _check_gradients(groups)
        try:
            for group in groups:
                for p in group["params"]:
                    if p.grad is not None:
                        alone = {**group, "params": [p]}
                        self._unpack(p)
                        self._optimizer.param_groups = [alone]
                        original()
                        group.update({name: value for name, value in alone.items() if name != "params"})
                        self._pack(p)
        finally:
            self._optimizer.param_groups = groups

    def _pack_all(self) -> None:
        self._packed.clear()
        for p in list(self._optimizer.state):
            self._pack(p)

    def _pack(self, p: torch.Tensor) -> None:
        state = self._optimizer.state[p]
        names = (_MOMENTA | _DIVISORS) & state.keys()
        if "grad_avg" in state:  # of a centred RMSprop, whose variance is a difference that must not be negative
            names -= _DIVISORS
        for name in sorted(names):
            value = state[name]
            if not isinstance(value, torch.Tensor) or value.shape != p.shape or value.numel() < self._least:
                continue
            if value.dtype == torch.float32 and (value.device.type == "cpu" or gpu.on_gpu(value)):
                self._count += 1
                seed = (self._seed << 32 | self._count & 0xFFFFFFFF) & (2**64 - 1)
                packed = rounded(value.sqrt() if name in _SQUARES else value, *self._settings, seed)
                self._packed.setdefault(p, {})[name] = packed
                del state[name]

    def _unpack(self, p: torch.Tensor) -> None:
        self._optimizer.state[p].update(self._floats(p))
        self._packed.pop(p, None)

    def _write_state(self, optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        """Add float32 states to a state_dict, which then loads with and without compression."""
        every = [p for group in optimizer.param_groups for p in group["params"]]
        for i, p in enumerate(every):
            if p in self._packed:  # not into the optimizer's dictionary, which the state_dict shares
                state_dict["state"][i] = {**state_dict["state"][i], **self._floats(p)}


def _check_gradients(groups: list[dict[str, Any]]) -> None:
    """Raise ValueError for a gradient that has no packed state, before any parameter is stepped."""
    for i, p in enumerate(p for group in groups for p in group["params"]):
        values = None if p.grad is None else p.grad._values() if p.grad.is_sparse else p.grad
        if values is not None and not torch.isfinite(values).all():
            raise ValueError(
                f"{_OP}: the gradient of parameter {i}, of shape {tuple(p.shape)}, holds NaN or infinity, which states "
                "of few bits cannot; leave the step out, or scale the loss. No parameter was stepped"
            )


def _values(name: str, packed: Packed | PackedOnGpu) -> torch.Tensor:
    """Return a state in float32; divisors are at least half a step: one near 0 would be divided by."""
    values = packed.restore()
    if name in _DIVISORS:
        values = torch.maximum(values, packed.half_steps())
    return values.square() if name in _SQUARES else values


def compress_state(
    optimizer: torch.optim.Optimizer, bits: int = 8, *, group: int = 256, seed: int = 0, least: int = 4096
) -> CompressedState:
    """Keep an optimizer's states in few bits between steps: momenta, and second moments as their square roots.

    Adam, AdamW, Adamax, NAdam, RAdam, SGD with momentum, Muon, RMSprop, Adagrad, Adadelta and others that have states
    of these names: exp_avg, momentum_buffer, exp_avg_sq, max_exp_avg_sq, square_avg, sum, acc_delta, variance, exp_inf.
    Others stay as they are, and so do the averages of a centred RMSprop, whose difference must not be negative. Each
    float32 state of at least `least` elements is rounded stochastically in groups, so that small updates of a running
    mean count on average. `optimizer.step()` then steps one parameter after the other and unpacks the states of that
    one alone. A divisor, as a root of a second moment, is at least half a step of its group: none is rounded to 0.

    States of parameters on an NVIDIA GPU are packed there, which needs the extra `cuda13`.

    `optimizer.state_dict()` has float32 states and `load_state_dict` takes them. So have copies of the optimizer by
    `copy.deepcopy` and pickle, which are not compressed; a copy of the handle compresses the copy of its optimizer.
    Hooks of steps run once a parameter. bits: 1 to 8, of which 8 and 4 are of use. Returns a handle with `nbytes`,
    `nbytes_before` and `remove()`, which prints both sizes. Raises TypeError for LBFGS, which has no state for each
    parameter, and for Rprop, whose step sizes and signs of gradients must be exact.

    >>> import quantarray as qa, torch
    >>> w = torch.nn.Parameter(torch.ones(64, 256))
    >>> optimizer = torch.optim.Adam([w], lr=0.1)
    >>> handle = qa.torch.compress_state(optimizer, bits=8)
    >>> (w**2).sum().backward()
    >>> optimizer.step()
    >>> handle.nbytes_before, handle.nbytes, round(w[0, 0].item(), 3)
    (131072, 33280, 0.9)
    >>> handle
    CompressedState(Adam, 8 bits: 131,072 bytes before, 33,280 after, 3.9x smaller)
    """
    refused = (torch.optim.LBFGS, torch.optim.Rprop)
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, refused):
        raise TypeError(
            f"{_OP}: optimizer must be one whose steps depend smoothly on a state for each parameter, such as Adam, "
            f"got {checks.kind(optimizer)}; step LBFGS and Rprop without {_OP}"
        )
    return CompressedState(
        optimizer,
        checks.integer(_OP, "bits", bits, 1, 8),
        checks.integer(_OP, "group", group, 1),
        checks.integer(_OP, "seed", seed, 0, 2**32 - 1),
        checks.integer(_OP, "least", least, 0),
    )
