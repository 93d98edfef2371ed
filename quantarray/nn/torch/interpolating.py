"""Images of another size: nearest elements by their places, others by the linear and cubic modes of ONNX's Resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..onnx import movement
from ..onnx.laws import Constant, Operand
from .conversion import Conversion
from .recording import Call

_FACTORS = ("scale_factors", "scales", "scales_d", "scales_h", "scales_w")


def _arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    names = [a.name for a in call.function._schema.arguments]
    return dict(zip(names, call.args, strict=False)) | call.kwargs


def _factors(a: dict[str, Any]) -> list[float] | None:
    """Return the factors that images grow by, if they were passed; PyTorch takes them for its coordinates then."""
    named = [a[n] for n in _FACTORS if a.get(n) is not None]
    flat = [float(f) for n in named for f in (n if isinstance(n, (tuple, list)) else (n,))]
    return flat or None


def _lowered(c: Conversion, call: Call, op: str, operands: list[Operand], shape: Any, **attributes: Any) -> Operand:
    step = c.step(call, op, **attributes)
    c.builder.step = step
    result: Operand = movement.LOWER[op](c.builder, step, operands, [shape])[0]
    return result


def _nearest(c: Conversion, call: Call) -> None:
    """Convert up-sampling to the nearest element: of whole factors a Resize, else elements at PyTorch's places."""
    x, out, exact = call.args[0], call.results[0].shape, "exact" in call.op
    if not exact and all(m % n == 0 for n, m in zip(x.shape[2:], out[2:], strict=True)):
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        factors = Constant(np.array([m / n for n, m in zip(x.shape, out, strict=True)], np.float32))
        c.put(call.results[0], _lowered(c, call, "Resize", [c.settle(x), None, factors], out, **how))
        return
    factors_of, value, shape = _factors(_arguments(call)), c.settle(x), list(x.shape)
    function = torch.ops.aten._upsample_nearest_exact1d if exact else torch.ops.aten.upsample_nearest1d
    moved: Operand = value
    for i, n in enumerate(x.shape[2:]):
        row = torch.arange(n, dtype=torch.float32).reshape(1, 1, n)
        places = function.default(row, [out[2 + i]], factors_of[i] if factors_of else None)
        shape[2 + i] = out[2 + i]
        if not torch.equal(places, row):
            at = Constant(places.reshape(-1).to(torch.int64).numpy())
            moved = _lowered(c, call, "Gather", [moved, at], tuple(shape), axis=2 + i)
    c.put(call.results[0], moved)


def _interpolated(c: Conversion, call: Call) -> None:
    """Convert up-sampling by a linear or cubic interpolation."""
    x, out, a = call.args[0], call.results[0].shape, _arguments(call)
    mode = "cubic" if "cubic" in call.op else "linear"
    corners, factors = bool(a["align_corners"]), _factors(a)
    how = {"mode": mode, "coordinate_transformation_mode": "align_corners" if corners else "half_pixel"}
    if factors is None or corners:
        operands = [c.settle(x), None, None, Constant(np.array(out, np.int64))]
    else:
        operands = [c.settle(x), None, Constant(np.array([1, 1, *factors], np.float64))]
    c.put(call.results[0], _lowered(c, call, "Resize", operands, out, **how))


LOWER: dict[str, Any] = {
    **{f"{kind}{n}d": _nearest for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)},
    **dict.fromkeys("upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d".split(),
                    _interpolated),
}  # fmt: skip
