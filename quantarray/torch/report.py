"""Count the bytes of saved tensors, per layer, as they were and as they wait packed."""

from __future__ import annotations

from typing import Any

import torch

from ..arrays.size_text import ratio
from .errors import Errors

_OWNERS = 3  # that a line names


class Layer:
    """A module's name and kind, the bits of the tensors that it saves, and their counts.

    fixed: true if `layers=` has set the bits. linear: true for a `torch.nn.Linear`. before, after: bytes. elements,
    total_bits: of what was rounded. owners: names of the layers that saved its tensors first.
    """

    __slots__ = (
        "after", "before", "bits", "elements", "fixed", "kind", "linear", "module", "name", "owners", "total_bits",
    )  # fmt: skip

    def __init__(self, name: str, bits: int | None, module: Any = None, fixed: bool = False) -> None:
        self.name, self.bits, self.fixed, self.module = name, bits, fixed, module
        self.kind, self.linear = type(module).__name__, isinstance(module, torch.nn.Linear)
        self.before = self.after = self.elements = self.total_bits = 0
        self.owners: list[str] = []

    def share(self, owner: Layer) -> None:
        """Note a tensor that another layer has saved before."""
        if owner.name not in self.owners:
            self.owners.append(owner.name)

    def move(self, other: Layer, nbytes: int) -> None:
        """Count bytes that are saved for another layer's sake from now on there."""
        self.after -= nbytes
        other.after += nbytes


class Report:
    """A count of the bytes that autograd saves in a context, per layer: `layers` is {name: (before, after)}.

    Before: all distinct tensors, those left alone included, parameters and buffers not. A tensor counts for the first
    layer that saves it, and the lines of layers that save no other say "shared with"; what is packed of it for another
    layer's sake counts there. `bits` is {name: bits an element}, the mean over a layer's elements that were rounded.
    """

    def __init__(self, errors: Errors) -> None:
        self._errors = errors
        self._layers: dict[str, Layer] = {}

    def add(self, layer: Layer) -> Layer:
        """Return a layer, whose counts are those of the first of its name from now on."""
        return self._layers.setdefault(layer.name, layer)

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Return {name: (bytes before, bytes after)} of layers that save something."""
        seen = [layer for layer in self._layers.values() if layer.before or layer.after or layer.owners]
        return {layer.name: (layer.before, layer.after) for layer in seen}

    @property
    def bits(self) -> dict[str, float]:
        """Return the mean bits of rounded elements, of each layer that has some."""
        return {x.name: x.total_bits / x.elements for x in self._layers.values() if x.elements}

    @property
    def errors(self) -> dict[str, float]:
        """Return how far what was rounded on a CPU is off, by layer: the norm of the errors / that of the values.

        Of inputs of norms: the root mean square error of the normalised values. Measured in the first step of the
        context, and in each 64th.
        """
        return {name: error for name, error in self._errors.by_layer.items() if name in self._layers}

    @property
    def mean_bits(self) -> float:
        """Return the mean bits of all rounded elements, 0 if there are none."""
        elements = sum(layer.elements for layer in self._layers.values())
        return sum(layer.total_bits for layer in self._layers.values()) / max(elements, 1)

    @property
    def before(self) -> int:
        """Sum the bytes that would be saved without the context."""
        return sum(was for was, _ in self.layers.values())

    @property
    def after(self) -> int:
        """Sum the bytes that are saved."""
        return sum(now for _, now in self.layers.values())

    @property
    def ratio(self) -> float:
        """before / after, and 1 where nothing is saved."""
        return self.before / max(self.after, 1) if self.before else 1.0

    def __str__(self) -> str:
        rows = [*self.layers.items(), ("all", (self.before, self.after))]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}} {was:>13,} {now:>13,}  {self._text(name)}" for name, (was, now) in rows)

    def _text(self, layer: str) -> str:
        """Return the ratio of a layer's bytes; a layer whose tensors count for others names these."""
        was, now = self.layers.get(layer, (self.before, self.after))
        owners = self._layers[layer].owners if layer in self._layers else []
        shared = f"shared with {', '.join(owners[:_OWNERS])}{', ..' * (len(owners) > _OWNERS)}"
        off = f", off by {self.errors[layer]:.2g}" if layer in self.errors else ""
        return shared if owners and not was else ratio(now, was) + off
