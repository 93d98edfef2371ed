"""`.qa` files: arrays and networks load equal, or are refused; the page that describes them is true."""

import doctest
import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from plain_files import Builder, small
from safetensors import safe_open
from test_container import arrays, same

import quantarray as qa
from quantarray.io import tensors
from quantarray.nn import AvgPool2d, Conv2d, Dense, GlobalAvgPool, Map, MaxPool2d, Sequential, Threshold

PAGE = ROOT / "docs" / "qa-format.md"
NETWORKS = ROOT.parent / "shared" / "networks"
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
        ("a.bin", {}, ValueError, r"must end in \.npz, \.safetensors or \.qa"),
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


# the pages


def test_the_how_to(tmp_path, monkeypatch, capsys):
    """The examples of docs/deploying.md print what their comments say."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (PAGE.parent / "deploying.md").read_text(), re.S))
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)(?:  |\n    )# (.*)", code)


def test_page():
    """The examples of docs/qa-format.md."""
    examples = doctest.testfile(str(PAGE), module_relative=False)
    assert examples.failed == 0 and examples.attempted > 5
