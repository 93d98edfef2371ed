"""Fake quantisation by tensors, as modules of torch.ao have it while they are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Of its arguments: x, scale, zero point, the ends of its integers, whether it observes, whether it quantises, and its
# axis, if it is by channel
_PARTS: dict[str, Callable[[Any], Any]] = {
    "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (
        lambda a: (a[0], a[1], a[2], a[4:6], False, a[3], None)
    ),
    "aten::_fused_moving_avg_obs_fq_helper": (
        lambda a: (a[0], a[5], a[6], a[8:10], a[1], a[2], a[10] if a[11:12] == (True,) else None)
    ),
}


def with_numbers(func: Any, args: Any, depends: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return fake quantisation by numbers in place of one by tensors, whose observer is off; others as they are.

    depends: whether a tensor depends on the input.
    """
    parts = _PARTS.get(func._schema.name)
    if parts is None:
        return func, args
    x, scale, zero, ends, observes, quantises, axis = parts(args)
    if bool(observes) or not bool(quantises) or depends(scale) or depends(zero):
        return func, args
    if axis is None:
        numbers = float(scale), int(zero)
        return torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default, (x, *numbers, *ends)
    return torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default, (x, scale, zero, axis, *ends)
