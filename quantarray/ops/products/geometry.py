"""Windows from the arguments of an operation, over one to three axes of an image."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ...arrays import checks
from ...core.dtypes import DType
from ...kernels.windows import Window, same_padding
from . import epilogue

PLAN_BYTES = 64  # that making a plan takes for an output pixel: its origin, class and place, and what they are made of


class Layout(NamedTuple):
    """A description of images of some axes: data formats with channels last and first, and names of the axes."""

    last: str
    first: str
    letters: str
    taps: str
    names: str
    number: str


LAYOUTS = {
    1: Layout("NWC", "NCW", "w", "k", "(width,)", "one"),
    2: Layout("NHWC", "NCHW", "h w", "kh kw", "(height, width)", "two"),
    3: Layout("NDHWC", "NCDHW", "d h w", "kd kh kw", "(depth, height, width)", "three"),
}


def data_format(op: str, value: str, axes: int) -> bool:
    """Check the data format of images of some axes; True where channels are first."""
    layout = LAYOUTS[axes]
    return checks.choice(op, "data_format", value, (layout.last, layout.first)) == layout.first


def to_last(axes: int) -> tuple[int, ...]:
    """Return the order that brings channels from the second axis to the last."""
    return 0, *range(2, axes + 2), 1


def to_first(axes: int) -> tuple[int, ...]:
    """Return the order that brings channels from the last axis to the second."""
    return 0, axes + 1, *range(1, axes + 1)


def numbers(op: str, name: str, value: Any, least: int, axes: int) -> tuple[int, ...]:
    """Check for an integer for all axes of an image, or one for each."""
    if axes == 2:
        return checks.pair(op, name, value, least)
    each = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(each) != axes:
        layout = LAYOUTS[axes]
        raise ValueError(f"{op}: {name} must be an integer or {layout.number} {layout.names}, got {value!r}")
    return tuple(checks.integer(op, name, n, least, checks.FARTHEST) for n in each)


def window(
    op: str,
    image: tuple[int, ...],
    size: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    hint: Callable[[Any, Any], str] | None = None,
) -> Window:
    """Check stride, padding and dilation; refuse windows larger than the padded image, and absurd results.

    `hint(image, size)` ends the message of a window that is too large.
    """
    axes = len(image)
    steps = numbers(op, "stride", stride, 1, axes)
    spread = numbers(op, "dilation", dilation, 1, axes)
    around = pads(op, image, size, steps, padding, spread)
    result = _window(image, size, steps, around, spread)
    if 0 in result.output:
        fix = "" if hint is None else hint(image, size)
        raise ValueError(
            f"{op}: a window of {_by(size)} with dilation {spread} does not fit into the image {_by(image)} with "
            f"padding {around}{fix}"
        )
    if result.pixels >= 2**31:
        raise ValueError(
            f"{op}: the image {_by(image)} with padding {around} would give {result.output} windows, 2**31 or more"
        )
    return result


def pool_window(
    op: str, image: tuple[int, ...], size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, counted: Any
) -> Window:  # fmt: skip
    """Check the arguments of a pool; `counted`: padding counts in means. Refuse windows that see nothing."""
    axes = len(image)
    lengths = numbers(op, "size", size, 1, axes)
    result = window(op, image, lengths, lengths if stride is None else stride, padding, dilation)
    ceil, counted = checks.flag(op, "ceil_mode", ceil_mode), checks.flag(op, "count_include_pad", counted)
    if counted:
        result = _window(*_geometry(result), result.pads)
    if ceil:
        result = _window(*_geometry(result)[:3], _ceil_pads(result), result.dilation, result.counted)
    if result.padding_only and not counted:
        raise ValueError(f"{op}: padding {result.pads} leaves windows of {lengths} without a single element")
    return result


def _geometry(window: Window) -> tuple[Any, ...]:
    return window.image, window.size, window.stride, window.pads, window.dilation


def _ceil_pads(window: Window) -> tuple[tuple[int, int], ...]:
    """Compute padding that ends with the last window that begins in the image or before it."""
    pads = []
    for n, k, s, (before, after), d in zip(*_geometry(window), strict=True):
        span = (k - 1) * d + 1
        last = max(0, min(-(-(n + before + after - span) // s), (n + before - 1) // s))
        pads.append((before, max(0, last * s + span - before - n)))
    return tuple(pads)


def check(op: str, stride: Any, padding: Any, dilation: Any = 1, axes: int = 2) -> None:
    """Raise an error for a stride, padding or dilation that fits no image."""
    steps, spread = numbers(op, "stride", stride, 1, axes), numbers(op, "dilation", dilation, 1, axes)
    pads(op, (1,) * axes, (1,) * axes, steps, padding, spread)


_window = lru_cache(maxsize=256)(Window)  # with the properties that it has found


def room(op: str, window: Window, shape: tuple[int, ...], into: DType | None) -> None:
    """Raise MemoryError where the result [.. channels] and the plan of its windows do not fit into memory."""
    checks.room(op, f"a result of shape {shape}", epilogue.nbytes(into, shape) + PLAN_BYTES * window.pixels)


def _by(lengths: tuple[int, ...]) -> str:
    return "x".join(map(str, lengths))


def pads(
    op: str,
    image: tuple[int, ...],
    size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: Any,
    dilation: tuple[int, ...],
) -> tuple[tuple[int, int], ...]:
    axes = len(image)
    if isinstance(padding, str):
        checks.choice(op, "padding", padding, ("same", "valid"))
        if padding == "valid":
            return ((0, 0),) * axes
        return tuple(same_padding(*a) for a in zip(image, size, stride, dilation, strict=True))
    if not isinstance(padding, (tuple, list)):
        return tuple((n, n) for n in numbers(op, "padding", padding, 0, axes))
    if len(padding) != axes:
        if axes == 1 and len(padding) == 2:  # (before, after): there is no other axis
            return (checks.pair(op, "padding", padding, 0),)
        raise ValueError(f"{op}: padding must be {_paddings(axes)}, got {padding!r}{_torch_pads(padding, axes)}")
    return tuple(checks.pair(op, "padding", p, 0) for p in padding)


def _paddings(axes: int) -> str:
    pairs = {
        1: "((left, right),)",
        2: "((top, bottom), (left, right))",
        3: "((front, back), (top, bottom), (left, right))",
    }
    return f"an integer, {LAYOUTS[axes].names}, {pairs[axes]}, 'same' or 'valid'"


def _torch_pads(padding: Any, axes: int) -> str:
    if axes == 2 and len(padding) == 4:
        return "; (top, left, bottom, right) is ((top, bottom), (left, right)) here"
    return ""
