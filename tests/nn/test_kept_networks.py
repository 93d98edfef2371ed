"""Networks that earlier versions saved (`tools/keep_networks.py`) are read, and give what they gave."""

import numpy as np
import pytest
from paths import ROOT

import quantarray as qa
from tools.keep_networks import example, read, results

FILES = sorted(p for p in (ROOT / "tests" / "data" / "networks").glob("*/*.*") if ".io." not in p.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_results_of_files_of_every_version(path):
    with np.load(example(path)) as stored:
        expected = {name: stored[name] for name in stored if not name.startswith("x.")}
        got = results(read(path), [stored[name] for name in stored if name.startswith("x.")])
    assert got.keys() == expected.keys()
    for name, y in got.items():
        assert y.dtype == expected[name].dtype
        np.testing.assert_array_equal(y, expected[name])


def test_every_layer_class_is_among_them():
    saved = set()
    for path in FILES:
        if path.suffix == ".qa":
            saved |= {type(layer).__name__ for layer in getattr(read(path), "layers", ())}
    layers = {name for name in qa.nn.__all__ if hasattr(getattr(qa.nn, name), "takes")}
    assert layers - saved == {"Map"}  # whose function no file holds
