"""Situations by name, each measured by a process of its own: the arguments of `worker.main`."""

from .companions import COMPANIONS

BUSY_SECONDS = 3.0  # of a block beside other processes, each of which may run for milliseconds at a time

SITUATIONS = {
    "alone": {"kind": "beside", "busy": 0},
    **{f"beside {n}": {"kind": "beside", "busy": n} for n in (1, 2)},
    "torch after": {"kind": "turns", "companion": "torch", "first": "ours"},
    **{name: {"kind": "turns", "companion": name, "first": "theirs"} for name in COMPANIONS},
    "left behind": {"kind": "left", "companion": None},
    "left by torch": {"kind": "left", "companion": "torch"},
}
