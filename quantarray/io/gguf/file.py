"""GGUF files as mappings of names to arrays, each decoded when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array
from ...core.errors import FormatError
from ..foreign import GGUF as KIND
from ..foreign import reason, refused
from .arrays import array_of
from .header import Header, Tensor, read_header

ENDING = ".gguf"
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


class Entry(NamedTuple):
    """A tensor of a GGUF file before it is read: its type, its shape, its bytes (None if not known), its file."""

    type: str
    shape: tuple[int, ...]
    nbytes: int | None
    file: Path


class GGUF(Mapping[str, Any]):
    """A lazy mapping of a GGUF file: `file[name]` decodes a tensor, on each access.

    - `metadata`: numbers, texts, arrays of numbers and lists of texts by key, those of the first part of a split file.
    - `tensors`: an `Entry` for each name, known without reading the tensor.

    Packed types are QuantArrays [.., out, in] in the file's groups along the last axis, whose values are exactly those
    of the reference. F32, F16, F64 and integers are read-only views of the mapped file; BF16 is widened to float32.
    Asking for a tensor of a type that is not read, or with constants that are not finite, raises FormatError.

    >>> import pathlib, struct, tempfile
    >>> import numpy as np
    >>> import quantarray as qa
    >>> text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    >>> head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("w") + struct.pack("<IQQIQ", 2, 64, 2, 42, 0)
    >>> block = np.float16([0.5]).tobytes() + bytes([0b10010000]) + bytes([0b01010101] * 15)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "w.gguf"
    >>> size = path.write_bytes(head.ljust(96, b"\\0") + 2 * block)
    >>> file = qa.load(path)
    >>> file.tensors["w"].type, file["w"].shape, file["w"].scale.tolist(), file["w"][0, :5].dequantize()
    ('Q2_0', (2, 64), [[0.5], [0.5]], array([-0.5, -0.5,  0. ,  0.5,  0. ], dtype=float32))
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts = _parts(path)
        self._of: dict[str, tuple[int, Tensor]] = {}
        for i, (where, header, _) in enumerate(self._parts):
            for name, tensor in header.tensors.items():
                if name in self._of:
                    raise FormatError(f"load: two parts of {path} have a tensor {name!r:.80}, {where} is the second")
                self._of[name] = i, tensor

    @property
    def metadata(self) -> dict[str, Any]:
        return self._parts[0][1].metadata

    @property
    def tensors(self) -> dict[str, Entry]:
        return {
            name: Entry(tensor.type.name, tensor.shape, tensor.nbytes, self._parts[i][0])
            for name, (i, tensor) in self._of.items()
        }

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __getitem__(self, name: str) -> Any:
        if name not in self._of:
            near = ", ".join(map(repr, get_close_matches(str(name), self._of, 3)))
            raise KeyError(f"load: {self.path} has no tensor {name!r:.80}{near and f'; near are {near}'}")
        i, tensor = self._of[name]
        path, _, data = self._parts[i]
        try:
            return array_of(tensor, data)
        except ValueError as error:
            raise FormatError(f"load: {path}: its tensor {name!r:.80} {reason(error)}") from error

    def __repr__(self) -> str:
        return f"GGUF({str(self.path)!r}, {len(self)} tensors, {len(self.metadata)} keys of metadata)"


def _parts(path: Path) -> list[tuple[Path, Header, Array]]:
    """Open a file, or all parts of a split one, whichever of them `path` is."""
    first = _open(path)
    count = first[1].metadata.get("split.count", 1)
    if type(count) is not int or count < 2:
        return [first]
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) != count:
        raise FormatError(
            f"load: {path} is one of {count} files, which must be named like x-00001-of-{count:05}{ENDING}"
        )
    parts = []
    for i in range(count):
        where = path.with_name(f"{match[1]}-{i + 1:05}-of-{match[3]}{ENDING}")
        part = first if where == path else _open(where)
        if (part[1].metadata.get("split.count"), part[1].metadata.get("split.no")) != (count, i):
            raise FormatError(f"load: {where} does not say that it is part {i + 1} of {count}, as its name does")
        parts.append(part)
    return parts


def _open(path: Path) -> tuple[Path, Header, Array]:
    with open(path, "rb"):
        pass  # a missing or unreadable file is the system's error, not a damaged one
    try:
        data: Array = np.asarray(np.memmap(path, np.uint8, "r"))
        return path, read_header(data), data
    except Exception as error:  # damage comes as anything: unicode, memory, overflow
        raise refused("load", path, "a whole GGUF file", error, KIND) from error
