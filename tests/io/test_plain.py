"""The reader of plain networks: what it takes, and that it refuses the rest in words."""

import json

import numpy as np
import pytest
from paths import PACKAGED
from plain_files import rewrite, small

import quantarray as qa
from quantarray import FormatError
from quantarray.io.plain import read_plain
from quantarray.nn import load_network


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """layers: conv2d w0 t0 invert0, max_pool2d, conv2d w2 t2, dense w3."""
    return small().save(tmp_path_factory.mktemp("plain") / "good.npz")


def test_what_is_read(good):
    plain = read_plain(good)
    assert (plain.name, plain.path, plain.labels, plain.classes) == ("made up", good, None, None)
    conv, pool, second, dense = plain.layers
    assert [layer.shape for layer in plain.layers] == [(6, 5, 5), (3, 2, 5), (2, 2, 7), (4,)]
    assert (conv.op, conv.stride, conv.pad, conv.values, conv.strict) == ("conv2d", 1, (1, 1), (-1, 1), True)
    assert conv.invert.tolist() == [False, True, False, True, False]
    assert (pool.size, pool.stride, pool.pad, pool.weight) == (2, 2, (0, 0), None)
    assert (second.invert, second.values) == (None, (-1, 0, 3))
    assert (dense.thresholds, dense.values) == (None, None)
    assert plain.input_table.tolist() == list(range(-8, 9))


def test_the_worked_example_of_the_format(tmp_path):
    layers = [
        {"op": "dense", "weight": "w0", "threshold": "t0", "invert": "invert0", "values": [-1, 0, 1]},
        {"op": "dense", "weight": "w1", "threshold": None, "values": None},
    ]
    meta = {"name": "tiny", "input": "pixels 0..3", "expected": "scores", "layers": layers, "classes": ["a", "b"]}
    np.savez_compressed(
        tmp_path / "tiny.npz", meta=json.dumps(meta),
        w0=np.array([[1, 1, -1], [1, -1, 1]], np.int8), w1=np.array([[1, 1], [1, -1]], np.int8),
        t0=np.array([[-2, 0], [1, 3]], np.int32), invert0=np.array([False, True]),
        input=np.array([[3, 1, 2]], np.uint8), input_table=np.arange(4, dtype=np.int8),
        expected=np.array([[0, 2]], np.int32), labels=np.array([1], np.uint8),
    )  # fmt: skip
    network = load_network(tmp_path / "tiny.npz")
    assert network.plain.classes == ("a", "b")
    assert network(network.plain.input).tolist() == [[0, 2]]


def layer(i, **keys):
    return lambda meta, arrays: meta["layers"][i].update(keys)


def array(name, change):
    return lambda meta, arrays: arrays.update({name: change(arrays[name])})


def drop(i, key):
    return lambda meta, arrays: meta["layers"][i].pop(key)


WRONG = {
    "no layers": (lambda m, a: m.update(layers=[]), "needs 'layers', a list of at least one"),
    "layers no list": (lambda m, a: m.update(layers={"op": "dense"}), "needs 'layers'"),
    "no name": (lambda m, a: m.pop("name"), "'name' must be a text"),
    "text no text": (lambda m, a: m.update(input=3), "'input' must be a text"),
    "unknown op": (layer(1, op="avg_pool2d"), "layer 1: op must be one of conv2d, dense, max_pool2d, got 'avg_pool2d'"),
    "op no text": (layer(1, op=["conv2d"]), "layer 1: op must be one of"),
    "layer no object": (lambda m, a: m["layers"].insert(0, "conv2d"), "layer 0: op must be one of"),
    "unknown key": (layer(0, dilation=2), r"layer 0 \(conv2d\): keys \[\] are missing, keys \['dilation'\]"),
    "key of another op": (layer(3, pad_value=0), r"layer 3 \(dense\).*\['pad_value'\] do not belong"),
    "missing key": (drop(2, "values"), r"layer 2 \(conv2d\): keys \['values'\] are missing"),
    "missing stride of a pool": (drop(1, "stride"), r"layer 1 .*\['stride'\] are missing"),
    "missing weight": (lambda m, a: a.pop("w2"), r"layer 2 \(conv2d\): there is no array 'w2'"),
    "missing thresholds": (lambda m, a: a.pop("t0"), "layer 0 .*: there is no array 't0'"),
    "missing invert": (lambda m, a: a.pop("invert0"), "there is no array 'invert0'"),
    "missing input": (lambda m, a: a.pop("input"), "there is no array 'input'"),
    "missing input_table": (lambda m, a: a.pop("input_table"), "there is no array 'input_table'"),
    "missing expected": (lambda m, a: a.pop("expected"), "there is no array 'expected'"),
    "array name no text": (layer(0, weight=0), "there is no array 0"),
    "weights too wide": (array("w0", lambda w: w.astype(np.int16) * 200), "w0 must be int8 with 4 axes, got int16"),
    "float weights": (array("w0", lambda w: w.astype(np.float32)), "w0 must be int8"),
    "weights of a dense": (array("w0", lambda w: w[:, 0, 0]), r"w0 must be int8 with 4 axes, got int8 \(5, 3\)"),
    "no weights": (array("w2", lambda w: w[:0]), r"w2 is empty, \(0, 2, 1, 5\)"),
    "thresholds of floats": (array("t0", lambda t: t.astype(np.float32)), "t0 must be int32"),
    "thresholds of a vector": (array("t0", lambda t: t[:, 0]), "t0 must be int32 with 2 axes"),
    "no threshold": (array("t0", lambda t: t[:, :0]), "t0 is empty"),
    "thresholds of other channels": (array("t0", lambda t: t[:4]), "t0 has 4 channels, w0 has 5"),
    "invert of other channels": (array("invert0", lambda v: v[:4]), "invert0 has 4 channels, w0 has 5"),
    "invert of integers": (array("invert0", lambda v: v.astype(np.int8)), "invert0 must be bool"),
    "strict no bool": (layer(0, strict=1), "strict must be true or false, got 1"),
    "values of another count": (layer(0, values=[-1, 0, 1]), "values must be 2 different int32 integers"),
    "values equal": (layer(0, values=[1, 1]), "values must be 2 different int32 integers"),
    "values of floats": (layer(0, values=[-1.0, 1.0]), "values must be 2 different int32 integers"),
    "values of bools": (layer(0, values=[False, True]), "values must be 2 different int32 integers"),
    "values no list": (layer(0, values=2), "values must be 2 different int32 integers"),
    "values of lists": (layer(0, values=[[1], [2]]), "values must be 2 different int32 integers"),
    "values beyond int32": (layer(0, values=[-1, 2**31]), "values must be 2 different int32 integers"),
    "null threshold inside": (layer(0, threshold=None, values=None), "threshold may be null in the last layer only"),
    "channels do not chain": (array("w2", lambda w: w[..., :4]), r"w2 \(7, 2, 1, 4\) takes 4 inputs.*returns 5"),
    "dense does not chain": (array("w3", lambda w: w[:, 1:]), r"w3 \(4, 27\) takes 27 inputs.*returns 28"),
    "conv2d of rows": (lambda m, a: m["layers"].append(m["layers"][0]), "layer 3 .*null in the last layer only"),
    "pool of rows": (lambda m, a: m["layers"].insert(4, m["layers"][1]), "layer 3 .*null in the last layer only"),
    "stride 0": (layer(0, stride=0), "layer 0 .*: stride must be an integer from 1 to 32767, got 0"),
    "stride of a dense": (layer(3, stride=2), "layer 3 .*: stride must be 1 and pad 0"),
    "pad of a dense": (layer(3, pad=[0, 1]), "layer 3 .*: stride must be 1 and pad 0"),
    "stride true": (layer(0, stride=True), "stride must be an integer from 1 to 32767, got True"),
    "stride float": (layer(0, stride=1.0), "stride must be an integer"),
    "huge stride": (layer(0, stride=10**30), "stride must be an integer from 1 to 32767"),
    "negative pad": (layer(0, pad=-1), "pad must be an integer from 0 to 32767, got -1"),
    "three pads": (layer(0, pad=[1, 1, 1]), r"pad must be an integer or two, got \[1, 1, 1\]"),
    "pad no integer": (layer(0, pad=[1, None]), "pad must be an integer from 0 to 32767, got None"),
    "pad value no integer": (layer(0, pad_value=0.5), "pad_value must be an integer from"),
    "pad value too large": (layer(0, pad_value=2**30), "layer 0 .*: the accumulator may leave int32"),
    "pad value beyond int32": (layer(0, pad_value=2**40), "pad_value must be an integer from"),
    "kernel too large": (array("w2", lambda w: w.repeat(2, 1)), r"a window \(4, 1\) is larger than the image"),
    "size 0": (layer(1, size=0), "size must be an integer from 1"),
    "pool too large": (layer(1, size=7), "is larger than the image"),
    "window before the image": (layer(1, pad=[2, 0]), "windows of 2 wholly in the padding"),
    "window behind the image": (layer(1, pad=[0, 3]), "windows of 2 wholly in the padding"),
    "input of floats": (array("input", lambda x: x.astype(np.float32)), "input must be uint8"),
    "input of three axes": (array("input", lambda x: x[0]), "input must be uint8 with 2 or 4 axes"),
    "input of no channels": (array("input", lambda x: x[..., :0]), "input is empty"),
    "input beyond the table": (array("input", lambda x: x + 17), "beyond the 17 entries of input_table"),
    "table too long": (array("input_table", lambda t: np.zeros(257, np.int8)), "needs 1 to 256 integers"),
    "table empty": (array("input_table", lambda t: t[:0]), "input_table is empty"),
    "table beyond 8 bits": (array("input_table", lambda t: t * 20), "all in -128..127 or all in 0..255"),
    "table of floats": (array("input_table", lambda t: t / 2), "input_table must be integer"),
    "expected of another N": (array("expected", lambda e: e[:5]), r"the layers return \(6, 4\).*got \(5, 4\)"),
    "expected of floats": (array("expected", lambda e: e / 1), "expected must be integer"),
    "labels of another N": (lambda m, a: a.update(labels=np.zeros(5, np.uint8)), "one for each of 6 samples, got 5"),
    "labels wide": (lambda m, a: a.update(labels=np.zeros(6, np.int64)), "labels must be uint8"),
    "classes of another count": (lambda m, a: m.update(classes=["a", "b"]), "classes must be 4 texts"),
    "classes of numbers": (lambda m, a: m.update(classes=[1, 2, 3, 4]), "classes must be 4 texts"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_inconsistent_files_are_refused(name, good, tmp_path):
    change, message = WRONG[name]
    path = rewrite(good, tmp_path / "wrong.npz", change)
    with pytest.raises(FormatError, match=f"wrong.npz is not a plain network: .*{message}"):
        read_plain(path)


def test_too_many_thresholds(good, tmp_path):
    def change(meta, arrays):
        arrays["t0"] = np.tile(np.arange(256, dtype=np.int32), (5, 1))
        meta["layers"][0]["values"] = list(range(257))

    with pytest.raises(FormatError, match="at most 255 thresholds a channel, got 256"):
        read_plain(rewrite(good, tmp_path / "wrong.npz", change))


def test_rows_take_no_images(tmp_path):
    """conv2d and max_pool2d after a dense layer that has thresholds."""

    def change(op):
        def inner(meta, arrays):
            meta["layers"][3].update(threshold="t3", values=[-1, 1])
            arrays["t3"] = np.zeros((4, 1), np.int32)
            meta["layers"].append(meta["layers"][op])

        return inner

    good = small().save(tmp_path / "good.npz")
    for op in (0, 1):
        with pytest.raises(FormatError, match=r"layer 4.*needs images \(N, H, W, C\), got \('N', 4\)"):
            read_plain(rewrite(good, tmp_path / "wrong.npz", change(op)))


META = {
    "missing": None,
    "bytes": np.bytes_(b"{}"),
    "a list of texts": np.array(["{}"]),
    "not JSON": np.array("{"),
    "a JSON list": np.array("[]"),
    "deep": np.array("[" * 100_000),
}


@pytest.mark.parametrize("name", META)
def test_meta_must_be_a_json_object(name, tmp_path):
    arrays = {} if META[name] is None else {"meta": META[name]}
    np.savez(tmp_path / "wrong.npz", x=np.zeros(3), **arrays)
    with pytest.raises(FormatError, match="meta"):
        read_plain(tmp_path / "wrong.npz")


def test_foreign_files_are_refused(tmp_path):
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "object.npz", meta=np.array({"layers": []}, dtype=object))
    qa.save(tmp_path / "packed.npz", qa.encode([1, -1], values=(-1, 1)))
    for name, reason in {
        "array": "it is one NumPy array; .*",
        "text": "it is a text file",
        "empty": "it is empty",
        "object": "it holds Python objects, which are never loaded",
        "packed": "it is one packed array, which quantarray.load reads",
    }.items():
        with pytest.raises(FormatError, match=f"^load_network: .*{name}.npz is not a plain network: {reason}$"):
            read_plain(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "nothing.npz")


def test_foreign_keys_and_arrays_are_ignored(good, tmp_path):
    def change(meta, arrays):
        meta["source"] = {"any": "thing"}
        arrays["extra"] = np.zeros(3)

    assert read_plain(rewrite(good, tmp_path / "more.npz", change)).name == "made up"


def test_no_samples(good, tmp_path):
    def change(meta, arrays):
        arrays.update(input=arrays["input"][:0], expected=arrays["expected"][:0])

    network = load_network(rewrite(good, tmp_path / "none.npz", change))
    with pytest.raises(ValueError, match="x has an empty batch"):
        network(network.plain.input)


@pytest.fixture(scope="module")
def digits():
    return PACKAGED.read_bytes()


def same_or_refused(data, path, scores):
    """True where the file is refused; otherwise it must hold the same network."""
    path.write_bytes(data)
    try:
        network = load_network(path)
    except FormatError:
        return True
    np.testing.assert_array_equal(network(network.plain.input[:8]), scores)
    return False


def test_truncated_files_are_refused(digits, tmp_path):
    lengths = np.unique(np.linspace(0, len(digits) - 1, 120).astype(int))
    for n in lengths:
        assert same_or_refused(digits[:n], tmp_path / "cut.npz", None), n


def test_flipped_bits_never_change_a_network(digits, tmp_path):
    """Dates and attributes in the archive's directory may change; what is computed may not."""
    scores = read_plain(PACKAGED).expected[:8]
    rng = np.random.default_rng(0)
    anywhere = rng.integers(0, len(digits), 150)
    directory = rng.integers(digits.index(b"PK\x01\x02"), len(digits), 100)
    refused = 0
    for at in (*anywhere, *directory):
        data = bytearray(digits)
        data[at] ^= 1 << int(rng.integers(8))
        refused += same_or_refused(bytes(data), tmp_path / "flipped.npz", scores)
    assert refused > 150
