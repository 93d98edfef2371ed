"""Files as such: their paths, writing them whole or not at all; .npy."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from .foreign import NPY, refused


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
    """Call `write` with a temporary file, then move that to `path` in one step; delete it on failure.

    - A new file has the mode that the umask says. A file that is replaced keeps its mode, and where the system allows
      it its owner, group, access control list and other extended attributes. One that may not be written is refused.
    - A symbolic link stays, and its target is replaced. Other names of the file (hard links) keep the old content:
      arrays that are mapped from it stay whole.
    - The folder must be writable, as the temporary file is there.
    - A FIFO or a device is never replaced: it gets the bytes once all are written to a temporary file.

    An OSError names `path`, not the temporary file.
    """
    temporary = None
    try:
        old = _status(path)
        is_file = old is None or stat.S_ISREG(old.st_mode)
        target = Path(os.path.realpath(path))
        folder = target.parent if is_file else Path(tempfile.gettempdir())
        temporary = folder / f".{secrets.token_hex(8)}{path.suffix}"
        mode = _create(temporary, folder, 0o666 if old is None else 0o600)
        write(temporary)
        if not is_file:
            with open(temporary, "rb") as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink)
            temporary.unlink()
            return
        with open(temporary, "rb+") as f:
            os.fsync(f.fileno())
        temporary.chmod(mode)  # safetensors writes a file for its owner alone
        if old is not None:
            _take_over(target, old, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{op}: {error.strerror or error}", str(path)) from error
        raise


def _status(path: Path) -> os.stat_result | None:
    """Return the status of what is at `path`, links followed, or None; raise OSError if it must not be written."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, f"{os.strerror(errno.EACCES)}: the file is read-only")
    return old


def _create(temporary: Path, folder: Path, mode: int) -> int:
    """Create an empty file, and return the mode that the system gave it."""
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    except PermissionError as error:
        text = f"{error.strerror}: a file is replaced as a whole, so its folder {str(folder)!r} must be writable"
        raise PermissionError(error.errno, text) from error
    with open(descriptor, "wb") as f:
        return stat.S_IMODE(os.fstat(f.fileno()).st_mode)


def _take_over(old: Path, status: os.stat_result, new: Path) -> None:
    """Give a file the owner, group, extended attributes and mode of the one that it replaces."""
    mode = status.st_mode & 0o777
    if os.name == "posix" and (status.st_uid, status.st_gid) != (new.stat().st_uid, new.stat().st_gid):
        try:
            os.chown(new, -1, status.st_gid)
        except OSError:  # another group has the new file: it gets what all others have, no more
            mode = mode & ~0o070 | (mode & 0o007) << 3
        with contextlib.suppress(OSError):  # only root gives files away
            os.chown(new, status.st_uid, -1)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a file system without such attributes
            names = set(os.listxattr(old))
            for name in names | set(os.listxattr(new)):
                with contextlib.suppress(OSError):
                    if name in names:
                        os.setxattr(new, name, os.getxattr(old, name))
                    else:  # an access control list that the folder prescribes for new files
                        os.removexattr(new, name)
    new.chmod(mode)


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
        raise refused(op, path, "a whole .npy file", error, NPY) from error
