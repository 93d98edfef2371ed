"""Choose the form of each tensor that autograd saves, by what its function's backward pass reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from . import gpu
from .holder import View
from .host import Packer
from .layout import Layout
from .operations import Saving
from .reads import Read, operator_of
from .rounding import Rounding
from .stored import (
    Beside,
    LogProbabilities,
    Negative,
    Places,
    Shape,
    Stored,
    beyond,
    in_host_memory,
    signs_of,
    two_valued,
)
from .windows import window_of

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_FLAT = 20.0  # from which on derivatives of FLAT and BEND are constant in float32
LOOKED = 1 << 22  # elements packed or restored after which the memory of the process is looked at
_ABOVE_0 = float(np.nextafter(np.float32(0), np.float32(1)))
_LARGEST = torch.finfo(torch.float32).max
_SAMPLE = 8  # elements that tell that most tensors have more than two values
_BATCH_NORMS = frozenset(
    f"{name}.input" for name in ("BatchNormWithUpdate", "CudnnBatchNorm", "MiopenBatchNorm", "NativeBatchNorm")
)


class Rules(NamedTuple):
    """A set of rules: which tensors are packed."""

    least: int  # elements of the smallest tensor that is packed
    norms: bool  # inputs of batch norms too
    offload: bool  # words of a GPU's tensors wait in host memory


class Form:
    """A tensor's form, which several saved tensors may share, the layer that it counts for, and that layer's bits."""

    __slots__ = ("bits", "layer", "record", "stored")  # without __init__, a call less for each saved tensor

    bits: int
    layer: Any
    record: Any
    stored: Stored


class Saved:
    """A saved tensor: `witness` as it is, and without memory once it has a form.

    The witness shares the version of the tensor that is saved. view: what the holder knows of it; None for parameters
    and tensors without plain memory, which stay as they are.
    """

    __slots__ = ("context", "form", "layer", "layout", "of_loss", "version", "view", "witness")

    layout: Layout

    def __init__(self, witness: torch.Tensor, layer: Any, context: Any = None) -> None:
        self.witness, self.layer, self.context, self.version = witness, layer, context, witness._version
        self.form: Form | None = None
        self.view: View | None = None
        self.of_loss = False

    def restore(self) -> torch.Tensor:
        """Return the tensor for the backward pass; RuntimeError if the one saved was changed in place since."""
        witness = self.witness
        if witness._version != self.version:
            raise RuntimeError(
                f"compressed_activations: a tensor saved by {self.layer.name} was changed in place before the backward "
                f"pass: version {self.version} was saved, it is at {witness._version}; change a copy of it"
            )
        if self.form is None:
            return witness
        if witness.device.type == "cpu":
            self.context.freed += self.layout.size
            if self.context.freed >= LOOKED:
                self.context.look()
        return self.form.stored.restore()


class _Empty(dict[tuple[torch.dtype, torch.device], torch.Tensor]):
    """A table of tensors without elements."""

    def __missing__(self, kind: tuple[torch.dtype, torch.device]) -> torch.Tensor:
        self[kind] = empty = torch.empty(0, dtype=kind[0], device=kind[1])
        return empty


EMPTY = _Empty()


class _Plain(dict[int, bool]):
    """A table that tells by a tensor's set of dispatch keys if it has dense memory, and is no wrapper."""

    def ask(self, tensor: torch.Tensor, keys: int) -> bool:
        """Return False for one that is sparse, quantised, nested, meta, or functorch's wrapper, and note it."""
        self[keys] = plain = (
            tensor.layout == torch.strided
            and tensor.device.type != "meta"
            and not (tensor.is_quantized or tensor.is_nested or tensor.is_neg() or tensor._is_zerotensor())
            and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        )
        return plain


PLAIN = _Plain()


def what_is_read(node: Any, saving: Saving) -> Read:
    """Return what the backward pass of a node reads, where that depends on the node."""
    if saving.read is Read.NEGATIVE and node.next_functions[1][0] is None:
        return Read.SIGN  # as its weights have no gradient
    if saving.read is Read.BEND and node._saved_input_scale != 1:
        return Read.EXACT  # it may bend far below -20
    if saving.name == "RreluWithNoise.noise" and not node._saved_training:
        return Read.NOTHING  # RReLU's slopes are random in training alone
    return saving.read


def saved_as(node: Any, name: str) -> Saved | None:
    """Return what a node saves by a name, None for no tensor."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    return raw.data if raw is not None and isinstance(raw.data, Saved) else None


def _bound(node: Any, name: str) -> Saved | float | None:
    """Return a bound of a clamp: what is saved of a tensor, a number, or None."""
    number = getattr(node, f"_saved_{name}", None)
    return saved_as(node, name) or (None if number is None else float(number))


def form_of(node: Any, saving: Saving, saved: Saved, rules: Rules, rounding: Rounding, allocate: bool) -> Stored | None:
    """Return the tensor that a node saves in a form that has what its backward pass reads; None to leave it alone.

    allocate: round it to bits of its own. Raises ValueError for NaN and infinity.
    """
    tensor, layout, layer, on_gpu = saved.witness, saved.layout, saved.layer, gpu.on_gpu(saved.witness)
    read, packer = what_is_read(node, saving) if saving.depends else saving.read, None if on_gpu else rounding.packer
    stored: Stored | None = None
    if (not rules.norms and saving.name in _BATCH_NORMS) or not (on_gpu or tensor.device.type == "cpu"):
        return None
    if read is Read.NOTHING:
        stored = Shape(tensor.shape, tensor.dtype, tensor.device)
    elif read is Read.INDEX:
        stored = _places(node, tensor)
    elif layout.size < rules.least or not layout.dense or not layout.size:
        return None
    elif tensor.dtype is torch.bool:
        stored = two_valued(tensor, layout, 0, 1, torch.bool, packer)
    elif tensor.dtype in _FLOATS and read is not Read.EXACT:
        if saving.least and read is saving.read:
            sample = tensor
            while sample.ndim > 1:
                sample = sample[0]
            if packer is not None and not (sample.ndim and [*set(sample[:_SAMPLE].tolist())][2:]):
                stored = _two_values(tensor, layout, packer)
            bits = saving.least if saving.least > layer.bits else layer.bits
            if stored is None and read is Read.NORM:
                stored = rounding.of_norm(node, tensor, layout, bits, layer, packer)
            elif stored is None and saving.as_it_is:
                round_off = rounding.allocate if allocate else rounding.uniform
                stored = round_off(tensor, layout, bits, layer, packer)
            elif stored is None:
                stored = _rounded(tensor, layout, read, bits, layer, rounding, packer)
        else:
            stored = None if packer is None else _compared_at_once(node, tensor, layout, read, packer)
            if stored is None:
                if on_gpu or tensor.sum() * 0 != 0:  # NaN unless the sum is finite
                    rounding.unchecked.check(tensor, layer.name)
                stored = _compared(node, tensor, layout, read, packer)
    return in_host_memory(stored) if rules.offload and on_gpu and stored is not None else stored


def _places(node: Any, indices: torch.Tensor) -> Stored | None:
    """Return the form of indices of max pooling; None where the input's shape is not known, or windows are large."""
    x = saved_as(node, "self")
    if x is None or x.form is not None:
        return None
    axes = 3 if "3D" in node.__class__.__name__ else 2
    window = window_of(node, tuple(x.witness.shape[-axes:]), tuple(indices.shape[-axes:]))
    return None if window is None else Places(window.local(indices), window, indices.device)


def _rounded(
    tensor: torch.Tensor, layout: Layout, read: Read, bits: int, layer: Any, rounding: Rounding, packer: Packer | None
) -> Stored | None:
    """Return the form of a tensor of which a function is rounded; None if it is not rounded now."""
    if read is Read.PROBABILITY:
        probabilities = rounding.uniform(tensor.exp(), layout, bits, layer, packer)
        return None if probabilities is None else LogProbabilities(probabilities)
    if read is Read.FLAT:  # an element that is far off would make steps of its group too large for the others
        return rounding.uniform(tensor.clamp(-_FLAT, _FLAT), layout, bits, layer, packer)
    magnitudes = tensor.neg().clamp(0, _FLAT if read is Read.BEND else None)
    negative = rounding.uniform(magnitudes, layout, bits, layer, packer)
    positive = two_valued(tensor > 0, layout, 0, 1, tensor.dtype, packer)
    return None if negative is None else Negative(positive, negative)


def _compared_at_once(node: Any, tensor: torch.Tensor, layout: Layout, read: Read, packer: Packer) -> Stored | None:
    """Return the form of float32 whose sign or side of numbers is read, in one pass over it; None for others.

    Others are bounds between two floats, which each kernel rounds in its own way, and what is not finite.
    """
    if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
        return None
    if read is Read.SIGN:
        return packer.pack_compared(tensor, layout, _ABOVE_0, math.inf, True, (0.0, 1.0))
    interval: Interval | None = None
    if read is Read.MASK:
        operator = operator_of(node.name())
        interval = _interval(*_BOUNDS[operator](node), "shrink" in operator)
    elif read is Read.ORDER and saved_as(node, "other") is None:
        low, high = _bound(node, "min"), _bound(node, "max")
        if not isinstance(low, Saved) and not isinstance(high, Saved):
            interval = _interval(-math.inf if low is None else low, math.inf if high is None else high, True)
    if interval is None:
        return None
    return packer.pack_compared(tensor, layout, interval.first, interval.end, True, (interval.outside, interval.inside))


class Interval(NamedTuple):
    """Float32 numbers first <= x < end, and numbers that are inside and outside of it."""

    first: float
    end: float
    inside: float
    outside: float


@cache
def _interval(low: float, high: float, closed: bool) -> Interval | None:
    """Return the float32 numbers between bounds, with them if `closed`; None if float32 does not have the bounds."""
    bounds, above = np.array([low, high], np.float32), np.float32(np.inf)
    sides = _sides(None if low == -math.inf else low, None if high == math.inf else high, torch.float32)
    if sides is None or not (bounds == (low, high)).all():
        return None
    at = int(closed)
    if math.isfinite(bounds[at]):
        bounds[at] = np.nextafter(bounds[at], above)
    return Interval(float(bounds[0]), float(bounds[1]), sides[1], sides[0])


@cache
def _sides(low: float | None, high: float | None, dtype: torch.dtype) -> tuple[float, float] | None:
    """Return numbers outside of and between bounds, of which None is no bound; None where their steps would round."""
    if low is None and high is None:
        return None
    above = high is not None and (low is None or high < _LARGEST)
    outside = beyond(high, 1, dtype) if above else beyond(low, -1, dtype)
    if low is None or high is None:
        inside = beyond(high, -1, dtype) if low is None else beyond(low, 1, dtype)
    else:
        inside = low / 2 + high / 2
    first = np.float32(outside)
    back = torch.tensor([first, first + (np.float32(inside) - first)]).to(dtype).tolist()  # as they are restored
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return (outside, inside) if least < back[1] < most and not least <= back[0] <= most else None


def _compared(node: Any, tensor: torch.Tensor, layout: Layout, read: Read, packer: Packer | None) -> Stored | None:
    """Return the form of a tensor whose sign is read, or its side of bounds; None for bounds that are not finite."""
    dtype = tensor.dtype
    if read is Read.SIGN:
        return two_valued(tensor > 0, layout, 0, 1, dtype, packer)
    if read is Read.SIGNUM:
        return signs_of(tensor > 0, tensor < 0, layout, dtype, packer)
    if read is Read.MASK:
        operator = operator_of(node.name())
        low, high = _BOUNDS[operator](node)
        # The derivative itself is taken, as each kernel rounds bounds differently
        with torch.no_grad():
            passes = node(torch.ones_like(tensor)) > 0
        inside = ~passes if "shrink" in operator else passes
        top = high if math.isfinite(high) else None
        return _outside(inside, layout, dtype, low, top, packer) if math.isfinite(low) else None
    ends = ("other", "other") if saved_as(node, "other") is not None else ("min", "max")
    lowest, highest = bounds = [_bound(node, end) for end in ends]
    values = [bound.restore() if isinstance(bound, Saved) else bound for bound in bounds]
    if not all(_is_comparable(value, tensor) for value in values):
        return None
    none = torch.zeros_like(tensor, dtype=torch.bool)
    below = none if values[0] is None else tensor < values[0]
    above = none if values[1] is None else tensor > values[1]
    if ends[0] == "other" or any(after is not None for after, _ in node.next_functions[1:]):
        return Beside(signs_of(above, below, layout, dtype, packer), lowest, highest)
    return _outside(~(below | above), layout, dtype, lowest, highest, packer)


def _outside(
    inside: torch.Tensor, layout: Layout, dtype: torch.dtype, low: Any, high: Any, packer: Packer | None
) -> Stored:
    """Pack a bit an element: inside of bounds, or outside of one that is there."""
    if not isinstance(low, Saved) and not isinstance(high, Saved):
        sides = _sides(low, high, dtype)
        if sides is not None:
            return two_valued(inside, layout, *sides, dtype, packer)
    return Beside(two_valued(inside, layout, -1 if high is None else 1, 0, dtype, packer), low, high)


_BOUNDS: dict[str, Callable[[Any], tuple[float, float]]] = {
    "Hardshrink": lambda node: (-node._saved_lambd, float(node._saved_lambd)),
    "Hardsigmoid": lambda node: (-3.0, 3.0),
    "Hardtanh": lambda node: (float(node._saved_min_val), float(node._saved_max_val)),
    "Softshrink": lambda node: (-node._saved_lambd, float(node._saved_lambd)),
    "Threshold": lambda node: (float(node._saved_threshold), math.inf),
}


def _is_comparable(bound: torch.Tensor | float | None, tensor: torch.Tensor) -> bool:
    """True for no bound, a finite number, and tensors of the same dtype that broadcast to a tensor's shape."""
    if not isinstance(bound, torch.Tensor):
        return bound is None or math.isfinite(bound)
    pairs = zip(bound.shape[::-1], tensor.shape[::-1], strict=False)
    return bound.dtype == tensor.dtype and bound.ndim <= tensor.ndim and all(n in (1, size) for n, size in pairs)


def _two_values(tensor: torch.Tensor, layout: Layout, packer: Packer) -> Stored | None:
    """Pack a tensor of two values at most, such as signs and masks times a number, exactly; None for others."""
    low, high = map(float, tensor.aminmax())
    step = torch.tensor(high) - low
    if not math.isfinite(low) or float(step + low) != high:
        return None
    if tensor.dtype is torch.float32 and tensor.device.type == "cpu":
        above = float(np.nextafter(np.float32(low), np.float32(np.inf)))
        return packer.pack_compared(tensor, layout, above, high, False, (low, high))
    flags = tensor == high
    return two_valued(flags, layout, low, high, tensor.dtype, packer) if (flags | (tensor == low)).all() else None
