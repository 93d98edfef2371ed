"""Products of floats and packed weights with a scale for each block of inputs: MatMulNBits of ONNX Runtime."""

from __future__ import annotations

import numpy as np

from ...arrays.array import QuantArray
from ...core.dtypes import Array, integers, uniform
from ...ops.creation.creation import from_codes
from .building import Builder
from .laws import Constant, Link, Operand, Shape, Tensor
from .reading import Step
from .tensors import Refused

_MOST_BITS = 8
_FLOATS = np.float16, np.float32


def packed_integers(whole: Array, scale: Array, group: int | None) -> QuantArray | None:
    """Pack integers [o k] times scales [o groups] in as few bits as they take; None for more than 8."""
    low, high = int(whole.min()), int(whole.max())
    bits = max((-low - 1).bit_length() if low < 0 else 0, max(high, 0).bit_length()) + 1
    bits = max(bits, 2)
    if bits > _MOST_BITS:
        return None
    first = -(1 << (bits - 1))
    return from_codes((whole - first).astype(np.uint8), integers(range(first, -first)), 1, scale=scale, group=group)


def _lowered(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Multiply by values (code - zero point) * scale, as they are; accuracy_level is not looked at."""
    x, _, _, _, order, bias = [*operands, None, None, None][:6]
    a, kind = step.attributes, getattr(x, "dtype", None)
    outputs, k = int(a["N"]), int(a["K"])
    if not isinstance(x, Tensor) or kind not in _FLOATS or x.shape[-1] != k:
        what = f"{kind} {getattr(x, 'shape', ())}"
        raise Refused(f"it multiplies float16 or float32 rows of K = {k} elements, not {what}")
    if order is not None and not (isinstance(order, Constant) and (order.value == _blocks_of(a)).all()):
        raise Refused("its inputs are in another order (g_idx)")
    weight = _weight(a, operands)
    b.per_sample(len(x.shape) >= 2)
    shape = (*x.shape[:-1], outputs)
    b.check_size([shape])
    out = b.emit("dequantized_linear", [b.dense(x), b.constant(weight, f"{b.hint}.weight")], b.hint)
    if kind != np.float32:
        out = b.emit("Cast", [out], b.hint, to=str(kind))
    y = b.value(out, shape, kind)
    if bias is None:
        return [y]
    if not isinstance(bias, Constant):
        raise Refused("its bias must be a constant")
    return [y.then(Link("Add", {}, (None, bias.value)))]


def _blocks_of(a: dict[str, int]) -> Array:
    return np.arange(int(a["K"])) // int(a["block_size"])


def _weight(a: dict[str, int], operands: list[Operand]) -> QuantArray:
    """Pack the weight [N K].

    If integers less their zero points take more than 8 bits, or if these are floats, an offset, -zero point * scale, is
    rounded to float32.
    """
    outputs, k, group, bits = int(a["N"]), int(a["K"]), int(a["block_size"]), int(a.get("bits", 4))
    if not 1 <= bits <= _MOST_BITS or group < 1 or outputs < 1 or k < 1:
        settings = f"{bits}, {outputs}, {k}, {group}"
        raise Refused(f"bits must be 1 to {_MOST_BITS} and N, K and block_size positive, not {settings}")
    blocks = -(-k // group)
    stored, scale = (_constant(operands, at, what) for at, what in ((1, "weight"), (2, "scale")))
    if stored.dtype != np.uint8:
        raise Refused(f"its weight must be uint8, not {stored.dtype}")
    codes = _unpacked(stored.reshape(outputs, blocks, -1), group, bits).reshape(outputs, blocks * group)[:, :k]
    scale = scale.astype(np.float32).reshape(outputs, blocks)
    zero: Array = np.full((outputs, blocks), 1 << (bits - 1))
    if len(operands) > 3 and operands[3] is not None:
        zero = _constant(operands, 3, "zero point")
        packed = zero.dtype == np.uint8
        zero = _unpacked(zero.reshape(outputs, -1), blocks, bits) if packed else zero.reshape(outputs, blocks)
    along = group if blocks > 1 else None
    if zero.dtype.kind != "f":
        whole = codes.astype(np.int64) - np.repeat(zero.astype(np.int64), group, axis=1)[:, :k]
        if (weight := packed_integers(whole, scale, along)) is not None:
            return weight
    offset = (-zero.astype(np.float64) * scale).astype(np.float32)
    return from_codes(codes, uniform(bits), 1, scale=scale, offset=offset, group=along)


def _constant(operands: list[Operand], at: int, what: str) -> Array:
    x = operands[at]
    if not isinstance(x, Constant):
        raise Refused(f"its {what} (operand {at}) must be a constant")
    return x.value


def _unpacked(stored: Array, count: int, bits: int) -> Array:
    """Return `count` codes of each row of bytes, whose first code has the lowest bits."""
    each = np.unpackbits(stored, axis=-1, bitorder="little")
    if each.shape[-1] < count * bits:
        raise Refused(f"{count} codes of {bits} bits take {-(-count * bits // 8)} bytes, not {stored.shape[-1]}")
    rows = each[..., : count * bits].reshape(*stored.shape[:-1], count, bits)
    codes: Array = np.packbits(rows, axis=-1, bitorder="little")[..., 0]
    return codes


LOWER = {"com.microsoft.MatMulNBits": _lowered}
