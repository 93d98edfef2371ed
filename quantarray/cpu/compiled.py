"""How functions are compiled. None checks what it divides by.

Numba writes each function two wrappers, by which Python and C call it, and compiles them too: a sixth of the time that
the first convolution on a machine takes, for functions that only compiled ones call.
"""

from functools import partial

from numba import njit

entry = partial(njit, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)  # what Python calls
inner = partial(entry, no_cpython_wrapper=True)  # what only compiled functions call: from Python, it crashes
inline = partial(inner, forceinline=True)
