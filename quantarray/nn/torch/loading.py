"""Convert a PyTorch module to a graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch

from ..graph import Graph, Node, Value
from ..onnx.building import Builder
from ..onnx.laws import NotPerSample, Source, Tensor
from ..onnx.tensors import Refused
from . import quantised
from .choices import Choices, check_kept, checked
from .conversion import Conversion
from .emission import dtype_of
from .functions import pointwise
from .interpolating import LOWER as INTERPOLATED
from .movements import LOWER as MOVEMENTS
from .operators import LOWER as OPERATORS
from .rearranging import LOWER as REARRANGED
from .recording import Call, Recording, Var
from .statistics import LOWER as STATISTICS
from .tracing import recorded, traced

_LOWER = {**OPERATORS, **MOVEMENTS, **REARRANGED, **INTERPOLATED, **STATISTICS}


def load_module(module: Any, example: Any, forwards: Mapping[type, Any], quantize: Any = None) -> Graph:
    """Convert a module; `quantarray.nn.from_torch` has the arguments."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"from_torch: needs a torch.nn.Module, got {type(module).__name__}")
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise TypeError(
                f"from_torch: {path or 'the module'} is a {type(part).__name__} of torch.jit, whose calls cannot be "
                "recorded; pass the module that it was compiled from"
            )
    inputs = example if isinstance(example, tuple) else (example,)
    for x in inputs:
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"from_torch: the example must be a tensor, or a tuple of the tensors that forward takes, got "
                f"{type(x).__name__}; pass torch.zeros(1, ..) of the shape of an input"
            )
    if not inputs or any(not x.numel() for x in inputs):
        raise ValueError("from_torch: the example must have at least one sample")
    options = None if quantize is None else checked(quantize, inputs)
    inputs = tuple(x.detach().cpu() for x in inputs)
    module = _on_cpu(module)
    if options is not None:
        options["calibration"] = tuple(x.cpu() for x in options["calibration"] if options["activations"] is not None)
    kinds = {path: type(part).__name__ for path, part in module.named_modules()}
    if options is not None:
        check_kept(options["keep"], kinds)
    recording = traced(module, inputs, forwards)
    _raise(recording.refused, kinds)
    choices = None if options is None else _calibrated(module, recording, options, forwards)
    if recording.mixed is None:
        try:
            return _graph(recording, True, kinds, choices)
        except NotPerSample as error:
            recording.mixed = error.args or ("", "an output mixes the samples of a batch")
    graph = _graph(recording, False, kinds, choices)
    path, why = recording.mixed
    graph.batch_note = f"{path or 'module'} ({kinds.get(path, '?')}): {why}"
    return graph


def _on_cpu(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module, or a copy on the CPU of one that is on a GPU."""
    held = chain(module.parameters(), module.buffers())
    return copy.deepcopy(module).cpu() if any(tensor.is_cuda for tensor in held) else module


def _calibrated(module: Any, recording: Recording, options: dict[str, Any], forwards: Mapping[type, Any]) -> Choices:
    """Run the module on the calibration batch for the values of all variables, if activations are quantised."""
    if options["activations"] is None:
        return Choices(options["weights"], None, options["keep"], {}, options["group"])
    try:
        other = recorded(module, options["calibration"], forwards)
    except RuntimeError as error:  # of PyTorch, which the example did not raise
        shapes = ", ".join(str(tuple(x.shape)) for x in options["calibration"])
        raise ValueError(f"from_torch: the module does not take quantize['calibration'] of {shapes}: {error}") from None
    if [c.op for c in other.calls] != [c.op for c in recording.calls]:
        raise ValueError("from_torch: the module does other operations for the calibration batch than for the example")
    values = {v.index: w.tensor for v, w in zip(recording.inputs, other.inputs, strict=True)}
    for one, two in zip(recording.calls, other.calls, strict=True):
        values |= {v.index: w.tensor for v, w in zip(one.results, two.results, strict=True)}
    return Choices(options["weights"], options["activations"], options["keep"], values)


def _graph(recording: Recording, batched: bool, kinds: Mapping[str, str], choices: Choices | None) -> Graph:
    outputs = recording.outputs
    builder = Builder(1 << 40, batched, list(outputs))
    c = Conversion(builder, kinds, recording, choices)
    inputs = [_input(c, var, name) for var, name in zip(recording.inputs, recording.names, strict=True)]
    for call in recording.calls:
        c.take(call, _convert)
    values = []
    for name, var in outputs.items():
        if var.index in c.absent:
            c.refused.append(("", c.absent[var.index]))
            continue
        if var.index in c.unknown:
            continue
        builder.step = None
        if batched and not var.depends:
            raise NotPerSample("", f"the output {name} is a constant")
        try:
            held = c.dense_output(var) if var.depends else builder.dense(c.constant(var))
            values.append(Value(name, var.shape, str(dtype_of(var)), builder.batched))
        except Refused as error:
            c.refused.append(("", str(error)))
            continue
        builder.nodes.append(Node("Identity", (held,), (name,)))
    _raise(c.refused, kinds)
    if not values:
        raise ValueError("from_torch: the module returns no tensor")
    return builder.graph(inputs, values, kinds.get("", "module"))


def _convert(c: Conversion, call: Call) -> None:
    """Convert a call; raise Refused if it is not taken."""
    if quantised.holds(call):
        quantised.convert(c, call, _LOWER)
    elif pointwise(call):
        c.pointwise(call)
    elif call.op in _LOWER:
        _LOWER[call.op](c, call)
    else:
        raise Refused(f"aten.{call.op} is not taken")


def _input(c: Conversion, var: Var, name: str) -> Value:
    dtype = dtype_of(var)
    held = c.builder.name(name)
    whole = dtype.kind in "iu"
    low, high = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if whole else (None, None)
    c.put(var, Tensor(var.shape, dtype, Source(held, var.shape, dtype, None, low, high)))
    return Value(held, var.shape, str(dtype), c.builder.batched)


def _raise(refused: list[tuple[str, str]], kinds: Mapping[str, str]) -> None:
    """Raise ValueError that lists what cannot be taken, each once."""
    if not refused:
        return
    lines = list(dict.fromkeys(f"  {path or 'module'} ({kinds.get(path, '?')}): {why}" for path, why in refused))
    raise ValueError(f"from_torch: {len(lines)} parts of the module cannot be taken:\n" + "\n".join(lines))
