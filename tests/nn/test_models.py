"""Models of `qa.nn.models` equal an oracle that computes their steps on values, in every output."""

import importlib

import numpy as np
import pytest
from support.model_oracle import Oracle

import quantarray as qa

models = qa.nn.models
SMALL = {"size": 32, "width": 16, "classes": 10}
CASES = [
    ("lfc", {}),
    ("lfc", {"bits": (2, 2), "width": 96, "inputs": 100, "classes": 7}),
    ("lfc", {"bits": (1, 3), "width": 64}),
    ("cnv", {}),
    ("cnv", {"bits": (1, 2), "size": 34}),
    ("cnv", {"bits": (2, 2)}),
    ("xnor_alexnet", {"size": 67, "classes": 10}),
    ("bireal_resnet18", SMALL),
    ("bireal_resnet18", {**SMALL, "size": 47, "int8": False}),
    ("bireal_resnet34", SMALL),
    ("dorefa_resnet18", {**SMALL, "bits": 1}),
    ("dorefa_resnet18", {**SMALL, "bits": 2}),
    ("dorefa_resnet18", {**SMALL, "bits": 4, "size": 45}),
    ("dorefa_mobilenet_v2", {"size": 32, "classes": 10}),
    ("dorefa_mobilenet_v2", {"size": 33, "classes": 10, "bits": 3}),
    ("quicknet", {"size": 32, "classes": 10}),
    ("quicknet", {"size": 64, "classes": 10}),
    ("tinier_yolo", {"size": 64}),
    ("tinier_yolo", {"size": 96, "classes": 3, "anchors": 2, "bits": (2, 4)}),
    ("tinier_yolo", {"size": 64, "int8": False, "bits": (1, 2)}),
]


def expected(monkeypatch, name, images, **arguments):
    """Run a model with the oracle in the place of `Recipe`."""
    build = getattr(models, name)
    state = models.parameters(build, **arguments)
    module = importlib.import_module(build.__module__)
    with monkeypatch.context() as patch:
        patch.setattr(module, "Recipe", Oracle)
        patch.setattr(Oracle, "images", images)
        return build(state, **arguments)


@pytest.mark.parametrize(("name", "arguments"), CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_equals_the_oracle(monkeypatch, name, arguments, seed):
    arguments = {**arguments, "seed": seed}
    net = getattr(models, name)(**arguments)
    shape = net.inputs[0].shape[1:]
    images = np.random.default_rng(seed).integers(0, 256, (2, *shape), dtype=np.uint8)
    wanted = expected(monkeypatch, name, images, **arguments)
    got = np.concatenate([net(image[None]) for image in images])
    assert len(np.unique(wanted)) > 2, "the model gives hardly anything else than one value"
    if any(node.op in ("Conv", "GlobalAveragePool", "AveragePool") for node in net.nodes):
        # NumPy sums floats in an order that depends on the batch: images go one by one, as through the oracle
        wanted = np.concatenate([expected(monkeypatch, name, image[None], **arguments) for image in images])
    assert np.array_equal(got, wanted)


def test_models_of_one_seed_are_equal_and_those_of_a_state_have_it():
    state = models.parameters(models.cnv, seed=3)
    images = np.random.default_rng(0).integers(0, 256, (1, 3, 32, 32), dtype=np.uint8)
    assert np.array_equal(models.cnv(state)(images), models.cnv(seed=3)(images))
    assert not np.array_equal(models.cnv(seed=4)(images), models.cnv(seed=3)(images))


def test_hidden_convolutions_are_packed():
    table = str(models.dorefa_resnet18(size=32, width=16).summary())
    numpy_rows = [line for line in table.splitlines() if "NumPy" in line and line.startswith(("Conv", "MatMul"))]
    assert len(numpy_rows) == 1 and "fc" in numpy_rows[0]


@pytest.mark.parametrize("name", ["bireal_resnet18", "quicknet", "dorefa_mobilenet_v2"])
def test_a_model_in_a_file_is_the_same(tmp_path, name):
    net = getattr(models, name)(size=32, classes=10)
    net.save(tmp_path / "net.qa")
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    assert np.array_equal(qa.nn.load(tmp_path / "net.qa")(images), net(images))


def test_a_state_that_does_not_fit_is_told():
    state = models.parameters(models.lfc)
    with pytest.raises(ValueError, match=r"it lacks: fc1.weight.*unknown: fc0.weight.*parameters\(lfc\)"):
        models.lfc({**{k: v for k, v in state.items() if k != "fc1.weight"}, "fc0.weight": state["fc1.weight"]})
    with pytest.raises(ValueError, match=r"fc2.weight must be \(1024, 1024\), got \(3, 3\)"):
        models.lfc({**state, "fc2.weight": np.zeros((3, 3))})
    with pytest.raises(ValueError, match=r"fc2\.weight has a NaN"):
        models.lfc({**state, "fc2.weight": np.full((1024, 1024), np.nan)})
    with pytest.raises(ValueError, match="negative variance"):
        models.lfc({**state, "bn1.running_var": -np.ones(1024)})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: models.lfc(bits=(0, 1)), "bits must be two numbers from 1 to 4"),
        (lambda: models.cnv(size=20), "size must be at least 30"),
        (lambda: models.dorefa_resnet18(bits=9), "bits must be from 1 to 7"),
        (lambda: models.dorefa_mobilenet_v2(bits=1), "bits must be from 2 to 7"),
        (lambda: models.xnor_alexnet(size=20), "size must be at least 67"),
        (lambda: models.bireal_resnet18(size=8), "size"),
        (lambda: models.tinier_yolo(size=100), "size must be a multiple of 32"),
        (lambda: models.quicknet(size=33), "size must be a multiple of 32, or up to 3 less"),
        (lambda: models.tinier_yolo(bits=(1, 8)), "bits must be two numbers"),
    ],
)
def test_wrong_arguments_are_told(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_number_is_no_state():
    with pytest.raises(TypeError, match=r"quicknet: state must be a dict .* got int; .* by name, such as classes=10"):
        models.quicknet(10)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.linspace(0, 1, 3072, dtype=np.float32), r"got float32 of values from 0 to 1; \(images \* 255\).round\(\)"),
        (np.linspace(0, 255, 3072), r"got float64; images.round\(\).astype\(np.uint8\)"),
        (np.linspace(-2, 2, 3072, dtype=np.float32), "values from -2 to 2, which are no uint8; pass pixels"),
        (np.arange(3072) % 256, r"got int64; images.astype\(np.uint8\)"),
        (np.arange(3072) % 256 - 9, "values from -9 to 246, which are no uint8"),
    ],
)
def test_images_of_another_dtype(values, told):
    """A fix that is obeyed keeps the values: float images from 0 to 1 as bytes would be black."""
    net, x = models.cnv(), values.reshape(1, 3, 32, 32)
    for call in (net, net.prepared()):
        with pytest.raises(TypeError, match=f"the input images must be uint8 .* {told}"):
            call(x)
