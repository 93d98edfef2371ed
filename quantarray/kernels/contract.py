"""The contract: what every backend's kernels take and give. One stub a kernel, `out` last.

`cpu/` and `cuda/` have these functions in files of these names with these arguments; a test holds the signatures
together. Arguments are checked by the caller. Shapes are in brackets; all word arrays are C-contiguous uint64. Of words
that are zero on entry, bits are set; a backend that writes all of them says so (`registry.writes_words`)."""

from __future__ import annotations

from ..core.dtypes import Array
from .fits import below as below
from .fits import extremes as extremes
from .fits import group_constants as group_constants
from .fits import group_ends as group_ends
from .fits import range_constants as range_constants
from .fits import sums as sums
from .float_products import byte_row_product as byte_row_product
from .float_products import divide_rows as divide_rows
from .float_products import encode_rows as encode_rows
from .float_products import encode_runs as encode_runs
from .float_products import float_product as float_product
from .float_products import group_product as group_product
from .float_products import hadamard as hadamard
from .float_products import rms_norm as rms_norm
from .float_products import round_values as round_values
from .float_products import row_product as row_product
from .float_products import row_product_levels as row_product_levels
from .float_products import row_product_scaled as row_product_scaled
from .float_products import row_product_spaced as row_product_spaced
from .float_products import scaled_product as scaled_product
from .one_pass import map_reduce as map_reduce
from .operands import Chain, Cuts, Finish, Fixed, FixedGrid, Left, PairedRows, Plan, RangeRule, Search, Slices, Taps
from .searches import add_candidates as add_candidates
from .searches import add_products as add_products
from .searches import least_candidates as least_candidates
from .searches import nearest as nearest
from .searches import nearest_products as nearest_products
from .searches import nearest_sets as nearest_sets
from .searches import within_distance as within_distance
from .searches import within_sets as within_sets
from .shortcuts import add_shortcut as add_shortcut
from .shortcuts import conv_added as conv_added
from .tables import look_up as look_up
from .tables import recode as recode


def pack(codes: Array, out: Array) -> None:
    """uint8 codes[rows length] to out uint64[planes rows words], tails zero."""


def pack_seen(codes: Array, seen: Array, out: Array) -> None:
    """`pack`, and the bits of all codes together are those of seen uint8[rows], zero on entry."""


def pack_signed(values: Array, out: Array) -> None:
    """`pack` of int8 values[rows length] as 8 planes of the codes value + 128. On the CPU only."""


def encode(x: Array, thresholds: Array, codes: Array, row: Array, group: int, nan: Array, out: Array) -> None:
    """Encode x[before length after] to out uint64[planes rows words], row b * after + a being x[b, :, a].

    x of float16, float32, float64, int8 or uint8, or uint16: the bits of bfloat16. thresholds [row_tables groups T],
    float64 for x of that and float32 for any other, so that compares are exact, ascend; the code of a value is
    codes[.., number of thresholds it is at least], uint8 [row_tables groups T + 1]. row int64[rows] names each row's
    table, or its one entry that of all; group its elements a group, a multiple of 64 or the whole row. nan bool[pieces]
    is set where there is a NaN."""


def encode_grid(
    x: Array, start: Array, step: Array, factor: float, low: int, high: int, down: bool,
    row: Array, group: int, nan: Array, out: Array
) -> None:  # fmt: skip
    """clip(round((x - start) * factor / step), low, high) - low in float64, packed as `encode` packs.

    x, row, group, nan and out as there; start and step float64[row_tables groups]. `round` is to the nearest integer,
    ties to the even one, or with `down` to the next one below. On the CPU only: on a GPU, whose float64 is slow,
    thresholds are looked up."""


def encode_small(x: Array, fixed: Search, nan: Array, out: Array) -> None:
    """`encode` of contiguous x[rows length], in this thread. nan bool[1]. On the CPU only."""


def encode_grid_small(x: Array, fixed: FixedGrid, nan: Array, out: Array) -> None:
    """`encode_grid` of contiguous x[rows length], in this thread. nan bool[1]. On the CPU only."""


def encode_range(x: Array, run: int, rule: RangeRule, wrong: Array, constants: Array, out: Array) -> None:
    """Compute evenly spaced levels for each `run` of the flattened x[rows length], and encode it as `encode_grid` does.

    x contiguous, float16, 32 or 64; a run is some whole rows, or a part of a row of whole words. constants float32
    [1 or 2, runs] become scales, and offsets if not symmetric. wrong bool[1], False on entry, is set where a value is
    NaN or 1e30 and more: then nothing else counts. On the CPU only."""


def unpack(words: Array, out: Array) -> None:
    """uint64 words[planes rows words] to out uint8 codes[rows length]."""


def encode_grouped(
    values: Array, low: Array, step: Array, start: Array, stride: int, group: int, key: Array, out: Array
) -> None:
    """floor((x - low) / step + u), clamped to the codes there are, of values[rows length].

    values float32 or float64; low, step float32[rows groups], step > 0, an entry a `group` of elements; computed in
    float64. out uint64[planes rows words]. u is 1/2 without a key. key uint32[3] are two words of a Philox4x32-10 key
    and the third of its counter: element i of row r is number n = start[r] + i * stride, start int64[rows], and u is
    2**-32 times word n % 4 of the block with the counter (n // 4 % 2**32, n // 4 // 2**32, key[2], 0)."""


def encode_groups(
    x: Array, run: int, digits: int, key: Array, wrong: Array, constants: Array, out: Array
) -> None:  # fmt: skip
    """`group_constants` of each `run` of the flattened x[rows length], and `encode_grouped` by them.

    x contiguous, float32 or float64; a run is some whole rows, or a part of a row of whole words, of which the last may
    be shorter if there is one row; elements are numbered in order of memory. constants float32[2 runs] become steps
    and offsets. wrong as in `encode_range`."""


def pack_compared(x: Array, low: float, high: float, between: bool, wrong: Array, out: Array) -> None:
    """Pack low <= x < high of contiguous float32 x[1 length] into uint64 out[1 1 words], or x >= high if not `between`.

    wrong bool[1], False on entry, is set where a value is NaN or infinite, and if not `between` where it is from low to
    below high: then nothing else counts. On the CPU only."""


def encode_mixed(
    x: Array, ends: Array, rows: Array, group: int, digits: int, key: Array, constants: Array, out: Array
) -> None:  # fmt: skip
    """`encode_groups` of rows to bits of their own: rows int64[2 rows] are bits, and first words in out uint64[words].
    ends of `group_ends`, finite; constants float32[2 rows groups]; a row's planes follow one another. CPU only."""


def decode_mixed(words: Array, rows: Array, low: Array, step: Array, group: int, out: Array) -> None:
    """`decode_uniform` of the words and rows of `encode_mixed`; low, step float32[rows groups]. On the CPU only."""


def decode_uniform(words: Array, low: Array, step: Array, group: int, out: Array) -> None:
    """out[r, i] = low[r, i // group] + step[r, i // group] * code, in float64, rounded to float32 once.

    words uint64[planes rows words]; low, step float32[rows groups]; out float32[rows length], or float16, or
    uint16, the bits of bfloat16, to which the float32 is rounded."""


def decode_spaced(
    words: Array, low: Array, step: Array, first: int, apart: int, group: int, out: Array
) -> None:  # fmt: skip
    """`decode_uniform` of low + step * (first + apart * code), in float64; low may be [0 0] for 0. On the CPU only."""


def decode_levels(words: Array, levels: Array, row: Array, group: int, out: Array) -> None:
    """out[r, i] = levels[row[r], i // group, code]; words uint64[planes rows words], out [rows length].

    levels [row_tables groups codes] of out's dtype, of 16 or 32 bits. row int64[rows], or its one entry for all."""


def add_codes(words: Array, others: Array, turned: tuple[bool, bool], length: int, out: Array) -> None:
    """Add codes: those of out [planes rows words] = those of words + those of others, of fewer planes, tails zero.

    turned: where bits of words, and of others, are inverted first: codes 2**planes - 1 - c. Sums fit out's planes."""


def rebit(words: Array, length: int, start: int, new_length: int, out: Array) -> None:
    """Cut rows of bits into other segments: each row of words uint64[rows segments words] is a stream of `length` bits
    a segment.

    out uint64[rows new_segments new_words] takes `new_length` bits a segment from bit `start` on."""


def unroll(
    words: Array, length: int, size: tuple[int, ...], stride: tuple[int, ...], pads: tuple[int, ...],
    dilation: tuple[int, ...], out: Array,
) -> None:  # fmt: skip
    """Unroll windows over images of `length` bits a pixel, less than 64, as rows of bits.

    words uint64[planes images h w]; out uint64[planes images rows columns words]: bits tap * length .. of a window are
    those of the pixel under the tap, or zeros outside the image. `pads` are those before."""


def place(parts: list[tuple[Array, int, int, int]], out: Array) -> None:
    """Copy runs of other rows one after another: a part (words, start, step, count) gives the bits start, start +
    step, .. of each row, `count` of them.

    words uint64[rows words], or one row for all; any step, 0 and negative ones too. out uint64[rows new_words] is zero
    on entry."""


def spread(words: Array, times: int, out: Array) -> None:
    """Repeat each bit of words[rows words] `times` times, side by side, as many as fit out uint64[rows new_words]."""


def gather(words: Array, length: int, indices: Array, out: Array) -> None:
    """out[r, i] = bit indices[r, i] of row r of words[rows words].

    indices[index_rows n], any integers from -length on, may have strides of 0: row r takes row r % index_rows of them.
    out uint64[rows new_words]."""


def gather_rows(words: Array, indices: Array, out: Array) -> None:
    """out[p, a, j, b] bit i = words[p, a, indices[a, j, b, i], b] bit i.

    words uint64[planes a length b words], indices[a new_length b bits] any integers from -length on, which may have
    strides of 0; out uint64[planes a new_length b words]."""


def repack(words: Array, out: Array) -> None:
    """Transpose bits: bit p of words uint64[rows a between p_words] to bit a of out uint64[rows p between a_words].

    The lengths of the axes are read where they are unpacked: a in words, p in out."""


def threshold(values: Array, finish: Finish, out: Array) -> None:
    """Write codes of values[rows channels] to out uint64[planes rows words], zero on entry.

    values int64 or float64, on the CPU int32 or float32 too."""


def elementwise(
    x: Array, other: Array, chain: Chain, limits: Array, flip: Array, nan: Array, values: Array, out: Array
) -> None:
    """Apply a chain to x[rows channels], and encode the result; x and other of any integer dtype or float32.

    other [rows channels], or of size 0 where no step adds it. values float32[rows channels], or of size 0. out
    uint64[planes rows words], or of size 0: a value's code is the number of limits float32[T channels] that it is over,
    with channels filled up to words; flip uint64[2 words] has the channels whose codes count the others, and the
    channels there are. nan bool[pieces] is set where codes are asked for and a value is NaN; it is not cleared."""


def max_pool(words: Array, plan: Plan, flip: Array, out: Array) -> None:
    """Write the largest code of each window: uint64 words[planes images*image_words] to out[planes rows words].

    The plan has tiles of one pixel. Channels whose bits are set in flip uint64[words] get the smallest code, which is
    the largest once all bits are turned over. Planes of `out` beyond those of words take the number of the first tap
    that has that code, as many bits as there are."""


def pool_values(x: Array, grid: Array, counts: Array, flip: Array, out: Array) -> None:
    """Write the largest value of each window of x[images depth height width channels], float32 or int32, or the mean.

    grid int64[3 4]: taps, stride, dilation, places before the image. Where counts[pixels] is not empty, sums of taps in
    order, in its dtype, are divided by them. Bits of flip uint32[channels] are turned over before and after. A window
    without a tap has -inf, the least integer, or the sum 0."""


def put_channels_last(x: Array, out: Array) -> None:
    """out[n, p, c] = x[n, c, p], uint8 or float32, for few channels."""


def join(x: Array, first: int, out: Array) -> None:
    """out[r, first + i] = x[r, i], float32."""


def conv_weights(words: Array, groups: int, out: Array) -> None:
    """Lay words uint64[planes channels words] out as uint64[planes blocks words lanes], groups in whole blocks."""


def conv_words(laid_out: Array, groups: int, out: Array) -> None:
    """Restore the words uint64[planes channels words] that `conv_weights` laid out."""


def conv(x: Left, fixed: Fixed, out: Array) -> None:
    """Convolve integer levels, or multiply matrices of them, by and-popcount.

    out int32 or int64 [rows channels], or uint64[planes rows words] (zero on entry) of thresholded codes."""


def dot_weights(words: Array, groups: int, out: Array) -> None:
    """Lay words uint64[planes channels words] out for `dot`, in the shapes of `conv_weights`."""


def dot_words(laid_out: Array, groups: int, out: Array) -> None:
    """Restore the words that `dot_weights` laid out."""


def dot(x: Left, fixed: Fixed, out: Array) -> None:
    """`conv` for results that int32 holds, of at most 8 planes a side, by dot products of bytes.

    w.words are laid out by `dot_weights`."""


def winograd(x: Left, fixed: Fixed, out: Array) -> None:
    """`dot` for 3x3 windows at stride 1 and few bits, by Winograd's F(2x2, 3x3).

    The plan is `Squares`. w.sums and w.inside are those of each of the 9 taps, not of border classes."""


def framed(x: Left, fixed: Fixed, out: Array) -> None:
    """`dot` for windows at stride 1 of one group, multiplied in place in images between zeros.

    The plan is a `Frame`."""


def conv_real(x: Left, fixed: Fixed, out: Array) -> None:
    """Compute `conv` with float constants: out float32[rows channels], or uint64[planes rows words]."""


def rescale(
    sums: Array, x_scale: Array, x_offset: Array, kinds: Array, scale: Array, ones: Array, pad: Array, bias: Array,
    inside: Array, out: Array,
) -> None:  # fmt: skip
    """(x_scale * scale) * sums + (x_offset * scale) * ones + pad + bias, in float64 in this order, to float32 out.

    Divided by float64 inside[class] before it is rounded, unless `inside` is empty.

    sums int32[rows channels], which may be the memory of out[rows channels]. x_scale, x_offset float64[images] or [1],
    kinds int64[pixels] the class of each pixel of an image; scale, bias float64[channels], no bias -0.0; ones int64 and
    pad float64, [classes channels], pad of no elements where nothing is added."""


def add_planes(
    sums: Array, factor: Array, along: Array, kinds: Array, fixed: Array, finish: Finish, out: Array
) -> None:
    """sum_ts factor[t, s, o] * sums[t, row, s * channels + o] + sum_t along[t, o] * sums[t, row, -1] + fixed.

    Added one after the other in float64, rounded once. sums int32[terms rows width]; factor float64[terms terms
    channels]; along float64[terms channels], or of no elements; kinds int64[pixels] the class of each pixel of an
    image; fixed float64[.., classes channels], added one by one. out as in `conv_real`."""


def depthwise(x: Left, fixed: Fixed, divisor: Array, out: Array) -> None:
    """Convolve each input channel by itself. w.words int64[terms multiplier taps lanes] are the terms' values.

    The plan has tiles of one pixel; lanes are [multiplier input channels], each copy padded to whole words, and
    `w.group_lanes` is the number of input channels. Real results where `finish.thresholds` are float64. The value is
    divided by float64 divisor[class], as in average pooling, unless that is empty. out as in `conv` and `conv_real`."""


def depthwise_bytes(x: Left, w: Taps, plan: PairedRows, finish: Finish, out: Array) -> None:
    """`depthwise` of a term of at most 8 planes, lanes as there; results and `finish.extra` are int32.

    The step of x's term counts without its sign."""


def depthwise_codes(x: Left, w: Taps, plan: PairedRows, cuts: Cuts, out: Array) -> None:
    """Write codes of `depthwise_bytes` to uint64 out[planes rows words], for a multiplier of 1."""


def sliced(x: Left, w: Slices, out: Array) -> None:
    """Convolve a term of one plane to single bits, uint64 out[1 rows words], where a group of channels has as many
    outputs: a bit is flip ^ (how many taps inside differ from x's bits < the limit).

    A group of several channels has its bits once for each of them, as `turn` has them."""


def turn(words: Array, field: int, out: Array) -> None:
    """out[i, r] = words[i], fields of `field` bits turned by r: bit l of a field is the field's bit (l + r) % field.

    words uint64[images words], out uint64[images field words]; a field has a power of two bits, below 64."""


def count(words: Array, start: int, stop: int, group: int, sets: Array, out: Array) -> None:
    """out[s, r, i] += how many elements of row r and segment i have ones in all planes of set s.

    words uint64[planes rows folds words]: all folds of a row count, elements start .. stop of the packed axis, cut into
    segments of `group` from `start` on. sets int64[sets 2]: the earlier set that a set extends, -1 if none, and the
    plane that it adds. out int64[sets rows segments]."""


def count_lanes(words: Array, sets: Array, out: Array) -> None:
    """out[s, r, i] += in how many folds element i of row r has ones in all planes of set s.

    words and sets as in `count`, fewer than 2**32 folds; out int64[sets rows length]."""


def total(words: Array, length: int, levels: Array, row: Array, over: int, out: Array) -> None:
    """out[r] = sum of the values of row r, of codes in ascending order each times its number; divided by `over` if > 0.

    words uint64[planes rows folds words], folds of `length` elements; levels int64 or float64[tables codes], in which
    the sum runs; row int64[rows] names each row's table, or its one entry that of all; out [rows]. The quotient is of
    float64. For a GPU, where it is one launch."""


def argmax(
    words: Array, length: int, levels: Array, row: Array, group: int, floor: float, lanes: bool, out: Array
) -> None:
    """Find the first place of the largest value above `floor` of each line, -1 where there is none.

    words uint64[planes rows folds words]. A line is a row of `length` elements, in one fold; with `lanes` it is one of
    these elements through all folds. The value of a code is levels[row[r * folds + f], i // group, code], float64
    [tables groups codes], row int64[rows * folds], or int64[1] for one table for all. out int64[rows lines]."""


def cumulate(words: Array, length: int, levels: Array, row: Array, group: int, lanes: bool, out: Array) -> None:
    """Sum up the values of each line; arguments as in `argmax`.

    levels int64 or float64, in which sums run; each is rounded to `out`, [rows folds length], once."""


def argsort(words: Array, length: int, ranks: Array, row: Array, group: int, lanes: bool, out: Array) -> None:
    """Sort the places along each line by their ranks, equal ranks in order of place: a counting sort.

    Arguments as in `argmax`, with ranks int64 from 0 on for levels; out int64[rows folds length]."""


def sort(words: Array, length: int, order: Array, row: Array, group: int, lanes: bool, out: Array) -> None:
    """Sort the codes of each line in the order of order[tables groups codes], uint8.

    Arguments as in `argmax`; the tables do not change along a line. out uint64[planes rows folds words], zero on entry.
    """
