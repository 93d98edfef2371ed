"""`.qa` files: a JSON document and named arrays, packed ones among them; see docs/qa-format.md."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..arrays import canonical, checks
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.errors import FormatError
from . import tensors
from .files import path_of, whole
from .foreign import refused

ENDING = ".qa"
MAGIC = "quantarray document"
KEY = "quantarray"  # of the metadata


class Document(NamedTuple):
    """A `.qa` file's content: its kind, a JSON value, arrays by name, and the checksum of value and arrays."""

    kind: str
    content: Any
    arrays: dict[str, Array | QuantArray]
    digest: str


def write_document(op: str, file: str | os.PathLike[str], kind: str, content: Any, arrays: Mapping[str, Any]) -> None:
    """Write a JSON value and named arrays to a `.qa` file, whole or not at all.

    content: what `json` writes; tuples come back as lists. arrays: QuantArrays, and arrays of bools, integers and
    floats. Raises TypeError or ValueError for what cannot be written, before anything is.
    """
    path = path_of(op, file)
    if path.suffix != ENDING:
        raise ValueError(f"{op}: the file must end in {ENDING}, got {str(path)!r}")
    parts: dict[str, Array] = {}
    packed: dict[str, Any] = {}
    for name, value in arrays.items():
        _check_name(op, name)
        for part, a in _parts(op, name, value).items():
            if part in parts:
                raise ValueError(f"{op}: {name!r} needs the name {part!r}, which another array has")
            parts[part] = a
        if isinstance(value, QuantArray):
            scheme = {} if value.scheme is None else {"scheme": value.scheme}
            packed[name] = canonical.header(value) | scheme
    version = canonical.version(*packed.values())
    meta = {"format": MAGIC, "version": version, "kind": kind, "document": content, "arrays": packed}
    meta["digest"] = digest(meta, parts)
    text = json.dumps(meta, sort_keys=True)
    whole(op, path, lambda target: tensors.write(target, {KEY: text}, parts))


def read_document(op: str, file: str | os.PathLike[str]) -> Document:
    """Read what `write_document` wrote; dense arrays and words are read-only views of the mapped file.

    Raises FormatError where the file is damaged, truncated or foreign; errors of the system pass through.
    """
    document: Document = read_as(op, file, lambda document: document)
    return document


def read_as(op: str, file: str | os.PathLike[str], build: Callable[[Document], Any]) -> Any:
    """Return `build(document)` of a file; FormatError if the file is damaged or `build` raises an error."""
    path = path_of(op, file)
    with open(path, "rb"):
        pass  # a missing or unreadable file is the system's error, not a damaged one
    try:
        return build(_read(path))
    except Exception as error:  # damage comes as anything: json, unicode, memory, recursion, and all that arrays raise
        raise refused(op, path, "a whole quantarray file", error) from error


def digest(meta: dict[str, Any], parts: dict[str, Array]) -> str:
    """Hash the meta object without its digest, and all arrays, by blake2b: 16 bytes in hex."""
    h = hashlib.blake2b(digest_size=16)
    h.update(json.dumps({k: v for k, v in meta.items() if k != "digest"}, sort_keys=True).encode())
    for name, a in sorted(parts.items()):
        h.update(f"{name} {tensors.label(a)} {a.shape}".encode())
        h.update(tensors.nbytes_of(a))
    return h.hexdigest()


def check_version(version: Any, *headers: dict[str, Any]) -> None:
    """Raise FormatError unless a file of arrays with these headers has the version that it must have."""
    if type(version) is not int or version != canonical.version(*headers):
        reads = canonical.version(*headers)
        raise FormatError(f"it has version {version!r:.40}, this library reads version {reads}")


def only(op: str, document: Document, kinds: Collection[str]) -> None:
    """Raise FormatError for a document of another kind, and name the function that reads it."""
    if document.kind not in kinds:
        other = "quantarray.load" if document.kind in ("array", "arrays") else "quantarray.nn.load"
        raise FormatError(f"it holds a document of the kind {document.kind!r:.40}, which {other} reads")


def _check_name(op: str, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{op}: names of arrays must be texts, got {name!r}")
    if not name or name == "__metadata__" or not name.isprintable():
        raise ValueError(f"{op}: an array cannot have the name {name!r}; printable characters are allowed")


def _parts(op: str, name: str, value: Any) -> dict[str, Array]:
    """Return the arrays, by name, as which one array is written."""
    if isinstance(value, QuantArray):
        return {f"{name}.{part}": a for part, a in canonical.arrays(value).items()}
    return {name: tensors.stored(checks.numbers(op, repr(name), value))}


def _read(path: Path) -> Document:
    metadata, parts = tensors.read(path)
    meta = json.loads(metadata[KEY]) if isinstance(metadata.get(KEY), str) else None
    if not isinstance(meta, dict):
        raise FormatError(f"its metadata has no text {KEY!r} that is a JSON object")
    if meta["format"] != MAGIC:
        hint = f"; quantarray.load reads it from a file that ends in {'.safetensors'!r}" * (meta["format"] == KEY)
        raise FormatError(f"it says {meta['format']!r:.40} where {MAGIC!r} should be{hint}")
    headers = meta["arrays"].values() if isinstance(meta.get("arrays"), dict) else ()
    check_version(meta["version"], *(header for header in headers if isinstance(header, dict)))
    if not isinstance(meta["digest"], str) or meta["digest"] != digest(meta, parts):
        raise FormatError("its digest does not match its content")
    if not isinstance(meta["kind"], str) or not isinstance(meta["arrays"], dict):
        raise FormatError("its 'kind' must be a text and its 'arrays' an object")
    arrays: dict[str, Array | QuantArray] = {}
    for name, header in meta["arrays"].items():
        names = canonical.parts_of(header) if isinstance(header, dict) else set()
        pieces = {part: parts.pop(f"{name}.{part}") for part in names if f"{name}.{part}" in parts}
        if "words" not in pieces:
            raise FormatError(f"its array {name!r:.80} has no header or no words")
        arrays[name] = canonical.rebuild(header, pieces, mapped=True)
    if arrays.keys() & parts.keys():
        raise FormatError(f"two of its arrays have the name {sorted(arrays.keys() & parts.keys())[0]!r:.80}")
    arrays.update(parts)
    return Document(meta["kind"], meta["document"], arrays, meta["digest"])
