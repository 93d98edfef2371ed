"""Replace the rounding of saved tensors: by none, and by a move of each value by at most 1e-3 of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOVE = 1e-3  # of a value
MOST = 10 * MOVE  # that gradients move by, of their norm or of that of the results' gradients
# Their gradients are differences of products of values, which may be much larger than the differences
DIFFERENCES = frozenset(("nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention"))
NEAR = 1e-6  # of gradients that read a function of what is saved, whose inverse is rounded


class Plain:
    """A form that has the values themselves."""

    def __init__(self, values: Any, layout: Any, dtype: Any) -> None:
        self._values, self._layout, self._dtype = values, layout, dtype
        self.nbytes, self.bits = values.nbytes, 0

    def restore(self) -> Any:
        """Return a tensor of its own."""
        return self._layout.restore(self._values.clone(), self._dtype)


@contextmanager
def rounding(move: float) -> Iterator[set[bool]]:
    """Let contexts store values, each moved at random by up to `move` of it; yield a set that has True if they do."""
    import torch

    from quantarray.torch.host import Packer

    used: set[bool] = set()

    def round_off(self: Any, tensor: Any, layout: Any, bits: int, group: int, seed: int) -> Plain:
        used.add(True)
        values, random = layout.flat(tensor.detach()).float().clone(), torch.Generator().manual_seed(seed % 2**32)
        if move:
            values *= 1 + move * (2 * torch.rand(values.shape, generator=random) - 1)
        return Plain(values, layout, tensor.dtype)

    plain, Packer.round_off = Packer.round_off, round_off  # type: ignore[method-assign, assignment]
    try:
        yield used
    finally:
        Packer.round_off = plain  # type: ignore[method-assign]


def check(name: str, step: Any, exact: Any, again: Any) -> str | None:
    """Compare gradients without rounding, and with moved values, with the exact ones; return what is wrong.

    name: of the operator. step: as in `gradients`. exact, again: its gradients, twice, as those of some operators
    differ from call to call.
    """
    import torch

    size = float(exact.norm())
    with rounding(0.0) as used:
        got = step.gradients(step.context(2))
    off = float((got - exact).norm())
    if torch.equal(again, exact) and not torch.equal(got, exact) and not off <= NEAR * size:
        return f"gradients without rounding are off by {off:.2g} of {size:.2g}"
    if not used:
        return None
    with rounding(MOVE):
        moved = step.gradients(step.context(2))
    off = float((moved - exact).norm())
    if bool((moved.isnan() & ~exact.isnan()).any()):
        return "NaN by values that moved"
    if bool(((moved == 0) & (exact != 0)).any()):
        return "0 by values that moved, where exact training has another number"
    if off > MOST * max(size, step.upstream) and name not in DIFFERENCES:
        return f"gradients move by {off:.2g} of {size:.2g}"
    return None
