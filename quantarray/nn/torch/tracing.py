"""Run a module on examples and record what it computes; the module and PyTorch are left as they were."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.backends.mha
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..onnx.tensors import Refused
from .batches import Reason, difference, mixing, row_of_each
from .flattened import restore_axes
from .lengths import Lengths
from .recording import Elementwise, Recorder, Recording, _Stop, needed, storage_of
from .weight_only import Stored, is_torchao, stored

_BATCHES = (2, 4, 15)  # samples more than the example has, that are tried too
_COPIED = ("_parameters", "_buffers", "_modules")


def traced(module: Any, example: tuple[Any, ...], forwards: Mapping[type, Any]) -> Recording:
    """Record a call of the module; note in `mixed` why it holds for the batch of the example alone, if it does.

    Calls with other numbers, and with more samples, must do the same operations with the same constants.
    """
    first = recorded(module, example, forwards)
    if first.refused:
        return first
    first.mixed = _mixed(module, example, forwards, first)
    if first.mixed is None:
        row_of_each(first)
        return first
    second = _again(module, example, 0, forwards)
    first.refused += second.refused
    differs = None if second.refused else difference(first, second)
    if differs is not None:
        first.refused.append((differs[0], f"it depends on the numbers of the input: for another example, {differs[1]}"))
    return first


def _mixed(module: Any, example: tuple[Any, ...], forwards: Mapping[type, Any], first: Recording) -> Reason | None:
    """Return why a recording does not hold for a batch of another length; None if it does."""
    lengths: list[Lengths] = []
    reason = _mixed_by(1, module, example, forwards, first, lengths)
    for more in _BATCHES if lengths and lengths[0].counted else ():  # the code may compare what it counted
        reason = reason or _mixed_by(more, module, example, forwards, first)
    return reason


def _mixed_by(
    more: int,
    module: Any,
    example: tuple[Any, ...],
    forwards: Mapping[type, Any],
    first: Recording,
    lengths: list[Lengths] | None = None,
) -> Reason | None:
    """Return why a recording does not hold for a batch with more samples; None if it does."""
    try:
        second = _again(module, example, more, forwards, lengths)
    except Exception as error:  # whatever the module raises for a batch that its code does not foresee
        rows = len(example[0]) if example[0].ndim else 0
        return "", f"it fails for a batch of {rows + more}: {error}"
    if second.refused:
        return second.refused[0]
    return difference(first, second) or mixing(first, second) or second.mixed


def _again(
    module: Any, example: tuple[Any, ...], more: int, forwards: Mapping[type, Any], lengths: list[Lengths] | None = None
) -> Recording:
    """Record a call on other numbers, with more samples: on any numbers, or if it fails for these, on near ones."""
    try:
        return recorded(module, tuple(_any(x, more) for x in example), forwards, lengths)
    except Exception:  # whatever the module raises for numbers that it is not made for
        if lengths is not None:
            lengths.clear()
        return recorded(module, tuple(_near(x, more) for x in example), forwards, lengths)


def _rows(x: Any, more: int) -> Any:
    return torch.cat([x, *[x[:1]] * more]).flip(0) if x.ndim else x


def _noise(x: Any) -> Any:
    return torch.from_numpy(np.asarray(np.random.default_rng(0).standard_normal(tuple(x.shape)))).to(x.dtype)


def _any(x: Any, more: int) -> Any:
    """Return an example of other numbers: floats of both signs, also of an example of zeros; integers beside its own.

    What is computed outside of PyTorch, such as signs by NumPy, has to differ for them.
    """
    rows = _rows(x, more)
    if x.is_floating_point():
        largest = torch.nan_to_num(rows, 0.0, 0.0, 0.0).abs().max()
        return _noise(rows) * 4 * (largest if largest > 0 else 1.0)
    moved = rows.reshape(-1).roll(1).reshape(rows.shape)
    if x.is_complex() or not (moved == rows).all():
        return moved
    return rows.logical_not() if x.dtype == torch.bool else rows ^ 1


def _near(x: Any, more: int) -> Any:
    """Return an example of numbers near those of x."""
    rows = _rows(x, more)
    spread = rows.std() if x.is_floating_point() and rows.numel() > 1 else 1.0
    return rows * 0.75 + 0.25 * _noise(rows) * spread if x.is_floating_point() else rows


def recorded(
    module: Any, example: tuple[Any, ...], forwards: Mapping[type, Any], lengths: list[Lengths] | None = None
) -> Recording:
    """Record a call of the module; with `lengths`, let its code read lengths of the batch as `Lengths` gives them."""
    with _unchanged(module) as restore:
        pointwise: list[Any] = []
        for part in module.modules():
            part.training = False
            forward = next((forwards[t] for t in type(part).__mro__ if t in forwards), None)
            if forward is not None:
                part.__dict__["forward"] = partial(forward, part)
            elif getattr(part, "pointwise", False) is True:
                pointwise.append(part)
            if part.__dict__.get("packed") is True and _of_package(part):
                part.__dict__["packed"] = False
        weights, refused = _dequantised(module)
        if refused:
            return Recording(refused=refused)
        storages: dict[int, list[Any]] = {}
        for held in (*module.parameters(), *module.buffers()):
            storages.setdefault(storage_of(held), []).append(held)
        recorder = Recorder(_layers(module), storages, restore)
        for part in pointwise:
            part.__dict__["forward"] = partial(recorder.elementwise, part, Elementwise(_evaluated(part)))
        inputs = [x.detach().clone() for x in example]
        names = _names(module, len(inputs))
        recording = recorder.recording
        recording.stored = weights
        watching: Any = nullcontext()
        if lengths is not None:
            watching = Lengths(inputs[0].shape[0] if inputs[0].ndim else 1, recorder.depends, recorder.mix)
            lengths.append(watching)
        with torch.no_grad(), _separate_layers(), recorder:
            recording.inputs = [recorder.place(x) for x in inputs]
            try:
                with watching:
                    out = module(*inputs)
            except _Stop:
                out = None
        recording.names = names
        for name, tensor in _outputs(out).items():
            try:
                recording.outputs[name] = recorder.value(tensor)
            except Refused as error:
                recorder.refuse(error)
    parts = dict(module.named_modules())
    recording.refused = [(path, _reason(parts.get(path), why)) for path, why in recording.refused]
    restore_axes(recording)
    recording.calls = needed(recording.calls, recording.outputs.values())
    return recording


def _reason(part: Any, why: str) -> str:
    """Return why a layer of PyTorch whose own code writes in place is refused."""
    if isinstance(part, torch.nn.RNNBase):
        return "a recurrent layer is not taken"
    if getattr(part, "padding_mode", "") == "circular":
        return "padding_mode='circular' is not taken; pad by torch.cat"
    return why


def _dequantised(module: Any) -> tuple[dict[int, Stored], list[tuple[str, str]]]:
    """Replace weights of torchao by their floats for a call; return them by storage, and what is refused."""
    weights: dict[int, Stored] = {}
    refused: list[tuple[str, str]] = []
    replaced: dict[int, Any] = {}  # by the weight, which several layers may share
    for path, part in module.named_modules():
        for name, weight in part._parameters.items():
            if not is_torchao(weight):
                continue
            try:
                if id(weight) not in replaced:
                    held = stored(weight)
                    replaced[id(weight)] = torch.nn.Parameter(held.floats, requires_grad=False)
                    weights[storage_of(held.floats)] = held
                part._parameters[name] = replaced[id(weight)]
            except Refused as error:
                refused.append((path, str(error)))
    return weights, refused


def _layers(module: Any) -> dict[int, str]:
    """Return the path of each part by its id, but of no quantiser of Brevitas, whose parts several layers share."""
    paths: dict[int, str] = {}
    quantiser = None  # the path of the last one; modules come in depth-first order
    for path, part in module.named_modules():
        if any(t.__module__.startswith("brevitas.proxy.") for t in type(part).__mro__):
            quantiser = f"{path}."
        elif quantiser is None or not path.startswith(quantiser):
            paths[id(part)] = path
    return paths


def _evaluated(part: Any) -> Any:
    """Return a copy of a module in evaluation mode, whose forward is that of its class."""
    copied = deepcopy(part)
    for inner in copied.modules():
        inner.training = False
    return copied


def _of_package(part: Any) -> bool:
    return any(kind.__module__.startswith("quantarray.torch.") for kind in type(part).__mro__)


def _names(module: Any, count: int) -> list[str]:
    """Return the names of the first arguments of forward."""
    known = [
        p.name
        for p in inspect.signature(module.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return [known[i] if i < len(known) else f"input{i}" for i in range(count)]


def _outputs(out: Any, name: str = "output") -> dict[str, Any]:
    """Return the tensors of a result by name: those of tuples by their place, those of dicts by their key."""
    if isinstance(out, torch.Tensor):
        return {name: out}
    if type(out).__module__.startswith("brevitas."):  # a QuantTensor: its value, scale, zero point ..
        return {name: out.value}
    if isinstance(out, Mapping):
        parts: Any = {str(k): v for k, v in out.items()}
    elif isinstance(out, (tuple, list)):
        keys = getattr(out, "_fields", [f"{name}{i}" for i in range(len(out))])
        parts = dict(zip(keys, out, strict=True))
    elif out is None:
        return {}
    else:
        raise TypeError(f"from_torch: the module must return tensors, tuples or dicts, got {type(out).__name__}")
    return {k: t for key, part in parts.items() for k, t in _outputs(part, key).items()}


@contextmanager
def _separate_layers() -> Iterator[None]:
    """Let attention layers call products and softmax one by one, not one fused operator for all."""
    switch = torch.backends.mha
    before = switch.get_fastpath_enabled()
    switch.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        switch.set_fastpath_enabled(before)


@contextmanager
def _unchanged(module: Any) -> Iterator[dict[int, Any]]:
    """Put back what a call changes: attributes, parameters and buffers of all modules, and the random state."""
    saved = [(part, {k: dict(v) if k in _COPIED else v for k, v in part.__dict__.items()}) for part in module.modules()]
    held = [(p, p.data) for p in (*module.parameters(), *module.buffers()) if not is_torchao(p)]
    restore: dict[int, Any] = {}
    random = torch.get_rng_state()
    try:
        yield restore
    finally:
        with torch.no_grad():
            for tensor, data in held:
                if tensor.data_ptr() != data.data_ptr() or tensor.shape != data.shape:
                    tensor.data = data
            for tensor, before in restore.values():
                tensor.data.copy_(before)
        for part, attributes in saved:
            current = part.__dict__
            for key in [k for k in current if k not in attributes]:
                del current[key]
            for key, value in attributes.items():
                if key in _COPIED:
                    _refill(current[key], value)
                else:
                    current[key] = value
        torch.set_rng_state(random)


def _refill(current: Any, value: dict[str, Any]) -> None:
    if list(current) != list(value) or any(current[k] is not value[k] for k in value):
        current.clear()
        current.update(value)
