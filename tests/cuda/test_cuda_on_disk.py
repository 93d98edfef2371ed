"""Compiled CUDA kernels on disk: what they are named after, and files that are as they were written."""

import json
import os
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("numba_cuda")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from cuda_compile import needs_toolkit
from paths import ROOT

from quantarray.cuda.runtime import launch, on_disk

CODE = on_disk.Code("kernel", bytes(range(256)) * 9)
TEXT = ("bits.pack.one", "a" * 16, "b" * 32)
PROCESS = """
import json, sys
sys.path.insert(0, "tests/support")
from types import SimpleNamespace
import numpy as np
from quantarray.cuda.bits import pack
from quantarray.cuda.runtime import driver, launch

kernel = pack._pack(2, pack._read_aligned)
args = np.zeros((3, 64), np.uint8), 0, np.zeros((2, 3, 2), np.uint32)
launch.capability, loaded = lambda: (9, 0), []
driver.loaded = lambda code: loaded.append(code) or SimpleNamespace(handle=7)


def compiled(*args):
    from cuda_compile import linked

    name, cubin = linked(kernel, args, (9, 0))
    cubin = SimpleNamespace(code=cubin)
    code = SimpleNamespace(_entry_name=name, get_cubin=lambda: cubin, get_cufunc=lambda: "function")
    return SimpleNamespace(overloads={0: SimpleNamespace(_codelibrary=code)})


kernel.specialize = compiled
function = launch._function(kernel, args)[1]
lazily = [name for name in ("numba.cuda.np.arrayobj", "cuda_compile") if name in sys.modules]
files = len([*launch.on_disk.folder().glob("*")])
print(json.dumps([str(function), [[one.name, one.cubin.hex()] for one in loaded], lazily, files]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(on_disk, "folder", lambda: tmp_path)
    return tmp_path


def test_a_file_is_read_as_it_was_written(folder):
    assert on_disk.read(TEXT) is None
    on_disk.write(TEXT, CODE)
    assert on_disk.read(TEXT) == CODE and len(list(folder.iterdir())) == 1
    with on_disk.unread():
        assert on_disk.read(TEXT) is None
    assert on_disk.described().startswith("1 kernels on disk, 0.0 MB in ")


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:40] + b"x" + b[41:], lambda b: b + b"x"]
)
def test_a_damaged_file_is_not_read_but_written_again(damage, folder):
    on_disk.write(TEXT, CODE)
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert on_disk.read(TEXT) is None
    on_disk.write(TEXT, CODE)
    assert on_disk.read(TEXT) == CODE


def test_files_of_other_sources_go(folder):
    others = [
        ("bits.pack.one", "c" * 16, "d" * 32),
        ("bits.pack.one", "a" * 16, "e" * 32),
        ("bits.pack.o", "c" * 16, ""),
    ]
    for text in (*others, TEXT):
        on_disk.write(text, CODE)
    assert [on_disk.read(text) is not None for text in (*others, TEXT)] == [False, True, True, True]


def test_what_cannot_be_written_is_left_out(folder, monkeypatch):
    def no_room(*names):
        raise OSError

    monkeypatch.setattr(os, "replace", no_room)
    on_disk.write(TEXT, CODE)
    assert on_disk.read(TEXT) is None and not list(folder.iterdir())
    monkeypatch.setattr(on_disk, "folder", lambda: None)
    on_disk.write(TEXT, CODE)
    assert on_disk.read(TEXT) is None


def kernels():
    """Yield kernels and arguments that are all compiled to other code."""
    pack, encode, conv = (
        import_module(f"quantarray.cuda.{name}") for name in ("bits.pack", "bits.encode", "popcount.conv")
    )
    tiles, bmma = import_module("quantarray.cuda.popcount.tiles"), import_module("quantarray.cuda.tensor_cores.bmma")
    codes, words = np.zeros((3, 64), np.uint8), np.zeros((2, 3, 2), np.uint32)
    for planes in (1, 2):
        for read in (pack._read_aligned, pack._read_shifted):
            yield pack._pack(planes, read), (codes, 0, words)
    yield pack._pack(1, pack._read_aligned), (codes, np.int32(0), words)
    yield pack._pack(1, pack._read_aligned), (codes[:, ::2], 0, words)
    yield pack._pack(1, pack._read_aligned), (codes.astype(np.int8), 0, words)
    for reader in (encode._as_float32, encode._as_float64, encode._of_bfloat16):
        yield encode._short(1, 1, reader), (codes,)
    for tile in (tiles.tile_for(1), tiles.tile_for(2), tiles.tile_for(4)):
        for of_codes in (True, False):
            yield conv._kernel(tile, of_codes, np.int32), ()
    yield conv._kernel(tiles.tile_for(1), True, np.int64), ()
    shape = tiles.Shape(1, 1, 1, 1, 1, 1, 1, 1)
    for tile in bmma.TILES[:2]:
        form = import_module("quantarray.cuda.tensor_cores.stages").Form
        plain = form(*[0] * len(form._fields))._replace(words=1, added=None)
        yield from ((bmma._kernel(tile, plain._replace(single=single)), (shape,)) for single in (True, False))


def texts(capability=(9, 0)):
    return [on_disk.text_of(kernel, tuple(map(launch._form, args)), capability) for kernel, args in kernels()]


def test_kernels_are_named_after_all_that_they_are_made_of(monkeypatch):
    named = texts()
    assert len(set(named)) == len(named) > 15
    assert texts() == named and not set(texts((8, 0))) & set(named)
    monkeypatch.setattr(
        "quantarray.cuda.bits.pack.WORDS", 4
    )  # a global of a function that the kernel captures or calls
    changed = [one for one, before in zip(texts(), named, strict=True) if one != before]
    assert changed and all(name.startswith("bits.") for name, _, _ in changed)
    monkeypatch.setattr(on_disk, "_compilers", lambda: "of another version")
    assert not {one[:2] for one in texts()} & {one[:2] for one in named}


def test_names_are_the_same_in_each_process():
    code = "import json, test_cuda_on_disk; print(json.dumps(test_cuda_on_disk.texts()))"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests/support", ROOT / "tests/cuda")))
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1] and json.loads(found[0])[0] == list(texts()[0])


@pytest.mark.full
@needs_toolkit
def test_a_second_process_starts_what_the_first_has_compiled(tmp_path):
    """The machine code is read, and passed to the driver, a stand-in. What compiles is not even imported."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def process():
        done = subprocess.run(
            [sys.executable, "-c", PROCESS], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    first, again = process(), process()
    assert first[:2] == ["function", []] and "cuda_compile" in first[2] and first[3] == 1
    assert again[0] != "function" and again[2] == [] and again[3] == 1
    ((name, cubin),) = again[1]
    assert "pack_codes" in name and bytes.fromhex(cubin).startswith(b"\x7fELF")
