"""The table of validated networks, made again of the networks that are part of the repository."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from paths import DOCS

import quantarray as qa
from tools import validated_networks as table

PAGE = DOCS / "validated-networks.md"
TIMES = (7, 8)  # columns


def rows(page):
    """Cells of each row by the network's name, without times."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    return {line[0]: [c for i, c in enumerate(line) if i not in TIMES] for line in lines[2:]}


@pytest.fixture(scope="module")
def again():
    patch = pytest.MonkeyPatch()
    patch.setattr(table, "SECONDS", 0.0)
    patch.setattr(table.qonnx_wheel, "networks", lambda: iter(()))
    yield rows(table.page([]))
    patch.undo()


@pytest.mark.parametrize("name", ["digits", "TFC_1W1A", "TFC_2W2A"])
def test_the_page_is_what_the_networks_give(name, again):
    page = rows(PAGE.read_text())[name]
    if name != "digits":  # their accuracy is that of MNIST's test images, which are not part of the repository
        page[5] = "-"
    assert again[name] == page, "python -m tools.validated_networks FOLDER ... > docs/validated-networks.md"


def test_every_network_reproduces_what_is_known():
    page = rows(PAGE.read_text())
    assert len(page) >= 9
    for name, cells in page.items():
        equal, total = (int(n.replace(",", "")) for n in cells[4].split(", others")[0].split(" of "))
        assert equal == total or (name.startswith("espcn") and equal >= 0.999 * total), name
        assert cells[6] == ".qa .onnx" or (name == "espcn-subpixel" and cells[6] == ".qa"), name


def test_a_wrong_value_is_counted():
    x = np.zeros((3, 2), np.float32)
    network = qa.nn.Graph(
        [qa.nn.Value("x", (1, 2), "float32")],
        [qa.nn.Value("y", (1, 2), "float32")],
        [qa.nn.Node("Relu", ("x",), ("y",))],
        {},
    )
    expected = np.array([[0, 0], [0, 1], [0, 0]])
    row = table.row(table.Case("made up", network, x, expected, "zeros", labels=np.array([0, 1, 0])))
    assert (
        row.equal == "5 of 6, others within 1"
        and row.right == "66.67 % of 3"
        and row.files.startswith(".qa")
        and row.source == "-"
    )
