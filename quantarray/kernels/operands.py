"""Operands of kernels as named tuples: both sides of a product, plans of windows, and the last step.

Shapes are in brackets; all word arrays are C-contiguous uint64. `kernels/contract.py` has the kernels that take them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.dtypes import Array

# Steps of a `Chain`, each with a constant k of the channel: v + k, v - k, k - v, v * k, v / k, max(v, k), min(v, k),
# v * k where v < 0, v + the other operand; v * k plus the next step's constant in float64, rounded once; and that step,
# which leaves v as it is
ADD, SUB, RSUB, MUL, DIV, MAX, MIN, PRELU, ADD_OTHER, AFFINE, OFFSET = range(11)


class Chain(NamedTuple):
    """A list of functions of elements in float32, one after the other: `steps`, on x times a scale."""

    scale: Array  # float64[channels], or [0] where x is taken as it is
    other_scale: Array  # float64[channels] or [0], of the other operand
    steps: Array  # int64[steps]: ADD to OFFSET
    constants: Array  # float32[max(steps, 1) channels], channels filled up to words of 64


class Plan(NamedTuple):
    """A table of where output pixels find their words. Made by `quantarray.kernels.windows`, cached, read-only by
    agreement."""

    pixels: Array  # int64[tiles tile]: output pixels; those of a tile share a border class
    counts: Array  # int64[tiles]: how many of a tile's pixels count, the rest repeat the last
    classes: Array  # int64[tiles]
    origin: Array  # int64[pixels]: word at which the pixel's window begins, from the image's first word
    first_run: Array  # int64[classes * parts + 1]: runs of (class, part) are first_run[i] .. first_run[i + 1]
    runs: Array  # int64[runs 3]: words from the origin, first word of the weight, words
    image_words: int  # words from one image to the next
    parts: int  # stretches of the contraction with constants of their own


class Squares(NamedTuple):
    """A 3x3 window at stride 1 as 2 by 2 output pixels and the 4 by 4 that they see. Made as a `Plan` is."""

    sources: Array  # int64[squares 16]: word at which each input pixel begins, from the image's first; -1 outside
    targets: Array  # int64[squares 4]: output pixels, -1 where there is none
    kinds: Array  # int64[squares 4]: their border classes
    image_words: int  # words from one image to the next
    image_rows: int  # output pixels of an image


class Frame(NamedTuple):
    """A window at stride 1 over images between zeros; the zeros after a row are also those before the next.

    Some images are computed `together`: a row of one, the same row of the next and so on, then their next rows. A
    position is where a window begins; positions are a pixel apart. Made as a `Plan` is.
    """

    runs: Array  # int64[runs 3]: words from a position, first word of the weight, words; all taps
    first_run: Array  # int64[2]: of the one class that there is
    strips: Array  # int64[strips 3]: column, how many output pixels from there on, their class
    first_strip: Array  # int64[rows + 1]: strips of an output row
    columns: int  # output pixels of a row
    image_rows: int
    image_words: int
    row_words: int  # of the image
    pixel_words: int
    top: int  # rows of zeros above the image
    left: int  # pixels of zeros before its first
    pitch: int  # positions of an output row
    together: int
    row: int  # positions of a row of all images together
    seen: int  # rows of the image from the first to the last under a window


class Forms(NamedTuple):
    """A description of a product besides rows of windows: counts of other forms, 0 where there is none; its results."""

    tiles: int = 0  # of windows of one class, those that are not full among them
    squares: int = 0  # of 2 by 2 windows of 3x3 at stride 1, in all images
    positions: int = 0  # in all images, as a `Frame` has them
    position_words: int = 0
    quads: int = 0  # of 4 elements in a window, where each pixel's last word has at least two quads without any
    ranks: bool = False  # results are codes of several thresholds


class Left(NamedTuple):
    """A left operand: images or rows."""

    words: Array  # uint64[planes images*image_words]
    terms: Array  # int64[terms 4]: first plane, planes, base, step
    scale: Array  # float64[parts terms rows lanes], 1 where it doesn't vary
    offset: Array  # float64[parts rows lanes], likewise
    images: int
    row_is_pixel: bool  # constants vary by output pixel (a matrix' rows) and not by image


class Right(NamedTuple):
    """A right operand: weights. A lane is an output channel; each group's channels are padded to whole blocks."""

    words: Array  # uint64[planes blocks words lanes], laid out by `conv_weights`
    terms: Array  # int64[terms 4]
    scale: Array  # float64[parts terms blocks*lanes]
    offset: Array  # float64[parts blocks*lanes]
    sums: Array  # int64[classes*parts terms blocks*lanes]: sum of the term over the taps inside
    inside: Array  # int64[classes*parts]: contracted elements inside
    groups: int
    group_words: int  # words of one group in a pixel of the left operand
    group_lanes: int  # output channels of a group
    group_elements: int = 0  # of a group in a pixel, the last word's unused bits left out; 0 where nobody says


class Slices(NamedTuple):
    """A set of one-bit weights, for groups with as many outputs as channels, and a threshold for each output: words of
    channels, `period` a pixel.

    Arrays of words continue cyclically after the period, so that 8 can be read from each.
    """

    taps: Array  # uint64[taps words], a tap a channel of a group
    limits: Array  # uint64[classes planes words]: a number of 4, 6 or 8 bits a channel, a plane each
    flip: Array  # uint64[words]
    seen: Array  # int64[.., 2]: words from the origin, and a tap's from `taps` on; of class k first_seen[k] .. [k + 1]
    first_seen: Array  # int64[classes + 1]
    runs: Array  # int64[.., 4]: word of an image where windows begin, and of its result, words, class
    image_words: int
    result_words: int
    period: int
    turned: bool  # x's bits are, once for each channel of a group


class Taps(NamedTuple):
    """A set of depthwise weights of one term with small values, of two neighbouring taps of a row side by side."""

    values: Array  # [multiplier pairs 2 * lanes]: int8 where no sum of codes of x times values passes 2**15, or int16
    channels: int  # of x
    period: int  # words of a pixel


class PairedRows(NamedTuple):
    """A window over rows that are padded on both sides, in which pixels `near` each other are pairs.

    For a row of the result, `seen` has the rows of the image from the first under the window to after the last, the
    first of these that a row of the window meets, which row of the window that is, and how many do.
    """

    seen: Array  # int64[rows 5]
    kinds: Array  # int64[pixels]: the class of each pixel of the result
    image_rows: int
    row_words: int  # of the image
    row_step: int  # rows of the image between those of the window
    left: int  # pixels of padding before a row
    visible: int  # pixels of a row, from its first on
    width: int  # pixels of a padded row
    near: int
    every: int  # pixels from a pair to the next one
    pairs: int  # of a row
    window_pairs: int  # of a row of the window,
    apart: int  # pairs from one to the next
    step: int  # pairs from a window to the next
    slots: int  # rows of the image that a window spans


class Finish(NamedTuple):
    """A last step, from an exact integer or a float64 value to the result."""

    extra: Array  # int32 or int64 [classes lanes], as results are summed: what they have whatever the pixel's codes are
    pad: Array  # float64[classes lanes]: padding of a real result
    bias: Array  # float64[lanes]
    thresholds: Array  # of extra's dtype or float64 [T lanes]: a code counts those below the value; NaN is below all
    flip: Array  # uint32[lanes / 32], a bit a lane: thresholds not below the value count there
    toggles: Array  # uint64[T + 1 planes], all ones or none: bits of code 0, then those that change at each threshold
    lines: Array  # float64[4, 5 or 9 lanes] of `rank_lines.py`: lines of ranks, for 7 thresholds or more; or empty


class Shortcut(NamedTuple):
    """A shortcut that is added to results: numbers, or codes of the values levels[code].

    Sums are compared with bounds and thresholds in the dtype of `levels`, int64, or float64 for float32 sums.
    """

    values: Array  # integers or floats [rows channels], or codes uint64[planes rows words]
    levels: Array  # [codes], or one 0 where values are numbers
    bounds: Array  # [2]


class Fixed(NamedTuple):
    """A product's arguments that stay from call to call, for operands and a result of one form.

    The kernels below that take it call its parts w, plan and finish.
    """

    w: Right
    plan: Plan | Squares | Frame
    finish: Finish
    cache: dict[Any, Any]  # of the backend, for all of it
    plan_cache: dict[Any, Any]  # of the backend, for w and the plan, whatever the finish


class Cuts(NamedTuple):
    """A last step from a depthwise sum to a code, a channel a lane: a `Finish` of integers for the sum alone.

    Limits are as wide as sums: int16 where values are int8, or int32. There is one class where all have the same: their
    tables would be read from memory in each call of a network.
    """

    limits: Array  # [classes T lanes]: sums above it pass a threshold
    lanes: Array  # uint64[words 2]: bits of the channels whose codes count thresholds that are not passed, and of all
    lines: Array  # float32[classes 2 lanes], or empty: slope and shift of a sum whose whole part, clipped, is the code
    ends: Array  # uint8[classes 2 lanes], or empty: the least and the greatest code of that


class Search(NamedTuple):
    """A table of thresholds: operands of `encode` that stay as they are from call to call."""

    thresholds: Array
    codes: Array
    row: Array
    group: int
    cache: dict[Any, Any]  # what a backend derives from them


class FixedGrid(NamedTuple):
    """A grid of levels: operands of `encode_grid` that stay as they are from call to call."""

    start: Array
    step: Array
    factor: float
    low: int
    high: int
    down: bool
    row: Array
    group: int


class RangeRule(NamedTuple):
    """A rule from a range of values to evenly spaced levels: operands of `range_constants`, then of `encode_grid`.

    The grid starts at the offset, and its step is `times` the scale; with 0 times it starts at 0 and has the step 1.
    """

    top: int
    signed: bool
    symmetric: bool
    zero: bool
    times: float
    low: int
    high: int
    down: bool
