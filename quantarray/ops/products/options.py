"""Keyword arguments that do not decide the type of a result, for type checkers.

S: the type of a length for each axis. P: that of padding. F: the layouts.
"""

from __future__ import annotations

from typing import Generic, TypedDict, TypeVar

from ...core.dtypes import Array
from ...core.hints import Flags, OutType, Values

S = TypeVar("S")
P = TypeVar("P")
F = TypeVar("F")


class ConvOptions(TypedDict, Generic[S, P, F], total=False):
    """A dict of arguments of `conv1d`, `conv2d` and `conv3d`."""

    bias: Values | None
    stride: S
    padding: P
    dilation: S
    groups: int
    pad_value: float
    out_dtype: OutType
    data_format: F
    flip_kernel: bool
    out: Array | None


class TransposedOptions(TypedDict, Generic[S, P, F], total=False):
    """A dict of arguments of `conv_transpose1d`, `conv_transpose2d` and `conv_transpose3d`."""

    bias: Values | None
    stride: S
    padding: P
    output_padding: S
    dilation: S
    groups: int
    out_dtype: OutType
    data_format: F
    flip_kernel: bool
    out: Array | None


class PoolOptions(TypedDict, Generic[S, P, F], total=False):
    """A dict of arguments of all pools."""

    stride: S | None
    padding: P
    dilation: S
    ceil_mode: bool
    data_format: F


class MaxPoolOptions(PoolOptions[S, P, F], total=False):
    """A dict of arguments of `max_pool1d`, `max_pool2d` and `max_pool3d`."""

    falling: Flags


class AvgPoolOptions(PoolOptions[S, P, F], total=False):
    """A dict of arguments of `avg_pool1d`, `avg_pool2d` and `avg_pool3d`."""

    count_include_pad: bool
