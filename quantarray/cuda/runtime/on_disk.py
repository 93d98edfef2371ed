"""Compiled CUDA kernels on disk, by all that they are made of.

Numba's own cache has no place for kernels that a function makes for some numbers, and a key that is a text says what a
kernel is before anything is compiled: the texts of the files of its module's import closure, what it captures, the
forms of its arguments, the GPU's compute capability, and the versions of what compiles it. A file is written whole or
not at all, and read only if it is as it was written.
"""

import os
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape, glob
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import FunctionType, ModuleType
from typing import NamedTuple

import numpy as np

from ...backends.diagnosis import version_of
from ...core.sources import PACKAGE, digest
from .target import config

_COMPILERS = (
    "numba-cuda", "numba", "llvmlite", "numpy", "cuda-bindings", "cuda-core", "cuda-toolkit", "nvidia-nvjitlink",
    "nvidia-nvvm", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc",
)  # fmt: skip
_NUMBERS = bool, int, float, complex, str, bytes, type(None), np.generic
_SUM = 32  # bytes of a digest, with which a file begins
_state = {"reads": True}


class Code(NamedTuple):
    """A kernel's machine code, and the name of its function in it."""

    name: str
    cubin: bytes


class UnknownError(Exception):
    """A kernel captures what has no text."""


def text_of(kernel, forms, capability):
    """(a name, a digest of sources and compilers, one of what is captured and of arguments) of a kernel of Numba's.

    forms: `launch._form` of each argument.
    """
    function = kernel.py_func
    options = sorted((name, value) for name, value in kernel.targetoptions.items() if value)
    made_of = [_described(function, []), _described(options, []), _described(forms, []), str(capability)]
    name = f"{function.__module__.removeprefix('quantarray.cuda.')}.{function.__name__}"
    compiled = f"{_compilers()} {digest(function.__code__.co_filename)}"
    return name, sha256(compiled.encode()).hexdigest()[:16], sha256("\n".join(made_of).encode()).hexdigest()[:32]


@cache
def _compilers():
    where = os.environ.get("CUDA_HOME", ""), config.OPT, config.CUDA_DEBUGINFO_DEFAULT
    return repr([where, *((name, version_of(name)) for name in _COMPILERS)])


def _described(value, seen, captured=True):
    """Write what a kernel captures, or a global that it reads, as a text that is the same in each process."""
    if isinstance(value, _NUMBERS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, (tuple, list)):
        name = _described(type(value), seen), getattr(value, "_fields", ())
        return f"{name}({', '.join(_described(one, seen, captured) for one in value)})"
    if isinstance(value, np.dtype | np.ufunc | ModuleType):
        return str(getattr(value, "__name__", value))
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {sha256(np.ascontiguousarray(value)).hexdigest()}"
    function = getattr(value, "py_func", getattr(value, "_defn", value))  # of Numba's functions, and its intrinsics
    if isinstance(function, FunctionType):
        return _of_function(function, seen)
    if type(value).__module__.startswith("numba"):  # a type
        return repr(value)
    if captured:
        raise UnknownError(type(value))
    return _described(type(value), seen)


def _of_function(function, seen):
    name = f"{function.__module__}.{function.__qualname__}"
    if not function.__module__.startswith("quantarray."):
        return name
    if function in seen:
        return f"the function {seen.index(function)}"
    seen.append(function)
    code, read = function.__code__, function.__globals__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    captured = [*cells, *(function.__defaults__ or ())]
    others = sorted({one for one in code.co_names if one in read})
    parts = [_described(one, seen) for one in captured] + [
        f"{one}={_described(read[one], seen, False)}" for one in others
    ]
    return f"{name} {digest(code.co_filename)} [{'; '.join(parts)}]"


@cache
def folder():
    """Return the folder of the files: where Numba has those of the CPU, or in the user's caches; None for neither."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "quantarray" / "cuda" / "cubin"
    for path in (PACKAGE / "cuda" / "__pycache__", Path.home() / ".cache" / "quantarray" / "cubin"):
        with suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            if os.access(path, os.W_OK):
                return path
    return None


def _file(name, versions, rest):
    return folder() / f"{name}.{versions}.{rest}.cubin"


def read(text):
    """Return the `Code` of a kernel, by `text_of`; None where there is no file of it, or a damaged one."""
    if folder() is None or not _state["reads"]:
        return None
    try:
        held = _file(*text).read_bytes()
    except OSError:
        return None
    if held[:_SUM] != sha256(held[_SUM:]).digest():
        return None
    name, _, cubin = held[_SUM:].partition(b"\0")
    return Code(name.decode(), cubin)


def write(text, code):
    """Write a kernel's code, and remove what other sources and compilers have made."""
    if folder() is None:
        return
    held = code.name.encode() + b"\0" + code.cubin
    path = _file(*text)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            try:
                part.write(sha256(held).digest() + held)
                part.close()
                os.replace(part.name, path)
            except OSError:
                os.remove(part.name)
                raise
        name, versions, _ = text
        for file in {*glob(f"{escape(str(path.parent / name))}.*.cubin")}:
            if f".{versions}." not in file:
                os.remove(file)


@contextmanager
def unread():
    """Compile kernels inside, whatever there is on disk: that has no PTX."""
    before, _state["reads"] = _state["reads"], False
    try:
        yield
    finally:
        _state["reads"] = before


def described() -> str:
    """Say how many kernels there are on disk, and where."""
    where = folder()
    files = [] if where is None else list(where.glob("*.cubin"))
    size = sum(file.stat().st_size for file in files)
    return f"{len(files)} kernels on disk, {size / 1e6:.1f} MB in {where}"
