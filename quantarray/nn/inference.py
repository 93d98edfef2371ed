"""Shapes and dtypes of all values of a graph, without running it on data."""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import numpy as np

from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.format import MAX_AXES
from ..ops.creation.creation import from_codes
from ..ops.manipulation.reshaping import packed_axis
from .graph import Graph, Node
from .operators import OPERATORS
from .operators.movement import reshaped
from .operators.packed import merged
from .operators.quantizing import ROUNDING

MOST_INPUT = 2**28  # elements of an input
ROOM = 1 << 22  # elements of a value that any file may have
GROWTH = 1 << 10  # elements of a value for each byte of the file and each element of an input

Attributes = dict[str, Any]
Shape = tuple[int, ...]


class Kind(NamedTuple):
    """A value's shape and dtype, and the axis along which it is packed (None: it is dense)."""

    shape: Shape
    dtype: Any
    axis: int | None = None


def inferred(graph: Graph) -> dict[str, Kind]:
    """Return the kind of every value that is no constant.

    Raises ValueError or TypeError that names the first node whose operands or attributes do not go together, and for
    inputs, outputs and batches that are not as the graph says.
    """
    batches = {v.shape[:1] for v in graph.inputs if v.batched}
    if len(batches) > 1 or () in batches or any(v.batched for v in graph.outputs) > bool(batches):
        raise ValueError("its inputs and outputs must have one batch, as their first axis")
    kinds = kinds_of(graph)
    for value in graph.outputs:
        kind = kinds.get(value.name)
        if kind is None or kind.axis is not None or (kind.shape, kind.dtype) != (value.shape, np.dtype(value.dtype)):
            raise ValueError(f"the output {value.name!r:.80} must be a dense {value.text}, got {kind}")
    if batches:
        longer = kinds_of(graph, 1)
        for value in graph.outputs:
            n, *rest = value.shape
            if longer[value.name].shape != (n + value.batched, *rest):
                raise ValueError(f"the output {value.name!r:.80} does not have the batch of the inputs")
    return kinds


def kinds_of(graph: Graph, more: int = 0) -> dict[str, Kind]:
    """Return the kinds of all values where batches are longer by `more`."""
    kinds: dict[str, Kind] = {}
    room = ROOM + GROWTH * graph.nbytes
    for value in graph.inputs:
        shape = (value.shape[0] + more, *value.shape[1:]) if value.batched else value.shape
        count = math.prod(shape)
        if count > MOST_INPUT or len(shape) > MAX_AXES or (value.batched and not shape[0]):
            raise ValueError(f"the input {value.name!r:.80} has the shape {shape}: empty, or too large")
        kinds[value.name] = Kind(shape, np.dtype(value.dtype))
        room += GROWTH * count
    for node in graph.nodes:
        operands = [graph.constants[n] if n in graph.constants else kinds.get(n) for n in node.inputs]
        try:
            results = _results(node, operands)
            for kind in results:
                if len(kind.shape) > MAX_AXES or math.prod(kind.shape) > room:
                    raise ValueError(f"a result of shape {kind.shape} is larger than a graph of this size may have")
            kinds.update(zip(node.outputs, results, strict=True))
        except Exception as error:  # attributes of any type raise any error
            what = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{node.op} {node.outputs!r:.80}: {what}") from error
    return kinds


def _results(node: Node, operands: list[Any]) -> list[Kind]:
    """Return the kinds of a node's results; an operand is a kind, a constant, or None where it is left out."""
    a = dict(node.attributes)
    _check_count(node, a, operands)
    if node.op == "chain":
        return _chained(a, operands)
    if node.op == "split":
        return _parts(a, operands)
    operator = OPERATORS[node.op]
    if operator.packed:
        kinds = [_packed(node.op, a, operands)]
        if node.op == "add_residual" and a.get("return_sum"):  # before the codes, of their shape
            kinds.insert(0, Kind(kinds[0].shape, _sums(a, operands).dtype))
        return kinds
    arrays = [Kind(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in operands]
    if any(x is not None and (not isinstance(x, Kind) or x.axis is not None) for x in arrays):
        raise TypeError("it takes dense arrays")
    for name in (*operator.needs, *sorted(a.keys() & _CHECKED)):
        _check_attribute(name, a[name])
    shapes = [x.shape if x is not None else None for x in arrays]
    values = [x if isinstance(x, np.ndarray) else None for x in operands]
    results = [tuple(int(n) for n in s) for s in operator.shape(a, shapes, values)]
    first = np.dtype(operator.dtype(a, [x.dtype for x in arrays if x is not None]))
    dtypes = [first, *map(np.dtype, operator.others)]
    return [Kind(s, dtypes[i] if i < len(dtypes) else first) for i, s in enumerate(results)]


def _check_count(node: Node, a: Attributes, operands: list[Any]) -> None:
    """Raise TypeError for operands that are too many, too few, or left out where the operation needs them."""
    bound = inspect.signature(OPERATORS[node.op].run).bind(a, *operands)
    for name, parameter in bound.signature.parameters.items():
        x = bound.arguments.get(name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            missing = node.op != "Resize" and any(v is None for v in x or ())
        else:
            missing = parameter.default is parameter.empty and x is None
            missing &= not (node.op.startswith("QLinear") and name.endswith("zero"))
        if missing:
            raise TypeError(f"its operand {name} is left out")
    if not operands or operands[0] is None:
        raise TypeError("it has no operand")


# packed operations


def _packed(op: str, a: Attributes, operands: list[Any]) -> Kind:
    """Return the kind of a packed operation's result, which it gives of operands without a sample."""
    first = operands[0]
    if op == "reshape":
        if not isinstance(first, Kind) or first.axis is None:
            raise TypeError("it takes a packed array")
        new = reshaped(first.shape, a["shape"], 1)
        before = first._replace(axis=len(first.shape) - 1) if merged(first, new) else first
        return Kind(new, first.dtype, packed_axis(before, new))
    kinds = [x if isinstance(x, Kind) else _kind(x) for x in operands if not isinstance(x, (Thresholds, type(None)))]
    if op == "linear" and len(first.shape) == 1:
        whole: list[Any] = [_example(first._replace(shape=(0, *first.shape), axis=1 if first.axis == 0 else None))]
        result = OPERATORS[op].run(a, *whole, *operands[1:])
        return Kind(result.shape[1:], result.dtype, 0 if isinstance(result, QuantArray) else None)
    if op == "add_residual":
        a = {**a, "return_sum": False}
    result = _kind(OPERATORS[op].run(a, *[_example(x) if isinstance(x, Kind) else x for x in operands]))
    if op in ("transpose", "concat"):
        shapes = [k.shape for k in kinds]
        return result._replace(shape=tuple(OPERATORS[op.capitalize()].shape(a, shapes, [])[0]))
    return result._replace(shape=(*first.shape[:1], *result.shape[1:]))


def _chained(a: Attributes, operands: list[Any]) -> list[Kind]:
    """Return the kinds of a chain's results: dense values, codes, or both."""
    first = operands[0]
    if any(isinstance(x, Kind) and x.axis is not None for x in operands):
        raise TypeError("it takes dense arrays")
    if any(isinstance(x, Kind) and x.shape != first.shape for x in operands):
        raise ValueError("its operands differ in shape")
    results = OPERATORS["chain"].run(a, *[_example(x) if isinstance(x, Kind) else x for x in operands])
    kinds = [_kind(x) for x in (results if isinstance(results, tuple) else (results,))]
    return [kind._replace(shape=first.shape) for kind in kinds]


def _sums(a: Attributes, operands: list[Any]) -> Kind:
    return _packed("add_residual", {**a, "return_sum": False}, operands[:2])


def _parts(a: Attributes, operands: list[Any]) -> list[Kind]:
    """Return the kinds of the parts of codes."""
    first = operands[0]
    if not isinstance(first, Kind) or first.axis is None:
        raise TypeError("it takes a packed array")
    shapes = OPERATORS["Split"].shape({**a, "outputs": len(a["split"])}, [first.shape], [])
    return [first._replace(shape=tuple(int(n) for n in shape)) for shape in shapes]


def _example(kind: Kind) -> Any:
    """Return an array of a kind, without a sample where its first axis may be empty: it takes no memory."""
    shape = kind.shape
    if len(shape) > 1 and kind.axis != 0:
        shape = (0, *shape[1:])
    if kind.axis is None:
        return np.broadcast_to(np.zeros((), kind.dtype), shape)
    if math.prod(shape) > ROOM:
        raise ValueError(f"{kind.shape} is too large to be packed on axis 0")
    return from_codes(np.zeros(shape, np.uint8), kind.dtype, kind.axis)


def _kind(x: Any) -> Kind:
    """Return the kind of an array."""
    if not isinstance(x, QuantArray):
        return Kind(x.shape, x.dtype)
    return Kind(x.shape, x.dtype, x.axis)


_CHECKED = {"alpha", "beta", "epsilon", "extrapolation_value", "held", "max_val", "min_val", "to", "value"}


def _check_attribute(name: str, value: Any) -> None:
    if name == "rounding":
        right = value in ROUNDING
    elif name in ("to", "held"):
        right = isinstance(value, str) and np.dtype(value).kind in "biuf"
    else:
        right = type(value) in (int, float)
    if not right:
        raise ValueError(f"its attribute {name} is {value!r:.40}")
