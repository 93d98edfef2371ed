"""Windows from the arguments of an operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ...arrays import checks
from ...core.dtypes import DType
from ...kernels.windows import Window, same_padding
from . import epilogue

PLAN_BYTES = 64  # that making a plan takes for an output pixel: its origin, class and place, and what they are made of


def window(
    op: str,
    image: tuple[int, int],
    size: tuple[int, int],
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    hint: Callable[[tuple[int, int], tuple[int, int]], str] | None = None,
) -> Window:
    """Check stride, padding and dilation; refuse windows larger than the padded image, and absurd results.

    `hint(image, size)` ends the message of a window that is too large.
    """
    steps = checks.pair(op, "stride", stride, 1)
    spread = checks.pair(op, "dilation", dilation, 1)
    pads = _pads(op, image, size, steps, padding, spread)
    result = _window(image, size, steps, pads, spread)
    if 0 in result.output:
        fix = "" if hint is None else hint(image, size)
        raise ValueError(
            f"{op}: a window of {size[0]}x{size[1]} with dilation {spread} does not fit into the image "
            f"{image[0]}x{image[1]} with padding {pads}{fix}"
        )
    if result.output[0] * result.output[1] >= 2**31:
        raise ValueError(
            f"{op}: the image {image[0]}x{image[1]} with padding {pads} would give {result.output} windows, "
            "2**31 or more"
        )
    return result


def check(op: str, stride: Any, padding: Any, dilation: Any = 1) -> None:
    """Raise an error for a stride, padding or dilation that fits no image."""
    steps, spread = checks.pair(op, "stride", stride, 1), checks.pair(op, "dilation", dilation, 1)
    _pads(op, (1, 1), (1, 1), steps, padding, spread)


_window = lru_cache(maxsize=256)(Window)  # with the properties that it has found


def room(op: str, window: Window, shape: tuple[int, ...], into: DType | None) -> None:
    """Raise MemoryError where the result [.. channels] and the plan of its windows do not fit into memory."""
    checks.room(op, f"a result of shape {shape}", epilogue.nbytes(into, shape) + PLAN_BYTES * window.pixels)


def _pads(
    op: str,
    image: tuple[int, int],
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: Any,
    dilation: tuple[int, int],
) -> tuple[tuple[int, int], tuple[int, int]]:
    if isinstance(padding, str):
        checks.choice(op, "padding", padding, ("same", "valid"))
        if padding == "valid":
            return (0, 0), (0, 0)
        top, left = (same_padding(*a) for a in zip(image, size, stride, dilation, strict=True))
        return top, left
    if not isinstance(padding, (tuple, list)):
        n, _ = checks.pair(op, "padding", padding, 0)
        return (n, n), (n, n)
    if len(padding) != 2:
        hint = "; (top, left, bottom, right) is ((top, bottom), (left, right)) here" if len(padding) == 4 else ""
        raise ValueError(
            f"{op}: padding must be an integer, (height, width), ((top, bottom), (left, right)), 'same' or 'valid', "
            f"got {padding!r}{hint}"
        )
    vertical, horizontal = (checks.pair(op, "padding", p, 0) for p in padding)
    return vertical, horizontal
