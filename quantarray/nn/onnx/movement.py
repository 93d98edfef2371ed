"""Operators that move elements: on codes where packed arrays have them, on integers, or on the values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..operators.movement import axes_of, axis_of, pads_of
from .building import Builder, Moved
from .interpolating import interpolated
from .laws import Constant, Operand, Shape, Source, Tensor, check_dtypes
from .reading import Step
from .tensors import Refused

_DENSE = {"reshape": "Reshape", "transpose": "Transpose"}
_PACKED = {"Transpose": "transpose", "Concat": "concat"}


def _moved(b: Builder, op: str, x: Tensor, rest: list[str], shapes: list[Shape], a: dict[str, Any]) -> list[Operand]:
    """Apply the operator to the source of x if the chain is the same for all elements, else to the values of x."""
    hints = [f"{b.hint}.{i}" if i else b.hint for i in range(len(shapes))]
    if not x.uniform or (x.dtype.kind != "f" and x.chain):
        names = b.emit_all(_DENSE.get(op, op), [b.dense(x), *rest], hints, **a)
        return [b.value(name, s, x.dtype) for name, s in zip(names, shapes, strict=True)]
    source = x.source
    packs = op in ("reshape", "transpose") and source.levels is not None and len(shapes[0]) > 0 and all(shapes[0])
    name = source.name if packs else b.integers(x)
    kind = np.dtype(np.int32) if source.levels is not None else source.dtype
    levels = source.levels if packs else None
    if packs:
        shuffled = _shuffle(b, source, shapes[0]) if op == "reshape" else None
        if shuffled is not None:
            return [replace(x, shape=shuffled.shape, source=shuffled)]
    op = op if packs else _DENSE.get(op, op)
    names = b.emit_all(op, [name, *rest], hints, **a)
    if packs:
        b.moved[names[0]] = Moved(source.name, source.shape, tuple(a.get("perm", ())))
    sources = [Source(n, s, kind, levels, source.low, source.high) for n, s in zip(names, shapes, strict=True)]
    return [replace(x, shape=s.shape, source=s) for s in sources]


def _shuffle(b: Builder, source: Source, out: Shape) -> Source | None:
    """Return shuffled channels where a reshape to [n c ..] ends a swap of the axes of [n g c/g ..]."""
    turned = b.moved.get(source.name)
    first = b.moved.get(turned.name) if turned is not None else None
    if turned is None or first is None or first.perm or first.shape != out or len(turned.shape) != len(out) + 1:
        return None
    n, groups, each, *image = turned.shape
    swapped = (0, 2, 1, *range(3, len(turned.shape)))
    if turned.perm != swapped or (n, groups * each, *image) != out:
        return None
    name = b.emit("channel_shuffle", [first.name], b.hint, groups=groups)
    return replace(source, name=name, shape=out)


def _one(operands: list[Operand]) -> Tensor:
    """Return the first operand; raise Refused unless it is computed and all others are constants."""
    x, *rest = operands
    if not isinstance(x, Tensor) or any(isinstance(y, Tensor) for y in rest):
        raise Refused("its operands beside the first must be constants")
    return x


def _reshape(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, out = _one(operands), shapes[0]
    if out == x.shape:
        return [x]
    if b.batched:
        same = bool(out) and bool(x.shape) and out[0] == x.shape[0] and math.prod(out[1:]) == math.prod(x.shape[1:])
        same = same or "by_sample" in step.attributes  # some rows for each sample, as the caller knows
        if step.op == "Flatten":
            same = same and axis_of(step.attributes.get("axis", 1), len(x.shape) + 1) == 1
        b.per_sample(same)
    lead = -1 if b.batched and 0 not in out else out[0] if out else None
    target = (lead, *out[1:]) if lead is not None else ()
    if _per_channel(x, out):
        shaped = (replace(k, operands=tuple(_without_image(v, len(x.shape)) for v in k.operands)) for k in x.chain)
        x = replace(x, chain=tuple(shaped))
        names = b.emit("Reshape", [b.integers(x)], b.hint, shape=target, allowzero=1)
        source = x.source
        kind = np.dtype(np.int32) if source.levels is not None else source.dtype
        return [replace(x, shape=out, source=Source(names, out, kind, None, source.low, source.high))]
    return _moved(b, "reshape", x, [], [out], {"shape": target, "allowzero": 1})


def _per_channel(x: Tensor, out: Shape) -> bool:
    """Return True if a chain with constants for each channel still applies once [n c 1 1] has become [n c]."""
    plain = not any(link.operator.of_images for link in x.chain)
    return not x.uniform and plain and len(x.shape) > 2 and out == x.shape[:2] and math.prod(x.shape[2:]) == 1


def _without_image(v: Any, ndim: int) -> Any:
    """Drop the axes of a constant after the channels of a value of `ndim` axes, which have length 1."""
    return v if v is None or v.size == 1 else v.reshape(v.shape[: v.ndim - (ndim - 2)])


def _squeeze(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = _one(operands)
    same = bool(x.shape) and shapes[0][:1] == x.shape[:1]
    b.per_sample(same and (x.shape[:1] != (1,) or _keeps_first(step, operands)))
    return _reshape(b, step, [x], shapes)


def _keeps_first(step: Step, operands: list[Operand]) -> bool:
    axes = operands[1].value if len(operands) > 1 and isinstance(operands[1], Constant) else step.attributes.get("axes")
    x = operands[0]
    assert x is not None
    if axes is None:
        return False
    ndim = len(x.shape) + (np.asarray(axes).size if step.op == "Unsqueeze" else 0)
    return all(int(i) % ndim for i in np.asarray(axes).reshape(-1))


def _transpose(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = _one(operands)
    perm = tuple(step.attributes.get("perm", range(len(x.shape))[::-1]))
    b.per_sample(bool(perm) and perm[0] == 0)
    return _moved(b, "transpose", x, [], shapes, {"perm": perm})


def _concat(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    values = [x for x in operands if isinstance(x, Tensor)]
    axis = axis_of(step.attributes.get("axis", 1), len(shapes[0]))
    b.per_sample(axis != 0 and len(values) == len(operands))
    check_dtypes(operands)
    scales = {float(x.pure.reshape(())) for x in values if x.pure is not None and x.pure.size == 1}
    count = sum(x.pure is not None and x.pure.size == 1 for x in values)
    if len(operands) == count == len(values) and len(scales) == 1 and len({bool(x.chain) for x in values}) == 1:
        low, high = (f(x.source.bounds[i] for x in values) for i, f in ((0, min), (1, max)))
        levels = {x.source.levels for x in values}
        first = values[0]
        if len(levels) == 1 and None not in levels:
            name = b.emit("concat", [x.source.name for x in values], b.hint, axis=axis)
            source = Source(name, shapes[0], first.source.dtype, first.source.levels, low, high)
        else:
            name, kind = _joined(b, values, axis)
            source = Source(name, shapes[0], kind, None, low, high)
        return [replace(first, shape=shapes[0], source=source)]
    return [*b.numpy(step, operands, shapes, next(x.dtype for x in operands if x is not None))]


def _joined(b: Builder, values: list[Tensor], axis: int) -> tuple[str, np.dtype[Any]]:
    kinds = [np.dtype(np.int32) if x.source.levels is not None else x.source.dtype for x in values]
    kind = np.result_type(*kinds)
    return b.emit("Concat", [b.integers(x) for x in values], b.hint, axis=axis), kind


def _split(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = _one(operands)
    axis = axis_of(step.attributes.get("axis", 0), len(x.shape))
    b.per_sample(axis != 0)
    if step.attributes.get("num_outputs", len(shapes)) != len(shapes):
        raise Refused(
            f"its attribute num_outputs is {step.attributes['num_outputs']}, and it has {len(shapes)} outputs"
        )
    if len(shapes) == 1:
        return [x]
    lengths = tuple(s[axis] for s in shapes)
    hints = [f"{b.hint}.{i}" if i else b.hint for i in range(len(shapes))]
    if x.source.levels is not None and (x.dtype.kind == "f" or not x.chain) and x.uniform and 0 not in x.shape:
        names = b.emit_all("split", [x.source.name], hints, axis=axis, split=lengths)
        sources = [replace(x.source, name=n, shape=s) for n, s in zip(names, shapes, strict=True)]
        return [replace(x, shape=s.shape, source=s) for s in sources]
    return _moved(b, "Split", x, [], shapes, {"axis": axis, "outputs": len(shapes), "split": lengths})


def _other(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert Slice, Gather, Pad, Resize, Tile or DepthToSpace; axis 0 must stay as it is."""
    x = _one(operands)
    constants = [c.value if isinstance(c, Constant) else None for c in operands[1:]]
    b.per_sample(bool(x.shape) and shapes[0][:1] == x.shape[:1] and _axis_0_stays(step, x, constants))
    if step.op == "Pad":
        return _pad(b, step, x, constants, shapes)
    if step.op == "Resize" and b.batched:
        step, constants = _beside_batch(b, step, constants, len(x.shape))
    exact = interpolated(b, step.attributes, x, constants, shapes[0]) if step.op == "Resize" else None
    if exact is not None:
        return [exact]
    rest = [b.constant(c) if c is not None else "" for c in constants]
    if step.op == "Resize" and step.attributes.get("mode", "nearest") != "nearest":
        name = b.emit("Resize", [b.dense(x), *rest], b.hint, **step.attributes)
        return [b.value(name, shapes[0], x.dtype)]
    if step.op == "Resize" and step.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return [*b.numpy(step, operands, shapes, x.dtype)]
    return _moved(b, step.op, x, rest, shapes, step.attributes)


def _gather(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert Gather: elements of x at constant places, or rows of a constant table at places that are computed."""
    table, at = operands
    if not isinstance(table, Constant) or not isinstance(at, Tensor):
        return _other(b, step, operands, shapes)
    if at.dtype.kind not in "iu":
        raise Refused("its indices must be integers")
    b.per_sample(axis_of(step.attributes.get("axis", 0), len(table.shape)) == 0)
    out = b.numpy(step, operands, shapes, table.dtype)[0]
    if not out.source.whole or not table.value.size:
        return [out]
    low, high = int(table.value.min()), int(table.value.max())
    return [replace(out, source=replace(out.source, low=low, high=high))]


def _beside_batch(b: Builder, step: Step, constants: list[Any], rank: int) -> tuple[Step, list[Any]]:
    """Let `sizes` of a Resize leave out the batch, which may have any length."""
    a, sizes = step.attributes, constants[2] if len(constants) > 2 else None
    if sizes is None or not sizes.size or (a.get("axes") is not None and 0 not in axes_of(a["axes"], rank)):
        return step, constants
    stretch = a.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    crop = a.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    b.per_sample(stretch and not crop and a.get("axes") is None)
    axes = tuple(range(1, rank))
    return step._replace(attributes={**a, "axes": axes}), [None, constants[1], sizes.reshape(-1)[1:]]


def _axis_0_stays(step: Step, x: Tensor, constants: list[Any]) -> bool:
    if step.op == "Gather":
        return axis_of(step.attributes.get("axis", 0), len(x.shape)) != 0
    if step.op == "Slice":
        axes = constants[2] if len(constants) > 2 else step.attributes.get("axes")
        return axes is not None and all(int(i) % len(x.shape) for i in np.asarray(axes).reshape(-1))
    if step.op == "Pad":
        return pads_of(step.attributes, len(x.shape), *(constants[0:1] or [None]), *(constants[2:3] or [None]))[0] == (
            0,
            0,
        )
    return True


def _pad(b: Builder, step: Step, x: Tensor, constants: list[Any], shapes: list[Shape]) -> list[Operand]:
    """Convert Pad: on the source of x if it copies elements or pads integers of a scale with 0, else on the values."""
    rest = [*constants, None, None, None]
    widths = pads_of(step.attributes, len(x.shape), rest[0], rest[2])
    pads = tuple(before for before, _ in widths) + tuple(after for _, after in widths)
    value = step.attributes.get("value", 0.0) if rest[1] is None else rest[1].reshape(-1)[0]
    a: dict[str, Any] = {"pads": pads, "mode": step.attributes.get("mode", "constant")}
    zero = x.pure is not None and x.pure.size == 1 and value == 0 and x.dtype.kind == "f"
    if a["mode"] != "constant" or zero:
        out = _moved(b, "Pad", x, [], shapes, a)[0]
        assert isinstance(out, Tensor)
        if zero and out.source.whole:
            low, high = out.source.bounds
            out = replace(out, source=replace(out.source, low=min(low, 0), high=max(high, 0)))
        return [out]
    level = _level(x, value) if len(x.shape) == 4 and not any(pads[:2]) and not any(pads[4:6]) else None
    if level is not None and min(pads) >= 0:
        name = b.emit("pad", [x.source.name], b.hint, pads=(*pads[2:4], *pads[6:]), value=level)
        return [replace(x, shape=shapes[0], source=replace(x.source, name=name, shape=shapes[0]))]
    name = b.emit("Pad", [b.dense(x)], b.hint, **a, value=value.item() if hasattr(value, "item") else value)
    return [b.value(name, shapes[0], x.dtype)]


def _level(x: Tensor, value: Any) -> int | None:
    """Return the level of packed codes whose value is that one; None if they have none, or are not packed."""
    levels = x.source.levels
    if levels is None or x.pure is None or x.pure.size > 1:
        return None
    levels_of = {float(np.asarray(n * x.pure.reshape(())).astype(x.dtype)): n for n in levels}
    return levels_of.get(float(value))


LOWER: dict[str, Any] = {
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    **dict.fromkeys(("Slice", "Pad", "Resize", "Tile", "DepthToSpace", "SpaceToDepth"), _other),
    "Gather": _gather,
}
