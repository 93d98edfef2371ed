"""GGUF files: what is loaded has exactly the reference's values, and a damaged file has too, or is refused.

A case writes a file with a tensor of each packed type and some dense ones, reads every tensor and compares it with
`gguf` or, where that decodes none, with a formula; then it changes bytes or numbers of the header, and reads again.
A wrong header is refused by an error that names the file, a wrong tensor by one that names it too, and neither may
take more memory than a few times the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.arrays.array import validate

from . import damage
from .files import folder
from .little_memory import little_memory
from .proof import Proof

sys.path.append(str(Path(__file__).parents[1] / "support"))
import gguf_files
from gguf_files import BLOCKS, DENSE, Array, Stored

EACH = 50  # blocks of a type in a file
_WRONG = (0, 1, 2, 3, 7, 8, 9, 31, 32, 36, 41, 64, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**60, 2**62, 2**63, 2**64 - 1)


def run(rng: np.random.Generator) -> str:
    tensors = _draw(rng)
    metadata = {"general.name": "größe", "numbers": rng.integers(0, 9, 5), "tokens": ["a", "", "\u2581x"] * 3}
    version, alignment = int(rng.integers(2, 4)), damage.pick(rng, (None, 1, 8, 32, 64))
    data, numbers = gguf_files.write(tensors, metadata, alignment, version)
    read = _read(rng, data)
    assert isinstance(read, dict), f"a sound file is refused: {read}"
    assert [*read] == [*tensors], "other tensors are read than were written"
    for name, stored in tensors.items():
        _compare(name, read[name], stored)
    damaged, kind = bytearray(data), "bytes"
    if rng.random() < 0.5:
        at, size = damage.pick(rng, numbers)
        old = int.from_bytes(data[at : at + size], "little")
        new = old + damage.pick(rng, (-1, 1, 32)) if rng.random() < 0.4 else damage.pick(rng, _WRONG)
        damaged[at : at + size] = (new % 256**size).to_bytes(size, "little")
        kind = "numbers"
    else:
        damaged = bytearray(damage.anywhere(rng, data))
    again = _read(rng, bytes(damaged))
    if isinstance(again, str):
        return f"refused, of wrong {kind}"
    expected = gguf_files.read(bytes(damaged))
    assert again.keys() == expected.keys()
    for name, value in again.items():
        if isinstance(value, str):
            assert "earlier layout" in value or _not_lawful(expected[name]), f"refused, though lawful: {value}"
        else:
            _compare(name, value, expected[name])
    return f"read, of wrong {kind}"


def _draw(rng: np.random.Generator) -> dict[str, Stored]:
    rows = damage.pick(rng, (1, 2, 5, 10, 25))
    tensors = {kind: gguf_files.draw(rng, kind, rows, EACH // rows) for kind in BLOCKS}
    for kind, (number, dtype) in DENSE.items():
        shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(0, 5))))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        tensors[kind] = Stored(number, shape, rng.bytes(size))
    names = [*tensors]
    rng.shuffle(names)
    return {name: tensors[name] for name in names}


def _read(rng: np.random.Generator, data: bytes) -> dict[str, Any] | str:
    """Return all tensors of a file, the error of each that is refused, or that of the file."""
    path = folder() / "x.gguf"
    path.unlink(missing_ok=True)  # the former file may be mapped still
    path.write_bytes(data)
    with little_memory(len(data), rng.random() < 0.1):
        try:
            file = qa.load(path)
        except qa.FormatError as error:
            return _said(error, f"load: {path} is not a whole GGUF file: ")
        read: dict[str, Any] = {}
        for name in file:
            try:
                read[name] = file[name]
            except qa.FormatError as error:
                read[name] = _said(error, f"load: {path}: its tensor {name!r:.80} ")
    return read


def _said(error: Exception, start: str) -> str:
    text = str(error)
    assert text.startswith(start) and "\n" not in text and len(text) < 2000, f"{text!r:.300}"
    cause: BaseException | None = error
    while cause is not None:
        assert not isinstance(cause, MemoryError), f"more memory than the file is worth: {text!r:.200}"
        cause = cause.__cause__ or cause.__context__
    return text


def _compare(name: str, got: Any, stored: Stored) -> None:
    expected = gguf_files.values(stored)
    assert expected is not None, f"{name} is read, of the unknown type {stored.number}"
    assert not isinstance(got, str), f"{name} is refused: {got}"
    if isinstance(got, qa.QuantArray):
        validate(got)
        got = got.dequantize()
    a: Array = got
    assert a.shape == expected.shape and a.dtype == expected.dtype, f"{name}: {a.dtype} {a.shape}"
    assert np.array_equal(a, expected, equal_nan=a.dtype.kind == "f"), f"{name} has other values"


def _not_lawful(stored: Stored) -> bool:
    """True for a type that is not read, for values that are not finite, and for scales with levels beyond float32."""
    a = gguf_files.values(stored)
    if a is None or not np.isfinite(a).all():
        return True
    most = max(stored.data[::17]) > 252 if stored.number == BLOCKS["MXFP4"][0] else False
    return most or (stored.number == BLOCKS["I2_S"][0] and not np.isfinite(2 * np.float32(a.flat[0])))


def prepare() -> None:
    qa.set_num_threads(1)
    for number in range(3):
        run(np.random.default_rng(number))


PROOF = Proof(run, 20_000, prepare=prepare, environment={"MALLOC_ARENA_MAX": "1"})
