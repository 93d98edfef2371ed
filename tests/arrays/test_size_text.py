"""Print an array's bytes: smaller or larger than float32, and the fix, of every kind of law and shape."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arrays

import quantarray as qa
from quantarray.arrays.size_text import ratio, repacked_bytes, size_text

CASES = [
    (qa.zeros((2, 28, 28, 1)), "2.0x larger than float32; qa.repack(q, 1) is 14.0x smaller"),
    (qa.zeros((28, 1, 3), axis=1, dtype=qa.int8), "16.0x larger than float32; qa.repack(q, 0) is 1.8x smaller"),
    (qa.zeros((1, 1)), "2.0x larger than float32; words of 64 bits hold 1 element each"),
    (qa.zeros((2, 3), dtype=qa.uint8), "5.3x larger than float32; words of 64 bits hold 3 elements each"),
    (qa.zeros((3, 2), dtype=qa.uint8), "8.0x larger than float32; qa.repack(q, 0) is 5.3x larger"),
    (
        qa.from_codes(
            np.zeros((100, 64), int), qa.uniform(2), scale=np.ones((100, 1)), offset=np.ones((100, 64)), group=1
        ),
        "1.1x larger than float32; constants take 26,000 bytes, .dequantize() 25,600",
    ),
    (qa.zeros((2, 64)), "32.0x smaller than float32"),
    (qa.zeros((2, 4), dtype=qa.uint2), "as large as float32"),
    (qa.zeros((0, 5)), "as large as float32"),
]


@pytest.mark.parametrize(("q", "text"), CASES, ids=[text[:20] for _, text in CASES])
def test_the_text_in_a_line_and_in_a_notebook(q, text):
    assert size_text(q) == text
    assert f" bytes, {text}, values: " in repr(q) and f"on cpu, {text}<" in q._repr_html_()


@given(arrays(), st.data())
def test_bytes_of_another_packed_axis_are_those_of_repack(sample, data):
    q = sample.q
    axis = data.draw(st.integers(0, q.ndim - 1))
    assert repacked_bytes(q, axis) == qa.repack(q, axis).nbytes


@given(arrays())
def test_the_text_is_true(sample):
    q = sample.q
    text, full = size_text(q), 4 * q.size
    if q.nbytes > 1.05 * full:
        assert f"{ratio(q.nbytes, full)} than float32; " in text and "larger" in text
    elif q.nbytes < full / 1.05:
        assert text == f"{full / q.nbytes:.1f}x smaller than float32"
    fix = re.search(r"qa\.repack\(q, (\d+)\) is (.*)", text)
    if fix:
        again = qa.repack(q, int(fix[1]))
        assert again.nbytes < q.nbytes and ratio(again.nbytes, full) == fix[2]


@pytest.mark.parametrize(
    ("nbytes", "full", "text"),
    [(1, 2, "2.0x smaller"), (2, 1, "2.0x larger"), (0, 0, "as large"), (0, 4, "smaller"), (4, 0, "larger"),
     (104, 100, "as large"), (100, 104, "as large"), (1, 12345, "12,345.0x smaller")],
)  # fmt: skip
def test_ratios(nbytes, full, text):
    assert ratio(nbytes, full) == text
