"""Resize by interpolation: integers by exact weights, other values on floats, as ONNX's reference computes it."""

import numpy as np
import pytest
from onnx_models import model, node, onnx
from qonnx_reference import evaluator

import quantarray as qa

LAW = [("s", np.float32(0.5)), ("none", np.float32(0)), ("bits", np.float32(4))]
MODES = ("half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel")


def quant(x, y):
    return node("Quant", [x, "s", "none", "bits"], [y], signed=1, narrow=0, rounding_mode="ROUND")


def resized(first, mode, lengths, image, **attributes):
    """Return a model: codes or floats of x, resized, and quantised; and the values between."""
    kind = "scales" if isinstance(lengths, list) else "sizes"
    sizes = np.array([1, 1, *lengths], np.float32) if kind == "scales" else np.array([1, 2, *lengths])
    operands = ["q", "", kind] if kind == "scales" else ["q", "", "", kind]
    nodes = [first, node("Resize", operands, ["r"], mode=mode, **attributes), quant("r", "y")]
    return model(nodes, [("x", ("n", 2, *image))], [("y", None), ("r", None)], [*LAW, (kind, sizes)])


def by_sample(m, x):
    """Return what the reference gives of each sample, whose number of samples `sizes` has."""
    parts = [evaluator(m).run(None, {"x": x[i : i + 1]}) for i in range(len(x))]
    return [np.concatenate(p) for p in zip(*parts, strict=True)]


def drawn(image, seed=0):
    return (np.random.default_rng(seed).integers(-16, 17, (3, 2, *image)) / 8).astype(np.float32)


def compared(m, x, tmp_path, slack):
    graph = qa.nn.load(m)
    graph.save(tmp_path / "net.onnx")
    expected = by_sample(m, x)
    for run in (graph, graph.prepared(), qa.nn.load(tmp_path / "net.onnx")):
        np.testing.assert_allclose(run(x)["r"], expected[1], rtol=0, atol=slack)
        np.testing.assert_array_equal(run(x)["y"], expected[0])
    again = by_sample(onnx.load(tmp_path / "net.onnx"), x)
    np.testing.assert_allclose(again[1], expected[1], rtol=0, atol=slack)
    return graph


@pytest.mark.parametrize("lengths", [[2, 2], [4, 1], [1, 8], [2, 4]])
@pytest.mark.parametrize("image", [(5, 6), (1, 3), (4, 4)])
@pytest.mark.parametrize("mode", MODES)
def test_integers_stay_exact(mode, image, lengths, tmp_path):
    m = resized(quant("x", "q"), "linear", lengths, image, coordinate_transformation_mode=mode)
    thirds = mode == "align_corners"  # whose weights are no powers of two
    graph = compared(m, drawn(image), tmp_path, 1e-6 if thirds else 0.0)
    ops = [n.op for n in graph.nodes]
    assert "interpolate" in ops and "Resize" not in ops and ops.count("threshold") == 2, ops


@pytest.mark.parametrize("lengths", [[2, 2], [0.5, 3], (7, 9), (2, 3), (1, 1)])
@pytest.mark.parametrize("floats", [True, False])
@pytest.mark.parametrize("mode", ["half_pixel", "half_pixel_symmetric", "asymmetric"])
@pytest.mark.parametrize("kind", ["linear", "cubic", "cubic of others", "cubic without outside"])
def test_any_lengths(kind, mode, floats, lengths, tmp_path):
    how = {"cubic of others": {"cubic_coeff_a": -0.5}, "cubic without outside": {"exclude_outside": 1}}.get(kind, {})
    first, image = node("Mul", ["x", "s"], ["q"]) if floats else quant("x", "q"), (5, 4)
    m = resized(first, kind.split()[0], lengths, image, coordinate_transformation_mode=mode, **how)
    graph = qa.nn.load(m)
    graph.save(tmp_path / "net.onnx")
    x = drawn(image, 1)
    expected = by_sample(m, x)[1]
    for run in (graph, qa.nn.load(tmp_path / "net.onnx")):
        np.testing.assert_allclose(run(x)["r"], expected, rtol=0, atol=4e-6)


def test_parts_of_an_image(tmp_path):
    """Crop a part of the image, with a value outside of it."""
    roi = np.float32([0, 0, 0.3, 0.4, 1, 1, 1.2, 0.9])
    a = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0, "mode": "linear"}
    m = model([quant("x", "q"), node("Resize", ["q", "roi", "", "sizes"], ["y"], **a)], [("x", (3, 2, 5, 6))],
              [("y", None)], [*LAW, ("roi", roi), ("sizes", np.array([3, 2, 4, 7]))])  # fmt: skip
    x = drawn((5, 6))
    np.testing.assert_allclose(qa.nn.load(m)(x), evaluator(m).run(None, {"x": x})[0], rtol=0, atol=1e-6)


def test_antialias_is_refused():
    m = resized(quant("x", "q"), "linear", (2, 2), (4, 4), antialias=1)
    with pytest.raises(ValueError, match=r"antialias averages more elements .* \(0 is taken\)"):
        qa.nn.load(m)
