"""What people see: a line for each object, and HTML for notebooks."""

from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

import quantarray as qa
from quantarray.methods.notebook import histogram, html, sample

W = qa.quantize(np.random.default_rng(0).standard_normal((64, 3, 3, 32)), qa.Sign(scale=True), scale_axis=0)
D = qa.encode(np.random.default_rng(0).choice([-1, 1], (10, 576)), values=(-1, 1))
NETWORK = qa.nn.load_network(files("quantarray") / "data" / "digits.npz")

REPRS = [
    (qa.Constants(), "Constants()"),
    (W.constants, "Constants(scale (64, 1, 1, 1) 0.7217 to 0.8488)"),
    (W.constants.to_bfloat16(), "Constants(scale (64, 1, 1, 1) 0.7227 to 0.8477, in bfloat16)"),
    (W[:0].constants, "Constants(scale (0, 1, 1, 1) empty)"),
    (
        qa.Constants(np.float32([[1, 2]]), np.float32([[3, 3]]), group=64),
        "Constants(scale (1, 2) 1 to 2, offset (1, 2) 3, group 64)",
    ),
    (
        qa.nn.Conv2d(W, padding=1, stride=2),
        "Conv2d([n h w 32] -> [n h w 64], 3x3, stride=2, padding=1, weight=1-bit bipolar with a scale, out=dense)",
    ),
    (
        qa.nn.Dense(D, qa.Thresholds([0, 1, 2])),
        "Dense([n 576] -> [n 10], weight=1-bit bipolar, out=2-bit uint2)",
    ),
    (qa.nn.MaxPool2d((2, 3)), "MaxPool2d(2x3)"),
    (qa.nn.MaxPool2d(2, stride=1, padding=1), "MaxPool2d(2x2, stride=1, padding=1)"),
    (
        qa.nn.Sequential([qa.nn.Dense(D), qa.relu, qa.nn.Dense(D[:, :10])]),
        "Sequential(dense 576 -> 10, relu, dense 10 -> 10; 800 bytes of weights)",
    ),
    (
        qa.nn.Sequential([qa.nn.MaxPool2d(n) for n in range(1, 12)]),
        "Sequential(max_pool2d 1x1, max_pool2d 2x2, max_pool2d 3x3, max_pool2d 4x4, max_pool2d 5x5, max_pool2d 6x6, "
        ".. 4 more .., max_pool2d 11x11; 0 bytes of weights)",
    ),
    (
        NETWORK,
        "Network('digits-w1a1', uint8 [n 8 8 1] -> [n 10], Sequential(conv2d 3x3 1 -> 64, conv2d 3x3 64 -> 64, "
        "max_pool2d 2x2, conv2d 3x3 64 -> 128, max_pool2d 2x2, dense 512 -> 10; 19072 bytes of weights))",
    ),
]


@pytest.mark.parametrize(("value", "text"), REPRS, ids=lambda v: type(v).__name__)
def test_reprs_are_short(value, text):
    assert repr(value) == text


def test_no_repr_of_a_network_prints_its_weights():
    records = NETWORK.layers.trace(NETWORK.encode_input(NETWORK.plain.input[:2]))
    for part in (NETWORK.plain, *NETWORK.plain.layers, *NETWORK.layers, *records):
        assert len(repr(part)) < 250 and "\n" not in repr(part)


class Reader(HTMLParser):
    """Cells of each row, and the tags that are open."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open, self.tags = [], [], set()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.rows[-1][-1] += data


def rows(q):
    read = Reader(q._repr_html_())
    assert read.tags <= {"table", "tbody", "tr", "th", "td", "span"}
    return read.rows


def test_html_tells_facts_and_levels():
    q = qa.encode([[1, -1, 1, 1], [0, 1, 1, 1]], values=(-1, 0, 1))
    assert rows(q) == [
        ["QuantArray", "(2, 4) packed along axis 1"],
        ["dtype", "ternary, 2 bits an element"],
        ["constants", "none"],
        ["memory", "32 bytes on cpu, as large as float32"],
        ["values"],
        ["-1", " 12.5 %"],
        ["0", " 12.5 %"],
        ["1", " 75.0 %"],
    ]


def test_html_of_constants_for_each_channel_counts_codes():
    facts = rows(W)
    assert ["scheme", "Sign(scale=True)"] in facts and ["codes"] in facts
    assert ["constants", "scale (64, 1, 1, 1) 0.7217 to 0.8488"] in facts
    assert [name for name, _ in facts[-2:]] == ["0", "1"]


def test_html_has_at_most_sixteen_bars_and_levels_in_order():
    shares = histogram(qa.quantize(np.random.default_rng(0).standard_normal(5000), qa.Uniform(8)))
    assert len(shares) == 16 and sum(share for _, share in shares) == pytest.approx(1)
    assert [label for label, _ in shares] == sorted((label for label, _ in shares), key=lambda t: float(t.split()[0]))
    assert max(shares, key=lambda s: s[1]) in shares[6:10]  # a bell
    falling = qa.from_codes([0, 1, 2, 2], qa.table(2), table=[3.0, 1.5, -7.25, 9.0])
    assert histogram(falling) == [("-7.25", 0.5), ("1.5", 0.25), ("3", 0.25), ("9", 0.0)]


def test_html_escapes_text():
    q = qa.encode([1, -1], values=(-1, 1))
    named = qa.QuantArray(q.words, q.dtype, q.shape, q.axis, scheme="<script>alert('&')</script>")
    assert "<script" not in html(named) and ["scheme", "<script>alert('&')</script>"] in rows(named)


def test_html_of_nothing_and_of_a_used_array():
    assert rows(qa.zeros((0, 5)))[-1][0] == "memory"
    q = qa.encode(np.ones((64, 64), int), values=(-1, 1))
    qa.linear(q, q)
    assert q.nbytes_cached and ["layouts", f"{q.nbytes_cached:,} bytes that kernels keep"] in rows(q)


@pytest.mark.parametrize(
    ("shape", "axis"), [((1 << 27,), 0), ((1 << 14, 1 << 13), 1), ((1 << 13, 1 << 14), 0), ((1 << 25, 3), -1)]
)
def test_html_of_a_large_array_looks_at_a_part(shape, axis):
    q = qa.zeros(shape, axis=axis)
    part = sample(q)
    assert 1 << 16 <= part.size <= 1 << 18 and np.may_share_memory(part.words, q.words)
    text = html(q)
    assert f"of a sample of {part.size:,} elements" in text and "100.0 %" in text
