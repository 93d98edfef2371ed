"""Pages that are read first: pictures are those of the script, examples run, and each page is listed with a line."""

import re
import shutil

import numpy as np
import pytest
from paths import DOCS, ROOT

import quantarray as qa
from tools import check_release, pictures

START = (DOCS / "index.md").read_text()
PATHS = dict(re.findall(r"^### (.*?)\n\n```python\n(.*?)```", START, re.S | re.M))


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_those_of_the_script(name):
    assert (DOCS / "_static" / f"{name}.svg").read_text(encoding="utf-8") == pictures.PICTURES[name]()


def test_times_of_the_start_page_are_measured_ones():
    page = (DOCS / "measurements" / "libraries.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| 1x56x56x64 -> 64 | 51.5 us")]
    cells = [cell.strip() for cell in row.split("|")]
    shown = ["51.5 us, 51.4 us", "1.04 ms", "288 us", "364 us"]
    assert cells[2:6] == shown and sorted(pictures.TIMES.values()) == [51.5, 288, 364, 1040]


def test_paths_of_the_start_page_have_three_lines():
    assert list(PATHS) == ["A trained network", "Arrays", "Embeddings", "Training"]
    assert all(len(code.splitlines()) == 3 for code in PATHS.values())


def test_a_trained_network(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx")
    shutil.copy(ROOT / "tests" / "data" / "qonnx" / "TFC_1W1A.onnx", tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names = {"qa": qa, "images": np.zeros((3, 1, 28, 28), np.float32)}
    exec(PATHS["A trained network"], names)
    assert names["scores"].shape == (3, 10) and "packed" in capsys.readouterr().out


def test_arrays():
    rng = np.random.default_rng(0)
    w = qa.quantize(rng.standard_normal((8, 3, 3, 64)), qa.Sign())
    names = {"qa": qa, "w": w, "x": rng.standard_normal((2, 8, 8, 64)).astype(np.float32)}
    exec(PATHS["Arrays"], names)
    assert names["x"].nbytes / 16 <= names["q"].nbytes < names["x"].nbytes / 15
    assert names["y"].shape == (2, 8, 8, 8) and names["half"].shape == (2, 4, 8, 64)


def test_embeddings():
    embeddings = np.random.default_rng(0).standard_normal((100, 64))
    names = {"qa": qa, "embeddings": embeddings, "queries": embeddings[[7, 42]]}
    exec(PATHS["Embeddings"], names)
    assert names["near"].indices[:, 0].tolist() == [7, 42]


def test_the_first_command_is_that_of_the_readme():
    first = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    assert re.findall(r"```sh\n(.*?)```", START, re.S)[0] == first


@pytest.mark.parametrize("index", ["how-to", "tutorials", "developers", "project"])
def test_each_page_of_an_index_is_described(index):
    page = (DOCS / index / "index.md").read_text()
    entries = [line for block in re.findall(r"```\{toctree\}\n(.*?)```", page, re.S) for line in block.splitlines()]
    pages = {f"{entry}.md" for entry in entries if entry and not entry.startswith(":")}
    described = set(re.findall(r"\]\(([\w./-]+\.md)\)", re.sub(r"^(?!- ).*", "", page, flags=re.M)))
    assert pages == described


def test_pages_are_in_one_index():
    listed = [
        (file.parent / f"{entry}.md").resolve()
        for file in DOCS.rglob("index.md")
        for block in re.findall(r"```\{toctree\}\n(.*?)```", file.read_text(), re.S)
        for entry in re.findall(r"^(?:.*<)?([\w./-]+)>?$", block, re.M)
        if ":glob:" not in block
    ]
    assert len(listed) == len(set(listed))
    pages = {file for file in DOCS.glob("*.md") if file.name != "index.md"}
    assert not pages - set(listed)


def test_the_version_to_cite_is_that_of_the_package():
    assert f"\nversion: {qa.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_each_python_has_an_oldest_numpy():
    assert set(check_release.PYTHONS) == set(check_release.OLDEST_NUMPY)
    bounds = dict(d.split(">=") for d in check_release.PROJECT["dependencies"])
    assert min(check_release.OLDEST_NUMPY.values()).startswith(f"{bounds['numpy']}.")
    assert check_release.OLDEST_NUMBA.startswith(bounds["numba"])


def test_the_page_of_gguf_files(tmp_path, monkeypatch, capsys):
    pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "gguf.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.S)), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["example", "up Q4_0 (64, 512) 18432"] and lines[-4:] == [
        "True",
        "True",
        "up 0.09",
        "down 0.81",
    ]
