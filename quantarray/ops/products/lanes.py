"""Lanes of a kernel: output channels, padded to whole blocks, so that kernels need no ragged ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...backends.registry import contiguous, empty, kernel
from ...core.dtypes import Array
from ...core.format import WORD, WORD_BITS

TILE = 4  # pixels of a kernel's tile
QUAD = 4  # neighbours of the contraction whose products one instruction adds
LANES = 32  # channels of a block


class Lanes(Protocol):
    """[.., channels] -> [.., lanes], zeros in the padding."""

    def __call__(self, a: Array) -> Array: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class GroupLanes:
    """A layout in which each group's channels are padded to whole blocks of 32."""

    channels: int
    groups: int = 1

    @property
    def blocks(self) -> int:
        return self.groups * -(-self.channels // self.groups // LANES)

    def __call__(self, a: Array) -> Array:
        per_group = self.channels // self.groups
        if a.shape[-1] == self.blocks * LANES:
            return np.ascontiguousarray(a)
        out = np.zeros((*a.shape[:-1], self.groups, self.blocks // self.groups * LANES), a.dtype)
        out[..., :per_group] = a.reshape(*a.shape[:-1], self.groups, per_group)
        return out.reshape(*a.shape[:-1], self.blocks * LANES)


@dataclass(frozen=True)
class CopyLanes:
    """A layout in which channel c * copies + r becomes lane c of copy r, each copy padded to whole words of 64."""

    channels: int
    copies: int

    @property
    def width(self) -> int:
        return -(-self.channels // WORD_BITS) * WORD_BITS

    def __call__(self, a: Array) -> Array:
        out = np.zeros((*a.shape[:-1], self.copies, self.width), a.dtype)
        out[..., : self.channels] = np.moveaxis(a.reshape(*a.shape[:-1], self.channels, self.copies), -1, -2)
        return out.reshape(*a.shape[:-1], self.copies * self.width)


def weight_words(device: str, name: str, words: Array, groups: int) -> Array:
    """Lay uint64[planes channels taps words] out for the kernel `name`."""
    planes, channels = words.shape[:2]
    flat = contiguous(words).reshape(planes, channels, -1)
    out = empty(device, (planes, GroupLanes(channels, groups).blocks, flat.shape[-1], LANES))
    kernel(device, layout_of(name))(flat, groups, out)
    return out


def words_of(layout: str) -> str:
    """Name the kernel that undoes a layout."""
    return layout.replace("_weights", "_words")


def layout_of(name: str) -> str:
    """Name the kernel that lays weights out for the kernel `name`."""
    return "dot_weights" if name in ("dot", "winograd", "framed") else "conv_weights"


def layout_bytes(planes: int, outputs: int, words: int, groups: int = 1) -> int:
    """Count the bytes of the layout of weights of so many planes, and words an output."""
    return planes * GroupLanes(outputs, groups).blocks * LANES * words * WORD.itemsize


def full_lane(constant: Array, channels: int) -> Array:
    """Broadcast a constant's last axis, 1 or channels long, to all channels."""
    return np.broadcast_to(constant, (*constant.shape[:-1], channels))
