"""Networks on a GPU, by a stand-in for CuPy with the CPU's kernels: what they move, and what a graph is made of."""

from importlib.util import find_spec
from types import SimpleNamespace

import fake_cupy
import numpy as np
import pytest
from gpus import a_gpu
from paths import PACKAGED
from trained_networks import NAMES, network_file

import quantarray as qa
from quantarray.backends.registry import cupy
from quantarray.nn import Conv2d, Dense, MaxPool2d, Sequential, load_network

captures = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="needs numba-cuda")


def residual():
    """A first layer of bytes, a residual block, average pooling into thresholds, scores."""
    rng = np.random.default_rng(0)

    def weight(*shape):
        return qa.encode(rng.choice((-1, 1), shape), (-1, 1))

    cut = qa.Thresholds(np.array([[-9, 0, 9]] * 64), into=qa.uint2)
    into, block = Conv2d(weight(64, 3, 3, 3), padding=1, requantize=cut), weight(64, 3, 3, 64)
    out = qa.Thresholds(np.array([[-2.0, 1.0, 3.0]] * 64), into=qa.uint2)

    def layers(device):
        inner = Conv2d(block, padding=1, requantize=cut).to_device(device)
        return Sequential([
            into.to_device(device),
            lambda x: qa.add(x, inner(x)),
            MaxPool2d(2),
            lambda x: qa.avg_pool2d(x, 2, requantize=out),
            Dense(dense).to_device(device),
        ])  # fmt: skip

    dense = weight(10, 2 * 2 * 64)
    return layers, rng.integers(0, 256, (2, 8, 8, 3), np.uint8)


def values(x):
    return x.dequantize() if isinstance(x, qa.QuantArray) else x


@pytest.mark.parametrize("name", [*NAMES, "digits"])
def test_trained_networks_move_nothing(name):
    network = load_network(PACKAGED if name == "digits" else network_file(name))
    raw = network.plain.input[:2]
    with fake_cupy.gpu():
        there, x = network.to_device("cuda"), fake_cupy.asarray(raw)
        assert qa.asnumpy(values(there(x))).tolist() == network.plain.expected[:2].tolist()
        del fake_cupy.waits[:]
        got = there(x)
        # Bytes are looked at only where the input table lacks some
        assert fake_cupy.waits == (["a value is read"] if len(network.plain.input_table) < 256 else [])
        assert isinstance(got, qa.CuQuantArray if network.layers.layers[-1].requantize else fake_cupy.ndarray)
        with pytest.raises(qa.DeviceError, match=r"x on cpu, w on cuda:0"):
            there(raw)


def test_a_residual_network_moves_nothing():
    layers, x = residual()
    expected = layers("cpu")(x)
    with fake_cupy.gpu():
        net, there = layers("cuda"), fake_cupy.asarray(x)
        net(there)
        del fake_cupy.waits[:]
        got = net(there)
        assert fake_cupy.waits == []
        np.testing.assert_array_equal(qa.asnumpy(got), expected)


def test_what_weights_keep_is_ready_for_every_stream():
    """The call that lays weights out waits for it once, since the next call may come on another stream."""
    x, w = (qa.encode(np.ones((n, 70), int), (-1, 1)) for n in (2, 3))
    with fake_cupy.gpu():
        x, w = x.to_device("cuda"), w.to_device("cuda")
        for waits in (True, False):
            del fake_cupy.waits[:]
            qa.linear(x, w)
            assert ("a stream is waited for" in fake_cupy.waits) == waits


@captures
@pytest.mark.parametrize("name", ["digits", "lfc-w1a1", "cnv-w1a1"])
def test_a_graph_is_captured_after_a_first_run_and_launched_in_one(name):
    network = load_network(PACKAGED if name == "digits" else network_file(name))
    raw = network.plain.input[:2]
    with fake_cupy.gpu():
        there, x = network.to_device("cuda"), fake_cupy.asarray(raw)
        there(x)
        del fake_cupy.events[:]
        there(x)
        layers = fake_cupy.events.copy()
        del fake_cupy.events[:]
        graph = there.graph(x)
        events = fake_cupy.events.copy()
        run = events[events.index("begin") + 1 : events.index("end")]
        assert run == layers and len(run) >= len(network.plain.layers)
        before = ["synchronize", "enter", "own memory", *run, "synchronize", "begin"]
        assert events == [*before, *run, "end", "shared memory", "exit"]
        del fake_cupy.events[:], fake_cupy.waits[:]
        other = fake_cupy.asarray(raw[::-1].copy())
        del fake_cupy.waits[:]
        out = graph(other)
        assert fake_cupy.events == ["launch"] and fake_cupy.waits == [] and out is graph.output
        assert qa.asnumpy(graph.input).tolist() == raw[::-1].tolist()
        assert qa.asnumpy(values(out)).tolist() == network.plain.expected[:2].tolist()  # the stand-in runs no graph
        for wrong in (x[:1], raw, x.astype(np.int8)):
            with pytest.raises(ValueError, match=r"graph: needs an input like the example, .* uint8 \(2, "):
                graph(wrong)
    with pytest.raises(qa.DeviceError, match="graph: needs an input on a GPU"):
        network.graph(raw)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*NAMES, "digits"])
def test_on_a_gpu(name):
    """The network gives the integers of its file, layer by layer and as one graph, for inputs other than the captured
    one."""
    network = load_network(PACKAGED if name == "digits" else network_file(name))
    raw, expected = network.plain.input[:4], network.plain.expected[:4]
    with a_gpu():
        there, x = network.to_device("cuda"), cupy("test").asarray(raw)
        assert qa.asnumpy(values(there(x))).tolist() == expected.tolist()
        graph = there.graph(x[::-1].copy())
        assert qa.asnumpy(values(graph(x))).tolist() == expected.tolist()
        assert qa.asnumpy(values(graph(x[::-1].copy()))).tolist() == expected[::-1].tolist()


@captures
def test_what_waits_cannot_be_captured():
    with fake_cupy.gpu():
        x = fake_cupy.asarray(np.zeros((2, 64), np.uint8))
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            Sequential([lambda x: qa.asnumpy(x)]).graph(x)
        assert not fake_cupy.cuda.Stream.capturing


class Marks:
    """CuPy's NVTX as far as it is used; notes what is entered, and what is left."""

    def __init__(self):
        self.seen, self.depth = [], 0

    def RangePush(self, name):
        self.seen.append(name)
        self.depth += 1

    def RangePop(self):
        self.depth -= 1


@pytest.fixture
def marks(monkeypatch):
    recorder = Marks()
    monkeypatch.setattr(fake_cupy.cuda, "nvtx", recorder, raising=False)
    return recorder


def test_each_layer_on_a_gpu_is_a_range(marks):
    layers, raw = residual()
    expected = Sequential(layers("cpu"))(raw)
    with fake_cupy.gpu():
        assert marks.seen == []
        network = Sequential(layers("cuda"))
        got = network(fake_cupy.asarray(raw))
        np.testing.assert_array_equal(qa.asnumpy(got), expected)
        assert marks.seen == ["0 Conv2d", "1 <lambda>", "2 MaxPool2d", "3 <lambda>", "4 Dense"] and marks.depth == 0
        marks.seen.clear()
        np.testing.assert_array_equal(Sequential(layers("cpu"))(raw), expected)
        assert marks.seen == []


def test_a_layer_that_raises_ends_its_range(marks):
    def broken(x):
        raise KeyError("broken")

    with fake_cupy.gpu(), pytest.raises(KeyError, match="broken"):
        Sequential([lambda x: x, broken])(fake_cupy.asarray(np.zeros(3)))
    assert marks.seen == ["0 <lambda>", "1 broken"] and marks.depth == 0


@pytest.mark.parametrize("nvtx", [None, SimpleNamespace(available=False)])
def test_layers_run_without_nvtx(nvtx, monkeypatch):
    """If CuPy was built without NVTX, its module says so, and layers run without ranges."""
    monkeypatch.setattr(fake_cupy.cuda, "nvtx", nvtx, raising=False)
    with fake_cupy.gpu():
        assert qa.asnumpy(Sequential([lambda x: x + 1])(fake_cupy.asarray(np.zeros(3)))).tolist() == [1, 1, 1]
