"""`.qa` files that are damaged, rewritten or foreign: refused by name, or equal to what was saved."""

import itertools
import json

import numpy as np
import pytest
from long.stored import content, packed
from plain_files import small
from test_qa_files import assert_equal_networks, bits, equal

import quantarray as qa
from quantarray.io import document
from quantarray.nn import Conv2d, Dense, Map, Sequential


def tiny(path):
    layers = [Conv2d(bits(2, 1, 1, 3), requantize=qa.Thresholds([[0], [1]])), Dense(bits(2, 2), bias=[1, 2])]
    net = Sequential([*layers, Map(np.abs, of=qa.ternary), qa.Affine([1.0], [0.5])])
    net.save(path)
    return net


def refused(path, net):
    """Load a copy of a file: None where it is `net`, else what the refusal says after the file's name."""
    try:
        loaded = qa.nn.load(path)
    except qa.FormatError as error:
        start = f"load: {path} is not a whole quantarray file: "
        if not str(error).startswith(start):
            assert path.read_bytes().startswith(b"PK") and f"{path} is not a" in str(error)
        assert "\n" not in str(error)
        return str(error).removeprefix(start)
    assert_equal_networks(loaded, net)
    assert [w.digest() for w in loaded.weights] == [w.digest() for w in net.weights]
    return None


def test_every_damaged_byte(tmp_path):
    path = tmp_path / "net.qa"
    net = tiny(path)
    whole, count = path.read_bytes(), 0
    for i, new in itertools.chain(*(((i, b ^ 255), (i, b ^ 1)) for i, b in enumerate(whole))):
        path.unlink()  # what is mapped of the last one stays
        path.write_bytes(whole[:i] + bytes([new]) + whole[i + 1 :])
        count += refused(path, net) is not None
    assert count > 1.9 * len(whole.rstrip(b" "))  # but for spaces that the header is filled up with


def test_every_truncation_and_more_bytes(tmp_path):
    path = tmp_path / "net.qa"
    net = tiny(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.unlink()
        path.write_bytes(whole[:length])
        assert refused(path, net)
    path.unlink()
    path.write_bytes(whole + b"\0")
    assert "follow its header" in refused(path, net)


def rewritten(path, change, sign=True):
    """Change a file's meta object and arrays, and make its digest fit."""
    meta, parts = content(path)
    change(meta, parts)
    if sign:
        meta["digest"] = document.digest(meta, parts)
    path.unlink()
    path.write_bytes(packed(".safetensors", json.dumps(meta), parts))


def layer(i, **keys):
    return lambda meta, parts: meta["document"]["layers"][i].update(keys)


def at(i, name, **keys):
    return lambda meta, parts: meta["document"]["layers"][i][name]["thresholds"].update(keys)


CHANGES = {
    "no JSON value": (lambda m, p: m.update(document=None), "one key, 'layers'"),
    "another kind": (lambda m, p: m.update(kind="tree"), "a document of the kind 'tree'"),
    "arrays": (lambda m, p: m.update(kind="arrays"), "which quantarray.load reads"),
    "a kind that is no text": (lambda m, p: m.update(kind=[]), "its 'kind' must be a text"),
    "a later version": (lambda m, p: m.update(version=2), "it has version 2, this library reads version 1"),
    "a version that is true": (lambda m, p: m.update(version=True), "it has version True"),
    "another format": (lambda m, p: m.update(format="quantarray"), "'quantarray' where 'quantarray document' should"),
    "no format": (lambda m, p: m.pop("format"), "it lacks 'format'"),
    "no arrays": (lambda m, p: m.update(arrays=[]), "'arrays' an object"),
    "a header of nothing": (lambda m, p: m["arrays"].update(more={}), "'more' has no header or no words"),
    "no words": (lambda m, p: p.pop("0.weight.words"), "'0.weight' has no header or no words"),
    "a lost array": (lambda m, p: p.pop("1.bias"), "there is no such array or value"),
    "words of wider tails": (lambda m, p: p.update({"1.weight.words": p["1.weight.words"] | np.uint64(1 << 63)}), ""),
    "another layer": (layer(0, layer="Conv4d"), "layer 0: there is no layer 'Conv4d'"),
    "a key too many": (layer(0, more=1), "layer 0 (Conv2d): needs the keys"),
    "a stride of 0": (layer(0, stride=0), "layer 0 (Conv2d): Conv2d: stride must be at least 1"),
    "a huge stride": (layer(0, stride=10**30), "Conv2d: stride must be at most"),
    "a stride of text": (layer(0, stride="1"), "Conv2d: stride must be an integer"),
    "a weight that is dense": (layer(0, weight={"array": "1.bias"}), "Conv2d: weight must be a QuantArray"),
    "a weight of nothing": (layer(0, weight=None), "weight must be a QuantArray"),
    "a bias of another length": (layer(1, bias={"array": "3.scale"}), "Dense: bias must be numbers [2]"),
    "a type that is none": (layer(1, out_dtype="int9"), "Dense: out_dtype must be one of"),
    "thresholds of others": (layer(0, requantize=3), "requantize must be a Thresholds"),
    "thresholds without keys": (layer(0, requantize={"thresholds": {}}), "thresholds must have the keys"),
    "by rank or not": (at(0, "requantize", by_rank=3), "by_rank must be True or False"),
    "another dtype": (at(0, "requantize", into={"kind": "integer"}), "it lacks 'bits'"),
    "thresholds of another array": (at(0, "requantize", arrays={"values": "1.bias"}), "need the arrays values"),
    "a map of other levels": (layer(2, of={"dtype": {"kind": "integer", "bits": 1, "n_levels": 2, "levels": [0, 1]}}),
                              "f must give one number for each of 2 levels"),
    "a map of no dtype": (layer(2, of=None), "needs a dtype and an array of values"),
    "an affine of infinity": (lambda m, p: p.update({"3.scale": np.array([np.inf])}), "scale must be finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_rewritten_networks(name, tmp_path):
    change, message = CHANGES[name]
    net = tiny(tmp_path / "net.qa")
    rewritten(tmp_path / "net.qa", change)
    text = refused(tmp_path / "net.qa", net)
    assert text is not None and message in text
    rewritten(tmp_path / "net.qa", lambda m, p: None, sign=False)
    assert refused(tmp_path / "net.qa", net)


def test_an_unsigned_change_is_refused(tmp_path):
    net = tiny(tmp_path / "net.qa")
    rewritten(tmp_path / "net.qa", layer(0, padding=1), sign=False)
    assert refused(tmp_path / "net.qa", net) == "its digest does not match its content"


PLAIN_CHANGES = {
    "no layers": (lambda m, p: m["document"].update(layers=[]), "needs 'layers', a list of at least one"),
    "a dense weight": (lambda m, p: (m["arrays"].pop("weight3"), p.update(weight3=np.ones((4, 28), np.int8)),
                                     p.pop("weight3.words")), "its weight must be packed"),
    "samples lost": (lambda m, p: p.pop("input"), "there is no array 'input'"),
    "a scaled weight": (lambda m, p: p.update({"weight3.scale": np.ones((1, 1), np.float32)}), "8-bit integer levels"),
    "another sum": (lambda m, p: p.update(expected=p["expected"][1:]), "expected: the layers return (6, 4)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN_CHANGES)
def test_rewritten_plain_networks(name, tmp_path):
    change, message = PLAIN_CHANGES[name]
    qa.nn.load_network(small().save(tmp_path / "net.npz")).save(tmp_path / "net.qa")
    rewritten(tmp_path / "net.qa", change)
    with pytest.raises(qa.FormatError) as caught:
        qa.nn.load(tmp_path / "net.qa")
    assert message in str(caught.value)


def header(entries, data=b"", size=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def entry(dtype="U8", shape=(4,), span=(0, 4)):
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


FOREIGN = {
    "empty": (b"", "it is empty"),
    "text": (b"not a network file", "it is a text file"),
    "a header of an exabyte, it says": (header(b"{}", size=2**60), "says that its header has"),
    "no JSON": (header(b"{"), "Expecting"),
    "no object": (header([1]), "not a JSON object"),
    "deep": (header(b"[" * 100_000), "recursion"),
    "no metadata": (header({}), "it is a safetensors file of no arrays by another program"),
    "metadata of a list": (header({"__metadata__": []}), "metadata is not a JSON object"),
    "one name twice": (header(b'{"a": 1, "a": 2}'), "two of its entries have one name"),
    "an unknown type": (header({"a": entry("F8")}, bytes(4)), "has the dtype 'F8', which is none of"),
    "a shape of more": (header({"a": entry(shape=[5])}, bytes(4)), "too few or many"),
    "a huge shape": (header({"a": entry(shape=[2**62, 2**62])}, bytes(4)), "too few or many"),
    "a shape of text": (header({"a": entry(shape=["4"])}, bytes(4)), "no lists of integers"),
    "a hole": (header({"a": entry(span=[1, 5])}, bytes(5)), "begins at byte 1, where 0 is the next"),
    "an overlap": (header({"a": entry(), "b": entry(span=[2, 6])}, bytes(6)), "begins at byte 2, where 4"),
    "bytes too few": (header({"a": entry()}, bytes(3)), "its arrays have 4 bytes, and 3 follow"),
    "bytes too many": (header({"a": entry()}, bytes(5)), "its arrays have 4 bytes, and 5 follow"),
    "an entry of more": (header({"a": entry() | {"b": 1}}, bytes(4)), "must have a dtype, a shape and"),
    "bools of 2": (header({"a": entry("BOOL")}, b"\0\1\2\1"), "bools that are neither 0 nor 1"),
    "many axes": (header({"a": entry(shape=[1] * 70, span=[0, 1])}, bytes(1)), "too few or many"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(name, tmp_path):
    data, message = FOREIGN[name]
    path = tmp_path / "net.qa"
    path.write_bytes(data)
    for load in (qa.load, qa.nn.load):
        with pytest.raises(qa.FormatError) as caught:
            load(path)
        assert str(caught.value).startswith(f"load: {path} is not a whole quantarray file: ")
        assert message in str(caught.value) and "\n" not in str(caught.value)


def test_files_of_other_kinds(tmp_path):
    tiny(tmp_path / "net.qa")
    with pytest.raises(qa.FormatError, match=r"kind 'sequential', which quantarray\.nn\.load reads"):
        qa.load(tmp_path / "net.qa")
    qa.save(tmp_path / "q.qa", bits(2, 3))
    with pytest.raises(qa.FormatError, match=r"kind 'array', which quantarray\.load reads"):
        qa.nn.load(tmp_path / "q.qa")
    qa.save(tmp_path / "q.safetensors", bits(2, 3))
    (tmp_path / "q.safetensors").rename(tmp_path / "renamed.qa")
    with pytest.raises(qa.FormatError, match=r"reads it from a file that ends in '\.safetensors'"):
        qa.load(tmp_path / "renamed.qa")
    for load in (qa.load, qa.nn.load):
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "missing.qa")


def test_unaligned_arrays_of_other_writers(tmp_path):
    """Arrays that begin anywhere, after another order and an odd header, are copied."""
    q = bits(3, 70)
    qa.save(tmp_path / "a.qa", {"q": q, "flag": np.array([True])})
    meta, parts = content(tmp_path / "a.qa")
    parts = {"flag": parts["flag"], "q.words": parts["q.words"]}
    (tmp_path / "b.qa").write_bytes(packed(".safetensors", json.dumps(meta), parts))
    loaded = qa.load(tmp_path / "b.qa")
    equal(loaded["q"], q)
    assert loaded["q"].words.flags.aligned and loaded["flag"].all()


def of_super_blocks(path, odd=False):
    """Save {"w": ..} with integers of 4 bits as scale, of 8 signed bits as offset; three groups a row if `odd`."""
    groups = 3 if odd else 4
    scale = qa.SuperBlocks(np.arange(2 * groups, dtype=np.uint8).reshape(2, -1), np.float16([[0.5], [2]]), bits=4)
    offset = qa.SuperBlocks(np.arange(-4, 2 * groups - 4, dtype=np.int8).reshape(2, -1), np.float16([[-1], [0.25]]))
    codes = np.arange(32 * groups).reshape(2, -1) % 16
    qa.save(path, {"w": qa.from_codes(codes, qa.uniform(4), scale=scale, offset=offset, group=16)})
    return qa.load(path)["w"]


def stored_as(name, change):
    return lambda m, p: p.update({f"w.{name}": change(p[f"w.{name}"])})


def bits_of(value):
    return lambda m, p: m["arrays"]["w"].update(super_blocks=value)


def set_first(value):
    """Return a function that copies an array, the first number of which it replaces."""

    def change(a):
        a = a.copy()
        a.flat[0] = value
        return a

    return change


SUPER_BLOCK_CHANGES = {
    "version 1": (lambda m, p: m.update(version=1), "it has version 1, this library reads version 2"),
    "version 3": (lambda m, p: m.update(version=3), "it has version 3, this library reads version 2"),
    "integers of 16 bits": (stored_as("offset", np.int16), "'offset' must be |u1 or |i1, got <i2"),
    "integers as float32": (stored_as("offset", np.float32), "'offset' must be |u1 or |i1, got <f4"),
    "signed integers of 4 bits": (stored_as("scale", np.int8), "'scale' must be |u1, got |i1"),
    "halves as float32": (stored_as("scale_halves", np.float32), "'scale_halves' must be <f2, got <f4"),
    "halves as their bits": (stored_as("scale_halves", lambda a: a.view(np.uint16)), "must be <f2, got <u2"),
    "a half of -0": (stored_as("scale_halves", set_first(-0.0)), "'scale_halves' must not hold -0"),
    "an infinite half": (stored_as("offset_halves", set_first(np.inf)), "halves must be finite"),
    "a half of NaN": (stored_as("offset_halves", set_first(np.nan)), "halves must be finite"),
    "no halves": (lambda m, p: p.pop("w.scale_halves"), "it lacks 'scale_halves'"),
    "no integers": (lambda m, p: p.pop("w.scale"), "it lacks 'scale'"),
    "halves of another row": (stored_as("scale_halves", lambda a: a[:1]), "with the same leading lengths"),
    "a column of halves less": (stored_as("scale_halves", lambda a: a[:, :0]), "a divisor of groups"),
    "three halves of four": (stored_as("offset_halves", lambda a: np.repeat(a, 3, 1)), "a divisor of groups"),
    "flat halves": (stored_as("offset_halves", np.ravel), "the same leading lengths"),
    "a byte of integers less": (stored_as("scale", lambda a: a[:, :1].copy()), "of 4 bits are not stored as (2, 1)"),
    "integers of three groups": (stored_as("offset", lambda a: a[:, :3].copy()), "of 8 bits are not stored as (2, 3)"),
    "an integer of no axes": (stored_as("offset", lambda a: a[0, 0]), "the same leading lengths"),
    "rows of three": (lambda m, p: p.update({"w.scale": np.zeros((3, 2), np.uint8),
                                             "w.scale_halves": np.ones((3, 1), np.float16)}), "must have the shape"),
    "8 bits, it says": (bits_of({"scale": 8, "offset": 8}), "of 8 bits are not stored as (2, 2)"),
    "4 bits, it says": (bits_of({"scale": 4, "offset": 4}), "'offset' must be |u1, got |i1"),
    "other bits": (bits_of({"scale": 5, "offset": 8}), "its 'super_blocks' must be an object of 4 or 8 bits"),
    "bits that are true": (bits_of({"scale": True}), "its 'super_blocks' must be"),
    "bits of words": (bits_of({"scale": 4, "words": 8}), "its 'super_blocks' must be"),
    "a list of bits": (bits_of(["scale"]), "its 'super_blocks' must be"),
    "null as bits": (bits_of(None), "its 'super_blocks' must be"),
    "a list of 4 bits": (bits_of({"scale": [4]}), "its 'super_blocks' must be"),
    "no bits": (bits_of({}), "its 'super_blocks' must be"),
    "halves of no super-blocks": (bits_of({"scale": 4}), "'offset' must be <f4 or <u2, got |i1"),
    "another axis": (lambda m, p: m["arrays"]["w"].update(axis=0), "needs words uint64"),
    "no group": (lambda m, p: m["arrays"]["w"].update(group=None), "are not stored as"),
    "another group": (lambda m, p: m["arrays"]["w"].update(group=8), "are not stored as"),
    "another kind": (lambda m, p: m["arrays"]["w"].update(kind="basis"), "scale must have the shape"),
    "scale beside bfloat16": (lambda m, p: (bits_of({"scale": 4})(m, p), p.pop("w.offset_halves"),
                                            p.update({"w.offset": p["w.offset"].astype(np.uint16)})), "float32, or"),
}  # fmt: skip


@pytest.mark.parametrize("name", SUPER_BLOCK_CHANGES)
def test_rewritten_super_blocks(name, tmp_path):
    change, message = SUPER_BLOCK_CHANGES[name]
    path = tmp_path / "w.qa"
    of_super_blocks(path)
    rewritten(path, lambda m, p: None)
    qa.load(path)
    rewritten(path, change)
    with pytest.raises(qa.FormatError) as caught:
        qa.load(path)
    assert message in str(caught.value)


def test_bits_after_the_last_integer_of_a_row(tmp_path):
    path = tmp_path / "w.qa"
    w = of_super_blocks(path, odd=True)
    assert w.constants.super_blocks["scale"].stored.shape == (2, 2)
    rewritten(path, stored_as("scale", lambda a: a | np.uint8([[0, 16]])))
    with pytest.raises(qa.FormatError, match="the bits after the last integer of a row must be zero"):
        qa.load(path)


def test_every_damaged_byte_of_super_blocks(tmp_path):
    path = tmp_path / "w.qa"
    of_super_blocks(path)
    whole = path.read_bytes()
    for i, b in enumerate(whole.rstrip(b" ")):
        path.unlink()
        path.write_bytes(whole[:i] + bytes([b ^ 1]) + whole[i + 1 :])
        try:
            loaded = qa.load(path)["w"]
        except (qa.FormatError, KeyError):
            continue
        assert whole[i : i + 1] == b" ", (i, loaded)
