"""Weights that torchao quantised: integers, and a scale for each output or for each group along its inputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ..onnx.blocked_weights import packed_integers
from ..onnx.tensors import Refused

_TAKEN = ("Int8Tensor", "IntxUnpackedToInt8Tensor")
_ACTIVATIONS = ("act_quant_kwargs", "act_pre_scale", "activation_quantization")  # None if only weights are quantised


class Stored(NamedTuple):
    """A weight [o k] as integers int64 less their zero points, times scales [o groups] of groups along k.

    floats: the same weight as a tensor; recorded values that share its storage are this weight.
    """

    integers: Array
    scale: Array
    floats: Any

    def packed(self) -> QuantArray | None:
        """Pack the weight in as few bits as its integers take; None if it has no two axes or more than 8 bits."""
        if self.integers.ndim != 2 or not self.integers.size:
            return None
        groups = self.scale.shape[1]
        return packed_integers(self.integers, self.scale, self.integers.shape[1] // groups if groups > 1 else None)


def is_torchao(tensor: Any) -> bool:
    """Tell if a tensor is one of torchao's types."""
    return any(t.__module__.startswith("torchao.") for t in type(tensor).__mro__)


def stored(weight: Any) -> Stored:
    """Return a weight of torchao as integers and scales; raise Refused if more than the weight is quantised."""
    kind = type(weight).__name__
    if kind not in _TAKEN:
        raise Refused(f"its weight is a {kind} of torchao, which is not taken; use Int8WeightOnlyConfig or Intx..")
    if any(getattr(weight, name, None) is not None for name in _ACTIVATIONS):
        raise Refused("torchao quantises its input by the numbers of the input; use a configuration of weights only")
    whole, blocks = weight.qdata.numpy().astype(np.int64), [int(n) for n in weight.block_size]
    zero, scale = weight.zero_point, weight.scale.float().numpy()
    shape = tuple(n // b for n, b in zip(whole.shape, blocks, strict=True))
    if zero is not None:
        whole = whole - _spread(zero.numpy().reshape(shape).astype(np.int64), blocks)
    by_row = _spread(scale.reshape(shape), [*blocks[:1], *(1 for _ in blocks[1:])])
    return Stored(whole, by_row, weight.dequantize().detach())


def _spread(a: Array, blocks: list[int]) -> Array:
    """Repeat each number over its block."""
    for axis, n in enumerate(blocks):
        a = np.repeat(a, n, axis=axis)
    return a
