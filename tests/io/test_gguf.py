"""GGUF files: values of every type, metadata, split files, and files that are damaged or of other types."""

import json
import struct
import tracemalloc

import gguf_files
import numpy as np
import pytest
from gguf_files import BLOCKS, DENSE, Stored

import quantarray as qa
from quantarray import cli
from quantarray.arrays.array import validate
from tests.long.gguf import run as damaged_case

DECODED = {"Q1_0", "Q2_0", "PQ2_0", "I2_S"}  # by formulas, as `gguf` decodes none of them


def saved(tmp_path, tensors, *args, name="x.gguf", **kwargs):
    path = tmp_path / name
    path.write_bytes(gguf_files.write(tensors, *args, **kwargs).data)
    return path


def refusal(path):
    with pytest.raises(qa.FormatError) as error:
        qa.load(path)
    start = f"load: {path} is not a whole GGUF file: "
    assert str(error.value).startswith(start)
    return str(error.value).removeprefix(start)


@pytest.mark.parametrize("kind", BLOCKS)
def test_values_of_10000_random_blocks(kind, tmp_path):
    if kind not in DECODED:
        pytest.importorskip("gguf")
    stored = gguf_files.draw(np.random.default_rng(len(kind)), kind, 400, 25)
    w = qa.load(saved(tmp_path, {"w": stored}))["w"]
    validate(w)
    assert w.shape == stored.shape and w.axis == 1 and w.scheme == kind
    assert w.group == (None if kind == "I2_S" else {"NVFP4": 16, "Q2_K": 16, "Q3_K": 16, "Q6_K": 16}.get(kind, w.group))
    np.testing.assert_array_equal(w.dequantize(), gguf_files.values(stored))


@pytest.mark.parametrize("kind", BLOCKS)
def test_products_of_few_rows_and_many(kind, tmp_path):
    """Rows have the same results, however many are multiplied at once, and those of the values but for their int8."""
    rng = np.random.default_rng(len(kind))
    stored = gguf_files.draw(rng, kind, 35, 2560 // BLOCKS[kind][1])
    w = qa.load(saved(tmp_path, {"w": stored}))["w"]
    x = rng.normal(size=(41, w.shape[1])).astype(np.float32)
    for run in (32, "row") if w.dtype.kind == "uniform" or w.dtype.step is not None else (None,):
        every = qa.linear(x, w, quantize_x=run)
        for rows in (1, 3, 4, 7, 8, 13, 32):
            np.testing.assert_array_equal(qa.linear(x[:rows], w, quantize_x=run), every[:rows])
        exact = x.astype(np.float64) @ w.dequantize().astype(np.float64).T
        if kind != "MXFP4":  # whose scales here are any powers of two, so that sums pass float32
            off, size = (np.linalg.norm(a, axis=0) for a in (every - exact, exact))
            assert (off < 0.05 * size).all()


@pytest.mark.parametrize("kind", ["Q4_0", "Q6_K", "I2_S", "NVFP4"])
@pytest.mark.parametrize("shape", [(2048 * 300,), (3, 2, 512), (1, 1, 1, 256), (1000, 768)])
def test_shapes(kind, shape, tmp_path):
    """One long row is decoded in parts; three and four axes, as of experts, keep their order."""
    if kind != "I2_S":
        pytest.importorskip("gguf")
    stored = gguf_files.draw(np.random.default_rng(1), kind, 1, int(np.prod(shape)) // BLOCKS[kind][1])
    stored = stored._replace(shape=shape)
    w = qa.load(saved(tmp_path, {"w": stored}))["w"]
    assert w.shape == shape
    np.testing.assert_array_equal(w.dequantize(), gguf_files.values(stored))


@pytest.mark.parametrize("alignment", [None, 1, 4096])
def test_dense_types(alignment, tmp_path):
    rng = np.random.default_rng(2)
    tensors = {"odd": Stored(24, (3,), b"\1\2\3")}
    for name, (number, dtype) in DENSE.items():
        tensors[name] = Stored(number, (2, 3), rng.bytes(6 * np.dtype(dtype).itemsize))
    tensors["scalar"] = Stored(0, (), np.float32(2.5).tobytes())
    file = qa.load(saved(tmp_path, tensors, alignment=alignment))
    assert [*file] == [*tensors] and file["scalar"] == 2.5
    for name, stored in tensors.items():
        expected = gguf_files.values(stored)
        assert file[name].dtype == expected.dtype and file[name].flags.aligned
        np.testing.assert_array_equal(file[name], expected)
        assert name == "BF16" or not file[name].flags.writeable


def test_files_of_ggufs_writer(tmp_path):
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(3)
    w, bias = rng.standard_normal((6, 64)).astype(np.float32), np.float32([1, 2, 3])
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("größe")
    writer.add_uint32("a", 7)
    writer.add_float64("pi", 3.25)
    writer.add_bool("yes", True)
    writer.add_int64("least", -(2**63))
    writer.add_array("tokens", ["<s>", "", "\u2581a"])
    writer.add_array("kinds", [3, -1, 2])
    writer.add_array("flags", [True, False])
    writer.add_tensor(
        "w", gguf.quants.quantize(w, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("half", w.astype(np.float16))
    writer.add_tensor("bias", bias)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = qa.load(path)
    meta = file.metadata
    assert (
        meta["general.architecture"] == "llama" and meta["general.name"] == "größe" and meta["tokens"][2] == "\u2581a"
    )
    assert (meta["a"], meta["pi"], meta["yes"], meta["least"]) == (7, 3.25, True, -(2**63))
    assert meta["kinds"].tolist() == [3, -1, 2] and meta["flags"].tolist() == [True, False]
    assert {name: (t.type, t.shape, t.nbytes) for name, t in file.tensors.items()} == {
        "w": ("Q8_0", (6, 64), 408),
        "half": ("F16", (6, 64), 768),
        "bias": ("F32", (3,), 12),
    }
    assert "w" in file and "x" not in file and len(file) == 3 and file.get("x") is None
    assert repr(file) == f"GGUF({str(path)!r}, 3 tensors, {len(meta)} keys of metadata)"
    assert np.abs(file["w"].dequantize() - w).max() < 0.02
    np.testing.assert_array_equal(file["half"], w.astype(np.float16))
    qa.save(tmp_path / "model.qa", file)  # a mapping of arrays is what .qa files hold
    assert qa.array_equal(qa.load(tmp_path / "model.qa")["w"], file["w"])


def test_split_files(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for i in range(5):
        writer.add_tensor(f"t{i}", np.full((2, 2), i, np.float32))
    writer.write_header_to_file(tmp_path / "m.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for name in names:  # whichever part is named
        file = qa.load(tmp_path / name)
        assert [file[f"t{i}"][0, 0] for i in range(5)] == [0, 1, 2, 3, 4] and len(file) == 5
        assert file.metadata["general.architecture"] == "llama" or name != names[0]
    first, second, third = (tmp_path / name for name in names)
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(first.read_bytes())
    with pytest.raises(qa.FormatError, match=r"is one of 3 files, which must be named like x-00001-of-00003\.gguf"):
        qa.load(renamed)
    data = second.read_bytes()
    second.unlink()
    second.write_bytes(third.read_bytes())
    with pytest.raises(qa.FormatError, match="does not say that it is part 2 of 3"):
        qa.load(first)
    second.unlink()
    with pytest.raises(FileNotFoundError, match="m-00002"):
        qa.load(first)
    second.write_bytes(data.replace(b"t2", b"t0"))
    with pytest.raises(qa.FormatError, match=r"two parts of .* have a tensor 't0'"):
        qa.load(first)


@pytest.mark.parametrize(
    ("number", "name"), [(16, "IQ2_XXS"), (19, "IQ1_S"), (29, "IQ1_M"), (21, "IQ3_S"), (9, "Q8_1"), (77, "type 77")]
)
def test_types_that_are_not_read(number, name, tmp_path):
    nbytes = {16: 66, 19: 50, 29: 56, 21: 110}.get(number, 40)
    other = gguf_files.draw(np.random.default_rng(0), "Q2_0", 1, 1)
    path = saved(tmp_path, {"a": Stored(number, (256,), bytes(nbytes)), "b": other})
    file = qa.load(path)
    assert file.tensors["a"].type == name and "a" in file
    with pytest.raises(qa.FormatError, match=f"load: .*: its tensor 'a' is {name}, which is not read$"):
        file["a"]
    np.testing.assert_array_equal(file["b"].dequantize(), gguf_files.values(other))


def test_q2_0_in_groups_of_128(tmp_path):
    """An earlier layout has the same number; how many bytes it has tells, and is so for all tensors of a file."""
    rng = np.random.default_rng(4)
    large, small = (gguf_files.draw(rng, "PQ2_0", rows, 1)._replace(number=42) for rows in (20, 1))
    file = qa.load(saved(tmp_path, {"small": small, "large": large, "f": Stored(0, (2,), bytes(8))}))
    for name in ("small", "large"):
        with pytest.raises(qa.FormatError, match=f"{name}' is Q2_0 in its earlier layout of 128 weights, which is not"):
            file[name]
    assert file["f"].tolist() == [0, 0]


@pytest.mark.parametrize("kind", [kind for kind in BLOCKS if kind not in ("I2_S", "NVFP4")])
def test_scales_that_are_not_finite(kind, tmp_path):
    number, block, nbytes, halves = BLOCKS[kind]
    for at in halves or (0,):
        q = np.zeros((3, nbytes), np.uint8)
        q[1, at : at + 2] = 255  # a NaN, or an exponent whose levels are beyond float32
        path = saved(tmp_path, {"w": Stored(number, (3, block), q.tobytes()), "b": Stored(0, (1,), bytes(4))})
        file = qa.load(path)
        with pytest.raises(
            qa.FormatError, match=f"load: {path}: its tensor 'w' has a scale or an offset that is not finite"
        ):
            file["w"]
        assert file["b"] == [0]
        path.unlink()


TWO = {"a": Stored(0, (8,), bytes(32)), "b": Stored(2, (2, 32), bytes(36))}


def changed(data, at, code, value):
    return data[:at] + struct.pack("<" + code, value) + data[at + struct.calcsize(code) :]


def test_damaged_headers(tmp_path):
    path = tmp_path / "x.gguf"
    data, numbers = gguf_files.write(TWO, {"k": np.arange(4)})
    # version, tensors, keys; the length of "k", its type, the array's type and count; then a: length, axes, 8, type,
    # offset; b: length, axes, 32, 2, type, offset
    places = [at for at, _ in numbers]

    def said(i, code, value):
        path.unlink(missing_ok=True)
        path.write_bytes(changed(data, places[i], code, value))
        return refusal(path)

    assert said(0, "I", 1) == "it has version 1, this library reads 2 and 3"
    assert said(0, "I", 3 << 24) == "it is big endian"
    assert said(1, "Q", 2**60) == f"it says that it has {2**60} tensors, more than fit in its {len(data)} bytes"
    assert said(2, "Q", 2**60) == f"it says that it has {2**60} keys, more than fit in its {len(data)} bytes"
    assert "truncated" in said(3, "Q", 2**63)
    assert "a value of the type 13" in said(4, "I", 13)
    assert "an array of the type 9" in said(5, "I", 9)
    assert "truncated" in said(6, "Q", 2**62)
    assert "a tensor has 5 axes, at most 4 are allowed" in said(8, "I", 5)
    assert said(9, "Q", 2**62) == f"its tensor 'a' ({2**62},) of {2**64} bytes has 32 bytes up to the next tensor"
    assert "has no elements, (0,)" in said(9, "Q", 0)
    assert said(11, "Q", 32) == "its tensor 'a' (8,) of 32 bytes has 0 bytes up to the next tensor"
    assert "has the offset 33, no multiple of 32" in said(11, "Q", 33)
    assert "'b' (2, 33) must have rows of whole Q4_0 blocks of 32" in said(14, "Q", 33)
    assert "'b' (9, 32) of 162 bytes ends at byte " in said(15, "Q", 9)
    assert "'b' (2, 32) of 36 bytes ends at byte " in said(17, "Q", 2**40)
    for text, wrong in ((b"\0GGUF", "it does not begin with GGUF"), (b"", "it is empty")):
        path.unlink()
        path.write_bytes(text)
        assert refusal(path) == wrong
    path.unlink()
    path.write_bytes(gguf_files.write({"a": TWO["a"], "c": TWO["a"]}).data.replace(b"c", b"a"))
    assert refusal(path) == "two of its tensors have the name 'a'"
    path.unlink()
    path.write_bytes(gguf_files.write({"a": TWO["a"]}).data.replace(b"a", b"\xff"))
    assert "utf-8" in refusal(path)
    for wrong in (np.uint32(0), np.uint32(48), np.float32(32), np.uint32([32])):
        assert "general.alignment must be a power of two" in refusal(
            saved(tmp_path, TWO, {"general.alignment": wrong}, name=f"{wrong}.gguf")
        )


def test_every_truncation(tmp_path):
    data = gguf_files.write(TWO, {"k": ["x", "yy"], "n": "z"}).data
    end = len(data) - -36 % 32  # filling after the last tensor may be missing
    for n in range(0, len(data), 3):
        path = tmp_path / f"{n}.gguf"
        path.write_bytes(data[:n])
        if n < end:
            refusal(path)
        else:
            assert [*qa.load(path)] == ["a", "b"]


@pytest.mark.parametrize("seed", range(4))
def test_random_damage(seed):
    """Some hundreds of damaged files; `python -m tests.long gguf` has 20,000."""
    pytest.importorskip("gguf")
    for number in range(75):
        damaged_case(np.random.default_rng([9, seed, number]))


def test_memory(tmp_path):
    """Opening reads the header alone, and an array takes its own bytes and a constant."""
    path = tmp_path / "large.gguf"
    path.write_bytes(
        gguf_files.write({"f": Stored(0, (1 << 30, 4), b""), "q": Stored(41, (1 << 13, 1 << 13), b"")}).data
    )
    data = bytearray(path.read_bytes())
    begin = (1 << 34).to_bytes(8, "little")
    at = data.index(b"q", 30) + 1 + 4 + 16 + 4
    data[at : at + 8] = begin
    path.write_bytes(data)
    with open(path, "r+b") as f:
        f.truncate(len(data) + (1 << 34) + (1 << 26) // 128 * 18)  # a hole of 16 GiB, which takes no disk
    tracemalloc.start()
    file = qa.load(path)
    assert file["f"].shape == (1 << 30, 4) and file["f"][-1, -1] == 0
    opened = tracemalloc.get_traced_memory()[1]
    q = file["q"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert opened < 1 << 20 and peak < q.nbytes + (4 << 20)


@pytest.mark.parametrize("kind", ["Q2_K", "Q5_K", "TQ1_0", "NVFP4"])
def test_memory_of_types_with_many_constants(kind, tmp_path):
    _, block, nbytes, _ = BLOCKS[kind]
    stored = Stored(BLOCKS[kind][0], (2048, 4096), bytes(2048 * 4096 // block * nbytes))
    file = qa.load(saved(tmp_path, {"w": stored}))
    tracemalloc.start()
    q = file["w"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < q.nbytes + (8 << 20) and q.nbytes < 3 * len(stored.data)


def test_info(tmp_path, capsys):
    path = saved(tmp_path, TWO, {"general.name": "m", "tokens": ["x"] * 3, "n": np.uint8(3)})
    assert cli.main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "2 tensors" in text and "Q4_0" in text and "2 x 32" in text and "general.name" in text and "3 texts" in text
    assert cli.main(["info", "--json", str(path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tensors"][1] == {"name": "b", "type": "Q4_0", "shape": [2, 32], "bytes": 36, "file": "x.gguf"}
    assert facts["metadata"] == {"general.name": "m", "tokens": "3 texts", "n": 3}
    path.write_bytes(b"GGUF")
    assert cli.main(["info", str(path)]) == 2
    assert "is not a whole GGUF file" in capsys.readouterr().err
