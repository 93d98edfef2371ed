"""Damage to files: wrong bytes anywhere, and parts rewritten so that the outer checksums fit again."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
from typing import Any

import numpy as np

from .stored import TYPES, Array, zipped

HUGE = (2**20, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30)
WRONG: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        -1,
        8,
        9,
        255,
        256,
        2**31,
        2**64,
        10**400,
        0.0,
        1.0,
        2.0,
        1e300,
        math.inf,
        math.nan,
    ),
    *("", "1", "integer", "uniform", "basis", "table", "quantarray", "\0", "\ud800", {}, {"a": 1}, [], [0], [-1], [1]),
    *([2.0, 3], [True, 3], [[2, 3]], ["2", 3], [None], [1] * 64, [2**62, 2**62], [2**62, 0], [0, 1], [1, 0], [3, 3]),
    *({"scale": 4}, {"scale": 8}, {"offset": 8}, {"scale": 8, "offset": 4}, {"scale": 4, "table": 4}),
    *(list(range(256)), list(range(300)), [0, 2**31], [[]] * 3, "x" * 100_000),
)


def pick(rng: np.random.Generator, options: Any) -> Any:
    """Pick one element of a sequence, unchanged: `rng.choice` would convert it to a type of NumPy."""
    return options[int(rng.integers(len(options)))]


def anywhere(rng: np.random.Generator, data: bytes) -> bytes:
    """Change one to three places; half of them near the file's ends and signatures, which hold its structure."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        data = _once(rng, data)
    return data


def _once(rng: np.random.Generator, data: bytes) -> bytes:
    at, length = _place(rng, data), int(2 ** rng.uniform(0, 8))
    noise = rng.bytes(length)
    way = int(rng.integers(10))
    if way < 4 and data:
        one = data[at : at + 1]
        return data[:at] + bytes(b ^ (1 << int(rng.integers(8))) for b in one) + data[at + 1 :]
    if way == 4:
        return data[:at]
    if way == 5:
        return data[:at] + noise + data[at:]
    if way == 6:
        return data[:at] + data[at + length :]
    if way == 7:
        a, b = sorted((at, _place(rng, data)))
        return data[:a] + data[b : b + length] + data[a + length : b] + data[a : a + length] + data[b + length :]
    if way == 8:
        return data[:at] + pick(rng, (noise, bytes(length), b"\xff" * length)) + data[at + length :]
    return data + pick(rng, (noise, bytes(length), data, data[at:]))


def _place(rng: np.random.Generator, data: bytes) -> int:
    n = len(data)
    way = int(rng.integers(4))
    if way == 0:
        return min(n, int(rng.integers(400)))
    if way == 1:
        return max(0, n - 1 - int(rng.integers(400)))
    if way == 2 and (at := data.find(b"PK", int(rng.integers(n + 1)))) >= 0:
        return min(n, at + int(rng.integers(50)))
    return int(rng.integers(n + 1))


def entries_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}


def inside(rng: np.random.Generator, data: bytes) -> bytes:
    """Rebuild an archive with one entry changed, removed, doubled, renamed or compressed; its checksums fit."""
    parts = entries_of(data)
    name = pick(rng, sorted(parts))
    way = int(rng.integers(8))
    if way == 0:
        return zipped(parts, int(rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])))
    if way == 1:
        del parts[name]
    elif way == 2:
        again = parts[name] if rng.random() < 0.5 else anywhere(rng, parts[name])
        return _double(parts, name, again, rng.random() < 0.5)
    elif way == 3:
        parts[str(pick(rng, ("scale", "scale_halves", "table", "x", "../words", "words.npy", "")))] = parts.pop(name)
    elif way in (4, 5):
        parts[name] = claim(rng) + parts[name][-int(rng.integers(1, 200)) :]
        return _lying(rng, zipped(parts)) if rng.random() < 0.5 else zipped(parts)
    else:
        parts[name] = anywhere(rng, parts[name])
    order = [pick(rng, (0, 1)) for _ in parts]
    return zipped([p for _, p in sorted(zip(order, parts.items(), strict=True), key=lambda pair: pair[0])])


def _double(parts: dict[str, bytes], name: str, again: bytes, first: bool) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile says that the name is there twice
        pairs = list(parts.items())
        return zipped([(name, again), *pairs] if first else [*pairs, (name, again)])


def _lying(rng: np.random.Generator, data: bytes) -> bytes:
    """Change the sizes of an entry in the archive's directory."""
    places = [i for i in range(len(data)) if data.startswith(b"PK\x01\x02", i)]
    at = pick(rng, places)
    sizes = [pick(rng, (2**20, 2**31, 2**32 - 2)).to_bytes(4, "little")] * 2
    if rng.random() < 0.3:
        sizes[0] = data[at + 20 : at + 24]
    return data[: at + 20] + b"".join(sizes) + data[at + 28 :]


def claim(rng: np.random.Generator) -> bytes:
    """Build the header of an .npy file that claims more data than any file here holds."""
    shape = pick(
        rng, ((pick(rng, HUGE),), (pick(rng, HUGE), pick(rng, HUGE)), (1,) * 70, (2**62, 0), (-1,), (2**26, 1, 1))
    )
    descr = pick(rng, ("<u8", "<f4", "<i4", "|u1", "|i1", "|O", "<U500000000", "<U0", "|V9", "<c16", "<M8[s]"))
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": rng.random() < 0.2, "descr": descr})
    return file.getvalue()


def header_of_tensors(rng: np.random.Generator, data: bytes) -> bytes:
    """Change the type, shape or offsets of a tensor in the header of a .safetensors file."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    tensor = header[pick(rng, sorted(header))]
    key = pick(rng, sorted(tensor))
    if key == "dtype":
        tensor[key] = pick(rng, (*TYPES, "BF16", "F8_E4M3", "F8_E5M2", "BOOL", "C64", "F4", "u64", "", 3))
    elif key in ("shape", "data_offsets") and rng.random() < 0.5:
        tensor[key] = [*tensor[key]]
        if tensor[key]:
            tensor[key][int(rng.integers(len(tensor[key])))] = pick(rng, (*HUGE, -1, 0, 1, 2, 8))
    else:
        tensor[key] = pick(rng, WRONG)
    text = json.dumps(header).encode()
    if rng.random() < 0.1:
        text = text[:-1] + b"," + text[1:]  # every key twice
    size = pick(rng, HUGE[:5]) if rng.random() < 0.05 else len(text)
    return (size % 2**64).to_bytes(8, "little") + text + data[start:]


def value(rng: np.random.Generator, old: Any) -> Any:
    """Return another value for a key of JSON: near the old one, or one of WRONG."""
    if type(old) is int and rng.random() < 0.4:
        return old + int(rng.choice([-1, 1]))
    if isinstance(old, list) and old and rng.random() < 0.4:
        new = [*old]
        new[int(rng.integers(len(new)))] = value(rng, pick(rng, new))
        return new
    return pick(rng, WRONG)


def array(rng: np.random.Generator, a: Array) -> Array:
    """Return another array for an entry: of another type or shape, or with one other element."""
    way = int(rng.integers(6))
    if way == 0 and a.dtype.kind != "U":
        with np.errstate(all="ignore"):
            return a.astype(pick(rng, ("<f4", "<f8", "<u2", "<i8", "<i4", "u1")))
    if way == 1:
        return pick(rng, (a.reshape(-1), a[None], a.T.copy(), a.reshape(*a.shape, 1)))
    if way == 2 and a.ndim:
        return np.concatenate([a, a], int(rng.integers(a.ndim)))
    if way == 3 and a.ndim and a.size:
        return a[: len(a) // 2].copy()
    new = a.copy()
    if new.size and new.dtype.kind == "f":
        new.flat[int(rng.integers(new.size))] = pick(rng, (np.nan, np.inf, -0.0, 0.0, 3e38, -3e38, 1e-45, 1.0))
    elif new.size and new.dtype.kind in "iu":
        new.flat[int(rng.integers(new.size))] ^= new.dtype.type(1 << int(rng.integers(new.dtype.itemsize * 8 - 1)))
    return new
