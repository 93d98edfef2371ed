"""The documentation's pages: names, lengths, and docstrings as Sphinx reads them. Building them is in `.ci/run`."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from paths import DOCS, ROOT

import quantarray as qa

MODULES = ("linalg", "nn", "quantizers", "testing")
ENTRIES = [
    name
    for page in sorted((DOCS / "reference").glob("*.md"))
    for block in re.findall(r"```\{api\}\n(.*?)```", page.read_text(), re.S)
    for name in block.split()
    if name != ":members:"
]

spec = importlib.util.spec_from_file_location("docstrings", DOCS / "_ext" / "docstrings.py")
docstrings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docstrings)


def literal(code):
    return f"``{code}``"


def test_every_public_name_has_one_entry_in_the_reference():
    assert len(ENTRIES) == len(set(ENTRIES))
    assert set(qa.__all__) - {*MODULES, "__version__"} == {name for name in ENTRIES if "." not in name}


@pytest.mark.parametrize("module", MODULES)
def test_names_of_modules_are_in_the_reference(module):
    namespace = getattr(qa, module)
    top = {id(getattr(qa, name)) for name in ENTRIES if "." not in name}
    names = {n for n in namespace.__all__ if not inspect.ismodule(getattr(namespace, n))}
    missing = {n for n in names if f"{module}.{n}" not in ENTRIES and id(getattr(namespace, n)) not in top}
    assert not missing
    entries = [name.removeprefix(f"{module}.") for name in ENTRIES if name.startswith(f"{module}.")]
    assert all(hasattr(namespace, name) for name in entries if "." not in name)


def test_names_of_models_are_in_the_reference():
    assert {f"nn.models.{name}" for name in qa.nn.models.__all__} == {n for n in ENTRIES if n.startswith("nn.models.")}


@pytest.mark.parametrize("name", [n for n in ENTRIES if callable(getattr(qa, n, None))])
def test_docstrings_convert(name):
    """Tables have their bars below each other; no indented line is lost or moved into a paragraph."""
    lines = inspect.getdoc(getattr(qa, name)).split("\n")
    text = "\n".join(docstrings.to_rst(lines, literal))
    for line in lines:
        if line.startswith(("    ", ">>>")):
            assert f"   {line.strip()}" in text.replace("\n    ", "\n   ") or line.strip() in text


TABLE = """.. list-table::
   :header-rows: 1

   * - a
     - b
   * - 1
     - \\|x\\|"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("below 2**31, |x| and a_ b", r"below 2\*\*31, \|x\| and a\_ b"),
        ("of `axis`, `a*b`", "of \\ ``axis``\\ , \\ ``a*b``\\ "),
        ("see docs/kernels/conv.md", "see \\ :doc:`/kernels/conv`\\ "),
        ("True:\n- one\n  more;\n- two", "True:\n\n- one more;\n- two"),
        ("is\n    a * b\nof", "is\n\n.. code-block:: text\n\n   a * b\n\nof"),
        ("    a\n\n    b", ".. code-block:: text\n\n   a\n\n   b"),
        (">>> f(2**3)\n8", ".. code-block:: pycon\n\n   >>> f(2**3)\n   8"),
        ("| a | b   |\n|---|-----|\n| 1 | |x| |", TABLE),
    ],
    ids=["escapes", "code", "page", "list", "formula", "formula with a gap", "example", "table"],
)
def test_blocks_of_docstrings(source, expected):
    assert "\n".join(docstrings.to_rst(source.split("\n"), literal)).rstrip("\n") == expected.rstrip("\n")


def test_a_crooked_table_is_an_error():
    with pytest.raises(ValueError, match="below each other"):
        docstrings.to_rst(["| a | b |", "|---|---|", "| long | b |"], literal)


# pages that sources name

FOLDERS = ("quantarray", "benchmarks", "tests", "examples")
SOURCES = [f for folder in FOLDERS for f in sorted((ROOT / folder).rglob("*.py"))]
NAMED = [(f, name) for f in SOURCES for name in re.findall(r"\bdocs/([\w/-]+(?:\.md)?)", f.read_text())]


def test_pages_that_sources_name_are_there():
    missing = [(f.name, name) for f, name in NAMED if f != Path(__file__) and not list(DOCS.glob(f"{name}*"))]
    assert not missing and len(NAMED) > 50
