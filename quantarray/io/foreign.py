"""Errors of files that cannot be read: what is wrong, or which other program's files they are and what to do."""

from __future__ import annotations

import zipfile
from pathlib import Path

from ..core.errors import FormatError
from . import tensors

MOST_TEXT = 300  # characters of what is wrong with a file
NPY = "one NumPy array; quantize(np.load(file), quantizer) packs it"
GGUF = "a GGUF file of weights; quantarray.load reads it if its name ends in .gguf"
ONNX = "an ONNX network; quantarray.nn.load reads it from a file that ends in .onnx"
_HEAD = 1 << 12  # bytes that are read of a file
_IMAGE = "an image; network.predict and `quantarray run NET IMAGE` read images"
_PACKED = "a compressed file; unpack it first"
_KINDS = (  # where the bytes are, the bytes, what the file is and what can be done
    (0, b"GGUF", GGUF),
    (0, b"\x93NUMPY", NPY),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as of Keras; read its arrays with h5py and quantize them, or write ONNX"),
    (4, b"TFL3", "a TensorFlow Lite network; convert it to ONNX, which quantarray.nn.load reads"),
    (0, b"\x89PNG\r\n", _IMAGE),
    (0, b"\xff\xd8\xff", _IMAGE),
    (0, b"GIF8", _IMAGE),
    (0, b"\x1f\x8b", _PACKED),
    (0, b"BZh", _PACKED),
    (0, b"\xfd7zXZ", _PACKED),
    (0, b"\x28\xb5\x2f\xfd", _PACKED),
    (0, b"7z\xbc\xaf\x27\x1c", _PACKED),
    (0, b"Rar!", _PACKED),
    (257, b"ustar", _PACKED),
    (0, b"PAR1", "a Parquet table; read it with pandas, and quantize its columns"),
    (0, b"\x7fELF", "a program"),
    (0, b"version https://git-lfs", "a pointer of Git LFS to a file; `git lfs pull` fetches the file"),
    *((0, start, "an HTML page, as of a failed download") for start in (b"<!DOCTYPE", b"<!doctype", b"<html")),
)
_PICKLE = "a pickle, which may run any code and is never loaded; load it with its program, and save arrays or ONNX"
_TORCH = "a PyTorch file; torch.load reads it: quantize its tensors, or pass the module to quantarray.nn.from_torch"
_RENAMED = "a {0} file under another ending; rename it to end in {0}"


def refused(op: str, path: Path, what: str, error: Exception, kind: str | None = None) -> FormatError:
    """Return the error of a file that is not `what`: the foreign kind that it has, or what is wrong.

    kind: the kind that `what` would have, so that only what is wrong can be said.
    """
    foreign = kind_of(path)
    wrong = reason(error) if foreign in (None, kind) else f"it is {foreign}"
    return FormatError(f"{op}: {path} is not {what}: {wrong}")


def reason(error: Exception) -> str:
    """Say in one line what is wrong with a file, from any error of its parsers: zipfile, zlib, json, NumPy and more."""
    if isinstance(error, KeyError):
        text = f"it lacks {error}"
    elif "allow_pickle" in str(error) or "Python objects in dtype" in str(error):
        text = "it holds Python objects, which are never loaded"
    else:
        text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} .."  # zipfile, for one, quotes the whole file


def kind_of(path: Path) -> str | None:
    """Say which foreign kind of file is at a path, and what can be done with it; None if that is not known."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
        if head[8:9] == b"{":  # first, as the length before it may be any bytes
            return _of_safetensors(path)
        for at, magic, kind in _KINDS:
            if head[at:].startswith(magic):
                return kind
        if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
            return _PICKLE
        if head[:1] == b"\x08" and head[1:2] < b"\x20" and head[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x3a", b"\x42"):
            return ONNX
        if head[:2] == b"PK":
            return _of_zip(path)
        return _of_text(head)
    except Exception:  # unreadable or damaged: zipfile and json raise anything
        return None


def _of_zip(path: Path) -> str | None:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "meta.npy" in names:
        return None if path.suffix == ".npz" else _RENAMED.format(".npz")
    if any(name.endswith("data.pkl") for name in names):
        return _TORCH
    arrays = [name.removesuffix(".npy") for name in names if name.endswith(".npy")]
    if arrays and len(arrays) == len(names):
        return f"an .npz of {_listed(arrays)} by NumPy; quantize(np.load(file)[name], quantizer) packs one"
    return "a zip archive of other files; unpack it first"


def _of_safetensors(path: Path) -> str | None:
    metadata, arrays = tensors.read(path)
    if "quantarray" not in metadata:
        contents = f"a safetensors file of {_listed(list(arrays))} by another program"
        return f"{contents}; read it with safetensors.numpy.load_file, and pack its arrays with quantize(a, quantizer)"
    ending = ".qa" if '"quantarray document"' in metadata["quantarray"] else ".safetensors"
    return None if path.suffix == ending or path.suffix not in (".npz", ".safetensors") else _RENAMED.format(ending)


def _of_text(head: bytes) -> str | None:
    if not head:
        return "empty"
    text = head.decode("utf-8", errors="strict" if len(head) < _HEAD else "ignore")
    return "a text file" if all(c.isprintable() or c.isspace() for c in text) else None


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"{name!r:.40}" for name in names[:3]) or "no arrays"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
