"""Choose the form of each tensor that autograd saves, and hold it once however many functions save it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import gpu
from .operations import (
    ATTENTION,
    CLIPPED,
    CONVOLUTIONS,
    DROPOUT,
    LOG_SOFTMAX,
    MAX_POOL,
    PRODUCTS,
    RELU,
    Call,
    bounds_of,
    is_weight,
    kind_of,
    window_of,
)
from .sensitivity import Record
from .stored import LogProbabilities, PackedOnGpu, Places, Shape, Stored, Whole, two_valued

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# Fused attention computes exp(q . k) anew, which errors of few bits would multiply; probabilities go into all gradients
_LEAST_BITS = 8
_PRUNED = 256  # entries from which on those of freed tensors are dropped


class Rules(NamedTuple):
    """A set of rules: which tensors are packed."""

    least: int  # elements of the smallest tensor that is packed
    convolutions_only: bool
    offload: bool  # words of a GPU's tensors wait in host memory


class Saved:
    """A saved tensor's form, and a tensor without memory that shares the version of the one saved."""

    __slots__ = ("__weakref__", "layer", "record", "stored", "version", "witness")

    def __init__(self, tensor: torch.Tensor, stored: Stored, layer: str, record: Record | None = None) -> None:
        self.stored, self.layer, self.version, self.record = stored, layer, tensor._version, record
        self.witness = tensor.detach()
        self.witness.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)

    def restore(self) -> torch.Tensor:
        """Return the tensor for the backward pass; RuntimeError if the one saved was changed in place since."""
        if self.witness._version != self.version:
            raise RuntimeError(
                f"compressed_activations: a tensor saved by {self.layer} was changed in place before the backward "
                f"pass: version {self.version} was saved, it is at {self.witness._version}; change a copy of it"
            )
        return self.stored.restore()


def form_of(
    tensor: torch.Tensor,
    call: Call | None,
    rules: Rules,
    round_off: Callable[[torch.Tensor, int], Stored],
    check: Callable[[torch.Tensor], None],
) -> Stored:
    """Return a tensor in the form that its function's backward pass can do with.

    round_off(tensor, least) rounds one whose values matter, to `least` bits or more, and check(tensor) sees that
    another is finite.
    """
    stored = _packed_form(tensor, call, rules, round_off, check)
    if rules.offload and isinstance(stored, (PackedOnGpu, LogProbabilities, Places)) and gpu.on_gpu(tensor):
        return stored.in_host_memory()
    return stored


def _packed_form(
    tensor: torch.Tensor,
    call: Call | None,
    rules: Rules,
    round_off: Callable[[torch.Tensor, int], Stored],
    check: Callable[[torch.Tensor], None],
) -> Stored:
    name = "" if call is None else call.name
    whole = Whole(tensor, tensor.nbytes)
    if rules.convolutions_only and name not in CONVOLUTIONS:
        return whole
    if not (tensor.device.type == "cpu" or gpu.on_gpu(tensor)):
        return whole
    if name == MAX_POOL and call is not None:
        return _of_pooling(tensor, call, whole)
    if tensor.numel() < rules.least or not _is_dense(tensor):
        return whole
    if tensor.dtype == torch.bool:
        return two_valued(tensor, 0, 1, torch.bool)
    kind = kind_of(call, tensor)
    if kind == "loss":
        return whole
    if kind == LOG_SOFTMAX:
        return LogProbabilities(round_off(tensor.exp(), _LEAST_BITS))
    if tensor.dtype not in _FLOATS or (name in PRODUCTS and call is not None and is_weight(call, tensor)):
        return whole
    if name in RELU and not (name == "threshold" and call is not None and call.argument(1, "threshold") != 0):
        check(tensor)
        return two_valued(tensor > 0, 0, 1, tensor.dtype)
    if name in CLIPPED and call is not None:
        low, high = bounds_of(call)
        check(tensor)
        return two_valued((tensor > low) & (tensor < high), low, (low + high) / 2, tensor.dtype)
    if name in DROPOUT:
        top = tensor.max()
        flags = tensor == top
        if bool((flags | (tensor == 0)).all()):
            return two_valued(flags, 0, top.item(), tensor.dtype)
    return round_off(tensor, _LEAST_BITS if name in ATTENTION else 1)


def _of_pooling(tensor: torch.Tensor, call: Call, whole: Whole) -> Stored:
    """Return indices as places within windows; of the input the backward pass reads the shape."""
    if tensor.dtype in _FLOATS or tensor.dtype == torch.float64:
        return Shape(tensor.shape, tensor.dtype, tensor.device)
    window = window_of(call)
    if window.size[0] * window.size[1] > 256:
        return whole
    return Places(window.local(tensor), window, tensor.device)


def _is_dense(tensor: torch.Tensor) -> bool:
    """True for a tensor in memory of its own size: an expanded one is cheaper as it is."""
    return tensor.layout == torch.strided and all(
        n <= 1 or step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


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
