"""Show LLVM IR and assembly of kernels that ran, compiled again: machine code that is loaded from disk has no text."""

import threading

from numba import njit

from .schedule import Kernel

FORMS = ("llvm", "asm")
_lock = threading.RLock()  # versions are forgotten by one thread at a time


def texts(modules, form, run):
    """Return {function: text} of kernels of some modules that `run` calls, for the types that it calls them with."""
    if form not in FORMS:
        raise ValueError(f"explain: code of the CPU is one of {', '.join(map(repr, FORMS))}, got {form!r}")
    with _lock:
        return _texts(modules, form, run)


def _texts(modules, form, run):
    kernels = dict.fromkeys(one for module in modules for one in vars(module).values() if isinstance(one, Kernel))
    before = {one: one.forget() for one in kernels}
    try:
        run()
        return {
            f"{one.compiled.py_func.__name__}{takes}": _text(one.compiled.py_func, takes, form)
            for one in kernels
            for takes in one.signatures
        }
    finally:
        for one, versions in before.items():
            one.recall(versions)


def _text(function, takes, form):
    version = njit(function, nogil=True, error_model="numpy", _nrt=True)
    version.compile(takes)
    return (version.inspect_llvm if form == "llvm" else version.inspect_asm)(takes)
