"""Files that `python -m tests.long files` proved to be handled wrongly, each by the smallest of its kind."""

import tracemalloc
import zipfile

import numpy as np
import pytest
from plain_files import small
from test_container import claim, example, forge, npy, refusal, same

import quantarray as qa
from quantarray.io.plain import read_plain


def zipped(path, pairs, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in pairs:
            archive.writestr(f"{name}.npy", data)


def entries(path):
    with zipfile.ZipFile(path) as archive:
        return [(name.removesuffix(".npy"), archive.read(name)) for name in archive.namelist()]


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_a_full_disk(ending, tmp_path):
    """Every library's writer raises the system's error with the name of the file; the old file stays."""
    resource = pytest.importorskip("resource")
    path = tmp_path / f"q{ending}"
    qa.save(path, example())
    size = path.stat().st_size
    for most in (0, 7, 100, size - 1):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            with pytest.raises(OSError) as caught:
                qa.save(path, qa.zeros((64, 64), qa.uint4))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.errno and caught.value.filename == str(path) and "save: " in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == [path.name] and same(qa.load(path), example())


@pytest.mark.parametrize("claimed", [(2**40,), (2**26, 1, 1), (2**62, 2**62), (2**62, 0)])
def test_networks_allocate_no_more_than_their_file_holds(claimed, tmp_path):
    path = small().save(tmp_path / "net.npz")
    rest = [(name, data) for name, data in entries(path) if name != "w0"]
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        zipped(path, [*rest, ("w0", claim(claimed, "|i1"))], compression)
        tracemalloc.start()
        try:
            with pytest.raises(qa.FormatError, match=r"net\.npz is not a plain network: its entry 'w0' has 160 bytes"):
                read_plain(path)
            assert tracemalloc.get_traced_memory()[1] < 4e6
        finally:
            tracemalloc.stop()


def test_sizes_that_a_directory_claims(tmp_path):
    """An entry of 4 GiB in a file of a kilobyte is nothing that could be read."""
    path = tmp_path / "q.npz"
    forge(path, words=claim((2**29,)))
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02"))
    path.write_bytes(data[: at + 20] + (2**32 - 2).to_bytes(4, "little") * 2 + data[at + 28 :])
    assert refusal(path) == "its entries say that they have more bytes than the file"


def test_entries_of_one_name(tmp_path):
    """Two entries of one name are refused: a reader cannot know which of them counts."""
    path, net = tmp_path / "q.npz", small().save(tmp_path / "net.npz")
    qa.save(path, example())
    for file in (path, net):
        pairs = entries(file)
        with pytest.warns(UserWarning, match="Duplicate name"):
            zipped(file, [*pairs, pairs[-1]])
    assert refusal(path) == "two of its entries have one name"
    with pytest.raises(qa.FormatError, match="two of its entries have one name"):
        read_plain(net)


@pytest.mark.parametrize("at", [28, 30, 32])  # where the lengths of name, extra and comment are
def test_a_directory_that_swallows_an_entry(at, tmp_path):
    """zipfile reads the following entries as a part of this one, and an optional array would be lost silently."""
    path = small().save(tmp_path / "net.npz")
    zipped(path, [*entries(path), ("labels", npy(np.zeros(6, np.uint8)))])
    data = bytearray(path.read_bytes())
    last = data.rindex(b"PK\1\2")
    data[data.rindex(b"PK\1\2", 0, last) + at] += data.rindex(b"PK\5\6") - last
    path.write_bytes(data)
    with pytest.raises(qa.FormatError, match=r"net\.npz is not a plain network: "):
        read_plain(path)


def test_networks_are_stored_or_deflated(tmp_path):
    path = small().save(tmp_path / "net.npz")
    pairs = entries(path)
    zipped(path, pairs, zipfile.ZIP_DEFLATED)
    assert len(read_plain(path).layers) == 4
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        zipped(path, pairs, compression)
        with pytest.raises(qa.FormatError, match="compressed by something other than deflate"):
            read_plain(path)


def test_headers_of_npy_2(tmp_path):
    """Networks may have them, arrays of `save` have not."""
    path = small().save(tmp_path / "net.npz")
    before = read_plain(path)
    pairs = [(name, data[:6] + b"\2\0" + data[8:10] + b"\0\0" + data[10:]) for name, data in entries(path)]
    zipped(path, pairs)
    np.testing.assert_array_equal(read_plain(path).layers[0].weight, before.layers[0].weight)


def test_errors_are_one_short_line(tmp_path):
    """Parsers quote what they cannot read, which may be most of a file."""
    path = tmp_path / "q.npz"
    forge(path, {"kind": "integer", "bits": 8, "n_levels": 255, "levels": list(range(200)) * 2})
    assert len(refusal(path)) < 400
    net = small().save(tmp_path / "net.npz")
    data = net.read_bytes()
    at = data.index(b"PK\x03\x04", 1) + 26  # the length of a name
    net.write_bytes(data[:at] + (2000).to_bytes(2, "little") + data[at + 2 :])
    with pytest.raises(qa.FormatError, match=r"net\.npz is not a plain network: File name in directory") as caught:
        read_plain(net)
    assert len(str(caught.value)) < 600


def test_empty_entries(tmp_path):
    """An array without bytes is still one of its shape."""
    path = tmp_path / "q.npz"
    forge(path, words=npy(np.zeros((2, 0, 1), np.uint64)))
    assert refusal(path)
