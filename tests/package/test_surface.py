"""Public names: those that are listed, before and after the package was used."""

import inspect
import subprocess
import sys
import typing

import numpy as np
import pytest

import quantarray as qa

NAMESPACES = ["linalg", "nn", "quantizers", "testing"]

FRESH = """
import quantarray as qa
assert dir(qa) == sorted(qa.__all__), set(dir(qa)) ^ set(qa.__all__)
print("equal")
"""

USED = """
import importlib, inspect, pkgutil
import quantarray as qa
for name in qa.__all__:
    getattr(qa, name)
for module in pkgutil.walk_packages(qa.__path__, "quantarray."):
    if not module.name.endswith("__main__") and not {"cuda", "torch"} & set(module.name.split(".")):
        importlib.import_module(module.name)
x = qa.encode([[1, -1]], values=(-1, 1))
qa.linear(x, x), x.sum(), qa.compare([[0.5, 1.0]], [qa.Sign()])
assert dir(qa) == sorted(qa.__all__), set(dir(qa)) ^ set(qa.__all__)
left = {n for n, v in vars(qa).items() if n not in qa.__all__ and n[0] != "_" and not inspect.ismodule(v)}
assert not left, left
print("equal")
"""


@pytest.mark.parametrize("script", [FRESH, USED], ids=["fresh", "used"])
def test_dir_is_what_is_listed(script):
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == "equal\n"


@pytest.mark.parametrize("name", NAMESPACES)
def test_dir_of_a_namespace_is_what_is_listed(name):
    namespace = getattr(qa, name)
    assert dir(namespace) == sorted(namespace.__all__)
    assert all(hasattr(namespace, n) for n in namespace.__all__)


def test_a_star_import_brings_what_is_listed():
    names = {}
    exec("from quantarray import *", names)
    assert set(names) - {"__builtins__"} == set(qa.__all__)


ATTRIBUTES = {
    "T", "all", "any", "argmax", "argmin", "argsort", "axis", "bits", "codes", "constants", "copy", "dequantize",
    "device", "digest", "dot", "drop_cache", "dtype", "flatten", "group", "levels", "mT", "max", "mean", "min",
    "nbytes", "nbytes_cached", "ndim", "nonzero", "offset", "planes", "prod", "ravel", "repack", "repeat", "reshape",
    "scale", "scheme", "shape", "size", "squeeze", "std", "sum", "swapaxes", "take", "to_device", "transpose", "var",
    "words",
}  # fmt: skip


def test_an_array_shows_no_plumbing():
    q = qa.encode(np.ones((4, 64), int), values=(-1, 1))
    qa.linear(q, q)  # with layouts and a prepared call in its cache
    assert {name for name in dir(q) if not name.startswith("_")} == ATTRIBUTES


def test_every_public_attribute_of_an_array_has_a_docstring():
    assert all(inspect.getdoc(getattr(qa.QuantArray, name)) for name in ATTRIBUTES)


def test_array_says_what_makes_arrays():
    with pytest.raises(AttributeError, match=r"no attribute 'array'.*quantize\(x, quantizer\), encode\(x, values\)"):
        qa.array([1, -1])


def test_type_hints_of_public_functions_can_be_read():
    for name in qa.__all__:
        if inspect.isfunction(getattr(qa, name)):
            assert "return" in typing.get_type_hints(getattr(qa, name)), name
