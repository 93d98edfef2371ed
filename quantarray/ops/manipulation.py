"""Shape: views where no bit has to move, copies of words where bits do. Nothing is unpacked."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..array import QuantArray
from ..device import kernel
from ..dtypes import Array, Constants
from ..format import WORD, WORD_BITS, word_count
from . import checks


def _with(q: QuantArray, words: Array, shape: tuple[int, ...], axis: int, constants: Constants) -> QuantArray:
    return QuantArray(words, q.dtype, shape, axis, constants, q.scheme)


_Block = tuple[int, int, int, int]  # old axes i0 .. i1 hold the same elements as new axes j0 .. j1

# transpose


def transpose(q: QuantArray, *axes: Any) -> QuantArray:
    """See `QuantArray.transpose`."""
    op = "transpose"
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    order = [checks.axis(op, a, q.ndim) for a in given] if given else list(range(q.ndim))[::-1]
    if sorted(order) != list(range(q.ndim)):
        raise ValueError(f"{op}: needs each of the {q.ndim} axes once, got {tuple(given)}")
    outer = [d for d in order if d != q.axis]
    place = [d if d < q.axis else d - 1 for d in outer]
    words = q.words.transpose(0, *(1 + d for d in place), q.words.ndim - 1)
    constants = q.constants.map(lambda a, lead: a.transpose(*range(lead), *(lead + d for d in order)), q.group)
    return _with(q, words, tuple(q.shape[d] for d in order), order.index(q.axis), constants)


# indexing


def index(q: QuantArray, key: Any) -> QuantArray:
    """See `QuantArray.__getitem__`."""
    items = _expanded(q, key)
    shape: list[int] = []
    words_key: list[Any] = [slice(None)]
    axis_out, d = -1, 0
    start, stop = 0, q.shape[q.axis]
    for item in items:
        if item is None:
            shape.append(1)
            words_key.append(None)
            continue
        if d == q.axis:
            start, stop = _packed_slice(item, q.shape[d])
            axis_out = len(shape)
            shape.append(stop - start)
        else:
            words_key.append(item)
            if isinstance(item, slice):
                shape.append(len(range(*item.indices(q.shape[d]))))
        d += 1
    constants = q.constants.map(lambda a, lead: _index_constant(a, lead, q, items, start, stop), q.group)
    words = _cut(q, q.words[tuple(words_key)], start, stop)
    return _with(q, words, tuple(shape), axis_out, constants)


def _expanded(q: QuantArray, key: Any) -> list[Any]:
    """The key as a list of integers, slices and None that names every axis once."""
    items = list(key) if isinstance(key, tuple) else [key]
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("index: at most one ... in an index")
    named = sum(item is not None and item is not Ellipsis for item in items)
    if named > q.ndim:
        raise IndexError(f"index: too many indices: the array has {q.ndim} axes, {named} were named")
    fill = [slice(None)] * (q.ndim - named)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    items = items + fill if at is None else items[:at] + fill + items[at + 1 :]
    made, d = [], 0
    for item in items:
        if item is not None:
            item = _one_index(q, item, d)
            d += 1
        made.append(item)
    return made


def _one_index(q: QuantArray, item: Any, d: int) -> Any:
    if isinstance(item, slice):
        try:
            item.indices(q.shape[d])
        except (TypeError, ValueError) as error:
            raise type(error)(f"index: {item} for axis {d} of {q.shape}: {error}") from None
        return item
    try:
        if isinstance(item, bool):
            raise TypeError
        n = operator.index(item)
    except TypeError:
        raise TypeError(
            f"index: packed arrays take integers, slices, ... and None, got {checks.kind(item)} for axis {d}; "
            f"index .codes() or .dequantize() with lists, arrays and masks"
        ) from None
    if d == q.axis:
        raise IndexError(
            f"index: axis {d} is packed and takes slices with step 1 only; codes() or dequantize() give single elements"
        )
    if not -q.shape[d] <= n < q.shape[d]:
        raise IndexError(f"index: {n} is out of bounds for axis {d} of length {q.shape[d]}")
    return n


def _packed_slice(item: slice, length: int) -> tuple[int, int]:
    start, stop, step = item.indices(length)
    if step != 1:
        raise IndexError(f"index: the packed axis takes slices with step 1 only, got step {step}")
    return start, max(start, stop)


def _cut(q: QuantArray, words: Array, start: int, stop: int) -> Array:
    """Words of the elements start .. stop of the packed axis: a view if they begin and end on a word or the end."""
    if start % WORD_BITS == 0 and (stop % WORD_BITS == 0 or stop == q.shape[q.axis]):
        first = start // WORD_BITS
        return words[..., first : first + word_count(stop - start)]
    source = np.ascontiguousarray(words)
    count = source.shape[-1]
    out = np.empty((*source.shape[:-1], word_count(stop - start)), WORD)
    if out.size:
        flat = out.reshape(-1, 1, out.shape[-1])
        kernel(q.device, "rebit")(source.reshape(-1, 1, count), q.shape[q.axis], start, stop - start, flat)
    return out


def _index_constant(a: Array, lead: int, q: QuantArray, items: list[Any], start: int, stop: int) -> Array:
    key: list[Any] = [slice(None)] * lead
    d = 0
    for item in items:
        if item is None:
            key.append(None)
            continue
        if d == q.axis:
            key.append(_group_slice(a.shape[lead + d], q, start, stop))
        elif a.shape[lead + d] == 1 and (q.shape[d] != 1 or isinstance(item, slice)):
            key.append(0 if not isinstance(item, slice) else slice(None))
        else:
            key.append(item)
        d += 1
    return np.asarray(a[tuple(key)])


def _group_slice(groups: int, q: QuantArray, start: int, stop: int) -> slice:
    if groups == 1 or q.group is None:
        return slice(None)
    if start == stop:  # nothing is left that could vary
        return slice(0, 1)
    if start % q.group or (stop % q.group and stop != q.shape[q.axis]):
        raise IndexError(
            f"index: constants come in groups of {q.group} along the packed axis; {start}:{stop} cuts through a group"
        )
    return slice(start // q.group, -(-stop // q.group))


# reshape


def reshape(q: QuantArray, *shape: Any) -> QuantArray:
    """See `QuantArray.reshape`."""
    new = _new_shape(q, shape)
    blocks, packed = _packed_block(q, new)
    axis = packed[3] - 1
    constants = _reshape_constants(q, blocks, packed, new)
    words = _reshape_words(q, packed, new)
    return _with(q, words, new, axis, constants)


def _new_shape(q: QuantArray, shape: tuple[Any, ...]) -> tuple[int, ...]:
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    lengths = [checks.integer("reshape", "a length", n, -1) for n in given]
    known = math.prod(n for n in lengths if n >= 0)
    if lengths.count(-1) > 1:
        raise ValueError(f"reshape: at most one length may be -1, got {tuple(given)}")
    if -1 in lengths and known and q.size % known == 0:
        lengths[lengths.index(-1)] = q.size // known
    if -1 in lengths or math.prod(lengths) != q.size or not lengths:
        raise ValueError(f"reshape: an array of shape {q.shape} does not fit the shape {tuple(given)}")
    return tuple(lengths)


def _packed_block(q: QuantArray, new: tuple[int, ...]) -> tuple[list[_Block], _Block]:
    """The blocks, and the one that ends with the packed axis: nothing behind that axis may join it."""
    front, behind = q.shape[: q.axis + 1], q.shape[q.axis + 1 :]
    cuts = [
        j
        for j in range(1, len(new) + 1)
        if math.prod(new[:j]) == math.prod(front) and math.prod(new[j:]) == math.prod(behind)
    ]
    if not cuts:
        raise ValueError(
            f"reshape: {q.shape} packed on axis {q.axis} cannot become {new}: axes behind the packed one would merge "
            f"with it; transpose the packed axis to the end first"
        )
    # Lengths of 1 leave a choice: the packed axis keeps its length if it can, and is the last if it was
    same = [j for j in cuts if new[j - 1] == front[-1]]
    cut = (same or cuts)[-1 if not behind else 0]
    blocks = list(_blocks(front, new[:cut]))
    while len(blocks) > 1 and (blocks[-1][0] == blocks[-1][1] or blocks[-1][2] == blocks[-1][3]):
        blocks[-2:] = [(blocks[-2][0], blocks[-1][1], blocks[-2][2], blocks[-1][3])]
    i, j = len(front), cut
    return blocks + [(i + i0, i + i1, j + j0, j + j1) for i0, i1, j0, j1 in _blocks(behind, new[cut:])], blocks[-1]


def _blocks(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[_Block]:
    """The shortest stretches (old[i0:i1], new[j0:j1]) of equal products, in order."""
    if 0 in old:
        yield 0, len(old), 0, len(new)
        return
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0, a, b = i, j, 1, 1
        if i < len(old):
            a, i = old[i], i + 1
        if j < len(new):
            b, j = new[j], j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        yield i0, i, j0, j


def _reshape_words(q: QuantArray, block: _Block, new: tuple[int, ...]) -> Array:
    i0, i1, j0, j1 = block
    length, new_length = q.shape[i1 - 1], new[j1 - 1]
    outer_new = (*new[: j1 - 1], *new[j1:])
    if length == new_length:
        return q.words.reshape(q.bits, *outer_new, q.words.shape[-1])
    # [bits, before, segments, behind, word] -> [bits, before, behind, segments, word]
    before, segments = (int(np.prod(s, dtype=np.int64)) for s in (q.shape[:i0], q.shape[i0 : i1 - 1]))
    behind = int(np.prod(q.shape[i1:], dtype=np.int64))
    words = q.words.reshape(q.bits, before, segments, behind, q.words.shape[-1]).swapaxes(2, 3)
    new_segments = int(np.prod(new[j0 : j1 - 1], dtype=np.int64))
    new_before, new_behind = (int(np.prod(s, dtype=np.int64)) for s in (new[:j0], new[j1:]))
    shape = (q.bits, new_before, new_behind, new_segments, word_count(new_length))
    if length % WORD_BITS == 0 and new_length % WORD_BITS == 0:
        cut = words.reshape(shape)
    else:
        cut = np.empty(shape, WORD)
        if cut.size:
            source = np.ascontiguousarray(words).reshape(-1, segments, words.shape[-1])
            rows = cut.reshape(-1, new_segments, cut.shape[-1])
            kernel(q.device, "rebit")(source, length, 0, new_length, rows)
    return cut.swapaxes(2, 3).reshape(q.bits, *outer_new, cut.shape[-1])


def _reshape_constants(q: QuantArray, blocks: list[_Block], packed: _Block, new: tuple[int, ...]) -> Constants:
    if not q.size:
        return q.constants.map(lambda a, lead: _one_constant(a, lead, len(new)))
    i0, i1, j0, j1 = packed
    along = any(np.prod(a.shape[lead + i0 : lead + i1]) > 1 for _, a, lead in q.constants.items())
    same = q.shape[i1 - 1] == new[j1 - 1]
    kept = same and tuple(n for n in q.shape[i0:i1] if n != 1) == tuple(n for n in new[j0:j1] if n != 1)
    group = (q.group or q.shape[i1 - 1]) if along and not kept else q.group
    if along and not kept and (not group or q.shape[i1 - 1] % group or new[j1 - 1] % group):
        raise ValueError(
            f"reshape: the constants of {q.shape} vary along axes that merge into the packed one, in runs of {group}, "
            f"which do not fit its new length {new[j1 - 1]}; quantise with constants that don't vary there"
        )

    def change(a: Array, lead: int) -> Array:
        inner, made = a.shape[lead:], []
        for b in blocks:
            old, out = list(q.shape[b[0] : b[1]]), list(new[b[2] : b[3]])
            if b[0] <= q.axis < b[1] and group:
                old[-1], out[-1] = -(-old[-1] // group), -(-out[-1] // group)
            varies = np.prod(inner[b[0] : b[1]]) > 1
            made.append((old if varies else [1] * len(old), out if varies else [1] * len(out)))
        full = [n for old, _ in made for n in old]
        return np.broadcast_to(a, (*a.shape[:lead], *full)).reshape(*a.shape[:lead], *(n for _, o in made for n in o))

    return q.constants.map(change, group)


def _one_constant(a: Array, lead: int, ndim: int) -> Array:
    """An array without elements keeps one constant for all of them: the first, or 1 where there is none."""
    first = a.reshape(*a.shape[:lead], -1)[..., :1] if a.size else np.ones((*a.shape[:lead], 1), a.dtype)
    return first.reshape(*a.shape[:lead], *[1] * ndim)
