"""Tell the context around which values a quantiser has made, so that they are saved as codes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from ..core.code_values import level_values
from ..core.dtypes import Constants, DType
from .holder import ACTIVE

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # whose values float32 has


def noted(tensor: torch.Tensor, levels: Any, step: torch.Tensor | None = None) -> torch.Tensor:
    """Tell the context around all values that a tensor may have, [levels], times a step; return the tensor."""
    if not torch.compiler.is_compiling() and ACTIVE.holders and tensor.device.type == "cpu":
        values = torch.as_tensor(levels, dtype=tensor.dtype)
        _note(tensor, (values if step is None else values * step.detach()).float()[None])
    return tensor


def _note(tensor: torch.Tensor, table: torch.Tensor) -> None:
    if tensor.numel() and tensor.dtype in _FLOATS:
        ACTIVE.holders[-1].note(tensor, table)


def note_law(tensor: torch.Tensor, dtype: DType, constants: Constants) -> torch.Tensor:
    """Tell the context around the levels of a tensor by the law of its codes, where they vary by outputs at most."""
    if not torch.compiler.is_compiling() and ACTIVE.holders and tensor.is_contiguous():
        table = level_values(dtype, constants)
        rows = table.shape[1] if table.ndim > 1 else 1
        if table.size == rows * len(table) and tensor.device.type == "cpu":  # varies along the first axis alone
            _note(tensor, torch.from_numpy(table.reshape(len(table), rows).T.astype(np.float32)))
    return tensor


def as_it_is() -> Any:
    """Return a context in which saved tensors stay as they are, inside of one that packs them."""
    if torch.compiler.is_compiling() or not ACTIVE.holders:
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda tensor: tensor)
