"""Turn the layers of a trained float model into quantised ones, ready for fine-tuning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch.nn.utils.parametrize import ParametrizationList

from ..arrays import checks
from .layers import QuantConv1d, QuantConv2d, QuantConv3d, QuantLinear
from .schemes import Sign, scheme_of
from .transposed import QuantConvTranspose1d, QuantConvTranspose2d, QuantConvTranspose3d

_OP = "convert"
_QUANTISED: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.Linear: QuantLinear,
    torch.nn.Conv1d: QuantConv1d,
    torch.nn.Conv2d: QuantConv2d,
    torch.nn.Conv3d: QuantConv3d,
    torch.nn.ConvTranspose1d: QuantConvTranspose1d,
    torch.nn.ConvTranspose2d: QuantConvTranspose2d,
    torch.nn.ConvTranspose3d: QuantConvTranspose3d,
}
_LAYERS = tuple(_QUANTISED.values())
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


class Converted(list[str]):
    """List the names of the layers that were converted; `left`: {name of a module with weights that was not: why}.

    `print` shows both.
    """

    def __init__(self, names: Iterable[str], left: Mapping[str, str]) -> None:
        super().__init__(names)
        self.left = dict(left)

    def __str__(self) -> str:
        rows = {**dict.fromkeys(self, "quantised"), **self.left}
        width = max(map(len, rows), default=0)
        return "\n".join(f"{name:{width}}  {what}" for name, what in rows.items())


def convert(
    model: torch.nn.Module,
    weights: torch.nn.Module | None = None,
    activations: torch.nn.Module | None = None,
    keep: Iterable[str | type] = ("first", "last"),
    samples: Iterable[Any] | None = None,
) -> Converted:
    """Quantise the linear layers and convolutions of a model in place; return the names of those that were.

    A Linear, Conv1d to Conv3d or ConvTranspose1d to ConvTranspose3d becomes a `QuantLinear`, `QuantConv1d` and so on of
    the same parameters, which optimizers keep updating, with copies of the modules `weights` and `activations`, such as
    `ABC(3)` and `LQ(2)`. Subclasses of these and layers of other kinds stay as they are: `left` of the result says why,
    for each module with weights, and a warning names those that `keep` does not.

    keep: layers that stay in floats, by name, by class of the layer or of a module around it, and "first" and "last" in
    the order of `model.modules()`.

    samples: batches, each what the model is called with, or a tuple of it. Batch norms then compute mean and variance
    again from them, since those of floats do not fit quantised layers. A warning names the layers where `Sign` gets no
    value below 0, as after a ReLU: all of its signs are +1 there.

    >>> import quantarray as qa, torch
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))
    >>> converted = qa.torch.convert(model, qa.torch.DoReFa(2), qa.torch.PACT(4))
    >>> converted, converted.left
    (['1', '2'], {'0': 'keep: first', '3': 'keep: last'})
    """
    for name, scheme in (("weights", weights), ("activations", activations)):
        scheme_of(_OP, name, scheme)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{_OP}: model must be a torch.nn.Module, got {checks.kind(model)}")
    if isinstance(samples, torch.Tensor):
        raise TypeError(
            f"{_OP}: samples must be batches, got a tensor {tuple(samples.shape)}; pass [samples] for one batch"
        )
    modules = dict(model.named_modules())
    layers = {name: m for name, m in modules.items() if type(m) in _QUANTISED}
    asked = _asked(model, list(layers), [keep] if isinstance(keep, (str, type)) else list(keep))
    left = _left(model, asked)
    chosen = [name for name in layers if name not in asked]
    for name in chosen:
        layer: Any = layers[name]
        layer.__class__ = _QUANTISED[type(layer)]
        layer.weights, layer.activations = deepcopy(weights), deepcopy(activations)
    if samples is not None:
        with _watched({name: layers[name] for name in chosen if isinstance(activations, Sign)}):
            _estimate_norms(model, samples)
    others = [name for name in left if name not in asked and not isinstance(modules[name], _LAYERS)]
    if others:
        warnings.warn(f"{_OP}: left in floats: {'; '.join(f'{n!r}, {left[n]}' for n in others)}", stacklevel=2)
    return Converted(chosen, left)


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


def _left(model: torch.nn.Module, asked: Mapping[str, str]) -> dict[str, str]:
    """Return why each module with weights, parameters of two axes or more, stays as it is."""
    left = dict[str, str]()
    for name, module in model.named_modules():
        kind, base = type(module), next((layer for layer in _QUANTISED if isinstance(module, layer)), None)
        weights = any(p.ndim > 1 for p in module.parameters(recurse=False))
        weights = weights and not isinstance(module, ParametrizationList)  # of the module around it
        if (base is None and not weights) or (kind in _QUANTISED and name not in asked):
            continue
        if name in asked:
            left[name] = asked[name]
        elif isinstance(module, _LAYERS):
            left[name] = f"{kind.__name__} is quantised already"
        elif base is not None:
            left[name] = f"{kind.__name__} is a subclass of {base.__name__}, whose forward may be another"
        else:
            left[name] = f"{kind.__name__} has no quantised layer: linear layers and convolutions have"
    return left


def _asked(model: torch.nn.Module, layers: list[str], keep: list[Any]) -> dict[str, str]:
    """Return the names of modules that stay as they are, each with the entry of `keep` that says so."""
    ends = {"first": layers[:1], "last": layers[-1:]}
    modules, asked = dict(model.named_modules()), dict[str, str]()
    for entry in keep:
        if isinstance(entry, str) and entry not in ends and entry not in modules:
            raise ValueError(f"{_OP}: keep names a module {entry!r}, which the model has not")
        if isinstance(entry, str) and entry in ends:
            asked.update(dict.fromkeys(ends[entry], f"keep: {entry}"))
            continue
        roots = [entry] if isinstance(entry, str) else [n for n, m in modules.items() if isinstance(m, entry)]
        inside = [n for n in modules for root in roots if n == root or n.startswith(f"{root}.") or not root]
        asked.update(dict.fromkeys(inside, f"keep: {entry if isinstance(entry, str) else entry.__name__}"))
    return asked


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
