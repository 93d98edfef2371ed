"""Note which function of PyTorch runs while autograd saves tensors, and visit the nodes that it adds to the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = frozenset(f"conv{t}{d}d" for t in ("", "_transpose") for d in (1, 2, 3))
PRODUCTS = CONVOLUTIONS | {"linear", "bilinear"}
DROPOUT = frozenset(("dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout"))
# Errors in what these save reach the gradients of all layers, and are as few as the outputs of the last one
LOSSES = frozenset(
    name for name in vars(torch.nn.functional) if name.endswith("_loss") or "cross_entropy" in name or name == "kl_div"
)


class Call(NamedTuple):
    """A call of a function of PyTorch: its name and arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument by its place or its name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


class Calls(TorchFunctionMode):
    """A mode that holds the call in progress, the outermost where functions call others.

    settle(result, arguments) is called after each call. watchers: functions that it has added; they are called with the
    gradient of the result.
    """

    def __init__(self, settle: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self._settle = settle
        self.current: Call | None = None
        self.watchers: list[Callable[[torch.Tensor], None]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and note it meanwhile."""
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        before = self.current, self.watchers
        self.current, self.watchers = Call(getattr(func, "__name__", ""), args, kwargs or {}), []
        try:
            result = func(*args, **(kwargs or {}))
            self._settle(result, args)
            if self.watchers:
                _watch(result, self.watchers)
            return result
        finally:
            self.current, self.watchers = before


def _watch(result: Any, watchers: list[Callable[[torch.Tensor], None]]) -> None:
    """Call watchers with the gradient of a result, or of the first tensor of several that has one."""
    for tensor in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:

            def see(gradient: torch.Tensor) -> None:
                for watcher in watchers:
                    watcher(gradient)

            tensor.register_hook(see)
            return


def new_nodes(values: Any, first: int, seen: set[int]) -> list[Any]:
    """Return nodes of autograd's graph that tensors in nested `values` come from, oldest first, and add them to `seen`.

    They have numbers from `first` on that are not in `seen`, and so have the nodes after them.
    """
    nodes, waiting = [], [_node_of(tensor) for tensor in _tensors(values)]
    while waiting:
        node = waiting.pop()
        number = -1 if node is None else node._sequence_nr()
        if number >= first and number not in seen:
            seen.add(number)
            nodes.append(node)
            waiting.extend(after for after, _ in node.next_functions)
    return sorted(nodes, key=lambda node: int(node._sequence_nr()))


def _node_of(tensor: torch.Tensor) -> Any:
    try:
        return tensor.grad_fn
    except RuntimeError:  # one of several views of a tensor that was changed in place, which has no node any more
        return None


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def packed_by(node: Any) -> dict[str, Any]:
    """Return what hooks have packed for a node, by the name it is saved as; names of list elements end in a number."""
    packed = {}
    for name in _names_of_saved(node.__class__):
        try:
            raw = getattr(node, f"_raw_saved_{name}")
        except RuntimeError:  # freed by a backward pass
            return {}
        for i, tensor in enumerate(raw) if isinstance(raw, (tuple, list)) else [("", raw)]:
            packed[f"{name}{i}"] = tensor.data
    return packed


@cache
def _names_of_saved(kind: type) -> list[str]:
    return [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]


class Window(NamedTuple):
    """A window of max pooling, each (height, width), and the width of the input."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    width: int

    def local(self, indices: torch.Tensor) -> torch.Tensor:
        """Turn indices into a plane of the input to places within each window, uint8."""
        y, x = self._corners(indices)
        row = torch.div(indices, self.width, rounding_mode="floor")
        inside = torch.div(row - y, self.dilation[0], rounding_mode="floor") * self.size[1]
        return (inside + torch.div(indices - row * self.width - x, self.dilation[1], rounding_mode="floor")).byte()

    def indices(self, local: torch.Tensor) -> torch.Tensor:
        """Turn places within each window back to int64 indices into a plane of the input."""
        y, x = self._corners(local)
        place = local.long()
        row = torch.div(place, self.size[1], rounding_mode="floor")
        return (y + row * self.dilation[0]) * self.width + x + (place - row * self.size[1]) * self.dilation[1]

    def _corners(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = (torch.arange(n, device=indices.device) for n in indices.shape[-2:])
        return (rows * self.stride[0] - self.padding[0])[:, None], columns * self.stride[1] - self.padding[1]


def window_of(node: Any, width: int) -> Window:
    """Return the window of a node of max_pool2d, whose input has `width` columns."""
    size, stride, padding, dilation = (
        _pair(getattr(node, f"_saved_{name}")) for name in ("kernel_size", "stride", "padding", "dilation")
    )
    return Window(size, stride if any(stride) else size, padding, dilation, width)


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    """Return (height, width) of two numbers, of one for both, or of none."""
    return (values[0], values[-1]) if values else (0, 0)


def is_weight(call: Call, tensor: torch.Tensor) -> bool:
    """True for a tensor of a product's size of weights and not of its input's: a copy of them, as autocast makes."""
    x, weight = call.argument(0, "input"), call.argument(1, "weight")
    return isinstance(weight, torch.Tensor) and tensor.numel() == weight.numel() != x.numel()
