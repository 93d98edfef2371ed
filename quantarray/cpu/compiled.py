"""How functions are compiled. None checks what it divides by.

Numba writes each function two wrappers, by which Python and C call it, and compiles them too: a sixth of the time that
the first convolution on a machine takes, for functions that only compiled ones call.

Numba takes a compiled function from disk while the file that defines it is as it was then. But one function is compiled
from several files, and the list of its versions names types of others: after an update it would be a stale one, or
raise where a type is gone. So it takes them while all files that kernels are made of are as they were.
"""

from functools import partial
from hashlib import sha256
from pathlib import Path

from numba import njit


def sources(package):
    """A digest of the sizes and times of all files that a package's kernels are made of."""
    files = [*package.glob("*.py"), *(package / "cpu").rglob("*.py")]
    found = ((file.relative_to(package).as_posix(), file.stat()) for file in sorted(files))
    told = repr([(name, seen.st_size, seen.st_mtime_ns) for name, seen in found])
    return sha256(told.encode()).hexdigest()


def kept(function):
    """A function that Numba compiles, which takes from disk only what was made of the same sources."""
    files = getattr(getattr(function, "_cache", None), "_cache_file", None)  # none where Numba compiles nothing
    if files is not None:
        files._version = f"{files._version}, {SOURCES}"  # of Numba: where a list of versions has another, it is empty
    return function


def entry(function, **options):
    """For functions that Python calls."""
    return kept(njit(function, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options))


SOURCES = sources(Path(__file__).parents[1])
inner = partial(entry, no_cpython_wrapper=True)  # what only compiled functions call: from Python, it crashes
inline = partial(inner, forceinline=True)
