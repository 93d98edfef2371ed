"""Packed networks against the oracle's values: `naive.run_layers` knows nothing of bits."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_files import Builder, small

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.nn import Conv2d, Dense, MaxPool2d, Sequential, load_network
from quantarray.nn.network import smallest_dtype

INPUT_TABLES = {
    "signs": (-1, 1),
    "signs turned": (1, -1, 1),
    "ternary": (0, 1, -1),
    "uneven": (-1, 0, 3),
    "one level": (2,),
    "codes": range(8),
    "pixels": range(-128, 128),
    "bytes": range(256),
    "few far apart": (0, 255),
}

# name -> builder with every layer but the scores
CASES = {
    "inverted": lambda: Builder(1, (6, 6, 70)).conv((9, 3, 3), pad=1, invert="mixed"),
    "not strict": lambda: Builder(2, (6, 6, 70)).conv((9, 3, 3), pad=1, strict=False),
    "inverted, not strict": lambda: Builder(3, (6, 6, 70)).conv(
        (9, 3, 3), pad=1, strict=False, invert="mixed", values=(-1, 0, 1), thresholds=2
    ),
    "pad value": lambda: (
        Builder(4, (5, 6, 10))
        .conv((65, 3, 3), pad=1, pad_value=-1)
        .conv((3, 3, 3), pad=[0, 2], pad_value=1)
        .conv((5, 1, 1), pad=1, pad_value=7)
    ),
    "falling values": lambda: Builder(5, (6, 6, 4)).conv((70, 3, 3), values=(1, -1)).pool(2, 1),
    "falling values inverted": lambda: Builder(6, (6, 6, 4)).conv(
        (9, 3, 3), values=(1, -1), invert="mixed", strict=False
    ),
    "uneven values": lambda: (
        Builder(7, (9, 9, 4))
        .conv((9, 3, 3), values=(-1, 0, 3), thresholds=2)
        .pool(3, 2)
        .conv((6, 2, 2), values=(3, -2, 10, 0), thresholds=3)
    ),
    "unordered values": lambda: (
        Builder(8, (7, 6, 4), table=range(4))
        .conv((66, 3, 3), values=(2, -5, 7, 0), thresholds=3, invert="mixed")
        .pool(2, 2, pad=[1, 1])
    ),
    "ternary weights": lambda: Builder(9, (6, 6, 4), table=range(4)).conv((9, 3, 3), weights=(-1, 0, 1)),
    "3-bit weights": lambda: Builder(10, (6, 6, 4)).conv(
        (9, 3, 3), weights=range(-4, 4), values=range(4), thresholds=3, pad=1
    ),
    "8-bit weights": lambda: Builder(11, (6, 6, 4)).conv((9, 3, 3), weights=range(-128, 128)),
    "one weight": lambda: Builder(12, (6, 6, 4)).conv((9, 3, 3), weights=(0,)).conv((9, 1, 1), weights=(5,)),
    "many thresholds": lambda: Builder(13, (6, 6, 20), table=range(256)).conv(
        (9, 3, 3), values=range(-100, 100), thresholds=199, invert="mixed"
    ),
    "most thresholds": lambda: (
        Builder(14, (6, 6, 20), table=range(256)).conv((9, 3, 3), values=range(256), thresholds=255).pool(2, 2)
    ),
    "asymmetric pool": lambda: (
        Builder(15, (7, 7, 4), table=range(8))
        .conv((70, 3, 3), values=range(8), thresholds=7)
        .pool(2, 1, pad=[0, 1])
        .pool(3, 2, pad=[1, 0])
    ),
    "pool first": lambda: Builder(16, (8, 8, 3), table=range(-100, 100)).pool(2, 2).conv((9, 3, 3)),
    "even and oblong kernels": lambda: (
        Builder(17, (9, 8, 3)).conv((9, 2, 2), pad=[0, 1]).conv((9, 1, 4), stride=2).conv((9, 3, 1), pad=1, stride=3)
    ),
    "dense after 65 channels": lambda: Builder(18, (5, 5, 3)).conv((65, 3, 3)),
    "dense after 3 bits": lambda: Builder(19, (5, 5, 3)).conv((70, 3, 3), values=range(8), thresholds=7),
    "dense only": lambda: Builder(20, (100,)).dense(130, values=(-1, 1), thresholds=1, invert="mixed"),
    "dense of bytes": lambda: Builder(21, (100,), table=range(-50, 50)).dense(30, values=(1, 0, -1), thresholds=2),
}


def check(made, path, final=True):
    """The packed network gives the oracle's integers, and all arrays between hold their conditions."""
    if final:
        made.dense(10, weights=(-1, 0, 1))
    network = load_network(made.save(path))
    expected = made.expected()
    got = network(network.plain.input)
    if isinstance(got, qa.QuantArray):
        got = got.dequantize()
    assert got.dtype.kind == "i"
    np.testing.assert_array_equal(got, expected)
    for record, spec in zip(
        network.layers.trace(network.encode_input(network.plain.input)), network.plain.layers, strict=True
    ):
        assert record.shape[1:] == spec.shape
        if isinstance(record.output, qa.QuantArray):
            validate(record.output)
    return network


@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    check(CASES[name](), tmp_path / "net.npz")


@pytest.mark.parametrize("name", CASES)
def test_case_that_ends_in_codes(name, tmp_path):
    check(CASES[name](), tmp_path / "net.npz", final=False)


@pytest.mark.parametrize("name", INPUT_TABLES)
@pytest.mark.parametrize("shape", [(5, 4, 3), (70,)], ids=["image", "row"])
def test_input_table(name, shape, tmp_path):
    made = Builder(0, shape, table=INPUT_TABLES[name])
    if len(shape) == 3:
        made.conv((9, 3, 3), pad=1, pad_value=-1)
    check(made, tmp_path / "net.npz")


def test_inputs_of_many_levels_stay_dense(tmp_path):
    def encoded(table):
        network = load_network(Builder(0, (5, 4, 3), table=table).conv((2, 1, 1)).save(tmp_path / "net.npz"))
        return network.encode_input(network.plain.input)

    assert encoded(range(-8, 9)).dtype == np.int8
    assert encoded(range(100, 250)).dtype == np.uint8
    assert encoded(range(16)).dtype == qa.uint4
    assert encoded((1, -1, 1)).dtype == qa.bipolar
    assert encoded((-3, 1, 5)).dtype == qa.integers(-3, 1, 5)


@given(st.data())
def test_random_networks(tmp_path_factory, data):
    draw = data.draw
    made = Builder(
        draw(st.integers(0, 10**6)),
        (draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(st.sampled_from([1, 3, 64, 65]))),
        table=draw(st.sampled_from(list(INPUT_TABLES.values()))),
        samples=draw(st.integers(1, 3)),
    )
    for _ in range(draw(st.integers(1, 3))):
        height, width = made.shape[:2]
        pad = draw(st.sampled_from([0, 1, [0, 1], [2, 0]]))
        kernel = [draw(st.integers(1, min(3, n))) for n in (height, width)]
        count = draw(st.sampled_from([1, 1, 2, 3, 7]))
        values = draw(st.lists(st.integers(-9, 9), min_size=count + 1, max_size=count + 1, unique=True))
        made.conv(
            (draw(st.sampled_from([1, 5, 64, 66])), *kernel),
            weights=draw(st.sampled_from([(-1, 1), (-1, 0, 1), (0, 1), (-3, -1, 1, 3), (-2, 5)])),
            values=values,
            thresholds=count,
            stride=draw(st.integers(1, 2)),
            pad=pad,
            pad_value=draw(st.sampled_from([0, 0, 1, -1, 4])),
            strict=draw(st.booleans()),
            invert=draw(st.sampled_from([None, "mixed"])),
        )
        if min(made.shape[:2]) >= 2 and draw(st.booleans()):
            made.pool(2, draw(st.integers(1, 2)), pad=draw(st.sampled_from([0, 1, [0, 1]])))
    check(made, tmp_path_factory.mktemp("random") / "net.npz")


def test_batches_do_not_change_results(tmp_path):
    network = load_network(small().save(tmp_path / "net.npz"))
    x = network.plain.input
    parts = [network(x[i : i + 1]) for i in range(len(x))]
    np.testing.assert_array_equal(np.concatenate(parts), network(x))
    np.testing.assert_array_equal(network.layers(network.encode_input(x)), network(x))
    with pytest.raises(ValueError, match=r"x has an empty batch, \(0, 6, 5, 3\); pass at least one"):
        network(x[:0])
    with pytest.raises(ValueError, match="x has an empty batch"):
        network(network.encode_input(x)[:0])


def test_trace_records_every_layer(tmp_path):
    network = load_network(small().save(tmp_path / "net.npz"))
    first, pool, second, dense = network.layers.trace(network.encode_input(network.plain.input[:1]))
    assert (first.name, first.shape, first.bits, first.nbytes) == ("conv2d 3x3 3 -> 5", (1, 6, 5, 5), 1, 6 * 5 * 8)
    assert (pool.name, pool.shape, pool.weight_nbytes) == ("max_pool2d 2x2", (1, 3, 2, 5), 0)
    assert (second.bits, second.output.dtype) == (2, qa.integers(-1, 0, 3))
    assert (dense.bits, dense.nbytes, dense.weight_nbytes) == (32, 4 * 4, 4 * 8)
    assert network.layers.nbytes == sum(r.weight_nbytes for r in (first, second, dense))
    assert repr(network).startswith("Network('made up', uint8 [n 6 5 3] -> [n 4], Sequential(conv2d 3x3 3 -> 5, max_")


def test_shapes_of_images(tmp_path):
    """Height and width are the network's where a layer is dense; layout and channels always are."""
    network = load_network(small().save(tmp_path / "net.npz"))
    for shape, fix in {
        (6, 5, 3): r"; x\[None\] adds the batch axis",
        (2, 3, 6, 5): r"; it is NCHW, the network takes NHWC: x\.transpose\(0, 2, 3, 1\)",
        (2, 90): r"; x\.reshape\(-1, 6, 5, 3\)",
        (2, 6, 6, 3): "",
        (2, 6, 5, 1): "",
    }.items():
        got = re.escape(f"x must be ('N', 6, 5, 3), got {shape}")
        with pytest.raises(ValueError, match=f"^encode_input: {got}{fix}$"):
            network(np.zeros(shape, np.uint8))
    with pytest.raises(TypeError, match=r"needs uint8.*got int64 array.*; x\.astype\(np\.uint8\), if all values"):
        network(np.zeros((1, 6, 5, 3), int))
    anywhere = load_network(Builder(0, (6, 5, 3)).conv((4, 3, 3), pad=1).save(tmp_path / "any.npz"))
    assert anywhere(np.zeros((1, 9, 7, 3), np.uint8)).shape == (1, 9, 7, 4)
    with pytest.raises(ValueError, match="takes NHWC"):
        anywhere(np.zeros((1, 3, 6, 5), np.uint8))


def test_encode_input_refuses_what_the_table_does_not_have(tmp_path):
    network = load_network(small().save(tmp_path / "net.npz"))
    with pytest.raises(ValueError, match="the input table has 17 entries, got the byte 17"):
        network(np.full((1, 6, 5, 3), 17, np.uint8))
    with pytest.raises(TypeError, match=r"needs uint8.*got float64"):
        network.encode_input(np.zeros((1, 6, 5, 3)))


def test_dense_input_may_keep_its_image_axes(tmp_path):
    made = Builder(0, (12,)).dense(3)
    network = load_network(made.save(tmp_path / "net.npz"))
    images = network.plain.input.reshape(-1, 3, 4)
    np.testing.assert_array_equal(network(images), made.expected())
    with pytest.raises(ValueError, match=r"x must be \('N', 12\), got \(2, 3, 5\)$"):
        network(np.zeros((2, 3, 5), np.uint8))


def test_layers_by_hand():
    rng = np.random.default_rng(0)
    x = qa.encode(rng.choice([-1, 1], (2, 6, 6, 64)), values=(-1, 1))
    w = qa.encode(rng.choice([-1, 1], (70, 3, 3, 64)), values=(-1, 1))
    d = qa.encode(rng.choice([-1, 1], (10, 3 * 3 * 70)), values=(-1, 1))
    t = qa.Thresholds(rng.integers(-9, 9, (70, 1)))
    net = Sequential([Conv2d(w, padding=1, pad_value=-1, requantize=t), MaxPool2d(2), Dense(d)])
    hidden = qa.max_pool2d(qa.conv2d(x, w, padding=1, pad_value=-1, requantize=t), 2)
    np.testing.assert_array_equal(net(x), qa.linear(hidden.reshape(2, -1), d))
    assert len(net) == 3 and [layer.name for layer in net] == [
        "conv2d 3x3 64 -> 70",
        "max_pool2d 2x2",
        "dense 630 -> 10",
    ]


def test_layers_refuse_weights_of_another_shape():
    w = qa.encode(np.ones((2, 3), int), values=(-1, 1))
    with pytest.raises(TypeError, match=r"Conv2d: weight must be a QuantArray \[o kh kw c\].*got \(2, 3\)"):
        Conv2d(w)
    with pytest.raises(TypeError, match=r"Dense: weight must be a QuantArray.*got ndarray"):
        Dense(np.ones((2, 3)))
    with pytest.raises(TypeError, match="packed on axis 0"):
        Dense(qa.encode(np.ones((2, 3), int), values=(-1, 1), axis=0))
    with pytest.raises(TypeError, match="layers must be callable, got int"):
        Sequential([3])
    with pytest.raises(TypeError, match="Sequential: layers must be a list of callables, got NoneType"):
        Sequential(None)
    for size in ((2,), [1, 2, 3], 0):
        with pytest.raises(ValueError, match="MaxPool2d: size must be"):
            MaxPool2d(size)
    assert MaxPool2d([2, 3]).name == "max_pool2d 2x3"


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([1, 2], TypeError, "encode_input: needs uint8, the network's raw input, got int64 array"),
        (None, TypeError, "encode_input: x must be an array of"),
        (np.uint8(1), ValueError, r"encode_input: x must be \('N', .*got \(\)"),
        (np.zeros((2, 3)), TypeError, "encode_input: needs uint8.*got float64 array"),
        ([[1], [1, 2]], ValueError, "encode_input: x must be an array, or lists of equal lengths"),
        (np.zeros(12, np.uint8), ValueError, r"encode_input: x must be \('N', .*got \(12,\)"),
    ],
)
def test_networks_refuse_other_inputs(x, error, message, tmp_path):
    for made in (small(), Builder(0, (12,)).dense(3)):
        network = load_network(made.save(tmp_path / "net.npz"))
        for call in (network, network.encode_input):
            with pytest.raises(error, match=message):
                call(x)
        with pytest.raises(TypeError, match="encode_input: x is packed already"):
            network.encode_input(qa.encode(np.ones((1, 12), int), values=(-1, 1)))


def test_dense_takes_what_linear_takes():
    layer = Dense(qa.encode(np.ones((5, 12), int), values=(-1, 1)))
    for x, error, message in (
        (None, TypeError, "Dense: x must be a QuantArray or an int8/uint8 array, got NoneType"),
        (np.ones((2, 12)), TypeError, "Dense: x must be a QuantArray.*got float64 array"),
        (np.ones((2, 2, 5), np.int8), ValueError, r"Dense: x \(2, 2, 5\) must have the 12 elements a sample"),
        (np.int8([1]), ValueError, "linear: .*same last length"),
        (np.array(1, np.int8), ValueError, "linear: .*same last length"),
    ):
        with pytest.raises(error, match=message):
            layer(x)


def test_no_samples():
    layer = Dense(qa.encode(np.ones((5, 12), int), values=(-1, 1)))
    scaled = qa.quantize(np.ones((4, 2, 2, 3)), qa.Sign(scale=True), scale_axis=0)[:0]
    for x in (scaled, scaled.reshape(0, 12), np.zeros((0, 2, 2, 3), np.uint8), np.zeros((0, 12), np.int8)):
        assert layer(x).shape == (0, 5)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((-1, 1), qa.bipolar),
        ((1,), qa.bipolar),
        ((-1,), qa.bipolar),
        ((-1, 0, 1), qa.ternary),
        ((0, 1), qa.uint1),
        ((-1, 0), qa.integers(-1, 0)),
        ((-4, 3), qa.integers(-4, 3)),
        ((-4, -3, 3), qa.int3),
        ((-3, -1, 3), qa.integers(-3, -1, 1, 3)),
        ((-128, 127, 0), qa.int8),
        ((0,), qa.integers(0)),
    ],
)
def test_smallest_dtype(values, dtype):
    assert smallest_dtype(np.array(values)) == dtype


def test_thresholds_by_count():
    """`by_rank=False`: the code is the count, and values follow the order of `into`."""
    acc = np.array([[-5], [0], [5]])
    into = qa.integers(7, -7, 0)
    ranked = qa.Thresholds([-1, 1], into=into)
    counted = qa.Thresholds([-1, 1], into=into, by_rank=False)
    np.testing.assert_array_equal(ranked(acc).dequantize().ravel(), [-7, 0, 7])
    np.testing.assert_array_equal(counted(acc).dequantize().ravel(), [7, -7, 0])
