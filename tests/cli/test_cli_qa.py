"""The command line on `.qa` files and on images."""

import json
from pathlib import Path

import fake_cupy
import numpy as np
import pytest
from PIL import Image
from plain_files import Builder, small
from test_cli import call, error

import quantarray as qa
from quantarray.nn import images

CLASSES = ["ant", "bee", "cat", "dog"]


def bits(*shape):
    return qa.encode(np.ones(shape, int), values=(-1, 1))


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A network of images of three channels, as an `.npz`, and the `.qa` file that `convert` writes of it."""
    folder = tmp_path_factory.mktemp("qa")
    small().save(folder / "net.npz", classes=CLASSES)
    qa.nn.load_network(folder / "net.npz").save(folder / "net.qa")
    return folder / "net.qa"


def facts(capsys, *args):
    status, out, _ = call(capsys, *args, "--json")
    assert status == 0
    return json.loads(out)


# convert


def test_convert_a_network(net, tmp_path, capsys):
    status, out, _ = call(capsys, "convert", net.with_suffix(".npz"), tmp_path / "model.qa")
    assert status == 0 and "net.npz" in out and "model.qa" in out and "Network('made up'" in out
    assert (tmp_path / "model.qa").read_bytes() == net.read_bytes()
    assert call(capsys, "convert", net, tmp_path / "again.qa")[0] == 0
    assert (tmp_path / "again.qa").read_bytes() == net.read_bytes()


def test_convert_arrays(tmp_path, capsys):
    q = qa.quantize(np.arange(70.0), bits=2)
    qa.save(tmp_path / "q.npz", q)
    assert "QuantArray(shape=(70,)" in call(capsys, "convert", tmp_path / "q.npz", tmp_path / "q.qa")[1]
    assert qa.load(tmp_path / "q.qa").digest() == q.digest()
    qa.save(tmp_path / "d.qa", {"q": q, "a": np.ones(3)})
    assert "2 arrays" in call(capsys, "convert", tmp_path / "d.qa", tmp_path / "e.qa")[1]
    assert (tmp_path / "d.qa").read_bytes() == (tmp_path / "e.qa").read_bytes()


def test_convert_to_qonnx(net, tmp_path, capsys):
    """Files converted from .npz, .qa and .onnx give the network's integers."""
    pytest.importorskip("onnx")
    network = qa.nn.load(net)
    x = network.plain.input
    for source in (net.with_suffix(".npz"), net, tmp_path / "net.onnx"):
        target = tmp_path / f"{source.suffix[1:]}.onnx" if source.suffix == ".onnx" else tmp_path / "net.onnx"
        assert call(capsys, "convert", source, target)[0] == 0
        np.testing.assert_array_equal(qa.nn.load(target)(x), network(x))
    assert call(capsys, "convert", target, tmp_path / "back.qa")[0] == 0
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "back.qa")(x), network(x))


def test_convert_to_qonnx_refuses(tmp_path, capsys):
    qa.save(tmp_path / "q.qa", bits(2, 70))
    assert "holds an array, and a .onnx file a network" in error(capsys, "convert", tmp_path / "q.qa", "net.onnx")
    qa.nn.Sequential([qa.nn.Dense(bits(2, 70))]).save(tmp_path / "row.qa")
    said = error(capsys, "convert", tmp_path / "row.qa", "net.onnx")
    assert "do not say what they take" in said and ".save('net.onnx', x)" in said


def test_convert_refuses(net, tmp_path, capsys):
    assert "must end in .qa or .onnx, got" in error(capsys, "convert", net, tmp_path / "net.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    said = error(capsys, "convert", tmp_path / "other.npz", tmp_path / "net.qa")
    assert "is not a plain network" in said and "is not a whole quantarray file" in said
    (tmp_path / "text.bin").write_text("hello, world")
    assert "text.bin is not a whole quantarray file" in error(capsys, "convert", tmp_path / "text.bin", "net.qa")
    assert "No such file" in error(capsys, "convert", tmp_path / "no.npz", tmp_path / "net.qa")
    assert "--classes is for graphs" in error(capsys, "convert", net, tmp_path / "net.qa", "--classes", "names.txt")
    assert "--classes is for .qa files" in error(capsys, "convert", net, tmp_path / "n.onnx", "--classes", "names.txt")
    qa.save(tmp_path / "d.npz", qa.encode([[1, -1]], values=(-1, 1)))
    assert "--classes is for graphs" in error(capsys, "convert", tmp_path / "d.npz", tmp_path / "a.qa", "--classes=n")
    assert not (tmp_path / "net.qa").exists()


# info


def test_info_on_a_network(net, capsys):
    status, out, _ = call(capsys, "info", net)
    digest = facts(capsys, "info", net)["checksum"]
    assert status == 0 and "conv2d 3x3 3 -> 5" in out and "samples: 6, without labels" in out
    assert out.splitlines()[-1] == f"file: {net.stat().st_size:,} bytes, checksum {digest}"
    said = facts(capsys, "info", net)
    plain = facts(capsys, "info", net.with_suffix(".npz"))
    assert said == plain | {"kind": "plain network", "file bytes": net.stat().st_size, "checksum": digest}


def test_info_on_layers(tmp_path, capsys):
    cut = qa.Thresholds([0, 1, 2])
    layers = [
        qa.nn.Conv2d(bits(5, 3, 3, 64), requantize=cut),
        qa.nn.MaxPool2d(2),
        qa.nn.Dense(bits(2, 20)),
        qa.Affine([1.0], [0.0]),
    ]
    qa.nn.Sequential(layers).save(tmp_path / "net.qa")
    status, out, _ = call(capsys, "info", tmp_path / "net.qa")
    lines = [line.split() for line in out.splitlines()]
    assert status == 0 and ["0", "conv2d", "3x3", "64", "->", "5", "2", "1", "360"] in lines
    assert ["1", "max_pool2d", "2x2", "-", "-", "0"] in lines and ["3", "Affine", "-", "-", "0"] in lines
    assert ["all", "376"] in lines and "checksum" in out
    said = facts(capsys, "info", tmp_path / "net.qa")
    assert said["kind"] == "sequential" and [r["weight_bytes"] for r in said["layers"]] == [360, 0, 16, 0]


def test_info_on_arrays(tmp_path, capsys):
    q = qa.quantize(np.arange(70.0), bits=2)
    qa.save(tmp_path / "q.qa", q)
    assert q.digest() in call(capsys, "info", tmp_path / "q.qa")[1]
    assert facts(capsys, "info", tmp_path / "q.qa")["shape"] == [70]
    qa.save(tmp_path / "d.qa", {"q": q, "a": np.ones((3, 2))})
    out = call(capsys, "info", tmp_path / "d.qa")[1]
    assert ["a", "3", "x", "2", "float64", "48"] in [line.split() for line in out.splitlines()]
    said = facts(capsys, "info", tmp_path / "d.qa")
    assert said["kind"] == "arrays" and [a["name"] for a in said["arrays"]] == ["q", "a"]


def test_info_on_a_damaged_file(net, tmp_path, capsys):
    data = bytearray(net.read_bytes())
    data[-1] ^= 1
    (tmp_path / "net.qa").write_bytes(data)
    assert "info: " in (said := error(capsys, "info", tmp_path / "net.qa")) and "its digest does not match" in said


# run


def test_run_a_qa_file(net, capsys):
    status, out, _ = call(capsys, "run", net, "--check")
    assert status == 0 and "24 of 24 expected integers equal, exact" in out
    assert facts(capsys, "run", net, "--device", "cpu")["agreement"] == {"equal": 24, "total": 24}


def test_run_on_a_gpu(net, tmp_path, capsys):
    """Inputs go to the device where the network is, results come back; a file saved there is the same."""
    picture(tmp_path / "x.png")
    here = call(capsys, "run", net, tmp_path / "x.png")[1]
    with fake_cupy.gpu():
        assert facts(capsys, "run", net, "--device", "cuda")["agreement"] == {"equal": 24, "total": 24}
        assert call(capsys, "run", net, tmp_path / "x.png", "--device", "cuda")[1] == here
        qa.nn.load(net).to_device("cuda").save(tmp_path / "net.qa")
    assert (tmp_path / "net.qa").read_bytes() == net.read_bytes()
    assert "devices are 'cpu' and 'cuda' or 'cuda:N', got 'abacus'" in error(capsys, "run", net, "--device", "abacus")


def picture(path, shape=(6, 5), mode="RGB", seed=0, **options):
    channels = {"RGB": (3,), "L": (), "RGBA": (4,)}[mode]
    x = np.random.default_rng(seed).integers(0, 256, (*shape, *channels)).astype(np.uint8)
    Image.fromarray(x, mode if mode == "RGBA" else None).save(path, **options)
    return x


def test_run_on_images(net, tmp_path, capsys):
    """Pixels of a network of 17 levels are scaled to them; sizes and modes are brought to its own."""
    x = np.stack([picture(tmp_path / f"{i}.png", seed=i) for i in range(3)])
    network = qa.nn.load(net)
    expected = network((x.astype(int) * 17 // 256).astype(np.uint8)).argmax(axis=1)
    files = [tmp_path / f"{i}.png" for i in range(3)]
    status, out, _ = call(capsys, "run", net, *files)
    assert status == 0
    assert out.splitlines() == [f"{f}: class {c}, {CLASSES[c]}" for f, c in zip(files, expected, strict=True)]
    said = facts(capsys, "run", net, *files, "--device", "cpu")
    assert said == [
        {"file": str(f), "class": int(c), "label": CLASSES[c]} for f, c in zip(files, expected, strict=True)
    ]
    assert len(call(capsys, "run", net, *files, "--limit", "2")[1].splitlines()) == 2
    picture(tmp_path / "big.jpg", (60, 50))
    Image.open(tmp_path / "0.png").convert("RGBA").save(tmp_path / "opaque.png")
    out = call(capsys, "run", net, tmp_path / "big.jpg", tmp_path / "opaque.png")[1]
    assert out.splitlines()[1] == f"{tmp_path / 'opaque.png'}: class {expected[0]}, {CLASSES[expected[0]]}"
    picture(tmp_path / "alpha.png", mode="RGBA")
    assert "alpha.png is transparent in places" in error(capsys, "run", net, tmp_path / "alpha.png")


def test_run_on_grey_images_without_class_names(tmp_path, capsys):
    path = Builder(0, (36,), table=range(256)).dense(3).save(tmp_path / "net.npz")
    x = picture(tmp_path / "x.png", (6, 6), "L")
    c = int(qa.nn.load(path)(x.reshape(1, 36)).argmax())
    assert call(capsys, "run", path, tmp_path / "x.png")[1] == f"{tmp_path / 'x.png'}: class {c}\n"


def test_turned_photographs(tmp_path):
    """An image that is rotated according to its file is turned upright."""
    turned = Image.Exif()
    turned[0x0112] = 6
    x = picture(tmp_path / "x.png", (6, 5), "L", exif=turned)
    np.testing.assert_array_equal(
        images.read([tmp_path / "x.png"], images.of_shape((5, 6, 1), 256))[0, :, :, 0], np.rot90(x, -1)
    )


def test_run_on_images_refuses(net, tmp_path, capsys, monkeypatch):
    picture(tmp_path / "x.png")
    for option in ("--check", "--input=x.npy", "--output=y.npy", "--labels=y.npy"):
        said = error(capsys, "run", net, tmp_path / "x.png", option)
        assert "image files are classified without" in said or "takes no --input" in said
    (tmp_path / "text.png").write_text("hello")
    assert "text.png is no image that Pillow reads: cannot identify" in error(capsys, "run", net, tmp_path / "text.png")
    assert "No such file" in error(capsys, "run", net, tmp_path / "no.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "x.png").read_bytes()[:80])
    assert "half.png is no image" in error(capsys, "run", net, tmp_path / "half.png")
    many = Builder(0, (4, 4, 5)).dense(3).save(tmp_path / "many.npz")
    assert "takes ('N', 4, 4, 5), which no image files have" in error(capsys, "run", many, tmp_path / "x.png")
    codes = Builder(0, (4, 4, 3)).conv((5, 3, 3)).save(tmp_path / "codes.npz")
    assert "returns no class scores" in error(capsys, "run", codes, tmp_path / "x.png")
    qa.nn.Sequential([qa.nn.MaxPool2d(2)]).save(tmp_path / "layers.qa")
    for command in ("run", "demo"):
        assert "without a description of their inputs" in error(capsys, command, tmp_path / "layers.qa")
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    assert "pip install 'quantarray[images]'" in error(capsys, "run", net, tmp_path / "x.png")


# graphs


@pytest.fixture
def graph(tmp_path):
    """A graph of grey images [n 1 6 6] to scores [n 4], as a `.qa` file, and three images in a folder."""
    rng = np.random.default_rng(0)
    x, y = qa.nn.Value("x", (1, 1, 6, 6), "float32"), qa.nn.Value("y", (1, 4), "int32")
    nodes = [
        qa.nn.Node("Reshape", ("x", "shape"), ("rows",)),
        qa.nn.Node("threshold", ("rows", "sign"), ("q",), {"axis": 1}),
        qa.nn.Node("linear", ("q", "w"), ("y",)),
    ]
    constants = {
        "shape": np.array([-1, 36]),
        "sign": qa.Thresholds([0.5], into=qa.bipolar),
        "w": qa.encode(rng.choice([-1, 1], (4, 36)), values=(-1, 1)),
    }
    qa.nn.Graph([x], [y], nodes, constants, "faces").save(tmp_path / "graph.qa")
    (tmp_path / "images").mkdir()
    for i in range(3):
        picture(tmp_path / "images" / f"{i}.png", (6, 6), "L", i)
    return tmp_path / "graph.qa"


def test_run_a_graph_on_a_folder(graph, tmp_path, capsys):
    folder = tmp_path / "images"
    scores = qa.nn.load(graph).predict(folder).values
    best = scores.argmax(axis=1)
    status, out, _ = call(capsys, "run", graph, folder, "--device", "cpu")
    assert status == 0 and out.splitlines() == [f"{folder / f'{i}.png'}: class {best[i]}" for i in range(3)]
    (tmp_path / "names.txt").write_text("\n".join(CLASSES) + "\n")
    said = facts(capsys, "run", graph, folder, "--classes", tmp_path / "names.txt", "--top", "2")
    assert [s["label"] for s in said] == [CLASSES[c] for c in best]
    order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    assert [[t["class"] for t in s["top"]] for s in said] == order.tolist()
    assert said[0]["top"][1]["score"] == scores[0, order[0, 1]]
    line = call(capsys, "run", graph, folder / "1.png", "--classes", tmp_path / "names.txt", "--top", "2")[1]
    first, second = (f"class {c}, {CLASSES[c]} ({scores[1, c]})" for c in order[1])
    assert line == f"{folder / '1.png'}: {first}; {second}\n"


def test_class_names_in_the_file(graph, tmp_path, capsys):
    (tmp_path / "names.txt").write_text("\n".join(CLASSES))
    assert call(capsys, "convert", graph, tmp_path / "named.qa", "--classes", tmp_path / "names.txt")[0] == 0
    image = tmp_path / "images" / "0.png"
    c = int(qa.nn.load(graph).predict(image).values.argmax())
    assert call(capsys, "run", tmp_path / "named.qa", image)[1] == f"{image}: class {c}, {CLASSES[c]}\n"
    assert "classes: ant, bee, cat, dog" in call(capsys, "info", tmp_path / "named.qa")[1]
    assert facts(capsys, "info", tmp_path / "named.qa")["classes"] == CLASSES
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    for names, message in (("bytes.txt", "must be a text file in UTF-8"), ("none.txt", "No such file")):
        said = error(capsys, "convert", graph, tmp_path / "no.qa", "--classes", tmp_path / names)
        assert message in said and not (tmp_path / "no.qa").exists()


def test_run_a_graph_on_an_array(graph, tmp_path, capsys):
    x = np.random.default_rng(0).random((30, 1, 6, 6), np.float32)
    scores = qa.nn.load(graph)(x)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", scores.argmax(axis=1))
    options = ("--input", tmp_path / "x.npy", "--labels", tmp_path / "labels.npy")
    said = facts(capsys, "run", graph, *options, "--output", tmp_path / "y.npy")
    assert said["accuracy"]["right"] == 30 and said["predictions"] == scores[:20].argmax(axis=1).tolist()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), scores)
    out = call(capsys, "run", graph, *options, "--limit", "7")[1]
    assert "Graph(x: float32 (n, 1, 6, 6)" in out and "accuracy:  7 of 7 right" in out


def test_run_a_graph_refuses(graph, tmp_path, capsys):
    image = tmp_path / "images" / "0.png"
    assert "stores no samples; pass image files, or --input" in error(capsys, "run", graph)
    assert "stores no samples" in error(capsys, "demo", graph)
    assert "to_device: arrays on a GPU need" in error(capsys, "run", graph, image, "--device", "cuda")
    assert "--top is for image files" in error(capsys, "run", graph, "--top", "2")
    (tmp_path / "names.txt").write_text("ant\nbee\n")
    said = error(capsys, "run", graph, image, "--classes", tmp_path / "names.txt")
    assert "--classes must have a line for each of 4 classes" in said and "has 2" in said
    np.save(tmp_path / "x.npy", np.zeros((3, 6, 6, 1), np.float32))
    said = error(capsys, "run", graph, "--input", tmp_path / "x.npy")
    assert "the input x must be float32 (n, 1, 6, 6)" in said and "x.transpose(0, 3, 1, 2)" in said
    np.save(tmp_path / "x.npy", np.zeros((0, 1, 6, 6), np.float32))
    assert "there are no inputs in" in error(capsys, "run", graph, "--input", tmp_path / "x.npy")


def test_info_of_a_graph(graph, capsys):
    said = facts(capsys, "info", graph)
    assert said["network"] == "faces" and [n["op"] for n in said["nodes"]] == ["Reshape", "threshold", "linear"]
    assert "144 weights in 32 bytes" in call(capsys, "info", graph)[1]


# demo


def test_demo_runs_the_packaged_file(tmp_path, capsys):
    """`save` of the plain network beside it writes the packaged `.qa` file."""
    data = Path(qa.__path__[0]) / "data"
    qa.nn.load_network(data / "digits.npz").save(tmp_path / "digits.qa")
    assert (tmp_path / "digits.qa").read_bytes() == (data / "digits.qa").read_bytes()
    out = call(capsys, "demo", "--limit", "50", "--out", tmp_path / "a.png")[1]
    assert out.startswith("50 held-out images for digits-w1a1") and "integer scores equal the training" in out


def test_demo_of_a_file(net, tmp_path, capsys):
    digits = qa.nn.load_network(qa.__path__[0] + "/data/digits.npz")
    digits.save(tmp_path / "digits.qa")
    out = call(capsys, "demo", tmp_path / "digits.qa", "--limit", "50", "--out", tmp_path / "a.png")[1]
    assert out.startswith("50 held-out images for digits-w1a1") and "integer scores equal the training" in out
    assert (tmp_path / "a.png").exists()
    assert "must hold images, their labels" in error(capsys, "demo", net)
