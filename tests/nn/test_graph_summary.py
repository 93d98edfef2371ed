"""The last line of a summary: sums of its rows, and what constants take beside weights."""

from quantarray.nn.graph_summary import Row, Summary


def row(weights, nbytes):
    return Row("conv2d", "packed", "layer", (1, 8), "int32", 32, weights, 10 * weights, nbytes, None)


def test_constants_are_named_where_they_are_larger_than_weights():
    rows = [row(800, 800), row(200, 200)]
    small, large = Summary("net", rows, 2000).total, Summary("net", rows, 11_000).total
    assert small == Summary("net", rows).total and "4.0x smaller than float32, 10,000 MACs" in small
    assert "4.0x smaller than float32 (2.8x larger than float32 with thresholds and all else), 10,000 MACs" in large
    assert Summary("none", [row(0, 0)], 9).total == "0 weights in 0 bytes, 0 MACs; 0 of 1 in NumPy"
