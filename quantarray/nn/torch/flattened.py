"""Linear layers of inputs of three axes or more, which PyTorch computes as one matrix, or a matrix a sample."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from .recording import Call, Recording, Var, variables

_FIRST = -(1 << 41)  # before the indices of the first of several equal matrices
_VIEWS = ("view", "_unsafe_view", "reshape", "_reshape_alias")


def restore_axes(recording: Recording) -> None:
    """Replace view -> mm -> view by a product of the value before the first view, so that the batch is an axis.

    x [n t k] @ w [k m] is recorded as x [n*t k] @ w, and the result viewed as [n t m]. If the channels of x were
    permuted, x [n s t k] @ w is recorded as a product of x [n*s t k] and as many copies of w.
    """
    makers = {r.index: call for call in recording.calls for r in call.results}
    readers: dict[int, list[Call]] = {}
    for call in recording.calls:
        for var in variables((call.args, call.kwargs)):
            readers.setdefault(var.index, []).append(call)
    outputs = {var.index for var in recording.outputs.values()}
    replaced: dict[int, Call | None] = {}  # by id of the call
    for recorded in recording.calls:
        call = _of_one_weight(recorded)
        if call is not recorded and len(call.args[0].shape) == len(call.results[0].shape):
            replaced[id(recorded)] = call  # as it is, unless a view is found before it
        at = {"mm": 0, "addmm": 1}.get(call.op)
        flat = call.args[at] if at is not None else None
        view = makers.get(flat.index) if isinstance(flat, Var) else None
        out = call.results[0]
        after = readers.get(out.index, [])
        if at is None or view is None or len(after) != 1 or out.index in outputs:
            continue
        base = view.args[0]
        if view.op not in _VIEWS or after[0].op not in _VIEWS or not _joins_rows(base, call.args[at]):
            continue
        if after[0].results[0].shape != (*base.shape[:-1], out.shape[-1]):
            continue
        if any((isinstance(v, Var) and v.depends) or len(v.shape) != n for v, n in _constants(call, at)):
            continue
        args = (*call.args[:at], base, *call.args[at + 1 :])
        replaced[id(recorded)], replaced[id(after[0])] = call._replace(args=args, results=after[0].results), None
    calls = [replaced.get(id(call), call) for call in recording.calls]
    recording.calls = [c for c in calls if c is not None]


def _joins_rows(x: Var, flat: Var) -> bool:
    """Tell if a view joins all axes of x but the last, or but the last two."""
    joined = [(math.prod(x.shape[:i]), *x.shape[i:]) for i in (-1, -2)]
    return len(x.shape) > len(flat.shape) and flat.shape in joined


def _of_one_weight(call: Call) -> Call:
    """Return a product of matrices by copies of one constant as a product by one; other calls as they are."""
    w = call.args[1] if call.op == "bmm" else None
    if w is None or w.depends or not torch.equal(w.tensor, w.tensor[:1].expand_as(w.tensor)):
        return call
    one = replace(w, index=_FIRST - w.index, tensor=w.tensor[0], terms=())
    return call._replace(op="mm", args=(call.args[0], one))


def _constants(call: Call, at: int) -> list[tuple[Var, int]]:
    """Return the weight and the bias of a product, each with the number of its axes."""
    return [(call.args[at + 1], 2), *([(call.args[0], 1)] if at else [])]
