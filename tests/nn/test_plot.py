"""Pictures of networks: places of boxes and edges, and the SVG file; summaries of layers."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import PACKAGED

import quantarray as qa
from quantarray.nn.drawing.lanes import place
from quantarray.nn.drawing.svg import Box, Drawing, svg

SPACE = "{http://www.w3.org/2000/svg}"


def bits(*shape, axis=-1):
    return qa.encode(np.random.default_rng(0).choice([-1, 1], shape), values=(-1, 1), axis=axis)


def conv(x, w, y, *rest):
    padding = 0 if w == "shortcut" else 1
    return qa.nn.Node("conv2d", (x, w, *rest), (y,), {"stride": 1, "padding": padding, "dilation": 1, "groups": 1})


def residual():
    """A block of two convolutions, and one of a single 1x1 beside it."""
    constants = {
        "sign": qa.Thresholds([0.0]),
        "w": bits(8, 4, 3, 3, axis=1),
        "v": bits(8, 8, 3, 3, axis=1),
        "shortcut": bits(8, 4, 1, 1, axis=1),
    }
    nodes = [
        qa.nn.Node("threshold", ("x", "sign"), ("q",), {"axis": 1}),
        conv("q", "w", "a", "sign"),
        conv("a", "v", "b"),
        conv("q", "shortcut", "s"),
        qa.nn.Node("Add", ("b", "s"), ("y",)),
    ]
    x, y = qa.nn.Value("x", (1, 4, 5, 5), "float32"), qa.nn.Value("y", (1, 8, 5, 5), "int32")
    return qa.nn.Graph([x], [y], nodes, constants, "a <residual> & block")


def drawn(network, path, *x):
    """(text of each box, its fill, its rectangle), and the number of edges."""
    network.plot(path, *x)
    root = ElementTree.parse(path).getroot()
    boxes = []
    for group in root.iter(f"{SPACE}g"):
        rect = group.find(f"{SPACE}rect").attrib
        boxes.append(([t.text for t in group.findall(f"{SPACE}text")], rect["fill"], rect))
    return boxes, len(root.findall(f"{SPACE}path"))


def test_graph_with_a_branch(tmp_path):
    boxes, edges = drawn(residual(), tmp_path / "net.svg")
    assert [text[0] for text, _, _ in boxes] == [
        "x", "threshold", "conv2d 3x3 + thresholds", "conv2d 3x3", "conv2d 1x1", "Add", "y",
    ]  # fmt: skip
    assert boxes[2][0][1:] == ["1x8x5x5 bipolar, 1 bit", "288 weights of 1 bit, 576 bytes"]
    assert edges == 7
    packed, numpy = boxes[1][1], boxes[5][1]
    assert [fill == packed for _, fill, _ in boxes[1:6]] == [True] * 4 + [False] and numpy != boxes[0][1] != packed
    middle = [float(r["x"]) + float(r["width"]) / 2 for _, _, r in boxes]
    straight = [m for i, m in enumerate(middle) if i != 4]
    assert max(straight) - min(straight) < 0.2 and middle[4] > middle[3] + 50
    assert boxes[4][2]["y"] == boxes[2][2]["y"]
    assert "a &lt;residual&gt; &amp; block" in (tmp_path / "net.svg").read_text()


def test_shapes_of_an_input(tmp_path):
    boxes, _ = drawn(residual(), tmp_path / "net.svg", np.zeros((3, 4, 5, 5), np.float32))
    assert boxes[5][0][1] == "3x8x5x5 int32, 32 bits"


def test_layers_and_networks(tmp_path):
    network = qa.nn.load_network(PACKAGED)
    boxes, edges = drawn(network, tmp_path / "net.svg")
    assert len(boxes) == 8 and edges == 7
    assert boxes[-2][0] == ["dense 512 -> 10", "1x10 int32, 32 bits", "5,120 weights of 1 bit, 640 bytes"]
    alone, _ = drawn(network.layers, tmp_path / "layers.svg")
    assert alone[-2][0] == ["dense 512 -> 10", "5,120 weights of 1 bit, 640 bytes"]
    nested = qa.nn.Sequential([network.layers, np.negative])
    boxes, _ = drawn(nested, tmp_path / "nested.svg", network.encode_input(network.plain.input[:2]))
    assert boxes[-2][0] == ["negative", "2x10 int32, 32 bits"] and boxes[-2][1] != boxes[-3][1]
    assert qa.nn.Sequential([]).plot(tmp_path / "none.svg") is None


def test_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "net.svg").write_text("before")
    with pytest.raises(ValueError, match="must be float32"):
        residual().plot(tmp_path / "net.svg", np.zeros((3, 4), np.float32))
    assert (tmp_path / "net.svg").read_text() == "before" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ValueError, match=r"plot: the file must end in \.svg, got"):
        residual().plot(tmp_path / "net.png")


def test_notebooks_show_the_picture():
    assert "<svg" in residual()._repr_html_() and "<svg" in qa.nn.load_network(PACKAGED)._repr_html_()
    broken = qa.nn.Graph([], [qa.nn.Value("y", (1,), "int32")], [qa.nn.Node("Add", ("a",), ("y",))], {"a": np.ones(1)})
    assert broken._repr_html_() is None


def test_names_of_files_cannot_break_the_picture():
    ElementTree.fromstring(svg(Drawing("a", "b", [Box(("<&>\"'",), "packed", "<tip>")], [])))
    graph = residual()
    named = qa.nn.Graph([qa.nn.Value("\x00<script>", (1, 2), "float32")], [], [], {}, "\x1b")
    for network in (graph, named):
        ElementTree.fromstring(network._repr_html_())


@st.composite
def graphs(draw):
    boxes = draw(st.integers(1, 12))
    pairs = [(a, b) for b in range(boxes) for a in range(b)]
    return boxes, draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []


@given(graphs())
def test_boxes_and_edges_do_not_meet(graph):
    boxes, edges = graph
    ranks, lanes, routes = place(boxes, edges)
    assert set(routes) == set(edges) and min(ranks) >= 0
    cells = set(zip(ranks, lanes, strict=True))
    assert len(cells) == boxes
    for (a, b), lane in routes.items():
        assert ranks[a] < ranks[b]
        between = {(rank, lane) for rank in range(ranks[a] + 1, ranks[b])}
        assert not between & cells
        cells |= between


# summaries of layers


def test_summary_of_layers():
    network = qa.nn.load_network(PACKAGED)
    x = network.plain.input[:5]
    rows = network.summary(x).rows
    records = network.layers.trace(network.encode_input(x))
    assert [(r.shape, r.bits) for r in rows] == [(r.shape, r.bits) for r in records]
    assert sum(r.nbytes for r in rows) == network.layers.nbytes
    assert rows[0].macs == 5 * 8 * 8 * 64 * 9 and rows[-1].macs == 5 * 5120 and rows[2].macs == 0
    assert str(network.summary()) == str(network.summary(network.plain.input[:1]))
    assert network.summary().rows == network.layers.summary(network.encode_input(x[:1])).rows


def test_summary_without_an_input():
    layers = qa.nn.load_network(PACKAGED).layers
    summary = layers.summary()
    assert [row.shape for row in summary.rows] == [()] * 6 and sum(row.nbytes for row in summary.rows) == layers.nbytes
    first = str(summary).splitlines()[2].split()
    assert first == ["conv2d", "3x3", "1", "->", "64", "+", "thresholds", "packed", "layer", "0", "576", "4,608"]
    assert "MACs;" not in summary.total


def test_profile_of_layers():
    network = qa.nn.load_network(PACKAGED)
    for timed in (network.profile(), network.layers.profile(network.encode_input(network.plain.input[:1]))):
        assert all(row.seconds > 0 for row in timed.rows) and "share" in str(timed)
        assert [r._replace(seconds=None) for r in timed.rows] == network.summary().rows


SCALED = qa.quantize(np.random.default_rng(0).normal(size=(3, 64)), qa.Sign(scale=True), scale_axis=0)
RESULTS = [
    (qa.nn.Dense(bits(3, 64)), "packed"),  # int32
    (qa.nn.Dense(bits(3, 64), qa.Thresholds([0])), "packed"),
    (qa.nn.Dense(SCALED, qa.Thresholds([0.0])), "packed"),
    (qa.nn.Dense(SCALED), "float result"),
    (qa.nn.Dense(bits(3, 64), bias=[0.5, 1, 2]), "float result"),
    (lambda x: x.dequantize().astype(np.float32), "float result"),
    (lambda x: x.dequantize(), "packed"),  # int32, from packed codes
]


@pytest.mark.parametrize(("layer", "runs"), RESULTS, ids=range(len(RESULTS)))
def test_float_results_are_told_from_packed_ones(layer, runs):
    summary = qa.nn.Sequential([layer]).summary(bits(2, 64))
    assert [row.runs for row in summary.rows] == [runs] and summary.numpy == []
    assert str(summary).endswith("0 of 1 in NumPy" + ", 1 with a float result" * (runs == "float result"))
    assert "float result" in summary.rows[0].runs or "float result" not in str(summary)


def test_the_total_says_what_weights_take_beside_float32():
    narrow = qa.nn.Sequential([qa.nn.Conv2d(bits(4, 3, 3, 1))])
    assert narrow.summary().total == "36 weights in 288 bytes, 2.0x larger than float32; 0 of 1 in NumPy"
    wide = qa.nn.Sequential([qa.nn.Dense(bits(3, 64))])
    assert wide.summary().total == "192 weights in 24 bytes, 32.0x smaller than float32; 0 of 1 in NumPy"
    assert qa.nn.Sequential([qa.nn.MaxPool2d(2)]).summary().total == "0 weights in 0 bytes, 0 MACs; 0 of 1 in NumPy"


def test_functions_run_in_numpy():
    net = qa.nn.Sequential([qa.nn.Dense(bits(3, 64)), qa.Affine([0.5] * 3, [0.0] * 3)])
    summary = net.summary(bits(2, 64))
    assert [row.runs for row in summary.rows] == ["packed", "NumPy"] and "1 of 2 in NumPy" in str(summary)
