"""Codes that a plan stores as bytes between two kernels are those of the layers one by one, bit for bit."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import threads

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.cpu.int8 import stored_bytes
from quantarray.cpu.runtime import isa
from quantarray.nn.plan import memory, recording

_ACTIVATIONS = range(4), range(5), range(-3, 5), (-3, -1, 1, 3), range(16), range(-9, 3), range(32), range(256)
_WEIGHTS = (-1, 0, 1), range(-4, 4), range(-7, 8), range(-128, 128), range(256)


def _packed(rng, shape, levels, axis=-1):
    return qa.encode(rng.choice(np.array(levels), shape), values=levels, axis=axis)


def _thresholds(rng, channels, levels, reach):
    """Thresholds: evenly spaced, on a line and rounded, some a unit off, as PyTorch's are, or neither; some
    equal, some channels counting down.
    """
    count, kind = len(levels) - 1, rng.integers(3)
    if kind == 0:
        steps = rng.integers(0, max(2, 2 * reach // count), (channels, 1))
        values = rng.integers(-reach, reach + 1, (channels, 1)) + steps * np.arange(count)
    elif kind == 1:
        steps, middle = rng.uniform(0.2, 2, (2, channels, 1)) * [[[reach / count]], [[reach / 4]]]
        moved = rng.integers(-1, 2, (channels, count)) * (rng.random((channels, count)) < 0.01)
        values = np.sort(np.floor((np.arange(count) - count / 2) * steps + middle).astype(int) + moved, axis=1)
    else:
        values = np.sort(rng.integers(-reach, reach + 1, (channels, count)), axis=1)
    greater = rng.random(channels) < 0.7 if rng.random() < 0.3 else bool(rng.random() < 0.8)
    into = qa.integers(levels)
    return qa.Thresholds(values, into=into, greater=greater, strict=bool(rng.random() < 0.5))


def _layer(rng, channels, before, after, sides):
    """Return layers, their outputs and the sides of their images: a convolution, dense, in two groups of whole words,
    or depthwise; its thresholds may be a layer of their own.

    Windows may be larger along one axis, and padded where they are of one pixel.
    """
    levels, depthwise = _WEIGHTS[rng.integers(len(_WEIGHTS))], rng.random() < 0.3
    size = [(1, 1), (1, 1), (3, 3), (3, 3), (1, 3), (3, 1)][rng.integers(6)]
    dilation, stride = int(rng.choice([1, 1, 2])), int(rng.choice([1, 1, 2]))
    pads = [tuple(rng.integers(0, 2, 2).tolist()) for _ in size]
    spans = [n + sum(pad) - dilation * (k - 1) - 1 for n, pad, k in zip(sides, pads, size, strict=True)]
    if min(spans) < 0:
        return [], channels, sides
    groups = channels if depthwise else 2 if channels == 128 and rng.random() < 0.5 else 1
    outputs = channels if depthwise else int(rng.choice([2, 16, 34, 64, 100, 128]))
    w = _packed(rng, (outputs, *size, channels // groups), levels, axis=0 if depthwise else -1)
    most = max(map(abs, before)) * max(map(abs, levels))
    law = _thresholds(rng, outputs, after, most * int(1 + np.sqrt(size[0] * size[1] * channels // groups)))
    options = {"padding": tuple(pads), "stride": stride, "dilation": dilation, "groups": groups}
    alone = rng.random() < 0.3
    layers = [qa.nn.Conv2d(w, requantize=None if alone else law, **options), *[qa.nn.Threshold(law)] * alone]
    return layers, outputs, [n // stride + 1 for n in spans]


@st.composite
def _networks(draw):
    """A network of convolutions, the shape of its images and their levels."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = first = draw(st.sampled_from([3, 16, 64, 96, 128]))
    levels = before = draw(st.sampled_from(_ACTIVATIONS))
    sides = shape = [draw(st.integers(4, 12)) for _ in range(2)]
    layers = []
    for _ in range(draw(st.integers(2, 4))):
        after = draw(st.sampled_from(_ACTIVATIONS))
        more, channels, sides = _layer(rng, channels, before, after, sides)
        layers += more
        before = after if more else before
        if more and rng.random() < 0.3 and min(sides) > 1:
            size, stride, pad = int(rng.integers(2, 1 + min(3, *sides))), int(rng.integers(1, 3)), int(rng.integers(2))
            layers.append(qa.nn.MaxPool2d(size, stride=stride, padding=pad, falling=bool(rng.random() < 0.3)))
            sides = [(n + 2 * pad - size) // stride + 1 for n in sides]
    assume(layers)
    return qa.nn.Sequential(layers), (*shape, first), levels, rng


@pytest.fixture(autouse=True)
def _few_planes_too(monkeypatch):
    monkeypatch.setattr(stored_bytes, "LEAST", 2)


@pytest.fixture(autouse=True)
def _nothing_is_clear(monkeypatch):
    """Bytes are written whole: a plan's memory begins with ones."""
    plan = memory.Memory.__init__

    def filled(self, *arguments):
        plan(self, *arguments)
        self.bytes[...] = 255

    monkeypatch.setattr(memory.Memory, "__init__", filled)


@pytest.fixture
def stored(monkeypatch):
    """Count by kernel the arrays that launches have as bytes."""
    replace, names = recording.Launched.replace, Counter()

    def counted(launch, a, by):
        names[launch.name] += 1
        replace(launch, a, by)

    monkeypatch.setattr(recording.Launched, "replace", counted)
    return names


def _check(net, x, reuse=False):
    prepared = net.prepared(reuse=reuse)
    expected = net(x)
    for _ in range(3):
        result = prepared(x)
        validate(result)
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        assert np.array_equal(result.words, expected.words)


@given(_networks(), st.integers(1, 3), st.booleans(), st.booleans())
def test_random_networks(network, batch, reuse, many):
    net, shape, levels, rng = network
    with threads(many):
        _check(net, _packed(rng, (batch, *shape), levels), reuse)


@pytest.mark.parametrize("levels", _ACTIVATIONS, ids=lambda levels: f"{min(levels)} to {max(levels)}, {len(levels)}")
@pytest.mark.parametrize("channels", [8, 32, 40, 96, 128])
def test_blocks(stored, levels, channels):
    """Expansion, depthwise and projection: what the first two leave, two kernels alone read."""
    rng = np.random.default_rng(channels)
    w1 = _packed(rng, (channels, 1, 1, 48), range(-7, 8))
    w2 = _packed(rng, (channels, 3, 3, 1), range(-7, 8), axis=0)
    w3 = _packed(rng, (24, 3, 3, channels), range(-7, 8))
    reach = 7 * max(map(abs, levels))
    for stride in 1, 2:
        laws = [_thresholds(rng, channels, levels, factor * reach) for factor in (40, 3)]
        net = qa.nn.Sequential(
            [
                qa.nn.Conv2d(w1, requantize=laws[0]),
                qa.nn.Conv2d(w2, requantize=laws[1], padding=1, stride=stride, groups=channels),
                qa.nn.Conv2d(w3, requantize=_thresholds(rng, 24, (0, 1, 2, 3), 20 * reach), padding=1),
            ]
        )
        for batch in 1, 2:
            _check(net, _packed(rng, (batch, 14, 14, 48), range(-9, 7)))
    if len(levels) == 256 and channels == 128 and isa.NAME not in ("portable", "neon"):  # which count bits
        assert stored["depthwise.int8"] > 0


def test_planes_stay_where_others_read_them(stored):
    rng = np.random.default_rng(0)
    layers = [
        qa.nn.Conv2d(_packed(rng, (64, 3, 3, 64), range(-7, 8)), requantize=_thresholds(rng, 64, range(16), 900)),
        qa.nn.MaxPool2d(2, return_indices=True),
    ]
    net, x = qa.nn.Sequential(layers), _packed(rng, (2, 16, 16, 64), range(16))
    for got, expected in zip(net.prepared()(x), net(x), strict=True):
        np.testing.assert_array_equal(*(a.codes() if isinstance(a, qa.QuantArray) else a for a in (got, expected)))
    assert not stored


@pytest.mark.parametrize("levels", _ACTIVATIONS, ids=lambda levels: f"{min(levels)} to {max(levels)}, {len(levels)}")
def test_pools(stored, levels):
    """The largest of codes as bytes, of channels that fall or not, at borders too."""
    rng = np.random.default_rng(len(levels))
    for channels, size, falling in ((64, 2, False), (40, 3, True), (130, 3, np.arange(130) % 3 > 0)):
        w = _packed(rng, (channels, 3, 3, 64), range(-7, 8)), _packed(rng, (64, 3, 3, channels), range(-7, 8))
        laws = [_thresholds(rng, n, levels, 900) for n in (channels, 64)]
        layers = [
            qa.nn.Conv2d(w[0], requantize=laws[0]),
            qa.nn.MaxPool2d(size, stride=2, padding=1, falling=falling),
            qa.nn.Conv2d(w[1], requantize=laws[1]),
        ]
        for batch in 1, 2:
            _check(qa.nn.Sequential(layers), _packed(rng, (batch, 13, 12, 64), range(16)))
    if len(levels) == 256 and isa.NAME not in ("portable", "neon"):
        assert stored["reduction.pool"] > 0


@pytest.mark.parametrize("bits", range(2, 8))
def test_blocks_with_shortcuts(stored, bits):
    """Codes of sums and of chains, which the next convolution reads as bytes."""
    net = qa.nn.models.dorefa_mobilenet_v2(bits=bits, size=32, classes=10, seed=bits)
    prepared = net.prepared()
    for batch in 1, 2:
        x = np.random.default_rng(batch).integers(0, 256, (batch, 3, 32, 32), np.uint8)
        expected = net(x)
        for _ in range(3):
            assert np.array_equal(prepared(x), expected)
    if bits in (3, 4) and isa.NAME not in ("portable", "neon"):  # of 2 bits are counted
        assert stored["epilogue.threshold"] > 0 and stored["epilogue.elementwise"] > 0
