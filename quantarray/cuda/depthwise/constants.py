"""Constants of depthwise results on the device, by output in order: lanes are outputs, in whole half-words."""

from typing import NamedTuple

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES

_MOST = 2**31 - 1


class Integers(NamedTuple):
    """A last step of integers."""

    terms: object
    extra: object  # int32[classes lanes]
    thresholds: object  # int32[lanes 2^k], as many as there are and then the largest
    codes: object  # uint32[lanes 2^k]: the code of each rank


class Reals(NamedTuple):
    """A set of constants and the last step of real results."""

    terms: object
    x_scale: object  # float64[terms, images or 1, channels or 1]
    x_offset: object  # float64[1, images or 1, channels or 1]
    w_scale: object  # float64[terms lanes], the offset last
    sums: object  # int64[classes terms lanes] of weights, and last the number of taps inside
    divisor: object  # float64[classes], or empty
    pad: object  # float64[classes lanes]
    bias: object  # float64[lanes]
    thresholds: object  # float64[lanes 2^k]
    codes: object


def integers(x, w, finish, halves):
    how = w.group_lanes, w.words.shape[1], halves
    extra = launch.cached(_integer_lanes, (finish.extra,), *how)
    return Integers(launch.resident(x.terms), extra, *_search(finish, how))


def reals(x, w, finish, divisor, halves):
    how = w.group_lanes, w.words.shape[1], halves
    scale = launch.cached(_scales, (w.scale, w.offset), *how)
    sums = launch.cached(_sums, (w.sums, w.inside), *how)
    pad, bias = (launch.cached(_lanes, (a,), *how) for a in (finish.pad, finish.bias))
    x_scale, x_offset, divisor = map(launch.resident, (x.scale[0], x.offset, divisor))
    return Reals(launch.resident(x.terms), x_scale, x_offset, scale, sums, divisor, pad, bias, *_search(finish, how))


def _search(finish, how):
    return launch.cached(_search_lanes, (finish.thresholds, finish.flip, finish.toggles), *how)


def _search_lanes(thresholds, flip, toggles, *how):
    """(thresholds, codes) for a search by bisection, see `Integers`. Channels that count downwards have their codes in
    reverse."""
    count, integral = len(thresholds), thresholds.dtype.kind == "i"
    size = 1 << count.bit_length()
    padded = np.full((size, thresholds.shape[1]), _MOST if integral else np.inf)
    padded[:count] = thresholds.clip(-_MOST - 1, _MOST) if integral else thresholds
    codes = np.bitwise_xor.accumulate((toggles & np.uint64(1)) << np.arange(toggles.shape[1], dtype=np.uint64)).sum(1)
    down = np.unpackbits(flip.view(np.uint8), bitorder="little").astype(np.int64)[: thresholds.shape[1]]
    rank = np.arange(size).clip(max=count)[:, None]
    of_rank = codes[np.where(down, count - rank, rank)].astype(np.uint32)
    padded = padded.astype(np.int32 if integral else np.float64)
    return tuple(launch.resident(np.ascontiguousarray(_by_output(a, *how).T)) for a in (padded, of_rank))


def _integer_lanes(a, *how):
    return launch.resident(_by_output(a, *how).astype(np.int32))


def _lanes(a, *how):
    return launch.resident(_by_output(a, *how))


def _scales(scale, offset, *how):
    return _lanes(np.concatenate([scale[0], offset]), *how)


def _sums(sums, inside, *how):
    taps = np.broadcast_to(inside[:, None, None], (len(sums), 1, sums.shape[2]))
    return _lanes(np.concatenate([sums, taps], axis=1), *how)


def _by_output(a, channels, copies, halves):
    """[.., copies * width] to [.., lanes], zeros after the last output."""
    by_copy = a.reshape(*a.shape[:-1], copies, a.shape[-1] // copies)[..., :channels]
    outputs = np.moveaxis(by_copy, -2, -1).reshape(*a.shape[:-1], -1)
    laid_out = np.zeros((*a.shape[:-1], halves * LANES), a.dtype)
    laid_out[..., : outputs.shape[-1]] = outputs
    return laid_out
