"""The grid of windows that convolutions and pools walk over, for any number of axes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.dtypes import Array

_MOST = 2**24  # of a length, stride, dilation or pad


class Windows(NamedTuple):
    """A grid of windows: each field has one entry for each axis of the image."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]  # before and after, those of ceil mode included
    output: tuple[int, ...]
    counted: tuple[tuple[int, int], ...]  # pads without those of ceil mode


def grid(a: dict[str, Any], image: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """Return the windows that attributes describe; raise ValueError if they do not fit the image."""
    n = len(image)
    strides, dilations = (tuple(a.get(name) or (1,) * n) for name in ("strides", "dilations"))
    auto, pads = a.get("auto_pad", "NOTSET"), tuple(a.get("pads") or (0,) * 2 * n)
    shape = tuple(a.get("kernel_shape") or kernel)
    if shape != tuple(kernel) or not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == n:
        raise ValueError(
            f"kernel {shape}, strides {strides}, dilations {dilations} and pads {pads} do not fit {n} axes of an image"
        )
    if min((*kernel, *strides, *dilations), default=1) < 1 or min(pads, default=0) < 0 or len(pads) % 2:
        raise ValueError(f"kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} must not be less")
    if max((*kernel, *strides, *dilations, *pads), default=0) >= _MOST:
        raise ValueError(f"kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} pass {_MOST}")
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    counted = _pads(auto, image, reach, strides, pads)
    ends, output = [], []
    for (before, after), length, r, s in zip(counted, image, reach, strides, strict=True):
        left = before + length + after - r
        if left < 0:
            raise ValueError(f"the kernel {kernel} reaches over the whole image {image}")
        count = (-(-left // s) if a.get("ceil_mode") else left // s) + 1
        if a.get("ceil_mode") and (count - 1) * s >= before + length:
            count -= 1  # a window must begin in the image or before it
        output.append(count)
        ends.append((before, max(after, (count - 1) * s + r - before - length)))
    return Windows(tuple(kernel), strides, dilations, tuple(ends), tuple(output), counted)


def _pads(
    auto: str, image: tuple[int, ...], reach: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        both = (max(0, (-(-n // s) - 1) * s + r - n) for n, r, s in zip(image, reach, strides, strict=True))
        return tuple((p // 2, p - p // 2) if auto == "SAME_UPPER" else (p - p // 2, p // 2) for p in both)
    if auto == "VALID":
        return ((0, 0),) * len(image)
    if auto != "NOTSET":
        raise ValueError(f"auto_pad {auto!r} is none of NOTSET, SAME_UPPER, SAME_LOWER and VALID")
    return tuple(zip(pads[: len(image)], pads[len(image) :], strict=True))


def tap(x: Array, windows: Windows, at: tuple[int, ...], lead: int = 2) -> Array:
    """Return a view of the elements of a padded x under one tap, for every window; `lead` axes precede the image."""
    index = (
        slice(i * d, i * d + (count - 1) * s + 1, s)
        for i, d, s, count in zip(at, windows.dilations, windows.strides, windows.output, strict=True)
    )
    return x[(slice(None),) * lead + tuple(index)]
