"""Products of packed arrays near the bounds of their accumulators, against sums that no accumulator limits.

A case draws two operands and makes four calls of linear, matmul, einsum or conv2d (dense, in groups, depthwise) of
them: all of x to numbers, its first row or image alone, and all of it twice by thresholds to codes. Operands are
integers, scaled integers or of real levels. Half of them have a sum, a count or a limit within a factor of 4 of a bound
at which some kernel changes its technique.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import quantarray as qa
from quantarray.ops.products.operand import lower

from .laws import MOST, Operand, integer_operand, magnitude, real_operand
from .oracle import exactly
from .proof import Proof
from .shapes import Array, Call, draw

# Where kernels change technique: bytes, sums of 15 and 16 bits, of 32, of 32 with each of 8 planes, of 53, 62 and 63
BOUNDS = (2**7, 2**8, 2**15, 2**16, 2**24, 2**31, 2**32, 2**39, 2**53, 2**62, 2**63)


def run(rng: np.random.Generator) -> str:
    call = draw(rng)
    qa.set_num_threads(2 if rng.random() < 0.1 else 1)
    most_x, most_w = _magnitudes(rng, call.elements)
    if rng.random() < 0.65:
        x, w = _left(rng, call, most_x), integer_operand(rng, call.w, most_w, call.axis)
    else:
        x, w = _reals(rng, call, most_x, most_w)
    if x.exact and w.exact and x.scale is None and w.scale is None:
        return _check_integers(rng, call, x, w)
    return _check_reals(rng, call, x, w)


def _left(rng: np.random.Generator, call: Call, most: int) -> Operand:
    """Draw the left operand of integers, sometimes bytes that are not packed."""
    if call.op in ("linear", "conv2d") and rng.random() < 0.1:
        info = np.iinfo(rng.choice([np.uint8, np.int8]))
        ends = rng.choice([info.min, info.max], call.x) if rng.random() < 0.3 else None
        values = rng.integers(info.min, info.max + 1, call.x) if ends is None else ends
        return Operand(values.astype(info.dtype), values.astype(np.int64))
    return integer_operand(rng, call.x, most, _packed_axis(call))


def _reals(rng: np.random.Generator, call: Call, most_x: int, most_w: int) -> tuple[Operand, Operand]:
    """Draw operands of which at least one has real levels or a scale."""
    of_x, of_w = rng.choice([(True, True), (True, False), (False, True)])
    last = _packed_axis(call)
    x = real_operand(rng, call.x, most_x, last, 0) if of_x else integer_operand(rng, call.x, most_x, last)
    if not of_w:
        return x, integer_operand(rng, call.w, most_w, call.axis)
    return x, real_operand(rng, call.w, most_w, call.axis, 1 if call.op == "matmul" else 0)


def _packed_axis(call: Call) -> int:
    return len(call.x) - 1


def _magnitudes(rng: np.random.Generator, elements: int) -> tuple[int, int]:
    """Draw the largest levels of x and w: in half of the cases sums of products or of planes reach for a bound."""
    if rng.random() < 0.5:
        return magnitude(rng, 1, MOST), magnitude(rng, 1, 2 ** rng.uniform(0, 31))
    bound = BOUNDS[int(rng.integers(4 if elements < 64 and rng.random() < 0.3 else len(BOUNDS)))]
    product = bound * 2.0 ** rng.uniform(-2, 2) / elements
    if rng.random() < 0.4:
        return magnitude(rng, product, product), 1
    x = magnitude(rng, product / MOST, product)
    return x, magnitude(rng, product / x, product / x)


def _check_integers(rng: np.random.Generator, call: Call, x: Operand, w: Operand) -> str:
    pad, bias = _pad_value(rng, call), _bias(rng, call)
    largest = max(_most(x), abs(pad)) * _most(w) * call.elements
    reach = largest + (0 if bias is None else int(np.abs(bias).max()))
    wide = largest < 2**31 <= reach or (call.op != "einsum" and rng.random() < 0.1)
    named = {"pad_value": pad or None, "bias": bias, "out_dtype": np.int64 if wide else None}
    args = call.args | {name: value for name, value in named.items() if value is not None}
    if reach >= 2**63:
        return _refused(call, x, w, args, reach)
    expected = exact_sums(call, x.values, w.values, pad) + (0 if bias is None else bias.astype(object))

    def check(result: Array, expected: Array) -> None:
        assert result.dtype == (np.int64 if largest >= 2**31 or wide else np.int32), (result.dtype, largest)
        assert result.shape == expected.shape, (result.shape, expected.shape)
        wrong = result.astype(object) != expected
        assert not wrong.any(), (result[wrong][:4].tolist(), expected[wrong][:4].tolist())

    return _four_calls(rng, "integers", call, x, w, args, expected, check)


def exact_sums(call: Call, x: Array, w: Array, pad: int) -> Array:
    """Compute the exact result of integers, as Python's integers."""

    def sums(x: Array, pad: float) -> Array:
        a, b = call.operands(x, w, pad)
        return call.result(exactly(np.matmul, a, b, call.elements))

    inside = sums(x, 0)
    return inside + sums(np.zeros_like(x), 1) * pad if pad else inside


def _check_reals(rng: np.random.Generator, call: Call, x: Operand, w: Operand) -> str:
    pad = _pad_value(rng, call)
    args = call.args | ({"pad_value": pad} if pad else {})
    a, b = call.operands(np.broadcast_to(x.real, call.x), np.broadcast_to(w.real, call.w), pad)
    expected = call.result(np.matmul(a, b))
    if (reach := call.elements * _counted(x) * _counted(w)) >= 2**63:
        return _refused(call, x, w, args, reach)
    # A table is summed up by products of planes, whose numbers may be as large as a level that does not occur
    most = call.elements * max(_largest(x), abs(pad)) * _largest(w)

    def check(result: Array, expected: Array) -> None:
        assert result.dtype == np.float32 and result.shape == expected.shape, (result.dtype, result.shape)
        # Counts are exact and constants float64; the order of docs/decisions/0001 rounds a few times a term
        room = 2.0**-23 * np.abs(expected) + most * 2.0**-44 + 2.0**-140
        far = np.abs(result.astype(np.float64) - expected)
        wrong = (far > room) & (np.abs(expected) < 3e38)
        assert not wrong.any(), (result[wrong][:4].tolist(), expected[wrong][:4].tolist())

    return _four_calls(rng, "reals", call, x, w, args, expected, check)


def _four_calls(
    rng: np.random.Generator, kind: str, call: Call, x: Operand, w: Operand, args: dict[str, Any], expected: Array,
    check: Any,
) -> str:  # fmt: skip
    dense = _made(call, x.packed, w.packed, args)
    check(dense, expected)
    check(_made(call.first(), x.packed[:1], w.packed, args), expected[:1])
    for _ in range(2 if dense.size and call.op != "einsum" else 0):
        _check_codes(rng, call, x, w, args, dense)
    return kind


def _check_codes(
    rng: np.random.Generator, call: Call, x: Operand, w: Operand, args: dict[str, Any], dense: Array
) -> None:
    """Assert that a product with thresholds gives the codes of its dense results."""
    channels, counts = dense.shape[-1], [1, 1, 1, 3, 7, 2]
    count = int(rng.choice([*counts, 15, 31, 63, 127, 255] if dense.size < 1 << 16 else counts))
    values = rng.choice(dense.ravel(), (channels, count))
    if count > 7 and dense.dtype.kind == "i" and rng.random() < 0.5:  # as those of a uniform quantiser
        first, last = values.min(axis=1, keepdims=True).astype(float), values.max(axis=1, keepdims=True).astype(float)
        values = np.floor(first + (last - first) * np.arange(count) / count).astype(np.int64)
    elif rng.random() < 0.3:
        whole = dense.dtype.kind == "i"
        values = values + rng.integers(-1, 2, values.shape).astype(values.dtype) if whole else -values
    greater, strict = rng.random(channels) < 0.7, bool(rng.random() < 0.5)
    levels = [int(v) for v in rng.permutation(count + 1)]
    into = qa.integers(levels) if count > 1 and rng.random() < 0.5 else None
    thresholds = qa.Thresholds(values, greater=greater, strict=strict, into=into)
    actual = _made(call, x.packed, w.packed, args | {"requantize": thresholds}).codes()
    at, rows = np.sort(values, axis=-1), dense[..., None]
    above, below = (rows > at, rows < at) if strict else (rows >= at, rows <= at)
    passed = np.where(greater[:, None], above, below).sum(axis=-1)
    expected = passed if into is None else np.argsort(levels)[passed]
    wrong = actual != expected
    assert not wrong.any(), (actual[wrong][:4].tolist(), expected[wrong][:4].tolist(), values[:2])


def _made(call: Call, x: Any, w: qa.QuantArray, args: dict[str, Any]) -> Any:
    if call.op == "einsum":
        return qa.einsum("ik,ok->io", x, w)
    return getattr(qa, call.op)(x, w, **args)


def _refused(call: Call, x: Operand, w: Operand, args: dict[str, Any], reach: int) -> str:
    """Assert that a sum beyond int64 is refused with an error that names its bound."""
    try:
        _made(call, x.packed, w.packed, args)
    except OverflowError as error:
        assert str(reach) in str(error), error
        return "refused"
    raise AssertionError(f"a sum that may reach {reach} was not refused")


def _most(operand: Operand) -> int:
    """Return the largest magnitude of a level."""
    if isinstance(operand.packed, qa.QuantArray):
        return operand.packed.dtype.max_abs
    return int(max(np.iinfo(operand.packed.dtype).max, -np.iinfo(operand.packed.dtype).min))


def _largest(operand: Operand) -> float:
    """Return the largest magnitude of a level after scaling."""
    return float(np.abs(operand.packed.levels.astype(np.float64)).max())


def _counted(operand: Operand) -> int:
    """Return the largest magnitude of the integers that are counted before constants are applied."""
    packed = operand.packed
    return packed.dtype.max_abs if packed.dtype.is_integer else lower("products", "x", packed).reach


def _pad_value(rng: np.random.Generator, call: Call) -> int:
    if call.op != "conv2d" or not call.args["padding"] or rng.random() < 0.7:
        return 0
    return int(rng.choice([-1, 1, 7, magnitude(rng, 1, MOST)]))


def _bias(rng: np.random.Generator, call: Call) -> Array | None:
    if call.op not in ("linear", "conv2d") or rng.random() < 0.6:
        return None
    return rng.integers(-magnitude(rng, 1, 2**31), magnitude(rng, 1, 2**31), call.outputs)


PROOF = Proof(run, count=250_000, environment={"OPENBLAS_NUM_THREADS": "1"})
