"""Files of one array: what is loaded is what was saved, or nothing is."""

import builtins
import doctest
import io
import itertools
import json
import math
import os
import pickle
import re
import stat
import sys
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import DOCS
from plain_files import small
from strategies import laws, samples

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.io import container

PAGE = DOCS / "format.md"
ENDINGS = (".npz", ".safetensors")


def same(a, b):
    """Everything a file holds is equal."""
    validate(a)
    constants = [(name, c.tobytes(), c.shape) for name, c, _ in a.constants.items()]
    expected = [(name, c.tobytes(), c.shape) for name, c, _ in b.constants.items()]
    parts = [(q.shape, q.axis, q.dtype, q.group, q.words.tolist()) for q in (a, b)]
    return parts[0] == parts[1] and constants == expected and a.digest() == b.digest()


def example():
    """Two planes, a scale and an offset."""
    return qa.from_codes([[3, 0, 1], [2, 2, 3]], qa.uniform(2), scale=[[0.5], [0.25]], offset=-1.0)


def arrays():
    """Every kind of law, every packed axis, groups, empty arrays."""
    codes = np.arange(3 * 5 * 70).reshape(3, 5, 70)
    for axis in range(3):
        yield qa.from_codes(codes % 2, qa.bipolar, axis)
        yield qa.from_codes(codes % 3, qa.ternary, axis, scale=np.ones((3, 1, 1)), group=1)
        yield qa.from_codes(codes % 5, qa.integers(9, -7, 0, 1, 2**31 - 1), axis)
        yield qa.from_codes(codes % 256, qa.uniform(8), axis, scale=0.1, offset=-3)
        yield qa.from_codes(codes % 8, qa.basis(3), axis, scale=[3.0, -1, 0.5])
        yield qa.from_codes(codes % 6, qa.table(3, 6), axis, table=np.arange(6.0))
        yield qa.from_codes(codes[:0] % 16, qa.uint4, axis)
    yield qa.quantize(codes, qa.Uniform(4, symmetric=False), group=32)
    yield qa.quantize(codes[..., :0], qa.Sign(scale=True), group=32)


@pytest.mark.parametrize("ending", ENDINGS)
def test_round_trip(ending, tmp_path):
    path = tmp_path / f"q{ending}"
    for q in arrays():
        qa.save(path, q)
        loaded = qa.load(str(path))
        assert same(loaded, q) and not loaded.words.flags.writeable
        assert not any(a.flags.writeable for _, a, _ in loaded.constants.items())


@pytest.mark.parametrize("ending", ENDINGS)
def test_views(ending, tmp_path):
    """A view is saved as the elements that it shows, in one canonical order."""
    path = tmp_path / f"q{ending}"
    q = qa.quantize(np.arange(2.0 * 3 * 4 * 192).reshape(2, 3, 4, 192) % 7, qa.Uniform(3), scale_axis=0)
    for view in (
        q.T,
        q[::-1, 1:, ::2],
        q[..., 64:128],
        q[1],
        q[:, 0, :, 5:70],
        q.transpose(0, 3, 1, 2),
        q.reshape(6, 4, -1),
    ):
        qa.save(path, view)
        loaded = qa.load(path)
        assert same(loaded, view) and same(loaded, view.copy())
        np.testing.assert_array_equal(loaded.dequantize(), view.dequantize())


@given(samples((2, 3, 66), 2, laws(), vary=(0, 1), groups=(None, 1, 33, 64)), st.permutations(range(3)))
def test_any_array(sample, order):
    q = sample.q.transpose(order)
    with tempfile.TemporaryDirectory() as folder:
        for ending in ENDINGS:
            qa.save(Path(folder) / f"q{ending}", q)
            assert same(qa.load(Path(folder) / f"q{ending}"), q)


# the bytes


def test_page():
    """The examples of docs/format.md."""
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.failed == 0 and found.attempted > 10


def test_golden_digests():
    """The format cannot drift without notice."""
    assert qa.encode([[3, 0, 1], [2, 2, 3]], values=range(4)).digest() == "33d11c06ccf711412dbb7df2bacde3d0"
    assert example().digest() == "6fcde1d6cbe4c5da05d8e5a0a1414f27"


def test_digest_sees_everything():
    codes = np.arange(140).reshape(2, 70) % 2
    made = [
        qa.from_codes(codes, qa.bipolar),
        qa.from_codes(codes, qa.bipolar, axis=0),
        qa.from_codes(codes, qa.uint1),
        qa.from_codes(codes, qa.bipolar, scale=1),
        qa.from_codes(codes, qa.bipolar, scale=2),
        qa.from_codes(codes, qa.bipolar, scale=[[1], [1]]),
        qa.from_codes(codes, qa.uniform(1), scale=2, offset=-1),
        qa.from_codes(codes, qa.table(1), table=[-1, 1]),
        qa.from_codes(codes, qa.basis(1), scale=[2], offset=-1),
        qa.from_codes(codes.reshape(70, 2), qa.bipolar),
        qa.from_codes(codes ^ (np.arange(70) == 69), qa.bipolar),
        qa.from_codes(codes, qa.bipolar, scale=np.ones((1, 3)), group=32),
        qa.from_codes(codes, qa.bipolar, scale=np.ones((1, 3)), group=33),
    ]
    assert len({q.digest() for q in made}) == len(made)
    assert qa.from_codes(codes, qa.bipolar, scale=1, group=99).digest() == made[3].digest()
    zeros = [qa.from_codes(codes, qa.uniform(1), scale=2, offset=z).digest() for z in (0, 0.0, -0.0)]
    assert len(set(zeros)) == 1


def test_numpy_integers_in_headers():
    """Bits, lengths and groups of NumPy's types are what Python's are."""
    n = np.int64(2)
    q = qa.from_codes(np.zeros((2, 4), int), qa.uniform(n, n + 1), axis=n - 1, scale=np.ones((1, 2)), group=n)
    assert q.digest() == qa.from_codes(np.zeros((2, 4), int), qa.uniform(2, 3), scale=np.ones((1, 2)), group=2).digest()
    assert q.reshape(n, n, n).digest() and q[: np.int64(1)].digest()


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_keep_the_scheme(ending, tmp_path):
    """Beside the header: the digest is that of an array without one, whose file has no such key."""
    path, bare = tmp_path / f"q{ending}", tmp_path / f"bare{ending}"
    x = np.arange(140.0).reshape(2, 70)
    for q in (qa.quantize(x, bits=2), qa.quantize(x, qa.XNOR(), scale_axis=0).T, qa.quantize(x, qa.LloydMax(2))[:, :9]):
        qa.save(path, q)
        qa.save(bare, qa.QuantArray(q.words, q.dtype, q.shape, q.axis, q.constants))
        assert q.scheme is not None and qa.load(path).scheme == q.scheme
        assert same(qa.load(path), q) and same(qa.load(bare), q) and qa.load(bare).scheme is None
        assert b'"scheme": ' not in bare.read_bytes().replace(b"\0", b"")


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_are_deterministic(ending, tmp_path):
    for name in "ab":
        qa.save(tmp_path / (name + ending), example())
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


# writing


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_failing_write_leaves_no_trace(ending, tmp_path, monkeypatch):
    path = tmp_path / f"q{ending}"

    def fail(target, *args, **kwargs):
        if isinstance(target, Path):
            target.write_bytes(b"half")
        raise OSError("no space left on device")

    if ending == ".npz":
        monkeypatch.setattr(container.np, "savez", fail)
    else:
        monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="no space left"):
        qa.save(path, example())
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no space left"):
        qa.save(path, example())
    monkeypatch.undo()
    for step in ("fsync", "replace"):  # as late as that
        with monkeypatch.context() as m:
            m.setattr(container.os, step, fail)
            with pytest.raises(OSError, match="no space left"):
                qa.save(path, example())
    assert [p.name for p in tmp_path.iterdir()] == [path.name] and path.read_bytes() == b"old"
    qa.save(path, example())
    assert same(qa.load(path), example()) and len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(os.name == "nt", reason="permissions are the file system's there")
@pytest.mark.parametrize("ending", ENDINGS)
def test_permissions_are_the_umask(ending, tmp_path):
    path, plain = tmp_path / f"q{ending}", tmp_path / "plain"
    qa.save(path, example())
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_where_nothing_can_be_written(tmp_path):
    """The errors are the system's, and name the file that was passed."""
    (tmp_path / "d.npz").mkdir()
    for path in (tmp_path / "missing" / "q.npz", tmp_path / "d.npz", tmp_path / f"{'a' * 300}.npz"):
        with pytest.raises(OSError) as caught:
            qa.save(path, example())
        assert caught.value.errno and "save: " in str(caught.value)
        assert caught.value.filename == str(path) and caught.value.filename2 is None
    with pytest.raises(FileNotFoundError):
        qa.save(tmp_path / "missing" / "q.npz", example())
    assert [p.name for p in tmp_path.iterdir()] == ["d.npz"]


# reading


def assert_whole_or_refused(path, q):
    """Assert that the file loads as the saved array or raises FormatError; return True if it was refused."""
    try:
        assert same(qa.load(path), q)
    except qa.FormatError as error:
        assert str(error).startswith(f"load: {path} is not a whole quantarray file: ")
        return True
    return False


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_damaged_byte(ending, tmp_path):
    path, q = tmp_path / f"q{ending}", example()
    qa.save(path, q)
    whole = path.read_bytes()
    refused = 0
    for i, new in itertools.chain(*(((i, b ^ 255), (i, 0), (i, b ^ 1)) for i, b in enumerate(whole))):
        path.write_bytes(whole[:i] + bytes([new]) + whole[i + 1 :])
        refused += assert_whole_or_refused(path, q)
    assert refused > len(whole)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_truncation(ending, tmp_path):
    path, q = tmp_path / f"q{ending}", example()
    qa.save(path, q)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert assert_whole_or_refused(path, q)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def forge(path, meta=None, compress=zipfile.ZIP_STORED, **entries):
    """A file with the example's content, but for some keys of its meta text and some raw entries."""
    qa.save(path, example())
    with zipfile.ZipFile(path) as archive:
        raw = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    if isinstance(meta, np.ndarray):
        raw["meta"] = npy(meta)
    elif isinstance(meta, bytes):
        raw["meta"] = meta
    elif meta is not None:
        text = meta if isinstance(meta, str) else json.dumps({**json.loads(str(np.load(path)["meta"])), **meta})
        raw["meta"] = npy(np.array(text))
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, data in {**raw, **entries}.items():
            if data is not None:
                archive.writestr(f"{name}.npy", data)


def claim(shape, descr="<u8"):
    """An .npy whose header claims a shape that its bytes don't fill."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue() + bytes(32)


class Evil:
    def __reduce__(self):
        return sys.exit, (1,)


FOREIGN = {
    "empty": lambda p: p.write_bytes(b""),
    "text": lambda p: p.write_text("not an archive"),
    "a .npy renamed": lambda p: p.write_bytes(npy(np.zeros((2, 2, 1), np.uint64))),
    "a pickle": lambda p: p.write_bytes(pickle.dumps(Evil())),
    "another .npz": lambda p: np.savez(p, a=np.ones(3)),
    "an empty .npz": lambda p: np.savez(p),
    "no words": lambda p: forge(p, words=None),
    "a pickle in an entry": lambda p: forge(p, words=npy(np.array([Evil()], object))),
    "a pickle as meta": lambda p: forge(p, np.array({"format": "quantarray"}, object)),
    "compressed": lambda p: forge(p, compress=zipfile.ZIP_DEFLATED),
    "lzma": lambda p: forge(p, compress=zipfile.ZIP_LZMA),
    "meta is no JSON": lambda p: forge(p, "{"),
    "meta is a list": lambda p: forge(p, "[]"),
    "meta is deep": lambda p: forge(p, "[" * 100_000),
    "no format": lambda p: forge(p, "{}"),
    "no kind": lambda p: forge(p, '{"format": "quantarray", "version": 1}'),
    "a network": lambda p: small().save(p),
    "meta is a number": lambda p: forge(p, np.ones(())),
    "another format": lambda p: forge(p, {"format": "numpy"}),
    "a later version": lambda p: forge(p, {"version": 2}),
    "an earlier version": lambda p: forge(p, {"version": 0}),
    "no digest": lambda p: forge(p, {"digest": None}),
    "another digest": lambda p: forge(p, {"digest": "0" * 32}),
    "another shape": lambda p: forge(p, {"shape": [3, 2]}),
    "another axis": lambda p: forge(p, {"axis": 0}),
    "another kind": lambda p: forge(p, {"kind": "basis"}),
    "fewer levels": lambda p: forge(p, {"n_levels": 3}),
    "more bits": lambda p: forge(p, {"bits": 10**9, "n_levels": 10**9}),
    "a huge shape": lambda p: forge(p, {"shape": [2**62, 2**62]}),
    "a huge empty shape": lambda p: forge(p, {"shape": [2**62, 0]}),
    "a number that is no shape": lambda p: forge(p, {"shape": [1e400, 3]}),
    "a shape that is none": lambda p: forge(p, {"shape": {"a": 1}}),
    "a group of nothing": lambda p: forge(p, {"group": 0}),
    "words of half a gigabyte, it says": lambda p: forge(p, words=claim((2**26, 1, 1))),
    "words of an exabyte, it says": lambda p: forge(p, words=claim((2**57,))),
    "words of no bytes, it says": lambda p: forge(p, words=claim((2**62, 2**62, 0))),
    "meta of two gigabytes, it says": lambda p: forge(p, claim((), "<U500000000")),
    "words and a byte more": lambda p: forge(p, words=npy(example().words) + b"\0"),
    "words in float64": lambda p: forge(p, words=npy(np.ones((2, 2, 1)))),
    "words in big endian": lambda p: forge(p, words=npy(example().words.astype(">u8"))),
    "words of wider tails": lambda p: forge(p, words=npy(example().words | np.uint64(1 << 63))),
    "scale is not finite": lambda p: forge(p, scale=npy(np.float32([[np.nan], [1]]))),
    "scale in float64": lambda p: forge(p, scale=npy(np.array([[0.5], [0.3]]))),
    "scale is text": lambda p: forge(p, scale=npy(np.array([["a"], ["b"]]))),
    "a constant too many": lambda p: forge(p, table=npy(np.float32([[[1]], [[2]]]))),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(name, tmp_path):
    path = tmp_path / "q.npz"
    FOREIGN[name](path)
    tracemalloc.start()
    try:
        assert assert_whole_or_refused(path, example())
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_foreign_safetensors(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "q.safetensors"
    for content in (b"", b"text", bytes(100), b"\xff" * 100, (2**40).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        assert assert_whole_or_refused(path, example())
    save_file({"a": np.ones(3)}, path)
    assert assert_whole_or_refused(path, example())
    save_file({"words": np.ones(3)}, path, metadata={"quantarray": "{}"})
    assert assert_whole_or_refused(path, example())


WRONG = (
    *(None, True, False, 0, -1, 9, 300, 2**31, 2**64, 10**400, 0.0, 1.0, 2.0, 1e300, math.inf, math.nan),
    *("", "1", "2", "bipolar", "\0", {}, {"a": 1}),
    *([], [0], [-1], [2.0, 3], [True, 3], [[2, 3]], ["2", 3], [None], [2, 3] * 32, [2**62, 2**62]),
    *([0, 1, 2, 3, 0], [3, 3, 3, 3], [0, 1, 2, 2**31], list(range(300))),
)


def metas():
    """A meta text of every kind of law, and the array that it is of."""
    codes = [[3, 0, 1], [2, 2, 3]]
    yield example()
    yield qa.from_codes(codes, qa.uint2)
    yield qa.from_codes(codes, qa.uint2, axis=0, scale=2)
    yield qa.from_codes(codes, qa.basis(2), scale=[1.0, -3.0], offset=0.5)
    yield qa.from_codes(codes, qa.table(2), table=[3.0, 1, 2, -5])
    yield qa.from_codes(codes, qa.uniform(2), scale=[[0.5, 1.0]] * 2, group=2)
    yield qa.quantize(np.arange(6.0).reshape(2, 3), qa.Uniform(2))


def rewritten(path, change):
    """Change the dictionary of a file's meta text, and its arrays, in place; of either kind of file."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    if path.suffix == ".npz":
        with np.load(path) as file:
            entries = dict(file)
        meta = json.loads(str(entries.pop("meta")))
        change(meta, entries)
        np.savez(path, meta=np.array(json.dumps(meta)), **entries)
    else:
        with safe_open(path, framework="numpy") as f:
            meta, entries = json.loads(f.metadata()["quantarray"]), {name: f.get_tensor(name) for name in f.keys()}
        change(meta, entries)
        save_file(entries, path, metadata={"quantarray": json.dumps(meta)})


def refusal(path):
    """Return the text after the file's name in the error of `load`."""
    with pytest.raises(qa.FormatError) as caught:
        qa.load(path)
    start = f"load: {path} is not a whole quantarray file: "
    assert str(caught.value).startswith(start) and str(caught.value).count("\n") == 0
    return str(caught.value).removeprefix(start)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("q", list(metas()), ids=lambda q: str(q.dtype))
def test_every_wrong_value_of_every_key(ending, q, tmp_path):
    """Each key of the meta text over a list of wrong values, and left out: refused with a text that says of what."""
    path = tmp_path / f"q{ending}"
    qa.save(path, q)
    whole = path.read_bytes()
    keys = {"format", "version", "digest", "shape", "axis", "kind", "bits", "n_levels", "levels", "group"}
    for key in sorted(keys):
        path.write_bytes(whole)
        rewritten(path, lambda meta, entries, key=key: meta.pop(key))
        assert refusal(path) == f"it lacks '{key}'"
        for value in WRONG:
            right = [None]

            def change(meta, entries, key=key, value=value, right=right):
                right[0] = meta[key]
                meta[key] = value

            path.write_bytes(whole)
            rewritten(path, change)
            if type(value) is type(right[0]) and value == right[0] and repr(value) == repr(right[0]):
                assert same(qa.load(path), q)
            else:
                assert refusal(path), (key, value)
    for value in WRONG:
        if not isinstance(value, str):
            path.write_bytes(whole)
            rewritten(path, lambda meta, entries, value=value: meta.update(scheme=value))
            assert "'scheme' must be a text, or left out" in refusal(path)


def test_what_is_told_of_wrong_keys(tmp_path):
    path = tmp_path / "q.npz"
    for change, reason in [
        ({"bits": 0}, "its 'bits' must be an integer from 1 to 8, got 0"),
        ({"bits": 9}, "its 'bits' must be an integer from 1 to 8, got 9"),
        ({"bits": 2.0}, "its 'bits' must be an integer from 1 to 8, got 2.0"),
        ({"bits": None}, "its 'bits' must be an integer from 1 to 8, got None"),
        ({"n_levels": 0}, "its 'n_levels' must be an integer from 1 to 256, got 0"),
        ({"n_levels": 5}, "DType: 2 bits hold 1 to 4 levels, got 5"),
        ({"axis": True}, "its 'axis' must be an integer from 0, got True"),
        ({"axis": -1}, "its 'axis' must be an integer from 0, got -1"),
        ({"axis": 2}, "its 'axis' must be one of the 2 axes of its shape, got 2"),
        ({"version": 1.0}, "it has version 1.0, this library reads version 1"),
        ({"version": True}, "it has version True, this library reads version 1"),
        ({"group": 3}, "its 'group' must be null where no constant varies along axis 1, got 3"),
        ({"kind": "integer"}, "DType: integer levels go with the kind 'integer' and with no other"),
        ({"levels": [0, 1, 2, 3]}, "DType: integer levels go with the kind 'integer' and with no other"),
        ({"shape": [True, 3]}, r"its 'shape' must be a list of 1 to 63 lengths, got \[True, 3\]"),
    ]:
        forge(path, change)
        assert re.fullmatch(reason, refusal(path)), refusal(path)


def test_groups_without_constants_are_refused(tmp_path):
    qa.save(tmp_path / "q.npz", qa.encode([[3, 0, 1]], values=range(4)))
    rewritten(tmp_path / "q.npz", lambda meta, entries: meta.update(group=2))
    assert "'group' must be null where no constant varies along axis 1" in refusal(tmp_path / "q.npz")


@pytest.mark.parametrize("ending", ENDINGS)
def test_constants_are_stored_in_one_way(ending, tmp_path):
    """Constants of the same values and digest in another dtype or shape, or with -0 for 0, are refused by name."""
    path = tmp_path / f"q{ending}"
    q = qa.from_codes([[3, 0, 1], [2, 2, 3]], qa.uniform(2), scale=[[0.5], [0.25]], offset=0.0)
    for name, other, reason in [
        ("scale", lambda a: a.astype(np.float64), "its entry 'scale' must be <f4 or <u2, got <f8"),
        ("scale", lambda a: a.astype(np.float16), "its entry 'scale' must be <f4 or <u2, got <f2"),
        ("offset", lambda a: a.astype(np.int32), "its entry 'offset' must be <f4 or <u2, got <i4"),
        ("offset", lambda a: a.reshape(1), r"offset must have the shape \(2, 3\)"),
        ("offset", lambda a: np.broadcast_to(a, (2, 3)).copy(), r"offset must have the shape \(2, 3\)"),
        ("offset", lambda a: -a, "its entry 'offset' must not hold -0"),
        ("words", lambda a: a.view(np.int64), "its entry 'words' must be <u8, got <i8"),
    ]:
        qa.save(path, q)
        rewritten(path, lambda meta, entries, name=name, other=other: entries.update({name: other(entries[name])}))
        assert re.search(reason, refusal(path)), refusal(path)


def test_laws_with_bits_to_spare(tmp_path):
    """A dtype may have more bits than its levels need; such an array comes back as it is."""
    for dtype in (qa.DType("integer", 3, 2, (-1, 1)), qa.uniform(8, 3)):
        q = qa.from_codes([0, 1, 1], dtype, **({} if dtype.is_integer else {"scale": 1}))
        qa.save(tmp_path / "q.npz", q)
        assert same(qa.load(tmp_path / "q.npz"), q)
    qa.save(tmp_path / "q.npz", qa.encode([1, -1], values=(-1, 1)))
    assert qa.load(tmp_path / "q.npz").dtype is qa.bipolar


def test_what_is_told_of_foreign_files(tmp_path):
    path = tmp_path / "q.npz"
    for name, reason in {
        "text": "it is a text file",
        "another .npz": "it is an .npz of '",
        "meta is a list": "its 'meta' is not a JSON object",
        "no format": "it lacks 'format'",
        "no kind": "it lacks 'kind'",
        "a network": "it is a network of plain integers, which quantarray.nn.load_network reads",
        "compressed": "its entry 'words' is compressed, which no entry is",
        "another format": "it says 'numpy' where 'quantarray' should be",
        "a later version": "it has version 2, this library reads version 1",
        "another digest": "its digest does not match its content",
        "words of an exabyte, it says": "its entry 'words' has 160 bytes, too few or many for uint64",
    }.items():
        FOREIGN[name](path)
        with pytest.raises(qa.FormatError, match=reason):
            qa.load(path)
    forge(path, {"more": 1}, another=b"entry")  # what does not matter is ignored
    assert same(qa.load(path), example())


def test_the_system_has_its_own_errors(tmp_path):
    for ending in ENDINGS:
        with pytest.raises(FileNotFoundError):
            qa.load(tmp_path / f"missing{ending}")
        (tmp_path / f"d{ending}").mkdir()
        with pytest.raises(OSError) as caught:
            qa.load(tmp_path / f"d{ending}")
        assert not isinstance(caught.value, qa.FormatError)


def test_safetensors_is_an_extra(tmp_path, monkeypatch):
    path = tmp_path / "q.safetensors"
    qa.save(path, example())
    real = builtins.__import__

    def blocked(name, *args, **kwargs):
        if name.startswith("safetensors"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", blocked)
    for call in (lambda: qa.load(path), lambda: qa.save(path, example())):
        with pytest.raises(ImportError, match=r"pip install 'quantarray\[safetensors\]', or use a \.npz file"):
            call()
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == [path.name] and same(qa.load(path), example())
