"""The Fashion-MNIST example on images made here: it goes on from a checkpoint, and its packed networks are equal."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import pack_fashion
import train_fashion

PLAIN = ["--epochs", "2", "--batch", "32", "--width", "8"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write ten patterns with noise as a data set of 28 x 28 bytes."""
    rng = np.random.default_rng(0)
    patterns, arrays = rng.integers(0, 200, (10, 28, 28)), {}
    for part, count in (("train", 160), ("test", 100)):
        labels = np.arange(count) % 10
        noise = rng.integers(0, 56, (count, 28, 28))
        arrays |= {f"{part}_images": np.uint8(patterns[labels] + noise), f"{part}_labels": np.uint8(labels)}
    path = tmp_path_factory.mktemp("data") / "patterns.npz"
    np.savez(path, **arrays)
    return path


def train(data, out, *more):
    """Run the example; return its results without times, and its weights."""
    results = train_fashion.main(["--data", str(data), "--out", str(out), "--name", "run", *PLAIN, *more])
    history = [{k: v for k, v in row.items() if k not in ("step_ms", "seconds")} for row in results["history"]]
    return history, torch.load(out / "run.pt", weights_only=True)["model"]


@pytest.mark.parametrize("more", [("--scheme", "LQ"), ("--saved-bits", "2")], ids=["LQ", "compressed activations"])
def test_a_run_that_goes_on_is_equal_to_one_that_does_not_stop(data, tmp_path, more):
    whole, weights = train(data, tmp_path / "whole", *more)
    train(data, tmp_path / "parts", *more, "--stop", "2")
    train(data, tmp_path / "parts", *more, "--stop", "7")
    parts, others = train(data, tmp_path / "parts", *more)
    assert len(whole) == 2 and parts == whole
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_another_run_does_not_go_on(data, tmp_path):
    train(data, tmp_path, "--stop", "1")
    with pytest.raises(SystemExit, match="another run"):
        train(data, tmp_path, "--seed", "1")


@pytest.mark.parametrize("scheme", [name for name in train_fashion.SCHEMES if name != "float"])
def test_packed_networks_are_equal(data, tmp_path, scheme):
    train(data, tmp_path, "--scheme", scheme)
    pack_fashion.main([str(tmp_path / "run.pt"), "--data", str(data)])
    results = json.loads((tmp_path / "run.packed.json").read_text())
    assert results["images"] == 100 and results["codes"] > 100 * 28 * 28
    # How many are at a boundary depends on the trained weights, which differ between CPUs: 0 to 3 of 270,400 seen
    assert results["codes_differ"] == results["at_boundary"] <= 10
    assert results["answers_differ"] == 0 and results["scores_apart"] < 1e-4


def test_a_float_network_is_converted(data, tmp_path):
    train(data, tmp_path / "float")
    options = ["--scheme", "W1A2", "--start", str(tmp_path / "float" / "run.pt"), "--out", str(tmp_path)]
    before = train_fashion.main(["--data", str(data), "--name", "converted", *PLAIN, *options, "--epochs", "0"])
    after = train_fashion.main(["--data", str(data), "--name", "tuned", *PLAIN, *options])
    assert before["before"] == after["before"] and len(after["history"]) == 2
