"""Fake quantisation of floats as one product and one rounding, not as the steps that it consists of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..onnx.laws import Tensor, scaling
from .functions import DECOMPOSED, FAKE, Function, decomposed
from .grids import Grid
from .recording import Var

if TYPE_CHECKING:
    from .conversion import Conversion


def at_the_end(c: Conversion, f: Function, var: Var) -> Tensor | None:
    """Quantise floats by the fake quantisation with one scale that a function ends with; None if it has no such end.

    The integers are clip(rint(x * (1 / scale)), low - zero, high - zero), in float32 as PyTorch computes them.
    """
    calls = f.needed()
    last = calls[-1]
    if last.op in FAKE and "per_tensor" in last.op:
        first, (x, scale, zero, low, high) = last, last.args[:5]
        factor = np.float32(1) / np.float32(scale)
    elif decomposed(last) and last.op == DECOMPOSED[2] and len(calls) > 1 and last.args[0] is calls[-2].results[0]:
        first = calls[-2]
        if not decomposed(first) or first.op != DECOMPOSED[0] or _numbers(first.args) != _numbers(last.args):
            return None
        x, (scale, zero), (low, high) = first.args[0], _numbers(first.args), first.args[3:5]
        factor = np.float32(1.0 / scale)
    else:
        return None
    b, kind = c.builder, np.dtype(np.float32)
    name = c.emitted(replace(f, calls=tuple(calls[: calls.index(first)]), out=x))
    b.step = c.step(last, last.op)
    name = b.emit("Mul", [name, b.constant(factor)], f"{b.hint}.steps")
    steps = c.rounded(name, Grid(1.0, int(low) - int(zero), int(high) - int(zero)), var)
    return replace(steps, dtype=kind, chain=(scaling(np.float32(scale), kind),))


def _numbers(args: Any) -> tuple[float, int]:
    scale, zero = (a.tensor.item() if isinstance(a, Var) else a for a in args[1:3])
    return float(scale), int(zero)
