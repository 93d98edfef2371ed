"""Two recordings of a module compared: what depends on the numbers of the input, or on the length of its batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from .functions import pointwise
from .recording import Call, Recording, Var

_SHAPED = frozenset("view reshape _reshape_alias expand".split())  # whose numbers are those of the result's shape
_ROUNDING = 1e-6  # of constants: (step - step * g) + step * g is step, whatever g the length of the batch gives
_ROWS = -(1 << 40)  # before the indices of rows of constants
Reason = tuple[str, str]  # path of a module, why


def difference(first: Recording, second: Recording) -> Reason | None:
    """Return the first call, of two recordings, that does another operation or takes other numbers; None if none does.

    Constants may have a row for each sample, all alike, where `row_of_each` takes one of them.
    """
    places = {a.index: b.index for a, b in zip(first.inputs, second.inputs, strict=True)}
    for one, two in zip(first.calls, second.calls, strict=False):
        if _operation(one) != _operation(two):
            return one.path, f"its Python code does other operations, aten.{two.op} for aten.{one.op}"
        args = [(c.args[:1], {}) if _operation(c)[0] in _SHAPED else (c.args, c.kwargs) for c in (one, two)]
        if one.op == "slice" and one.args[1:2] == two.args[1:2] == (0,):  # of samples: the shape of the result counts
            args = [(c.args[:1], {}) for c in (one, two)]
        rows = pointwise(one) or one.op == "cat"
        for a, b in zip(_leaves(args[0]), _leaves(args[1]), strict=True):
            if isinstance(a, Var) and isinstance(b, Var):
                if places.get(a.index, -1) != b.index and (a.depends or b.depends or not _alike(a, b, rows)):
                    what = "another value" if a.depends or b.depends else f"another constant of shape {b.shape}"
                    return one.path, f"aten.{one.op} takes {what}"
            elif a != b and not (a != a and b != b):
                return one.path, f"aten.{one.op} takes {_named(b)} instead of {_named(a)}"
        places |= {a.index: b.index for a, b in zip(one.results, two.results, strict=False)}
    if len(first.calls) != len(second.calls):
        last = max(first.calls, second.calls, key=len)[min(len(first.calls), len(second.calls))]
        return last.path, f"its Python code does {len(second.calls)} operations for {len(first.calls)}"
    for (path, a), (_, b) in zip(first.outside, second.outside, strict=False):
        if not _alike(a, b, True):
            return path, f"a constant of shape {b.shape} is another, which is computed outside of PyTorch"
    for name, a in first.outputs.items():
        b = second.outputs.get(name, a)
        if places.get(a.index, -1) != b.index and (a.depends or b.depends or not _alike(a, b, False)):
            return "", f"the output {name} is another value"
    return None


def _operation(call: Call) -> tuple[str, str, str]:
    """Return what an operation is called; a reshape is a view, or of some longer batches a copy."""
    return call.op.replace("_unsafe_view", "view"), call.overload, call.path


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield the values, the numbers and the lengths of lists in nested arguments."""
    if not isinstance(tree, (list, tuple, dict)):
        yield tree if isinstance(tree, (Var, bool, int, float, complex, str)) else None
        return
    yield ",".join(tree) if isinstance(tree, dict) else len(tree)
    for part in tree.values() if isinstance(tree, dict) else tree:
        yield from _leaves(part)


def _named(x: Any) -> str:
    return x or "no number" if isinstance(x, str) else "no number" if x is None else f"{x:.6g}"


def _alike(a: Var, b: Var, rows: bool) -> bool:
    """Tell if two constants are equal, or `rows` of one sample are."""
    x, y = a.tensor, b.tensor
    if x is y:
        return True
    if rows and x.shape != y.shape and a.shape[1:] == b.shape[1:]:
        x, y = x[:1], y[:1]
        if not (_equal(a.tensor, x.expand_as(a.tensor)) and _equal(b.tensor, y.expand_as(b.tensor))):
            return False
    return _equal(x, y)


def _equal(x: Any, y: Any) -> bool:
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if not x.is_floating_point():
        return bool((x == y).all())
    return bool(torch.isclose(x, y, _ROUNDING, 0, equal_nan=True).all())


def mixing(first: Recording, second: Recording) -> Reason | None:
    """Return the first value whose first axis is not the batch, or some rows for each sample of it; None if none is."""
    n, m = (r.inputs[0].shape[0] if r.inputs[0].shape else 0 for r in (first, second))
    if any(v.shape[:1] != (n,) for v in first.inputs):
        return "", "its inputs do not have the batch as their first axis"
    for one, two in zip(first.calls, second.calls, strict=True):
        if one.op == "squeeze" and (len(one.args) < 2 or 0 in _axes(one.args[1], len(one.args[0].shape))):
            return one.path, "aten.squeeze takes away the axis of a batch of one sample; give the axes that it is for"
        if one.op == "slice" and one.args[1:2] == (0,) and _cuts(one, two):
            return one.path, "aten.slice takes some samples of a longer batch"
        if len(one.results) != len(two.results):
            return one.path, f"aten.{one.op} divides the batch"
        for a, b in zip(one.results, two.results, strict=True):
            # a batch norm gives empty statistics beside its result
            if a.tensor.numel() and (not a.shape or b.shape != (a.shape[0] * m // n, *a.shape[1:]) or a.shape[0] % n):
                return one.path, f"aten.{one.op} gives a value {b.shape} of {m} samples, {a.shape} of {n}"
    if any(v.depends and v.shape[0] != n for v in first.outputs.values()):
        return "", "an output does not have the batch as its first axis"
    return None


def _cuts(one: Call, two: Call) -> bool:
    """Tell if a slice of samples begins or ends at a number that is the same for any batch."""
    (start, end), (_, other) = ((*call.args[2:4], None, None)[:2] for call in (one, two))
    return start not in (None, 0) or (end is not None and end == other and end < sys.maxsize)


def _axes(axes: Any, ndim: int) -> set[int]:
    return {int(i) % ndim for i in (axes if isinstance(axes, tuple) else (axes,))}


def row_of_each(recording: Recording) -> None:
    """Take one row of constants that have one for each sample, in functions of elements, where it is broadcast."""

    def row(x: Any, call: Call) -> Any:
        out = call.results[0].shape
        if isinstance(x, (tuple, list)):
            return tuple(row(part, call) for part in x)
        each = isinstance(x, Var) and not x.depends and len(x.shape) == len(out) and x.shape[0] == out[0]
        return replace(x, index=_ROWS - x.index, tensor=x.tensor[:1], terms=()) if each else x

    taken = [pointwise(call) and call.op != "bucketize" for call in recording.calls]
    recording.calls = [
        call._replace(args=row(call.args, call)) if has else call
        for call, has in zip(recording.calls, taken, strict=True)
    ]
