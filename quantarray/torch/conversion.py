"""Turn the layers of a trained float model into quantised ones, ready for fine-tuning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch

from ..arrays import checks
from .layers import QuantConv2d, QuantLinear
from .schemes import Sign, scheme_of

_OP = "convert"
_QUANTISED = {torch.nn.Conv2d: QuantConv2d, torch.nn.Linear: QuantLinear}
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


def convert(
    model: torch.nn.Module,
    weights: torch.nn.Module | None = None,
    activations: torch.nn.Module | None = None,
    keep: Iterable[str | type] = ("first", "last"),
    samples: Iterable[Any] | None = None,
) -> list[str]:
    """Quantise the Conv2d and Linear layers of a model in place; return the names of those that were.

    A layer becomes a `QuantConv2d` or `QuantLinear` of the same parameters, which optimizers go on to update, with
    copies of the modules `weights` and `activations`, such as `ABC(3)` and `LQ(2)`. Subclasses of Conv2d and Linear
    stay as they are. keep: layers that stay in floats, by name, by class of the layer or of a module around it, and
    "first" and "last" in the order of `model.modules()`.

    samples: batches, each what the model is called with, or a tuple of it. Batch norms then average mean and variance
    anew over them, since those of floats do not fit quantised layers. A warning names the layers where `Sign` sees no
    value below 0, as behind a ReLU: all of its signs are +1 there.

    >>> import quantarray as qa, torch
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))
    >>> qa.torch.convert(model, qa.torch.DoReFa(2), qa.torch.PACT(4))
    ['1', '2']
    """
    for name, scheme in (("weights", weights), ("activations", activations)):
        scheme_of(_OP, name, scheme)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{_OP}: model must be a torch.nn.Module, got {checks.kind(model)}")
    if isinstance(samples, torch.Tensor):
        raise TypeError(
            f"{_OP}: samples must be batches, got a tensor {tuple(samples.shape)}; pass [samples] for one batch"
        )
    layers = {name: m for name, m in model.named_modules() if type(m) in _QUANTISED}
    left = _left(model, list(layers), [keep] if isinstance(keep, (str, type)) else list(keep))
    chosen = [name for name in layers if name not in left]
    for name in chosen:
        layer: Any = layers[name]
        layer.__class__ = _QUANTISED[type(layer)]
        layer.weights, layer.activations = deepcopy(weights), deepcopy(activations)
    if samples is not None:
        with _watched({name: layers[name] for name in chosen if isinstance(activations, Sign)}):
            _estimate_norms(model, samples)
    return chosen


@contextmanager
def _watched(layers: dict[str, Any]) -> Iterator[None]:
    """Raise a warning of layers whose inputs are never below 0 while they run: their signs are +1 everywhere."""
    lowest: dict[str, float] = {}

    def watch(name: str) -> Callable[[Any, Any], None]:
        def see(module: Any, inputs: Any) -> None:
            lowest[name] = min(lowest.get(name, math.inf), float(inputs[0].min()) if inputs[0].numel() else math.inf)

        return see

    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    constant = [name for name, low in lowest.items() if 0 <= low < math.inf]
    if constant:
        warnings.warn(
            f"{_OP}: Sign gives +1 everywhere in {', '.join(map(repr, constant))}, whose inputs are never below 0; "
            "remove the ReLU before each, or pass activations that start at 0, such as DoReFa(1, activations=True)",
            stacklevel=4,
        )


def _left(model: torch.nn.Module, layers: list[str], keep: list[Any]) -> set[str]:
    """Return the names of layers that stay in floats."""
    ends = {"first": layers[:1], "last": layers[-1:]}
    modules, left = dict(model.named_modules()), set()
    for entry in keep:
        if isinstance(entry, str) and entry not in ends and entry not in modules:
            raise ValueError(f"{_OP}: keep names a module {entry!r}, which the model has not")
        if isinstance(entry, str) and entry in ends:
            left.update(ends[entry])
            continue
        roots = [entry] if isinstance(entry, str) else [n for n, m in modules.items() if isinstance(m, entry)]
        left.update(n for n in layers for root in roots if n == root or n.startswith(f"{root}.") or not root)
    return left


def _estimate_norms(model: torch.nn.Module, samples: Iterable[Any]) -> None:
    """Update mean and variance of batch norms over batches; everything else is in evaluation mode meanwhile."""
    norms = [m for m in model.modules() if isinstance(m, _NORMS) and m.track_running_stats]
    modes = {m: m.training for m in model.modules()}
    momenta = [norm.momentum for norm in norms]
    model.eval()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.train()
        with torch.no_grad():
            for sample in samples:
                model(*(sample if isinstance(sample, tuple) else (sample,)))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, mode in modes.items():
            module.training = mode
