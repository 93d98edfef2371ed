"""Round saved tensors with a seed each: at the bits of their layer, or at bits of each sample's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..core.dtypes import Array
from ..ops.quantize import mixed_rows
from ..quantizers.grouped import Grouped
from .errors import Errors, Norm
from .host import Packed, Packer
from .layout import Layout
from .report import Layer
from .sensitivity import Allocation, Record, rows_of
from .stored import Mixed, PackedOnGpu, round_off
from .unchecked import Unchecked

_MOST_BITS = 8
Key = tuple[str, int]  # a layer's name, and which of its tensors


class Rounding:
    """A rounding of a context's tensors, whose random numbers go on from step to step.

    allocation: bits by sensitivity, or None. During `measuring`, one tensor of a step is rounded, or none.
    """

    def __init__(self, group: int, seed: int, allocation: Allocation | None, norm_error: float | None = None) -> None:
        self._group, self._seed, self.allocation, self.packer = group, seed, allocation, Packer()
        self.unchecked, self.errors = Unchecked(), Errors(norm_error)
        self.record: Record | None = None
        self._count, self._batch, self._seen = 0, 0, False
        self._ids: Array | None = None
        self._places: dict[str, int] = {}
        self._only: Key | None = None
        self._measuring = False

    def start(self, ids: Array | None) -> None:
        """Start a step, of samples with ids or without."""
        self._ids = ids
        self._batch, self._seen = 0 if ids is None else len(ids), False
        self._places = {}
        if not self._measuring:
            self.errors.start()
            if self.allocation is not None:
                self.allocation.start()

    def see_batch(self, inputs: Any) -> None:
        """Note the first axis of an outermost module's input, unless the batch is known.

        Raises ValueError where there are ids, and no axis of the first such input in a step has as many.
        """
        first = inputs[0] if isinstance(inputs, tuple) and inputs else None
        if not self._seen and isinstance(first, torch.Tensor) and self._ids is not None:
            if len(self._ids) not in first.shape:
                raise ValueError(
                    f"compressed_activations: batch() has {len(self._ids)} sample_ids for an input "
                    f"{tuple(first.shape)}; it needs one for each sample"
                )
        self._seen = True
        if not self._batch and isinstance(first, torch.Tensor) and first.ndim:
            self._batch = first.shape[0]

    @contextmanager
    def measuring(self, only: Key | None) -> Iterator[None]:
        """Round the tensor `only` at the usual bits, and leave all others as they are."""
        self._measuring, self._only = True, only
        try:
            yield
        finally:
            self._measuring, self._only = False, None

    def uniform(
        self, tensor: torch.Tensor, layout: Layout, bits: int, layer: Layer, packer: Packer | None
    ) -> Packed | PackedOnGpu | None:
        """Round a tensor to as many bits everywhere; None, which leaves it, while others are measured.

        packer: None for a tensor of a GPU.
        """
        if self._measuring:
            return None
        self._count += 1  # as `_next_seed` does
        seed = (self._seed << 32 | self._count & 0xFFFFFFFF) & (2**64 - 1)
        stored: Packed | PackedOnGpu
        if packer is None:
            wrong = self.unchecked.flag(tensor, layer.name)
            stored = round_off(tensor, layout, bits, self._group, seed, self.packer, wrong)
        else:
            stored = packer.round_off(tensor, layout, bits, self._group, seed)
            if self.errors.active:
                self.errors.see(layer.name, tensor, stored)
        layer.elements += layout.size
        layer.total_bits += stored.bits
        return stored

    def of_norm(
        self, node: Any, tensor: torch.Tensor, layout: Layout, bits: int, layer: Layer, packer: Packer | None
    ) -> Packed | PackedOnGpu | None:
        """Round a norm's input to the bits that its error asks for, from `bits` on, unless its bits are fixed."""
        errors, name = self.errors, layer.name
        if not errors.active or packer is None or self._measuring:
            bits = errors.bits[name] if name in errors.bits and errors.bits[name] > bits else bits
            return self.uniform(tensor, layout, bits, layer, packer)
        norm = Norm(node, tensor)
        while True:
            stored = packer.round_off(tensor, layout, bits, self._group, self._next_seed())
            error = norm.error(stored)
            if bits == _MOST_BITS or layer.fixed or errors.is_enough(error):
                break
            bits += 1
        errors.bits[name] = max(bits, errors.bits.get(name, 0))
        errors.add(name, error**2 * layout.size, layout.size)
        layer.elements += layout.size
        layer.total_bits += stored.bits
        return stored

    def allocate(
        self, tensor: torch.Tensor, layout: Layout, bits: int, layer: Layer, packer: Packer | None
    ) -> Packed | PackedOnGpu | Mixed | None:
        """Round a tensor to the bits that its sensitivity asks for; `record` is then that of its gradients' norms."""
        if self.allocation is None or packer is None:
            return self.uniform(tensor, layout, bits, layer, packer)
        key = layer.name, self._places.get(layer.name, 0)
        self._places[layer.name] = key[1] + 1
        rows = rows_of(tensor, layout.order[:1] == (0,), self._batch or None)
        values: Any = layout.flat(tensor).float().view(rows, -1).numpy()
        ends = mixed_rows.ends_of_groups(values, min(self._group, values.shape[1]))
        if not mixed_rows.are_ordinary(ends):
            return self.uniform(tensor, layout, bits, layer, packer)
        spread = mixed_rows.spread(ends, values.shape[1], self._group)
        chosen, self.record = self.allocation.bits_of(key, spread, values.shape[1], self._ids)
        if self._measuring and key != self._only:
            return None
        if self._measuring:
            chosen[:] = bits
        stored: Packed | Mixed
        seed = self._next_seed()
        if rows == 1:
            stored = packer.round_off(tensor, layout, int(chosen[0]), self._group, seed)
        else:
            scheme = Grouped(bits, self._group, seed)
            stored = Mixed(mixed_rows.round_rows(values, ends, chosen, scheme), layout, tensor.dtype)
        if self.errors.active:
            self.errors.see(layer.name, tensor, stored)
        layer.elements += layout.size
        layer.total_bits += stored.bits
        return stored

    def _next_seed(self) -> int:
        self._count += 1
        return (self._seed << 32 | self._count & 0xFFFFFFFF) & (2**64 - 1)
