"""Arrays of an `.npz` archive, read without allocating more than the file holds, whatever its headers say."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..core.dtypes import Array
from ..core.errors import FormatError

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_EXPANDS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}  # what NumPy writes; by how much each can, at most
_CHUNK = 1 << 18  # bytes read at once: they stay in the cache while they are checked and copied
_HEAD = 1 << 16  # bytes within which a header ends


def read_arrays(path: Path, wanted: Iterable[str] | None = None, deflated: bool = False) -> dict[str, Array]:
    """Read the `.npy` entries of an archive, all or those wanted that it has.

    Raises FormatError where two entries have one name or overlap, or where an entry is compressed (unless `deflated`),
    holds objects, or is not of the size that its header says. Other damage comes as whatever zipfile and NumPy raise.
    """
    with zipfile.ZipFile(path) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) < len(archive.infolist()):
            raise FormatError("two of its entries have one name")
        if sum(info.compress_size for info in infos.values()) > path.stat().st_size:
            raise FormatError("its entries say that they have more bytes than the file")
        if any(_swallows(info) for info in infos.values()):
            raise FormatError("an entry of its directory is part of another")
        names = list(infos) if wanted is None else [f"{name}.npy" for name in wanted if f"{name}.npy" in infos]
        data = {name: _bytes(archive, name, deflated) for name in names}  # of all: their names are checked so, too
        return {
            n.removesuffix(".npy"): _array(n.removesuffix(".npy"), a) for n, a in data.items() if n.endswith(".npy")
        }


def _swallows(info: zipfile.ZipInfo) -> bool:
    """True where a wrong length made the next entries of the directory part of this one, which zipfile lets pass."""
    return "PK\1\2" in info.orig_filename or b"PK\1\2" in info.extra or b"PK\1\2" in info.comment


def _bytes(archive: zipfile.ZipFile, name: str, deflated: bool) -> Array:
    """uint8 bytes of an entry, checked by zipfile. NumPy's memory has large pages, which bytes objects have not."""
    info, name = archive.getinfo(name), name.removesuffix(".npy")
    if info.compress_type and not deflated:
        raise FormatError(f"its entry {name!r} is compressed, which no entry is")
    if info.compress_type not in _EXPANDS:
        raise FormatError(f"its entry {name!r} is compressed by something other than deflate")
    if info.file_size > info.compress_size * _EXPANDS[info.compress_type]:
        raise FormatError(f"its entry {name!r} says that it has more bytes than it has")
    data, at = np.empty(info.file_size, np.uint8), 0
    with archive.open(info) as file:
        while chunk := file.read(_CHUNK):
            data[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
            at += len(chunk)
    if at < len(data):
        raise FormatError(f"its entry {name!r} has {at} bytes, not {len(data)}")
    return data


def _array(name: str, data: Array) -> Array:
    """Return the array in the bytes of an .npy entry, as a view; raise FormatError if they are no whole .npy."""
    file = io.BytesIO(data[:_HEAD].tobytes())
    read_header = _HEADERS.get(np.lib.format.read_magic(file))
    if read_header is None:
        raise FormatError(f"its entry {name!r} is no .npy of version 1.0 or 2.0")
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise FormatError("it holds Python objects, which are never loaded")
    if file.tell() + math.prod(shape) * dtype.itemsize != len(data):
        raise FormatError(f"its entry {name!r} has {len(data)} bytes, too few or many for {dtype} {shape}")
    return np.ndarray(shape, dtype, data, file.tell(), order="F" if fortran else "C")
