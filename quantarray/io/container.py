"""Arrays in a file: one in `.npz` or, with an extra, `.safetensors`; one or several in `.qa`; those of a `.gguf`."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import canonical, likely_fix
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.errors import FormatError
from ..core.forks import no_fork
from ..ops.words.placement import created
from . import document
from .archive import read_arrays
from .files import path_of, whole
from .foreign import kind_of, refused
from .gguf.file import ENDING as GGUF_ENDING
from .gguf.file import GGUF

MAGIC = "quantarray"


def save(file: str | os.PathLike[str], q: QuantArray | Mapping[str, Any]) -> None:
    """Write one array to a `.npz`, `.safetensors` or `.qa` file, whole or not at all; or a dict of arrays to a `.qa`.

    The file holds words, constants, a digest of both, and the scheme; docs/format.md describes it, docs/qa-format.md
    files of a dict, whose values are QuantArrays and arrays of bools, integers and floats. Raises TypeError for
    anything else, ValueError for another ending, ImportError where the safetensors extra is missing.

    >>> import quantarray as qa, numpy as np, tempfile, os
    >>> folder = tempfile.mkdtemp()
    >>> path = os.path.join(folder, "q.npz")
    >>> qa.save(path, qa.encode([1, -1, 1], values=(-1, 1)))
    >>> qa.load(path).dequantize()
    array([ 1, -1,  1], dtype=int32)
    >>> qa.save(os.path.join(folder, "w.qa"), {"w": qa.encode([1, -1], values=(-1, 1)), "bias": np.array([3, 4])})
    >>> {name: a.shape for name, a in qa.load(os.path.join(folder, "w.qa")).items()}
    {'w': (2,), 'bias': (2,)}
    """
    path = path_of("save", file)
    write = _by_ending("save", path, {".npz": _write_npz, ".safetensors": _write_safetensors, document.ENDING: None})
    if isinstance(q, Mapping):
        if write is not None:
            raise ValueError(f"save: a dict of arrays goes into a file that ends in .qa, got {str(path)!r}")
        document.write_document("save", path, "arrays", list(q), q)
        return
    if not isinstance(q, QuantArray):
        raise TypeError(
            f"save: needs a QuantArray or a dict of arrays, got {type(q).__name__}; {likely_fix.of_saved(q)}"
        )
    if write is None:
        document.write_document("save", path, "array", None, {"array": q})
        return
    header = canonical.header(q)
    meta = {"format": MAGIC, "version": canonical.version(header), "digest": canonical.digest(q), **header}
    if q.scheme is not None:
        meta["scheme"] = q.scheme
    text = json.dumps(meta, sort_keys=True)
    whole("save", path, lambda target: write(target, text, canonical.arrays(q)))


def load(file: str | os.PathLike[str]) -> Any:
    """Read the QuantArray, or the dict of arrays, that `save` wrote; or the weights of a GGUF file, one at a time.

    A `.gguf` file, whole or split, is a mapping of names to arrays that are read when they are asked for, with the
    attributes `metadata` and `tensors`: docs/gguf.md.

    Arrays of a `.qa` file are read-only views of the mapped file: their bytes enter memory when they are read and
    are shared by all processes that load the file. So replace such a file, as `save` does, and never write into it.

    Raises FormatError if the file is damaged, truncated or foreign: it returns the array that was saved or nothing.
    FileNotFoundError and other errors of the system pass through.

    >>> import quantarray as qa, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "q.npz")
    >>> qa.save(path, qa.encode([[3, 0], [1, 2]], values=range(4)))
    >>> qa.load(path).dtype, qa.load(path).dequantize().tolist()
    (quantarray.uint2, [[3, 0], [1, 2]])
    """
    path = path_of("load", file)
    return _by_ending("load", path, _LOAD)(path)


def _load_document(path: Path) -> Any:
    arrays = document.read_as("load", path, _of_document)
    return {name: _placed(a) for name, a in arrays.items()} if isinstance(arrays, dict) else _placed(arrays)


def _load_array(read: Callable[[Path], tuple[str, dict[str, Array]]], path: Path) -> Any:
    """Rebuild the array of an archive, of whose bytes `read` returns the meta text and the parts."""
    with open(path, "rb"):
        pass  # a missing or unreadable file is the system's error, not a damaged one
    try:
        text, parts = read(path)
        q = _of_text(text, parts)
    except ImportError:
        raise
    except Exception as error:  # damage comes as anything: zlib, zipfile, lzma, json, unicode, memory, recursion..
        raise refused("load", path, "a whole quantarray file", error) from error
    return _placed(q)


def _of_text(text: str, parts: dict[str, Array]) -> QuantArray:
    """Rebuild the array of a meta text and its parts."""
    meta = json.loads(text)
    if not isinstance(meta, dict):
        raise FormatError("its 'meta' is not a JSON object")
    if "layers" in meta:
        raise FormatError("it is a network of plain integers, which quantarray.nn.load_network reads")
    if meta["format"] != MAGIC:
        raise FormatError(f"it says {meta['format']!r} where {MAGIC!r} should be")
    document.check_version(meta["version"], meta)
    q, digest = canonical.rebuild(meta, parts), meta["digest"]
    if canonical.digest(q) != digest:
        raise FormatError("its digest does not match its content")
    return q


def _of_document(holds: document.Document) -> QuantArray | dict[str, Array | QuantArray]:
    """Return the array or the dict that a document holds."""
    document.only("load", holds, ("array", "arrays"))
    names = [*holds.arrays]
    if holds.kind == "array":
        q = holds.arrays.get("array")
        if names != ["array"] or not isinstance(q, QuantArray) or holds.content is not None:
            raise FormatError(f"it must hold one packed array, {'array'!r}, got {names!r:.80}")
        return q
    if not isinstance(holds.content, list) or sorted(names) != sorted(map(str, holds.content)):
        raise FormatError(f"its document must list the names of its arrays, got {holds.content!r:.80}")
    return {name: holds.arrays[name] for name in holds.content}


@created
def _place(q: QuantArray) -> QuantArray:
    return q


def _placed(a: Any) -> Any:
    """Move a packed array to the device that the `with` block around the call names."""
    return _place(a) if isinstance(a, QuantArray) else a


def _by_ending(op: str, path: Path, endings: dict[str, Any]) -> Any:
    if path.suffix not in endings:
        *last, end = endings
        kind = kind_of(path) if op == "load" else None
        it = f"; it is {kind}" if kind else ""
        raise ValueError(f"{op}: the file must end in {', '.join(last)} or {end}, got {str(path)!r}{it}")
    return endings[path.suffix]


def _write_npz(path: Path, text: str, parts: dict[str, Array]) -> None:
    np.savez(path, allow_pickle=False, meta=np.array(text), **parts)


def _read_npz(path: Path) -> tuple[str, dict[str, Array]]:
    parts = read_arrays(path, (*canonical.PARTS, "meta"))
    text = parts.pop("meta", None)
    if text is None:
        raise FormatError("it has no 'meta' entry")
    if text.shape != () or text.dtype.kind != "U":
        raise FormatError(f"its 'meta' must be one Unicode text, got {text.dtype} {text.shape}")
    return str(text), parts


def _safetensors() -> Any:
    try:
        with no_fork:
            import safetensors.numpy
    except ImportError:
        raise ImportError("safetensors is missing: pip install 'quantarray[safetensors]', or use a .npz file") from None
    return safetensors


def _write_safetensors(path: Path, text: str, parts: dict[str, Array]) -> None:
    try:
        _safetensors().numpy.save_file(parts, path, metadata={MAGIC: text})
    except _safetensors().SafetensorError as error:  # the system's errors, such as of a full disk, in words
        number = re.search(r"\(os error (\d+)\)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error


def _read_safetensors(path: Path) -> tuple[str, dict[str, Array]]:
    try:
        with _safetensors().safe_open(path, framework="numpy") as f:
            metadata = f.metadata() or {}
            return metadata[MAGIC], {name: f.get_tensor(name) for name in canonical.PARTS if name in f.keys()}
    except _safetensors().SafetensorError as error:
        raise FormatError(str(error)) from error


_LOAD = {
    ".npz": partial(_load_array, _read_npz),
    ".safetensors": partial(_load_array, _read_safetensors),
    document.ENDING: _load_document,
    GGUF_ENDING: GGUF,
}
