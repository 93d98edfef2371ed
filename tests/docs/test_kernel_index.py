"""The table of kernels in docs/kernels/index.md: every kernel is in it, its files, tests and page exist and name it."""

import re
from pathlib import PurePath

import pytest
from paths import DOCS, ROOT, TESTS

import quantarray as qa
from quantarray.backends.registry import KERNELS

PAGES = DOCS / "kernels"
COLUMNS = ["kernel", "what it is", "called by", "file", "oracle test", "micro test", "page", "what it bought"]
PARTS = ["What it computes", "The exact algebra", "How the kernel does it", "Why not otherwise"]
CUDA = {"cuda", "bmma", "wgmma", "imma"}  # ordered by instruction, not in four parts
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (PAGES / "index.md").read_text().splitlines()
    if line.startswith("| ")
]
ROWS = [dict(zip(COLUMNS, cells, strict=True)) for cells in LINES[1:]]


def quoted(text):
    """Return the text between backticks."""
    return re.findall(r"`([^`]+)`", text)


def says(test, *names):
    """True where a test file has one of the names as a word."""
    return re.search(rf"\b({'|'.join(map(re.escape, names))})\b", (TESTS / test).read_text()) is not None


def label(row):
    return f"{row['kernel']} {row['what it is']}"


def test_one_table_has_every_kernel():
    assert LINES[0] == COLUMNS
    assert {name for row in ROWS for name in quoted(row["kernel"])} == set(KERNELS)


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_oracle_tests_call_public_functions_that_run_the_kernel(row):
    callers = [name for name in quoted(row["called by"]) if name.isidentifier()]
    assert all(hasattr(qa, name) or hasattr(qa.QuantArray, name) for name in callers)
    assert quoted(row["oracle test"]), "a kernel needs an oracle test"
    for test in quoted(row["oracle test"]):
        assert says(test, *(callers or [PurePath(file).stem for file in quoted(row["file"])])), test


@pytest.mark.parametrize("row", [row for row in ROWS if quoted(row["micro test"])], ids=label)
def test_micro_tests_name_the_kernel_or_its_file(row):
    stems = [PurePath(file).stem for file in quoted(row["file"])]
    for test in quoted(row["micro test"]):
        assert says(test, *quoted(row["kernel"]), *stems), test


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_files_and_pages_exist(row):
    assert quoted(row["file"]) and all((ROOT / "quantarray" / name).exists() for name in quoted(row["file"]))
    pages = re.findall(r"\]\(([^)]+)\)", row["page"])
    assert pages and all((PAGES / page).exists() for page in pages)


def test_every_page_is_in_the_table():
    linked = {page for row in ROWS for page in re.findall(r"\]\(([^)]+)\.md\)", row["page"])}
    assert linked == {page.stem for page in PAGES.glob("*.md")} - {"index"}


@pytest.mark.parametrize(
    "page", sorted(page for page in PAGES.glob("*.md") if page.stem not in {"index", *CUDA}), ids=lambda page: page.stem
)
def test_a_page_has_four_parts_and_at_most_150_lines(page):
    text = page.read_text()
    assert re.findall(r"^## (.*)", text, re.M) == PARTS and len(text.splitlines()) <= 150
    files = next(line for line in text.split("\n\n") if line.startswith("File"))
    names = re.findall(r"`([\w/]+\.py)`", files)
    assert names and all(any(ROOT.rglob(f"quantarray/**/{name}")) for name in names)
