"""Layers in a row written as QONNX files: they load as graphs of equal values."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from layer_rows import rows
from onnx_models import onnx
from qonnx_reference import evaluator

import quantarray as qa
from quantarray.nn import AvgPool2d, Conv2d, Dense, GlobalAvgPool, Map, MaxPool2d, Sequential, Threshold


def values(x):
    """The values of a batch, in the dtype of the file's input, and those of a result."""
    return x.dequantize() if isinstance(x, qa.QuantArray) else x


def assert_same(net, x, path):
    net.save(path, x)
    onnx.checker.check_model(str(path), full_check=True)
    dense = values(x).astype(np.float32) if isinstance(x, qa.QuantArray) else x
    expected, got = values(net(x)), qa.nn.load(path)(dense)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    return dense, expected


@given(rows())
@settings(max_examples=100)
def test_random_layers(tmp_path_factory, drawn):
    net, x = drawn
    path = tmp_path_factory.mktemp("written") / "net.onnx"
    dense, expected = assert_same(net, x, path)
    np.testing.assert_array_equal(evaluator(onnx.load(path)).run(None, {"x": dense})[0], expected)


# laws with constants

RNG = np.random.default_rng(3)
BYTES = RNG.integers(-128, 128, (3, 6, 6, 5)).astype(np.int8)


def cut(**law):
    return qa.Thresholds(np.sort(RNG.integers(-60, 60, 3)), per_channel=False, **law)


SIGNS = qa.encode(RNG.choice([-1, 1], (7, 3, 3, 5)), values=(-1, 1))
SCALED = {
    "a scale": qa.quantize(RNG.normal(size=(7, 3, 3, 5)), qa.XNOR()),
    "a scale each": qa.quantize(RNG.normal(size=(7, 3, 3, 5)), qa.XNOR(), scale_axis=0),
    "none": SIGNS,
}
ROUGH = {"basis": qa.quantize(RNG.normal(size=(7, 3, 3, 5)), qa.LQ(2))}
FIRST = {
    "bytes": [],
    "integers": [Threshold(cut())],
    "a scale": [Threshold(cut(into=qa.uint2, scale=0.3))],
    "a scale and an offset": [Threshold(cut(into=qa.uniform(2), scale=0.5, offset=-1.0))],
}
CONVOLUTIONS = {
    "plain": {},
    "float bias": {"bias": RNG.normal(size=7)},
    "integer bias": {"bias": np.arange(7)},
    "padding": {"padding": 1},
    "requantize": {"requantize": cut()},
    "requantize to a scale": {"requantize": cut(into=qa.uniform(2), scale=0.1, offset=0.1)},
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("weight", SCALED)
@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_integers_times_scales(first, weight, options, tmp_path):
    """Float results of integers times scales are equal to the last bit."""
    net = Sequential([*FIRST[first], Conv2d(SCALED[weight], **CONVOLUTIONS[options])])
    assert_same(net, BYTES, tmp_path / "net.onnx")


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize(
    "pools",
    [
        [AvgPool2d(2)],
        [MaxPool2d(2)],
        [GlobalAvgPool()],
        [AvgPool2d(3, padding=1, requantize=cut())],
        [AvgPool2d(2), Threshold(cut())],
        [MaxPool2d(2), AvgPool2d((2, 3), stride=1)],
    ],
    ids=str,
)
def test_pools_of_scales(first, pools, tmp_path):
    assert_same(Sequential([*FIRST[first], *pools]), BYTES, tmp_path / "net.onnx")


FLAT = qa.encode(RNG.choice([-1, 1], (4, 70)), values=(-1, 1))
ROWS = {
    "dtypes of results": [Dense(qa.ones((3, 70), qa.bipolar), out_dtype=np.float32)],
    "a wide result": [Dense(qa.ones((3, 70), qa.bipolar), out_dtype=np.int64)],
    "nested": [Sequential([Dense(qa.ones((3, 70), qa.bipolar), cut())]), Map(np.square, of=qa.uint2)],
    "thresholds as a layer": [Dense(qa.ones((3, 70), qa.bipolar)), qa.Thresholds([0])],
    "floats of levels": [Map(np.tanh, of=qa.bipolar)],
    "an affine end": [Dense(qa.ones((3, 70), qa.bipolar)), qa.Affine([0.1, 2.0, 3.0], [0.0, -1.0, 1e-30])],
    "no layer": [],
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name, tmp_path):
    assert_same(Sequential(ROWS[name]), FLAT, tmp_path / "net.onnx")


@pytest.mark.parametrize("levels", [(0, 1), (-1, 0, 1), (-2, -1, 0, 1), (-3, -1, 1, 3), (0, 1, 4), range(256)])
def test_inputs_of_any_levels(levels, tmp_path):
    """The file holds the law of the input, so the first product is packed."""
    x = qa.encode(RNG.choice(levels, (4, 70)), values=levels)
    dense, _ = assert_same(Sequential([Dense(qa.ones((3, 70), qa.bipolar))]), x, tmp_path / "net.onnx")
    assert dense.dtype == np.float32 and "linear" in [n.op for n in qa.nn.load(tmp_path / "net.onnx").nodes]


def test_sums_of_other_laws_are_close(tmp_path):
    """The file has their values as float32, of which 45 are multiplied by bytes."""
    net = Sequential([Conv2d(ROUGH["basis"])])
    net.save(tmp_path / "net.onnx", BYTES)
    np.testing.assert_allclose(qa.nn.load(tmp_path / "net.onnx")(BYTES), net(BYTES), rtol=1e-6, atol=1e-4)


# refusals


def test_all_layers_without_a_form_are_named(tmp_path):
    def double(x):
        return x

    net = Sequential([Conv2d(ROUGH["basis"], requantize=cut())])
    with pytest.raises(
        ValueError, match=r"(?s)save: 1 parts .*\n  layer 0, Conv2d.*thresholds of sums of real numbers"
    ):
        net.save(tmp_path / "net.onnx", BYTES)
    net = Sequential([MaxPool2d(2), double, Sequential([double])])
    with pytest.raises(ValueError) as caught:
        net.save(tmp_path / "net.onnx", BYTES)
    lines = str(caught.value).splitlines()
    assert lines[0] == "save: 2 parts of the network have no form in an ONNX file:"
    assert lines[1].startswith("  layer 1: function <function") and lines[2].startswith(
        "  layer 2.0: function <function"
    )
    assert not list(tmp_path.iterdir())


def test_an_input_that_no_layer_takes(tmp_path):
    net = Sequential([Conv2d(SIGNS)])
    for x, message in (
        (BYTES.transpose(0, 3, 1, 2), "it takes 5 channels, got the shape"),
        (BYTES[0], "it takes images NHWC, got the shape"),
        (BYTES[:, :2, :2], "does not fit into the image"),
    ):
        with pytest.raises(ValueError, match=rf"(?s)layer 0, Conv2d.*{message}"):
            net.save(tmp_path / "net.onnx", x)
    with pytest.raises(ValueError, match=r"save: layers in a row do not say what they take.*network.save\(file, x\)"):
        net.save(tmp_path / "net.onnx")
    with pytest.raises(TypeError, match="save: x must be a batch of integers or floats"):
        net.save(tmp_path / "net.onnx", BYTES > 0)
    with pytest.raises(ValueError, match=r"save: x is for a \.onnx file"):
        net.save(tmp_path / "net.qa", BYTES)
    assert not list(tmp_path.iterdir())


def test_without_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"save: an ONNX file needs the package onnx; .*quantarray\[onnx\]"):
        Sequential([Conv2d(SIGNS)]).save(tmp_path / "net.onnx", BYTES)


def test_an_existing_file_stays_when_a_network_is_refused(tmp_path):
    path = tmp_path / "net.onnx"
    Sequential([Conv2d(SIGNS)]).save(path, BYTES)
    before = path.read_bytes()
    with pytest.raises(ValueError):
        Sequential([Conv2d(SIGNS), len]).save(path, BYTES)
    assert path.read_bytes() == before


def test_sums_beyond_float32(tmp_path):
    """255 * 127 * 1001 is odd and larger than 2**24: the file sums in float64, and thresholds see every integer."""
    x = np.full((2, 1001), 255, np.uint8)
    x[1, 0] = 254
    weight = qa.encode(np.full((3, 1001), 127), values=range(-128, 128))
    most = 255 * 127 * 1001
    rows = Sequential([Dense(weight)])
    dense, sums = assert_same(rows, x, tmp_path / "net.onnx")
    assert sums[0, 0] == most > 2**24 and most % 2
    again = qa.nn.load(tmp_path / "net.onnx")
    assert [n.op for n in again.nodes] == ["linear"]
    onnx_sums = evaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"x": dense})[0]
    np.testing.assert_array_equal(onnx_sums, sums)
    for limit in (most - 1, most - 127, most):
        _, codes = assert_same(Sequential([Dense(weight, qa.Thresholds([limit]))]), x, tmp_path / "net.onnx")
        assert codes[:, 0].tolist() == [1 if most > limit else -1, 1 if most - 127 > limit else -1]


@pytest.mark.parametrize("greater", [True, False, [True, False, True]])
@pytest.mark.parametrize("strict", [True, False])
def test_thresholds_that_nothing_passes(greater, strict, tmp_path):
    largest = np.finfo(np.float32).max
    limits = np.array([[-np.inf, 0, np.inf], [-1, 0.5, np.inf], [-np.inf, -2, 1e-45]], np.float32)
    x = np.array([-np.inf, -largest, -2, -1, -1e-45, -0.0, 0.0, 1e-45, 0.5, 1, largest, np.inf], np.float32)
    net, x = Sequential([Threshold(qa.Thresholds(limits, greater=greater, strict=strict))]), np.repeat(x[:, None], 3, 1)
    net.save(tmp_path / "net.onnx", x)
    expected = net(x).dequantize()
    np.testing.assert_array_equal(evaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"x": x})[0], expected)
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.onnx")(x[1:-1]), expected[1:-1])
