"""Know each saved tensor by its memory: one that several functions save has one form, of the strictest need."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import torch

from ..core.dtypes import Array


class Levels(NamedTuple):
    """A table float32[rows levels] of all values that some memory has, in ascending order, in one version.

    The memory is as many rows of equal length, each with levels of its own.
    """

    table: Array
    version: int
    size: int


class View:
    """A view of some memory in one version: the layer that saved it first, its forms, and who holds it as it is.

    forms: by kind, and those that are not shared under kinds of their own. pending: saved tensors that wait for a form.
    exact: true once one will not get any; all others are then held by the same tensor. levels: all values that it may
    have, if a quantiser has made it.
    """

    exact, pending = False, 0
    alone = 1  # the key of the last form that is not shared; those below are of forms that are
    layer: Any
    nbytes: int
    forms: dict[Any, Any]
    levels: Levels | None


class _Reference(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage, with its key, its views by place and version, and the levels of its values."""

    __slots__ = ("key", "levels", "views")

    key: int
    levels: Levels | None
    views: dict[Any, View]


class Holder:
    """A table of the memory of saved tensors. PyTorch has one object for each storage, whose end removes its entry."""

    def __init__(self) -> None:
        self._storages: dict[int, _Reference] = {}

    def view(self, tensor: torch.Tensor, stride: tuple[int, ...], layer: Any) -> View:
        """Return what is known of a tensor of a stride; `layer` has saved it first where nothing is."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            reference = self._storages[key]
        else:  # as `_refer` does; a call for each saved tensor counts
            reference = self._storages[key] = _Reference(storage, self._forget)
            reference.key, reference.views, reference.levels = key, {}, None
        views, levels = reference.views, reference.levels
        place = tensor.storage_offset(), tensor.shape, stride, tensor._version, tensor.dtype
        if place not in views:
            views[place] = view = View()
            view.layer, view.nbytes, view.forms = layer, tensor.nbytes, {}
            view.levels = levels if levels is not None and levels.version == place[3] else None
            layer.before += view.nbytes
        elif views[place].layer is not layer:
            layer.share(views[place].layer)
        return views[place]

    def note(self, tensor: torch.Tensor, table: torch.Tensor) -> None:
        """Note the levels [rows levels] of a tensor, each row's in any order, which has memory of its own."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        reference = self._storages[key] if key in self._storages else self._refer(storage, key)
        rounded = table.to(tensor.dtype).float().sort(dim=1).values.numpy()
        reference.levels = Levels(rounded, tensor._version, tensor.numel())

    def follow(self, values: torch.Tensor, copy: torch.Tensor) -> None:
        """Note for a copy the levels of the values that it was made of."""
        key = values.untyped_storage()._cdata
        levels = self._storages[key].levels if key in self._storages else None
        if levels is not None:
            self.note(copy, torch.from_numpy(levels.table))

    def _refer(self, storage: torch.UntypedStorage, key: int) -> _Reference:
        reference = self._storages[key] = _Reference(storage, self._forget)
        reference.key, reference.views, reference.levels = key, {}, None
        return reference

    def _forget(self, reference: Any) -> None:
        if reference.key in self._storages and self._storages[reference.key] is reference:
            del self._storages[reference.key]

    def clear(self) -> None:
        """Forget all tensors."""
        self._storages = {}


class _Active(threading.local):
    """A thread's holders of the contexts that it is in, the innermost last."""

    def __init__(self) -> None:
        self.holders: list[Holder] = []


ACTIVE = _Active()
