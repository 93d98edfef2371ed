"""Layers of `qa.nn` against the functions that they are, the arguments that both take, and what errors say."""

import inspect
from dataclasses import fields, replace

import fake_cupy
import numpy as np
import pytest

import quantarray as qa
from quantarray.nn import AvgPool2d, Conv2d, Dense, GlobalAvgPool, Map, MaxPool2d, Sequential, Threshold

RNG = np.random.default_rng(0)


def signs(*shape, axis=-1):
    return qa.encode(RNG.choice([-1, 1], shape), values=(-1, 1), axis=axis)


X = signs(2, 9, 8, 64)
W = signs(32, 3, 3, 64)
T = qa.Thresholds(np.sort(RNG.integers(-40, 40, (32, 3)), axis=1))

# the arguments

SAME = [
    *(
        (getattr(qa.nn, f"Conv{n}d"), getattr(qa, f"conv{n}d"), {"weight": "w"}, {"x", "w", "out", "residual"})
        for n in (1, 2, 3)
    ),
    *(
        (
            getattr(qa.nn, f"ConvTranspose{n}d"),
            getattr(qa, f"conv_transpose{n}d"),
            {"weight": "w"},
            {"x", "w", "out", "flip_kernel"},
        )
        for n in (1, 2, 3)
    ),
    (qa.nn.ChannelShuffle, qa.channel_shuffle, {}, {"x"}),
    (qa.nn.Add, qa.add_residual, {}, {"x", "residual"}),
    (Dense, qa.linear, {"weight": "w"}, {"x", "w", "out", "quantize_x", "rotate", "normalize"}),
    *((getattr(qa.nn, f"MaxPool{n}d"), getattr(qa, f"max_pool{n}d"), {}, {"x"}) for n in (1, 2, 3)),
    *((getattr(qa.nn, f"AvgPool{n}d"), getattr(qa, f"avg_pool{n}d"), {}, {"x"}) for n in (1, 2, 3)),
    (
        GlobalAvgPool,
        qa.avg_pool2d,
        {},
        {"x", "size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad"},
    ),
    (Threshold, qa.Thresholds.__call__, {"thresholds": "self"}, {"self", "values"}),
    (Map, qa.map, {"of": None, "values": None}, {"q"}),
]


@pytest.mark.parametrize(("layer", "function", "of_layer", "of_call"), SAME, ids=[s[0].__name__ for s in SAME])
def test_a_layer_takes_every_argument_of_its_function(layer, function, of_layer, of_call):
    """A layer has the function's defaults and types, except for operands of the call."""
    taken = {n: p for n, p in inspect.signature(function).parameters.items() if n not in of_call}
    held = {f.name: f for f in fields(layer) if f.name not in of_layer}
    assert held.keys() == taken.keys()
    parameters = inspect.signature(layer).parameters
    for name, parameter in taken.items():
        assert parameters[name].default == parameter.default, name
        types = (getattr(p.annotation, "__name__", str(p.annotation)) for p in (parameters[name], parameter))
        assert len(set(types)) == 1, name
        if parameter.default is not inspect.Parameter.empty:
            usual = held[name].default
            assert usual == parameter.default and type(usual) is type(parameter.default), name


CONVOLUTIONS = {
    "plain": {},
    "bias": {"bias": RNG.integers(-9, 9, 32)},
    "float bias": {"bias": RNG.normal(size=32)},
    "stride and padding": {"stride": (2, 1), "padding": ((1, 0), (2, 1)), "pad_value": -1},
    "same": {"padding": "same"},
    "dilation": {"dilation": 2, "padding": 2},
    "flipped": {"flip_kernel": True, "padding": 1},
    "wide": {"out_dtype": np.int64},
    "codes": {"requantize": T, "padding": 1, "bias": np.arange(32)},
}


def equal(a, b):
    if isinstance(b, qa.QuantArray):
        assert a.dtype == b.dtype
        a, b = a.dequantize(), b.dequantize()
    np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name):
    options = CONVOLUTIONS[name]
    equal(Conv2d(W, **options)(X), qa.conv2d(X, W, **options))
    first = [q.transpose(0, 3, 1, 2) for q in (X, W)]
    layer = Conv2d(first[1], data_format="NCHW", **options)
    equal(layer(first[0]), qa.conv2d(*first, data_format="NCHW", **options))
    assert layer.name == "conv2d 3x3 64 -> 32" and layer.takes == "[n 64 h w]"
    assert repr(layer).startswith("Conv2d([n 64 h w] -> [n 32 h w], 3x3, ")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_of_all_axes(axes):
    """Every argument reaches the function, in both data formats, and a file holds them."""
    x, w = {1: X[:, 0], 2: X, 3: X[:, None]}[axes], {1: W[:, 0], 2: W, 3: W[:, :1]}[axes]
    w = w if axes < 3 else W.reshape(32, 1, 3, 3, 64)
    to_first, image = (0, axes + 1, *range(1, axes + 1)), {1: "NCW", 2: "NCHW", 3: "NCDHW"}[axes]
    plain = {"padding": "same", "bias": np.arange(32), "stride": 2}
    for name, options in ((f"conv{axes}d", {"pad_value": 1}), (f"conv_transpose{axes}d", {"output_padding": 1})):
        kind = getattr(qa.nn, name.title().replace("_", "").replace("D", "d"))
        for codes in ({}, {"requantize": T}):
            how, run = {**plain, **options, **codes}, getattr(qa, name)
            equal(kind(w, **how)(x), run(x, w, **how))
            layer = kind(w.transpose(*to_first), data_format=image, **how)
            equal(
                layer(x.transpose(*to_first)),
                run(x.transpose(*to_first), w.transpose(*to_first), data_format=image, **how),
            )
            assert layer.name.startswith(f"{name} ") and layer.name.endswith(" 64 -> 32")
            assert repr(layer).startswith(f"{kind.__name__}([n 64 ") and "stride=2" in repr(layer)
        with pytest.raises(ValueError, match=rf"{name} .* takes .*: x .* looks like {image}; pass x.transpose"):
            kind(w, **plain)(x.transpose(*to_first))
        with pytest.raises(TypeError, match=f"{kind.__name__}: weight must be a QuantArray"):
            kind(w[0])


def test_channels_are_joined_cut_and_shuffled():
    """Packed and dense alike; a list goes from layer to layer."""
    whole = Sequential([qa.nn.Split([13, 40]), qa.nn.Concat()])
    shuffled, first = qa.nn.ChannelShuffle(4), qa.nn.ChannelShuffle(4, axis=1)
    values = X.dequantize()
    for x in (X, values):
        equal(whole(x), x)
        parts = qa.nn.Split(4)(x)
        assert [part.shape for part in parts] == [(2, 9, 8, 16)] * 4
        by_hand = values.reshape(2, 9, 8, 4, 16).swapaxes(3, 4).reshape(values.shape)
        got = shuffled(x)
        equal(got.dequantize() if isinstance(got, qa.QuantArray) else got, by_hand)
        equal(first(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1), got)
    equal(qa.nn.Concat(axis=1)([X.transpose(0, 3, 1, 2)] * 2), qa.concat([X, X], axis=3).transpose(0, 3, 1, 2))
    with pytest.raises(ValueError, match=r"64 channels .* are no multiple of 5 groups"):
        qa.nn.ChannelShuffle(5)(X)
    with pytest.raises(
        TypeError, match=r"concat takes a list of arrays .*: concat: needs a list of arrays, got one Quant"
    ):
        qa.nn.Concat()(X)


def test_conv2d_of_groups():
    grouped, depthwise = signs(32, 3, 3, 16), signs(64, 3, 3, 1, axis=0)
    equal(Conv2d(grouped, groups=4)(X), qa.conv2d(X, grouped, groups=4))
    equal(Conv2d(depthwise, groups=64, padding=1)(X), qa.conv2d(X, depthwise, groups=64, padding=1))
    assert Conv2d(grouped, groups=4).takes == "[n h w 64]" == Conv2d(depthwise, groups=64).takes


def test_dense():
    w, bias = signs(5, 9 * 8 * 64), RNG.integers(-9, 9, 5)
    rows = X.reshape(2, -1)
    equal(Dense(w, bias=bias)(X), qa.linear(rows, w, bias=bias))
    equal(Dense(w, bias=bias, out_dtype=np.int64)(rows), qa.linear(rows, w, bias=bias, out_dtype=np.int64))
    equal(Dense(w, qa.Thresholds([0]), bias=bias)(X), qa.linear(rows, w, bias=bias, requantize=qa.Thresholds([0])))


def test_a_bias_is_a_copy_that_does_not_change():
    bias = np.arange(32)
    layer = Conv2d(W, bias=bias)
    before = layer(X)
    bias[:] = 100
    equal(layer(X), before)
    with pytest.raises(ValueError, match="read-only"):
        layer.bias[0] = 1


@pytest.mark.parametrize("x", [X, qa.conv2d(X, W)], ids=["packed", "integers"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pools_over_lines_and_volumes(axes, x):
    """Every argument reaches the function; a pool of indices gives both results."""
    x = {1: x[:, 0], 2: x, 3: x[:, None]}[axes]
    first = x.transpose(0, axes + 1, *range(1, axes + 1))
    image = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[axes]
    mean, largest = getattr(qa, f"avg_pool{axes}d"), getattr(qa, f"max_pool{axes}d")
    size = (1,) * (axes - 1) + (2,)
    for options in ({}, {"stride": 3, "ceil_mode": True}, {"dilation": 2, "padding": 1 if axes == 1 else "same"}):
        for data, data_format in ((x, {}), (first, {"data_format": image})):
            layer = getattr(qa.nn, f"MaxPool{axes}d")(size, **options, **data_format)
            equal(layer(data), largest(data, size, **options, **data_format))
            layer = getattr(qa.nn, f"AvgPool{axes}d")(size, **options, **data_format, count_include_pad=True)
            equal(layer(data), mean(data, size, **options, **data_format, count_include_pad=True))
    pair = getattr(qa.nn, f"MaxPool{axes}d")(size, return_indices=True)(x)
    for got, expected in zip(pair, largest(x, size, return_indices=True), strict=True):
        equal(got, expected)
    cut = qa.Thresholds(np.zeros((x.shape[-1], 1)))
    layer = getattr(qa.nn, f"AvgPool{axes}d")(size, requantize=cut)
    equal(layer(x), mean(x, size, requantize=cut))
    assert repr(layer).endswith(", out=1-bit bipolar)") and layer.name.startswith(f"avg_pool{axes}d ")


@pytest.mark.parametrize("x", [X, qa.conv2d(X, W), qa.conv2d(X, W) / 3], ids=["packed", "integers", "floats"])
def test_pooling(x):
    first = x.transpose(0, 3, 1, 2)
    cut = qa.Thresholds(np.zeros((x.shape[3], 1)))
    for options in ({}, {"stride": 1}, {"padding": 1, "stride": (1, 2)}):
        equal(MaxPool2d(2, **options)(x), qa.max_pool2d(x, 2, **options))
        equal(AvgPool2d((2, 3), **options)(x), qa.avg_pool2d(x, (2, 3), **options))
        equal(
            MaxPool2d(2, data_format="NCHW", **options)(first), qa.max_pool2d(first, 2, data_format="NCHW", **options)
        )
    equal(AvgPool2d(2, data_format="NCHW")(first), qa.avg_pool2d(first, 2, data_format="NCHW"))
    means = qa.avg_pool2d(x, x.shape[1:3])[:, 0, 0]
    equal(GlobalAvgPool()(x), means)
    equal(GlobalAvgPool(data_format="NCHW")(first), means)
    if isinstance(x, qa.QuantArray):
        equal(AvgPool2d(2, requantize=cut)(x), qa.avg_pool2d(x, 2, requantize=cut))
        codes = GlobalAvgPool(requantize=cut)(x)
        assert codes.shape == (2, 64)
        equal(codes, cut(means))
        equal(GlobalAvgPool(requantize=cut, data_format="NCHW")(first), cut(means))


def test_threshold():
    sums = qa.conv2d(X, W)
    equal(Threshold(T)(sums), T(sums))
    equal(Threshold(T, axis=1)(sums.transpose(0, 3, 1, 2)), T(sums.transpose(0, 3, 1, 2), axis=1))
    assert Threshold(T).name == "threshold -> 2-bit uint2"


def test_map():
    q = qa.encode(RNG.integers(0, 4, (3, 70)), values=range(4))
    equal(Map(np.tanh)(q), qa.map(np.tanh, q))
    calls = []

    def f(v):
        calls.append(v)
        return 7 - v * v

    layer = Map(f, of=qa.uint2)
    equal(layer(q), qa.map(lambda v: 7 - v * v, q))
    equal(layer(q[:1]), qa.map(lambda v: 7 - v * v, q[:1]))
    assert len(calls) == 1 and repr(layer) == "Map(f, of=uint2)"
    floats = Map(np.sqrt, of=qa.uint2)
    equal(floats(q), qa.map(np.sqrt, q))
    with pytest.raises(ValueError, match="map sqrt takes a packed array of uint2: Map: x must be uint2, got ternary; "):
        floats(qa.encode([1, -1, 0], values=(-1, 0, 1)))
    with pytest.raises(ValueError, match="got uint2 with constants"):
        floats(qa.from_codes([0, 3], qa.uint2, scale=2.0))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("last", ["layer", "thresholds", "pool"])
def test_pools_before_thresholds_run_on_codes(axes, last):
    """A convolution, a pool and thresholds, some of which count downwards: no integers are pooled."""
    x, w = {1: X[:, 0], 2: X, 3: X[:, None]}[axes], {1: W[:, 0], 2: W, 3: W.reshape(32, 1, 3, 3, 64)}[axes]
    greater, falling = RNG.random(32) < 0.5, RNG.random(32) < 0.5
    law = qa.Thresholds(np.sort(RNG.integers(-40, 40, (32, 3)), axis=1), greater=greater, strict=RNG.random(32) < 0.5)
    conv, pool = getattr(qa.nn, f"Conv{axes}d"), getattr(qa.nn, f"MaxPool{axes}d")
    size = (1,) * (axes - 1) + (2,)
    cut = {"layer": [Threshold(law)], "thresholds": [law], "pool": []}[last]
    for options in ({}, {"falling": falling}):
        pools = pool(size, stride=1, **options, requantize=law if last == "pool" else None)
        net = Sequential([conv(w, padding="same", bias=np.arange(32)), pools, *cut])
        integers = getattr(qa, f"max_pool{axes}d")(net.layers[0](x), size, stride=1, **options)
        equal(net(x), law(integers))
        assert [step.name for step in net._steps] == [f"0 Conv{axes}d", f"1 MaxPool{axes}d"]
        equal(net._steps[0].operator.run({}, x), law(net.layers[0](x)))
    kept = [  # other axes, other channels, indices, a second use of codes
        Sequential([conv(w), pool(2), Threshold(qa.Thresholds([0]), axis=0)]),
        Sequential([conv(w), pool(2), qa.Thresholds(np.zeros((31, 1)))]),
        Sequential([conv(w), pool(2, return_indices=True), law]),
        Sequential([conv(w, requantize=law), pool(2)]),
        Sequential([conv(w), pool(2), qa.Thresholds([0, 5], into=qa.integers(5, 0, 3), by_rank=False)]),
    ]
    assert all(len(net._steps) == len(net) for net in kept)


def test_shortcuts():
    """A residual block by one layer, and by a layer that adds."""
    conv = Conv2d(signs(64, 3, 3, 64), padding=1)
    law = qa.Thresholds(np.zeros((64, 1)))
    total = conv(X) + X.dequantize()
    equal(conv(X, X), total)
    equal(replace(conv, requantize=law)(X, X), law(total))
    both = replace(conv, requantize=law, return_sum=True)
    for got, expected in zip(both(X, X), (total, law(total)), strict=True):
        equal(got, expected)
    for got, expected in zip(qa.nn.Add(law, return_sum=True)([conv(X), X]), (total, law(total)), strict=True):
        equal(got, expected)
    assert repr(qa.nn.Add(axis=1)) == "Add(axis=1)" and qa.nn.Add().name == "add"
    with pytest.raises(TypeError, match=r"conv2d .*: return_sum=True needs residual="):
        both(X)
    with pytest.raises(TypeError, match="add takes a list of two arrays"):
        qa.nn.Add()([X])


def test_residual_block():
    """Layers in a row, whose sum with their input is cut again, as a graph of them would be."""
    block = Sequential([Conv2d(W, padding=1, requantize=T), Conv2d(signs(64, 3, 3, 32), padding=1, bias=np.arange(64))])
    total = block(X) + 9 * X.dequantize()
    codes = Sequential([Threshold(qa.Thresholds([0, 20, 90])), MaxPool2d(3), GlobalAvgPool()])(total)
    by_hand = qa.max_pool2d(qa.Thresholds([0, 20, 90])(total), 3)
    equal(codes, qa.avg_pool2d(by_hand, by_hand.shape[1:3])[:, 0, 0])


def test_layers_on_a_gpu():
    """By a stand-in: layers without weights accept arrays of the device, and the bias moves with the weight."""
    x = RNG.integers(0, 100, (2, 9, 8, 3)).astype(np.uint8)
    conv = Conv2d(signs(32, 3, 3, 3), bias=np.arange(32), stride=2)
    for last in (Threshold(T), AvgPool2d(2), GlobalAvgPool(), GlobalAvgPool(requantize=T)):
        net = Sequential([conv, last])
        with fake_cupy.gpu():
            on_gpu = qa.asnumpy(net.to_device("cuda")(fake_cupy.asarray(x)))
        equal(on_gpu, net(x))


# what is wrong

CONV, DENSE = Conv2d(W), Dense(signs(5, 64))
CALLS = {
    "another number of channels": (CONV, signs(2, 9, 8, 32), ValueError, "conv2d 3x3 64 -> 32 takes [n h w 64]",
                                   "x has 32 channels", "w takes 64"),
    "NCHW packed": (CONV, X.transpose(0, 3, 1, 2), ValueError, "takes [n h w 64]",
                    "looks like NCHW", "x.transpose(0, 2, 3, 1)"),
    "NCHW packed on another axis": (CONV, signs(2, 64, 9, 8), ValueError, "takes [n h w 64]",
                                    "x.transpose(0, 2, 3, 1)"),
    "NCHW bytes": (Conv2d(signs(4, 3, 3, 3)), np.ones((1, 3, 9, 9), np.uint8), ValueError, "takes [n h w 3]",
                   "x.transpose(0, 2, 3, 1)"),
    "NHWC to a layer of NCHW": (Conv2d(W.transpose(0, 3, 1, 2), data_format="NCHW"), X, ValueError,
                                "takes [n 64 h w]", "looks like NHWC", "x.transpose(0, 3, 1, 2)"),
    "no batch axis": (CONV, X[0], ValueError, "takes [n h w 64]", "x[None] adds the batch axis"),
    "floats": (CONV, X.dequantize().astype(np.float32), TypeError, "takes [n h w 64]", "float32 array (2, 9, 8, 64)"),
    "integers": (CONV, X.dequantize(), TypeError, "takes [n h w 64]", "x.astype(np.int8)"),
    "too small": (CONV, X[:, :2], ValueError, "takes [n h w 64]", "does not fit into the image 2x8"),
    "dense of another length": (DENSE, signs(2, 65), ValueError, "dense 64 -> 5 takes [n 64]", "same last length"),
    "dense of another image": (DENSE, X, ValueError, "dense 64 -> 5 takes [n 64]", "64 elements a sample"),
    "pool without batch": (MaxPool2d(2), X[0], ValueError, "max_pool2d 2x2 takes [n h w c]", "x[None]"),
    "pool of NCHW": (AvgPool2d(2), X.transpose(0, 3, 1, 2), ValueError, "avg_pool2d 2x2 takes [n h w c]",
                     'data_format="NCHW"'),
    "global pool of rows": (GlobalAvgPool(), np.ones((2, 3)), ValueError, "global_avg_pool takes [n h w c]"),
    "no image": (GlobalAvgPool(), np.ones((2, 0, 3, 4)), ValueError, "global_avg_pool takes", "size must be at least"),
    "thresholds of packed": (Threshold(T), X, TypeError, "threshold -> 2-bit uint2 takes a dense result"),
    "thresholds of others": (Threshold(T), np.ones((2, 5), np.float32), ValueError, "of 32 channels on axis -1"),
    "map of dense": (Map(np.abs), np.ones(3), TypeError, "map absolute takes a packed array"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_errors_name_the_layer_what_it_takes_and_the_fix(name):
    layer, x, error, *texts = CALLS[name]
    for call, start in ((layer, ""), (Sequential([lambda x: x, layer]), "layer 1, ")):
        with pytest.raises(error) as caught:
            call(x)
        assert type(caught.value) is error and str(caught.value).startswith(start + layer.name)
        for text in texts:
            assert text in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Conv2d(W, stride=0), ValueError, "Conv2d: stride must be at least 1, got 0"),
        (lambda: Conv2d(W, padding=-1), ValueError, "Conv2d: padding must be at least 0"),
        (lambda: Conv2d(W, padding="SAME"), ValueError, "Conv2d: padding must be .*write 'same'"),
        (lambda: Conv2d(W, dilation=(1, 2, 3)), ValueError, "Conv2d: dilation must be"),
        (lambda: Conv2d(W, groups=5), ValueError, "Conv2d: groups must divide the 32 outputs of weight, got 5"),
        (lambda: Conv2d(W, groups=0), ValueError, "Conv2d: groups must be at least 1"),
        (lambda: Conv2d(W, bias=[1, 2]), ValueError, r"Conv2d: bias must be numbers \[32\]"),
        (lambda: Conv2d(W, pad_value="a"), TypeError, "Conv2d: pad_value must be a number"),
        (lambda: Conv2d(W, data_format="channels_first"), ValueError, "Conv2d: data_format .*write 'NCHW'"),
        (lambda: Conv2d(W, data_format="NCHW"), TypeError, r"\[o c/groups kh kw\] packed on axis 1, got .* axis 3"),
        (lambda: Conv2d(W, flip_kernel=1), TypeError, "Conv2d: flip_kernel must be True or False"),
        (lambda: Conv2d(W, out_dtype=np.int8), TypeError, "Conv2d: out_dtype must be one of"),
        (lambda: Conv2d(W, requantize=[0]), TypeError, "Conv2d: requantize must be a Thresholds"),
        (lambda: Conv2d(W, requantize=qa.Thresholds(np.ones((5, 1)))), ValueError, "Conv2d: requantize has .* 5 chan"),
        (lambda: Dense(signs(5, 64), bias=["a"]), TypeError, "Dense: bias must be an array of"),
        (lambda: Dense(signs(5, 64), requantize=qa.relu), TypeError, "Dense: requantize must be a Thresholds"),
        (lambda: MaxPool2d(2, data_format="NHCW"), ValueError, "MaxPool2d: data_format must be one of"),
        (lambda: MaxPool2d(2, padding=(1, 2, 3, 4)), ValueError, "MaxPool2d: padding must be"),
        (lambda: AvgPool2d(0), ValueError, "AvgPool2d: size must be at least 1"),
        (lambda: AvgPool2d(2, requantize=3), TypeError, "AvgPool2d: requantize must be a Thresholds or None, got int"),
        (lambda: GlobalAvgPool(requantize=3), TypeError, "GlobalAvgPool: requantize must be"),
        (lambda: GlobalAvgPool(data_format=1), ValueError, "GlobalAvgPool: data_format must be"),
        (lambda: Threshold([0]), TypeError, "Threshold: thresholds must be a Thresholds, got list"),
        (lambda: Threshold(T, axis=1.5), TypeError, "Threshold: axis must be an integer"),
        (lambda: Map(3), TypeError, "Map: f must be a function, got int"),
        (lambda: Map(np.abs, of=qa.uniform(2)), TypeError, "Map: of must be an integer dtype"),
        (lambda: Map(np.log, of=qa.uint2), ValueError, "Map: the result of f must be finite, got -inf"),
        (lambda: Map(np.sum, of=qa.uint2), ValueError, r"Map: f must give one number for each of 4 levels, got \(\)"),
    ],
)
def test_arguments_that_fit_no_input(make, error, message):
    with pytest.raises(error, match=message), np.errstate(all="ignore"):
        make()


def test_an_empty_batch_gives_an_empty_result():
    assert CONV(X[:0]).shape == (0, 7, 6, 32) and MaxPool2d(2)(X[:0]).shape == (0, 4, 4, 64)
    assert GlobalAvgPool()(X[:0]).shape == (0, 64) and Dense(signs(5, 4608))(X[:0]).shape == (0, 5)


def test_reprs():
    layers = {
        "AvgPool2d(2x2, padding=1, out=1-bit bipolar)": AvgPool2d(2, padding=1, requantize=qa.Thresholds([0])),
        "GlobalAvgPool()": GlobalAvgPool(),
        "GlobalAvgPool(data_format=NCHW)": GlobalAvgPool(data_format="NCHW"),
        "MaxPool2d(3x3, data_format=NCHW)": MaxPool2d(3, data_format="NCHW"),
        "Threshold(Thresholds(1 for all channels, into=bipolar), axis=1)": Threshold(qa.Thresholds([0]), axis=1),
        "Dense([n 64] -> [n 5], bias, weight=1-bit bipolar, out=dense)": Dense(signs(5, 64), bias=np.zeros(5)),
    }
    for text, layer in layers.items():
        assert repr(layer) == text
