"""Networks from a description of their layers and a state dict of arrays, without PyTorch."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import checks
from ..core.dtypes import Array
from .graph import Graph
from .models.recipe import integers_of
from .onnx.draft import Draft
from .torch.grids import constant

_INPUTS = "float32", "uint8"
_IGNORED = "num_batches_tracked"
_NAMED = ("sign", "int8")


def from_state(
    layers: Sequence[Mapping[str, Any]], state: Mapping[str, Any], shape: Sequence[int], *, dtype: str = "float32"
) -> Graph:
    """Build a graph from layers in order and the state dict of a trained module; PyTorch is not needed.

        state = dict(np.load("net.npz"))  # names of the module's state_dict(), NumPy arrays
        network = qa.nn.from_state(layers, state, (1, 28, 28))

    layers: dicts, `{"type": "conv", "name": "features.0", "padding": 1, "weights": "sign"}`; docs/models.md lists the
    types and their options. A name is the part of the state's names before `.weight`.
    state: arrays by name. Each must be used, but for `num_batches_tracked`.
    shape: the shape of an input without the batch. dtype: of inputs, "float32" or "uint8", whose values are x / 255.

    Raises ValueError or TypeError that names the layer, what it needs, and what came.

    >>> import quantarray as qa, numpy as np
    >>> layers = [{"type": "sign"}, {"type": "linear", "name": "fc", "weights": "sign"}]
    >>> net = qa.nn.from_state(layers, {"fc.weight": np.array([[0.5, -2, 1]])}, (3,))
    >>> net(np.array([[1, -1, -1]], np.float32))
    array([[1.]], dtype=float32)
    """
    if dtype not in _INPUTS:
        raise ValueError(f"from_state: dtype must be one of {', '.join(_INPUTS)}, got {dtype!r}")
    if not isinstance(state, Mapping):
        raise TypeError(f"from_state: state must be a dict of arrays, such as dict(np.load(file)), got {type(state)}")
    lengths = _lengths(shape)
    d = _Description(state)
    x = d.run(layers, d.input_of("x", lengths, dtype), "layer ")
    d.check_used()
    try:
        return d.graph_of(x, "scores")
    except ValueError as error:
        raise ValueError(str(error).replace("load: ", "from_state: ").replace("of the file", "of the layers")) from None


def _lengths(shape: Any) -> tuple[int, ...]:
    """Return the lengths of an input; raise an error that says how the shape is written."""
    if isinstance(shape, str) or not np.iterable(shape):
        raise TypeError(f"from_state: shape must be a tuple such as (3, 32, 32), got {shape!r}")
    listed = tuple(shape)
    if listed and (listed[0] is None or isinstance(listed[0], str) or listed[0] == -1):
        fix = f"; {listed[1:]} is the shape without it" if len(listed) > 1 else ""
        raise ValueError(f"from_state: shape must be that of an input without the batch, got {listed}{fix}")
    return tuple(checks.integer("from_state", "shape", n, 1) for n in listed)


class _Description(Draft):
    """A draft of described layers, and the names of the state that they used."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        self.state, self.label = state, ""
        self.used: set[str] = set()

    def run(self, layers: Any, x: str, where: str) -> str:
        """Add layers in order; return the name of the last result."""
        if isinstance(layers, (str, Mapping)) or not np.iterable(layers):
            raise TypeError(f"from_state: layers must be a list of dicts, got {type(layers).__name__}")
        for i, layer in enumerate(layers):
            text = f"{where}{i}"
            if not isinstance(layer, Mapping) or layer.get("type") not in _LAYERS:
                got = layer.get("type") if isinstance(layer, Mapping) else layer
                raise ValueError(f"from_state: {text} must be a dict whose 'type' is one of {', '.join(_LAYERS)}, "
                                 f"got {got!r}")  # fmt: skip
            build, options = _LAYERS[layer["type"]], {k: v for k, v in layer.items() if k != "type"}
            self.label = f"{text} ({layer['type']})"
            takes = list(inspect.signature(build).parameters.values())[2:]
            unknown = [k for k in options if k not in {p.name for p in takes}]
            missing = [p.name for p in takes if p.default is p.empty and p.name not in options]
            if unknown or missing:
                wrong = f"has {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}"
                raise ValueError(
                    f"from_state: {self.label} {wrong}; it takes {', '.join(p.name for p in takes) or 'none'}"
                )
            x = build(self, x, **options)
        return x

    def add(self, op: str, *operands: Any, **attributes: Any) -> str:
        """Add an operator of the layer; return the name of its result."""
        return self.step(op, self.label, *operands, **attributes)

    def array(self, name: str, required: bool = True) -> Array | None:
        """Return an array of the state as float32; None if it is missing and not required."""
        if name not in self.state:
            if not required:
                return None
            near = difflib.get_close_matches(name, self.state, 3, 0.0)
            raise ValueError(f"from_state: {self.label} needs {name!r}, which the state lacks; it has "
                             f"{', '.join(map(repr, near)) or 'none'}")  # fmt: skip
        self.used.add(name)
        value = self.state[name]
        a = np.ascontiguousarray(value.detach() if hasattr(value, "detach") else value, np.float32)
        if not np.isfinite(a).all():
            raise ValueError(f"from_state: {name!r} has a NaN or an infinity")
        return a

    def weights(self, name: str, kind: Any) -> str:
        """Add the weight of a layer, integers and scales where it has them; return the name of its values."""
        w = self.array(f"{name}.weight")
        assert w is not None
        if kind in _NAMED or (type(kind) is int and 1 <= kind <= 7):
            whole, scale = integers_of(w, kind)
            return self.add("DequantizeLinear", whole, scale.astype(np.float32), axis=0)
        if callable(kind):
            w = np.asarray(kind(w), np.float32)
        elif kind is not None:
            raise ValueError(f"from_state: {self.label}: weights must be None, a function, 'sign', 'int8' or 1 to 7, "
                             f"got {kind!r}")  # fmt: skip
        held = constant(w, 0)
        if held.integers is None or held.scale is None:
            return self.constant(w)
        scale = np.broadcast_to(held.scale.reshape(-1), len(w)).astype(np.float32)
        return self.add("DequantizeLinear", held.integers.astype(np.int32), scale, axis=0)

    def number(self, x: Any) -> Array:
        """Return a number, an array, or the array of the state by its name."""
        return np.asarray(self.array(x) if isinstance(x, str) else x, np.float32)

    def check_used(self) -> None:
        """Raise ValueError that lists arrays which no layer takes."""
        left = [n for n in self.state if n not in self.used and not n.endswith(_IGNORED)]
        if left:
            raise ValueError(f"from_state: no layer takes {', '.join(map(repr, left[:8]))} of the state")


def _pair(d: _Description, name: str, value: Any, axes: int, least: int = 1) -> tuple[int, ...]:
    """Return an option of a layer as a number for each axis."""
    listed = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    listed = listed * axes if len(listed) == 1 else listed
    if len(listed) != axes or not all(isinstance(v, (int, np.integer)) and v >= least for v in listed):
        numbers = f"an integer from {least}, or {axes} of them" if axes > 1 else f"an integer from {least}"
        raise ValueError(f"from_state: {d.label}: {name} must be {numbers}, got {value!r}")
    return tuple(int(v) for v in listed)


def _conv(
    d: _Description, x: str, name: str, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    weights: Any = None,
) -> str:  # fmt: skip
    w = d.array(f"{name}.weight")
    assert w is not None
    n = w.ndim - 2
    strides, dilations = _pair(d, "stride", stride, n), _pair(d, "dilation", dilation, n)
    if padding in ("same", "valid"):
        if padding == "same" and set(strides) != {1}:
            raise ValueError(f"from_state: {d.label}: padding 'same' needs stride 1, got {stride!r}")
        whole = [(k - 1) * by * (padding == "same") for k, by in zip(w.shape[2:], dilations, strict=True)]
        pads = (*(width // 2 for width in whole), *(width - width // 2 for width in whole))
    else:
        pads = _pair(d, "padding", padding, n, 0) * 2
    window = {"strides": strides, "dilations": dilations, "kernel_shape": w.shape[2:]}
    a = {**window, "pads": pads, "group": _pair(d, "groups", groups, 1)[0]}
    y, bias = d.add("Conv", x, d.weights(name, weights), **a), d.array(f"{name}.bias", False)
    return y if bias is None else d.add("Add", y, bias.reshape(-1, *(1,) * n))


def _linear(d: _Description, x: str, name: str, weights: Any = None) -> str:
    y, bias = d.add("Gemm", x, d.weights(name, weights), transB=1), d.array(f"{name}.bias", False)
    return y if bias is None else d.add("Add", y, bias)


def _norm(d: _Description, x: str, name: str, epsilon: float = 1e-5) -> str:
    mean, var = (d.array(f"{name}.running_{part}") for part in ("mean", "var"))
    assert mean is not None
    factor, offset = d.array(f"{name}.weight", False), d.array(f"{name}.bias", False)
    factor = np.ones_like(mean) if factor is None else factor
    offset = np.zeros_like(mean) if offset is None else offset
    return d.add("BatchNormalization", x, factor, offset, mean, var, epsilon=float(epsilon))


def _sign(d: _Description, x: str) -> str:
    return d.add("BipolarQuant", x, np.float32(1))


def _quantize(
    d: _Description, x: str, bits: int, scale: Any, zero: Any = 0, signed: bool = True, narrow: bool = False
) -> str:
    a = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": "ROUND"}
    return d.add("Quant", x, d.number(scale), d.number(zero), np.float32(bits), **a)


def _dorefa(d: _Description, x: str, bits: int) -> str:
    return _quantize(d, _clip(d, x, 0.0, 1.0), bits, 1 / (2**bits - 1), signed=False)


def _clip(d: _Description, x: str, low: float, high: float) -> str:
    return d.add("Clip", x, np.float32(low), np.float32(high))


def _relu(d: _Description, x: str) -> str:
    return d.add("Relu", x)


def _prelu(d: _Description, x: str, name: str, axes: int = 2) -> str:
    slope = d.array(f"{name}.weight")
    assert slope is not None
    return d.add("PRelu", x, slope.reshape(-1, *(1,) * axes))


def _pool(op: str) -> Callable[..., str]:
    def build(d: _Description, x: str, size: Any, stride: Any = None, padding: Any = 0, axes: int = 2) -> str:
        kernel, pads = _pair(d, "size", size, axes), _pair(d, "padding", padding, axes, 0) * 2
        strides = kernel if stride is None else _pair(d, "stride", stride, axes)
        counted = {"count_include_pad": 1} if op == "AveragePool" else {}
        return d.add(op, x, kernel_shape=kernel, strides=strides, pads=pads, **counted)

    return build


def _global_pool(d: _Description, x: str) -> str:
    return d.add("Flatten", d.add("GlobalAveragePool", x), axis=1)


def _flatten(d: _Description, x: str) -> str:
    return d.add("Flatten", x, axis=1)


def _residual(d: _Description, x: str, layers: Any, shortcut: Any = ()) -> str:
    label = d.label
    inner, around = d.run(layers, x, f"{label}, layer "), d.run(shortcut, x, f"{label}, shortcut ")
    d.label = label
    return d.add("Add", inner, around)


_LAYERS: dict[str, Callable[..., str]] = {
    "conv": _conv,
    "linear": _linear,
    "norm": _norm,
    "sign": _sign,
    "quantize": _quantize,
    "dorefa": _dorefa,
    "clip": _clip,
    "relu": _relu,
    "prelu": _prelu,
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AveragePool"),
    "global_pool": _global_pool,
    "flatten": _flatten,
    "residual": _residual,
}
