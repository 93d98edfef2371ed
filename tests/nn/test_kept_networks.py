"""Networks that earlier versions saved (`tools/keep_networks.py`) are read, and give what they gave."""

import numpy as np
import pytest
from paths import ROOT

import quantarray as qa

FILES = sorted(p for p in (ROOT / "tests" / "data" / "networks").glob("*/*.*") if ".io." not in p.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_results_of_files_of_every_version(path):
    network = qa.nn.load_network(path) if path.suffix == ".npz" else qa.nn.load(path)
    with np.load(path.parent / f"{path.stem}.io{path.suffix}.npz") as kept:
        outputs = network(*(kept[name] for name in kept if name.startswith("x.")))
        if isinstance(outputs, dict):
            outputs = outputs.values()
        elif not isinstance(outputs, (tuple, list)):
            outputs = [outputs]
        names = [name for name in kept if name.startswith(("codes.", "values."))]
        for name, y in zip(names, outputs, strict=True):
            packed = isinstance(y, qa.QuantArray)
            assert packed == name.startswith("codes.")
            if packed:
                assert str(y.dtype) == kept[name.replace("codes", "dtype", 1)]
            got = y.codes() if packed else y
            assert got.dtype == kept[name].dtype
            np.testing.assert_array_equal(got, kept[name])


def test_every_layer_class_is_among_them():
    saved = set()
    for path in FILES:
        if path.suffix == ".qa":
            saved |= {type(layer).__name__ for layer in getattr(qa.nn.load(path), "layers", ())}
    layers = {name for name in qa.nn.__all__ if hasattr(getattr(qa.nn, name), "takes")}
    assert layers - saved == {"Map"}  # whose function no file holds
