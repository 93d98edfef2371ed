"""Load a network from any kind of file that holds one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import FormatError
from ..io.files import path_of
from ..io.foreign import ONNX, kind_of
from .file import load_stored
from .graph import Graph
from .network import Network, load_network
from .onnx.loading import load_onnx
from .sequential import Sequential

_ARCHIVE = b"PK"  # first bytes of a .npz
_MODEL = b"\x08"  # first byte of an ONNX file that begins with its version, as all writers have it
_LENGTH = 8  # bytes before the JSON object of a .qa file


def load(
    source: Any, *, shapes: Mapping[str, Any] | None = None, constants: Mapping[str, Any] | None = None
) -> Graph | Sequential | Network:
    """Read a network from a `.qa` file, an ONNX or QONNX file, or a `.npz` of plain integers.

        network = qa.nn.load("model.onnx")
        scores = network(images)

    source: a path; or the bytes of an ONNX file, or an `onnx.ModelProto`. The first bytes tell what a file holds.

    - `.qa`: the `Sequential`, `Network` or `Graph` that `save` wrote; weights are views of the mapped file, see
      `quantarray.load`.
    - `.npz`: a `Network`, as `load_network` reads it.
    - ONNX (`pip install quantarray[onnx]`): a `Graph` that runs on packed integers. Scales, biases, batch norms and
      activations between a product and the next quantiser become thresholds, in the order of the file; what has no
      packed operation runs in NumPy, and `Graph.summary` marks it. Inputs and outputs are as the file has them, images
      NCHW; the batch may have any length where no operation mixes samples.

    shapes (ONNX): the shape of each input whose lengths beside the batch the file leaves open.
    constants (ONNX): arrays for inputs that are to be part of the network.

    Raises FormatError for a damaged or foreign file, and ValueError that lists all nodes that cannot be taken and why.
    """
    path = path_of("load", source) if isinstance(source, (str, os.PathLike)) else None
    kind = None if path is None else _kind(path)
    if path is None:
        return load_onnx(source, shapes, constants)
    if kind is None:
        try:
            return load_onnx(path, shapes, constants)
        except FormatError as error:
            kind = kind_of(path)
            if kind in (None, ONNX):
                raise
            raise FormatError(f"load: {path} is not an ONNX model: it is {kind}") from error
    if shapes is not None or constants is not None:
        raise ValueError(f"load: shapes= and constants= are for ONNX files; {path.name} is a {kind} file")
    return load_network(path) if kind == ".npz" else load_stored(path)


def _kind(path: Path) -> str | None:
    """Return ".npz" or ".qa" by a file's first bytes and its name; None for ONNX."""
    with open(path, "rb") as file:
        start = file.read(_LENGTH + 1)
    if start.startswith(_ARCHIVE) or path.suffix == ".npz":
        return ".npz"
    is_onnx = start[_LENGTH:] != b"{" and path.suffix != ".qa" and (path.suffix == ".onnx" or start[:1] == _MODEL)
    return None if is_onnx else ".qa"
