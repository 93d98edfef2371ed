"""Know each saved tensor by its memory: one that several functions save has one form, of the strictest need."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class View:
    """A view of some memory in one version: the layer that saved it first, its forms, and who holds it as it is.

    forms: by kind, and those that are not shared under kinds of their own. pending: saved tensors that wait for a form.
    exact: true once one will not get any; all others are then held by the same tensor.
    """

    exact, pending = False, 0
    alone = 1  # the key of the last form that is not shared; those below are of forms that are
    layer: Any
    nbytes: int
    forms: dict[Any, Any]


class _Reference(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage, with its key, and its views by place and version."""

    __slots__ = ("key", "views")

    key: int
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
            views = self._storages[key].views
        else:
            views = {}
            reference = _Reference(storage, self._forget)
            reference.key, reference.views = key, views
            self._storages[key] = reference
        place = tensor.storage_offset(), tensor.shape, stride, tensor._version, tensor.dtype
        if place not in views:
            views[place] = view = View()
            view.layer, view.nbytes, view.forms = layer, tensor.nbytes, {}
            layer.before += view.nbytes
        elif views[place].layer is not layer:
            layer.share(views[place].layer)
        return views[place]

    def _forget(self, reference: Any) -> None:
        if reference.key in self._storages and self._storages[reference.key] is reference:
            del self._storages[reference.key]

    def clear(self) -> None:
        """Forget all tensors."""
        self._storages = {}
