"""Networks of plain integers: the reader of docs/plain-format.md."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..core.errors import FormatError
from .archive import read_arrays
from .container import MAGIC
from .files import path_of
from .foreign import reason, refused
from .plain_layers import PlainLayer, array_of, eight_bits, read_layers


@dataclass(frozen=True, eq=False)
class PlainNetwork:
    """A network as a file of docs/plain-format.md describes it, checked: all its parts are consistent.

    `expected` is what the last layer returns for `input`, [n, *layers[-1].shape].
    """

    path: Path
    name: str
    layers: tuple[PlainLayer, ...]
    input: Array  # uint8 [n h w c] or [n k]
    input_table: Array  # int64 [at most 256]
    expected: Array
    labels: Array | None
    classes: tuple[str, ...] | None
    input_text: str
    expected_text: str

    def __repr__(self) -> str:
        return f"PlainNetwork({self.name!r}, {len(self.layers)} layers, {len(self.input)} samples, {str(self.path)!r})"


def read_plain(file: str | os.PathLike[str]) -> PlainNetwork:
    """Read and check a network of plain integers, for `load_network`.

    Raises FormatError where the file is damaged, foreign or inconsistent, and says where; errors of the system,
    such as FileNotFoundError, pass through.
    """
    path = path_of("load_network", file)
    with open(path, "rb"):
        pass  # a missing or unreadable file is the system's error, not a damaged one
    try:
        arrays = _read_archive(path)
        return plain_network(path, _meta(arrays), arrays)
    except FormatError as error:
        raise refused("load_network", path, "a plain network", error) from error.__cause__


def _read_archive(path: Path) -> dict[str, Array]:
    try:
        if not zipfile.is_zipfile(path):
            raise FormatError("it is no .npz archive")
        return read_arrays(path, deflated=True)
    except Exception as error:  # zipfile, zlib and the .npy parser raise a dozen types for bytes gone wrong
        raise FormatError(reason(error)) from error


def plain_network(path: Path, meta: dict[str, Any], arrays: dict[str, Array]) -> PlainNetwork:
    """Build the network of a checked `meta` object and arrays; raise FormatError if they are not consistent."""
    samples = array_of("the network", arrays, "input", "uint8", (2, 4))
    table = array_of("the network", arrays, "input_table", "integer", (1,))
    levels = [int(v) for v in table]
    if not 1 <= len(levels) <= 256 or not eight_bits(levels):
        raise FormatError("input_table: needs 1 to 256 integers, all in -128..127 or all in 0..255")
    if samples.size and int(samples.max()) >= len(levels):
        raise FormatError(f"input: byte {samples.max()} is beyond the {len(levels)} entries of input_table")
    layers = read_layers(meta["layers"], arrays, samples.shape[1:], max(map(abs, levels)))
    expected = array_of("the network", arrays, "expected", "integer", (2, 4))
    if expected.shape != (len(samples), *layers[-1].shape):
        needed = (len(samples), *layers[-1].shape)
        raise FormatError(f"expected: the layers return {needed} for the input, got {expected.shape}")
    labels = array_of("the network", arrays, "labels", "uint8", (1,)) if "labels" in arrays else None
    if labels is not None and len(labels) != len(samples):
        raise FormatError(f"labels: needs one for each of {len(samples)} samples, got {len(labels)}")
    classes = meta.get("classes")
    texts = isinstance(classes, list) and all(isinstance(c, str) for c in classes)
    scores = layers[-1].shape[-1]
    if classes is not None and not (texts and len(classes) == scores):
        raise FormatError(f"meta: classes must be {scores} texts, one a score, got {classes!r:.80}")
    return PlainNetwork(
        path=path,
        name=meta["name"],
        layers=layers,
        input=samples,
        input_table=table.astype(np.int64),
        expected=expected,
        labels=labels,
        classes=None if classes is None else tuple(classes),
        input_text=meta.get("input", ""),
        expected_text=meta.get("expected", ""),
    )


def _meta(arrays: dict[str, Array]) -> dict[str, Any]:
    text = arrays.get("meta")
    if text is None or text.shape != () or text.dtype.kind != "U":
        raise FormatError("it has no entry 'meta' that is one Unicode text")
    try:
        meta = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"meta: not JSON: {error}") from error
    if isinstance(meta, dict) and meta.get("format") == MAGIC:
        raise FormatError("it is one packed array, which quantarray.load reads")
    return checked_meta(meta)


def checked_meta(meta: Any) -> dict[str, Any]:
    """Check the keys of a network's `meta` object and return it; FormatError if one is missing or wrong."""
    if not isinstance(meta, dict):
        raise FormatError("meta: not a JSON object")
    if not isinstance(meta.get("layers"), list) or not meta["layers"]:
        raise FormatError("meta: needs 'layers', a list of at least one")
    for key, default in (("name", None), ("input", ""), ("expected", "")):
        if not isinstance(meta.get(key, default), str):
            raise FormatError(f"meta: {key!r} must be a text")
    return meta


__all__ = ["PlainLayer", "PlainNetwork", "checked_meta", "plain_network", "read_plain"]
