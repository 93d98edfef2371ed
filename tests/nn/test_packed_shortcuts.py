"""A chain that adds codes reads their words in a plan, and gives what it gives of decoded codes, to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import seeds, threads

import quantarray as qa

Value, Node, Graph = qa.nn.Value, qa.nn.Node, qa.nn.Graph
DECODES, CHAINS = "bits.decode_levels", "epilogue.elementwise"
EVEN = (-1, 1), (0, 1, 2), range(4), range(-3, 5), range(5, -11, -1), range(-700, 64 * 30 - 700, 30), range(256)
UNEVEN = (0, 1, 3), (-8, 1, 2, 4)


def _graph(rng, channels, levels, read_too, size=(3, 5), operands=("y", "v")):
    """x -> codes -> integers v, which a chain adds to `y`; they are an output of their own if `read_too`."""
    ascending = tuple(sorted(levels))
    constants = {
        "T": qa.Thresholds(
            np.sort(rng.integers(-99, 99, (channels, len(levels) - 1)), axis=1), into=qa.integers(levels)
        ),
        "k": rng.standard_normal((4, channels)).astype(np.float32),
        "scale": rng.standard_normal(channels),
        "by": rng.standard_normal(channels) / max(map(abs, ascending)),
        "T2": qa.Thresholds(np.sort(rng.standard_normal((channels, 3)), axis=1)),
    }
    taken = "scale", "by" if rng.random() < 0.7 else ""
    nodes = [
        Node("threshold", ("x", "T"), ("q",), {"axis": 1}),
        Node("unpack", ("q",), ("v",)),
        Node(
            "chain", (*operands, "k", *taken, "T2"), ("values", "codes"),
            {"steps": ("affine", "offset", "add other", "max"), "gives": ("values", "codes")},
        ),
    ]  # fmt: skip
    shape = 1, channels, *size
    outputs = [Value("values", shape, "float32"), Value("codes", shape, "uint2")]
    outputs += [Value("v", shape, "int32")] if read_too else []
    return Graph([Value("x", shape, "int32"), Value("y", shape, "int32")], outputs, nodes, constants)


def _names(prepared):
    (plan,) = prepared._of_thread.plans.values()
    return [name for segment in plan.segments if segment.call for name in segment.call.kernels]


def _check(net, rng, channels, batch, size=(3, 5)):
    prepared = net.prepared()
    for _ in range(3):
        x, y = rng.integers(-99, 99, (2, batch, channels, *size), np.int32)
        results, expected = prepared(x, y), net(x, y)
        assert list(results) == list(expected)
        for name, one in expected.items():
            words = [a.words if isinstance(a, qa.QuantArray) else a for a in (results[name], one)]
            np.testing.assert_array_equal(*words)
    return _names(prepared)


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds(),
    channels=st.integers(1, 200),
    batch=st.integers(1, 3),
    levels=st.sampled_from(EVEN),
    many=st.booleans(),
)
def test_even_levels_are_read(seed, channels, batch, levels, many):
    rng = np.random.default_rng(seed)
    with threads(many):
        names = _check(_graph(rng, channels, levels, False), rng, channels, batch)
    assert CHAINS in names
    assert DECODES not in names


@pytest.mark.parametrize("channels", [7, 16, 24, 63, 64, 65, 80, 128, 144])
@pytest.mark.parametrize("levels", EVEN, ids=lambda levels: f"{levels[0]} to {levels[-1]}, {len(levels)}")
def test_blocks_of_channels(channels, levels):
    """Whole words, the rest of a word, and 16 channels in two words."""
    rng = np.random.default_rng(channels)
    assert DECODES not in _check(_graph(rng, channels, levels, False, (14, 14)), rng, channels, 1, (14, 14))


@pytest.mark.parametrize("channels", [24, 64])
@pytest.mark.parametrize("levels", [*UNEVEN, range(4)], ids=["3 uneven", "4 uneven", "read twice"])
def test_others_are_decoded(channels, levels):
    """Uneven levels, and integers that are an output as well."""
    rng = np.random.default_rng(0)
    assert DECODES in _check(_graph(rng, channels, levels, levels not in UNEVEN), rng, channels, 2)


@pytest.mark.parametrize("channels", [24, 64])
def test_the_first_operand_is_decoded(channels):
    """The chain's second one has as many integers, and is no codes."""
    rng = np.random.default_rng(0)
    assert DECODES in _check(_graph(rng, channels, range(4), False, operands=("v", "y")), rng, channels, 2)
