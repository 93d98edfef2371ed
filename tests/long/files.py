"""Files with every kind of damage: what is loaded is what was saved, or nothing is.

A case draws an array, saves and loads it, and loads copies that bytes or rewritten parts have made wrong; or it has a
save interrupted; or it does the like to a network of plain integers, to a `.qa` file of arrays or of a network, or to
an ONNX file. A copy may load as what was saved, or be refused by an error that names the
file. One whose meta text or arrays were changed and whose digest was computed again must be read where it is lawful
by docs/format.md, as what it holds, and refused elsewhere. No load may take more memory than a few times the file.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.arrays.array import validate

from . import damage, onnx_files, other_files, qa_files
from .interrupted import disk_full, killed
from .lawful import lawful, multiplied
from .little_memory import little_memory
from .proof import Proof
from .stored import HEADER, NAMES, content, digest, draw_array, entries, packed

COPIES = 2  # damaged ones of an array


def run(rng: np.random.Generator) -> str:
    way = rng.random()
    if way < 0.3:
        return other_files.network(rng, folder(), attempt)
    if way < 0.45:
        return onnx_files.onnx_file(rng)
    if way < 0.6:
        return qa_files.document_file(rng, folder(), attempt)
    q = draw_array(rng)
    path = folder() / ("q.npz" if rng.random() < 0.5 else "q.safetensors")
    if way > 0.94 and rng.random() < 0.3:
        path = folder() / "q.qa"
    if way > 0.985:
        return killed(rng, path, q, draw_array(rng), same)
    if way > 0.94:
        return disk_full(rng, path, q, draw_array(rng), same)
    qa.save(path, q)
    assert same(qa.load(path), q), "another array is loaded than was saved"
    meta, arrays = content(path)
    assert lawful(meta, arrays), "what is saved breaks a rule of docs/format.md"
    data = path.read_bytes()
    for _ in range(COPIES):
        if rng.random() < 0.4:
            _rewritten(rng, path, meta, arrays)
        else:
            _damaged(rng, path, data, q)
    return path.suffix[1:]


def _damaged(rng: np.random.Generator, path: Path, data: bytes, q: qa.QuantArray) -> None:
    """Change bytes of a file, which must load as the saved array (without a checksum by any scheme) or be refused."""
    if raw := rng.random() < 0.6:
        data = damage.anywhere(rng, data)
    else:
        data = (damage.inside if path.suffix == ".npz" else damage.header_of_tensors)(rng, data)
    path.write_bytes(data)
    loaded = attempt(path, qa.load, qa.FormatError, "load", rng.random() < 0.25)
    if loaded is not None:
        assert same(loaded, q, scheme=raw and path.suffix == ".npz"), "a damaged file is loaded as another array"


def _rewritten(rng: np.random.Generator, path: Path, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Change a key or an array, mostly with a digest that fits: the file must load if lawful, otherwise be refused."""
    meta, arrays = {**meta}, {**arrays}
    _change(rng, meta, arrays)
    if rng.random() < 0.8 and meta.keys() >= set(HEADER):
        meta["digest"] = digest(meta, arrays)
    path.write_bytes(packed(path.suffix, json.dumps(meta), arrays))
    loaded = attempt(path, qa.load, qa.FormatError, "load", rng.random() < 0.25)
    expected = lawful(meta, arrays)
    assert expected == (loaded is not None), f"refused: {loaded is None}, lawful: {expected}: {meta!r:.500}"
    if loaded is not None:
        assert _holds(loaded, meta, arrays), "what is loaded is not what the file says"


def _change(rng: np.random.Generator, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
    way = rng.random()
    if way < 0.6:
        key = damage.pick(rng, (*sorted(meta), *HEADER, "scheme", "super_blocks", "layers", "more"))
        meta[key] = damage.value(rng, meta.get(key))
    elif way < 0.65:
        del meta[damage.pick(rng, sorted(meta))]
    elif way < 0.7:
        name = damage.pick(rng, NAMES)
        arrays[name] = damage.pick(rng, list(arrays.values()))
    elif way < 0.75:
        del arrays[damage.pick(rng, sorted(arrays))]
    else:
        name = damage.pick(rng, sorted(arrays))
        arrays[name] = damage.array(rng, arrays[name])


def _holds(q: qa.QuantArray, meta: dict[str, Any], arrays: dict[str, Any]) -> bool:
    validate(q)
    header = {"axis": q.axis, "bits": q.bits, "group": q.group, "kind": q.dtype.kind, "n_levels": q.dtype.n_levels}
    header |= {"levels": q.dtype.levels and list(q.dtype.levels), "shape": list(q.shape)}
    numbers = {name: a for name, a, _ in q.constants.items()} | {"words": q.words}
    stored = multiplied(meta, {name: a for name, a in arrays.items() if name in entries(meta)})
    return (
        stored is not None
        and {name: a.bits for name, a in q.constants.super_blocks.items()} == meta.get("super_blocks", {})
        and all(meta[key] == header[key] for key in HEADER)
        and q.scheme == meta.get("scheme")
        and numbers.keys() == stored.keys()
        and all(np.array_equal(numbers[name], a) and numbers[name].dtype == a.dtype for name, a in stored.items())
    )


def same(a: qa.QuantArray, b: qa.QuantArray, scheme: bool = True) -> bool:
    """True for arrays that nobody can tell apart, and the first of which keeps its rules."""
    validate(a)
    return (
        (a.shape, a.axis, a.dtype, a.group, a.bits) == (b.shape, b.axis, b.dtype, b.group, b.bits)
        and (a.scheme == b.scheme or not scheme)
        and a.digest() == b.digest()
        and a.constants.bfloat16 == b.constants.bfloat16
        and bool(np.array_equal(a.words, b.words))
        and bool(qa.array_equal(a, b))
    )


def attempt(path: Path, read: Callable[[Path], Any], refusal: type[Exception], op: str, measured: bool) -> Any:
    """Return read(path), or None if it raises `refusal` with an error of one line that names the file."""
    try:
        with little_memory(path.stat().st_size, measured):
            return read(path)
    except refusal as error:
        text = str(error)
        assert text.startswith(f"{op}: {path} is not a "), f"not said of which file: {text!r:.200}"
        assert "\n" not in text and len(text) < 2000, f"{len(text)} characters: {text!r:.200}"
        cause: BaseException | None = error
        while cause is not None:
            assert not isinstance(cause, MemoryError), f"more memory than the file is worth: {text!r:.200}"
            cause = cause.__cause__ or cause.__context__
        return None


@cache
def folder() -> Path:
    """Create the folder of the files, in memory if possible: the disk is not under test."""
    shared = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="long-files-", dir=shared if os.access(shared, os.W_OK) else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)  # children of a fork leave by os._exit
    return path


def prepare() -> None:
    """Compile, import and start what is needed, so that no limit is met by that."""
    qa.set_num_threads(1)
    rng = np.random.default_rng(0)
    for _ in range(60):
        for suffix in (".npz", ".safetensors"):
            path = folder() / f"q{suffix}"
            q = draw_array(rng)
            qa.save(path, q)
            assert same(qa.load(path), q)
    other_files.prepare()
    qa_files.prepare()
    onnx_files.prepare()


PROOF = Proof(run, 100_000, prepare=prepare, environment={"MALLOC_ARENA_MAX": "1"})
