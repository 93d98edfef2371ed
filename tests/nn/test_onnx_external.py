"""Models whose constants are in other files of their folder."""

import numpy as np
import onnx
import pytest
from onnx_models import model, node
from paths import TESTS

import quantarray as qa

TFC = TESTS / "data" / "qonnx" / "TFC_1W1A.onnx"


@pytest.fixture
def apart(tmp_path):
    """The path of a model in a folder of its own, with all of its tensors, of attributes too, in one other file."""
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        onnx.load(TFC), folder / "x.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0,
        convert_attribute=True,
    )  # fmt: skip
    return folder / "x.onnx"


def changed(path, change):
    """Change where a tensor's data is, in the file of a model."""
    proto = onnx.load(path, load_external_data=False)
    tensor = next(t for t in proto.graph.initializer if t.external_data)
    where = {e.key: e.value for e in tensor.external_data} | change
    del tensor.external_data[:]
    for key, value in where.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(proto.SerializeToString())


def test_tensors_in_another_file(apart):
    x = np.random.default_rng(0).random((3, 1, 28, 28), np.float32)
    assert apart.stat().st_size < TFC.stat().st_size / 4
    assert np.array_equal(qa.nn.load(apart)(x), qa.nn.load(TFC)(x))


@pytest.mark.parametrize("element", [1, 2, 3, 7, 10, 21, 22])
def test_elements_of_any_size(tmp_path, element):
    values = np.arange(-8 if element in (3, 22) else 0, 7)
    tensor = onnx.helper.make_tensor("c", element, values.shape, values)
    nodes = [node("Cast", ["c"], ["w"], to=1), node("Add", ["x", "w"], ["y"])]
    net = model(nodes, [("x", ("n", len(values)))], [("y", ("n", len(values)))], opset=21)
    net.graph.initializer.append(tensor)
    onnx.save(net, tmp_path / "x.onnx", save_as_external_data=True, location="w", size_threshold=0)
    x = np.zeros((1, *values.shape), np.float32)
    assert np.array_equal(qa.nn.load(tmp_path / "x.onnx")(x), values[None].astype(np.float32))


def test_files_outside_the_folder_are_refused(apart):
    outside = apart.parent.parent / "outside.bin"
    outside.write_bytes((apart.parent / "weights.bin").read_bytes())
    (apart.parent / "link.bin").symlink_to(outside)
    for name in ("../outside.bin", str(outside), "link.bin", "", ".", "absent.bin"):
        changed(apart, {"location": name})
        with pytest.raises(ValueError, match=r"constant '.*': its data is in '.*, which must be a file in the"):
            qa.nn.load(apart)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"offset": str(2**62)}, r"'weights\.bin' ends before byte"),
        ({"length": str(2**62)}, r"bytes from .* of 'weights\.bin' for a tensor of"),
        ({"offset": "-1"}, "bytes from -1 of"),
        ({"offset": "one"}, r"its data has no place in 'weights\.bin'"),
    ],
)
def test_places_that_the_file_does_not_have(apart, change, said):
    changed(apart, change)
    with pytest.raises(ValueError, match=said):
        qa.nn.load(apart)


def test_a_model_without_a_path(apart):
    with pytest.raises(ValueError, match=r"its data is in the file 'weights\.bin'; pass the path of the model"):
        qa.nn.load(apart.read_bytes())
