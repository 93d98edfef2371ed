"""Plan what to ask of autograd's nodes by their classes: which tensors they save, and what is read of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from .packed_products import is_known_product
from .reads import PRODUCTS, READS, ROUNDED, Read, operator_of

# Errors in what these save reach the gradients of all layers, and are as few as the outputs of the last one. They are
# told by their code: those made of several operators have a frame around these
LOSSES = frozenset(
    function.__code__
    for name, function in vars(torch.nn.functional).items()
    if (name.endswith("_loss") or name == "kl_div") and hasattr(function, "__code__")
)
_LINEAR = frozenset(("Addmm.mat2", "Addmv.mat", "Mm.mat2", "Mv.self"))  # where `linear` has its weights
_DEPENDING = frozenset(("Elu.self", "PreluKernel.self", "RreluWithNoise.noise"))
# Nodes between a parameter and the copies of it that products take, such as those of autocast
_COPIES = frozenset(
    f"{name}Backward0" for name in ("T", "ToCopy", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias")
)


ALWAYS = 0, -1  # edges of a product whose other operand is its weights, always


class Saving(NamedTuple):
    """A tensor that nodes of a class save.

    name: such as "Addmm.mat1", with the operator; least: bits of what is rounded, 0 for others; raw: gets what hooks
    have packed for it, or a tuple for a list of tensors; edges: of a product, which of the node's edges are the
    tensor's own and the other operand's; is_weights: where `torch.nn.Linear` has its weights; depends: what is read
    depends on the node; as_it_is: the values themselves are rounded, not a function of them.
    """

    name: str
    read: Read
    least: int
    raw: Callable[[Any], Any]
    edges: tuple[int, int] | None
    is_weights: bool
    depends: bool
    as_it_is: bool


class _Savings(dict[type, tuple[Saving, ...]]):
    """A table of what nodes of a class save, in the order in which it is given forms: shapes last."""

    def __missing__(self, kind: type) -> tuple[Saving, ...]:
        operator = "KnownProduct" if is_known_product(kind) else operator_of(kind.__name__)
        names = [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]
        rows = [_saving(f"{operator}.{name}", f"_raw_saved_{name}") for name in names]
        self[kind] = savings = tuple(sorted(rows, key=lambda one: one.read is Read.NOTHING))
        return savings


def _saving(name: str, attribute: str) -> Saving:
    read = READS.get(name, Read.EXACT)
    read = Read.EXACT if read is Read.EQUALITY else read
    least, edges = ROUNDED.get(read, 0), PRODUCTS.get(name)
    get, as_it_is = attrgetter(attribute), read in (Read.VALUE, Read.NORM, Read.CURVE, Read.DIFFERENCE)
    return Saving(name, read, least, get, edges, name in _LINEAR, name in _DEPENDING, as_it_is)


SAVINGS = _Savings()


def packed_by(saving: Saving, raw: tuple[Any, ...]) -> Iterator[tuple[Saving, Any]]:
    """Return what hooks have packed for a list of tensors, whose names have numbers at the end."""
    for i, tensor in enumerate(raw):
        yield _saving(f"{saving.name}{i}", "next_functions"), tensor.data


def is_copy_of_weights(node: Any) -> bool:
    """True for a node whose result is a parameter in another shape or dtype, or the node of a parameter."""
    while node is not None and node.__class__.__name__ in _COPIES:
        node = node.next_functions[0][0]
    return node is not None and node.__class__.__name__ == "AccumulateGrad"


def is_product(node: Any, saving: Saving) -> bool | None:
    """True for an operand of a product with weights, False for another tensor, None for weights."""
    edges, (mine, other) = node.next_functions, saving.edges or (0, 0)
    if is_copy_of_weights(edges[mine][0]):
        return None
    return is_copy_of_weights(edges[other][0])


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Iterate over the tensors in nested lists, tuples and dictionaries."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        yield from tensors_in(list(values.values()))
