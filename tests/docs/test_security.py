"""Check what SECURITY.md says of files from strangers: each row is refused, or takes the memory that it says."""

import pickle
import shutil
import tracemalloc
import zipfile

import gguf_files
import numpy as np
import pytest
from paths import PACKAGED, ROOT

import quantarray as qa

DIGITS = ROOT / "quantarray" / "data" / "digits.qa"


class Evil:
    """An object whose pickle creates a file where it is read."""

    def __reduce__(self):
        return open, ("unpickled", "w")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("name", ["x.qa", "x.npz", "x.onnx"])
@pytest.mark.parametrize("load", [qa.load, qa.nn.load])
def test_a_pickle_is_never_read(folder, name, load):
    (folder / name).write_bytes(pickle.dumps(Evil()))
    with pytest.raises((qa.FormatError, ValueError)):
        load(folder / name)


@pytest.mark.parametrize("load", [qa.load, qa.nn.load])
def test_arrays_of_objects_are_refused(folder, load):
    np.savez(folder / "x.npz", meta=np.array([Evil()], object), words=np.array([Evil()], object))
    with pytest.raises(qa.FormatError, match="Python objects, which are never loaded"):
        load(folder / "x.npz")
    np.save(folder / "x.npy", np.array([Evil()], object))
    with pytest.raises(ValueError, match="Python objects, which are never loaded"):
        qa.nn.load(DIGITS).predict(folder / "x.npy")


def test_an_array_is_not_compressed(folder):
    qa.save(folder / "q.npz", qa.encode([1, -1, 1], values=(-1, 1)))
    with zipfile.ZipFile(folder / "q.npz") as stored:
        entries = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(folder / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    with pytest.raises(qa.FormatError, match="is compressed"):
        qa.load(folder / "c.npz")


def test_an_entry_that_says_it_is_larger_than_deflate_can_make_it(folder):
    """The memory that an archive of plain integers can claim is 1,032 times its bytes."""
    shutil.copy(PACKAGED, folder / "n.npz")
    with zipfile.ZipFile(folder / "n.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("extra.npy", bytes(100))
    data = bytearray((folder / "n.npz").read_bytes())
    entry = data.rindex(b"PK\x01\x02")  # of the directory: its uncompressed size is at byte 24
    data[entry + 24 : entry + 28] = (1 << 30).to_bytes(4, "little")
    (folder / "n.npz").write_bytes(data)
    with pytest.raises(qa.FormatError, match="says that it has more bytes than it has"):
        qa.nn.load(folder / "n.npz")


@pytest.mark.parametrize("what", ["tensors", "texts"])
def test_the_header_of_a_gguf_file(folder, what):
    """Many small tensors, and a text of wrong bytes beside one that needs four bytes a character."""
    tensors = {f"{i:x}": gguf_files.Stored(24, (), b"1") for i in range(10_000 if what == "tensors" else 0)}
    data = gguf_files.write(tensors, {"key": "\U0001f600" + "@" * 100_000}, alignment=1).data
    (folder / "x.gguf").write_bytes(data.replace(b"@", b"\xff") if what == "texts" else data)
    tracemalloc.start()
    try:
        assert len(qa.load(folder / "x.gguf")) == len(tensors)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    finally:
        tracemalloc.stop()


def test_tensors_outside_the_folder_are_refused(folder):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(ROOT / "tests" / "data" / "qonnx" / "TFC_1W1A.onnx")
    onnx.save(model, folder / "x.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    qa.nn.load(folder / "x.onnx")
    (folder / "weights.bin").rename(folder / "elsewhere.bin")
    (folder / "weights.bin").symlink_to(PACKAGED)
    with pytest.raises(ValueError, match=r"its data is in 'weights\.bin', which must be a file in the model's folder"):
        qa.nn.load(folder / "x.onnx")


def test_an_image_of_too_many_pixels_is_refused(folder, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", None)
    image.new("1", (14_000, 14_000)).save(folder / "large.png")
    assert (folder / "large.png").stat().st_size < 50_000
    monkeypatch.undo()
    with pytest.raises(ValueError, match="exceeds limit of 178956970 pixels"):
        qa.nn.load(DIGITS).predict([folder / "large.png"])
