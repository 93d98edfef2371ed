"""Count the bytes of saved tensors, per layer, as they were and as they wait packed."""

from __future__ import annotations

from ..arrays.size_text import ratio

_OWNERS = 3  # that a line names


class Report:
    """A count of the bytes that autograd saves in a context, per layer: `layers` is {name: (before, after)}.

    Before: all distinct tensors, those left alone included, parameters and buffers not. A tensor counts for the first
    layer that saves it, and the lines of layers that save no other say "shared with"; what is packed of it for another
    layer's sake counts there. `bits` is {name: bits an element}, the mean over a layer's elements that were rounded.
    """

    def __init__(self) -> None:
        self.layers: dict[str, tuple[int, int]] = {}
        self._rounded: dict[str, tuple[int, int]] = {}
        self._shared: dict[str, list[str]] = {}

    @property
    def bits(self) -> dict[str, float]:
        """Return the mean bits of rounded elements, of each layer that has some."""
        return {name: total / elements for name, (elements, total) in self._rounded.items()}

    @property
    def mean_bits(self) -> float:
        """Return the mean bits of all rounded elements, 0 if there are none."""
        elements, total = (sum(pair[i] for pair in self._rounded.values()) for i in (0, 1))
        return total / max(elements, 1)

    def add_rounded(self, layer: str, elements: int, total_bits: int) -> None:
        """Add a rounded tensor's elements and their bits to a layer's."""
        before = self._rounded.get(layer, (0, 0))
        self._rounded[layer] = before[0] + elements, before[1] + total_bits

    def add(self, layer: str, before: int, after: int) -> None:
        """Add a tensor's bytes to a layer's."""
        was, now = self.layers.get(layer, (0, 0))
        self.layers[layer] = was + before, now + after

    def share(self, layer: str, owner: str) -> None:
        """Note a tensor that a layer saves and another one has saved before."""
        owners = self._shared.setdefault(layer, [])
        if owner != layer and owner not in owners:
            owners.append(owner)

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
        """before / after."""
        return self.before / max(self.after, 1)

    def __str__(self) -> str:
        rows = [*self.layers.items(), ("all", (self.before, self.after))]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}} {was:>13,} {now:>13,}  {self._text(name)}" for name, (was, now) in rows)

    def _text(self, layer: str) -> str:
        """Return the ratio of a layer's bytes; a layer whose tensors count for others names these."""
        was, now = self.layers.get(layer, (self.before, self.after))
        owners = self._shared.get(layer, [])
        shared = f"shared with {', '.join(owners[:_OWNERS])}{', ..' * (len(owners) > _OWNERS)}"
        return shared if owners and not was else ratio(now, was)
