"""Layers of plain integers: each checked against its arrays and against what the layer before it returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..core.errors import FormatError

MOST = 2**15 - 1  # of a stride, size or pad
MOST_THRESHOLDS = 255  # codes have 8 bits
_KEYS = {
    "conv2d": ({"weight", "threshold", "values"}, {"invert", "strict", "stride", "pad", "pad_value"}),
    "dense": ({"weight", "threshold", "values"}, {"invert", "strict", "stride", "pad"}),
    "max_pool2d": ({"size", "stride"}, {"pad"}),
}


@dataclass(frozen=True, eq=False)
class PlainLayer:
    """A layer as a file describes it. `shape` is that of one output, without the batch; scores have no thresholds."""

    op: str
    shape: tuple[int, ...]
    stride: int = 1
    pad: tuple[int, int] = (0, 0)
    size: int = 1
    pad_value: int = 0
    weight: Array | None = field(default=None, repr=False)  # int8 [o kh kw c] or [o k]
    thresholds: Array | None = field(default=None, repr=False)  # int32 [o T], in any order: they are counted
    invert: Array | None = field(default=None, repr=False)  # bool [o]
    strict: bool = True
    values: tuple[int, ...] | None = None  # T + 1 integers, value of each code


def array_of(where: str, arrays: dict[str, Array], name: Any, dtype: str, ndims: tuple[int, ...]) -> Array:
    """Return a named array; raise FormatError unless it has this dtype ("integer": any) and number of axes."""
    array = arrays.get(name) if isinstance(name, str) else None
    if array is None:
        raise FormatError(f"{where}: there is no array {name!r}")
    fits = array.dtype.kind in "iu" if dtype == "integer" else array.dtype == np.dtype(dtype)
    if not fits or array.ndim not in ndims:
        axes = " or ".join(map(str, ndims))
        got = f"{array.dtype} {array.shape}"
        raise FormatError(f"{where}: {name} must be {dtype} with {axes} axes, got {got}")
    if 0 in array.shape[1:] or (0 in array.shape and name not in ("input", "expected", "labels")):
        raise FormatError(f"{where}: {name} is empty, {array.shape}")
    return array


def read_layers(
    specs: list[Any], arrays: dict[str, Array], shape: tuple[int, ...], reach: int
) -> tuple[PlainLayer, ...]:
    """Read the layers in order; `shape` is that of one input, `reach` the largest magnitude in it."""
    layers: list[PlainLayer] = []
    for i, spec in enumerate(specs):
        op = spec.get("op") if isinstance(spec, dict) else None
        if not isinstance(op, str) or op not in _KEYS:
            raise FormatError(f"layer {i}: op must be one of {', '.join(_KEYS)}, got {op!r:.40}")
        where = f"layer {i} ({op})"
        required, optional = _KEYS[op]
        keys = set(spec) - {"op"}
        if not required <= keys <= required | optional:
            missing, foreign = sorted(required - keys), sorted(keys - required - optional)
            raise FormatError(f"{where}: keys {missing} are missing, keys {foreign} do not belong there")
        if op == "max_pool2d":
            layer = _pool(where, spec, shape)
        else:
            layer = _product(where, op, spec, arrays, shape, reach)
            if layer.values is None and i + 1 < len(specs):
                raise FormatError(f"{where}: threshold may be null in the last layer only")
            reach = max(map(abs, layer.values or (0,)))
        layers.append(layer)
        shape = layer.shape
    return tuple(layers)


def _pool(where: str, spec: dict[str, Any], shape: tuple[int, ...]) -> PlainLayer:
    size = _whole(where, "size", spec["size"], 1)
    stride, pad = _whole(where, "stride", spec["stride"], 1), _pad(where, spec)
    height, width = _window(where, shape, (size, size), stride, pad)
    for n, out in zip(shape, (height, width), strict=False):
        if pad[0] >= size or (out - 1) * stride - pad[0] >= n:
            raise FormatError(f"{where}: pad {list(pad)} leaves windows of {size} wholly in the padding")
    return PlainLayer("max_pool2d", (height, width, shape[2]), stride, pad, size)


def _product(
    where: str, op: str, spec: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...], reach: int
) -> PlainLayer:
    weight = array_of(where, arrays, spec["weight"], "int8", (4,) if op == "conv2d" else (2,))
    outputs = len(weight)
    out: tuple[int, ...] = (outputs,)
    stride, pad = _whole(where, "stride", spec.get("stride", 1), 1), _pad(where, spec)
    pad_value = _whole(where, "pad_value", spec.get("pad_value", 0), 1 - 2**31, 2**31 - 1)
    if op == "conv2d":
        out = (*_window(where, shape, weight.shape[1:3], stride, pad), outputs)
        needed = shape[2]
    else:
        if stride != 1 or pad != (0, 0):
            raise FormatError(f"{where}: stride must be 1 and pad 0")
        needed = math.prod(shape)
    if weight.shape[-1] != needed:
        raise FormatError(
            f"{where}: {spec['weight']} {weight.shape} takes {weight.shape[-1]} inputs, "
            f"the layer before returns {needed} ({shape})"
        )
    sums = np.abs(weight.astype(np.int64)).reshape(outputs, -1).sum(axis=1)
    if max(reach, abs(pad_value)) * int(sums.max()) >= 2**31:
        raise FormatError(f"{where}: the accumulator may leave int32")
    thresholds, invert, strict, values = _activation(where, spec, arrays, outputs)
    return PlainLayer(op, out, stride, pad, 1, pad_value, weight, thresholds, invert, strict, values)


def _activation(
    where: str, spec: dict[str, Any], arrays: dict[str, Array], outputs: int
) -> tuple[Array | None, Array | None, bool, tuple[int, ...] | None]:
    """(thresholds, invert, strict, values) of a product."""
    strict = spec.get("strict", True)
    if not isinstance(strict, bool):
        raise FormatError(f"{where}: strict must be true or false, got {strict!r:.40}")
    invert = None
    if spec.get("invert") is not None:
        invert = array_of(where, arrays, spec["invert"], "bool", (1,))
    values = spec["values"]
    if spec["threshold"] is None:  # the output is the accumulator: there are no codes to give values to
        return None, invert, strict, None
    thresholds = array_of(where, arrays, spec["threshold"], "int32", (2,))
    for name, a in (("threshold", thresholds), ("invert", invert)):
        if a is not None and len(a) != outputs:
            raise FormatError(f"{where}: {spec[name]} has {len(a)} channels, {spec['weight']} has {outputs}")
    count = thresholds.shape[1]
    if count > MOST_THRESHOLDS:
        raise FormatError(f"{where}: at most {MOST_THRESHOLDS} thresholds a channel, got {count}")
    whole = isinstance(values, list) and all(type(v) is int for v in values)
    if not whole or not len(set(values)) == len(values) == count + 1 or max(map(abs, values)) >= 2**31:
        raise FormatError(f"{where}: values must be {count + 1} different int32 integers, got {values!r:.80}")
    return thresholds, invert, strict, tuple(values)


def _window(
    where: str, shape: tuple[int, ...], size: tuple[int, ...], stride: int, pad: tuple[int, int]
) -> tuple[int, int]:
    """Return output height and width; raise FormatError if the window is larger than the image."""
    if len(shape) != 3:
        raise FormatError(f"{where}: needs images (N, H, W, C), got {('N', *shape)}")
    height, width = ((n + sum(pad) - k) // stride + 1 for n, k in zip(shape[:2], size, strict=True))
    if min(height, width) < 1:
        raise FormatError(f"{where}: a window {size} is larger than the image {shape} with pad {list(pad)}")
    return height, width


def _pad(where: str, spec: dict[str, Any]) -> tuple[int, int]:
    value = spec.get("pad", 0)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise FormatError(f"{where}: pad must be an integer or two, got {value!r:.40}")
    return _whole(where, "pad", pair[0], 0), _whole(where, "pad", pair[1], 0)


def _whole(where: str, name: str, value: Any, least: int, most: int = MOST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise FormatError(f"{where}: {name} must be an integer from {least} to {most}, got {value!r:.40}")
    return value


def eight_bits(values: list[int]) -> bool:
    return (min(values) >= -128 and max(values) <= 127) or (min(values) >= 0 and max(values) <= 255)
