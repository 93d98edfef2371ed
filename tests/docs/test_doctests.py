"""Every public function has an example, and the suite runs the examples of all modules."""

import doctest
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest
from paths import ROOT

import quantarray as qa

FUNCTIONS = {n: f for n in qa.__all__ if inspect.isfunction(f := getattr(qa, n))}
FUNCTIONS |= {f"linalg.{n}": getattr(qa.linalg, n) for n in qa.linalg.__all__}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example_that_is_found(name):
    """The example is where pytest looks for it: in the function's module, under its name."""
    function = FUNCTIONS[name]
    module = importlib.import_module(function.__module__)
    assert Path(module.__file__).is_relative_to(ROOT / "quantarray") and function.__name__ == name.rpartition(".")[2]
    found = {t.name for t in doctest.DocTestFinder(exclude_empty=True).find(module) if t.examples}
    assert f"{module.__name__}.{function.__name__}" in found


def test_the_suite_runs_them():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"].split() and "quantarray" in options["testpaths"]
