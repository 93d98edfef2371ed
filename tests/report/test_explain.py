"""`explain`: what it says is what the call does."""

import json

import numpy as np
import pytest

import quantarray as qa
from quantarray.backends import kernel_choice
from quantarray.cpu.runtime import isa


def bits(*shape):
    return qa.encode(np.random.default_rng(0).choice((-1, 1), shape), values=(-1, 1))


def taken(how):
    return {choice.stage: choice.taken for choice in how.choices}


def test_a_convolution_of_bits():
    how = qa.explain(qa.conv2d, bits(1, 16, 16, 64), bits(32, 3, 3, 64), padding=1, stride=2)
    assert taken(how) == {
        "rows of x": "all at once", "outputs": "all at once", "constants": "none", "kernel": "conv",
    }  # fmt: skip
    run = how.kernels[0]
    assert (run.name, run.rows, run.channels, run.words) == ("conv", 64, 32, 9) and run.threads >= 1
    assert run.predicted_us is None or 0 < run.predicted_us < 1e3


def test_every_stage_names_one_way_that_was_asked_and_not_refused():
    calls = [
        (qa.conv2d, bits(1, 9, 9, 32), bits(32, 3, 3, 1), {"groups": 32}),
        (qa.conv2d, bits(1, 9, 9, 32), bits(64, 3, 3, 4), {"groups": 8}),
        (qa.conv2d, bits(1, 9, 9, 12), bits(64, 3, 3, 12) * np.float32(0.3), {}),
        (qa.linear, bits(5, 300), bits(40, 300) * np.float32(0.3), {"requantize": qa.Thresholds([0.5])}),
        (qa.linear, bits(2, 1 << 20), bits(3, 1 << 20), {}),
        (qa.matmul, bits(5, 300), bits(300, 40).repack(0), {}),
        (qa.conv2d, np.zeros((1, 9, 9, 3), np.uint8), bits(64, 3, 3, 3), {}),
    ]
    for function, x, w, more in calls:
        how = qa.explain(function, x, w, **more)
        for choice in how.choices:
            ways = {way.way: way for way in choice.asked}
            assert len(ways) == len(choice.asked) and not ways[choice.taken].refused, choice
            costs = [way.cost for way in choice.asked if way.cost is not None]
            assert ways[choice.taken].cost in (None, min(costs, default=None))
            assert f"{choice.stage}: {choice.taken}" in repr(how)
        json.dumps(how.to_json())


def test_groups_of_few_channels_are_bit_sliced_and_a_refusal_says_why():
    x, w = bits(1, 9, 9, 32), bits(32, 3, 3, 4)
    assert taken(qa.explain(qa.conv2d, x, w, groups=8, requantize=qa.Thresholds([0])))["groups"] == "bit-sliced"
    how = qa.explain(qa.conv2d, x, w, groups=8)
    groups = next(choice for choice in how.choices if choice.stage == "groups")
    assert groups.asked[0].refused == "results have more than one bit" and "no, results have more than" in repr(how)


def test_depthwise_ways():
    x, w = bits(1, 9, 9, 64), qa.encode(np.ones((64, 3, 3, 1), int), values=(-1, 1), axis=0)
    for law, way in ((None, "pairs of taps as bytes"), (qa.Thresholds([0]), "bit-sliced")):
        assert taken(qa.explain(qa.conv2d, x, w, groups=64, requantize=law))["sums"] == way


def test_a_kernel_that_is_forced_is_the_one_that_is_named():
    x, w = (qa.zeros(shape, qa.uint4) for shape in ((8, 128), (32, 128)))
    for name in ("conv", "dot"):
        with kernel_choice.forced(name):
            assert taken(qa.explain(qa.linear, x, w))["kernel"] == name


def test_explaining_leaves_prepared_calls_alone():
    x, w = bits(2, 64), bits(3, 64)
    before = qa.linear(x, w)
    cached = w.nbytes_cached
    qa.explain(qa.linear, x, w)
    assert w.nbytes_cached == cached
    with kernel_choice.recorded() as choices:
        np.testing.assert_array_equal(qa.linear(x, w), before)
    assert choices == []  # the call was prepared before


@pytest.mark.parametrize("form", ["llvm", "asm"])
def test_code(form):
    how = qa.explain(qa.linear, bits(2, 64), bits(3, 64), code=form)
    (name, text), *_ = how.code.items()
    assert "_conv_range" in name and len(text) > 1000
    if form == "asm" and isa.NAME == "avx512":
        assert "vpopcntq" in text
    assert text in repr(how)


def test_wrong_use():
    x = bits(2, 64)
    with pytest.raises(
        TypeError, match=r"needs one of the functions conv1d, conv2d, conv3d, linear, matmul, map_reduce, got function"
    ):
        qa.explain(qa.add, x, x)
    for result in (qa.linear(x, x), x):
        with pytest.raises(TypeError, match=r"needs one of .*; pass the function and its arguments apart"):
            qa.explain(result)
    with pytest.raises(ValueError, match=r"explain: code must be one of 'llvm', 'asm', 'ptx', 'sass', got 'c'"):
        qa.explain(qa.linear, x, x, code="c")
    with pytest.raises(ValueError, match=r"explain: code of the CPU is one of 'llvm', 'asm', got 'ptx'"):
        qa.explain(qa.linear, x, x, code="ptx")
    with pytest.raises(TypeError, match="linear: w must be a QuantArray"):
        qa.explain(qa.linear, x, np.ones((2, 64)))


def test_an_x_whose_constants_do_not_fold_is_said_to_be_computed_by_the_real_kernel():
    law, codes = qa.Thresholds([0.5]), bits(2, 9, 9, 64).codes()
    folds = qa.from_codes(codes, qa.uniform(1), scale=0.5, offset=0)
    real = qa.from_codes(codes, qa.uniform(1), scale=0.5, offset=-1)
    cases = [
        (bits(40, 3, 3, 64), 1, "conv_real"),
        (bits(64, 3, 3, 4), 16, "conv_real"),
        (bits(64, 3, 3, 1).repack(0), 64, "depthwise"),
    ]
    for w, groups, kernel in cases:
        w = w * np.float32(0.3)
        how = qa.explain(qa.conv2d, folds, w, groups=groups, requantize=law)
        assert taken(how)["constants"] == "folded into thresholds" and not how.notes and "note:" not in repr(how)
        how = qa.explain(qa.conv2d, real, w, groups=groups, requantize=law)
        assert [kernel in note for note in how.notes] == [True]
        assert f"note: {how.notes[0]}" in repr(how) and how.to_json()["notes"] == how.notes
    x = qa.from_codes(bits(5, 300).codes(), qa.uniform(1), scale=0.5, offset=-1)
    assert len(qa.explain(qa.linear, x, bits(40, 300) * np.float32(0.3), requantize=law).notes) == 1
    assert not qa.explain(qa.linear, bits(5, 300), bits(40, 300)).notes
