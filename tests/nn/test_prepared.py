"""A network as one compiled call equals its layers one by one, bit for bit."""

import os
import threading
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.cpu.runtime import threads
from quantarray.nn.operators.record import Operator
from quantarray.nn.plan import part
from quantarray.nn.steps import Step

_LEVELS = (-1, 1), (-1, 0, 1), range(4), range(8)


def _packed(rng, shape, levels):
    return qa.encode(rng.choice(np.array(levels), shape), values=levels)


def _thresholds(rng, channels, levels, reach):
    values = np.sort(rng.integers(-reach, reach + 1, (channels, len(levels) - 1)), axis=1)
    into = qa.integers(*levels) if len(levels) > 2 else qa.bipolar
    return qa.Thresholds(values, into=into, greater=rng.random() < 0.7)


def _same(one, other):
    assert type(one) is type(other)
    if isinstance(one, qa.QuantArray):
        validate(one)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.axis == other.axis
        one, other = one.words, other.words
    assert one.dtype == other.dtype
    assert np.array_equal(one, other)


@st.composite
def _networks(draw):
    """A network of random layers, and the shape and levels of its input."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = first = draw(st.sampled_from([1, 3, 40, 64, 130]))
    levels = draw(st.sampled_from(_LEVELS))
    size = side = draw(st.integers(4, 9))
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()) and side >= 4:
            layers.append(qa.nn.MaxPool2d(2))
            side //= 2
        if draw(st.integers(0, 3)) == 0:
            layers.append(lambda x: x[::-1])  # no kernel of the package's layers: between two parts
        outputs, padding = draw(st.sampled_from([2, 33, 64, 128])), draw(st.integers(0, 1))
        if side + 2 * padding < 3:
            break
        into = draw(st.sampled_from(_LEVELS))
        w = _packed(rng, (outputs, 3, 3, channels), draw(st.sampled_from(_LEVELS[:2])))
        layers.append(qa.nn.Conv2d(w, padding=padding, requantize=_thresholds(rng, outputs, into, 9 * channels)))
        side, channels = side + 2 * padding - 2, outputs
    if draw(st.booleans()):
        layers.append(qa.nn.Dense(_packed(rng, (10, side * side * channels), (-1, 1))))
    return qa.nn.Sequential(layers), (size, size, first), levels, rng


@settings(max_examples=25, deadline=None)
@given(_networks(), st.lists(st.integers(1, 4), min_size=4, max_size=8), st.booleans())
def test_random_networks(network, batches, reuse):
    net, shape, levels, rng = network
    prepared = net.prepared(reuse=reuse)
    for batch in batches + batches:
        x = _packed(rng, (batch, *shape), levels)
        _same(prepared(x), net(x))


@pytest.fixture(scope="module")
def digits():
    return qa.nn.load_network(files("quantarray") / "data" / "digits.npz")


def _calls(prepared):
    """Return the compiled calls of this thread's plans."""
    plans = [plan for plan in prepared._of_thread.plans.values() if plan is not None]
    return [one.call for plan in plans for one in plan.segments if one.call is not None]


def test_all_layers_are_one_call(digits):
    prepared, x = digits.prepared(), digits.plain.input[:2]
    for _ in range(3):
        _same(prepared(x), digits(x))
    assert len(_calls(prepared)) == 1
    launches = len(_calls(prepared)[0].kernels)
    assert prepared.summary(x) == [f"operations 0 to {len(digits.layers) - 1}: compiled, {launches} launches"]


def test_a_function_runs_between_two_calls():
    rng = np.random.default_rng(1)
    w = [_packed(rng, (64, 64), (-1, 1)) for _ in range(3)]
    T, seen = qa.Thresholds([0]), []
    first, second, last = qa.nn.Dense(w[0], T), qa.nn.Dense(w[1], T), qa.nn.Dense(w[2])
    net = qa.nn.Sequential([first, lambda x: seen.append(x.shape) or x, second, last])
    prepared, x = net.prepared(), _packed(rng, (3, 64), (-1, 1))
    for _ in range(4):
        _same(prepared(x), net(x))
    assert len(_calls(prepared)) == 2
    assert len(seen) == 9  # and once to plan
    assert prepared.summary(x) == [
        "operations 0 to 0: compiled, 1 launches",
        "operations 1 to 1: one by one, 1 <lambda>",
        "operations 2 to 3: compiled, 2 launches",
    ]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "last",
    [
        qa.nn.Split(2), qa.nn.MaxPool2d(2, return_indices=True), lambda x: x[::-1], lambda x: (x, x.shape),
        lambda x: {"result": x}, lambda x: None, lambda x: x.ndim,
    ],
)  # fmt: skip
def test_results_of_any_type(last, packed):
    """What a layer returns, or keeps, is not overwritten by later calls."""
    rng = np.random.default_rng(8)
    conv = qa.nn.Conv2d(_packed(rng, (64, 3, 3, 64), (-1, 1)), requantize=qa.Thresholds([0]) if packed else None)
    held = []
    net = qa.nn.Sequential([conv, lambda x: held.append(x) or x, last])
    prepared = net.prepared()
    inputs = [_packed(rng, (2, 8, 8, 64), (-1, 1)) for _ in range(5)]
    got = [prepared(x) for x in inputs]
    for taken, x in zip(held[-3:], inputs[-3:], strict=True):
        _same(taken, conv(x))
    for result, x in zip(got, inputs, strict=True):
        assert _plain(result) == _plain(net(x))


def _plain(value):
    if isinstance(value, (list, tuple)):
        return [*map(_plain, value)]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.codes().tolist() if isinstance(value, qa.QuantArray) else np.asarray(value).tolist()


def test_a_function_that_changes_its_result():
    rng, w = np.random.default_rng(2), _packed(np.random.default_rng(3), (64, 64), (-1, 1))
    state = {"times": 1}
    net = qa.nn.Sequential([lambda x: x[:: state["times"]], qa.nn.Dense(w)])
    prepared, x = net.prepared(), _packed(rng, (4, 64), (-1, 1))
    for times in (1, 1, 1, -1, -1, 2, 2):
        state["times"] = times
        _same(prepared(x), net(x))


def test_results_share_memory_only_if_asked(digits):
    x, y = digits.plain.input[:1], digits.plain.input[1:2]
    for reuse in (False, True):
        prepared = digits.prepared(reuse=reuse)
        for _ in range(3):
            first = prepared(x)
        expected = first.copy()
        second = prepared(y)
        assert np.shares_memory(first, second) == reuse
        assert np.array_equal(first, expected) != reuse
        _same(second, digits(y))


def test_memory_is_used_again():
    rng, T = np.random.default_rng(4), qa.Thresholds([0])
    net = qa.nn.Sequential([qa.nn.Dense(_packed(rng, (512, 512), (-1, 1)), T) for _ in range(8)])
    prepared, x = net.prepared(), _packed(rng, (1000, 512), (-1, 1))
    for _ in range(3):
        _same(prepared(x), net(x))
    (call,) = _calls(prepared)
    assert call.nbytes <= 2 * x.nbytes + 1024


def test_strides_and_constants_of_inputs():
    rng = np.random.default_rng(5)
    net = qa.nn.Sequential([qa.nn.Conv2d(_packed(rng, (8, 3, 3, 64), (-1, 1)))])
    prepared, x = net.prepared(), _packed(rng, (4, 8, 8, 64), (-1, 1))
    forms = [x, x.transpose(0, 2, 1, 3), x[::-1], x * 0.5, x * 0.25, x[:, ::2]]
    for one in forms * 3:
        _same(prepared(one), net(one))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_images_of_bytes(dtype):
    rng = np.random.default_rng(6)
    T = qa.Thresholds(rng.integers(-50, 50, (32, 1)))
    net = qa.nn.Sequential([qa.nn.Conv2d(_packed(rng, (32, 3, 3, 3), (-1, 1)), requantize=T), qa.nn.MaxPool2d(2)])
    prepared = net.prepared()
    for i in range(6):
        x = rng.integers(0, 256, (2, 3, 12, 12), np.uint8).view(dtype).transpose(0, 2, 3, 1)
        _same(prepared(x if i % 2 else np.ascontiguousarray(x)), net(x))
    assert _calls(prepared)


def test_wrong_inputs_get_the_errors_of_layers(digits):
    prepared, x = digits.layers.prepared(), digits.encode_input(digits.plain.input[:1])
    for _ in range(3):
        prepared(x)
    with pytest.raises(TypeError, match="layer 0, "):
        prepared(np.zeros((1, 4), np.float32))
    with pytest.raises((TypeError, ValueError), match="layer 0, "):
        prepared([1, 2])


def test_other_layers_and_numbers_of_threads(digits):
    x = digits.encode_input(digits.plain.input[:4])
    net = qa.nn.Sequential(digits.layers)
    prepared, before = net.prepared(), qa.get_num_threads()
    try:
        for count in (1, before, 1, before):
            qa.set_num_threads(count)
            for _ in range(3):
                _same(prepared(x), net(x))
    finally:
        qa.set_num_threads(before)
    net.layers = (*net.layers[:-1],)
    for _ in range(3):
        _same(prepared(x), net(x))


def test_threads_have_plans_of_their_own(digits):
    prepared, errors = digits.prepared(), []
    inputs = [digits.plain.input[i : i + 1 + i % 3] for i in range(8)]
    expected = [digits(x) for x in inputs]

    def run(i):
        try:
            for _ in range(200):
                assert np.array_equal(prepared(inputs[i]), expected[i])
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_the_same_plan(digits):
    prepared, x = digits.prepared(), digits.plain.input[:2]
    expected = digits(x)
    for _ in range(3):
        prepared(x)
    child = os.fork()
    if not child:
        same = all(np.array_equal(prepared(x), expected) for _ in range(50))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    _same(prepared(x), expected)


def test_a_call_inside_a_call_runs_by_itself(digits):
    prepared, x = digits.layers.prepared(reuse=True), digits.encode_input(digits.plain.input[:1])
    for _ in range(3):
        prepared(x)
    (plan,) = prepared._of_thread.plans.values()
    plan._busy = True  # as in a signal's handler
    _same(prepared(x), digits.layers(x))
    plan._busy = False


def test_numba_threads_run_the_layers(digits, monkeypatch):
    prepared, x = digits.prepared(), digits.plain.input[:1]
    for _ in range(3):
        prepared(x)
    (call,) = _calls(prepared)
    monkeypatch.setattr(call._driver, "_workers", 2)
    monkeypatch.setattr(threads, "count", lambda: 2)
    monkeypatch.setattr(threads, "dealer_for", lambda workers: 0)
    assert call(digits.encode_input(x)) is None
    _same(prepared(x), digits(x))


def test_a_kernel_that_fails_raises(digits):
    prepared, x = digits.prepared(), digits.plain.input[:1]
    for _ in range(3):
        prepared(x)
    (call,) = _calls(prepared)
    launch = next(step[0] for step in call._driver._holds if not isinstance(step, np.ndarray))
    launch._numbers[launch.FAILED] = 1
    with pytest.raises(MemoryError, match="no memory"):
        prepared(x)
    _same(prepared(x), digits(x))


class _OfNumPy(qa.nn.Dense):
    """A layer that adds in NumPy what its input's first element is: no launch of a kernel shows it."""

    def __call__(self, x):
        return super().__call__(x) + int(x.codes().ravel()[0])


def _launches_only(layer, x):
    step = Step("layer", Operator(run=lambda attributes, x: layer(x), launches=True), {}, (0,), (1,))
    return part.Row([None, None], [x, None]).take(step)


def test_what_went_through_numpy_is_not_compiled():
    rng = np.random.default_rng(7)
    layer = _OfNumPy(_packed(rng, (8, 64), (-1, 1)))
    x = _packed(rng, (2, 64), (-1, 1))
    layer(x)
    assert not _launches_only(layer, x)
    assert _launches_only(qa.nn.Dense(layer.weight), x)


def test_functions_that_write_to_what_they_take():
    """A plan is made on copies: such a function finds what the caller passed."""
    rng = np.random.default_rng(0)
    w = _packed(rng, (8, 64), (-1, 1))

    def centred(x):
        x -= np.float32(0.5)
        return x

    def signs(x):
        return qa.encode((x > 0).astype(int) * 2 - 1, (-1, 1))

    net = qa.nn.Sequential([centred, signs, qa.nn.Dense(w)])
    prepared, x = net.prepared(), rng.random((3, 64)).astype(np.float32)
    for _ in range(4):
        _same(prepared(x.copy()), net(x.copy()))
    kept = x.copy()
    prepared.summary(kept)
    assert np.array_equal(kept, x)


def test_an_empty_batch_is_refused_as_before(digits):
    with pytest.raises(ValueError, match="empty batch"):
        digits.prepared()(digits.plain.input[:0])
