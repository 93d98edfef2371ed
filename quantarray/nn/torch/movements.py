"""Calls that move elements: reshaped, permuted, joined, cut, padded and up-sampled values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..onnx import movement
from ..onnx.laws import Constant, Operand, Source, Tensor
from ..onnx.tensors import Refused
from .conversion import Conversion
from .functions import ALIAS, NORMS
from .recording import Call, Var


def _lower(c: Conversion, call: Call, op: str, operands: list[Operand], results: Any = None, **attributes: Any) -> None:
    step = c.step(call, op, **attributes)
    c.builder.step = step
    wanted = call.results if results is None else results
    for var, x in zip(wanted, movement.LOWER[op](c.builder, step, operands, [v.shape for v in wanted]), strict=True):
        c.put(var, x)


def _reshape(c: Conversion, call: Call) -> None:
    if c.reshaped(call):
        return
    _lower(c, call, "Reshape", [c.settle(call.args[0])], by_sample=1)


def _permuted(c: Conversion, call: Call, perm: tuple[int, ...]) -> None:
    _lower(c, call, "Transpose", [c.settle(call.args[0])], perm=perm)


def _permute(c: Conversion, call: Call) -> None:
    n = len(call.args[0].shape)
    _permuted(c, call, tuple(int(i) % n for i in call.args[1]))


def _transpose(c: Conversion, call: Call) -> None:
    n = len(call.args[0].shape)
    perm = list(range(n))
    i, j = (0, n - 1) if call.op == "t" else (int(call.args[1]) % n, int(call.args[2]) % n)
    perm[i], perm[j] = perm[j], perm[i]
    _permuted(c, call, tuple(perm))


def _cat(c: Conversion, call: Call) -> None:
    parts = [v for v in call.args[0] if v.shape != (0,)]
    axis = int(call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % len(call.results[0].shape)
    first = next((v for v in parts if v.depends and 0 not in v.shape), parts[0])
    _lower(c, call, "Concat", [c.settle(v) if v.depends else _repeated(c, v, first, axis) for v in parts], axis=axis)


def _repeated(c: Conversion, v: Var, x: Var, axis: int) -> Operand:
    """Return a constant that has a row for each sample of x, all alike; any other constant as it is."""
    b = c.builder
    if not b.batched or axis == 0 or not x.depends or 0 in x.shape:
        return c.constant(v)
    flat = b.emit("Reshape", [c.dense(x)], f"{b.hint}.flat", shape=(-1, math.prod(x.shape[1:])), allowzero=1)
    first = b.emit("Slice", [flat], f"{b.hint}.first", starts=(0,), ends=(1,), axes=(1,))
    zeros = b.emit("ArgMax", [first], f"{b.hint}.zeros", axis=1, keepdims=0)  # the place of the row for each sample
    row = b.constant(np.asarray(v.tensor.detach()[:1].numpy()))
    return c.value(b.emit("Gather", [row, zeros], f"{b.hint}.rows", axis=0), v)


def _split(c: Conversion, call: Call) -> None:
    axis = int(call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)) % len(call.args[0].shape)
    _lower(c, call, "Split", [c.settle(call.args[0])], axis=axis)


def _slice(c: Conversion, call: Call) -> None:
    defaults: tuple[Any, ...] = (0, None, None, 1)
    x, axis, start, end, step = (*call.args, *defaults[len(call.args) - 1 :])
    at, length = int(axis) % len(x.shape), x.shape[int(axis)]
    first, last, by = slice(start, None if end is None else min(int(end), length), int(step)).indices(length)
    if call.results[0].shape == x.shape:
        c.functions[call.results[0].index] = c.functions[x.index].then(call._replace(op=ALIAS, args=(x,), kwargs={}))
        return
    numbers = [Constant(np.array([n])) for n in (first, last, at, by)]
    _lower(c, call, "Slice", [c.settle(x), *numbers])


def _select(c: Conversion, call: Call) -> None:
    """Convert x[:, i]: a slice of length 1, without its axis."""
    x, axis, index = call.args[:3]
    at = int(axis) % len(x.shape)
    i = int(index) % x.shape[at]
    shape = (*x.shape[:at], 1, *x.shape[at + 1 :])
    numbers = [Constant(np.array([n])) for n in (i, i + 1, at, 1)]
    step = c.step(call, "Slice")
    part = movement.LOWER["Slice"](c.builder, step, [c.settle(x), *numbers], [shape])[0]
    _lower(c, call, "Reshape", [part])


def _pad(c: Conversion, call: Call) -> None:
    x, widths, value = (*call.args, 0)[:3]
    ndim, out = len(x.shape), call.results[0]
    pads = [(0, 0)] * ndim
    for i in range(len(widths) // 2):
        pads[ndim - 1 - i] = (int(widths[2 * i]), int(widths[2 * i + 1]))
    if any(w < 0 for pair in pads for w in pair):
        raise Refused("a padding of negative width is not taken; use a slice")
    both = tuple(a for a, _ in pads) + tuple(b for _, b in pads)
    source = c.settle(x)
    c.builder.per_sample(pads[0] == (0, 0))
    mode = {"reflection": "reflect", "replication": "edge"}.get(call.op.split("_")[0], "constant")
    level = _level(source, float(value)) if mode == "constant" else None
    if level:  # a level other than 0
        a: dict[str, Any] = {"pads": both, "mode": "constant", "value": level}
        name = c.builder.emit("Pad", [c.builder.integers(source)], c.builder.hint, **a)
        low, high = source.source.bounds
        kind = np.dtype(np.int32) if source.source.levels is not None else source.source.dtype
        held = Source(name, out.shape, kind, None, min(low, level), max(high, level))
        c.put(out, replace(source, shape=out.shape, source=held))
        return
    extra = {"value": float(value)} if mode == "constant" else {}
    _lower(c, call, "Pad", [source], pads=both, mode=mode, **extra)


def _level(x: Tensor, value: float) -> int | None:
    """Return the integer of a value that integers times a scale are padded with; None if it has none."""
    if x.pure is None or x.pure.size > 1 or not x.chain:
        return None
    whole = value / float(x.pure.reshape(()))
    return round(whole) if abs(whole - round(whole)) < 1e-6 and abs(whole) < 128 else None


def _pixel_shuffle(c: Conversion, call: Call) -> None:
    _lower(c, call, "DepthToSpace", [c.settle(call.args[0])], blocksize=int(call.args[1]), mode="CRD")


def _channel_shuffle(c: Conversion, call: Call) -> None:
    x, groups = call.args[:2]
    n, channels, *places = x.shape
    wide = (n, int(groups), channels // int(groups), *places)
    perm = (0, 2, 1, *range(3, len(wide)))
    turned = tuple(wide[i] for i in perm)
    first = movement.LOWER["Reshape"](c.builder, c.step(call, "Reshape"), [c.settle(x)], [wide])[0]
    second = movement.LOWER["Transpose"](c.builder, c.step(call, "Transpose", perm=perm), [first], [turned])[0]
    _lower(c, call, "Reshape", [second])


def _expand(c: Conversion, call: Call) -> None:
    x, out = call.args[0], call.results[0].shape
    if out == x.shape:
        c.functions[call.results[0].index] = c.functions[x.index].then(call._replace(op=ALIAS, args=(x,), kwargs={}))
        return
    wide = (*(1,) * (len(out) - len(x.shape)), *x.shape)
    counts = Constant(np.array([1 if n == m else m for n, m in zip(wide, out, strict=True)]))
    value: Operand = c.settle(x)
    if wide != x.shape:
        value = movement.LOWER["Reshape"](c.builder, c.step(call, "Reshape"), [value], [wide])[0]
    _lower(c, call, "Tile", [value, counts])


def _picked(c: Conversion, call: Call) -> None:
    """Convert x[:, places] and index_select: elements at constant places of one axis."""
    x, where = call.args[0], call.args[1]
    if call.op == "index_select":
        axis, places = int(where), call.args[2]
    else:
        axis = next((i for i, at in enumerate(where) if at is not None), 0)
        places = where[axis]
        if sum(at is not None for at in where) != 1 or places.dtype == torch.bool:
            raise Refused("elements at places of several axes, or where a mask is True, are not taken")
    if places.depends or not x.depends:
        raise Refused("the places of the elements depend on the input; use an Embedding or torch.where")
    at = Constant(places.tensor.detach().numpy().astype(np.int64) % x.shape[axis])
    _lower(c, call, "Gather", [c.settle(x), at], axis=axis % len(x.shape))


def _refused(why: str) -> Any:
    def refuse(c: Conversion, call: Call) -> None:
        raise Refused(why)

    return refuse


LOWER: dict[str, Any] = {
    **dict.fromkeys("view _unsafe_view reshape flatten squeeze unsqueeze _reshape_alias".split(), _reshape),
    "permute": _permute,
    **dict.fromkeys(("transpose", "t", "swapaxes"), _transpose),
    "cat": _cat,
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    "slice": _slice,
    "select": _select,
    **dict.fromkeys(("constant_pad_nd", "reflection_pad2d", "replication_pad2d", "reflection_pad1d"), _pad),
    "pixel_shuffle": _pixel_shuffle,
    **dict.fromkeys(("channel_shuffle", "native_channel_shuffle"), _channel_shuffle),
    "expand": _expand,
    **dict.fromkeys(("index", "index_select"), _picked),
    **dict.fromkeys(
        ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        _refused("antialias=True averages more elements when it makes an image smaller; leave it out"),
    ),
    **dict.fromkeys(
        ("native_group_norm", "_native_batch_norm_legit", "_fused_rms_norm", *NORMS),
        _refused("it normalises by statistics of its input; use BatchNorm with running statistics"),
    ),
    **dict.fromkeys(("lstm", "gru", "mkldnn_rnn_layer"), _refused("a recurrent layer is not taken")),
}
