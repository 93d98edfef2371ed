"""Arguments of pools: an array of one to three axes of an image with channels last, and its window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...kernels.windows import Window
from . import geometry


class Pool(NamedTuple):
    """A checked pool: x with channels last, packed or dense."""

    x: Any
    window: Window
    channels_first: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the result with channels last."""
        return self.x.shape[0], *self.window.output, self.x.shape[-1]

    def ordered(self, result: Any) -> Any:
        """Bring a result with channels last to the data format of x."""
        return result.transpose(*geometry.to_first(len(self.window.image))) if self.channels_first else result


def channels_of(op: str, name: str, value: Any, channels: int) -> Array | None:
    """Check a bool for all channels, or one for each: bool[channels], or None where none is set."""
    flags = checks.numbers(op, name, value)
    if flags.dtype != np.bool_ or flags.shape not in ((), (channels,)):
        raise ValueError(
            f"{op}: {name} must be a bool, or one for each of {channels} channels, got {checks.kind(value)}"
        )
    return np.broadcast_to(flags, channels) if flags.any() else None


def words_of(flags: Array | None, count: int) -> Array:
    """Pack bool[channels] to uint64[count]."""
    words = np.zeros(count, np.uint64)
    if flags is not None:
        bits = np.packbits(flags, bitorder="little")
        words.view(np.uint8)[: len(bits)] = bits
    return words


def prepare(
    op: str, x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, data_format: str, axes: int,
    count_include_pad: Any = False,
) -> Pool:  # fmt: skip
    """Check the arguments of a pool over images of `axes` axes."""
    channels_first = geometry.data_format(op, data_format, axes)
    q = x if isinstance(x, QuantArray) else checks.anywhere(op, "x", x)
    _check_axes(op, q, data_format, axes)
    q = q.transpose(*geometry.to_last(axes)) if channels_first else q
    window = geometry.pool_window(
        op, tuple(q.shape[1:-1]), size, stride, padding, dilation, ceil_mode, count_include_pad
    )
    return Pool(q, window, channels_first)


def _check_axes(op: str, q: Any, data_format: str, axes: int) -> None:
    """Raise an error where x is no image, or where its constants vary from place to place."""
    layout, ndim = geometry.LAYOUTS[axes], axes + 2
    at = 1 if data_format == layout.first else ndim - 1
    hint = "; x[None] adds the batch axis" if q.ndim == ndim - 1 else ""
    if not isinstance(q, QuantArray):
        if q.ndim != ndim:
            names = f"n c {layout.letters}" if at == 1 else f"n {layout.letters} c"
            raise ValueError(f"{op}: {data_format} needs x [{names}], got {checks.kind(q)}{hint}")
        return
    if q.ndim != ndim or q.axis != at:
        hint = hint or likely_fix.packed_axis(q, data_format)
        raise ValueError(
            f"{op}: {data_format} needs x with {ndim} axes packed on axis {at}, got shape {q.shape} packed on axis "
            f"{q.axis}{hint}"
        )
    for name, a, lead in q.constants.items():
        if any(a.shape[lead + d] > 1 for d in range(1, ndim) if d != at):
            raise ValueError(f"{op}: the {name} of x varies inside the image {q.shape}, so a window has no one law")
