"""`predict`: arrays, memory maps, iterables and images in batches; results, memory and errors."""

import tracemalloc

import fake_cupy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import PACKAGED
from PIL import Image

import quantarray as qa

NET = qa.nn.load_network(PACKAGED)
X = NET.plain.input[:50]
Y = NET(X)


def doubling(dtype="float32", shape=(1, 2, 3), **bounds):
    """A graph of x -> x + x."""
    x, y = qa.nn.Value("x", shape, dtype, **bounds), qa.nn.Value("y", shape, dtype)
    return qa.nn.Graph([x], [y], [qa.nn.Node("Add", ("x", "x"), ("y",))], {})


def two_inputs():
    """A graph of left, right -> left + right, left - right."""
    values = [qa.nn.Value(n, (1, 3), "int32") for n in ("left", "right", "sum", "difference")]
    nodes = [qa.nn.Node("Add", ("left", "right"), ("sum",)), qa.nn.Node("Sub", ("left", "right"), ("difference",))]
    return qa.nn.Graph(values[:2], values[2:], nodes, {})


def picture(path, seed=0, shape=(8, 8), mode="L"):
    a = np.random.default_rng(seed).integers(0, 256, shape if mode == "L" else (*shape, 3)).astype(np.uint8)
    Image.fromarray(a).save(path)
    return a


# data


@given(st.integers(1, 50), st.integers(1, 60), st.sampled_from(["array", "batches", "rows", "list", "unequal"]))
def test_batches_of_any_size_give_the_same(rows, batch, form):
    x = X[:rows]
    data = {
        "array": x,
        "batches": (x[i : i + 7] for i in range(0, rows, 7)),
        "rows": iter(x),
        "list": list(x),
        "unequal": [a for a in (x[:1], x[1:30], x[30:]) if len(a)],
    }[form]
    np.testing.assert_array_equal(NET.predict(data, batch=batch), Y[:rows])


def test_rows_and_batches_in_turn():
    np.testing.assert_array_equal(NET.predict([X[0], X[1], X[2:10], X[10]], batch=4), Y[:11])


def test_memory_maps(tmp_path):
    np.save(tmp_path / "x.npy", X)
    for data in (tmp_path / "x.npy", str(tmp_path / "x.npy"), np.load(tmp_path / "x.npy", mmap_mode="r")):
        np.testing.assert_array_equal(NET.predict(data, batch=16), Y)
    out = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.int32, Y.shape)
    assert NET.predict(tmp_path / "x.npy", out=out) is out
    out.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), Y)


def test_memory_is_that_of_a_batch(tmp_path):
    """40 MB of inputs in a file, and 40 MB of results in another, pass through 200 KB."""
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (10_000, 10, 100))
    x[:] = np.arange(100)
    x.flush()
    out = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.float32, x.shape)
    graph = doubling(shape=(1, 10, 100))
    graph.predict(x[:64])
    tracemalloc.start()
    graph.predict(tmp_path / "x.npy", out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20 and (out[-1] == 2 * np.arange(100)).all()


def test_packed_results_stay_packed():
    codes = qa.nn.Sequential(list(NET.layers)[:2])
    x = NET.encode_input(X)
    q = codes.predict(x, batch=16)
    assert isinstance(q, qa.QuantArray) and q.digest() == codes(x).digest()
    out = np.empty(q.shape, np.float32)
    assert codes.predict(x, batch=16, out=out) is out
    np.testing.assert_array_equal(out, q.dequantize())


def test_inputs_by_name():
    left, right = np.arange(30, dtype=np.int32).reshape(2, 5, 3)
    results = two_inputs().predict({"left": left, "right": right}, batch=2)
    assert set(results) == {"sum", "difference"}
    np.testing.assert_array_equal(results["sum"], left + right)
    out = {name: np.empty((5, 3), np.int64) for name in results}
    assert two_inputs().predict({"right": right, "left": left}, batch=4, out=out) is out
    np.testing.assert_array_equal(out["difference"], left - right)


def test_a_network_of_one_length_of_batch(tmp_path):
    x, y = (qa.nn.Value(name, (2, 4, 6), "float32", batched=False) for name in "xy")
    graph = qa.nn.Graph([x], [y], [qa.nn.Node("Add", ("x", "x"), ("y",))], {})
    data = np.random.default_rng(0).random((6, 4, 6), np.float32)
    np.testing.assert_array_equal(graph.predict(data), 2 * data)
    np.testing.assert_array_equal(graph.predict(iter(data)), 2 * data)
    with pytest.raises(ValueError, match=r"predict: row 4: graph: the input x must be float32 \(2, 4, 6\), got \(1, 4"):
        graph.predict(data[:5])
    for i in range(4):
        picture(tmp_path / f"{i}.png", i, (4, 6))
    assert graph.predict(tmp_path).values.shape == (4, 4, 6)


def test_networks_on_a_gpu():
    with fake_cupy.gpu():
        y = NET.to_device("cuda").predict(X, batch=16)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, Y)


def test_progress_is_drawn_on_terminals(capsys, monkeypatch):
    NET.predict(X, batch=10, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("quantarray.core.progress.PATIENCE", 0.0)
    NET.predict(X, batch=10, progress=True)
    assert "40 of 50" in capsys.readouterr().err
    NET.predict(X, batch=10)
    assert capsys.readouterr().err == ""


# images


def test_folder_of_images(tmp_path):
    pixels = [picture(tmp_path / f"{i}.png", i) for i in (2, 0, 1)]
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    scaled = [(a.astype(int) * 17 // 256).astype(np.uint8)[..., None] for a in pixels]
    expected = NET(np.stack([scaled[1], scaled[2], scaled[0]]))
    files, values = NET.predict(tmp_path, batch=2)
    assert files == tuple(tmp_path / f"{i}.png" for i in range(3))
    np.testing.assert_array_equal(values, expected)
    listed = NET.predict([tmp_path / "2.png", str(tmp_path / "0.png")])
    assert listed.files == (tmp_path / "2.png", tmp_path / "0.png")
    np.testing.assert_array_equal(listed.values, expected[[2, 0]])
    one = NET.predict(tmp_path / "1.png")
    assert one.files == (tmp_path / "1.png",) and (one.values == expected[1]).all()


@pytest.mark.parametrize("shape", [(1, 1, 4, 6), (1, 4, 6, 1), (1, 4, 6), (1, 3, 4, 6), (1, 4, 6, 3)])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_layouts_and_ranges(shape, dtype, tmp_path):
    """Floats are byte / 255, uint8 the bytes, int8 the bytes - 128; channels are on the network's axis."""
    grey = 3 not in shape
    a = picture(tmp_path / "x.png", 0, (4, 6), "L" if grey else "RGB").reshape(1, 4, 6, -1)
    expected = a if shape[-1] == a.shape[3] else a.transpose(0, 3, 1, 2)
    expected = {
        "float32": lambda: expected.astype(np.float32) / np.float32(255),
        "uint8": lambda: expected,
        "int8": lambda: (expected.astype(int) - 128).astype(np.int8),
    }[dtype]()
    x, y = qa.nn.Value("x", shape, dtype), qa.nn.Value("y", shape, dtype)
    graph = qa.nn.Graph([x], [y], [qa.nn.Node("Identity", ("x",), ("y",))], {})
    values = graph.predict(tmp_path / "x.png").values
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, expected.reshape(shape))


def test_images_of_a_narrow_range(tmp_path):
    a = picture(tmp_path / "x.png", 0, (4, 6))
    values = doubling("int8", (1, 4, 6), low=-4, high=3).predict(tmp_path / "x.png").values
    np.testing.assert_array_equal(values[0], 2 * (a.astype(int) // 32 - 4))


def test_preprocess(tmp_path):
    a = picture(tmp_path / "x.png", 0, (4, 6), "RGB")
    graph = doubling(shape=(1, 3, 4, 6))
    mean = np.float32([1, 2, 3])
    values = graph.predict(tmp_path, preprocess=lambda x: (x - mean).transpose(0, 3, 1, 2)).values
    np.testing.assert_array_equal(values[0], 2 * (a - mean).transpose(2, 0, 1))


# errors

NAN = np.zeros((9, 2, 3), np.float32)
NAN[5, 1, 2] = np.nan


def with_threshold():
    x, y = qa.nn.Value("x", (1, 2, 3), "float32"), qa.nn.Value("y", (1, 2, 3), "int32")
    node = qa.nn.Node("threshold", ("x", "T"), ("y",), {"axis": 1})
    return qa.nn.Graph([x], [y], [node], {"T": qa.Thresholds([0.0])})


def many_inputs():
    return two_inputs(), {"left": np.zeros((2, 3), np.int32), "right": np.zeros((3, 3), np.int32)}


CASES = {
    "empty": (NET, X[:0], ValueError, r"predict: data has an empty batch, \(0, 8, 8, 1\)"),
    "no items": (NET, iter([]), ValueError, "predict: data has no rows"),
    "nothing": (NET, None, TypeError, "predict: data must be an array, an iterable of arrays or a path, got None"),
    "a number": (NET, np.int8(3), TypeError, "predict: data must be arrays whose first axis is the batch"),
    "bytes": (NET, b"abc", TypeError, "predict: data must be an array, an iterable of arrays or a path, got bytes"),
    "numbers": (NET, iter([1, 2]), TypeError, "predict: data must be arrays whose first axis is the batch, got int"),
    "files and arrays": (NET, ["x.png", X[0]], TypeError, "a list of files must have paths alone"),
    "unequal lists": (NET, [[1, 2], [1]], ValueError, "predict: data must be an array, or lists of equal lengths"),
    "layout": (NET, X.transpose(0, 3, 1, 2), ValueError, "predict: rows 0 to 4: .*takes NHWC: x.transpose"),
    "unequal rows": (NET, [X[0], X[1][:4]], ValueError, r"predict: row 1 is uint8 \(4, 8, 1\), row 0 uint8 \(8, 8, 1"),
    "the sixth row": (with_threshold(), NAN, ValueError, "predict: row 5: graph: the input x has a NaN"),
    "range": (doubling("int8", low=-4, high=3), np.int8([[[3, 4, 3]] * 2]), ValueError,
              "predict: row 0: graph: the input x must be from -4 to 3, got 3 to 4"),
    "dtype": (doubling(), NAN.astype(float), TypeError, r"rows 0 to 4: .* float32 .*, got float64; x.astype\(np.float"),
    "unequal inputs": (*many_inputs(), ValueError, "as many rows as each other .* {'left': 2, 'right': 3}"),
    "no inputs": (two_inputs(), {}, ValueError, "predict: data has no arrays, got an empty dict"),
    "names": (NET, {"x": X}, TypeError, "one input without a name; pass its array instead of a dict"),
    "unknown name": (doubling(), {"y": NAN}, TypeError, "rows 0 to 4: graph: the input y is none of x"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    network, data, error, message = CASES[case]
    with pytest.raises(error, match=message):
        network.predict(data, batch=5)


def test_refused_out():
    with pytest.raises(ValueError, match=r"predict: out must be an array int32 \(50, 10\), got \(3,\)"):
        NET.predict(X, out=np.zeros(3))
    with pytest.raises(TypeError, match=r"predict: out must be an array int32 \(50, 10\), got list"):
        NET.predict(X, out=[])
    with pytest.raises(TypeError, match="; got uint8"):
        NET.predict(X, out=np.zeros((50, 10), np.uint8))
    readonly = np.zeros((50, 10), np.int32)
    readonly.flags.writeable = False
    with pytest.raises(TypeError, match="; it cannot be written to"):
        NET.predict(X, out=readonly)
    for rows in (49, 51):
        with pytest.raises(ValueError, match=f"predict: out has {rows} rows, data"):
            NET.predict(iter(X), out=np.zeros((rows, 10), np.int32))
    with pytest.raises(ValueError, match="predict: preprocess= is for image files"):
        NET.predict(X, preprocess=np.negative)
    with pytest.raises(ValueError, match="predict: batch must be at least 1, got 0"):
        NET.predict(X, batch=0)


def test_refused_files(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="predict: there are no images in"):
        NET.predict(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no\.png"):
        NET.predict(tmp_path / "no.png")
    with pytest.raises(FileNotFoundError, match=r"no\.npy"):
        NET.predict(tmp_path / "no.npy")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(ValueError, match=r"x\.npy is not a whole \.npy file"):
        NET.predict(tmp_path / "x.npy")
    picture(tmp_path / "1.png")
    (tmp_path / "2.png").write_text("hello")
    with pytest.raises(ValueError, match=r"predict: .*2\.png is no image that Pillow reads"):
        NET.predict(tmp_path)
    with pytest.raises(ValueError, match=r"predict: the network takes float32 \(n, 2, 3, 4\), which no image files"):
        doubling(shape=(1, 2, 3, 4)).predict(tmp_path / "1.png")
    with pytest.raises(ValueError, match="predict: the network takes no input that it describes"):
        NET.layers.predict(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"predict: .*1\.png: graph: the input x must be"):
        doubling(shape=(1, 4, 6)).predict(tmp_path / "1.png", preprocess=lambda x: x.astype(np.float32))
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"pip install 'quantarray\[images\]'"):
        NET.predict(tmp_path)
