"""`float_product`, made of `product_tile`, against sums in order, to the bit: any geometry, layout and size."""

import numpy as np
import pytest
from float_products import summed
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from strategies import seeds, threads

import quantarray as qa
from quantarray.nn.operators.products import OPERATORS, laid_out
from quantarray.ops.products import dense_product

ROWS = st.sampled_from([1, 2, 3, 4, 7, 11, 12, 13, 24, 37])
COLUMNS = st.sampled_from([1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 200, 300])


def values(seed, *shapes):
    """Return float32 arrays with magnitudes from 1e-6 to 1e6, and some zeros."""
    random = np.random.default_rng(seed)
    return [
        (random.standard_normal(s) * 10.0 ** random.integers(-6, 7, s) * (random.random(s) < 0.9)).astype(np.float32)
        for s in shapes
    ]


@given(ROWS, st.integers(1, 70), COLUMNS, seeds(), st.booleans())
def test_matrix_product(rows, depth, columns, seed, many):
    x, w = values(seed, (rows, depth), (depth, columns))
    with threads(many):
        got = OPERATORS["MatMul"].run({}, x, w)
    np.testing.assert_array_equal(got, summed(x, w))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(summed(x, w)))


@given(ROWS, st.integers(1, 70), COLUMNS, seeds(), st.booleans())
def test_int8_with_scales(rows, depth, columns, seed, many):
    """The values are rounded to float32 before they are multiplied."""
    x, scale = values(seed, (rows, depth), columns)
    integers = np.random.default_rng(seed).integers(-128, 128, (depth, columns), np.int8)
    w = dense_product.ScaledBytes(integers, scale)
    with threads(many):
        got = OPERATORS["MatMul"].run({}, x, w)
    np.testing.assert_array_equal(got, summed(x, integers.astype(np.float32) * scale))
    np.testing.assert_array_equal(w.values, integers.astype(np.float32) * scale)


@pytest.mark.parametrize("scale", [(1, 40), (40,), (), (1, 1), (40, 1)], ids=str)
@pytest.mark.parametrize("whose", ["a product's", "a sum's too", "an output too"])
def test_networks_keep_int8_of_products(scale, whose):
    """Weights that products alone read stay int8 in a prepared network, whose results are those of the graph."""
    rng = np.random.default_rng(0)
    nodes = [qa.nn.Node("scale", ("i", "s"), ("w",), {"to": "float32"}), qa.nn.Node("MatMul", ("x", "w"), ("y",))]
    if whose == "a sum's too":
        nodes.append(qa.nn.Node("Add", ("w", "x"), ("z",)))
    constants = {"i": rng.integers(-128, 128, (40, 40), np.int8), "s": np.asarray(rng.normal(size=scale), np.float32)}
    value = {name: qa.nn.Value(name, (40, 40), "float32") for name in "xywz"}
    ends = ["y", *{"a sum's too": "z", "an output too": "w"}.get(whose, "")]
    net = qa.nn.Graph([value["x"]], [value[name] for name in ends], nodes, constants)
    prepared = net.prepared()
    for _ in range(3):
        x = rng.normal(size=(40, 40)).astype(np.float32)
        got, wanted = prepared(x), net(x)
        for name in ends:
            assert np.array_equal(*(one[name] if len(ends) > 1 else one for one in (got, wanted)))


@given(st.data(), st.integers(1, 3), st.sampled_from([1, 2, 3, 15, 16, 17, 40]), COLUMNS, seeds(), st.booleans())
def test_convolution(data, axes, channels, outputs, seed, many):
    def drawn(low, high):
        return tuple(data.draw(st.integers(low, high)) for _ in range(axes))

    kernel, strides, dilations, image = drawn(1, 3), drawn(1, 3), drawn(1, 2), drawn(5, 8)
    pads, n = (*drawn(0, 2), *drawn(0, 2)), data.draw(st.integers(1, 2))
    x, w, bias = values(seed, (n, channels, *image), (outputs, channels, *kernel), outputs)
    bias = bias if data.draw(st.booleans()) else None
    a = {"strides": strides, "dilations": dilations, "pads": pads}
    expected = convolved(x, w, bias, **a)
    if data.draw(st.booleans(), "channels last"):
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    if data.draw(st.booleans(), "every second column"):
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    with threads(many):
        got = OPERATORS["Conv"].run(a, x, laid_out(w) if data.draw(st.booleans(), "laid out") else w, bias)
    np.testing.assert_array_equal(got, expected)


@given(
    st.data(), st.integers(1, 3), st.sampled_from([2, 3, 5, 17, 40]), st.integers(1, 5),
    st.sampled_from([1, 2, 3, 8, 16, 19]), seeds(), st.booleans(),
)  # fmt: skip
def test_groups(data, axes, groups, channels, outputs, seed, many):
    """Groups of one channel and of several, with one output and with several."""

    def drawn(low, high):
        return tuple(data.draw(st.integers(low, high)) for _ in range(axes))

    kernel, strides, dilations, image = drawn(1, 3), drawn(1, 3), drawn(1, 2), drawn(5, 7)
    pads, n = (*drawn(0, 2), *drawn(0, 2)), data.draw(st.integers(1, 2))
    shapes = (n, groups * channels, *image), (groups * outputs, channels, *kernel), groups * outputs
    x, w, bias = values(seed, *shapes)
    a = {"strides": strides, "dilations": dilations, "pads": pads}
    parts = (np.split(v, groups, axis) for v, axis in ((x, 1), (w, 0), (bias, 0)))
    expected = np.concatenate([convolved(*part, **a) for part in zip(*parts, strict=True)], axis=1)
    if data.draw(st.booleans(), "channels last"):
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    with threads(many):
        got = OPERATORS["Conv"].run(
            {**a, "group": groups}, x, laid_out(w) if data.draw(st.booleans(), "laid out") else w, bias
        )
    np.testing.assert_array_equal(got, expected)


def convolved(x, w, bias, strides, dilations, pads):
    axes = len(strides)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    windows = sliding_window_view(padded, reach, axis=tuple(range(2, axes + 2)))
    windows = windows[(slice(None),) * 2 + tuple(slice(None, None, s) for s in strides + dilations)]
    rows = np.moveaxis(windows, 1, -1)  # [n places taps c]
    sums = summed(rows.reshape(-1, w[0].size), np.moveaxis(w, (0, 1), (-1, -2)).reshape(-1, len(w)))
    if bias is not None:
        sums = sums + bias
    return np.moveaxis(sums.reshape(*rows.shape[: axes + 1], len(w)), -1, 1)


def test_infinities_and_nan():
    x, w = np.float32([[np.inf, 1], [1, np.nan], [1, 2]]), np.float32([[1, 0], [1, 1]])
    np.testing.assert_array_equal(OPERATORS["MatMul"].run({}, x, w), [[np.inf, np.nan], [np.nan, np.nan], [3, 2]])


def test_padding_is_no_product():
    """A tap outside is left at 0 even where its weight is infinite: 0 times it would be NaN in a sum of floats too."""
    y = OPERATORS["Conv"].run({"pads": (1, 1)}, np.ones((1, 1, 2), np.float32), np.float32([[[1, 1, 2]]]))
    np.testing.assert_array_equal(y, [[[3, 2]]])


@pytest.mark.parametrize("pads", [(0, 2), (1, 0), (3, 1)])
def test_padding_of_single_taps(pads):
    """Nothing outside of x is read, also after the image."""
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 1, 3)
    y = OPERATORS["Conv"].run({"pads": pads}, x, np.ones((1, 1, 1), np.float32))
    np.testing.assert_array_equal(y, np.pad(x, [(0, 0), (0, 0), pads]))


@pytest.mark.parametrize(
    ("channels", "w", "bias", "groups"),
    [(6, (4, 2, 3), None, 2), (4, (3, 2, 3), None, 2), (4, (4, 2, 3), 3, 2), (4, (4, 2, 3), None, 1)],
)
def test_operands_that_do_not_go_together(channels, w, bias, groups):
    operands = [np.ones(shape, np.float32) for shape in ((1, channels, 5), w, *[bias] * (bias is not None))]
    with pytest.raises(ValueError, match=f"Conv: .* do not go together in {groups} groups"):
        OPERATORS["Conv"].run({"group": groups}, *operands)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_nothing_to_multiply(shape):
    got = OPERATORS["MatMul"].run({}, np.ones(shape, np.float32), np.ones((shape[1], 5), np.float32))
    np.testing.assert_array_equal(got, np.zeros((shape[0], 5)))


def test_what_is_left_to_numpy():
    w = np.zeros((1 << 10, 1 << 11), np.float32)
    assert dense_product.takes(64, np.empty((64, 1 << 10), np.float32), w)
    assert not dense_product.takes(65, np.empty((65, 1 << 10), np.float32), w)
    long = np.empty((1 << 14, 1 << 10), np.float32)
    assert dense_product.takes(12, np.empty((12, 1 << 14), np.float32), long)
    assert not dense_product.takes(13, np.empty((13, 1 << 14), np.float32), long)
    assert not dense_product.takes(1, w.astype(np.float64), w)
