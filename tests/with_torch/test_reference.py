"""Every name of `qa.torch` has an entry in the reference and an example."""

import inspect
import re

import pytest
from paths import DOCS

import quantarray as qa

ENTRIES = re.findall(r"^torch\.(\w+)$", (DOCS / "reference" / "training.md").read_text(), re.M)


def test_every_name_has_one_entry():
    assert sorted(ENTRIES) == sorted(qa.torch.__all__) == dir(qa.torch)


@pytest.mark.parametrize("name", [n for n in qa.torch.__all__ if inspect.isfunction(getattr(qa.torch, n))])
def test_functions_have_examples(name):
    assert ">>> " in getattr(qa.torch, name).__doc__


def test_a_star_import_does_not_import_pytorch():
    assert "torch" not in qa.__all__
