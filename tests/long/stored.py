"""Random packed arrays of every kind that a file can hold, and a reader of docs/format.md that shares no code."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa

from .laws import MOST, codes, integer_law, magnitude

Array = np.ndarray[Any, Any]
Content = tuple[dict[str, Any], dict[str, Array]]  # the meta text as an object, and the arrays by name
LENGTHS = (0, 1, 1, 2, 3, 5, 31, 63, 64, 65, 70, 128, 129, 200)
HEADER = ("axis", "bits", "group", "kind", "levels", "n_levels", "shape")
NAMES = ("offset", "offset_halves", "scale", "scale_halves", "table", "words")
TITLES = {"<u2": "bfloat16 ", "|u1": "uint8 ", "|i1": "int8 ", "<f2": "float16 "}  # of types in a digest
SCHEMES = ("XNOR()", "Uniform(4, symmetric=False)", "", "größe \u2028\0 \ud800", '"}, {"', "x" * 3000)
TYPES = {
    "U64": "<u8", "F32": "<f4", "U16": "<u2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "F16": "<f2", "U8": "u1",
    "BOOL": "?", "I8": "i1", "I16": "<i2", "U32": "<u4",
}  # fmt: skip


def draw_array(rng: np.random.Generator) -> qa.QuantArray:
    """Draw an array of any law, shape, packed axis, constants and scheme; often it is a view.

    Constants vary along axes or in groups; some are bfloat16, and some super-blocks.
    """
    shape = [int(n) for n in rng.choice(LENGTHS, int(rng.integers(1, 5)))]
    while math.prod(shape) > 4000:
        shape[int(np.argmax(shape))] //= 2
    axis = int(rng.integers(len(shape)))
    kind = rng.choice(["integer", "scaled", "uniform", "basis", "table"])
    law = _law(rng, kind)
    constants, group = _constants(rng, kind, law, shape, axis)
    levels = np.arange(law.n_levels) if law.levels is None else np.array(law.levels)
    q = qa.from_codes(codes(rng, tuple(shape), levels), law, axis, **constants, group=group)
    numbers = q.constants.to_bfloat16() if rng.random() < 0.3 else _compact(rng, q)
    scheme = str(rng.choice(SCHEMES)) if rng.random() < 0.4 else None
    q = qa.QuantArray(q.words, q.dtype, q.shape, q.axis, numbers, scheme)
    return _view(rng, q) if rng.random() < 0.4 else q


def _law(rng: np.random.Generator, kind: str) -> qa.DType:
    bits = int(rng.integers(1, 9))
    if kind in ("integer", "scaled"):
        law = integer_law(rng, magnitude(rng, 1, MOST))
        return qa.DType("integer", min(8, law.bits + 1), law.n_levels, law.levels) if rng.random() < 0.1 else law
    some = 2**bits if kind == "basis" or rng.random() < 0.6 else int(rng.integers(1, 2**bits + 1))
    return qa.DType(kind, bits, some)


def _constants(
    rng: np.random.Generator, kind: str, law: qa.DType, shape: list[int], axis: int
) -> tuple[dict[str, Array], int | None]:
    """Draw constants by name, each of which varies along some axes, and the group."""
    group = int(rng.integers(1, shape[axis] + 3)) if kind != "integer" and rng.random() < 0.4 else None
    along = [n if rng.random() < 0.4 else 1 for n in shape]
    along[axis] = -(-shape[axis] // group) if group else 1

    def some(*lead: int) -> Array:
        dims = [n if rng.random() < 0.7 else 1 for n in along]
        drawn = rng.standard_normal((*lead, *dims)) * 2.0 ** rng.uniform(-60, 60)
        return np.float32(np.round(drawn) if rng.random() < 0.2 else drawn)

    if kind == "integer":
        return {}, None
    if kind == "table":
        return {"table": some(law.n_levels)}, group
    lead = (law.bits,) if kind == "basis" else ()
    return {"scale": some(*lead)} | ({} if kind == "scaled" else {"offset": some()}), group


def _compact(rng: np.random.Generator, q: qa.QuantArray) -> qa.Constants:
    """Return an array's constants, often with super-blocks in place of some."""
    c = q.constants
    arrays: dict[str, Any] = {name: a for name, a, _ in c.items()}
    groups = -(-q.shape[q.axis] // q.group) if q.group else 1
    for name, a in arrays.items():
        if name == "table" or q.axis != q.ndim - 1 or a.shape[-1] != groups or rng.random() < 0.3:
            continue
        runs = _runs(rng, groups)
        bits, dtype = ((4, np.uint8), (8, np.uint8), (8, np.int8))[int(rng.integers(3))]
        low, high = (0, 16) if bits == 4 else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
        halves = np.float16(rng.standard_normal((*a.shape[:-1], runs)) * 2.0 ** rng.uniform(-20, 10))
        arrays[name] = qa.SuperBlocks(rng.integers(low, high, a.shape).astype(dtype), halves, bits)
    return qa.Constants(**arrays, group=c.group)


def _runs(rng: np.random.Generator, groups: int) -> int:
    """Return how many super-blocks so many groups have: a divisor."""
    return int(rng.choice([n for n in range(1, groups + 1) if groups % n == 0])) if groups else 0


def _view(rng: np.random.Generator, q: qa.QuantArray) -> qa.QuantArray:
    """Slice unpacked axes with steps and the packed one by whole words, and permute the axes."""
    key = [slice(None, None, int(rng.choice([1, 1, 2, -1]))) for _ in q.shape]
    key[q.axis] = slice(64 * int(rng.integers(2)), None) if q.group is None else slice(None)
    view = q[tuple(key)]
    return view.transpose(*rng.permutation(view.ndim).tolist())


# What a file holds, by docs/format.md alone


def content(path: Path) -> Content:
    """Read the meta object and the arrays of a sound file."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            raw = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
        arrays = {name: np.load(io.BytesIO(data)) for name, data in raw.items()}
        return json.loads(str(arrays.pop("meta"))), arrays
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    text = header.pop("__metadata__")["quantarray"]
    spans = {name: (start + e["data_offsets"][0], start + e["data_offsets"][1]) for name, e in header.items()}
    flat = {name: np.frombuffer(data[slice(*spans[name])], TYPES[e["dtype"]]) for name, e in header.items()}
    return json.loads(text), {name: a.reshape(header[name]["shape"]) for name, a in flat.items()}


def npy(a: Array) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, a, (1, 0), allow_pickle=False)
    return file.getvalue()


def packed(suffix: str, text: str, arrays: dict[str, Array]) -> bytes:
    """Return the bytes of a file of this meta text and these arrays."""
    if suffix == ".npz":
        return zipped({"meta": npy(np.array(text))} | {name: npy(a) for name, a in arrays.items()})
    header: dict[str, Any] = {"__metadata__": {"quantarray": text}}
    end = 0
    for name, a in arrays.items():
        label = next(label for label, code in TYPES.items() if np.dtype(code) == a.dtype)
        header[name] = {"dtype": label, "shape": list(a.shape), "data_offsets": [end, end := end + a.nbytes]}
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + b"".join(a.tobytes() for a in arrays.values())


def zipped(entries: dict[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return the bytes of an archive of these .npy entries, with checksums that fit."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in entries.items() if isinstance(entries, dict) else entries:
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data, compression)
    return file.getvalue()


def entries(meta: dict[str, Any]) -> set[str]:
    """Return the names of the arrays that a file of this meta object may have; others are ignored."""
    blocks = meta.get("super_blocks")
    halves = {f"{name}_halves" for name in blocks} if isinstance(blocks, dict) else set()
    return {"words", "scale", "offset", "table"} | halves


def digest(meta: dict[str, Any], arrays: dict[str, Array]) -> str:
    """Compute the digest by the recipe of docs/format.md."""
    keys = (*HEADER, "super_blocks") if "super_blocks" in meta else HEADER
    parts = [json.dumps({key: meta[key] for key in keys}, sort_keys=True).encode()]
    for name in (name for name in NAMES if name in entries(meta) & arrays.keys()):
        a = arrays[name]
        parts += [f"{name} {TITLES.get(a.dtype.str, '')}{a.shape}".encode(), a.tobytes()]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()
