"""The examples of pages and of the tutorial of arrays print what their comments say."""

import os
import re

import pytest
from paths import DOCS, ROOT


def run(page, folder):
    """Run a page's examples in a folder from which the paths of the repository can be read."""
    (folder / "tests").symlink_to(ROOT / "tests", target_is_directory=True)
    before = os.getcwd()
    os.chdir(folder)
    try:
        code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
        exec(compile(code, "page", "exec"), {})
    finally:
        os.chdir(before)
    return code


def test_onnx(tmp_path, capsys):
    pytest.importorskip("onnx")
    page = (DOCS / "onnx.md").read_text()
    code = run(page, tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line.split(")  # ")[1] for line in code.splitlines() if line.startswith("print(")]


@pytest.mark.parametrize("page", ["detection.md", "nearest-codes.md", "tutorials/arrays.md"])
def test_numpy_alone(page, tmp_path, capsys):
    code = run((DOCS / page).read_text(), tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line.split(")  # ")[1] for line in code.splitlines() if line.startswith("print(")]


def test_table_of_the_onnx_page():
    """The rows of the summary are those of the network, to the letter."""
    pytest.importorskip("onnx")
    import quantarray as qa

    page = (DOCS / "onnx.md").read_text()
    table = re.search(r"```text\n(operation .*?)```", page, re.S)[1].splitlines()
    summary = str(qa.nn.load(ROOT / "tests" / "data" / "qonnx" / "TFC_1W1A.onnx").summary()).splitlines()
    cut = table.index("...")
    assert table[:cut] == summary[1 : cut + 1] and table[cut + 1 :] == summary[-1:]


def test_summary(tmp_path, capsys):
    page = (DOCS / "summary.md").read_text()
    run(page, tmp_path)
    printed = capsys.readouterr().out
    table = re.search(r"```text\n(.*?)```", page, re.S)[1].splitlines()
    for shown, line in zip(table, printed.splitlines(), strict=False):
        times = re.compile(r" +[\d.]+ +\d+ %$")
        assert times.sub("", shown) == times.sub("", line) or "us" in shown
    assert re.search(r"kernel: (conv|framed)\b", printed) and "<svg" in (tmp_path / "net.svg").read_text()
