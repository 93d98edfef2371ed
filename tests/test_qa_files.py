"""`.qa` files: arrays and networks load equal, or are refused; the page that describes them is true."""

import doctest
import itertools
import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from long.stored import content, packed
from plain_files import Builder, small
from safetensors import safe_open
from test_container import arrays, same

import quantarray as qa
from quantarray.io import document, tensors
from quantarray.nn import AvgPool2d, Conv2d, Dense, GlobalAvgPool, Map, MaxPool2d, Sequential, Threshold

PAGE = Path(__file__).parents[1] / "docs" / "qa-format.md"
NETWORKS = Path(__file__).parents[2] / "shared" / "networks"
RNG = np.random.default_rng(0)
DENSE = [
    np.arange(6.0).reshape(2, 3),
    np.arange(24, dtype=np.int8).reshape(2, 3, 4).transpose(2, 0, 1),
    np.array([True, False]),
    np.float32(3),
    np.zeros((0, 4), np.uint16),
    np.array([2**63, 1], np.uint64),
    np.array([1.5, np.nan, np.inf, -0.0], np.float16),
    np.arange(5, dtype=">i4"),
]


def bits(*shape, axis=-1):
    return qa.encode(RNG.choice([-1, 1], shape), values=(-1, 1), axis=axis)


def equal(a, b):
    """Everything that a file holds of an array is equal."""
    if isinstance(b, qa.QuantArray):
        assert same(a, b) and a.scheme == b.scheme
    else:
        b = np.asarray(b)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype.newbyteorder("<"), b.shape, b.astype(a.dtype).tobytes())
        assert not a.flags.writeable


# arrays


def test_one_array(tmp_path):
    for q in arrays():
        qa.save(tmp_path / "q.qa", q)
        equal(qa.load(str(tmp_path / "q.qa")), q)
        (tmp_path / "q.qa").unlink()


def test_a_dict_of_arrays(tmp_path):
    packed = {f"packed {i}": q for i, q in enumerate(arrays())}
    both = packed | {f"dense {i}": a for i, a in enumerate(DENSE)} | {"größe": qa.quantize(np.ones(9), bits=2)}
    names = [str(n) for n in RNG.permutation(sorted(both))]
    qa.save(tmp_path / "a.qa", {name: both[name] for name in names})
    loaded = qa.load(tmp_path / "a.qa")
    assert list(loaded) == names
    for name, a in loaded.items():
        equal(a, both[name])
    qa.save(tmp_path / "none.qa", {})
    assert qa.load(tmp_path / "none.qa") == {}


def test_another_library_reads_the_file(tmp_path):
    q = qa.quantize(RNG.normal(size=(3, 70)), qa.Uniform(4), scale_axis=0)
    qa.save(tmp_path / "a.qa", {"q": q} | {f"a{i}": a for i, a in enumerate(DENSE)})
    with safe_open(tmp_path / "a.qa", "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("q.words"), q.words)
        np.testing.assert_array_equal(file.get_tensor("q.scale"), q.scale)
        for i, a in enumerate(DENSE):
            np.testing.assert_array_equal(file.get_tensor(f"a{i}"), a)
            assert file.get_tensor(f"a{i}").shape == np.shape(a)
        meta = json.loads(file.metadata()["quantarray"])
    assert meta["kind"] == "arrays" and meta["arrays"].keys() == {"q"}


def test_arrays_stay_in_the_file(tmp_path):
    """A file of 32 MiB is loaded, and its words are read, in 1 MiB; products of mapped weights are those of others."""
    q, x = bits(4096, 16384), bits(2, 16384)
    big = np.zeros((1 << 20, 3))
    qa.save(tmp_path / "a.qa", {"w": q, "big": big})
    tracemalloc.start()
    loaded = qa.load(tmp_path / "a.qa")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    np.testing.assert_array_equal(qa.linear(x, loaded["w"]), qa.linear(x, q))
    assert loaded["w"].words.ctypes.data % 64 == 0
    for a in (loaded["w"].words, loaded["big"]):
        with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
            a.flags.writeable = True


def test_replacing_a_file_leaves_what_was_loaded_from_it(tmp_path):
    q = bits(64, 4096)
    qa.save(tmp_path / "q.qa", q)
    loaded = qa.load(tmp_path / "q.qa")
    qa.save(tmp_path / "q.qa", bits(3, 5))
    equal(loaded, q)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("a.qa", 3, TypeError, "save: needs a QuantArray or a dict of arrays, got int"),
        ("a.npz", {}, ValueError, r"save: a dict of arrays goes into a file that ends in \.qa, got .*a\.npz"),
        ("a.safetensors", {}, ValueError, r"goes into a file that ends in \.qa"),
        ("a.bin", {}, ValueError, r"must end in \.npz or \.safetensors or \.qa"),
        ("a.qa", {3: np.ones(2)}, TypeError, "names of arrays must be texts, got 3"),
        ("a.qa", {"": np.ones(2)}, ValueError, "cannot have the name ''"),
        ("a.qa", {"a\n": np.ones(2)}, ValueError, "printable"),
        ("a.qa", {"\ud800": np.ones(2)}, ValueError, "printable"),
        ("a.qa", {"__metadata__": np.ones(2)}, ValueError, "cannot have the name"),
        ("a.qa", {"a": "text"}, TypeError, "'a' must be an array of"),
        ("a.qa", {"a": np.ones(2, complex)}, TypeError, "'a' must be an array of .* got complex128"),
        ("a.qa", {"a": np.array([object()])}, TypeError, "'a' must be an array of .* got object"),
        (
            "a.qa",
            {"a": bits(3), "a.words": np.ones(2)},
            ValueError,
            "'a.words' needs the name 'a.words', which another",
        ),
    ],
)
def test_what_cannot_be_saved(name, value, error, message, tmp_path):
    with pytest.raises(error, match=message):
        qa.save(tmp_path / name, value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failing_write_leaves_no_trace(step, tmp_path, monkeypatch):
    path = tmp_path / "net.qa"

    def fail(target, *args):
        if isinstance(target, Path):
            target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    for before in (None, b"old"):
        if before:
            path.write_bytes(before)
        with monkeypatch.context() as m:
            m.setattr(tensors if step == "write" else os, step, fail)
            for save in (lambda: qa.save(path, {"a": np.ones(3)}), lambda: Sequential([MaxPool2d(2)]).save(path)):
                with pytest.raises(OSError, match="No space left") as caught:
                    save()
                assert caught.value.filename == str(path)
        assert [p.read_bytes() for p in tmp_path.iterdir()] == [before][: bool(before)]


def test_files_are_deterministic(tmp_path):
    for name in "ab":
        qa.save(tmp_path / f"{name}.qa", {"q": bits(3, 70)[:0], "a": DENSE[0]})
    assert (tmp_path / "a.qa").read_bytes() == (tmp_path / "b.qa").read_bytes()


# networks

INTO = qa.Uniform(2, signed=False, step=1.0)
CUT = qa.fold_batchnorm(*RNG.random((4, 16)) * 9, into=INTO)
DOWN = qa.Thresholds(np.arange(-8, 8), per_channel=True, greater=RNG.random(16) < 0.5, strict=RNG.random(16) < 0.5)


def network():
    """Every layer that has a form in a file, with arguments of every kind."""
    scaled = qa.quantize(RNG.normal(size=(16, 3, 3, 4)), qa.Sign(scale=True), scale_axis=0)
    return Sequential(
        [
            Conv2d(scaled, bias=RNG.normal(size=16), stride=(1, 1), padding=((1, 0), (2, 1)), pad_value=0.5),
            Threshold(DOWN),
            Conv2d(bits(16, 3, 3, 4), groups=4, padding="same", dilation=(1, 2), requantize=CUT, flip_kernel=True),
            Sequential([MaxPool2d((2, 2), stride=1), Map(np.square, of=qa.uint2)]),
            AvgPool2d(2, requantize=qa.Thresholds([0.5, 1.0], into=qa.ternary)),
            Sequential([Map(lambda v: v + 1.5, of=qa.ternary)]),
            GlobalAvgPool(requantize=qa.Thresholds([[0.25]] * 16)),
            Dense(bits(5, 16), bias=np.arange(5), out_dtype=np.int64),
            qa.Thresholds([0, 5, 9], per_channel=False),
            Dense(bits(3, 5)),
            qa.Affine([0.5, 2.0, 3.0], [0.0, -1.0, 1e-30]),
        ]
    )


def assert_equal_networks(a, b):
    assert type(a) is type(b) and len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert type(one) is type(other)
        if isinstance(one, Sequential):
            assert_equal_networks(one, other)
        elif isinstance(one, qa.Thresholds):
            assert one == other
        else:
            assert isinstance(one, Map) or repr(one) == repr(other)
        for name in ("requantize", "thresholds"):
            assert getattr(one, name, None) == getattr(other, name, None)


def test_a_network_of_every_layer(tmp_path):
    net, x = network(), bits(3, 7, 6, 4)
    net.save(tmp_path / "net.qa")
    loaded = qa.nn.load(str(tmp_path / "net.qa"))
    assert_equal_networks(loaded, net)
    for one, other in zip(loaded.trace(x), net.trace(x), strict=True):
        equal_outputs(one.output, other.output)
    loaded.save(tmp_path / "again.qa")
    assert (tmp_path / "again.qa").read_bytes() == (tmp_path / "net.qa").read_bytes()
    assert loaded.compact()(x).tobytes() == net(x).tobytes()


def equal_outputs(a, b):
    assert type(a) is type(b) and a.dtype == b.dtype
    a, b = (y.dequantize() if isinstance(y, qa.QuantArray) else y for y in (a, b))
    np.testing.assert_array_equal(a, b, strict=True)


def test_first_channels_in_a_file(tmp_path):
    """Layers of NCHW, and depthwise weights, which are packed on their outputs."""
    w, depthwise = bits(8, 4, 3, 3, axis=1), bits(8, 3, 3, 1, axis=0).transpose(0, 3, 1, 2)
    layers = [Conv2d(w, data_format="NCHW", requantize=qa.Thresholds([0])), MaxPool2d(2, data_format="NCHW")]
    net = Sequential([*layers, Conv2d(depthwise, groups=8, data_format="NCHW"), GlobalAvgPool(data_format="NCHW")])
    net.save(tmp_path / "net.qa")
    x = bits(2, 4, 13, 12, axis=1)
    equal_outputs(qa.nn.load(tmp_path / "net.qa")(x), net(x))


THRESHOLDS = [
    qa.Thresholds([0]),
    qa.Thresholds([1, 2, 2], per_channel=False),
    qa.Thresholds([1, 2, 3]),
    qa.Thresholds(np.float32([1.5, np.inf, -np.inf]), per_channel=True),
    qa.Thresholds([[0, 5], [2, 2]], greater=[True, False], strict=False, into=qa.integers(7, -7, 0)),
    qa.Thresholds([[0, 5], [2, 2]], into=qa.integers(7, -7, 0), by_rank=False),
    qa.Thresholds([0, 5, 9], into=qa.uniform(2), scale=0.5, offset=-1.0),
    qa.Thresholds([0, 5, 9], into=qa.table(2), table=np.float32([3, 1, 2, -5])),
    qa.Thresholds([0, 5, 9], into=qa.basis(2), scale=[1.0, -3.0], offset=0.5),
    qa.Thresholds([0], into=qa.bipolar, scale=0.25),
    CUT,
    DOWN,
]


@pytest.mark.parametrize("T", THRESHOLDS, ids=str)
def test_thresholds(T, tmp_path):
    Sequential([T]).save(tmp_path / "t.qa")
    (loaded,) = qa.nn.load(tmp_path / "t.qa")
    assert loaded == T and hash(loaded) == hash(T)
    v = np.arange(-20, 20, dtype=np.int32)[:, None].repeat(T.channels or 1, 1)
    equal(loaded(v), T(v))


def test_layers_without_a_form_in_a_file(tmp_path):
    class Mine(Dense):
        pass

    for layers, place in (([MaxPool2d(2), qa.relu], "1"), ([Sequential([np.sign])], "0.0"), ([Mine(bits(2, 3))], "0")):
        with pytest.raises(TypeError, match=rf"save: layer {place} \(.*has no form in a file; Map\(f, of=dtype\)"):
            Sequential(layers).save(tmp_path / "net.qa")
    with pytest.raises(TypeError, match=r"layer 0 \(Map\(tanh\)\) has no form in a file; pass of="):
        Sequential([Map(np.tanh)]).save(tmp_path / "net.qa")
    with pytest.raises(ValueError, match=r"save: the file must end in \.qa"):
        network().save(tmp_path / "net.npz")
    assert not list(tmp_path.iterdir())


def assert_same_plain(a, b):
    """A network of plain integers is another one, in its integers and in what its file says besides."""
    for name in ("name", "classes", "input_text", "expected_text"):
        assert getattr(a.plain, name) == getattr(b.plain, name)
    for name in ("input", "input_table", "expected", "labels"):
        one, other = getattr(a.plain, name), getattr(b.plain, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other, strict=True)
    for one, other in zip(a.plain.layers, b.plain.layers, strict=True):
        for name in ("op", "shape", "stride", "pad", "size", "pad_value", "strict", "values"):
            assert getattr(one, name) == getattr(other, name), name
        for name in ("weight", "thresholds", "invert"):
            parts = getattr(one, name), getattr(other, name)
            assert all(p is None for p in parts) or np.array_equal(*parts)
    for one, other in zip(a.layers.weights, b.layers.weights, strict=True):
        equal(one, other)


def test_a_plain_network(tmp_path):
    uneven = Builder(8, (7, 6, 4), table=range(4)).conv(
        (66, 3, 3), values=(2, -5, 7, 0), thresholds=3, invert="mixed", strict=False, pad=[0, 2], pad_value=1, stride=2
    )
    cases = (small(), uneven.pool(2, 2, pad=[1, 1]), Builder(0, (100,)).dense(130, values=(-1, 1), thresholds=1))
    for i, builder in enumerate(cases):
        net = qa.nn.load_network(builder.save(tmp_path / f"{i}.npz", input="bytes", classes=None))
        net.save(tmp_path / f"{i}.qa")
        loaded = qa.nn.load(tmp_path / f"{i}.qa")
        assert_same_plain(loaded, net)
        equal_outputs(loaded(loaded.plain.input), net(net.plain.input))
        assert loaded.plain.path == tmp_path / f"{i}.qa"
        assert_same_plain(qa.nn.load(tmp_path / f"{i}.npz"), net)


@pytest.mark.skipif(not NETWORKS.is_dir(), reason="published networks lie beside some checkouts only")
@pytest.mark.parametrize("name", ["lfc-w1a1", "cnv-w1a1", "cnv-w1a2", "tinier-yolo-w1a3"])
def test_published_networks(name, tmp_path):
    net = qa.nn.load_network(NETWORKS / f"{name}.npz")
    net.save(tmp_path / "net.qa")
    loaded = qa.nn.load(tmp_path / "net.qa")
    assert_same_plain(loaded, net)
    scores = loaded(loaded.plain.input)
    scores = scores.dequantize() if isinstance(scores, qa.QuantArray) else scores
    np.testing.assert_array_equal(scores, net.plain.expected)


def test_a_file_loads_in_another_process(tmp_path):
    net, x = network(), bits(3, 7, 6, 4)
    net.save(tmp_path / "net.qa")
    qa.save(tmp_path / "x.qa", {"x": x, "y": net(x)})
    code = "import sys, quantarray as qa; a = qa.load(sys.argv[2]); y = qa.nn.load(sys.argv[1])(a['x'])\n"
    code += "assert y.tobytes() == a['y'].tobytes(); print('equal')"
    files = [str(tmp_path / "net.qa"), str(tmp_path / "x.qa")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=True)
    assert done.stdout == "equal\n"


# damage


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
    "another kind": (lambda m, p: m.update(kind="graph"), "a document of the kind 'graph'"),
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
    "another layer": (layer(0, layer="Conv3d"), "layer 0: there is no layer 'Conv3d'"),
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
    "empty": (b"", "fewer than the 8"),
    "text": (b"not a network file", "says that its header has"),
    "a header of an exabyte, it says": (header(b"{}", size=2**60), "says that its header has"),
    "no JSON": (header(b"{"), "Expecting"),
    "no object": (header([1]), "not a JSON object"),
    "deep": (header(b"[" * 100_000), "recursion"),
    "no metadata": (header({}), "no text 'quantarray'"),
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
    """Another order and an odd header: arrays that begin anywhere are copied."""
    q = bits(3, 70)
    qa.save(tmp_path / "a.qa", {"q": q, "flag": np.array([True])})
    meta, parts = content(tmp_path / "a.qa")
    parts = {"flag": parts["flag"], "q.words": parts["q.words"]}
    (tmp_path / "b.qa").write_bytes(packed(".safetensors", json.dumps(meta), parts))
    loaded = qa.load(tmp_path / "b.qa")
    equal(loaded["q"], q)
    assert loaded["q"].words.flags.aligned and loaded["flag"].all()


def test_the_how_to(tmp_path, monkeypatch, capsys):
    """The examples of docs/deploying.md print what their comments say."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (PAGE.parent / "deploying.md").read_text(), re.S))
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)(?:  |\n    )# (.*)", code)


def test_page():
    """The examples of docs/qa-format.md."""
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.failed == 0 and found.attempted > 5
