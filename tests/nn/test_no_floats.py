"""Between input and scores a packed network makes no float array of the data's size, and unpacks nothing.

Two witnesses, because each sees what the other cannot:

- `peak_bytes` has tracemalloc measure what each layer allocates at most, NumPy's buffers included, named or not. Packed
  data of b bits is b / 8 bytes an element; a copy in the smallest float is 2. So a layer that stays below 2 bytes for
  each element of its input, or of its output if that is less, made no such copy of either.
- `large_floats` traces every line of Python and looks at all local names and returned values. It knows dtypes, so it
  also tells apart what size does not: a float copy of the input image, which is small beside the first layer's output.

The tests below that leak on purpose show that the witnesses speak. Neither sees what a compiled kernel allocates
inside; kernels take scratch of a tile, 4 pixels by 32 channels, or of a band of tiles in bytes (`dot`).
"""

import gc
import sys
import tracemalloc

import numpy as np
import pytest
from paths import PACKAGED
from plain_files import Builder

import quantarray as qa
from quantarray.nn import Conv2d, Sequential, load_network
from quantarray.ops.words import conversion

pytestmark = pytest.mark.full
CONSTANTS = 64 * 128  # elements; float constants a channel may be there, and are fewer


@pytest.fixture(scope="module", params=["digits", "three bits"])
def network(request, tmp_path_factory):
    """A network and a batch for which every layer's data is larger than its constants."""
    if request.param == "digits":
        made = load_network(PACKAGED)
        return made, made.plain.input
    # Images enough that their data is larger than the buffers of all threads, which do not grow with it
    built = Builder(0, (12, 12, 3), table=range(-64, 64), samples=1024)
    built.conv((128, 3, 3), values=range(8), thresholds=7, pad=1, invert="mixed", strict=False).pool(2, 2)
    built.conv((70, 3, 3), values=(-1, 0, 3), thresholds=2, weights=(-1, 0, 1), pad=1, pad_value=-1)
    built.dense(3000, values=(1, -1), thresholds=1).dense(10)
    made = load_network(built.save(tmp_path_factory.mktemp("floats") / "net.npz"))
    return made, made.plain.input


# the witnesses


def peak_bytes(layers, x):
    """(bytes allocated at most, elements of the smaller of input and output) of each layer.

    A layer's share begins where the one before returned, so that what happens between two layers is in it.
    """
    found, alive = [], []  # what is kept alive is not freed inside the next layer's share

    def probe(layer):
        def call(v):
            out = layer(v)
            allocated = tracemalloc.get_traced_memory()[1] - found[-1]
            # The first layer's input is image bytes, which it may unroll; the last one's output is the scores
            ends = [int(np.prod(out.shape))] if layer is layers[0] else [int(np.prod(v.shape))]
            if isinstance(out, qa.QuantArray) and layer is not layers[0]:
                ends.append(out.size)
            found[-1] = (allocated, min(ends))
            alive.append(out)
            begin()
            return out

        return call

    def begin():
        tracemalloc.reset_peak()
        found.append(tracemalloc.get_traced_memory()[0])

    net = Sequential([probe(layer) for layer in layers])
    gc.collect()
    tracemalloc.start()
    try:
        begin()
        net(x)
    finally:
        tracemalloc.stop()
    return found[:-1]


def large_floats(call):
    """Names of float arrays of more than CONSTANTS elements that any Python function held or returned."""
    found = set()

    def look(frame, name, value, depth=0):
        if isinstance(value, np.ndarray):
            size = np.prod([n for n, s in zip(value.shape, value.strides, strict=True) if s], dtype=np.int64)
            if value.dtype.kind in "fc" and size > CONSTANTS:
                found.add(f"{frame.f_code.co_qualname}: {name} {value.dtype}")
        elif isinstance(value, qa.QuantArray) and hasattr(value, "_constants"):  # not while it is being made
            for constant, a, _ in value.constants.items():
                look(frame, f"{name}.{constant}", a)
        elif isinstance(value, (tuple, list)) and depth < 3:
            for item in value:
                look(frame, name, item, depth + 1)

    def trace(frame, event, arg):
        for name, value in list(frame.f_locals.items()):
            look(frame, name, value)
        if event == "return":
            look(frame, "its result", arg)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


# the networks


def too_much(layers, x):
    """Indices of the layers that allocate as much as a float16 copy of their data."""
    return [i for i, (allocated, elements) in enumerate(peak_bytes(layers, x)) if allocated >= 2 * elements]


def test_no_layer_allocates_as_much_as_floats_would(network):
    net, x = network
    encoded = net.encode_input(x)
    net.layers(encoded)  # compiles, and lays out the weights
    assert too_much(net.layers.layers, encoded) == []


def test_no_function_holds_a_float_array_of_data(network):
    net, x = network
    net(x)
    # A call lays out its work again, by arrays of costs, where another number of threads is free than before
    assert any(large_floats(lambda: net(x)) == set() for _ in range(4))


def test_nothing_is_unpacked(network, monkeypatch):
    def refuse(q):
        raise AssertionError(f"{q.shape} was unpacked")

    for name in ("codes", "dequantize"):
        monkeypatch.setattr(conversion, name, refuse)
    net, x = network
    scores = net(x)
    monkeypatch.undo()
    np.testing.assert_array_equal(scores, net.plain.expected[: len(x)])


# the witnesses themselves: each of these leaks is seen


def unpacked(q):
    """Through float32 and back."""
    values = q.dequantize().astype(np.float32)
    return qa.encode(values, values=q.dtype)


def temporary(q):
    """A float16 array that never has a name."""
    assert float((q.codes() * np.float16(1)).max()) >= 0
    return q


class Leaky(Conv2d):
    """Looks at its input as floats, inside the layer."""

    def __call__(self, x):
        values = (x.dequantize() if isinstance(x, qa.QuantArray) else x).astype(np.float32)
        return super().__call__(x) if values.size else None


def leaky_copy(layer):
    return Leaky(
        layer.weight,
        stride=layer.stride,
        padding=layer.padding,
        pad_value=layer.pad_value,
        requantize=layer.requantize,
    )


@pytest.mark.parametrize("leak", [unpacked, temporary])
def test_a_leak_between_layers_is_seen(network, leak):
    net, x = network
    encoded = net.encode_input(x)
    for at in range(1, len(net.layers)):
        layers = (*net.layers.layers[:at], leak, *net.layers.layers[at:])
        Sequential(layers)(encoded)
        assert at in too_much(layers, encoded)
        if leak is unpacked:
            assert "unpacked: values float32" in large_floats(lambda: Sequential(layers)(encoded))  # noqa: B023


def test_a_leak_inside_a_layer_is_seen(network):
    net, x = network
    encoded = net.encode_input(x)
    for at, layer in enumerate(net.layers):
        if not isinstance(layer, Conv2d):
            continue
        layers = (*net.layers.layers[:at], leaky_copy(layer), *net.layers.layers[at + 1 :])
        Sequential(layers)(encoded)
        assert any("Leaky" in name for name in large_floats(lambda: Sequential(layers)(encoded)))  # noqa: B023
        if at > 0:  # the input of the first layer is too small beside its output for the other witness
            assert at in too_much(layers, encoded)
