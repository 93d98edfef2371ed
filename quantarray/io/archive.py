"""Arrays of an `.npz` archive, read without allocating more than the file holds, whatever its headers say."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..dtypes import Array
from ..errors import FormatError

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes; deflate expands 1032 times at most


def read_arrays(path: Path, wanted: Iterable[str] | None = None, deflated: bool = False) -> dict[str, Array]:
    """Read the `.npy` entries of an archive, all or those wanted that it has; read-only.

    Raises FormatError where two entries have one name or overlap, or where an entry is compressed (unless `deflated`),
    holds objects, or is not of the size that its header says. Other damage comes as whatever zipfile and NumPy raise.
    """
    with zipfile.ZipFile(path) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) < len(archive.infolist()):
            raise FormatError("two of its entries have one name")
        if sum(info.compress_size for info in infos.values()) > path.stat().st_size:
            raise FormatError("its entries say that they have more bytes than the file")
        names = [name.removesuffix(".npy") for name in infos if name.endswith(".npy")]
        if wanted is not None:
            names = [name for name in wanted if name in names]
        return {name: _array(archive, name, _DEFLATED if deflated else _DEFLATED[:1]) for name in names}


def _array(archive: zipfile.ZipFile, name: str, compressions: tuple[int, ...]) -> Array:
    """One array. The bytes come first: zipfile checks them, and only as many are allocated as there are."""
    if archive.getinfo(f"{name}.npy").compress_type not in compressions:
        how = "compressed in another way than by deflate" if len(compressions) > 1 else "compressed, which no entry is"
        raise FormatError(f"its entry {name!r} is {how}")
    data = archive.read(f"{name}.npy")
    file = io.BytesIO(data)
    read_header = _HEADERS.get(np.lib.format.read_magic(file))
    if read_header is None:
        raise FormatError(f"its entry {name!r} is no .npy of version 1.0 or 2.0")
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise FormatError(f"its entry {name!r} holds Python objects, which are never loaded")
    if file.tell() + math.prod(shape) * dtype.itemsize != len(data):
        raise FormatError(f"its entry {name!r} has {len(data)} bytes, too few or many for {dtype} {shape}")
    return np.ndarray(shape, dtype, data, file.tell(), order="F" if fortran else "C")
