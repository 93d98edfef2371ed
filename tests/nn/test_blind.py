"""Plans are made without elements: a plan is recorded on arrays that kill the process which reads or writes one."""

import ctypes
import os
from functools import partial

import numpy as np
import pytest
from blind import constants_written, dies, survives
from hypothesis import given, settings
from onnx_models import networks
from paths import TESTS

import quantarray as qa
from quantarray.backends.registry import zeros
from quantarray.cpu.runtime import threads
from quantarray.cpu.runtime.schedule import Kernel
from quantarray.nn.operators import OPERATORS
from quantarray.nn.operators.record import Operator
from quantarray.nn.passes import for_plan
from quantarray.nn.plan import part
from quantarray.nn.plan.part import Row
from quantarray.nn.plan.reserved import Reserved, is_told
from quantarray.nn.steps import Step

pytestmark = pytest.mark.skipif(not hasattr(os, "fork") or not is_told(), reason="needs fork, mprotect and mincore")
models, Graph, Node, Value = qa.nn.models, qa.nn.Graph, qa.nn.Node, qa.nn.Value
GRAPHS = {
    "lfc": models.lfc,
    "cnv": partial(models.cnv, bits=(2, 2)),
    "bireal_resnet18": partial(models.bireal_resnet18, size=32, width=16),
    "dorefa_resnet18": partial(models.dorefa_resnet18, size=32, width=16, bits=3),
    "dorefa_mobilenet_v2": partial(models.dorefa_mobilenet_v2, size=32),
    "quicknet": partial(models.quicknet, size=32),
    "xnor_alexnet": partial(models.xnor_alexnet, size=67),
    **{name: partial(qa.nn.load, TESTS / "data" / "qonnx" / f"{name}.onnx") for name in ("TFC_1W1A", "TFC_2W2A")},
}


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_published_networks(name, batch):
    graph = for_plan(GRAPHS[name]())
    value = graph.inputs[0]
    x = np.random.default_rng(0).integers(0, 2, (batch, *value.shape[1:])).astype(value.dtype)
    assert dies(graph, [x]) == [] and constants_written(graph, [x]) == 0


@pytest.mark.full
@settings(max_examples=50, deadline=None)
@given(networks())
def test_random_networks(network):
    model, x = network
    graph = for_plan(qa.nn.load(model))
    assert dies(graph, [x]) == [] and constants_written(graph, [x]) == 0


READERS = {
    "a maximum": lambda a, x: x if x.max() < 128 else -x,
    "one element": lambda a, x: x[::1] if x.size and x[(0,) * x.ndim] > 3 else x,
    "a sum of NumPy's": lambda a, x: x + 1,
    "a list": lambda a, x: x if sum(x.ravel().tolist()) else -x,
    "a base class": lambda a, x: x if np.asarray(memoryview(x)).any() else -x,
    "a buffer": lambda a, x: x if any(bytes(memoryview(x).cast("B"))) else -x,
    "a pointer": lambda a, x: x if ctypes.cast(x.ctypes.data, ctypes.POINTER(ctypes.c_uint8))[x.nbytes - 1] else -x,
    "a copy": lambda a, x: x.copy(),
    "a write": lambda a, x: x.fill(1) or x,
    "results of a kernel": lambda a, x: x if qa.nn.Dense(qa.encode(np.ones((1, 1)), (-1, 1)))(x).any() else -x,
    "quantised values": lambda a, x: qa.quantize(x, qa.DoReFa(2)),
    "an average of codes": lambda a, x: x if qa.encode(np.abs(x) > 0, (0, 1)).mean() > 0.5 else -x,
    "memory of a kernel": lambda a, x: x if zeros("cpu", (3,), np.int64).any() else -x,
}


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (4, 16)])
@pytest.mark.parametrize("name", READERS)
def test_an_operation_that_reads_elements_is_not_planned(name, shape, monkeypatch):
    """It is run with elements, between compiled calls, whatever a stranger's record says."""
    run = READERS[name]
    x = np.zeros(shape, np.float32)
    step = Step("strange", Operator(run=run, launches=True), {}, (0,), (1,))
    assert not Row([None, None], [x, None]).take(step)
    monkeypatch.setitem(OPERATORS, "strange", Operator(run=lambda a, x: x if x.max() < 128 else -x, launches=True))
    nodes = [Node("Flatten", ("x",), ("f",)), Node("strange", ("f",), ("y",))]
    net = Graph([Value("x", shape, "float32")], [Value("y", shape, "float32")], nodes, {})
    prepared = net.prepared()
    for level in (0, 0, 0, 127, 128, 3e5):
        np.testing.assert_array_equal(prepared(x + np.float32(level)), net(x + np.float32(level)))


def test_the_child_dies_of_what_is_not_told():
    """The proof of networks would notice an element that is read."""
    step = Step("strange", Operator(run=READERS["a maximum"], launches=True), {}, (0,), (1,))
    assert not survives([step], [None, None], [np.zeros((2, 3), np.float32), None])


def test_a_plan_runs_no_kernel(monkeypatch):
    """Weights were laid out by the first call; nothing else is run to plan."""
    net = models.bireal_resnet18(size=32, width=16)
    x = np.zeros((1, 3, 32, 32), np.uint8)
    prepared, ran = net.prepared(), []
    prepared(x)
    run = Kernel.__call__
    monkeypatch.setattr(Kernel, "__call__", lambda kernel, *rest: ran.append(kernel) or run(kernel, *rest))
    assert len(prepared.summary(x)) == 1 and ran == []


def test_no_array_of_a_plan_enters_a_cache():
    """Calls after a plan that failed midway, or was never run, are right."""
    rng = np.random.default_rng(0)
    w = qa.encode(rng.choice((-1, 1), (70, 200)), (-1, 1))
    x = qa.encode(rng.choice((-1, 1), (5, 200)), (-1, 1))
    layer, fails = qa.nn.Dense(w), iter([ZeroDivisionError])

    def run(attributes, x):
        y = layer(x)
        for error in fails:
            raise error
        return y

    row = Row([None, None], [x, None])
    assert not row.take(Step("fails", Operator(run=run, launches=True), {}, (0,), (1,)))
    expected = x.dequantize() @ w.dequantize().T
    np.testing.assert_array_equal(layer(x), expected)
    assert Row([None, None], [x, None]).take(Step("works", Operator(run=run, launches=True), {}, (0,), (1,)))
    np.testing.assert_array_equal(layer(x), expected)


def test_without_the_systems_word_nothing_is_planned(monkeypatch):
    """Where nobody says what was read, steps run one by one: equal, and no faster."""
    monkeypatch.setattr(part, "is_told", lambda: False)
    net = models.lfc()
    x = np.random.default_rng(0).integers(0, 2, (2, *net.inputs[0].shape[1:])).astype(np.uint8)
    prepared = net.prepared()
    for _ in range(3):
        np.testing.assert_array_equal(prepared(x), net(x))
    assert all("one by one" in line for line in prepared.summary(x))


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 5), (1 << 20,), (1 << 25,)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_reserved_memory(shape, dtype):
    reserved = Reserved()
    arrays = [reserved.array(shape, dtype, cleared=bool(i % 2)) for i in range(3)]
    assert [reserved.place_of(a) for a in arrays] == [0, 1, 2]
    assert [place.cleared for place in reserved.places] == [False, True, False]
    assert not reserved.is_touched() and all(a.shape == shape and a.dtype == dtype for a in arrays)
    assert reserved.place_of(np.zeros(3)) is None
    if arrays[1].size:
        assert reserved.place_of(arrays[1].reshape(-1)[-1:]) == 1
        arrays[1].reshape(-1)[-1]
        assert reserved.is_touched()


def test_what_a_plan_says_is_what_runs(monkeypatch):
    """`plan`, `summary`, the memory of a call and `explain` speak of the kernels that a network launches."""
    net = models.bireal_resnet18(size=32, width=16)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
    prepared, ran, run = net.prepared(), [], threads.run
    for _ in range(2):
        prepared(x)
    (part,) = prepared.plan(x)

    def listed(kernel, *arguments):
        ran.append(kernel.compiled.py_func.__module__.removeprefix("quantarray.cpu."))
        return run(kernel, *arguments)

    monkeypatch.setattr(threads, "run", listed)
    prepared._program._run(prepared._program._ready((x,), {}))
    monkeypatch.undo()
    assert ["bits.channels_last", *part.kernels] == ran  # a call puts its input in that order before the part runs
    operations = f"operations 0 to {len(part.operations) - 1}"
    assert prepared.summary(x) == [f"{operations}: compiled, {len(part.kernels)} launches"]
    (plan,) = [plan for plan in prepared._of_thread.plans.values() if plan is not None]
    (segment,) = plan.segments
    assert segment.call.nbytes == part.nbytes and segment.call.kernels == part.kernels
    chosen = []
    for node in net.nodes:
        if node.op == "conv2d":
            q, w = net.trace(x)[node.inputs[0]], net.constants[node.inputs[1]]
            how = qa.explain(qa.conv2d, q, w, data_format="NCHW", **node.attributes)
            chosen += [one.name for one in how.kernels]
    taken = [name.rpartition(".")[2] for name in part.kernels if name.rpartition(".")[2] in set(chosen)]
    assert chosen == taken
