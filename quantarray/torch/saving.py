"""Choose the form of each tensor that autograd saves, and hold it once however many functions save it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import gpu
from .operations import CONVOLUTIONS, DROPOUT, LOSSES, PRODUCTS, Call, is_weight, window_of
from .packed_products import is_known_product
from .reads import READS, Read, operator_of
from .sensitivity import Record
from .stored import (
    Beside,
    LogProbabilities,
    Negative,
    Places,
    Shape,
    Stored,
    Whole,
    flattened,
    in_host_memory,
    signs_of,
    two_valued,
)

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# The least bits of what is rounded: errors of what a smooth function reads bias its gradients, by their square
_ROUNDED = {
    Read.VALUE: 1,
    Read.NORM: 1,
    Read.NEGATIVE: 1,
    Read.CURVE: 8,
    Read.FLAT: 8,
    Read.DIFFERENCE: 8,
    Read.BEND: 8,
    Read.PROBABILITY: 8,
}
_FLAT = 20.0  # from which on derivatives of FLAT and BEND are constant in float32
_PRUNED = 256  # entries from which on those of freed tensors are dropped
_SAMPLE = 64  # elements that tell that most tensors have more than two values


class Rules(NamedTuple):
    """A set of rules: which tensors are packed."""

    least: int  # elements of the smallest tensor that is packed
    convolutions_only: bool
    offload: bool  # words of a GPU's tensors wait in host memory


class Form:
    """A tensor's form, which several saved tensors may share, and the record of its gradients."""

    __slots__ = ("__weakref__", "record", "stored")

    def __init__(self, stored: Stored, record: Record | None = None) -> None:
        self.stored, self.record = stored, record


class Saved:
    """A saved tensor, as it is until its function's node is known, and then in a form.

    It keeps a tensor without memory that shares the version of the one saved.
    """

    __slots__ = (
        "__weakref__",
        "call",
        "first",
        "form",
        "layer",
        "of_product",
        "pending",
        "version",
        "weight",
        "witness",
    )

    def __init__(self, tensor: torch.Tensor, layer: Any, call: Call | None) -> None:
        if is_plain(tensor) and tensor.grad_fn is not None:
            with torch._C.DisableTorchFunction():
                tensor = tensor.detach()  # a node would own the result that it saves, and the result owns its node
        self.form, self.layer, self.version, self.witness = Form(Whole(tensor, 0)), layer, tensor._version, tensor
        self.call = "" if call is None else call.name
        self.of_product = self.call in PRODUCTS
        self.weight = call is not None and self.of_product and is_weight(call, tensor)
        self.first = self.pending = False

    @property
    def stored(self) -> Stored:
        """Return the form."""
        return self.form.stored

    def settle(self, form: Form) -> None:
        """Wait in a form from now on."""
        self.form, self.pending = form, False
        if not isinstance(form.stored, Whole):
            empty = torch.empty(0, dtype=self.witness.dtype, device=self.witness.device)
            self.witness = self.witness.detach()
            self.witness.data = empty

    def restore(self) -> torch.Tensor:
        """Return the tensor for the backward pass; RuntimeError if the one saved was changed in place since."""
        if self.witness._version != self.version:
            raise RuntimeError(
                f"compressed_activations: a tensor saved by {self.layer.name} was changed in place before the backward "
                f"pass: version {self.version} was saved, it is at {self.witness._version}; change a copy of it"
            )
        with torch.no_grad():
            return self.stored.restore()


def is_plain(tensor: torch.Tensor) -> bool:
    """True for a tensor of dense memory: not sparse, quantised, nested, meta, of a subclass, or functorch's wrapper."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_neg() or tensor._is_zerotensor())
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


class Node(NamedTuple):
    """A node of autograd's graph, and the tensors that it saves, by name."""

    node: Any
    tensors: Mapping[str, Saved]

    @property
    def operator(self) -> str:
        """Return the name of its operator, such as "Relu"."""
        return operator_of(self.node.name())

    def reads(self, name: str) -> Read:
        """Return what its backward pass reads of the tensor that it saves as `name`."""
        if is_known_product(self.node):
            return Read.VALUE if name == "tensors0" else Read.EXACT
        read = READS.get(f"{self.operator}.{name}", Read.EXACT)
        if read is Read.NEGATIVE and self.node.next_functions[1][0] is None:
            return Read.SIGN  # as its weights have no gradient
        if read is Read.BEND and self.node._saved_input_scale != 1:
            return Read.EXACT  # it may bend far below -20
        if name == "noise" and not self.node._saved_training:
            return Read.NOTHING  # RReLU's slopes are random in training alone
        saved = self.tensors[name]
        of_loss = saved.call in LOSSES and read in _ROUNDED and read is not Read.PROBABILITY
        return Read.EXACT if saved.weight or of_loss or read is Read.EQUALITY else read

    def bound(self, name: str) -> Saved | float | None:
        """Return a bound of a clamp: what is saved of a tensor, a number, or None."""
        number = None if name in self.tensors else getattr(self.node, f"_saved_{name}", None)
        return self.tensors.get(name, None if number is None else float(number))


def form_of(
    node: Node,
    name: str,
    read: Read,
    rules: Rules,
    round_off: Callable[[torch.Tensor, int], Stored],
    check: Callable[[torch.Tensor], None],
) -> Stored:
    """Return the tensor that a node saves as `name` in a form of which its backward pass can read what it reads.

    round_off(tensor, least) rounds one whose values matter, to `least` bits or more, and check(tensor) sees that
    another is finite.
    """
    tensor, call = node.tensors[name].witness, node.tensors[name].call
    whole = Whole(tensor, tensor.nbytes)
    if rules.convolutions_only and call not in CONVOLUTIONS:
        return whole
    if not (tensor.device.type == "cpu" or gpu.on_gpu(tensor)):
        return whole
    stored = _shaped(node, tensor, read)
    if stored is None and tensor.numel() >= rules.least and _is_dense(tensor):
        if tensor.dtype == torch.bool:
            stored = two_valued(tensor, 0, 1, torch.bool)
        elif tensor.dtype in _FLOATS and read in _ROUNDED:
            exact = _two_values(tensor) if call in DROPOUT or not gpu.on_gpu(tensor) else None
            stored = exact or _rounded(tensor, read, round_off)
        elif tensor.dtype in _FLOATS and read is not Read.EXACT:
            check(tensor)
            stored = _compared(node, tensor, read)
    if stored is None:
        return whole
    return in_host_memory(stored) if rules.offload and gpu.on_gpu(tensor) else stored


def _shaped(node: Node, tensor: torch.Tensor, read: Read) -> Stored | None:
    """Return the form of a tensor whose values are not read, or are indices; None for others."""
    if read is Read.NOTHING:
        return Shape(tensor.shape, tensor.dtype, tensor.device)
    if read is Read.INDEX:
        window = window_of(node.node, node.tensors["self"].witness.shape[-1])
        return Places(window.local(tensor), window, tensor.device) if math.prod(window.size) <= 256 else None
    return None


def _rounded(tensor: torch.Tensor, read: Read, round_off: Callable[[torch.Tensor, int], Stored]) -> Stored:
    """Return the form of a tensor whose values are read."""
    bits = _ROUNDED[read]
    if read is Read.PROBABILITY:
        return LogProbabilities(round_off(tensor.exp(), bits))
    if read in (Read.NEGATIVE, Read.BEND):
        magnitudes = tensor.neg().clamp(0, _FLAT if read is Read.BEND else None)
        return Negative(two_valued(tensor > 0, 0, 1, tensor.dtype), round_off(magnitudes, bits))
    # An element that is far off would make steps of its group too large for the others
    return round_off(tensor.clamp(-_FLAT, _FLAT) if read is Read.FLAT else tensor, bits)


def _compared(node: Node, tensor: torch.Tensor, read: Read) -> Stored | None:
    """Return the form of a tensor whose sign is read, or its side of bounds; None for bounds that are not finite."""
    if read is Read.SIGN:
        return two_valued(tensor > 0, 0, 1, tensor.dtype)
    if read is Read.SIGNUM:
        return signs_of(tensor > 0, tensor < 0, tensor.dtype)
    if read is Read.MASK:
        low, high = _BOUNDS[node.operator](node.node)
        # The derivative itself is taken, as each kernel rounds bounds differently
        passes = node.node(torch.ones_like(tensor)) > 0
        inside = ~passes if "shrink" in node.operator else passes
        top = high if math.isfinite(high) else None
        return _outside(inside, tensor.dtype, low, top) if math.isfinite(low) else None
    ends = ("other", "other") if "other" in node.tensors else ("min", "max")
    bounds = [node.bound(end) for end in ends]
    values = [bound.restore() if isinstance(bound, Saved) else bound for bound in bounds]
    if not all(_is_comparable(value, tensor) for value in values):
        return None
    none = torch.zeros_like(tensor, dtype=torch.bool)
    below = none if values[0] is None else tensor < values[0]
    above = none if values[1] is None else tensor > values[1]
    if ends[0] == "other" or any(after is not None for after, _ in node.node.next_functions[1:]):
        return Beside(signs_of(above, below, tensor.dtype), *bounds)
    return _outside(~(below | above), tensor.dtype, *bounds)


def _outside(inside: torch.Tensor, dtype: torch.dtype, low: Any, high: Any) -> Beside:
    """Pack a bit an element: inside of bounds, or outside of one that is there."""
    return Beside(two_valued(inside, -1 if high is None else 1, 0, dtype), low, high)


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


def _two_values(tensor: torch.Tensor) -> Stored | None:
    """Pack a tensor of two values at most, such as signs and masks times a number, exactly; None for others."""
    flat = flattened(tensor.detach())[0]
    low, high = (float(end) for end in flat[:_SAMPLE].aminmax())
    if bool(((flat[:_SAMPLE] != low) & (flat[:_SAMPLE] != high)).any()):
        return None
    low, high = (float(end) for end in flat.aminmax())
    step = torch.tensor(high) - low
    exact = math.isfinite(low) and float(step + low) == high
    flags = tensor == high
    return two_valued(flags, low, high, tensor.dtype) if exact and bool((flags | (tensor == low)).all()) else None


def _is_dense(tensor: torch.Tensor) -> bool:
    """True for a tensor in memory of its own size: an expanded one is cheaper as it is."""
    return all(n <= 1 or step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


class Holder:
    """A table of the tensors that a context saved, by their storage: one that several functions save is packed once."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Any, ...], tuple[StorageWeakRef, Any]] = {}

    def find(self, tensor: torch.Tensor, kind: tuple[Any, ...]) -> Any:
        """Return what `keep` was last called with for a tensor of this memory, version and kind, if both live."""
        entry = self._entries.get(_key(tensor, kind))
        return None if entry is None or entry[0].expired() else entry[1]()

    def keep(self, tensor: torch.Tensor, kind: tuple[Any, ...], value: Callable[[], Any]) -> None:
        """Keep a value, or a weak reference to one, while the tensor's memory lives."""
        if len(self._entries) >= _PRUNED:
            live = {key: e for key, e in self._entries.items() if not e[0].expired() and e[1]() is not None}
            self._entries = live
        self._entries[_key(tensor, kind)] = StorageWeakRef(tensor.untyped_storage()), value

    def clear(self) -> None:
        """Forget all tensors."""
        self._entries = {}


def weak(value: Any) -> Callable[[], Any]:
    """Return a weak reference, as `Holder.keep` takes it."""
    return weakref.ref(value)


def _key(tensor: torch.Tensor, kind: tuple[Any, ...]) -> tuple[Any, ...]:
    # A weak reference keeps the storage's handle, so that no other storage has this number while an entry is there
    handle = tensor.untyped_storage()._cdata
    return handle, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor._version, *kind
