"""`qa.on`: what moves to a device and what comes back, on the stand-in for a GPU and on a real one."""

from typing import NamedTuple

import fake_cupy
import numpy as np
import pytest
from gpus import GPUS
from paths import PACKAGED

import quantarray as qa
from quantarray.nn import load_network


class Pair(NamedTuple):
    first: object
    second: object


def operands():
    rng = np.random.default_rng(0)
    return qa.encode(rng.choice((-1, 1), (5, 70)), (-1, 1)), qa.encode(rng.choice((-1, 1), (3, 70)), (-1, 1))


@GPUS
def test_a_product(gpu):
    x, w = operands()
    with gpu():
        got = qa.on("cuda", qa.linear, x, w, requantize=qa.Thresholds([0]))
        dense = qa.on("cuda", qa.linear, x, w=w)
    assert type(got) is qa.QuantArray and qa.array_equal(got, qa.linear(x, w, requantize=qa.Thresholds([0])))
    assert type(dense) is np.ndarray and dense.tolist() == qa.linear(x, w).tolist()
    assert x.device == w.device == "cpu"


@GPUS
def test_nested_arguments_and_results(gpu):
    """Each array is moved once however often it is given; what is no array stays as it is."""
    x, w = operands()
    dense, text = np.arange(4, dtype=np.float32), np.array(["a"])

    def look(nested, *, more):
        seen = nested["pair"].first, nested["pair"].second[0], more[0]
        assert seen[0] is seen[1] is seen[2] and seen[0].device == "cuda:0" and nested["w"][1] is text
        assert not isinstance(nested["dense"], np.ndarray) and nested["n"] == 3 and nested["kind"] is qa.uint2
        made = qa.encode([1, -1], (-1, 1))
        return {"pair": Pair(made, [nested["dense"] * 2, (nested["w"][0],)]), "device": made.device}

    given = {"pair": Pair(x, [x]), "w": (w, text), "dense": dense, "n": 3, "kind": qa.uint2}
    with gpu():
        got = qa.on("cuda", look, given, more=[x])
    assert got["device"] == "cuda:0" and type(got["pair"]) is Pair
    assert type(got["pair"].first) is qa.QuantArray and qa.array_equal(got["pair"].second[1][0], w)
    assert type(got["pair"].second[0]) is np.ndarray and got["pair"].second[0].tolist() == [0, 2, 4, 6]
    assert given["pair"].first is x and given["dense"] is dense


def test_arrays_are_moved_once():
    x, w = operands()
    with fake_cupy.gpu():
        del fake_cupy.waits[:]
        qa.on("cuda", lambda *arrays: None, x, [x, (x,)], {"w": w, "again": w})
        assert fake_cupy.waits == ["an array is moved to the GPU"] * 2


@GPUS
def test_a_network_moves_with_its_input(gpu):
    network = load_network(PACKAGED)
    x = network.plain.input[:2]
    with gpu():
        scores = qa.on("cuda", network, x)
    assert type(scores) is np.ndarray and scores.tolist() == network.plain.expected[:2].tolist()


@GPUS
def test_an_error_of_the_function(gpu):
    """The error is raised unchanged, its arrays are on the CPU, and new arrays are created on the CPU again."""
    x, _ = operands()

    def fails(x):
        raise LookupError("nothing", x, [x])

    with gpu():
        with pytest.raises(LookupError, match="nothing") as caught:
            qa.on("cuda", fails, x)
        _, one, (two,) = caught.value.args
        assert type(one) is type(two) is qa.QuantArray and qa.array_equal(one, x)
        assert qa.encode([1, -1], (-1, 1)).device == "cpu"


def test_the_cpu_is_a_device_too():
    x, w = operands()
    with fake_cupy.gpu():
        there = x.to_device("cuda")
        assert qa.on("cpu", qa.linear, there, w).tolist() == qa.linear(x, w).tolist()
    with pytest.raises(qa.DeviceError, match="device: devices are 'cpu' and 'cuda'"):
        qa.on("gpu", qa.linear, x, w)
