"""Allocate bits to layers and samples by sensitivity: range**2 times gradient norm (ActNN), or measured (GACT)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch

from ..core.dtypes import Array
from ..ops.quantize.bit_allocation import greedy

_STEPS = np.arange(1, 9)
_MOST_PENDING = 8  # steps whose backward pass may still come
_PADDING = 16  # rows whose last words add more than a 16th to them are no rows of their own


class Record:
    """A saved tensor of one step: its samples, and the squared norms of the gradients of what was computed from it."""

    __slots__ = ("ids", "norms", "rows")

    def __init__(self, rows: int, ids: Array | None) -> None:
        self.rows, self.ids = rows, ids
        self.norms: Array | None = None

    def see(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        """Add the squared norms of the gradient of a node's result, before its backward pass."""
        if gradients[0] is not None:
            self.add(gradients[0])

    def add(self, gradient: torch.Tensor) -> None:
        """Add the squared norms of a gradient, for each sample."""
        norms = _norms(gradient.detach(), self.rows)
        if np.isfinite(norms).all():
            self.norms = norms if self.norms is None else self.norms + norms


class Place:
    """A saved tensor of a layer, step after step: running gradient norms, C of each sample, and its share of bits.

    norm: running mean over steps; of sample i, where batches have ids, norms[i], NaN if it was not seen. C[n] =
    factor * norm[n] * sum over groups of n * (max - min)**2 / 4 bounds the variance that 1 bit adds to gradients.
    `factor` is 1, or measured.
    """

    def __init__(self) -> None:
        self.norm: float | None = None
        self.norms = np.full(0, np.nan, np.float32)
        self.pending: list[Record] = []
        self.spread, self.length = np.zeros(0), 0
        self.ids: Array | None = None
        self.factor = 1.0
        self.mean_bits: float | None = None

    def record(self, rows: int, ids: Array | None) -> Record:
        """Return a new record, which `follow` reads once its backward pass has come."""
        self.pending = [*self.pending[1 - _MOST_PENDING :], Record(rows, ids)]
        return self.pending[-1]

    def follow(self) -> None:
        """norm = (norm + new) / 2 for each record whose backward pass has come, and for its samples."""
        for record in self.pending:
            if record.norms is not None:
                new = float(record.norms.mean())
                self.norm = new if self.norm is None else (self.norm + new) / 2
                if record.ids is not None:
                    self._follow_samples(record.ids, record.norms)
        self.pending = [record for record in self.pending if record.norms is None]

    def _follow_samples(self, ids: Array, new: Array) -> None:
        most = int(ids.max()) + 1
        if most > self.norms.size:
            self.norms = np.concatenate([self.norms, np.full(most - self.norms.size, np.nan, np.float32)])
        before = self.norms[ids]
        self.norms[ids] = np.where(np.isnan(before), new, (before + new) / 2)

    def sensitivities(self, usual: float) -> Array:
        """Return C of each sample; the norm of one that was not seen is the mean, or else `usual`."""
        mean, ids = usual if self.norm is None else self.norm, self.ids
        if ids is None or not self.norms.size:
            return self.factor * mean * self.spread
        seen = self.norms[np.minimum(ids, self.norms.size - 1)].astype(np.float64)
        return self.factor * np.where(np.isnan(seen) | (ids >= self.norms.size), mean, seen) * self.spread


_LAST_ID = 1 << 26  # norms are kept in arrays up to the last one


class Allocation:
    """An allocation of `bits` an element on average to the samples of all saved tensors, by sensitivities seen before.

    A step's tensors come one by one. So at its start the bits are divided among tensors by the last step's C, all
    samples of all tensors under one budget; the bits of a tensor are divided among its samples when it comes, by the
    ranges that it has then.
    """

    def __init__(self, bits: int) -> None:
        self.bits, self.places = bits, dict[tuple[str, int], Place]()
        self.usual = 1.0  # norm of a tensor whose gradients nobody has seen

    def start(self) -> None:
        """Divide the bits of a step among tensors."""
        for place in self.places.values():
            place.follow()
        seen = [place.norm for place in self.places.values() if place.norm is not None]
        if not seen:
            return
        self.usual = sum(seen) / len(seen)
        places = list(self.places.values())
        lengths = np.repeat([place.length for place in places], [place.spread.size for place in places])
        bits = allocated(np.concatenate([place.sensitivities(self.usual) for place in places]), lengths, self.bits)
        end = 0
        for place in places:
            begin, end = end, end + place.spread.size
            place.mean_bits = float(bits[begin:end].mean())

    def bits_of(self, key: tuple[str, int], spread: Array, length: int, ids: Array | None) -> tuple[Array, Record]:
        """Return the bits of each sample of a tensor, and the record that takes the gradients' norms."""
        place = self.places.setdefault(key, Place())
        rows = len(spread)
        ids = ids if ids is not None and len(ids) == rows else None
        place.spread, place.length, place.ids = spread, length, ids
        mean = self.bits if place.mean_bits is None else place.mean_bits
        return allocated(place.sensitivities(self.usual), np.ones(rows, np.int64), mean), place.record(rows, ids)


def allocated(c: Array, sizes: Array, mean: float) -> Array:
    """Return bits 1 to 8 that minimise sum C / (2**bits - 1)**2 with at most `mean` bits an element."""
    c = np.where(np.isfinite(c), c, np.finfo(np.float32).max)
    cost = c[:, None] / (2.0**_STEPS - 1) ** 2
    return np.asarray(_STEPS[greedy(sizes, cost, _STEPS, math.floor(mean * int(sizes.sum()) + 1e-6))])


def rows_of(tensor: torch.Tensor, outermost: bool, batch: int | None) -> int:
    """Count the rows of a saved tensor that get bits of their own: samples, or 1.

    They are parts of the first axis, which must be outermost in memory: as many as the batch has, or as the axis has.
    """
    count = tensor.shape[0] if tensor.ndim and batch is None else batch or 1
    if not outermost or tensor.ndim < 2 or not count or tensor.shape[0] % count:
        return 1
    length = tensor.numel() // count
    padding = -length % 64
    return count if padding * _PADDING <= length else 1


def checked_ids(op: str, sample_ids: Iterable[int] | torch.Tensor) -> Array:
    """Return the ids of a batch's samples as int64 [samples]; ValueError for others than integers from 0 to 2**26."""
    ids = np.asarray(sample_ids)
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu" or int(ids.min()) < 0 or int(ids.max()) > _LAST_ID:
        got = f"{ids.dtype} of shape {ids.shape}" + (
            f", up to {ids.max()}" if ids.size and ids.dtype.kind in "iu" else ""
        )
        raise ValueError(
            f"{op}: sample_ids must be one integer for each sample of the batch, its number in the data set from 0 to "
            f"{_LAST_ID}, got {got}"
        )
    return ids.astype(np.int64)


def _norms(gradient: torch.Tensor, rows: int) -> Array:
    """Return the squared norm of each row of a gradient; of one that has other rows, the mean for each."""
    g = gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.float()
    if rows > 1 and g.ndim and g.shape[0] % rows == 0:
        norms = torch.linalg.vector_norm(g.reshape(rows, -1), dim=1)
    else:
        norms = (torch.linalg.vector_norm(g) / math.sqrt(rows)).expand(rows)
    return np.asarray(norms.double().cpu().numpy()) ** 2
