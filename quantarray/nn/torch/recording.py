"""Record the ATen operations of one call of a module, as calls on values without side effects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..onnx.tensors import Refused
from .fake_quantising import with_numbers
from .weight_only import Stored

_SAME = frozenset("detach alias clone lift_fresh lift contiguous view_as _reshape_alias".split())
_BLANK = frozenset("new_zeros new_ones new_full new_empty new_empty_strided".split())  # take no numbers of a tensor
_READS = frozenset("_local_scalar_dense is_nonzero equal item nonzero".split())


class Codes(NamedTuple):
    """A record of how a quantised tensor stores values: integers of dtype `held`, (integer - zero) * scale."""

    scale: float
    zero: int
    low: int
    high: int
    held: str


@dataclass(eq=False)
class Var:
    """A value of a call: `depends` on the inputs, or a constant, whose numbers `tensor` has.

    terms: the values that it is the sum of, each with its sign.
    codes: how a quantised tensor stores its values; `tensor` holds them as floats.
    """

    index: int
    tensor: Any
    depends: bool
    terms: tuple[tuple[int, Var], ...] = ()
    random: bool = False
    codes: Codes | None = None

    def __post_init__(self) -> None:
        if self.tensor.is_quantized and self.tensor.qscheme() == torch.per_tensor_affine:
            held = str(self.tensor.dtype).replace("torch.q", "")
            ends = torch.iinfo(self.tensor.dtype)
            self.codes = Codes(self.tensor.q_scale(), self.tensor.q_zero_point(), ends.min, ends.max, held)
            self.tensor = self.tensor.dequantize()
        self.shape, self.dtype = tuple(self.tensor.shape), self.tensor.dtype
        self.terms = self.terms or ((1, self),)


class Call(NamedTuple):
    """An operation on values: its name in ATen, arguments with `Var`s in the place of tensors, and its results."""

    op: str
    overload: str
    function: Any  # of tensors
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Var, ...]
    path: str  # of the module that it belongs to


class Elementwise:
    """A module in evaluation mode as a function of each element; `tags` are those of an operator of PyTorch."""

    tags: tuple[Any, ...] = (torch.Tag.pointwise,)

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, x: Any) -> Any:
        """Return the module's values."""
        return self._module.forward(x)


@dataclass(eq=False)
class _Slot:
    """A tensor of the call and the value that it has now; None once another tensor wrote to its storage."""

    tensor: Any
    value: Var | None
    writer: str = ""  # path of the module that wrote to the other tensor
    why: str = ""


@dataclass(eq=False)
class Recording:
    """A list of the calls that depend on the inputs, in order.

    outside: constants that are no state of the module, each with the path of the module that takes it.
    mixed: why the calls hold for the batch of the example alone, (path, why); None if they hold for any.
    """

    calls: list[Call] = field(default_factory=list)
    outside: list[tuple[str, Var]] = field(default_factory=list)
    mixed: tuple[str, str] | None = None
    refused: list[tuple[str, str]] = field(default_factory=list)  # (path, why)
    inputs: list[Var] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the inputs
    outputs: dict[str, Var] = field(default_factory=dict)
    stored: dict[int, Stored] = field(default_factory=dict)  # weights of torchao, by the storage of their floats


def needed(calls: Sequence[Call], outputs: Iterable[Var]) -> list[Call]:
    """Return the calls that outputs need, in order."""
    wanted, left = {var.index for var in outputs}, []
    for call in calls[::-1]:
        if any(r.index in wanted for r in call.results):
            wanted |= {v.index for v in variables((call.args, call.kwargs))}
            left.append(call)
    return left[::-1]


class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Record every operation while it runs on real tensors.

    Copies and detached tensors are the values that they copy. A difference that a sum adds again cancels, so that
    `x + (q - x).detach()` is q. Operations in place give new values.
    """

    def __init__(self, paths: dict[int, str], storages: dict[int, Any], restore: dict[Any, Any]) -> None:
        super().__init__()
        self.recording = Recording()
        self._paths, self._storages, self._restore = paths, storages, restore
        self._slots: dict[int, _Slot] = {}
        self._by_storage: dict[int, list[_Slot]] = {}
        self._count = 0
        self._same: dict[Any, tuple[Var, ...]] = {}
        self._sums: dict[frozenset[tuple[int, int]], Var] = {}  # by their terms
        self._paused = False

    # Values

    def _var(self, tensor: Any, depends: bool, **more: Any) -> Var:
        self._count += 1
        return Var(self._count, tensor, depends, **more)

    def place(self, tensor: Any, depends: bool = True) -> Var:
        """Add a tensor that no call computes: an input, or a constant."""
        var = self._var(tensor, depends)
        self._set(tensor, var)
        return var

    def value(self, tensor: Any) -> Var:
        """Return the value of a tensor; that of one without a slot is a constant."""
        slot = self._slots.get(id(tensor))
        if slot is None:
            var = self.place(tensor, False)
            if storage_of(tensor) not in self._storages:
                self.recording.outside.append((self._path(), var))
            return var
        if slot.value is None:
            error = Refused(slot.why)
            error.path = slot.writer  # type: ignore[attr-defined]
            raise error
        return slot.value

    def depends(self, tensor: Any) -> bool:
        """Tell if a tensor depends on the inputs."""
        slot = self._slots.get(id(tensor))
        return not self._paused and slot is not None and slot.value is not None and slot.value.depends

    def mix(self, why: str) -> None:
        """Note why the recording holds for the batch of the example alone, the first time."""
        self.recording.mixed = self.recording.mixed or (self._path(), why)

    def refuse(self, error: Refused) -> None:
        """Note an error with the path that it has, or that of the module that runs."""
        self.recording.refused.append((getattr(error, "path", self._path()), str(error)))

    def _set(self, tensor: Any, var: Var) -> None:
        slot = self._slots.get(id(tensor))
        if slot is None:
            slot = self._slots[id(tensor)] = _Slot(tensor, var)
            self._by_storage.setdefault(storage_of(tensor), []).append(slot)
        slot.value = var

    def elementwise(self, part: Any, function: Elementwise, x: Any) -> Any:
        """Record a module as one call on elements, whose own operations are not recorded."""
        if not bool(getattr(part, "started", True)):
            why = "its numbers have not been fitted yet; call the model on a batch in training mode before"
            self.recording.refused.append((self._paths[id(part)], why))
            raise _Stop
        taken, self._paused = self.value(x), True
        try:
            out = function(x)
        finally:
            self._paused = False
        if taken.depends:
            key = ("elementwise", id(part), taken.index)
            if key not in self._same:
                self._same[key] = (self._var(out, True),)
                name = type(part).__name__
                call = Call(name, "", function, (taken,), {}, self._same[key], self._paths[id(part)])
                self.recording.calls.append(call)
            self._set(out, self._same[key][0])
        return out

    # Operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        func, args = with_numbers(func, args, lambda tensor: self.value(tensor).depends)
        name = func._schema.name.split("::")[-1]
        try:
            taken = _mapped((args, kwargs), self.value)
        except Refused as error:
            self.refuse(error)
            raise _Stop from error
        depends = name not in _BLANK and any(v.depends for v in variables(taken))
        if depends and name in _READS:
            self.recording.refused.append(
                (self._path(), f"its Python code reads a tensor that depends on the input (aten.{name})")
            )
        if not func._schema.is_mutable:
            out = func(*args, **kwargs)
            self._note(func, name, taken, out, depends)
            return out
        return self._in_place(func, name, taken, args, kwargs, depends)

    def _in_place(self, func: Any, name: str, taken: Any, args: Any, kwargs: Any, depends: bool) -> Any:
        written = args[0] if name.endswith("_") and args else None
        if written is None:
            out = func(*args, **kwargs)
            if depends:
                to = ", ".join(a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write)
                self.recording.refused.append((self._path(), f"aten.{name} writes to its argument `{to}`"))
            return out
        if name == "as_strided_" and _same_strides(*args[:3]):
            return func(*args, **kwargs)
        key = storage_of(written)
        for index, held in enumerate(self._storages.get(key, ())):
            self._restore.setdefault((key, index), (held, held.detach().clone()))
        before = [slot for slot in self._by_storage.get(key, ()) if slot.value is not None]
        for slot in before:
            value = slot.value
            if value is not None and not value.depends and value.tensor is slot.tensor:
                value.tensor = slot.tensor.detach().clone()
        out = func(*args, **kwargs)
        (result,) = self._results(func, name[:-1], taken, (written,), depends)
        if not depends:
            result.tensor = written.detach().clone()
        for slot in before:
            same = _place(slot.tensor) == _place(written)
            slot.value = result if same else None
            if not same:
                slot.writer, slot.why = self._path(), _why_written()
        self._set(written, result)
        return out

    def _note(self, func: Any, name: str, taken: Any, out: Any, depends: bool) -> None:
        tensors = tuple(t for t in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(t, torch.Tensor))
        if not tensors:
            return
        args = taken[0]
        if name in _SAME and isinstance(args[0], Var) and args[0].shape == tuple(tensors[0].shape):
            self._set(tensors[0], args[0])
            return
        for tensor, var in zip(tensors, self._results(func, name, taken, tensors, depends), strict=True):
            self._set(tensor, var)

    def _results(self, func: Any, name: str, taken: Any, tensors: tuple[Any, ...], depends: bool) -> tuple[Var, ...]:
        """Return the values of an operation: those of an equal one before, a term that is left, or new ones."""
        random = torch.Tag.nondeterministic_seeded in func.tags
        key = (name, func._overloadname, _hashable(taken))
        if key in self._same and not random:
            return self._same[key]
        terms = _sum_of(name, taken)
        if terms is not None and len(terms) == 1 and terms[0][0] == 1 and terms[0][1].shape == tuple(tensors[0].shape):
            return (terms[0][1],)
        total = frozenset((n, v.index) for n, v in terms or ())
        known = self._sums.get(total)
        cancelled = terms is not None and len(terms) < sum(len(v.terms) for v in taken[0][:2])
        if known is not None and cancelled and known.shape == tuple(tensors[0].shape):
            return (known,)
        random = random or any(v.random for v in variables(taken))
        new = tuple(self._var(t, depends, random=random) for t in tensors)
        if terms:
            new[0].terms = terms
            self._sums.setdefault(total, new[0])
        if depends:
            functional = _functional(func, name)
            taken_args, taken_kwargs = taken
            call = Call(name, func._overloadname, functional, taken_args, taken_kwargs, new, self._path())
            self.recording.calls.append(call)
        self._same[key] = new
        return new

    def _path(self) -> str:
        """Return the path of the module whose code calls the operation."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name in ("forward", "_call_impl"):
                path = self._paths.get(id(frame.f_locals.get("self")))
                if path is not None:
                    return path
            frame = frame.f_back  # type: ignore[assignment]
        return ""


def _why_written() -> str:
    """Return why a tensor that is written in part is refused."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is torch.nn.functional.pad.__code__:
            return "F.pad with mode='circular' is not taken; pad by torch.cat"
        frame = frame.f_back  # type: ignore[assignment]
    return (
        "a part of a tensor is written in place, and the whole is read afterwards: write it as a function, with "
        "torch.cat or torch.where"
    )


class _Stop(Exception):
    """Stop a call that cannot be recorded further."""


def _sum_of(name: str, taken: Any) -> tuple[tuple[int, Var], ...] | None:
    """Return the terms of a sum or difference in which a term has cancelled; all of them if none has."""
    args, kwargs = taken
    if name not in ("add", "sub") or not all(isinstance(a, Var) for a in args[:2]) or len(args) < 2:
        return None
    if kwargs.get("alpha", 1) != 1 or len(args) > 2:
        return None
    sign = 1 if name == "add" else -1
    total: dict[int, tuple[int, Var]] = {}
    for s, var in (*args[0].terms, *((sign * s, v) for s, v in args[1].terms)):
        count = total.get(var.index, (0, var))[0] + s
        total[var.index] = (count, var)
    left = tuple((n, v) for n, v in total.values() if n)
    return left if all(abs(n) == 1 for n, _ in left) and len(left) <= 8 else None


def _functional(func: Any, name: str) -> Any:
    """Return the operator of that name that writes to none of its arguments."""
    if not func._schema.is_mutable:
        return func
    space = func._schema.name.split("::")[0]
    return getattr(getattr(getattr(torch.ops, space), name), func._overloadname, None)


def storage_of(tensor: Any) -> int:
    """Return the address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def _place(tensor: Any) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype


def _same_strides(tensor: Any, shape: Any, strides: Any) -> bool:
    """Tell if new strides of a tensor differ on axes of one element alone, as those of a channels-last mean do."""
    return tuple(tensor.shape) == tuple(shape) and all(
        n == 1 or old == new for n, old, new in zip(shape, tensor.stride(), strides, strict=True)
    )


def _mapped(tree: Any, f: Any) -> Any:
    """Replace the tensors of nested arguments."""
    if isinstance(tree, torch.Tensor):
        return f(tree)
    if isinstance(tree, (list, tuple)):
        return tuple(_mapped(t, f) for t in tree)
    return {k: _mapped(t, f) for k, t in tree.items()} if isinstance(tree, dict) else tree


def variables(tree: Any) -> list[Var]:
    if isinstance(tree, Var):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return [v for part in parts for v in variables(part)]


def _hashable(tree: Any) -> Any:
    if isinstance(tree, Var):
        return ("value", tree.index)
    if isinstance(tree, dict):
        return tuple((k, _hashable(v)) for k, v in sorted(tree.items()))
    if isinstance(tree, (list, tuple)):
        return tuple(_hashable(t) for t in tree)
    return type(tree).__name__, str(tree)
