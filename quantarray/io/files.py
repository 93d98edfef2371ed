"""Files as such: their paths, writing them whole or not at all, and what to say of damaged ones; .npy."""

from __future__ import annotations

import contextlib
import os
import secrets
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array

MOST_TEXT = 300  # characters of what is wrong with a file


def path_of(op: str, file: Any) -> Path:
    """Convert a file argument to a Path; raise TypeError or ValueError if it is no path."""
    try:
        text = os.fsdecode(file)
    except TypeError:
        raise TypeError(f"{op}: file must be a path, got {type(file).__name__}") from None
    if "\0" in text:
        raise ValueError(f"{op}: file must be a path without null characters, got {text!r}")
    return Path(text)


def whole(op: str, path: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with a temporary file beside `path`, then move that to `path` in one step; delete it on failure.

    An OSError names `path`, not the temporary file.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        with open(temporary, "xb") as f:
            mode = os.fstat(f.fileno()).st_mode  # what the umask gives; safetensors would give the owner alone
        write(temporary)
        with open(temporary, "rb+") as f:
            os.fsync(f.fileno())
        temporary.chmod(mode)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{op}: {error.strerror or error}", str(path)) from error
        raise


def load_npy(op: str, path: Path, mapped: bool = False) -> Array:
    """Load or map the array of a .npy file; raise ValueError if it is no whole .npy, OSError if it is unreadable."""
    if zipfile.is_zipfile(path):
        raise ValueError(f"{op}: {path} must be one array (.npy), got an archive")
    try:
        with open(path, "rb") as f:
            if mapped:
                return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
            return np.asarray(np.lib.format.read_array(f, allow_pickle=False))
    except OSError as error:
        raise OSError(error.errno, f"{op}: {error.strerror or error}", str(path)) from error
    except Exception as error:  # a damaged header comes as anything: syntax, types, memory, overflow
        raise ValueError(f"{op}: {path} is not a whole .npy file: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Say in one line what is wrong with a file, from any error of its parsers: zipfile, zlib, json, NumPy and more."""
    if isinstance(error, KeyError):
        text = f"it lacks {error}"
    elif "allow_pickle" in str(error) or "Python objects in dtype" in str(error):
        text = "it holds Python objects, which are never loaded"
    else:
        text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} .."  # zipfile, for one, quotes the whole file
