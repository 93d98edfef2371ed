"""Linear layers of inputs of three axes or more, which PyTorch computes as matrices of all rows."""

from __future__ import annotations

import math

from .recording import Call, Recording, Var, variables

_VIEWS = ("view", "_unsafe_view", "reshape", "_reshape_alias")


def restore_axes(recording: Recording) -> None:
    """Replace view -> mm -> view by a product of the value before the first view, so that the batch is an axis.

    x [n t k] @ w [k m] is recorded as x [n*t k] @ w, and the result viewed as [n t m].
    """
    makers = {r.index: call for call in recording.calls for r in call.results}
    readers: dict[int, list[Call]] = {}
    for call in recording.calls:
        for var in variables((call.args, call.kwargs)):
            readers.setdefault(var.index, []).append(call)
    outputs = {var.index for var in recording.outputs.values()}
    replaced: dict[int, Call | None] = {}  # by id of the call
    for call in recording.calls:
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
        replaced[id(call)], replaced[id(after[0])] = call._replace(args=args, results=after[0].results), None
    calls = [replaced.get(id(call), call) for call in recording.calls]
    recording.calls = [c for c in calls if c is not None]


def _joins_rows(x: Var, flat: Var) -> bool:
    """Tell if a view joins all axes of x but the last."""
    return len(x.shape) >= 3 and flat.shape == (math.prod(x.shape[:-1]), x.shape[-1])


def _constants(call: Call, at: int) -> list[tuple[Var, int]]:
    """Return the weight and the bias of a product, each with the number of its axes."""
    return [(call.args[at + 1], 2), *([(call.args[0], 1)] if at else [])]
