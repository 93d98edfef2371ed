"""`Quant` and `Trunc` of every rounding mode, bits, sign, range, scale and zero point equal their definitions."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

onnx_models = pytest.importorskip("onnx_models")
qonnx_reference = pytest.importorskip("qonnx_reference")

import quantarray as qa  # noqa: E402

node, model = onnx_models.node, onnx_models.model
MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "ROUND_TO_ZERO", "HALF_UP", "HALF_DOWN")
CHANNELS = 5
SHAPE = (1, CHANNELS, 4, 6)


def values(rng, scale, zero):
    """Values at the middle of two codes, at codes, just beside both, and far off; steps are powers of two or not."""
    places = rng.integers(-70, 70, SHAPE).astype(np.float32) / 2 - zero
    x = (places * scale).astype(np.float32)
    beside = rng.integers(-1, 2, SHAPE)
    x = np.where(
        beside < 0, np.nextafter(x, np.float32(-np.inf)), np.where(beside > 0, np.nextafter(x, np.float32(np.inf)), x)
    )
    return np.where(rng.random(SHAPE) < 0.1, x * np.float32(100), x).astype(np.float32)


def scales(rng, per_channel, powers):
    shape = (1, CHANNELS, 1, 1) if per_channel else ()
    return (2.0 ** rng.integers(-3, 3, shape) if powers else rng.uniform(0.05, 3, shape)).astype(np.float32)


def check(nodes, tensors, x):
    m = model([*nodes, node("Identity", ["q"], ["y"])], [("x", x.shape)], [("y", None)], tensors)
    (wanted,) = qonnx_reference.evaluator(m).run(None, {"x": x})
    got = qa.nn.load(m)(x)
    assert got.dtype == np.float32
    assert np.array_equal(got, wanted)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from([*MODES, "round", "Half_Up"]),
    bits=st.integers(1, 9),
    signed=st.integers(0, 1),
    narrow=st.integers(0, 1),
    zero=st.sampled_from([0, 0, 1, -3, 7]),
    per_channel=st.booleans(),
    powers=st.booleans(),
    chain=st.booleans(),
)
@example(0, "HALF_DOWN", 3, 1, 0, 0, False, True, True)
def test_quant(seed, mode, bits, signed, narrow, zero, per_channel, powers, chain):
    if not signed and bits == 1 and narrow:
        bits = 2  # one level
    rng = np.random.default_rng(seed)
    scale = scales(rng, per_channel, powers)
    tensors = [("scale", scale), ("zero", np.float32(zero)), ("bits", np.float32(bits))]
    attributes = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
    nodes, x = [node("Quant", ["x", "scale", "zero", "bits"], ["q"], **attributes)], values(rng, scale, zero)
    if chain:  # a quantiser of integers, whose thresholds are integers
        tensors += [
            ("one", np.float32(1)),
            ("none", np.float32(0)),
            ("eight", np.float32(8)),
            ("half", np.float32(0.5)),
        ]
        first = node("Quant", ["x", "one", "none", "eight"], ["first"], signed=1, narrow=0, rounding_mode="ROUND")
        nodes = [first, node("Mul", ["first", "half"], ["half_of"]), node("Relu", ["half_of"], ["r"])]
        nodes.append(node("Quant", ["r", "scale", "zero", "bits"], ["q"], **attributes))
    with np.errstate(all="ignore"):
        check(fixed(nodes), tensors, x)


def fixed(nodes):
    """The same nodes: the reference knows modes in capitals, as files have them mostly."""
    for n in nodes:
        for a in n.attribute:
            if a.name == "rounding_mode":
                qonnx_reference.ROUND.setdefault(a.s.decode(), qonnx_reference.ROUND[a.s.decode().upper()])
    return nodes


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(MODES),
    bits=st.integers(2, 10),
    fewer=st.integers(0, 4),
    signed=st.integers(0, 1),
    narrow=st.integers(0, 1),
    zero=st.sampled_from([0, 0, 0, 4, -3]),
    version=st.sampled_from([1, 2]),
    powers=st.booleans(),
    quantised=st.booleans(),
)
def test_trunc(seed, mode, bits, fewer, signed, narrow, zero, version, powers, quantised):
    rng = np.random.default_rng(seed)
    out_bits = max(1, bits - fewer)
    if not signed and out_bits == 1 and narrow:
        narrow = 0  # one level
    scale = scales(rng, False, powers)
    tensors = [("scale", scale), ("zero", np.float32(zero)), ("bits", np.float32(bits)), ("out", np.float32(out_bits))]
    x = values(rng, scale, zero)
    nodes, name = [], "x"
    if quantised:
        nodes, name = (
            [node("Quant", ["x", "scale", "zero", "bits"], ["codes"], signed=1, narrow=0, rounding_mode="ROUND")],
            "codes",
        )
    if version == 1:
        nodes.append(node("Trunc", [name, "scale", "zero", "bits", "out"], ["q"], rounding_mode=mode))
    else:
        tensors.append(("out_scale", (scale * np.float32(2.0**fewer)).astype(np.float32)))
        operands = [name, "scale", "zero", "bits", "out_scale", "out"]
        nodes.append(node("Trunc", operands, ["q"], rounding_mode=mode, signed=signed, narrow=narrow))
    check(nodes, tensors, x)


@pytest.mark.parametrize("operator", ["Quant", "Trunc"])
def test_an_unknown_mode_is_refused(operator):
    tensors = [(n, np.float32(v)) for n, v in (("scale", 1), ("zero", 0), ("bits", 4), ("out", 2))]
    names = ["x", "scale", "zero", "bits"] + ["out"] * (operator == "Trunc")
    more = {"signed": 1, "narrow": 0} if operator == "Quant" else {}
    m = model([node(operator, names, ["y"], rounding_mode="NEAREST", **more)], [("x", SHAPE)], [("y", None)], tensors)
    with pytest.raises(ValueError, match=rf"{operator} .*rounding mode"):
        qa.nn.load(m)
