"""Products of packed arrays near the bounds of their accumulators, against sums that no accumulator limits.

A case is one call: linear, matmul, einsum, conv2d (dense, in groups, depthwise) or avg_pool2d, of integers, scaled
integers or real levels, to numbers or by thresholds to codes. Half of them have a sum, a count or a limit within a
factor of 4 of a bound at which some kernel changes its ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa

from .. import naive
from .laws import MOST, Operand, integer_operand, magnitude, real_operand
from .oracle import exactly
from .proof import Proof

WORK = 2**19  # products of a case, about
# Where kernels change their ways: bytes, sums of 15 and 16 bits, of 32, of 32 with each of 8 planes, of 53, 62 and 63
BOUNDS = (2**7, 2**8, 2**15, 2**16, 2**24, 2**31, 2**32, 2**39, 2**53, 2**62, 2**63)
SHARES = {"linear": 0.4, "matmul": 0.1, "einsum": 0.05, "conv2d": 0.3, "groups": 0.1, "depthwise": 0.05}
Array = np.ndarray[Any, Any]


class Call(NamedTuple):
    """How a product is called, and how a NumPy oracle makes it of values."""

    op: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    axis: int  # packed axis of w
    elements: int  # of a sum
    args: dict[str, Any]


def run(rng: np.random.Generator) -> str:
    call = _call(rng)
    if rng.random() < 0.5:
        qa.set_num_threads(int(rng.integers(1, 3)))
    exact = rng.random() < 0.65
    most_x, most_w = _magnitudes(rng, call.elements)
    if exact:
        x, w = _image(rng, call, most_x), integer_operand(rng, call.w, most_w, call.axis)
    else:
        x, w = _reals(rng, call, most_x, most_w)
    return _check_exact(rng, call, x, w) if x.scale is None and w.scale is None and x.exact and w.exact else (
        _check_real(rng, call, x, w)
    )  # fmt: skip


def _image(rng: np.random.Generator, call: Call, most: int) -> Operand:
    """The left operand of integers, sometimes bytes that are not packed."""
    if call.op in ("linear", "conv2d") and rng.random() < 0.1:
        dtype = rng.choice([np.uint8, np.int8])
        info = np.iinfo(dtype)
        ends = rng.choice([info.min, info.max], call.x) if rng.random() < 0.3 else None
        values = rng.integers(info.min, info.max + 1, call.x) if ends is None else ends
        return Operand(values.astype(dtype), values.astype(np.int64))  # type: ignore[arg-type]
    return integer_operand(rng, call.x, most, 3 if len(call.x) == 4 else -1)


def _reals(rng: np.random.Generator, call: Call, most_x: int, most_w: int) -> tuple[Operand, Operand]:
    """Operands of which at least one has real levels or a scale."""
    of_x, of_w = rng.choice([(True, True), (True, False), (False, True)])
    last = 3 if len(call.x) == 4 else -1
    x = real_operand(rng, call.x, most_x, last, 0) if of_x else integer_operand(rng, call.x, most_x, last)
    if not of_w:
        return x, integer_operand(rng, call.w, most_w, call.axis)
    outputs = 1 if call.op == "matmul" else 0
    return x, real_operand(rng, call.w, most_w, call.axis, outputs)


def _call(rng: np.random.Generator) -> Call:
    op = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    k = int(2 ** rng.uniform(0, np.log2(10**6)))
    if op in ("linear", "matmul", "einsum"):
        rows, outputs = _sizes(rng, max(1, WORK // k), 2)
        w = (k, outputs) if op == "matmul" else (outputs, k)
        return Call(op, (rows, k), w, 0 if op == "matmul" else 1, k, {})
    return _convolution(rng, op, k)


def _sizes(rng: np.random.Generator, product: int, n: int) -> list[int]:
    """Numbers of at most 300 whose product is at most `product`, about."""
    sizes = []
    for _ in range(n):
        size = min(300, max(1, int(product ** rng.uniform(0, 1))))
        sizes.append(int(rng.integers(1, size + 1)))
        product = max(1, product // sizes[-1])
    return [int(v) for v in rng.permutation(sizes)]


def _convolution(rng: np.random.Generator, op: str, k: int) -> Call:
    height, width = (int(v) for v in rng.choice([1, 1, 2, 3, 3, 3, 5], 2))
    stride, dilation = (tuple(int(v) for v in rng.choice([1, 1, 1, 2, 3], 2)) for _ in range(2))
    padding = int(rng.choice([0, 0, 1, 1, 2]))
    spread = [(size - 1) * by + 1 for size, by in zip((height, width), dilation, strict=True)]
    c = max(1, min(k, 10**5) // (height * width))
    groups = 1
    if op == "groups":
        groups = int(rng.choice([2, 3, 4, 8]))
        c = int(rng.choice([c % 200 + 1, 1, 2, 8, 16, 32, 64]))
    if op == "depthwise":
        groups, c = min(c, 300), 1
    work = max(1, WORK // (height * width * c * groups))
    per_group, rows, columns = _sizes(rng, work, 3)
    outputs = groups * (int(rng.integers(1, 3)) if op == "depthwise" else min(per_group, 100))
    images = int(rng.choice([1, 1, 2, 5]))
    image = [max(1, n + s - 1 - 2 * padding) for n, s in zip((min(rows, 14), min(columns, 14)), spread, strict=True)]
    image = [max(n, s - 2 * padding) for n, s in zip(image, spread, strict=True)]
    args = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    axis = 0 if op == "depthwise" and rng.random() < 0.8 else 3
    shape = (images, *image, c * groups)
    return Call("conv2d", shape, (outputs, height, width, c), axis, height * width * c, args)


def _magnitudes(rng: np.random.Generator, elements: int) -> tuple[int, int]:
    """Largest levels of x and w: in half of the cases sums of products, or counts of planes, reach for a bound."""
    if rng.random() < 0.5:
        return magnitude(rng, 1, MOST), magnitude(rng, 1, 2 ** rng.uniform(0, 31))
    bound = int(rng.choice(BOUNDS[:4] if elements < 64 and rng.random() < 0.3 else BOUNDS))  # type: ignore[arg-type]
    product = bound * 2.0 ** rng.uniform(-2, 2) / elements
    if rng.random() < 0.4:
        return magnitude(rng, product, product), 1
    x = magnitude(rng, max(1, product / MOST), min(MOST, max(1, product)))
    return x, magnitude(rng, product / x, product / x)


def _check_exact(rng: np.random.Generator, call: Call, x: Operand, w: Operand) -> str:
    pad = _pad_value(rng, call, x)
    outputs = call.w[1] if call.op == "matmul" else call.w[0]
    bias = _bias(rng, outputs) if call.op in ("linear", "conv2d") else None
    expected = _oracle(call, x.values, w.values, pad)
    if bias is not None:
        expected = expected + bias.astype(object)
    args = dict(call.args) | ({"pad_value": pad} if pad else {}) | ({"bias": bias} if bias is not None else {})
    largest = max(_most(x), abs(pad)) * _most(w) * call.elements
    reach = largest + (int(np.abs(bias).max()) if bias is not None else 0)
    wide = bool(largest < 2**31 <= reach)
    if call.op != "einsum" and (wide or rng.random() < 0.1):
        args["out_dtype"] = np.int64
    if reach >= 2**63:
        return _refused(call, x, w, args, reach)
    found = _made(call, x.packed, w.packed, args)
    assert found.dtype == (np.int64 if largest >= 2**31 or "out_dtype" in args else np.int32), (found.dtype, largest)
    _equal(found, expected)
    if rng.random() < 0.5 and call.op != "einsum":
        _check_codes(rng, call, x, w, args, found)
        return "integers to codes"
    return "integers"


def _check_real(rng: np.random.Generator, call: Call, x: Operand, w: Operand) -> str:
    pad = _pad_value(rng, call, x)
    args = dict(call.args) | ({"pad_value": pad} if pad else {})
    a, b = x.real, w.real
    expected = _values(call, a, b, pad)
    most = _values(call, np.abs(a), np.abs(b), abs(pad))
    if reach := _beyond(x, w, call.elements):
        return _refused(call, x, w, args, reach)
    found = _made(call, x.packed, w.packed, args)
    assert found.dtype == np.float32
    # Counts are exact and the constants float64; the order of docs/decisions/0001 rounds a few times a term
    room = 2.0**-23 * np.abs(expected) + most * 2.0**-44 + 2.0**-140
    far = np.abs(found.astype(np.float64) - expected)
    with np.errstate(over="ignore"):
        fits = np.abs(expected) < 3e38
    assert (far <= room)[fits].all(), (float((far / room)[fits].max()), found.ravel()[:4], expected.ravel()[:4])
    if rng.random() < 0.4 and call.op != "einsum":
        _check_codes(rng, call, x, w, args, found)
        return "reals to codes"
    return "reals"


def _check_codes(
    rng: np.random.Generator, call: Call, x: Operand, w: Operand, args: dict[str, Any], dense: Array
) -> None:
    """Thresholds among the results give what comparing the results gives."""
    channels = dense.shape[-1]
    count = int(rng.choice([1, 1, 1, 3, 7, 2]))
    if not dense.size:
        return
    drawn = rng.choice(dense.ravel(), (channels, count))
    if rng.random() < 0.3:
        drawn = drawn - rng.integers(0, 2, drawn.shape).astype(drawn.dtype) if dense.dtype.kind == "i" else -drawn
    greater = rng.random(channels) < 0.7
    thresholds = qa.Thresholds(drawn, greater=greater, strict=bool(rng.random() < 0.5), into=_into(rng, count))
    args = {name: value for name, value in args.items() if name != "out_dtype"} | {"requantize": thresholds}
    found = _made(call, x.packed, w.packed, args)
    at = np.sort(drawn, axis=-1)
    rows = dense[..., None]
    passed = np.where(
        greater[:, None], rows > at if thresholds.strict.all() else rows >= at,
        rows < at if thresholds.strict.all() else rows <= at,
    ).sum(axis=-1)  # fmt: skip
    order = np.argsort(np.array(thresholds.into.levels))
    np.testing.assert_array_equal(found.codes(), order[passed])


def _into(rng: np.random.Generator, count: int) -> qa.DType | None:
    if count != 1 and rng.random() < 0.5:
        return qa.integers([int(v) for v in rng.permutation(count + 1)])
    return None


def _oracle(call: Call, x: Array, w: Array, pad: int) -> Array:
    """The exact result, Python's integers."""
    if call.op != "conv2d":
        right = w if call.op == "matmul" else w.T
        return exactly(np.matmul, x, right, call.elements)

    def convolved(pad_value: int) -> Callable[[Array, Array], Array]:
        return lambda a, b: naive.conv2d(a, b, **_geometry(call), pad_value=pad_value)

    inside = exactly(convolved(0), x, w, call.elements)
    if not pad:
        return inside
    # What padding adds comes from an image of zeros between ones
    return inside + exactly(convolved(1), np.zeros_like(x[:1]), w, call.elements) * pad


def _values(call: Call, x: Array, w: Array, pad: float) -> Array:
    if call.op != "conv2d":
        return x @ (w if call.op == "matmul" else w.T)
    return naive.conv2d(x, np.broadcast_to(w, call.w), **_geometry(call), pad_value=pad)


def _geometry(call: Call) -> dict[str, Any]:
    return {**call.args, "padding": ((call.args["padding"],) * 2,) * 2}


def _made(call: Call, x: Any, w: qa.QuantArray, args: dict[str, Any]) -> Any:
    if call.op == "einsum":
        return qa.einsum("ik,ok->io", x, w)
    return getattr(qa, call.op)(x, w, **args)


def _refused(call: Call, x: Operand, w: Operand, args: dict[str, Any], reach: int) -> str:
    """A sum that int64 cannot hold is refused with its bound."""
    try:
        _made(call, x.packed, w.packed, args)
    except OverflowError as error:
        assert str(reach) in str(error), error
        return "refused"
    raise AssertionError(f"a sum that may reach {reach} was not refused")


def _equal(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert (found.astype(object) == expected).all(), (found.ravel()[:4].tolist(), expected.ravel()[:4].tolist())


def _most(operand: Operand) -> int:
    if not isinstance(operand.packed, qa.QuantArray):
        return 255 if operand.packed.dtype == np.uint8 else 128
    return operand.packed.dtype.max_abs


def _beyond(x: Operand, w: Operand, elements: int) -> int:
    """The bound of counts of a real product, where it is above what int64 holds; else 0."""
    from quantarray.ops.operand import lower

    reach = elements * lower("", "x", x.packed).reach * lower("", "w", w.packed).reach
    return reach if reach >= 2**63 else 0


def _pad_value(rng: np.random.Generator, call: Call, x: Operand) -> int:
    if call.op != "conv2d" or not call.args["padding"] or rng.random() < 0.7:
        return 0
    return int(rng.choice([-1, 1, 7, magnitude(rng, 1, MOST)]))


def _bias(rng: np.random.Generator, outputs: int) -> Array | None:
    if rng.random() < 0.6:
        return None
    return rng.integers(-magnitude(rng, 1, 2**31), magnitude(rng, 1, 2**31), outputs)


def _prepare() -> None:
    if os.environ.get("QUANTARRAY_CPU") is None:
        qa.set_num_threads(2)


PROOF = Proof(run, count=10**6, prepare=_prepare)
