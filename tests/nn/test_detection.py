"""Boxes equal plain loops; corners come back to the photograph; the trained detector has its file's thresholds."""

import importlib.util
import math
import sys

import numpy as np
import pytest
from paths import ROOT
from trained_networks import network_file

import quantarray as qa

detection = qa.nn.detection


def example():
    spec = importlib.util.spec_from_file_location("detect", ROOT / "examples" / "detect.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(grid, anchors, threshold, overlap):
    """[(corners, score, class)] of one image by loops, best first."""
    each, (height, width) = len(grid) // len(anchors), grid.shape[1:]
    seen = []
    for a, (aw, ah) in enumerate(anchors):
        for i in range(height):
            for j in range(width):
                x, y, w, h, o, *scores = (float(v) for v in grid[a * each : (a + 1) * each, i, j])
                most = max(scores)
                total = sum(math.exp(s - most) for s in scores)
                score = 1 / total / (1 + math.exp(-o))
                if score <= threshold:
                    continue
                cx, cy = (j + 1 / (1 + math.exp(-x))) / width, (i + 1 / (1 + math.exp(-y))) / height
                sx, sy = aw * math.exp(w) / width, ah * math.exp(h) / height
                seen.append(((cx - sx / 2, cy - sy / 2, cx + sx / 2, cy + sy / 2), score, scores.index(most)))
    seen.sort(key=lambda one: -one[1])
    chosen = []
    for box in seen:
        if all(box[2] != other[2] or union_share(box[0], other[0]) <= overlap for other in chosen):
            chosen.append(box)
    return chosen


def union_share(a, b):
    shared = math.prod(max(0, min(a[k + 2], b[k + 2]) - max(a[k], b[k])) for k in (0, 1))
    area = [(one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)]
    return shared / (sum(area) - shared)


@pytest.mark.parametrize(("classes", "cells", "overlap"), [(20, (13, 13), 0.45), (1, (3, 5), 0.2), (3, (1, 1), 0.9)])
def test_boxes_equal_plain_loops(classes, cells, overlap):
    rng = np.random.default_rng(classes)
    anchors = detection.ANCHORS[:3]
    grid = rng.normal(0, 2, (2, 3 * (5 + classes), *cells)).astype(np.float32)
    got = detection.boxes(grid, anchors=anchors, threshold=0.2, overlap=overlap)
    dropped = 0
    for image, seen in zip(grid, got, strict=True):
        wanted = plain(image, anchors, 0.2, overlap)
        dropped += len(plain(image, anchors, 0.2, 1.0)) - len(wanted)
        assert [c for _, _, c in wanted] == seen.classes.tolist()
        np.testing.assert_allclose(seen.scores, [s for _, s, _ in wanted], rtol=1e-12)
        corners = np.reshape([c for c, _, _ in wanted], (-1, 4))
        np.testing.assert_allclose(seen.corners, np.clip(corners, 0, 1), atol=1e-12)
    assert dropped or cells == (1, 1), "no box overlaps another"


@pytest.mark.parametrize("shape", [(60, 90, 3), (90, 60, 3), (64, 64, 3)])
def test_corners_are_pixels_of_the_photograph(shape):
    """A white block of a photograph is in its letterbox where `boxes` maps it from."""
    photo = np.zeros(shape, np.uint8)
    photo[20:40, 30:50] = 255
    boxed = detection.letterbox(photo, 180)[0, 0].astype(int)
    rows, columns = np.nonzero(boxed > 200)
    inside = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 180
    centre, sides = (inside[:2] + inside[2:]) / 2, inside[2:] - inside[:2]
    cell = np.floor(centre * 7).astype(int)
    grid = np.full((1, 6, 7, 7), -20.0)
    share = centre * 7 - cell
    grid[0, :, cell[1], cell[0]] = [*np.log(share / (1 - share)), *np.log(sides * 7), 20, 0]
    (seen,) = detection.boxes(grid, anchors=[(1, 1)], photo=shape)
    np.testing.assert_allclose(seen.corners, [[30, 20, 50, 40]], atol=0.6)


def test_letterboxes_have_grey_borders_and_the_photograph():
    rng = np.random.default_rng(0)
    photo = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    boxed = detection.letterbox(photo, 6)
    assert boxed.shape == (1, 3, 6, 6) and (boxed[0, :, [0, 5]] == 127).all()
    assert np.array_equal(boxed[0, :, 1:5].transpose(1, 2, 0), photo)
    assert detection.letterbox(np.full((1, 1, 3), 7, np.uint8), 5).tolist() == np.full((1, 3, 5, 5), 7).tolist()


def test_extreme_outputs_are_clipped():
    grid = np.full((1, 6, 1, 1), 1e4, np.float32)
    (seen,) = detection.boxes(grid, anchors=[(1, 1)])
    assert seen.corners.tolist() == [[0, 0, 1, 1]] and seen.scores.tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: detection.boxes(np.zeros((1, 124, 13, 13))),
            ValueError,
            r"grid must be \[n 5\*\(5 \+ classes\) h w\]",
        ),
        (lambda: detection.boxes(np.zeros((125, 13, 13))), ValueError, "grid must be"),
        (lambda: detection.boxes(np.full((1, 125, 2, 2), np.nan)), ValueError, "has a NaN"),
        (lambda: detection.letterbox(np.zeros((4, 4, 3))), TypeError, "photo must be bytes"),
        (lambda: detection.letterbox(np.zeros((4, 4), np.uint8)), ValueError, r"must have shape \[h w 3\]"),
    ],
)
def test_wrong_arguments_are_told(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_picture_needs_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (seen,) = detection.boxes(np.zeros((1, 125, 2, 2)))
    with pytest.raises(ImportError, match=r"quantarray\[plot\]"):
        detection.draw(tmp_path / "x.png", np.zeros((4, 4, 3), np.uint8), seen)


@pytest.fixture(scope="module")
def trained():
    path = network_file("tinier-yolo-w1a3")
    return path, example().state_of(path)


def test_batch_norms_give_the_trained_thresholds(trained):
    path, state = trained
    net = qa.nn.models.tinier_yolo(state, int8=False)
    cuts = [a for a in net.constants.values() if isinstance(a, qa.Thresholds)]
    weights = [a for a in net.constants.values() if isinstance(a, qa.QuantArray)]
    with np.load(path) as file:
        for i in range(7):
            assert sum(np.array_equal(cut.values, file[f"t{i}"]) for cut in cuts) == 1
            signs = file[f"w{i}"].transpose(0, 3, 2, 1)  # rows and columns of an upright image
            assert any(np.array_equal(w.dequantize(), signs) for w in weights if w.shape == signs.shape), i


def test_the_trained_network_sees_a_cat_and_a_person(trained, tmp_path):
    data = pytest.importorskip("skimage.data")
    net = qa.nn.models.tinier_yolo(trained[1], int8=False)
    for photo, name, inside in (
        (data.chelsea(), "cat", (180, 150)),
        (data.astronaut(), "person", (220, 300)),
    ):
        (seen,) = detection.boxes(net(detection.letterbox(photo)), photo=photo.shape)
        assert [detection.VOC[c] for c in seen.classes] == [name]
        left, top, right, bottom = seen.corners[0]
        assert left < inside[0] < right and top < inside[1] < bottom
        detection.draw(tmp_path / f"{name}.png", photo, seen)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
