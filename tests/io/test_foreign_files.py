"""Files of other programs: every reader says what they are and what can be done, whatever ending they have."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
from paths import PACKAGED

import quantarray as qa
from quantarray import cli

Q = qa.encode([1, -1], values=(-1, 1))
LAYERS = qa.nn.Sequential([qa.nn.Dense(qa.encode([[1, -1]], values=(-1, 1)))])
ONNX = b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x00"


def by(write):
    """Return the bytes that `write` writes to a file."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(*names):
    def write(file):
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, b"x")

    return by(write)


def tarred(file):
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("weights"))


def safetensors(*names, metadata=None):
    header = {} if metadata is None else {"__metadata__": metadata}
    for i, name in enumerate(names):
        header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8 * len(names))


FOREIGN = {
    "gguf": (b"GGUF\3\0\0\0" + bytes(40), "it is a GGUF file of weights; quantarray.load reads it"),
    "npy": (by(lambda f: np.save(f, np.ones((2, 3)))), "it is one NumPy array; quantize(np.load(file)"),
    "npz": (by(lambda f: np.savez(f, a=np.ones(3), b=np.ones(2))), "it is an .npz of 'a', 'b' by NumPy"),
    "pt": (zipped("archive/data.pkl", "archive/data/0"), "it is a PyTorch file; torch.load reads it"),
    "zip": (zipped("a.txt"), "it is a zip archive of other files"),
    "old pt": (pickle.dumps(0x1950A86A20F9469CFC6C, 2), "it is a pickle, which may run any code and is never loaded"),
    "pickle": (pickle.dumps({"weight": [1.0] * 99}), "it is a pickle, which may run any code and is never loaded"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "it is an HDF5 file"),
    "onnx": (ONNX, "it is an ONNX network; quantarray.nn.load reads it"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(40), "it is a TensorFlow Lite network"),
    "safetensors": (safetensors("w"), "it is a safetensors file of 'w' by another program"),
    "torch's safetensors": (
        safetensors(*"abcde", metadata={"format": "pt"}),
        "it is a safetensors file of 'a', 'b', 'c' and 2 more by another",
    ),
    "gz": (gzip.compress(bytes(99)), "it is a compressed file; unpack it"),
    "bz2": (bz2.compress(bytes(99)), "it is a compressed file; unpack it"),
    "xz": (lzma.compress(bytes(99)), "it is a compressed file; unpack it"),
    "tar": (by(tarred), "it is a compressed file; unpack it"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(30), "it is an image; network.predict"),
    "jpeg": (b"\xff\xd8\xff\xe0" + bytes(30), "it is an image; network.predict"),
    "parquet": (b"PAR1" + bytes(30), "it is a Parquet table"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n", "it is a pointer of Git LFS"),
    "html": (b"<!DOCTYPE html><html>", "it is an HTML page"),
    "text": ("Größe: 3\n".encode() * 2000, "it is a text file"),
    "json": (b'{"a": 1}', "it is a text file"),
    "empty": (b"", "it is empty"),
}
READERS = {
    "load": (qa.load, (".npz", ".safetensors", ".qa")),
    "nn.load": (qa.nn.load, (".npz", ".qa", ".onnx", ".bin")),
    "load_network": (qa.nn.load_network, (".npz",)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FOREIGN)
def test_readers_say_what_it_is(name, reader, tmp_path):
    data, said = FOREIGN[name]
    read, endings = READERS[reader]
    for ending in endings:
        if read is qa.nn.load and name == "onnx" and ending in (".onnx", ".bin"):
            continue  # where it is read as one, and is damaged
        path = tmp_path / f"x{ending}"
        path.write_bytes(data)
        with pytest.raises(qa.FormatError) as error:
            read(path)
        assert str(path) in str(error.value) and f": {said}" in str(error.value)


@pytest.mark.parametrize("name", FOREIGN)
def test_endings_that_are_not_read(name, tmp_path, capsys):
    """The error about the ending also says which format the file has."""
    data, said = FOREIGN[name]
    path = tmp_path / f"x.{name.split()[-1]}_"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="load: the file must end in") as error:
        qa.load(path)
    assert f"got {str(path)!r}; {said}" in str(error.value)
    assert cli.main(["info", str(path)]) == 2
    assert f"; {said}" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in FOREIGN if name not in ("npy", "npz", "pt", "zip")])
def test_commands_on_one_array(name, tmp_path, capsys):
    data, said = FOREIGN[name]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    for args in (["compare", path], ["run", PACKAGED, "--input", path], ["run", path], ["convert", path, "net.qa"]):
        assert cli.main([str(a) for a in args]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and (said in err or name == "onnx"), err
    with pytest.raises(ValueError) as error:
        qa.nn.load_network(PACKAGED).predict(path)
    assert said in str(error.value)


def saved(tmp_path, name, what):
    path = tmp_path / name
    what.save(path) if isinstance(what, qa.nn.Sequential) else qa.save(path, what)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("written", "what", "ending", "said"),
    [
        ("a.qa", Q, ".npz", "it is a .qa file under another ending; rename it to end in .qa"),
        ("a.qa", Q, ".safetensors", "it is a .qa file under another ending; rename it to end in .qa"),
        ("a.npz", Q, ".qa", "it is a .npz file under another ending; rename it to end in .npz"),
        ("a.npz", Q, ".safetensors", "it is a .npz file under another ending; rename it to end in .npz"),
        ("a.safetensors", Q, ".npz", "it is a .safetensors file under another ending"),
        ("a.safetensors", Q, ".qa", "quantarray.load reads it from a file that ends in '.safetensors'"),
        ("a.qa", LAYERS, ".qa", "it holds a document of the kind 'sequential', which quantarray.nn.load reads"),
    ],
)
def test_files_of_the_package_under_another_name(written, what, ending, said, tmp_path):
    path = tmp_path / f"x{ending}"
    path.write_bytes(saved(tmp_path, written, what))
    with pytest.raises(qa.FormatError) as error:
        qa.load(path)
    assert said in str(error.value)


def test_arrays_where_networks_are_read(tmp_path):
    for name in ("a.qa", "a.npz"):
        qa.save(tmp_path / name, Q)
        with pytest.raises(qa.FormatError, match=r"which quantarray\.load reads"):
            qa.nn.load(tmp_path / name)


def test_damaged_files_are_not_foreign(tmp_path):
    """A wrong byte within a file of the package is damage, and is said so."""
    for ending in (".npz", ".safetensors", ".qa"):
        path = tmp_path / f"q{ending}"
        qa.save(path, Q)
        data = bytearray(path.read_bytes())
        data[-len(data) // 3] ^= 0xFF
        for damaged in (bytes(data), bytes(data[: len(data) // 2])):
            path.write_bytes(damaged)
            with pytest.raises(qa.FormatError, match="is not a whole quantarray file: "):
                qa.load(path)
    for path in (tmp_path / "missing.npz", tmp_path / "missing.qa"):
        with pytest.raises(FileNotFoundError):
            qa.load(path)
    with pytest.raises(ValueError, match=r"must end in .*, got '.*missing\.pt'$"):
        qa.load(tmp_path / "missing.pt")
